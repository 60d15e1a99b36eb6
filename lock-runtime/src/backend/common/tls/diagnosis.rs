//! Finds the fault in a server's TLS by a handshake.

use std::{
    error::Error,
    io::{self, Read},
    sync::Arc,
};

use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, RootCertStore, Stream,
    pki_types::ServerName,
};

use super::{
    certificates::{Certificates, provider},
    probe::{TimedStream, is_silence},
};

/// The result of a handshake with a server.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::backend) enum Look {
    /// A permanent fault, as the predicate of a sentence about the server.
    Wrong(String),
    /// The server does not continue the handshake; perhaps it does not speak TLS.
    Closed,
    /// No fault of the server was found.
    Unclear,
}

/// Attempts a handshake with the server at the other end of `stream`, and explains the failure.
pub(in crate::backend) fn look(certificates: &Certificates, host: &str, stream: TimedStream) -> Look {
    let Err((error, shaking_hands)) = shake_hands(&certificates.client, host, stream) else {
        return Look::Unclear;
    };
    match rustls_error(&error) {
        Some(error) => explain(error, Some(certificates)),
        None if is_silence(&error) || !shaking_hands => Look::Unclear,
        None => Look::Closed,
    }
}

/// Returns whether the server at the other end of `stream` speaks TLS, whatever its certificate.
pub(in crate::backend) fn speaks_tls(host: &str, stream: TimedStream) -> bool {
    let Ok(provider) = provider() else { return false };
    let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let Ok(client) = client else { return false };
    // This client trusts no CA: its handshake is not meant to succeed.
    let client = client.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    match shake_hands(&Arc::new(client), host, stream) {
        Ok(()) => true,
        Err((error, _)) => matches!(
            rustls_error(&error),
            Some(
                rustls::Error::InvalidCertificate(_)
                    | rustls::Error::AlertReceived(_)
                    | rustls::Error::PeerIncompatible(_)
            )
        ),
    }
}

/// Sends `question`, and returns what the server answers until it ends the connection, at most `limit` bytes.
#[cfg(feature = "zookeeper")]
pub(in crate::backend) fn ask(
    certificates: &Certificates,
    host: &str,
    mut stream: TimedStream,
    question: &[u8],
    limit: u64,
) -> io::Result<Vec<u8>> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let connection = ClientConnection::new(Arc::clone(&certificates.client), name);
    let mut connection = connection.map_err(io::Error::other)?;
    let mut stream = Stream::new(&mut connection, &mut stream);
    io::Write::write_all(&mut stream, question)?;
    let mut answer = Vec::new();
    match stream.take(limit).read_to_end(&mut answer) {
        // A server may end the connection after its answer without ending the TLS session.
        Err(error) if answer.is_empty() => Err(error),
        _ => Ok(answer),
    }
}

/// Attempts a handshake. The flag beside an error is true if the error occurred during the handshake.
fn shake_hands(
    client: &Arc<ClientConfig>,
    host: &str,
    mut stream: TimedStream,
) -> Result<(), (io::Error, bool)> {
    let connection = ServerName::try_from(host.to_owned())
        .map_err(io::Error::other)
        .and_then(|name| ClientConnection::new(Arc::clone(client), name).map_err(io::Error::other));
    let mut connection = connection.map_err(|error| (error, false))?;
    // Reads one byte, because a server may report only after the handshake that it refuses our certificate. A server
    // that accepts the certificate sends nothing.
    match Stream::new(&mut connection, &mut stream).read_exact(&mut [0]) {
        Ok(()) => Ok(()),
        Err(error) => Err((error, connection.is_handshaking())),
    }
}

/// Returns the rustls error inside an error of a stream or a driver.
pub(in crate::backend) fn rustls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref() {
            return Some(error);
        }
        // `source()` of these two types skips the error inside, and returns the source of that error.
        next = if let Some(error) = error.downcast_ref::<io::Error>() {
            error.get_ref().map(|within| within as &(dyn Error + 'static))
        } else if let Some(error) = error.downcast_ref::<Arc<dyn Error + Send + Sync>>() {
            Some(&**error)
        } else {
            error.source()
        };
    }
    None
}

/// Explains why a client's handshake with a server failed. `ours` has the certificates with which we made the client;
/// `ours` is `None` if the program made the client with its driver, so that we do not know the client's certificates.
pub(in crate::backend) fn explain(error: &rustls::Error, ours: Option<&Certificates>) -> Look {
    let has_ca = ours.map(|ours| ours.ca.is_some());
    let has_identity = ours.map(|ours| ours.identity.is_some());
    let nothing_in_common = "has no TLS version, or no cipher, in common with us";
    Look::Wrong(match error {
        rustls::Error::InvalidCertificate(error) => match error {
            CertificateError::UnknownIssuer => match has_ca {
                Some(true) => "has a certificate that no CA in `tls_ca` has signed".into(),
                Some(false) => {
                    "has a certificate that no CA of this system has signed; name the file with its CA in \
                                  `tls_ca`"
                        .into()
                }
                None => "has a certificate that no CA of the given client has signed".into(),
            },
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "has a certificate for other names; use one of them in the URL".into()
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "has a certificate that has expired".into()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "has a certificate that is not valid yet; check the clocks".into()
            }
            CertificateError::Revoked => "has a certificate that was revoked".into(),
            other => format!("has a certificate that is not accepted: {other}"),
        },
        rustls::Error::AlertReceived(
            alert @ (AlertDescription::BadCertificate
            | AlertDescription::CertificateRequired
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied),
        ) => match has_identity {
            None => format!("does not accept the certificate of the given client ({alert:?})"),
            Some(true) => format!("does not accept the certificate in `tls_cert` ({alert:?})"),
            Some(false) => {
                "requires a client certificate; name it with `tls_cert` and its key with `tls_key`".into()
            }
        },
        // Before TLS 1.3, `HandshakeFailure` is also the alert of a server that requires a client certificate (RFC
        // 5246, section 7.4.6).
        rustls::Error::AlertReceived(AlertDescription::HandshakeFailure) if has_identity == Some(false) => {
            format!(
                "{nothing_in_common}, or requires a client certificate; name it with `tls_cert` and its key with `tls_key`"
            )
        }
        rustls::Error::AlertReceived(
            AlertDescription::HandshakeFailure
            | AlertDescription::ProtocolVersion
            | AlertDescription::InsufficientSecurity,
        )
        | rustls::Error::PeerIncompatible(_) => nothing_in_common.into(),
        // The server answered with something other than TLS.
        rustls::Error::InvalidMessage(_) => return Look::Closed,
        _ => return Look::Unclear,
    })
}
