//! The text by which a store's record of a lock states who holds the lock or waits for it.

use std::{
    borrow::Cow,
    fmt::{self, Write},
};

use super::{client_name, hex};
use crate::Label;

/// Returns the text of an acquisition of this process: `<program>,<pid>@<host>`, then `,<label>` if there is a label.
///
/// Program and label are percent-encoded, so that the text consists of letters, digits, and the characters `-._/%,@`,
/// and every store can write the text into its records. The process is asked for its id each time, so that a forked
/// child does not use that of its parent.
pub(in crate::backend) fn of(label: Label) -> String {
    let mut text = of_process();
    // Writing to a text cannot fail.
    let _ = write_label(&mut text, &label);
    text
}

/// Returns the beginning of the text, which is the same for all acquisitions of this process.
pub(in crate::backend) fn of_process() -> String {
    let client = client_name::of_this_process();
    let (process, host) = client.split_once('@').unwrap_or((&client, ""));
    let (program, pid) = process.rsplit_once(':').unwrap_or((process, ""));
    let mut text = String::with_capacity(client.len() + 64);
    for (mark, part) in [("", program), (",", pid), ("@", host)] {
        // Writing to a text cannot fail.
        let _ = text.write_str(mark).and_then(|()| encode(&mut text, part));
    }
    text
}

/// Writes the end of the text: `,<label>`, or nothing without a label.
pub(in crate::backend) fn write_label(text: &mut impl Write, label: &Label) -> fmt::Result {
    if label.is_empty() {
        return Ok(());
    }
    text.write_char(',')?;
    encode(text, label.as_str())
}

fn encode(text: &mut impl Write, part: &str) -> fmt::Result {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/".contains(&byte);
    for run in part.as_bytes().chunk_by(|a, b| is_plain(*a) == is_plain(*b)) {
        match str::from_utf8(run) {
            Ok(plain) if is_plain(run[0]) => text.write_str(plain)?,
            _ => {
                for byte in run {
                    text.write_char('%')?;
                    hex::digits(*byte)
                        .into_iter()
                        .try_for_each(|digit| text.write_char(char::from(digit)))?;
                }
            }
        }
    }
    Ok(())
}

/// What a record states of its client. Each part is empty if the record does not state the part in this form, for
/// example because another program has written the record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::backend) struct Signature {
    /// `<program>:<pid>@<host>`.
    pub(in crate::backend) client: String,
    pub(in crate::backend) label: String,
}

/// Upper bound on the length of a text that is read, in bytes: other programs may write the record, too. Every text of
/// this library is shorter.
const MAX_LENGTH: usize = 512;

/// Reads a text that [`of`] has made.
pub(in crate::backend) fn read(text: &str) -> Signature {
    if text.len() > MAX_LENGTH {
        return Signature::default();
    }
    let mut parts = text.splitn(3, ',');
    let (program, process, label) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    let Some((pid, host)) = process.and_then(|process| process.split_once('@')) else {
        return Signature::default();
    };
    let at = if host.is_empty() { "" } else { "@" };
    let client = format!("{}:{}{at}{}", decode(program), decode(pid), decode(host));
    Signature { client, label: decode(label.unwrap_or_default()).into_owned() }
}

/// Decodes a part. Characters that no encoding has made, above all control characters, become `_`, because operators see
/// the text on their terminals.
fn decode(part: &str) -> Cow<'_, str> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        let digits = after.get(..2).and_then(|two| str::from_utf8(two).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => bytes.push(*first),
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    text.chars()
        .map(|character| if character.is_control() { '_' } else { character })
        .collect::<String>()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let client = client_name::of_this_process();
        for label in
            ["", "nightly report", "a,b:c@d%20~{}", "Überweisung 🔒", "bank::withdraw", "/users/{id}"]
        {
            let text = of(Label::new(label));
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._/%,@".contains(c);
            assert!(text.chars().all(is_plain), "{text}");
            assert_eq!(read(&text), Signature { client: client.clone(), label: label.into() });
        }
    }

    #[test]
    fn other_texts_do_no_harm() {
        let long = format!("a,1@b,{}", "x".repeat(MAX_LENGTH));
        for text in ["", "a", "a,b", ",,,", "%", "a,%@%,%", &long, "a,1@h,%0A%1B%9"] {
            let Signature { client, label } = read(text);
            assert!(!client.chars().chain(label.chars()).any(char::is_control), "{text:?}");
        }
        assert_eq!(read("a,1@h,%0A%1B%9").label, "__%9");
        assert_eq!(read(&long), Signature::default());
        assert_eq!(read("4711@worker"), Signature::default());
    }
}
