//! Hexadecimal digits.

/// Returns bytes in digits.
#[cfg(feature = "postgres")]
pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.iter().copied().flat_map(digits).map(char::from).collect()
}

/// Returns the digits of a byte. Faster than the formatter's `{:02x}`, and called for every lock of a group.
pub(crate) fn digits(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)])
}
