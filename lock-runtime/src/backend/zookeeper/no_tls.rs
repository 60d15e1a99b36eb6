//! What stands for TLS where the feature `tls` is off: nothing that could be made.

use std::net::TcpStream;

use ::zookeeper_client as zk;

use super::{handshake::Look, url::Files};
use crate::{LockError, LockErrorKind};

#[derive(Clone, Debug)]
pub(super) enum Tls {}

impl Tls {
    pub(super) fn new(_: Files, _: &[(&str, u16)]) -> Result<Self, LockError> {
        Err(LockError::new(
            LockErrorKind::Unsupported,
            "`zookeeper+tls:` is not compiled in; switch on the feature `tls` of lock-runtime",
        ))
    }

    #[expect(clippy::unused_async, reason = "awaited where the feature is on")]
    pub(super) async fn read(&self) -> Result<Certificates, LockError> {
        match *self {}
    }
}

pub(super) enum Certificates {}

impl Certificates {
    #[expect(clippy::unused_async, reason = "awaited where the feature is on")]
    pub(super) async fn connect(&self, _: zk::Connector, _: &str) -> Result<zk::Client, zk::Error> {
        match *self {}
    }

    pub(super) fn look(&self, _: &str, _: TcpStream) -> Look {
        match *self {}
    }
}
