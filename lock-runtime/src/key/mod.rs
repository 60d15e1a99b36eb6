//! The name of a lock.

pub mod class;
pub(crate) mod encode;
pub(crate) mod parse;
pub mod template;

pub use self::parse::IntoLockKey;

use std::{borrow::Borrow, fmt, hash::Hash, sync::Arc, time::Duration};

/// The maximum length of a name in bytes, without the prefix.
pub(crate) const MAX_KEY_BYTES: usize = 512;
/// The maximum length of a prefix in bytes.
pub(crate) const MAX_PREFIX_BYTES: usize = 128;

/// The validated name of a lock.
///
/// A name is any text of at most 512 bytes that follows these rules:
/// * it is not empty and contains no control characters;
/// * it does not begin with `~` or contain `:~`, because stores use such names for their own entries;
/// * it contains braces only as a single hash tag, as in `{tenant}:orders`. (In a Redis Cluster, the hash tag determines
///   the slot.)
///
/// Two keys are equal (`==`) if their names are the same, byte for byte: case matters, and Unicode is not normalised.
/// The prefix is not compared: keys with the same name but different prefixes are equal, although they are different
/// locks in the store.
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
    /// The prefix and the name, as used in the store.
    stored: Arc<str>,
    /// The byte offset at which the name begins.
    start: usize,
    /// `None` if the program states no class.
    class: Option<&'static str>,
}

impl LockKey {
    /// Creates a key from a name that was validated.
    pub(crate) fn joined(prefix: &str, name: &str) -> Self {
        let stored = if prefix.is_empty() { Arc::from(name) } else { Arc::from([prefix, name].concat()) };
        Self { stored, start: prefix.len(), class: None }
    }

    /// Returns the name under which the store keeps the mark of a [period](crate::Lock::once_per) of this lock: for each
    /// length, one name for the even periods, and one for the odd periods. (The numbers of periods of different lengths
    /// cannot be compared.) No lock has such a name, because names contain no `:~`.
    pub(crate) fn mark(&self, period: u64, length: Duration) -> Self {
        let (seconds, parity) = (length.as_secs(), period % 2);
        let length = match length.subsec_nanos() {
            0 => format!("{seconds}s"),
            nanos => format!("{seconds}s{nanos}"),
        };
        Self::joined(self.prefix(), &format!("{self}:~once:{length}:{parity}")).or_class(self.class)
    }

    /// Returns the name of the lock, without the prefix.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.stored[self.start..]
    }

    /// Returns the name with the manager's prefix, as used in the store.
    #[must_use]
    pub fn stored(&self) -> &str {
        &self.stored
    }

    /// Sets the class of the lock: a name that all locks of one place in the program share, such as `user:<id>`.
    /// Metrics and traces state the class instead of the name, of which there may be millions.
    ///
    /// The attribute, the layer and `lock_key!` set their template as the class. The class is no part of the name:
    /// keys of different classes may be equal.
    ///
    /// ```
    /// use lock_runtime::LockKey;
    ///
    /// let key = LockKey::new("invoice:2026-11")?.with_class("invoice:<month>");
    /// assert_eq!(key.class(), "invoice:<month>");
    /// assert_eq!(key, LockKey::new("invoice:2026-11")?);
    /// # Ok::<(), lock_runtime::LockError>(())
    /// ```
    #[must_use]
    pub const fn with_class(mut self, class: &'static str) -> Self {
        self.class = Some(class);
        self
    }

    /// Like [`with_class`](Self::with_class), for a key without a class.
    pub(crate) fn or_class(mut self, class: Option<&'static str>) -> Self {
        self.class = self.class.or(class);
        self
    }

    /// Returns the [class](Self::with_class) of the lock; `other` if it has none.
    #[must_use]
    pub fn class(&self) -> &'static str {
        self.class.unwrap_or(class::OTHER)
    }

    #[cfg(any(feature = "memory", feature = "postgres", feature = "redis"))]
    pub(crate) fn stored_name(&self) -> Arc<str> {
        Arc::clone(&self.stored)
    }

    /// Returns the prefix that a manager has put in front of the name. A key made with [`new`](Self::new) or
    /// `lock_key!` has no prefix, so the result is an empty string. The key of a lock, as returned by a guard or an
    /// error, has the prefix of the manager through which the lock was requested.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.stored[..self.start]
    }
}

/// Validates a name; the error states what is wrong with it.
pub(crate) fn check(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("a name must not be empty".into());
    }
    if text.len() > MAX_KEY_BYTES {
        return Err(format!("{} bytes long, at most {MAX_KEY_BYTES} are allowed", text.len()));
    }
    if text.starts_with('~') || text.contains(":~") {
        return Err("`~` at the beginning and `:~` are reserved for the stores' own entries".into());
    }
    check_characters(text)
}

/// Checks the rules that apply to prefixes as well as to names.
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

/// Finds the hash tag in `text`: a single pair of braces with something between them.
pub(crate) fn hash_tag(text: &str) -> HashTag {
    let mut braces = text.match_indices(['{', '}']);
    match (braces.next(), braces.next(), braces.next()) {
        (None, ..) => HashTag::None,
        (Some((open, "{")), Some((close, "}")), None) if close > open + 1 => HashTag::Tag,
        _ => HashTag::Malformed,
    }
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
