#![doc = include_str!("docs.md")]

mod config;
mod operate;
mod protocol;

use std::{error::Error, fmt, future::Future, sync::Arc, time::Duration};

use self::protocol::StringLock;
use crate::{
    LockError,
    backend::{
        Acquire, Acquired, Backend, BoxFuture, Capabilities, Credentials, Mode, Operate, Renew,
        RevocationNotifier, ServerStatus,
        common::{credentials::Provider, settings::invalid},
        kits::{
            redis::config::Config,
            unqueued::{self, FleetSettings, Nodes, Shared},
        },
    },
};

/// A majority of independent Redis servers as a store.
///
/// Clones share their connections. The [module documentation](self) describes requirements and guarantees.
#[derive(Clone)]
pub struct Redlock {
    shared: Arc<Shared>,
    rules: FleetSettings,
}

impl Redlock {
    /// Connects to `redlock://[user[:password]@]host[:port],host[:port],host[:port][/db][?setting=value&…]`.
    ///
    /// # Errors
    /// [`InvalidOptions`](crate::LockErrorKind::InvalidOptions) if the URL is invalid, or if two addresses lead to one
    /// server, [`Backend`](crate::LockErrorKind::Backend) if no majority of the nodes can be used and may vote yet.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        let redlock = Self::connect_lazy(url)?;
        redlock.ping().await?;
        Ok(redlock)
    }

    /// Creates the store like [`connect`](Self::connect), but connects only when the store is first used.
    ///
    /// # Errors
    /// [`InvalidOptions`](crate::LockErrorKind::InvalidOptions) if the URL is invalid.
    pub fn connect_lazy(url: &str) -> Result<Self, LockError> {
        let (nodes, rules) = config::from_url(url)?;
        Self::with(nodes, rules)
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
        let (mut nodes, rules) = config::from_url(url)?;
        let provider = Provider::new(credentials);
        for node in &mut nodes {
            node.credentials = Some(provider.clone());
        }
        Self::with(nodes, rules)
    }

    /// Creates a store of nodes with these URLs, `redis://…`, `rediss://…` or `redis+unix:///…`, each with its own
    /// credentials and settings. The store connects when it is first used.
    ///
    /// `response_timeout` in such a URL has the meaning of `node_timeout` in a URL of [`connect`](Self::connect).
    ///
    /// # Errors
    /// [`InvalidOptions`](crate::LockErrorKind::InvalidOptions) if a URL is invalid, or if their number is even or less
    /// than 3, [`Unsupported`](crate::LockErrorKind::Unsupported) if a URL needs a feature that is not compiled in.
    pub fn new<S: AsRef<str>>(nodes: impl IntoIterator<Item = S>) -> Result<Self, LockError> {
        Self::with(config::from_urls(nodes)?, FleetSettings::default())
    }

    fn with(nodes: Vec<Config>, rules: FleetSettings) -> Result<Self, LockError> {
        config::check(&nodes)?;
        let nodes = Nodes::new(nodes, Arc::new(StringLock), Some(rules))?;
        Ok(Self { shared: Arc::new(Shared::of(nodes)), rules })
    }

    /// Declares that every node persists each write before it answers (`appendonly yes`, `appendfsync always`), so that
    /// a node may vote as soon as it has started. Without this declaration, a node that was restarted is assumed to
    /// have forgotten locks, and has no vote for a while.
    ///
    /// A node that shows another setting is refused; see [the page of the module](self#restarts).
    #[must_use]
    pub fn durable(self) -> Self {
        self.with_rules(|rules| rules.durable = true)
    }

    /// Sets the longest `ttl` of all clients of these nodes; all clients must set the same. The default is 60 s. A node
    /// that was started a moment ago has no vote until it has run for that time and two seconds more.
    #[must_use]
    pub fn max_ttl(self, max_ttl: Duration) -> Self {
        self.with_rules(|rules| rules.max_ttl = max_ttl)
    }

    fn with_rules(self, change: impl FnOnce(&mut FleetSettings)) -> Self {
        let mut rules = self.rules;
        change(&mut rules);
        Self { shared: Arc::new(Shared::of(self.shared.nodes.with_rules(rules))), rules }
    }
}

impl Backend for Redlock {
    fn capabilities(&self) -> Capabilities {
        let can = Capabilities::new()
            .named(protocol::NAME)
            .shared_between_processes()
            .telling_of_waiters()
            .showing_locks()
            .revoking();
        let FleetSettings { durable, max_ttl } = self.rules;
        if durable { can } else { can.with_longest_ttl(max_ttl) }
    }

    fn names(&self) -> Vec<String> {
        self.shared.nodes.names("redlock")
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
        let FleetSettings { durable, max_ttl } = self.rules;
        Box::pin(async move {
            if !durable && request.ttl > max_ttl {
                return Err(invalid(format!(
                    "ttl {:?} is longer than {max_ttl:?}, the `max_ttl` of this Redlock: a node that was started a moment \
                     ago votes after that time, so no lease may be longer. Make ttl shorter, or set a longer `max_ttl` \
                     for all clients",
                    request.ttl
                )));
            }
            unqueued::acquire(&shared, &request).await
        })
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

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redlock").field("name", &self.names().last()).finish_non_exhaustive()
    }
}
