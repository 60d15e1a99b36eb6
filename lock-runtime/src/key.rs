//! The name of a lock.

use std::{borrow::Borrow, fmt, hash::Hash, sync::Arc};

use crate::{LockError, LockErrorKind};

/// The longest name, in bytes, without the prefix.
pub(crate) const MAX_KEY_BYTES: usize = 512;
/// The longest prefix, in bytes.
pub(crate) const MAX_PREFIX_BYTES: usize = 128;

/// The name of a lock, checked.
///
/// At most 512 bytes of any text, with these exceptions, so that no name can be mistaken for another or for
/// something that a store keeps beside it:
/// * not empty, no control characters;
/// * it does not begin with `~` and does not contain `:~`;
/// * braces only as one hash tag, `{tenant}:orders`, which decides the slot in a Redis Cluster.
///
/// Names are compared byte by byte: case matters and Unicode is not normalised.
///
/// ```
/// use lock_runtime::LockKey;
///
/// assert_eq!(LockKey::new("user:42")?.as_str(), "user:42");
/// assert!(LockKey::new("").is_err());
/// # Ok::<(), lock_runtime::LockError>(())
/// ```
#[derive(Clone)]
pub struct LockKey {
    /// Prefix and name, as the store keeps it.
    stored: Arc<str>,
    /// Where the name begins.
    start: usize,
}

impl LockKey {
    /// Checks `text`.
    ///
    /// Values are not encoded: `format!("tenant:{tenant}")` may be two locks for one tenant, or one for two, where
    /// `tenant` contains a `:` or `/`, and another lock than `#[distributed_lock(key = "tenant:<tenant>")]` has. With
    /// values in it, write the key with `lock_key!`.
    ///
    /// # Errors
    /// [`InvalidKey`](LockErrorKind::InvalidKey), with what is wrong.
    pub fn new(text: impl AsRef<str>) -> Result<Self, LockError> {
        Self::with_prefix("", text.as_ref())
    }

    pub(crate) fn with_prefix(prefix: &str, text: &str) -> Result<Self, LockError> {
        check(text).map_err(|problem| {
            LockError::new(LockErrorKind::InvalidKey, format!("lock key {}: {problem}", shown(text)))
        })?;
        Ok(Self::joined(prefix, text))
    }

    /// Of a name that was checked.
    fn joined(prefix: &str, name: &str) -> Self {
        let stored = if prefix.is_empty() { Arc::from(name) } else { Arc::from([prefix, name].concat()) };
        Self { stored, start: prefix.len() }
    }

    /// The name as the user wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.stored[self.start..]
    }

    /// The name with the manager's prefix, as the store keeps it.
    #[must_use]
    pub fn stored(&self) -> &str {
        &self.stored
    }

    pub(crate) fn stored_name(&self) -> Arc<str> {
        Arc::clone(&self.stored)
    }

    /// The manager's prefix.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.stored[..self.start]
    }
}

/// What a lock is named by: text, or a [`LockKey`] that was checked before.
///
/// Bad text is reported when the lock is acquired.
pub trait IntoLockKey {
    /// The checked key under `prefix`.
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

/// What `lock_key!` evaluates to: an error in it is an error of the acquisition.
impl IntoLockKey for Result<LockKey, LockError> {
    fn into_lock_key(self, prefix: &str) -> Result<LockKey, LockError> {
        self?.into_lock_key(prefix)
    }
}

/// What is wrong with a name, if anything.
fn check(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("a name must not be empty".into());
    }
    if text.len() > MAX_KEY_BYTES {
        return Err(format!("{} bytes long, at most {MAX_KEY_BYTES} are allowed", text.len()));
    }
    if text.starts_with('~') || text.contains(":~") {
        return Err("`~` at the beginning and `:~` are reserved for what a store keeps beside a lock".into());
    }
    check_characters(text)
}

/// The rules that hold for a prefix and a name alike.
pub(crate) fn check_characters(text: &str) -> Result<(), String> {
    if let Some(control) = text.chars().find(|c| c.is_control()) {
        return Err(format!("contains the control character {}", control.escape_default()));
    }
    match hash_tag(text) {
        HashTag::Malformed => Err("braces are allowed only as one hash tag, like `{tenant}:orders`".into()),
        HashTag::None | HashTag::Tag => Ok(()),
    }
}

#[derive(PartialEq)]
pub(crate) enum HashTag {
    None,
    Tag,
    Malformed,
}

/// Whether `text` has a hash tag of its own: one pair of braces with something in between.
pub(crate) fn hash_tag(text: &str) -> HashTag {
    let mut braces = text.match_indices(['{', '}']);
    match (braces.next(), braces.next(), braces.next()) {
        (None, ..) => HashTag::None,
        (Some((open, "{")), Some((close, "}")), None) if close > open + 1 => HashTag::Tag,
        _ => HashTag::Malformed,
    }
}

/// A refused name as an error shows it: escaped, and cut where it is long.
fn shown(text: &str) -> String {
    let head: String = text.chars().take(64).collect();
    let rest = if head.len() < text.len() { "…" } else { "" };
    format!("{head:?}{rest}")
}

impl PartialEq for LockKey {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for LockKey {}

impl PartialOrd for LockKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LockKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Hash for LockKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl PartialEq<str> for LockKey {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for LockKey {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl AsRef<str> for LockKey {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for LockKey {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockKey({:?})", self.as_str())
    }
}

impl std::str::FromStr for LockKey {
    type Err = LockError;

    fn from_str(text: &str) -> Result<Self, LockError> {
        Self::new(text)
    }
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
