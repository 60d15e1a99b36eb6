#![doc = include_str!("docs.md")]

mod answer;
mod attempt;
mod claim;
mod config;
mod hold;
mod keeper;
mod look;
mod marks;
mod names;
mod operate;
mod revocations;
mod session;
mod sessions;
mod shared;
mod sweep;

use std::{error::Error, fmt, future::Future, sync::Arc};

use self::{config::Config, shared::Shared};
use crate::{
    LockError,
    backend::{
        Acquire, Acquired, Backend, BoxFuture, Capabilities, Credentials, Marks, Mode, Operate, ServerStatus,
        common::{credentials::Provider, link::Link},
    },
};

/// Advisory locks in a PostgreSQL database.
///
/// Clones share one session. The [module documentation](self) describes requirements and guarantees.
#[derive(Clone)]
pub struct PostgresAdvisory {
    link: Arc<Link<Arc<Shared>>>,
}

impl PostgresAdvisory {
    /// Connects to `postgres+advisory://[user[:password]@][host][:port][/database][?setting=value&…]`.
    ///
    /// # Errors
    /// [`InvalidOptions`](crate::LockErrorKind::InvalidOptions) if the URL is invalid,
    /// [`Backend`](crate::LockErrorKind::Backend) if the server does not respond or refuses this client, or if the table
    /// is missing, [`Unsupported`](crate::LockErrorKind::Unsupported) if the URL needs a feature that is not compiled
    /// in, if the server is too old, or if it is behind a pooler that gives each transaction another session.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        let locks = Self::connect_lazy(url)?;
        locks.ping().await?;
        Ok(locks)
    }

    /// Creates the store like [`connect`](Self::connect), but connects only when the store is first used.
    ///
    /// # Errors
    /// [`InvalidOptions`](crate::LockErrorKind::InvalidOptions) if the URL is invalid,
    /// [`Unsupported`](crate::LockErrorKind::Unsupported) if the URL needs a feature that is not compiled in.
    pub fn connect_lazy(url: &str) -> Result<Self, LockError> {
        Ok(Self { link: sessions::link(Config::from_url(url)?) })
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
        let mut config = Config::from_url(url)?;
        config.of_server.credentials = Some(Provider::new(credentials));
        Ok(Self { link: sessions::link(config) })
    }
}

impl Backend for PostgresAdvisory {
    fn capabilities(&self) -> Capabilities {
        let session_timeout = self.link.sessions().config.session_timeout;
        Capabilities::new()
            .named(sessions::NAME)
            .shared_between_processes()
            .telling_of_waiters()
            .showing_locks()
            .revoking()
            .with_default_prefix("")
            .with_session_timeout(session_timeout)
    }

    fn names(&self) -> Vec<String> {
        self.link.sessions().names()
    }

    fn status(&self) -> Vec<ServerStatus> {
        self.link.status()
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async { self.link.session().await?.ping().await?.ok_or_else(session::ended) })
    }

    fn acquire(&self, request: Acquire) -> BoxFuture<'static, Result<Acquired, LockError>> {
        match request.mode {
            Mode::Exclusive => {}
        }
        let link = Arc::clone(&self.link);
        Box::pin(async move { attempt::acquire(&link, &request).await })
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }

    fn marks(&self) -> Option<&dyn Marks> {
        Some(self)
    }
}

impl fmt::Debug for PostgresAdvisory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresAdvisory").field("name", &self.names().first()).finish_non_exhaustive()
    }
}
