#![doc = include_str!("docs.md")]

mod config;

use std::{error::Error, fmt, future::Future};

use super::{GroupCommit, Redis, servers::Servers};
use crate::{
    LockError,
    backend::{
        Acquire, Acquired, Backend, BoxFuture, Capabilities, Credentials, Operate, Renew, RevocationNotifier,
        ServerStatus, common::credentials::Provider, kits::redis::net::ClusterSettings,
    },
};

/// The name of this kind of store, for metrics and traces.
const NAME: &str = "redis-cluster";

/// A Redis Cluster as a store.
///
/// Clones share their connections. The [module documentation](self) describes requirements and guarantees.
#[derive(Clone)]
pub struct RedisCluster {
    /// The store on all servers of the cluster.
    servers: Redis,
    /// The addresses of the servers in the URL.
    seeds: Vec<String>,
}

impl RedisCluster {
    /// Connects to the cluster of the servers in
    /// `redis-cluster://[user[:password]@]host1[:port],host2[:port],…[?setting=value&…]`.
    ///
    /// One server is enough to find all others. With the feature `tls-aws-lc-rs` or `tls-ring`, also reads
    /// `redis-cluster+tls://…`.
    ///
    /// # Errors
    /// [`InvalidOptions`](crate::LockErrorKind::InvalidOptions) if the URL is invalid,
    /// [`Backend`](crate::LockErrorKind::Backend) if no server in the URL responds, if no server of the cluster takes calls, or
    /// if one refuses this client. Servers that do not respond while others take calls are no error: the log has a warning
    /// about each, and operations on their locks fail until they are back or replaced.
    /// [`Unsupported`](crate::LockErrorKind::Unsupported) if the URL needs a feature that is not compiled in, if a server
    /// in the URL belongs to no cluster, or if a server is unsuitable for locks (too old).
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
    /// Operations on a lock fail if no server names the one that has the lock, or if that one does not respond.
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
    /// [credentials](Credentials) of the moment instead of those in the URL.
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
        let mut settings = config::from_url(url)?;
        let provider = Provider::new(credentials);
        for server in settings.seeds.iter_mut().chain([&mut settings.servers]) {
            server.credentials = Some(provider.clone());
        }
        Self::of(settings, GroupCommit::Auto)
    }

    fn of(settings: ClusterSettings, group_commit: GroupCommit) -> Result<Self, LockError> {
        let seeds = settings.seeds.iter().map(|seed| seed.store().0).collect();
        Ok(Self { servers: Redis { servers: Servers::cluster(settings, group_commit)? }, seeds })
    }
}

impl Backend for RedisCluster {
    fn capabilities(&self) -> Capabilities {
        self.servers.capabilities().named(NAME)
    }

    fn names(&self) -> Vec<String> {
        // Other URLs of the cluster may have other servers in them.
        let known = self.servers.servers.addresses();
        self.seeds.iter().chain(&known).map(|address| format!("redis-cluster://{address}")).collect()
    }

    fn status(&self) -> Vec<ServerStatus> {
        self.servers.status()
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), LockError>> {
        self.servers.ping()
    }

    fn acquire(&self, request: Acquire) -> BoxFuture<'static, Result<Acquired, LockError>> {
        self.servers.acquire(request)
    }

    fn renewal(&self) -> Option<&dyn Renew> {
        self.servers.renewal()
    }

    fn operate(&self) -> Option<&dyn Operate> {
        self.servers.operate()
    }

    fn on_revocation(&self, notifier: RevocationNotifier) {
        self.servers.on_revocation(notifier);
    }
}

impl fmt::Debug for RedisCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisCluster").field("address", &self.seeds.join(",")).finish_non_exhaustive()
    }
}
