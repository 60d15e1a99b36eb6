//! Hexadecimal digits.

/// Returns the digits of all bytes.
#[cfg(feature = "postgres")]
pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.iter().copied().flat_map(digits).map(char::from).collect()
}

/// Returns the two digits of a byte.
///
/// This function is faster than the formatter's `{:02x}`, which matters because an owner is written for every lock of a
/// group.
pub(crate) fn digits(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)])
}
