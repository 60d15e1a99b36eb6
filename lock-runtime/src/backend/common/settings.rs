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
        let length = duration::parse(value).map_err(|error| self.wrong(name, &error.to_string()))?;
        if length.is_zero() {
            return Err(self.wrong(name, "must be above zero"));
        }
        if length > self.longest {
            return Err(self.wrong(name, &format!("must be at most {}h", self.longest.as_secs() / 3600)));
        }
        Ok(length)
    }

    /// Returns the error for a setting with an invalid value.
    pub(in crate::backend) fn wrong(&self, name: &str, problem: &str) -> LockError {
        invalid(format!("setting `{name}` in the {} URL: {problem}", self.store))
    }

    /// Returns the error for an unknown setting.
    pub(in crate::backend) fn unknown(&self, name: &str) -> LockError {
        self.unknown_beside(name, &[])
    }

    /// The same, where the URL may have these settings, too, which are the driver's.
    pub(in crate::backend) fn unknown_beside(&self, name: &str, of_driver: &[&str]) -> LockError {
        let known: Vec<_> = self.known.iter().chain(of_driver).map(|known| format!("`{known}`")).collect();
        let (last, others) = known.split_last().expect("a store has settings");
        invalid(format!(
            "unknown setting `{}` in the {} URL; known settings are {} and {last}",
            name.escape_debug(),
            self.store,
            others.join(", ")
        ))
    }
}

/// Returns the error for a URL that is not understood.
pub(in crate::backend) fn invalid(message: String) -> LockError {
    LockError::new(LockErrorKind::InvalidOptions, message)
}
