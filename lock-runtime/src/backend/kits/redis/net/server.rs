//! The server to which a store connects, and the state that the store's connections share.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::{
    super::config::Config,
    place::Place,
    sentinels::{SentinelSet, Sentinels},
    topology::{NamedBy, Topology},
};
use crate::{
    LockError,
    backend::{ServerStatus, common::outage::Outage},
};

#[derive(Debug)]
pub(crate) struct Server {
    config: Config,
    topology: Topology,
    outage: Arc<Outage>,
}

/// Number of connections made by this process.
static MADE: AtomicU64 = AtomicU64::new(0);

impl Server {
    /// Creates a server of this kind of store. `consequence` is the consequence of an outage, for the log.
    pub(crate) fn new(
        config: Config,
        store: &'static str,
        consequence: &'static str,
    ) -> Result<Arc<Self>, LockError> {
        let (topology, address) = (Topology::fixed(&config)?, config.address());
        let outage = Arc::new(Outage::of(store, "Redis", address, consequence));
        Ok(Arc::new(Self { config, topology, outage }))
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
        Ok(Arc::new(Self { config, topology, outage }))
    }

    /// Creates a server of a cluster, like [`new`](Self::new).
    pub(super) fn member(place: Arc<Place>, store: &'static str, consequence: &'static str) -> Arc<Self> {
        let config = place.config().clone();
        let outage = Arc::new(Outage::of(store, "Redis", config.address(), consequence));
        let topology = Topology::Member { place, is_asking: false };
        Arc::new(Self { config, topology, outage })
    }

    /// Returns the same server of a cluster, but each call is made behind `ASKING`.
    pub(super) fn asking(&self, place: Arc<Place>) -> Arc<Self> {
        let topology = Topology::Member { place, is_asking: true };
        Arc::new(Self { config: self.config.clone(), topology, outage: Arc::clone(&self.outage) })
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

    /// Returns what names the server.
    pub(super) fn named_by(&self) -> NamedBy {
        self.topology.named_by()
    }

    /// Returns whether a replica may be made the primary.
    pub(crate) fn may_fail_over(&self) -> bool {
        self.named_by().may_fail_over()
    }

    /// Returns the Redis Sentinels that name the server, if there are any.
    pub(super) fn sentinels(&self) -> Option<&Sentinels> {
        self.topology.sentinels()
    }

    /// Returns whether each call is made behind `ASKING`.
    pub(super) fn is_asking(&self) -> bool {
        self.topology.is_asking()
    }

    /// Returns what is known of the server.
    pub(crate) fn status(&self) -> ServerStatus {
        self.outage.status()
    }

    pub(super) fn outage(&self) -> &Arc<Outage> {
        &self.outage
    }
}

/// Returns a number for a new connection, unique among the connections of this process.
pub(super) fn next_connection() -> u64 {
    MADE.fetch_add(1, Ordering::Relaxed)
}
