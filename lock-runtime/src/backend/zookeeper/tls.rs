//! TLS to the servers: whom we trust, who we are, and what a handshake that fails says.

use std::{
    fs,
    io::{self, Read},
    net::TcpStream,
    path::{Path, PathBuf},
    sync::Arc,
};

use ::zookeeper_client as zk;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, RootCertStore, Stream,
    client::WebPkiServerVerifier,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, pem::PemObject},
};

use super::{handshake::Look, url::Files};
use crate::{LockError, LockErrorKind, backend::settings::invalid};

/// Where the certificates are.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    ca: PathBuf,
    identity: Option<Identity>,
}

/// Our own certificate, and its key.
#[derive(Clone, Debug)]
struct Identity {
    cert: PathBuf,
    key: PathBuf,
}

impl Tls {
    pub(super) fn new(files: Files, hosts: &[(&str, u16)]) -> Result<Self, LockError> {
        let missing =
            |what: &str| Err(invalid(format!("the ZooKeeper URL needs the setting {what}, in PEM")));
        let Some(ca) = files.ca else {
            return missing(
                "`tls_ca`: the file with the certificates of those who sign the servers' certificates",
            );
        };
        let identity = match (files.cert, files.key) {
            (Some(cert), Some(key)) => Some(Identity { cert, key }),
            (None, None) => None,
            (Some(_), None) => return missing("`tls_key`: the file with the key of `tls_cert`"),
            (None, Some(_)) => {
                return missing("`tls_cert`: the file with the certificate to which `tls_key` belongs");
            }
        };
        // The driver panics over a name that cannot stand in a certificate.
        if let Some((host, _)) = hosts.iter().find(|(host, _)| ServerName::try_from(*host).is_err()) {
            return Err(invalid(format!(
                "the ZooKeeper URL is not understood: no certificate can be for the host `{host}`"
            )));
        }
        Ok(Self { ca, identity })
    }

    /// Reads the files: anew for each session, so that certificates may be renewed.
    pub(super) async fn read(&self) -> Result<Certificates, LockError> {
        let this = self.clone();
        // A file system may be slow, and our own thread renews locks.
        let read = tokio::task::spawn_blocking(move || Certificates::read(&this)).await;
        read.unwrap_or_else(|_| Err(failed("the certificates for ZooKeeper could not be read".into())))
    }
}

/// What was in the files.
pub(super) struct Certificates {
    options: zk::TlsOptions,
    /// As the driver makes it of the same files.
    client: Arc<ClientConfig>,
    has_identity: bool,
}

