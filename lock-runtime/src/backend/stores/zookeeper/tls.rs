//! Connections with TLS, as the driver makes them.

use ::zookeeper_client as zk;

#[cfg(feature = "tls")]
use crate::backend::common::{
    threads,
    tls::{self, Look, install_provider, probe},
};
use crate::{
    LockError,
    backend::common::tls::{Tls, probe::TimedStream},
};

/// A command that every server answers, if only with a refusal of the command.
pub(super) const QUESTION: &[u8] = b"ruok";

/// The content of the certificate files, for the driver and for the diagnosis of servers.
#[cfg(feature = "tls")]
pub(super) struct Certificates {
    ours: tls::Certificates,
    options: zk::TlsOptions,
}

#[cfg(feature = "tls")]
impl Certificates {
    pub(super) async fn read(tls: &Tls) -> Result<Self, LockError> {
        // The driver uses rustls' default crypto provider.
        install_provider()?;
        let (ours, tls) = (tls.read().await?, tls.clone());
        // The driver parses the certificates again, which must not hold up the thread that renews locks.
        threads::run(move || Self::parse(ours, &tls)).await.unwrap_or_else(|error| {
            let message = format!("the certificates for ZooKeeper could not be read: {error}");
            Err(LockError::backend(message))
        })
    }

    fn parse(ours: tls::Certificates, tls: &Tls) -> Result<Self, LockError> {
        let mut options = zk::TlsOptions::new()
            .with_pem_ca(ours.ca.as_deref().unwrap_or_default())
            .map_err(|error| tls.no_certificate().with_source(error))?;
        if let Some((cert, key)) = &ours.identity {
            // The message omits the parser's error, which may quote the key.
            options = options.with_pem_identity(cert, key).map_err(|_| tls.no_key())?;
        }
        Ok(Self { ours, options })
    }

    pub(super) async fn connect(
        &self,
        connector: zk::Connector,
        servers: &str,
    ) -> Result<zk::Client, zk::Error> {
        connector.with_tls(self.options.clone()).secure_connect(servers).await
    }

    /// Sends `question`, and returns the answer until the server ends the connection, at most `limit` bytes; empty if
    /// there is none.
    pub(super) fn ask(&self, host: &str, stream: TimedStream, question: &[u8], limit: u64) -> Vec<u8> {
        tls::ask(&self.ours, host, stream, question, limit).unwrap_or_default()
    }

    /// Probes a server, and returns its fault as the predicate of a sentence about the server.
    pub(super) fn look(&self, host: &str, port: u16) -> Option<String> {
        match tls::look(&self.ours, host, probe::dial(host, port)?) {
            Look::Wrong(what) => Some(what),
            Look::Closed => (probe::ask(probe::dial(host, port)?, QUESTION) == probe::Answer::Plain)
                .then(|| "does not speak TLS; name its port for TLS, or write `zookeeper://`".to_owned()),
            Look::Unclear => None,
        }
    }
}

/// Replaces the certificates if the feature `tls` is off: a type without values.
#[cfg(not(feature = "tls"))]
pub(super) enum Certificates {}

#[cfg(not(feature = "tls"))]
impl Certificates {
    #[expect(clippy::unused_async, reason = "awaited where the feature is on")]
    pub(super) async fn read(tls: &Tls) -> Result<Self, LockError> {
        match *tls {}
    }

    #[expect(clippy::unused_async, reason = "awaited where the feature is on")]
    pub(super) async fn connect(&self, _: zk::Connector, _: &str) -> Result<zk::Client, zk::Error> {
        match *self {}
    }

    pub(super) fn ask(&self, _: &str, _: TimedStream, _: &[u8], _: u64) -> Vec<u8> {
        match *self {}
    }

    pub(super) fn look(&self, _: &str, _: u16) -> Option<String> {
        match *self {}
    }
}
