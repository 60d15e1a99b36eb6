//! Where the server of a store is, and when that changed. The stores' protocols know neither.

use std::sync::Arc;

use super::{super::config::Config, place::Place, sentinels::Sentinels};
use crate::{LockError, time::clock::Instant};

/// How the server of a store is found.
#[derive(Debug)]
pub(super) enum Topology {
    /// The URL names the server.
    Fixed(Arc<Place>),
    /// Redis Sentinels name the server, which is the primary that they watch.
    Sentinels(Arc<Sentinels>),
    /// The servers of a cluster name each other; see [`Cluster`](super::cluster::Cluster).
    Member {
        place: Arc<Place>,
        /// Whether each call is made behind `ASKING`, for a slot that is being moved to the server.
        is_asking: bool,
    },
}

/// What names the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamedBy {
    Url,
    Sentinels,
    Cluster,
}

impl Topology {
    /// Creates the topology of a server whose address does not change.
    pub(super) fn fixed(config: &Config) -> Result<Self, LockError> {
        Ok(Self::Fixed(Place::new(config.clone(), Instant::now())?))
    }

    /// Returns the place of the server.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn place(&self) -> Result<Arc<Place>, LockError> {
        match self {
            Self::Fixed(place) | Self::Member { place, .. } => Ok(Arc::clone(place)),
            Self::Sentinels(sentinels) => sentinels.primary().await,
        }
    }

    /// Returns the Sentinels that name the server, if there are any.
    pub(super) fn sentinels(&self) -> Option<&Sentinels> {
        match self {
            Self::Sentinels(sentinels) => Some(sentinels),
            Self::Fixed(_) | Self::Member { .. } => None,
        }
    }

    /// Returns what names the server.
    pub(super) fn named_by(&self) -> NamedBy {
        match self {
            Self::Fixed(_) => NamedBy::Url,
            Self::Sentinels(_) => NamedBy::Sentinels,
            Self::Member { .. } => NamedBy::Cluster,
        }
    }

    /// Returns whether each call is made behind `ASKING`.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self, Self::Member { is_asking: true, .. })
    }
}

impl NamedBy {
    /// Returns whether a replica may be made the primary.
    pub(super) fn may_fail_over(self) -> bool {
        self != Self::Url
    }
}
