//! A lock's holder, as one node shows it.

use std::time::Duration;

/// A lock's holder, as one node shows it.
///
/// There is no `Debug`, because the identity of a holder is secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Sighting {
    /// The text by which the scripts of the node recognize the holder.
    pub(crate) identity: Vec<u8>,
    /// The grant, unless the holder is a client of another library.
    pub(crate) grant: Option<SeenGrant>,
    /// The remaining time of the lease; [`Duration::MAX`] if the lease has no end.
    pub(crate) remaining: Duration,
    /// Number of clients that wait for the lock, as far as known.
    pub(crate) waiting: usize,
    /// Whether the key may be something else than a lock, because other programs use keys of this form.
    pub(crate) is_doubtful: bool,
}

impl Sighting {
    /// Creates the sighting of a client of another library, from the remaining time and the number of waiters as the server
    /// answers them.
    pub(crate) fn foreign(identity: Vec<u8>, pttl: i64, waiting: i64) -> Self {
        let remaining = match pttl {
            -1 => Duration::MAX,
            pttl => Duration::from_millis(u64::try_from(pttl).unwrap_or_default()),
        };
        let waiting = usize::try_from(waiting).unwrap_or_default();
        Self { identity, grant: None, remaining, waiting, is_doubtful: false }
    }
}

/// A grant to a client of this library, as one node shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenGrant {
    pub(crate) fence: u64,
    /// When the grant was recorded on this node, in µs of the node's clock.
    pub(crate) recorded: u64,
    /// When the lock was granted, in µs; never after `recorded`.
    pub(crate) since: u64,
    /// What the holder says of itself.
    pub(crate) signature: String,
    pub(crate) is_revoked: bool,
}
