//! [`Label`]: what the holder of a lock, or a waiter, says of itself to operators.

use std::fmt;

use crate::{LockError, LockErrorKind};

/// A short text by which a program says for what it acquires a lock, such as `nightly report`.
///
/// Operators see the label of the holder and of the waiters ([`LockManager::inspect`](crate::LockManager::inspect)). It
/// has at most [`MAX_BYTES`](Self::MAX_BYTES) bytes, and no control characters. Set it with
/// [`Lock::label`](crate::Lock::label); the attribute and the layer set the name of the function or the route by default.
/// A label is stored with the lock, so do not put a secret into it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Label {
    bytes: [u8; Self::MAX_BYTES],
    /// Number of bytes in use; [`TOO_LONG`] or [`CONTROL`] instead if the program has set a text that is not allowed.
    length: u8,
}

const TOO_LONG: u8 = u8::MAX;
const CONTROL: u8 = u8::MAX - 1;

impl Label {
    /// Upper bound on the length of a label in bytes.
    pub const MAX_BYTES: usize = 63;

    /// No label.
    pub(crate) const NONE: Self = Self { bytes: [0; Self::MAX_BYTES], length: 0 };

    /// Creates a label. A text that is not allowed makes a label that [`check`](Self::check) refuses.
    pub(crate) fn new(text: &str) -> Self {
        if text.len() > Self::MAX_BYTES {
            return Self { length: TOO_LONG, ..Self::NONE };
        }
        if text.chars().any(char::is_control) {
            return Self { length: CONTROL, ..Self::NONE };
        }
        let mut label = Self::NONE;
        label.bytes[..text.len()].copy_from_slice(text.as_bytes());
        label.length = u8::try_from(text.len()).unwrap_or_default();
        label
    }

    /// Creates a label from the end of a text, which may be longer than a label; for the names of functions and routes,
    /// whose ends say more than their beginnings. A text with a control character makes no label, because a program that
    /// has set none must not be refused for it.
    pub(crate) fn from_end_of(text: &str) -> Self {
        let mut start = text.len().saturating_sub(Self::MAX_BYTES);
        while !text.is_char_boundary(start) {
            start += 1;
        }
        let label = Self::new(&text[start..]);
        if label.length == CONTROL { Self::NONE } else { label }
    }

    /// Returns the text; empty if no label is set.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..usize::from(self.length)).unwrap_or_default();
        str::from_utf8(bytes).unwrap_or_default()
    }

    /// Returns whether no label is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_str().is_empty()
    }

    /// Fails if the program has set a text that is not allowed.
    pub(crate) fn check(&self) -> Result<(), LockError> {
        let problem = match self.length {
            TOO_LONG => format!("is longer than {} bytes", Self::MAX_BYTES),
            CONTROL => "contains a control character".into(),
            _ => return Ok(()),
        };
        Err(LockError::new(LockErrorKind::InvalidOptions, format!("the label of the lock {problem}")))
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_its_text_or_says_what_is_wrong() {
        let longest = "x".repeat(Label::MAX_BYTES);
        for text in ["", "nightly report", "Überweisung 🔒", &longest] {
            let label = Label::new(text);
            assert_eq!(label.as_str(), text);
            assert!(label.check().is_ok());
        }
        for (text, word) in [(longest + "y", "63 bytes"), ("a\nb".into(), "control")] {
            let label = Label::new(&text);
            let error = label.check().expect_err("not allowed");
            assert!(
                error.kind() == LockErrorKind::InvalidOptions && error.to_string().contains(word),
                "{error}"
            );
            assert!(label.is_empty(), "a part of it is of no use");
        }
    }

    #[test]
    fn the_end_of_a_long_name_is_kept() {
        assert_eq!(Label::from_end_of("a::b").as_str(), "a::b");
        let long = format!("{}::charge", "ü".repeat(60));
        let label = Label::from_end_of(&long);
        assert!(
            label.as_str().ends_with("ü::charge") && label.as_str().len() <= Label::MAX_BYTES,
            "{label:?}"
        );
        assert!(Label::from_end_of("/a\tb").check().is_ok(), "no program has set this text");
    }
}
