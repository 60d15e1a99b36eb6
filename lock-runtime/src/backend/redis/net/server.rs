//! Where the connections of a store lead, and what they have in common.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use redis::Client;

use super::super::config::Config;
use crate::{LockError, LockErrorKind, backend::outage::Outage};

#[derive(Debug)]
pub(crate) struct Server {
    config: Config,
    client: Client,
    /// How many connections were made.
    made: AtomicU64,
    outage: Arc<Outage>,
}

impl Server {
    pub(crate) fn new(config: Config) -> Result<Self, LockError> {
        let client = Client::open(config.info.clone()).map_err(|error| {
            LockError::new(LockErrorKind::InvalidOptions, "the Redis settings are not understood")
                .with_source(error)
        })?;
        let outage = Arc::new(Outage::of(format!("Redis at {}", config.address())));
        Ok(Self { config, client, made: AtomicU64::new(0), outage })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn outage(&self) -> &Arc<Outage> {
        &self.outage
    }

    /// A number for a new connection, unlike that of any other.
    pub(super) fn next_connection(&self) -> u64 {
        self.made.fetch_add(1, Ordering::Relaxed)
    }
}
