//! Encodes answers for gRPC without a library, because the layer answers gRPC without tonic as well.

use std::time::Duration;

use super::Answer;
use crate::key::encode::percent;

impl Answer {
    /// Returns the headers of a `Trailers-Only` response; its HTTP status is 200.
    ///
    /// See <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.
    #[must_use]
    pub fn grpc_headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = vec![
            ("grpc-status", (self.code as u8).to_string()),
            ("grpc-message", percent_encoded(&self.message())),
        ];
        if let Some(details) = self.status_details() {
            headers.push(("grpc-status-details-bin", base64(&details)));
        }
        headers
    }

    /// Returns a `google.rpc.Status` with a `google.rpc.RetryInfo`, if a time is known.
    pub(super) fn status_details(&self) -> Option<Vec<u8>> {
        let mut retry_info = Vec::new();
        bytes(&mut retry_info, 1, &duration(self.retry_after()?));
        let mut any = Vec::new();
        bytes(&mut any, 1, b"type.googleapis.com/google.rpc.RetryInfo");
        bytes(&mut any, 2, &retry_info);
        let mut status = Vec::new();
        number(&mut status, 1, self.code as u64);
        bytes(&mut status, 2, self.message().as_bytes());
        bytes(&mut status, 3, &any);
        Some(status)
    }
}

/// Encodes a `google.protobuf.Duration`.
fn duration(length: Duration) -> Vec<u8> {
    // The longest that the message allows.
    const MAX_SECONDS: u64 = 315_576_000_000;
    let mut message = Vec::new();
    number(&mut message, 1, length.as_secs().min(MAX_SECONDS));
    number(
        &mut message,
        2,
        if length.as_secs() < MAX_SECONDS { u64::from(length.subsec_nanos()) } else { 0 },
    );
    message
}

/// Appends a protobuf field whose value is a number.
fn number(message: &mut Vec<u8>, field: u8, value: u64) {
    message.push(field << 3);
    varint(message, value);
}

/// Appends a protobuf field whose value is a text or a message.
fn bytes(message: &mut Vec<u8>, field: u8, value: &[u8]) {
    message.push(field << 3 | 2);
    varint(message, value.len() as u64);
    message.extend_from_slice(value);
}

#[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

/// Encodes a `grpc-message`: the percent sign, and every byte but visible ASCII and the space.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => percent(&mut encoded, byte),
        }
    }
    encoded
}

/// Encodes as in RFC 4648 §4 without padding, the form of binary headers in gRPC.
fn base64(data: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(data.len().div_ceil(3) * 4);
    for chunk in data.chunks(3) {
        let bits = chunk.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte))
            << (8 * (3 - chunk.len()));
        for digit in 0..=chunk.len() {
            text.push(char::from(DIGITS[bits >> (18 - 6 * digit) & 63]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (data, text) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
            ("fooba", "Zm9vYmE"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(data.as_bytes()), text);
        }
        assert_eq!(base64(&[0xFF, 0xFE, 0xFD]), "//79");
    }

    #[test]
    fn messages_are_visible_ascii() {
        assert_eq!(percent_encoded("50% of \"ü\"\n~"), "50%25 of \"%C3%BC\"%0A~");
    }
}
