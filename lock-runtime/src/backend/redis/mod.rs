#![doc = include_str!("docs.md")]

mod attempt;
mod config;
mod connection;
mod error;
mod fitness;
mod group;
mod inbox;
mod lease;
mod link;
mod names;
mod place;
mod scripts;

use std::{fmt, sync::Arc};

use ::redis::RedisWrite;

use self::{
    attempt::{Attempt, Ended},
    config::Config,
    connection::Connection,
    error::Failure,
    link::Links,
};
use crate::{
    LockError, LockErrorKind,
    backend::{Acquire, Acquired, Backend, BoxFuture, Capabilities, LeaseId, Renewal, Wait},
    clock::Instant,
    validity::valid_until,
};

/// So many leases are renewed by one call; more would hold up the server for too long.
const RENEWALS_PER_CALL: usize = 100;

/// One logical Redis server.
///
/// Clones use the same connections. See the [module](self) for what it needs and promises.
#[derive(Clone)]
pub struct Redis {
    links: Arc<Links>,
}

impl Redis {
    /// Connects to `redis://[user[:password]@]host[:port][/db][?setting=value&…]` or `redis+unix:///path`.
    ///
    /// # Errors
    /// [`InvalidOptions`](crate::LockErrorKind::InvalidOptions) for a URL that is not understood,
    /// [`Backend`](crate::LockErrorKind::Backend) when the server does not answer or refuses us.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        Self::with_config(Config::from_url(url)?).await
    }

    /// Uses the address and the credentials of a client of the `redis` crate, with connections of its own.
    ///
    /// # Errors
    /// [`Backend`](crate::LockErrorKind::Backend) when the server does not answer or refuses us.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn from_client(client: &::redis::Client) -> Result<Self, LockError> {
        Self::with_config(Config::new(client.get_connection_info().clone())).await
    }

    async fn with_config(config: Config) -> Result<Self, LockError> {
        let links = Arc::new(Links::new(config)?);
        let connection = links.here().await.map_err(Failure::into_error)?;
        // Also shows whether the user may run them.
        for script in scripts::all() {
            connection.call::<::redis::Value>(&script.load()).await.map_err(Failure::into_error)?;
        }
        let this = Self { links };
        this.check_fitness(&connection).await?;
        Ok(this)
    }

    /// Asks the server what it is, where the user may ask.
    async fn check_fitness(&self, connection: &Connection) -> Result<(), LockError> {
        let info = match connection.call::<String>(&::redis::cmd("INFO")).await {
            Ok(info) => info,
            Err(Failure::Refused(error)) => {
                tracing::debug!(%error, "the server's version, role and eviction policy are not checked");
                return Ok(());
            }
            Err(failure) => return Err(failure.into_error()),
        };
        let config = self.links.config();
        match fitness::check(&info, &config.address())? {
            Some(danger) if config.strict => {
                Err(LockError::new(LockErrorKind::Backend, format!("{danger} (refused because of `strict`)")))
            }
            Some(danger) => {
                tracing::warn!("{danger}");
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Backend for Redis {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new().shared_between_processes().fair()
    }

    fn acquire<'a>(&'a self, request: &'a Acquire) -> BoxFuture<'a, Result<Acquired, LockError>> {
        Box::pin(async move {
            loop {
                match Attempt::new(request, &self.links).run().await? {
                    Ended::With(answer) => return Ok(answer),
                    Ended::Gone if request.wait != Wait::No && request.wait.end().has_passed() => {
                        return Ok(Acquired::Busy { holder_remaining: None });
                    }
                    Ended::Gone => {}
                }
            }
        })
    }

    fn renew<'a>(&'a self, due: &'a [LeaseId]) -> BoxFuture<'a, Vec<Renewal>> {
        Box::pin(async move {
            let mut calls = Vec::new();
            for part in due.chunks(RENEWALS_PER_CALL) {
                let (this, part) = (self.clone(), part.to_vec());
                calls.push(tokio::spawn(async move { this.renew_part(&part).await }));
            }
            let mut answers = Vec::with_capacity(due.len());
            for (call, part) in calls.into_iter().zip(due.chunks(RENEWALS_PER_CALL)) {
                match call.await {
                    Ok(part) => answers.extend(part),
                    Err(_) => {
                        answers.extend(part.iter().map(|_| Renewal::Unknown(error::unexpected("a renewal"))));
                    }
                }
            }
            answers
        })
    }
}

impl Redis {
    async fn renew_part(&self, part: &[LeaseId]) -> Vec<Renewal> {
        let sent = Instant::now();
        let unknown = |error: &LockError| part.iter().map(|_| Renewal::Unknown(error.clone())).collect();
        match self.send_renewals(part).await.map_err(Failure::into_error) {
            Ok(answers) if answers.len() == part.len() => answers
                .into_iter()
                .zip(part)
                .map(|(renewed, id)| {
                    if renewed == 1 { Renewal::Renewed(valid_until(sent, id.ttl)) } else { Renewal::NotHeld }
                })
                .collect(),
            Ok(_) => unknown(&error::unexpected("a renewal")),
            Err(error) => unknown(&error),
        }
    }

    async fn send_renewals(&self, part: &[LeaseId]) -> Result<Vec<u8>, Failure> {
        let connection = self.links.here().await?;
        let mut call = scripts::RENEW.call_with_room(part.len(), 3 + 3 * part.len(), 64 + 192 * part.len());
        for id in part {
            call.arg(id.key.stored());
        }
        for id in part {
            let owner = names::owner(self.links.process(), id.owner);
            call.write_arg_fmt(format_args!("{owner}:{}", id.token.micros()));
            call.arg(u64::try_from(id.ttl.as_millis()).unwrap_or(u64::MAX));
        }
        connection.run(&scripts::RENEW, &call).await
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("address", &self.links.config().address()).finish_non_exhaustive()
    }
}
