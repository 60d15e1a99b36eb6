//! The settings in a store's URL, read in the same way for all stores.

use std::time::Duration;

use crate::{LockError, LockErrorKind, time::duration};

/// The settings in the URLs of one store.
pub(in crate::backend) struct Settings {
    /// The store's name in messages.
    pub(in crate::backend) store: &'static str,
    pub(in crate::backend) known: &'static [&'static str],
    /// Upper bound on a duration, in whole hours.
    pub(in crate::backend) longest: Duration,
}

impl Settings {
    /// Parses a duration above zero.
    pub(in crate::backend) fn length(&self, name: &str, value: &str) -> Result<Duration, LockError> {
        // The error does not repeat the value, which may be the rest of a password that contains a `?`.
        let length = duration::parse(value).map_err(|_| {
            let has_no_unit = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            self.wrong(name, if has_no_unit {
                "its value has no unit: write `s` or `ms` after it"
            } else {
                "its value is not a duration: write whole numbers with the units `h`, `m`, `s` and `ms`, such as `250ms` or \
                 `1m30s`"
            })
        })?;
        if length.is_zero() {
            return Err(self.wrong(name, "must be above zero"));
        }
        if length > self.longest {
            return Err(self.wrong(name, &format!("must be at most {}h", self.longest.as_secs() / 3600)));
        }
        Ok(length)
    }

    /// Parses `true` or `false`.
    #[cfg(feature = "redis")]
    pub(in crate::backend) fn switch(&self, name: &str, value: &str) -> Result<bool, LockError> {
        value.parse().map_err(|_| self.wrong(name, &format!("write `{name}=true` or `{name}=false`")))
    }

    /// Returns the error for a setting with an invalid value.
    pub(in crate::backend) fn wrong(&self, name: &str, problem: &str) -> LockError {
        invalid(format!("setting `{name}` in the {} URL: {problem}", self.store))
    }

    /// Returns the error for the unknown setting `name` in `query`.
    pub(in crate::backend) fn unknown(&self, name: &str, query: &str) -> LockError {
        self.unknown_beside(name, query, &[])
    }

    /// Returns the error for the unknown setting `name` in a URL that may also have the driver's settings, `of_driver`.
    ///
    /// The error repeats the name only if it looks like a name, and if the query is not the rest of a password.
    pub(in crate::backend) fn unknown_beside(
        &self,
        name: &str,
        query: &str,
        of_driver: &[&str],
    ) -> LockError {
        let is_name = name.len() <= 32 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        if !is_name || query.contains('@') {
            return invalid(format!(
                "the {} URL has an unknown setting after its `?`, which is not repeated here; settings are `a-z` and `_`, \
                 and in a user name or a password a `?` is written `%3F` and an `&` is written `%26`",
                self.store
            ));
        }
        let known: Vec<_> = self.known.iter().chain(of_driver).map(|known| format!("`{known}`")).collect();
        let (last, others) = known.split_last().expect("a store has settings");
        invalid(format!(
            "unknown setting `{name}` in the {} URL; known settings are {} and {last}",
            self.store,
            others.join(", ")
        ))
    }
}

/// Returns the error for a URL of `store` that is not understood.
pub(in crate::backend) fn not_understood(store: &str, why: &str) -> LockError {
    invalid(format!("the {store} URL is not understood: {why}"))
}

/// Returns the error for an invalid URL.
pub(in crate::backend) fn invalid(message: String) -> LockError {
    LockError::new(LockErrorKind::InvalidOptions, message)
}
