//! The server to which a store connects, and the state that the store's connections share.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::{super::config::Config, dial::Dial};
use crate::{LockError, backend::common::outage::Outage};

#[derive(Debug)]
pub(crate) struct Server {
    config: Config,
    dial: Dial,
    /// The number of the next connection to the server.
    made: AtomicU64,
    outage: Arc<Outage>,
}

impl Server {
    /// Creates a server of this kind of store. `consequence` is the consequence of an outage, for the log.
    pub(crate) fn new(
        config: Config,
        store: &'static str,
        consequence: &'static str,
    ) -> Result<Arc<Self>, LockError> {
        let dial = Dial::new(&config)?;
        let outage = Arc::new(Outage::of(store, "Redis", config.address().clone(), consequence));
        Ok(Arc::new(Self { config, dial, made: AtomicU64::new(0), outage }))
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn dial(&self) -> &Dial {
        &self.dial
    }

    pub(super) fn outage(&self) -> &Arc<Outage> {
        &self.outage
    }

    /// Returns a number for a new connection, unique among the connections to the server.
    pub(super) fn next_connection(&self) -> u64 {
        self.made.fetch_add(1, Ordering::Relaxed)
    }
}
