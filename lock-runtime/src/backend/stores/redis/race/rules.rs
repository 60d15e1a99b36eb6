//! When a node has a vote.

use std::time::Duration;

/// What the fleet agrees upon: all clients of the nodes must have the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Whether a node has a vote as soon as it was started.
    pub(crate) durable: bool,
    /// The longest lease of all clients.
    pub(crate) max_ttl: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self { durable: false, max_ttl: Duration::from_secs(60) }
    }
}
