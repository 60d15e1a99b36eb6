//! The files with the CAs that we trust and with our own certificate. The files are read anew for each connection or
//! session, so that certificates can be renewed.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore,
    client::WebPkiServerVerifier,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio::sync::Mutex;

use super::settings::Files;
use crate::{
    LockError,
    backend::common::{settings::invalid, threads},
};

/// The paths of the certificates.
#[derive(Clone, Debug)]
pub(in crate::backend) struct Tls {
    /// The store's name in messages.
    store: &'static str,
    /// `None` for the CAs of this system.
    ca: Option<PathBuf>,
    identity: Option<Identity>,
    /// Serializes the reads, so that a file system that hangs blocks only one thread.
    reading: Arc<Mutex<()>>,
}

/// Our own certificate, and its key.
#[derive(Clone, Debug)]
struct Identity {
    cert: PathBuf,
    key: PathBuf,
}

impl Tls {
    /// Checks the settings of a URL, and that a certificate can name each of its hosts. Does not read the files yet.
    pub(in crate::backend) fn new(
        store: &'static str,
        _scheme: &str,
        files: Files,
        hosts: &[&str],
    ) -> Result<Self, LockError> {
        let missing = |what: &str| Err(invalid(format!("the {store} URL needs the setting {what}, in PEM")));
        let identity = match (files.cert, files.key) {
            (Some(cert), Some(key)) => Some(Identity { cert, key }),
            (None, None) => None,
            (Some(_), None) => return missing("`tls_key`: the file with the key of `tls_cert`"),
            (None, Some(_)) => {
                return missing("`tls_cert`: the file with the certificate to which `tls_key` belongs");
            }
        };
        if let Some(host) = hosts.iter().find(|host| ServerName::try_from(**host).is_err()) {
            return Err(invalid(format!(
                "the {store} URL is not understood: no certificate can be issued for the host `{host}`"
            )));
        }
        Ok(Self { store, ca: files.ca, identity, reading: Arc::default() })
    }

    /// Reads the files.
    ///
    /// # Errors
    /// All errors but that of a missing provider are retryable: while files are being replaced, they may not fit
    /// together for a moment.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(in crate::backend) async fn read(&self) -> Result<Certificates, LockError> {
        let (this, turn) = (self.clone(), Arc::clone(&self.reading).lock_owned().await);
        let read = move || {
            let _turn = turn;
            this.read_now()
        };
        // A slow file system must not block the library's own thread, which renews locks.
        threads::run(read).await.unwrap_or_else(|error| {
            Err(LockError::backend(format!("the certificates for {} could not be read: {error}", self.store)))
        })
    }

    fn read_now(&self) -> Result<Certificates, LockError> {
        let provider = provider()?;
        let (roots, lists, ca) = match &self.ca {
            Some(path) => {
                let text = self.text("tls_ca", path)?;
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(self.certificates("tls_ca", path, &text)?);
                let lists = whole::<CertificateRevocationListDer<'_>>(&text, "X509 CRL")
                    .ok_or_else(|| self.not_whole("tls_ca", path))?;
                if roots.is_empty() {
                    return Err(self.no_certificate());
                }
                (roots, lists, Some(text))
            }
            None => (self.roots_of_the_system()?, Vec::new(), None),
        };
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::clone(&provider))
            .with_crls(lists)
            .build()
            .map_err(|error| {
                let path = self.ca.as_deref().unwrap_or(Path::new(""));
                self.unusable("tls_ca", path, &format!("an unusable revocation list: {error}"))
            })?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| {
                LockError::backend(format!("TLS is not possible with this process's cryptography: {error}"))
            })?
            .with_webpki_verifier(verifier);
        let Some(Identity { cert, key }) = &self.identity else {
            let client = Arc::new(client.with_no_client_auth());
            return Ok(Certificates { client, ca, identity: None });
        };
        let (cert_text, key_text) = (self.text("tls_cert", cert)?, self.text("tls_key", key)?);
        let chain = self.certificates("tls_cert", cert, &cert_text)?;
        if chain.is_empty() {
            return Err(self.unusable("tls_cert", cert, "no certificate in PEM"));
        }
        // The message omits the parser's error, which may quote the key.
        let no_key = |_| self.no_key();
        let private = PrivateKeyDer::from_pem_slice(key_text.as_bytes()).map_err(no_key)?;
        let client = client.with_client_auth_cert(chain, private).map_err(|error| {
            let what = format!("a key that cannot be used with `{}`: {error}", cert.display());
            self.unusable("tls_key", key, &what)
        })?;
        let (client, identity) = (Arc::new(client), Some((cert_text, key_text)));
        Ok(Certificates { client, ca, identity })
    }

    fn roots_of_the_system(&self) -> Result<RootCertStore, LockError> {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let why = found.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
            return Err(LockError::backend(format!(
                "this system has no CA certificates{why}; install them, or name a file with `tls_ca` in the {} URL",
                self.store
            )));
        }
        Ok(roots)
    }

    fn text(&self, setting: &str, path: &Path) -> Result<String, LockError> {
        fs::read_to_string(path).map_err(|error| {
            LockError::backend(format!(
                "cannot read `{}`, named by `{setting}` in the {} URL: {}",
                path.display(),
                self.store,
                error.kind()
            ))
            .with_source(error)
        })
    }

    fn certificates(
        &self,
        setting: &str,
        path: &Path,
        text: &str,
    ) -> Result<Vec<CertificateDer<'static>>, LockError> {
        whole(text, "CERTIFICATE").ok_or_else(|| self.not_whole(setting, path))
    }

    fn not_whole(&self, setting: &str, path: &Path) -> LockError {
        self.unusable(setting, path, "an incomplete section in PEM; is it being written?")
    }

    fn unusable(&self, setting: &str, path: &Path, what: &str) -> LockError {
        LockError::backend(format!(
            "`{}`, named by `{setting}` in the {} URL, has {what}",
            path.display(),
            self.store
        ))
    }

    /// Returns the error for a `tls_ca` without a usable certificate.
    pub(in crate::backend) fn no_certificate(&self) -> LockError {
        self.unusable("tls_ca", self.ca.as_deref().unwrap_or(Path::new("")), "no certificate in PEM")
    }

    /// Returns the error for a `tls_key` without a usable key.
    pub(in crate::backend) fn no_key(&self) -> LockError {
        let path = self.identity.as_ref().map_or(Path::new(""), |identity| &identity.key);
        self.unusable("tls_key", path, "no private key in unencrypted PEM")
    }
}