impl Certificates {
    fn read(tls: &Tls) -> Result<Self, LockError> {
        let ca = text("tls_ca", &tls.ca)?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(ca.as_bytes()).flatten());
        let unusable = |setting: &str, path: &Path, what: &str| {
            failed(format!("`{}`, named by `{setting}` in the ZooKeeper URL, has {what}", path.display()))
        };
        if roots.is_empty() {
            return Err(unusable("tls_ca", &tls.ca, "no certificate in PEM"));
        }
        let provider = provider();
        let lists = CertificateRevocationListDer::pem_slice_iter(ca.as_bytes()).flatten();
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::clone(&provider))
            .with_crls(lists)
            .build()
            .map_err(|error| unusable("tls_ca", &tls.ca, &format!("a revocation list of no use: {error}")))?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| {
                failed(format!("TLS is not possible with this process's cryptography: {error}"))
            })?
            .with_webpki_verifier(verifier);
        let options = zk::TlsOptions::new()
            .with_pem_ca(&ca)
            .map_err(|error| unusable("tls_ca", &tls.ca, "no certificate in PEM").with_source(error))?;
        let Some(Identity { cert, key }) = &tls.identity else {
            let client = Arc::new(client.with_no_client_auth());
            return Ok(Self { options, client, has_identity: false });
        };
        let (cert_text, key_text) = (text("tls_cert", cert)?, text("tls_key", key)?);
        let chain: Vec<_> = CertificateDer::pem_slice_iter(cert_text.as_bytes()).flatten().collect();
        if chain.is_empty() {
            return Err(unusable("tls_cert", cert, "no certificate in PEM"));
        }
        // Without the parsers' errors here and below: they may quote the key.
        let no_key = |_| unusable("tls_key", key, "no private key in PEM without a password");
        let private = PrivateKeyDer::from_pem_slice(key_text.as_bytes()).map_err(no_key)?;
        let client = client.with_client_auth_cert(chain, private).map_err(|error| {
            unusable("tls_key", key, &format!("a key that cannot be used with `{}`: {error}", cert.display()))
        })?;
        let options = options
            .with_pem_identity(&cert_text, &key_text)
            .map_err(|_| unusable("tls_key", key, "no private key in PEM without a password"))?;
        Ok(Self { options, client: Arc::new(client), has_identity: true })
    }

    pub(super) async fn connect(
        &self,
        connector: zk::Connector,
        servers: &str,
    ) -> Result<zk::Client, zk::Error> {
        connector.with_tls(self.options.clone()).secure_connect(servers).await
    }

    /// Shakes hands with the server at the other end of `socket`, and says why that fails.
    pub(super) fn look(&self, host: &str, mut socket: TcpStream) -> Look {
        let name = ServerName::try_from(host.to_owned());
        let Some(mut connection) =
            name.ok().and_then(|name| ClientConnection::new(Arc::clone(&self.client), name).ok())
        else {
            return Look::Unclear;
        };
        // A server that does not like our certificate may say so only after the handshake, and says nothing otherwise.
        let answer = Stream::new(&mut connection, &mut socket).read(&mut [0]);
        match answer {
            Err(error) => match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                Some(error) => self.explain(error),
                None if is_silence(&error) || !connection.is_handshaking() => Look::Unclear,
                None => Look::Closed,
            },
            Ok(_) => Look::Unclear,
        }
    }

    fn explain(&self, error: &rustls::Error) -> Look {
        let nothing_in_common = "has no version of TLS, or no cipher, in common with us";
        Look::Wrong(match error {
            rustls::Error::InvalidCertificate(error) => match error {
                CertificateError::UnknownIssuer => {
                    "has a certificate that nobody in `tls_ca` has signed".into()
                }
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    "has a certificate for other names; name it in the URL as the certificate does".into()
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
            ) => {
                if self.has_identity {
                    format!("does not accept the certificate in `tls_cert` ({alert:?})")
                } else {
                    "wants a certificate of ours; name it with `tls_cert` and its key with `tls_key`".into()
                }
            }
            rustls::Error::AlertReceived(
                AlertDescription::HandshakeFailure
                | AlertDescription::ProtocolVersion
                | AlertDescription::InsufficientSecurity,
            )
            | rustls::Error::PeerIncompatible(_) => nothing_in_common.into(),
            // It answered with something else.
            rustls::Error::InvalidMessage(_) => return Look::Closed,
            _ => return Look::Unclear,
        })
    }
}

/// The cryptography of this process. Where nobody chose, and more than one is compiled in, the driver would panic.
fn provider() -> Arc<CryptoProvider> {
    if CryptoProvider::get_default().is_none() {
        // Somebody else may be faster, whose choice is as good.
        let _ = aws_lc_rs::default_provider().install_default();
    }
    CryptoProvider::get_default().map_or_else(|| Arc::new(aws_lc_rs::default_provider()), Arc::clone)
}

fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn text(setting: &str, path: &Path) -> Result<String, LockError> {
    fs::read_to_string(path).map_err(|error| {
        failed(format!(
            "cannot read `{}`, named by `{setting}` in the ZooKeeper URL: {}",
            path.display(),
            error.kind()
        ))
        .with_source(error)
    })
}

/// Of the kind that is tried again: files that are being replaced may not fit together for a moment.
fn failed(message: String) -> LockError {
    LockError::new(LockErrorKind::Backend, message)
}
