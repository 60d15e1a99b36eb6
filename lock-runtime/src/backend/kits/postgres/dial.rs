//! Makes a connection, as the user's pool would make it now, or with the current credentials.

use std::time::Duration;

use sqlx::{
    ConnectOptions, Connection, Error, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use super::{config::Config, error};
use crate::{LockError, backend::common::threads::look_up};

/// Connects, without a time limit.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn connect(config: &Config) -> Result<PgConnection, LockError> {
    let options = config.current().await?;
    if options.get_socket().is_none() {
        // The driver looks up the name on the caller's runtime, and a runtime that is shut down waits for the driver's
        // look-up. Therefore, the driver is called only after the name server has answered a look-up on another thread.
        let found = look_up(options.get_host(), options.get_port()).await;
        found.map_err(|error| error::cannot_connect(error.into(), config))?;
    }
    #[cfg(any(feature = "tls-aws-lc-rs", feature = "tls-ring"))]
    if let sqlx::postgres::PgSslMode::VerifyCa = options.get_ssl_mode() {
        // In this mode, the driver uses rustls' default provider, and panics if there may be several providers.
        crate::backend::common::tls::install_provider()?;
    }
    let made = match &config.pool {
        Some(pool) => like_the_pool(pool, &options, config.connect_timeout).await,
        None => options.connect().await,
    };
    made.map_err(|error| match error {
        Error::PoolTimedOut => error::backend(format!(
            "the pool's hook `after_connect` did not succeed on a connection for renewals to PostgreSQL at {}; the log \
             of sqlx has its error",
            config.address()
        )),
        error => error::cannot_connect(error, config),
    })
}

/// Connects as the pool does, whose hook prepares the session, for example with `SET search_path`.
async fn like_the_pool(
    pool: &PgPool,
    options: &PgConnectOptions,
    limit: Duration,
) -> Result<PgConnection, Error> {
    match prepared(pool.options().clone(), options.clone(), limit / 4).await {
        // A pool repeats an attempt that the server refuses, and in the end does not return the reason.
        Err(Error::PoolTimedOut) => {
            options.connect().await?.close().await?;
            prepared(pool.options().clone(), options.clone(), limit / 2).await
        }
        made => made,
    }
}

/// Takes a connection out of a pool that is made for this connection alone: no other way leads to the hooks.
async fn prepared(
    hooks: PgPoolOptions,
    options: PgConnectOptions,
    limit: Duration,
) -> Result<PgConnection, Error> {
    let alone = hooks.min_connections(0).max_connections(1).idle_timeout(None).max_lifetime(None);
    let pool = alone.acquire_timeout(limit).connect_lazy_with(options);
    Ok(pool.acquire().await?.detach())
}
