//! The settings in a store's URL, read alike for all stores.

use std::time::Duration;

use crate::{LockError, LockErrorKind, time::duration};

/// The settings that URLs of one store have.
pub(in crate::backend) struct Settings {
    /// As it is called in messages.
    pub(in crate::backend) store: &'static str,
    pub(in crate::backend) known: &'static [&'static str],
    /// The longest length of time, in whole hours.
    pub(in crate::backend) longest: Duration,
}

impl Settings {
    /// A length of time above zero.
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

    /// The error of a setting whose value is not understood.
    pub(in crate::backend) fn wrong(&self, name: &str, problem: &str) -> LockError {
        invalid(format!("setting `{name}` in the {} URL: {problem}", self.store))
    }

    /// The error of a setting that does not exist.
    pub(in crate::backend) fn unknown(&self, name: &str) -> LockError {
        let (last, others) = self.known.split_last().expect("a store has settings");
        let others: Vec<_> = others.iter().map(|known| format!("`{known}`")).collect();
        invalid(format!(
            "unknown setting `{}` in the {} URL; known are {} and `{last}`",
            name.escape_debug(),
            self.store,
            others.join(", ")
        ))
    }
}

/// The error of a URL that is not understood.
pub(in crate::backend) fn invalid(message: String) -> LockError {
    LockError::new(LockErrorKind::InvalidOptions, message)
}
