#![doc = include_str!("docs.md")]

mod attempt;
mod batch;
mod config;
mod error;
mod hold;
mod names;
mod net;
mod node;
mod queue;

use std::{fmt, sync::Arc};

use self::{
    attempt::{Attempt, Ended},
    config::Config,
    error::Failure,
    net::{Connections, Server},
    node::Renewals,
    queue::Participant,
};
use crate::{
    LockError, LockErrorKind, LockKey,
    backend::{Acquire, Acquired, Backend, BoxFuture, Capabilities, LeaseId, Mode, Renew, Renewal, Wait},
    time::{clock::Instant, deadline::valid_until},
};

/// The most leases that one call renews; more would hold up the server for too long.
const RENEWALS_PER_CALL: usize = 128;

/// One logical Redis server.
///
/// Clones use the same connections. See the [module](self) for what it needs and promises.
#[derive(Clone)]
pub struct Redis {
    connections: Arc<Connections<Participant>>,
}

impl Redis {
    /// Connects to `redis://[user[:password]@]host[:port][/db][?setting=value&…]`, with the feature `tls` to the same with
    /// `rediss:`, or to `redis+unix:///path`.
    ///
    /// # Errors
    /// [`InvalidOptions`](crate::LockErrorKind::InvalidOptions) for a URL that is not understood,
    /// [`Backend`](crate::LockErrorKind::Backend) when the server does not answer or refuses us.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        let redis = Self::connect_lazy(url)?;
        redis.ping().await?;
        Ok(redis)
    }

    /// As [`connect`](Self::connect), but connects at the first use. A server that cannot be reached, refuses us or is not
    /// fit for locks is an error of what is asked of it then.
    ///
    /// # Errors
    /// [`InvalidOptions`](crate::LockErrorKind::InvalidOptions) for a URL that is not understood.
    pub fn connect_lazy(url: &str) -> Result<Self, LockError> {
        Self::with_config(Config::from_url(url)?)
    }

    /// Uses the address, the credentials and the TLS of a client of the `redis` crate, with connections of its own.
    ///
    /// # Errors
    /// [`Backend`](crate::LockErrorKind::Backend) when the server does not answer or refuses us.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn from_client(client: &::redis::Client) -> Result<Self, LockError> {
        let redis = Self::with_config(Config::new(client.get_connection_info().clone()))?;
        redis.ping().await?;
        Ok(redis)
    }

    fn with_config(config: Config) -> Result<Self, LockError> {
        let participant = Participant::new(config.group_commit);
        Ok(Self { connections: Arc::new(Connections::new(Server::new(config)?, participant)) })
    }

    fn config(&self) -> &Config {
        self.connections.server().config()
    }
}

impl Backend for Redis {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new().shared_between_processes().fair()
    }

    fn names(&self) -> Vec<String> {
        let (address, db) = self.config().store();
        // One server may have several addresses.
        let server = self.connections.run_id().map(|run_id| format!("redis {run_id}/{db}"));
        server.into_iter().chain([format!("redis://{address}/{db}")]).collect()
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async {
            let answer = match self.connections.here().await {
                Ok(line) => line.connection().call::<::redis::Value>(&::redis::cmd("PING")).await,
                Err(failure) => Err(failure),
            };
            answer.map(drop).map_err(Failure::into_error)
        })
    }

    fn acquire(&self, request: Acquire) -> BoxFuture<'static, Result<Acquired, LockError>> {
        let connections = Arc::clone(&self.connections);
        match request.mode {
            Mode::Exclusive => {}
        }
        Box::pin(async move {
            let is_over = || request.wait != Wait::No && request.wait.end().has_passed();
            let mut repeated = false;
            loop {
                match Attempt::new(&request, &connections).run().await {
                    Ok(Ended::With(answer)) => return Ok(answer),
                    Ok(Ended::Gone) if is_over() => return Ok(Acquired::busy(None)),
                    Ok(Ended::Gone) => {}
                    // The connection was of no use, perhaps for long: once more over a new one.
                    Err(Failure::GivenUp(_)) if !repeated && !is_over() => repeated = true,
                    Err(failure) => {
                        let error = failure.into_error();
                        if error.kind() != LockErrorKind::InvalidKey {
                            return Err(error);
                        }
                        // Boxed, because it is rare and needs much room.
                        let found = Box::pin(of_wrong_type(&connections, &request.key)).await;
                        return Err(found.unwrap_or(error));
                    }
                }
            }
        })
    }

    fn renewal(&self) -> Option<&dyn Renew> {
        Some(self)
    }
}

impl Renew for Redis {
    fn renew<'a>(&'a self, due: &'a [LeaseId]) -> BoxFuture<'a, Vec<Renewal>> {
        Box::pin(async move {
            // Those of one counter in a call, as in a batch: a user who may not touch a prefix any more loses only the locks
            // under that.
            let terms = |number: &usize| (due[*number].ttl, names::fence(&due[*number].key));
            let mut numbers: Vec<usize> = (0..due.len()).collect();
            numbers.sort_by(|a, b| terms(a).cmp(&terms(b)));
            let alike = numbers.chunk_by(|a, b| terms(a) == terms(b));
            let parts: Vec<&[usize]> = alike.flat_map(|alike| alike.chunks(RENEWALS_PER_CALL)).collect();
            let sent = Instant::now();
            // All are on their way before one is answered.
            let calls: Vec<_> = parts
                .iter()
                .map(|part| {
                    let process = self.connections.service().process();
                    let call = Renewals::of(process, part.iter().map(|number| &due[*number]));
                    let connections = Arc::clone(&self.connections);
                    Call(tokio::spawn(async move { send_renewals(&connections, &call).await }))
                })
                .collect();
            let mut answers: Vec<Option<Renewal>> = (0..due.len()).map(|_| None).collect();
            for (mut call, part) in calls.into_iter().zip(parts) {
                let answer = match (&mut call.0).await {
                    Ok(answer) => answer.map_err(Failure::into_error),
                    Err(_) => Err(error::unexpected("a renewal")),
                };
                for (index, number) in part.iter().enumerate() {
                    answers[*number] = Some(match &answer {
                        Ok(renewed) if renewed[index] => {
                            Renewal::Renewed(valid_until(sent, due[*number].ttl))
                        }
                        Ok(_) => Renewal::NotHeld,
                        Err(error) => Renewal::Unknown(error.clone()),
                    });
                }
            }
            answers.into_iter().map(|answer| answer.expect("each is in one part")).collect()
        })
    }
}

/// A call of its own task, which ends with it: unanswered at its end, the connection is known to be mute.
struct Call<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for Call<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn send_renewals(
    connections: &Arc<Connections<Participant>>,
    call: &Renewals,
) -> Result<Vec<bool>, Failure> {
    match node::renew(connections.here().await?.connection(), call).await {
        // The connection was of no use, perhaps for long: once more over a new one.
        Err(Failure::Disconnected(_) | Failure::GivenUp(_)) => {
            node::renew(connections.here().await?.connection(), call).await
        }
        answer => answer,
    }
}

/// Which key beside the holder's has a wrong type, where that can be found out.
async fn of_wrong_type(connections: &Arc<Connections<Participant>>, key: &LockKey) -> Option<LockError> {
    queue::of_wrong_type(connections.here().await.ok()?.connection(), key).await
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("address", &self.config().address()).finish_non_exhaustive()
    }
}
