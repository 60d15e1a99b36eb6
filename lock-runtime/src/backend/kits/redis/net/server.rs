//! The server to which a store connects, and the state that the store's connections share.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::{
    super::config::Config,
    place::Place,
    sentinels::{SentinelSet, Sentinels},
    topology::Topology,
};
use crate::{
    LockError,
    backend::{ServerStatus, common::outage::Outage},
};

#[derive(Debug)]
pub(crate) struct Server {
    config: Config,
    topology: Topology,
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
        let (topology, address) = (Topology::fixed(&config)?, config.address());
        let outage = Arc::new(Outage::of(store, "Redis", address, consequence));
        Ok(Arc::new(Self { config, topology, made: AtomicU64::new(0), outage }))
    }

    /// Creates the server that Redis Sentinels name, like [`new`](Self::new).
    pub(crate) fn watched_by(
        set: SentinelSet,
        store: &'static str,
        consequence: &'static str,
    ) -> Result<Arc<Self>, LockError> {
        let (config, address) = (set.servers.clone(), set.address());
        let topology = Topology::Sentinels(Sentinels::new(set)?);
        let outage = Arc::new(Outage::of(store, "Redis", address, consequence));
        Ok(Arc::new(Self { config, topology, made: AtomicU64::new(0), outage }))
    }

    /// Returns the settings of the connections to the server. Its address is that of no server unless the URL names it.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the place to which a new connection is made.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn place(&self) -> Result<Arc<Place>, LockError> {
        self.topology.place().await
    }

    /// Returns whether a replica may be made the primary, to which the store then connects.
    pub(super) fn may_fail_over(&self) -> bool {
        self.topology.may_fail_over()
    }

    /// Returns what is known of the server.
    pub(crate) fn status(&self) -> ServerStatus {
        self.outage.status()
    }

    pub(super) fn outage(&self) -> &Arc<Outage> {
        &self.outage
    }

    /// Returns a number for a new connection, unique among the connections to the server.
    pub(super) fn next_connection(&self) -> u64 {
        self.made.fetch_add(1, Ordering::Relaxed)
    }
}
