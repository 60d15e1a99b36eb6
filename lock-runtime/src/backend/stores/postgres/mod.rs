#![doc = include_str!("docs.md")]

mod attempt;
pub mod fence;
mod flight;
mod hold;
mod next_holder;
mod operate;
mod release;
mod renewal;
mod revocations;
mod shared;

use std::{error::Error, fmt, future::Future, sync::Arc};

use sqlx::PgPool;

use self::shared::Shared;
use crate::{
    LockError, LockErrorKind,
    backend::{
        Acquire, Acquired, Backend, BoxFuture, Capabilities, Credentials, LeaseId, Mode, Operate, Renew,
        Renewal, RevocationNotifier, ServerStatus,
        common::credentials::Provider,
        kits::postgres::{
            config::Config,
            connections,
            table::{self, Table},
        },
    },
};

/// The statement that creates the table of the locks, `distributed_locks`.
pub const TABLE: &str = table::DDL;

/// A table of a PostgreSQL database that holds locks.
///
/// Clones share their connections. The [module documentation](self) describes requirements and guarantees.
#[derive(Clone)]
pub struct Postgres {
    shared: Arc<Shared>,
}

impl Postgres {
    /// Connects to `postgres://[user[:password]@][host][:port][/database][?setting=value&…]`.
    ///
    /// # Errors
    /// [`InvalidOptions`](LockErrorKind::InvalidOptions) if the URL is invalid,
    /// [`Backend`](LockErrorKind::Backend) if the server does not respond or refuses this client, or if the table is
    /// missing, [`Unsupported`](LockErrorKind::Unsupported) if the URL needs a feature that is not compiled in.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        let postgres = Self::connect_lazy(url)?;
        postgres.ping().await?;
        Ok(postgres)
    }

    /// Creates the store like [`connect`](Self::connect), but connects only when the store is first used.
    ///
    /// # Errors
    /// [`InvalidOptions`](LockErrorKind::InvalidOptions) if the URL is invalid,
    /// [`Unsupported`](LockErrorKind::Unsupported) if the URL needs a feature that is not compiled in.
    pub fn connect_lazy(url: &str) -> Result<Self, LockError> {
        Ok(Self { shared: Shared::new(Config::from_url(url)?) })
    }

    /// Creates the store like [`connect_lazy`](Self::connect_lazy), with a function that returns the current
    /// [credentials](Credentials), instead of the credentials in the URL.
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
        let config = Config { credentials: Some(Provider::new(credentials)), ..Config::from_url(url)? };
        Ok(Self { shared: Shared::new(config) })
    }

    /// Creates the store on a connection pool of your own.
    ///
    /// Locks are acquired and released over the pool's connections, so size the pool accordingly. A task that keeps one
    /// connection while it acquires or releases a lock needs two: if all tasks do so, they wait for each other. Leases
    /// are renewed over up to two connections of the store's own, so that a busy pool loses no lease; one more receives
    /// notifications. Whenever the store makes a connection of its own, the store uses the current options of the pool
    /// ([`set_connect_options`](PgPool::set_connect_options)). On the connections for renewals, the pool's hook
    /// [`after_connect`](sqlx::postgres::PgPoolOptions::after_connect) runs, but no other hook.
    #[must_use]
    pub fn from_pool(pool: PgPool) -> Self {
        Self { shared: Shared::new(Config::of_pool(pool)) }
    }

    /// Creates the store on a connection pool of your own, with its locks in the table `table`, perhaps with a schema:
    /// `app.locks`.
    ///
    /// # Errors
    /// [`InvalidOptions`](LockErrorKind::InvalidOptions) if `table` is not a name in lower-case letters, digits and
    /// `_`.
    pub fn from_pool_with_table(pool: PgPool, table: &str) -> Result<Self, LockError> {
        let table = Table::from_name(table).map_err(|why| {
            LockError::new(LockErrorKind::InvalidOptions, format!("the table's name: {why}"))
        })?;
        Ok(Self { shared: Shared::new(Config { table, ..Config::of_pool(pool) }) })
    }
}

impl Backend for Postgres {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new()
            .named(shared::NAME)
            .shared_between_processes()
            .telling_of_waiters()
            .showing_locks()
            .revoking()
            .with_default_prefix("")
    }

    fn names(&self) -> Vec<String> {
        let connections = &self.shared.connections;
        let config = &connections.config;
        // Without a schema, users and sessions may have different tables of one name.
        let written = config.table.has_schema().then(|| config.name());
        let identity = connections.fitness.identity().map(|identity| format!("postgres:{identity}"));
        written.into_iter().chain(identity).collect()
    }

    fn status(&self) -> Vec<ServerStatus> {
        vec![self.shared.connections.status()]
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), LockError>> {
        let shared = Arc::clone(&self.shared);
        let ping = async move { connections::ping(&shared.connections).await };
        Box::pin(async { connections::detached(ping).await })
    }

    fn acquire(&self, request: Acquire) -> BoxFuture<'static, Result<Acquired, LockError>> {
        match request.mode {
            Mode::Exclusive => {}
        }
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { attempt::acquire(&shared, &request).await })
    }

    fn renewal(&self) -> Option<&dyn Renew> {
        Some(self)
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }

    fn on_revocation(&self, notifier: RevocationNotifier) {
        self.shared.revocations.notifiers.add(notifier);
    }
}

impl Renew for Postgres {
    fn renew<'a>(&'a self, due: &'a [LeaseId]) -> BoxFuture<'a, Vec<Renewal>> {
        Box::pin(renewal::renew(&self.shared, due))
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("name", &self.shared.connections.config.name())
            .finish_non_exhaustive()
    }
}
