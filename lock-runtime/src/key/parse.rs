//! Conversion of text into a key.

use super::{LockKey, check};
use crate::{LockError, LockErrorKind};

impl LockKey {
    /// Validates `text` and creates a key from it.
    ///
    /// For a key that contains values, use `lock_key!` instead, which encodes them. With
    /// `format!("{tenant}/{user}")`, the tenant `a/b` with the user `c` and the tenant `a` with the user `b/c` share
    /// one lock. Also, if a value contains a character that templates encode, the key made with `format!` differs from
    /// the one that `#[distributed_lock(key = "<tenant>/<user>")]` builds for the same values, so the two locks do not
    /// exclude each other.
    ///
    /// # Errors
    /// [`InvalidKey`](LockErrorKind::InvalidKey) if the text is not a valid name; the message states what is wrong.
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

/// A type that can name a lock: text, a [`LockKey`], or the result of `lock_key!`.
///
/// If the text is not a valid name, acquiring the lock returns an error.
pub trait IntoLockKey {
    /// Validates the name and returns the key with `prefix`.
    #[doc(hidden)]
    fn into_lock_key(self, prefix: &str) -> Result<LockKey, LockError>;
}

impl IntoLockKey for LockKey {
    fn into_lock_key(self, prefix: &str) -> Result<LockKey, LockError> {
        Ok(if self.prefix() == prefix {
            self
        } else {
            Self::joined(prefix, self.as_str()).or_class(self.class)
        })
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

/// For the result of `lock_key!`: if it is an error, acquiring the lock returns that error.
impl IntoLockKey for Result<LockKey, LockError> {
    fn into_lock_key(self, prefix: &str) -> Result<LockKey, LockError> {
        self?.into_lock_key(prefix)
    }
}

/// Formats an invalid name for an error message: escaped, and truncated if it is long.
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
