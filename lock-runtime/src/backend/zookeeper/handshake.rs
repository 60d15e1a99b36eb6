//! What a handshake with TLS shows.

/// What a handshake with TLS shows.
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "nobody shakes hands without TLS"))]
pub(super) enum Look {
    /// Something that does not pass by itself, said of the server.
    Wrong(String),
    /// It does not go on with the handshake, as one that does not know it.
    Closed,
    /// Nothing that speaks against it.
    Unclear,
}
