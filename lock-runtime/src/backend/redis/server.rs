//! What all connections of one store have in common: where they lead, and who this process is.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::Client;

use super::{config::Config, inbox::Inbox, names};
use crate::{LockError, LockErrorKind, backend::outage::Outage};

/// The least time from a failure to connect to the next attempt, and the least age at which a connection to a replica
/// is given up: many callers do not make many connections.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Server {
    config: Config,
    client: Client,
    inbox: Arc<Inbox>,
    /// What the owners of this process begin with.
    process: String,
    /// How many connections were made.
    made: AtomicU64,
    outage: Arc<Outage>,
}

impl Server {
    pub(super) fn new(config: Config) -> Result<Self, LockError> {
        let client = Client::open(config.info.clone()).map_err(|error| {
            LockError::new(LockErrorKind::InvalidOptions, "the Redis settings are not understood")
                .with_source(error)
        })?;
        let inbox = Arc::new(Inbox::new());
        let process = names::process(inbox.id());
        let outage = Arc::new(Outage::of(format!("Redis at {}", config.address())));
        Ok(Self { config, client, inbox, process, made: AtomicU64::new(0), outage })
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    pub(super) fn process(&self) -> &str {
        &self.process
    }

    pub(super) fn outage(&self) -> &Arc<Outage> {
        &self.outage
    }

    /// A number for a new connection, unlike that of any other.
    pub(super) fn next_connection(&self) -> u64 {
        self.made.fetch_add(1, Ordering::Relaxed)
    }
}
