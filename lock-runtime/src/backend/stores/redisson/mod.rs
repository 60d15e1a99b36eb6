#![doc = include_str!("docs.md")]

mod config;
mod operate;
mod protocol;

use std::{error::Error, fmt, future::Future, sync::Arc};

use self::protocol::{FenceSource, RLock};
use crate::{
    LockError,
    backend::{
        Acquire, Acquired, Backend, BoxFuture, Capabilities, Credentials, Mode, Operate, Renew,
        RevocationNotifier, ServerStatus,
        common::credentials::Provider,
        kits::{
            redis::config::Config,
            unqueued::{self, Nodes, Shared},
        },
    },
};

/// A Redis server whose locks are shared with Redisson's `RLock` or `RFencedLock`.
///
/// Clones share their connections. The [module documentation](self) describes requirements and guarantees.
#[derive(Clone)]
pub struct Redisson {
    shared: Arc<Shared>,
}

impl Redisson {
    /// Connects to `redisson://[user[:password]@]host[:port][/db][?setting=value&…]` or `redisson+unix:///path`.
    ///
    /// With the feature `tls-aws-lc-rs` or `tls-ring`, also connects to `redisson+tls://…`.
    ///
    /// # Errors
    /// [`InvalidOptions`](crate::LockErrorKind::InvalidOptions) if the URL is invalid,
    /// [`Backend`](crate::LockErrorKind::Backend) if the server does not respond or refuses this client,
    /// [`Unsupported`](crate::LockErrorKind::Unsupported) if the URL needs a feature that is not compiled in, or if the
    /// server is unsuitable for locks (too old, a Cluster node or a Sentinel).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        let redisson = Self::connect_lazy(url)?;
        redisson.ping().await?;
        Ok(redisson)
    }

    /// Creates the store like [`connect`](Self::connect), but connects only when the store is first used.
    ///
    /// # Errors
    /// [`InvalidOptions`](crate::LockErrorKind::InvalidOptions) if the URL is invalid,
    /// [`Unsupported`](crate::LockErrorKind::Unsupported) if the URL needs a feature that is not compiled in.
    pub fn connect_lazy(url: &str) -> Result<Self, LockError> {
        let (config, fenced) = config::from_url(url)?;
        Self::with(config, fenced)
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
        let (mut config, fenced) = config::from_url(url)?;
        config.credentials = Some(Provider::new(credentials));
        Self::with(config, fenced)
    }

    fn with(config: Config, fenced: bool) -> Result<Self, LockError> {
        let protocol = RLock::new(if fenced { FenceSource::Counter } else { FenceSource::Clock });
        Ok(Self { shared: Arc::new(Shared::of(Nodes::new(vec![config], Arc::new(protocol), None)?)) })
    }
}

impl Backend for Redisson {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new()
            .named(protocol::NAME)
            .shared_between_processes()
            .telling_of_waiters()
            .showing_locks()
            .with_default_prefix("")
    }

    fn names(&self) -> Vec<String> {
        self.shared.nodes.names("redisson")
    }

    fn status(&self) -> Vec<ServerStatus> {
        self.shared.nodes.status()
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async { self.shared.nodes.ping().await })
    }

    fn acquire(&self, request: Acquire) -> BoxFuture<'static, Result<Acquired, LockError>> {
        match request.mode {
            Mode::Exclusive => {}
        }
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { unqueued::acquire(&shared, &request).await })
    }

    fn renewal(&self) -> Option<&dyn Renew> {
        Some(&self.shared)
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }

    fn on_revocation(&self, notifier: RevocationNotifier) {
        self.shared.nodes.on_revocation(notifier);
    }
}

impl fmt::Debug for Redisson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redisson").field("name", &self.names().last()).finish_non_exhaustive()
    }
}
