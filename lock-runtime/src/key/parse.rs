//! Turns text into a key.

use super::{LockKey, check};
use crate::{LockError, LockErrorKind};

impl LockKey {
    /// Creates a key from `text` after checking it.
    ///
    /// Values in it are not encoded. If `tenant` contains a `:` or `/`, `format!("tenant:{tenant}")` may be one lock
    /// for two tenants, or a second lock for one tenant, which `#[distributed_lock(key = "tenant:<tenant>")]` locks by
    /// another name. Write a key that contains values with `lock_key!`.
    ///
    /// # Errors
    /// [`InvalidKey`](LockErrorKind::InvalidKey), which says what is wrong.
    pub fn new(text: impl AsRef<str>) -> Result<Self, LockError> {
        Self::with_prefix("", text.as_ref())
    }

    pub(crate) fn with_prefix(prefix: &str, text: &str) -> Result<Self, LockError> {
        check(text).map_err(|problem| {
            LockError::new(LockErrorKind::InvalidKey, format!("lock key {}: {problem}", shown(text)))
        })?;
        Ok(Self::joined(prefix, text))
    }
}

impl std::str::FromStr for LockKey {
    type Err = LockError;

    fn from_str(text: &str) -> Result<Self, LockError> {
        Self::new(text)
    }
}

/// The name given to a lock: text, or a [`LockKey`] that was checked before.
///
/// Invalid text is reported when the lock is acquired.
pub trait IntoLockKey {
    /// Returns the checked key under `prefix`.
    #[doc(hidden)]
    fn into_lock_key(self, prefix: &str) -> Result<LockKey, LockError>;
}

impl IntoLockKey for LockKey {
    fn into_lock_key(self, prefix: &str) -> Result<LockKey, LockError> {
        Ok(if self.prefix() == prefix { self } else { Self::joined(prefix, self.as_str()) })
    }
}

impl IntoLockKey for &LockKey {
    fn into_lock_key(self, prefix: &str) -> Result<LockKey, LockError> {
        self.clone().into_lock_key(prefix)
    }
}

impl IntoLockKey for &str {
    fn into_lock_key(self, prefix: &str) -> Result<LockKey, LockError> {
        LockKey::with_prefix(prefix, self)
    }
}

impl IntoLockKey for String {
    fn into_lock_key(self, prefix: &str) -> Result<LockKey, LockError> {
        LockKey::with_prefix(prefix, &self)
    }
}

impl IntoLockKey for &String {
    fn into_lock_key(self, prefix: &str) -> Result<LockKey, LockError> {
        LockKey::with_prefix(prefix, self)
    }
}

/// The value of `lock_key!`: its error becomes the error of the acquisition.
impl IntoLockKey for Result<LockKey, LockError> {
    fn into_lock_key(self, prefix: &str) -> Result<LockKey, LockError> {
        self?.into_lock_key(prefix)
    }
}

/// Formats a refused name for an error: escaped, and cut if it is long.
fn shown(text: &str) -> String {
    let head: String = text.chars().take(64).collect();
    let rest = if head.len() < text.len() { "…" } else { "" };
    format!("{head:?}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        let error = LockKey::new(text).expect_err("refused");
        assert_eq!(error.kind(), LockErrorKind::InvalidKey);
        error.to_string()
    }

    #[test]
    fn plain_names_are_kept() {
        for name in [
            "user:42",
            "a",
            "größe/7",
            "with space",
            "{tenant}:x",
            "x{tenant}",
            "a~b",
            "é".repeat(256).as_str(),
        ] {
            assert_eq!(LockKey::new(name).expect(name).as_str(), name);
        }
    }

    #[test]
    fn bad_names_are_refused_in_words() {
        assert!(refusal("").contains("must not be empty"));
        assert!(refusal(&"x".repeat(513)).contains("513 bytes long, at most 512"));
        assert!(refusal("a\nb").contains(r"control character \n"));
        for reserved in ["~x", "a:~1:q"] {
            assert!(refusal(reserved).contains("reserved"), "{reserved}");
        }
        for braces in ["{}", "{a", "a}", "}a{", "{a}{b}", "{{a}}"] {
            assert!(refusal(braces).contains("hash tag"), "{braces}");
        }
    }

    #[test]
    fn a_refused_name_is_shown_escaped_and_short() {
        let text = refusal(&format!("\u{1b}[31m{}", "x".repeat(2000)));
        assert!(text.len() < 300 && !text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn prefix_is_stored_and_not_shown() {
        let key = LockKey::with_prefix("lock:", "user:42").expect("valid");
        assert_eq!((key.stored(), key.as_str(), key.prefix()), ("lock:user:42", "user:42", "lock:"));
        assert_eq!(key.to_string(), "user:42");
        assert_eq!(key.clone().into_lock_key("app:").expect("valid").stored(), "app:user:42");
        assert_eq!(key, LockKey::new("user:42").expect("valid"));
    }
}
