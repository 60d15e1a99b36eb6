//! Finds out what listens at an address to which no connection could be made: Redis with TLS, or without.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::Mutex;

use super::super::config::Config;
#[cfg(feature = "tls")]
use crate::backend::common::tls::{self, Certificates, Look};
use crate::{
    LockError,
    backend::common::{
        threads,
        tls::{
            probe::{self, Answer},
            speaks_tls,
        },
    },
};

/// A command that every server without TLS answers, if only by requiring a password.
const QUESTION: &[u8] = b"PING\r\n";

/// The address of a server, and whether a connection was ever made.
///
/// Before the first connection, a TLS error is permanent, and the port is probed for its protocol. After the first
/// connection, the settings are known to be right: a later error means an outage, or certificates that are renewed on
/// one side before the other. The port is then not probed, because a probe would cost time.
#[derive(Debug)]
pub(super) struct Port {
    /// `None` for a Unix socket, and for a client with TLS of its own.
    address: Option<(Arc<str>, u16)>,
    is_right: AtomicBool,
    /// Allows one probe at a time, so that a server that holds up a probe blocks only one thread.
    asking: Arc<Mutex<()>>,
}

impl Port {
    pub(super) fn new(config: &Config) -> Self {
        let address = config.host_and_port().map(|(host, port)| (host.into(), port));
        Self { address, is_right: AtomicBool::new(false), asking: Arc::default() }
    }

    /// Records that a connection was made.
    pub(super) fn set_right(&self) {
        self.is_right.store(true, Ordering::Relaxed);
    }

    /// Returns whether a connection was ever made.
    pub(super) fn is_right(&self) -> bool {
        self.is_right.load(Ordering::Relaxed)
    }

    /// Marks a TLS error as permanent, unless a connection was ever made.
    pub(super) fn wrong(&self, error: LockError) -> LockError {
        if self.is_right() { error } else { error.into_permanent() }
    }

    /// Probes whether the port speaks TLS only.
    ///
    /// Redis' TLS port closes a connection that begins without TLS, and sends no alert (seen with 7.0). A failing
    /// server closes connections, too; only a handshake tells the two cases apart.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn wants_tls(&self) -> bool {
        self.ask(|host, port| match probe::ask(probe::dial(host, port)?, QUESTION) {
            Answer::Plain => None,
            Answer::Tls => Some(()),
            Answer::Closed | Answer::Silence => speaks_tls(host, probe::dial(host, port)?).then_some(()),
        })
        .await
        .is_some()
    }

    /// Probes whether the port answers without TLS.
    ///
    /// # Cancel safety
    /// Cancel safe.
    #[cfg(feature = "tls")]
    pub(super) async fn is_without_tls(&self) -> bool {
        self.ask(|host, port| (probe::ask(probe::dial(host, port)?, QUESTION) == Answer::Plain).then_some(()))
            .await
            .is_some()
    }

    /// Finds out the fault in the server's TLS by a separate handshake.
    ///
    /// # Cancel safety
    /// Cancel safe.
    #[cfg(feature = "tls")]
    pub(super) async fn what_is_wrong(&self, certificates: Arc<Certificates>) -> Option<String> {
        self.ask(move |host, port| match tls::look(&certificates, host, probe::dial(host, port)?) {
            Look::Wrong(what) => Some(what),
            Look::Closed | Look::Unclear => None,
        })
        .await
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&str, u16) -> Option<T> + Send + 'static,
    ) -> Option<T> {
        let (host, port) = self.address.as_ref()?;
        if self.is_right() {
            return None;
        }
        let turn = Arc::clone(&self.asking).try_lock_owned().ok()?;
        let (host, port) = (Arc::clone(host), *port);
        let ask = move || {
            let _turn = turn;
            question(&host, port)
        };
        threads::run(ask).await.ok().flatten()
    }
}
