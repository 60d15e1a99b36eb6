#![doc = include_str!("docs.md")]

mod config;

use std::{error::Error, fmt, future::Future};

use super::{CONSEQUENCE, GroupCommit, Redis, servers::Servers};
use crate::{
    LockError,
    backend::{
        Acquire, Acquired, Backend, BoxFuture, Capabilities, Credentials, Operate, Renew, RevocationNotifier,
        ServerStatus,
        common::credentials::Provider,
        kits::redis::net::{SentinelSet, Server},
    },
};

/// The name of this kind of store, for metrics and traces.
const NAME: &str = "redis-sentinel";

/// The primary of a set of Redis servers that Redis Sentinels watch, as a store.
///
/// Clones share their connections. The [module documentation](self) describes requirements and guarantees.
#[derive(Clone)]
pub struct RedisSentinel {
    /// The store on the primary of the moment.
    primary: Redis,
    /// The name of the primary and the addresses of the Sentinels.
    address: String,
    names: Vec<String>,
}

impl RedisSentinel {
    /// Connects to the primary that the Sentinels in
    /// `redis-sentinel://[user[:password]@]host1[:port],host2[:port],host3[:port]/name[?setting=value&…]` name.
    ///
    /// With the feature `tls-aws-lc-rs` or `tls-ring`, also reads `redis-sentinel+tls://…`.
    ///
    /// # Errors
    /// [`InvalidOptions`](crate::LockErrorKind::InvalidOptions) if the URL is invalid,
    /// [`Backend`](crate::LockErrorKind::Backend) if no majority of the Sentinels responds or knows the name, or if the
    /// primary does not respond or refuses this client,
    /// [`Unsupported`](crate::LockErrorKind::Unsupported) if the URL needs a feature that is not compiled in, if a server
    /// in the URL is no Sentinel, or if the primary is unsuitable for locks (too old).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        let redis = Self::connect_lazy(url)?;
        redis.ping().await?;
        Ok(redis)
    }

    /// Creates the store like [`connect`](Self::connect), but connects only when the store is first used.
    ///
    /// Operations on the store fail if no majority of the Sentinels responds, or the primary does not.
    ///
    /// # Errors
    /// [`InvalidOptions`](crate::LockErrorKind::InvalidOptions) if the URL is invalid,
    /// [`Unsupported`](crate::LockErrorKind::Unsupported) if the URL needs a feature that is not compiled in.
    pub fn connect_lazy(url: &str) -> Result<Self, LockError> {
        Self::with_group_commit(url, GroupCommit::Auto)
    }

    /// Creates the store like [`connect_lazy`](Self::connect_lazy), with a choice of when calls share a round trip, for
    /// tests and benchmarks.
    #[doc(hidden)]
    pub fn with_group_commit(url: &str, group_commit: GroupCommit) -> Result<Self, LockError> {
        Self::of(config::from_url(url)?, group_commit)
    }

    /// Creates the store like [`connect_lazy`](Self::connect_lazy), with a function that returns the
    /// [credentials](Credentials) of the moment for the servers instead of those in the URL. The Sentinels have the
    /// credentials in the URL.
    ///
    /// # Errors
    /// The errors of [`connect_lazy`](Self::connect_lazy).
    pub fn with_credentials<F, E>(
        url: &str,
        credentials: impl Fn() -> F + Send + Sync + 'static,
    ) -> Result<Self, LockError>
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let mut set = config::from_url(url)?;
        set.servers.credentials = Some(Provider::new(credentials));
        Self::of(set, GroupCommit::Auto)
    }

    fn of(set: SentinelSet, group_commit: GroupCommit) -> Result<Self, LockError> {
        let (address, db) = (set.address(), set.servers.store().1);
        let names = set.sentinels.iter().map(|sentinel| {
            let (address, _) = sentinel.store();
            format!("redis-sentinel://{address}/{}/{db}", set.name)
        });
        let names = names.collect();
        let server = Server::watched_by(set, NAME, CONSEQUENCE)?;
        Ok(Self { primary: Redis { servers: Servers::one(server, group_commit) }, address, names })
    }
}

impl Backend for RedisSentinel {
    fn capabilities(&self) -> Capabilities {
        self.primary.capabilities().named(NAME)
    }

    fn names(&self) -> Vec<String> {
        self.primary.server_name().into_iter().chain(self.names.iter().cloned()).collect()
    }

    fn status(&self) -> Vec<ServerStatus> {
        self.primary.status()
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), LockError>> {
        self.primary.ping()
    }

    fn acquire(&self, request: Acquire) -> BoxFuture<'static, Result<Acquired, LockError>> {
        self.primary.acquire(request)
    }

    fn renewal(&self) -> Option<&dyn Renew> {
        self.primary.renewal()
    }

    fn operate(&self) -> Option<&dyn Operate> {
        self.primary.operate()
    }

    fn on_revocation(&self, notifier: RevocationNotifier) {
        self.primary.on_revocation(notifier);
    }
}

impl fmt::Debug for RedisSentinel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSentinel").field("address", &self.address).finish_non_exhaustive()
    }
}