/// The content of the files.
pub(in crate::backend) struct Certificates {
    pub(in crate::backend) client: Arc<ClientConfig>,
    /// The text of `tls_ca`, for a driver that parses this text itself; `None` for the CAs of this system.
    pub(in crate::backend) ca: Option<String>,
    /// The texts of `tls_cert` and `tls_key`, for a driver that parses them itself; `None` if we have no certificate of
    /// our own to present.
    pub(in crate::backend) identity: Option<(String, String)>,
}

/// Returns all sections labelled `label` in `text`; `None` if one of them is incomplete.
///
/// The parser skips a section that begins on the last line of the previous section, as in concatenated files without a
/// final newline. Such a section counts as incomplete; otherwise, a revocation list could be ignored.
fn whole<T: PemObject>(text: &str, label: &str) -> Option<Vec<T>> {
    let found = T::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>().ok()?;
    (found.len() == text.matches(&format!("-----BEGIN {label}-----")).count()).then_some(found)
}

/// Returns the crypto provider of this process: rustls' default if the program chose a default, otherwise the provider
/// of this crate's features.
pub(super) fn provider() -> Result<Arc<CryptoProvider>, LockError> {
    match CryptoProvider::get_default() {
        Some(chosen) => Ok(Arc::clone(chosen)),
        None => compiled_in().map(Arc::new),
    }
}

/// Sets the crypto provider of this crate's features as the default of rustls, unless the program has set a default.
///
/// A driver that relies on the default would otherwise panic if several providers, or none, are compiled in.
pub(in crate::backend) fn install_provider() -> Result<(), LockError> {
    if CryptoProvider::get_default().is_none() {
        // The call fails if another thread has set a default meanwhile, which serves as well.
        let _ = compiled_in()?.install_default();
    }
    Ok(())
}

#[cfg(feature = "tls-aws-lc-rs")]
#[allow(clippy::unnecessary_wraps, reason = "without the feature there may be none")]
fn compiled_in() -> Result<CryptoProvider, LockError> {
    Ok(rustls::crypto::aws_lc_rs::default_provider())
}

#[cfg(all(feature = "tls-ring", not(feature = "tls-aws-lc-rs")))]
#[allow(clippy::unnecessary_wraps, reason = "without the feature there may be none")]
fn compiled_in() -> Result<CryptoProvider, LockError> {
    Ok(rustls::crypto::ring::default_provider())
}

#[cfg(not(any(feature = "tls-aws-lc-rs", feature = "tls-ring")))]
fn compiled_in() -> Result<CryptoProvider, LockError> {
    Err(LockError::new(
        crate::LockErrorKind::Unsupported,
        "TLS has no cryptography in this program; switch on the feature `tls-aws-lc-rs` or `tls-ring` of lock-runtime, or \
         install a default `CryptoProvider` of rustls before connecting",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(any(feature = "tls-aws-lc-rs", feature = "tls-ring")))]
    #[test]
    fn without_cryptography_connecting_names_the_features() {
        let error = install_provider().expect_err("nothing is compiled in, and no default is set");
        assert_eq!(error.kind(), crate::LockErrorKind::Unsupported, "{error}");
        for word in ["`tls-aws-lc-rs`", "`tls-ring`", "default `CryptoProvider`"] {
            assert!(error.to_string().contains(word), "{word}: {error}");
        }
    }

    #[test]
    fn what_is_not_whole_is_not_left_out_without_a_word() {
        let part = |label: &str| format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n");
        let (cert, list) = (part("CERTIFICATE"), part("X509 CRL"));
        let counts = |text: &str| {
            let certs = whole::<CertificateDer<'_>>(text, "CERTIFICATE").map(|all| all.len());
            (certs, whole::<CertificateRevocationListDer<'_>>(text, "X509 CRL").map(|all| all.len()))
        };
        assert_eq!(counts(&format!("a comment\n{cert}{cert}{list}")), (Some(2), Some(1)));
        assert_eq!(counts(""), (Some(0), Some(0)));
        // The last newline is missing, as when files are concatenated.
        let (_, lists) = counts(&format!("{}{list}", cert.trim_end()));
        assert_eq!(lists, None);
        for cut in [&list[..list.len() - 10], &list[..30]] {
            assert_eq!(counts(&format!("{cert}{cut}")).1, None, "{cut}");
        }
        assert_eq!(counts(&format!("{cert}{}", &cert[..40])).0, None);
        assert_eq!(counts(&list.replace("AAAA", "A*")).1, None);
    }
}
