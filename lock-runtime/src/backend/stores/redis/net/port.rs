//! What listens at the address of a server to which no connection could be made: Redis with TLS, or without.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::super::config::Config;
use crate::backend::common::tls::{
    probe::{self, Answer},
    speaks_tls,
};

/// Every server without TLS answers it, if only by asking for a password.
const QUESTION: &[u8] = b"PING\r\n";

/// The address of a server. It is asked until a connection was made: during an outage a question would cost time.
#[derive(Debug)]
pub(super) struct Port {
    /// None for a socket of this machine, and for a client with a TLS of its own.
    address: Option<(Arc<str>, u16)>,
    is_right: AtomicBool,
}

impl Port {
    pub(super) fn new(config: &Config) -> Self {
        let address = config.host_and_port().map(|(host, port)| (host.into(), port));
        Self { address, is_right: AtomicBool::new(false) }
    }

    /// A connection was made.
    pub(super) fn is_right(&self) {
        self.is_right.store(true, Ordering::Relaxed);
    }

    /// Whether what listens there knows TLS, and nothing without.
    ///
    /// Redis' port for TLS closes a connection that begins without, and sends no alert (seen with 7.0). So does a server in
    /// trouble, and only a handshake tells them apart.
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
    }

    /// Whether what listens there answers without TLS.
    ///
    /// # Cancel safety
    /// Cancel safe.
    #[cfg(feature = "tls")]
    pub(super) async fn is_without_tls(&self) -> bool {
        self.ask(|host, port| (probe::ask(probe::dial(host, port)?, QUESTION) == Answer::Plain).then_some(()))
            .await
    }

    async fn ask(&self, question: fn(&str, u16) -> Option<()>) -> bool {
        match &self.address {
            Some((host, port)) if !self.is_right.load(Ordering::Relaxed) => {
                let (host, port) = (Arc::clone(host), *port);
                tokio::task::spawn_blocking(move || question(&host, port).is_some()).await.unwrap_or(false)
            }
            _ => false,
        }
    }
}
