//! Builds the name of a lock from the literals of a template and the values between them.

use std::{
    error::Error,
    fmt::{self, Write},
};

use crate::{IntoLockKey, LockError, LockKey};

/// A value that may be part of a lock key: any value that implements [`Display`](fmt::Display).
///
/// An [`Option`] is not a `KeyValue` (it does not implement `Display`). This prevents a missing value from making all
/// callers share one lock.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a part of a lock key",
    label = "has no text to put into the key",
    note = "a placeholder's value is written with `Display`: implement it, or name a field that has it, like `<user.id>`",
    note = "an `Option` has none, because a missing value would make one lock for all: unwrap it first",
    note = "a list has none, because it names several locks: acquire them with `LockManager::all`"
)]
pub trait KeyValue: fmt::Display {}

#[diagnostic::do_not_recommend]
impl<T: fmt::Display + ?Sized> KeyValue for T {}

/// Like [`KeyValue`], with a compiler message for parameters that a web framework wraps.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a part of a lock key, but the value in it can",
    label = "has no text to put into the key",
    note = "take it apart in the signature, like `Path(id): Path<u64>`, or name the value in it: `<id.0>`"
)]
pub trait Extracted: fmt::Display {}

#[diagnostic::do_not_recommend]
impl<T: fmt::Display + ?Sized> Extracted for T {}

/// A builder for a lock's name.
///
/// Literals are added unchanged. Values are percent-encoded, so that they contain no `:` or `/`, which separate values.
/// Together with the rules for templates, this ensures that values with different text never produce the same name.
#[derive(Debug)]
pub struct KeyParts {
    name: String,
    class: &'static str,
    refused: Option<EmptyValue>,
}

impl KeyParts {
    /// Creates an empty name of this class, which is the template.
    #[must_use]
    pub fn of(class: &'static str) -> Self {
        // Long enough for most names, which are then allocated only once.
        Self { name: String::with_capacity(64), class, refused: None }
    }

    /// Appends a literal of the template.
    pub fn literal(&mut self, text: &str) {
        self.name.push_str(text);
    }

    /// Appends a value. The name of its placeholder is for the error message.
    pub fn value<T: KeyValue + ?Sized>(&mut self, placeholder: &str, value: &T) {
        self.generic(placeholder, value);
    }

    /// Appends the value of a parameter whose type has the name of an extractor.
    pub fn extractor<T: Extracted + ?Sized>(&mut self, placeholder: &str, value: &T) {
        self.generic(placeholder, value);
    }

    /// Appends a value whose type is a generic parameter.
    ///
    /// The bound is `Display` itself, because rustc suggests the bound that is written here.
    pub fn generic<T: fmt::Display + ?Sized>(&mut self, placeholder: &str, value: &T) {
        let start = self.name.len();
        let written = write!(Encoder(&mut self.name), "{value}");
        if (written.is_err() || self.name.len() == start) && self.refused.is_none() {
            self.refused = Some(EmptyValue { placeholder: placeholder.into(), failed: written.is_err() });
        }
    }

    /// Returns the name with its class.
    ///
    /// # Errors
    ///
    /// Returns an error if a value was empty or its `Display` failed. The error names the first such value.
    pub fn finish(self) -> Result<Named, EmptyValue> {
        match self.refused {
            None => Ok(Named { name: self.name, class: self.class }),
            Some(refused) => Err(refused),
        }
    }
}

/// A name that was put together, and its class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name, which is not validated yet.
    pub name: String,
    /// The template.
    pub class: &'static str,
}

impl IntoLockKey for Named {
    fn into_lock_key(self, prefix: &str) -> Result<LockKey, LockError> {
        Ok(LockKey::with_prefix(prefix, &self.name)?.with_class(self.class))
    }
}

/// The error for an empty value, which would have made all callers share one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmptyValue {
    placeholder: String,
    /// Whether `Display` returned an error, in which case the text written before is not reliable.
    failed: bool,
}

impl EmptyValue {
    /// Returns the name of the placeholder, without brackets.
    #[must_use]
    pub fn placeholder(&self) -> &str {
        &self.placeholder
    }
}

impl fmt::Display for EmptyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { placeholder, failed } = self;
        let problem = if *failed { "could not be written" } else { "is empty" };
        write!(f, "the value of `<{placeholder}>` {problem}, which would put all callers under one lock")
    }
}

impl Error for EmptyValue {}

/// Percent-encodes the text written to it, without a temporary `String`.
struct Encoder<'a>(&'a mut String);

impl Write for Encoder<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.bytes().position(is_encoded) {
            let byte = rest.as_bytes()[at];
            self.0.push_str(&rest[..at]);
            percent(self.0, byte);
            // An encoded byte is ASCII, so it is a whole character.
            rest = &rest[at + 1..];
        }
        self.0.push_str(rest);
        Ok(())
    }
}

/// Appends `byte` as `%XX` (RFC 3986, section 2.1).
pub(crate) fn percent(text: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    text.push('%');
    text.push(char::from(DIGITS[usize::from(byte >> 4)]));
    text.push(char::from(DIGITS[usize::from(byte & 0xF)]));
}

/// Returns whether `byte` has a special meaning in names or is invisible. All such bytes are ASCII, so other text
/// stays readable.
fn is_encoded(byte: u8) -> bool {
    matches!(byte, b':' | b'/' | b'%' | b'~' | b' ' | b'<' | b'>' | b'{' | b'}') || byte.is_ascii_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(value: &str) -> String {
        let mut key = KeyParts::of("class");
        key.value("id", value);
        key.finish().expect(value).name
    }

    #[test]
    fn what_has_a_meaning_is_encoded_and_the_rest_stays() {
        assert_eq!(encoded("a:b/c%d~e f"), "a%3Ab%2Fc%25d%7Ee%20f");
        assert_eq!(encoded("<a>{b}"), "%3Ca%3E%7Bb%7D");
        assert_eq!(encoded("\0\t\n\u{1f}\u{7f}"), "%00%09%0A%1F%7F");
        assert_eq!(encoded("größe-ключ_1.2@x+y=z,(w)"), "größe-ключ_1.2@x+y=z,(w)");
        assert_eq!(encoded("3f2504e0-4f89-11d3-9a0c-0305e82c3301"), "3f2504e0-4f89-11d3-9a0c-0305e82c3301");
    }

    #[test]
    fn values_are_written_in_their_own_words() {
        struct Id(u64);
        impl fmt::Display for Id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("id:")?;
                self.0.fmt(f)
            }
        }
        let mut key = KeyParts::of("class");
        key.literal("x:");
        key.value("id", &Id(7));
        key.literal("/~:");
        key.value("n", &-5_i8);
        assert_eq!(key.finish().expect("valid").name, "x:id%3A7/~:-5");
    }

    #[test]
    fn the_first_empty_value_is_named() {
        let mut key = KeyParts::of("class");
        key.literal("user:");
        key.value("user.id", "");
        key.value("other", "");
        let error = key.finish().expect_err("empty");
        assert_eq!(error.placeholder(), "user.id");
        assert_eq!(
            error.to_string(),
            "the value of `<user.id>` is empty, which would put all callers under one lock"
        );
    }

    #[test]
    fn a_value_that_cannot_be_written_is_refused_and_not_cut() {
        struct Broken;
        impl fmt::Display for Broken {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("half")?;
                Err(fmt::Error)
            }
        }
        let mut key = KeyParts::of("class");
        key.value("it", &Broken);
        assert_eq!(
            key.finish().expect_err("failed").to_string(),
            "the value of `<it>` could not be written, which would put all callers under one lock"
        );
    }
}
