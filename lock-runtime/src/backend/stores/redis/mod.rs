#![doc = include_str!("docs.md")]

mod attempt;
pub mod cluster;
mod config;
mod examine;
mod hold;
mod names;
mod node;
mod operate;
mod proof;
mod queue;
mod replicas;
pub mod sentinel;
mod servers;
mod shown;

use std::{collections::VecDeque, error::Error, fmt, future::Future, sync::Arc};

use self::{
    attempt::{Attempt, Ended},
    node::{Renewals, Renewed},
    queue::scripts,
    servers::{Again, Node, Route, Servers},
};
#[doc(hidden)]
pub use crate::backend::kits::redis::batch::GroupCommit;
use crate::{
    LockError, LockErrorKind, LockKey,
    backend::{
        Acquire, Acquired, Backend, BoxFuture, Capabilities, Credentials, LeaseId, Mode, Operate, Renew,
        Renewal, RevocationNotifier, ServerStatus, Wait,
        common::{cold::cold, credentials::Provider},
        kits::redis::{
            config::Config,
            error::{self, Failure, Redirection},
            net::Server,
        },
    },
    time::{
        backoff::backoff,
        clock::{self, Instant},
        deadline::valid_until,
    },
};

/// The name of this kind of store, for metrics and traces.
const NAME: &str = "redis";
/// The consequence of an outage, for the log.
const CONSEQUENCE: &str = "no lock is granted";

/// Upper bound on the leases that one call renews; more would hold up the server for too long.
const RENEWALS_PER_CALL: usize = 128;

/// Returns the programs by which the server gives and takes back a lock, for a benchmark.
#[doc(hidden)]
#[must_use]
pub fn programs() -> [&'static str; 2] {
    [scripts::ACQUIRE.text(), scripts::RELEASE.text()]
}

/// A single Redis server as a store.
///
/// Clones share their connections. The [module documentation](self) describes requirements and guarantees.
#[derive(Clone)]
pub struct Redis {
    servers: Arc<Servers>,
}

impl Redis {
    /// Connects to `redis://[user[:password]@]host[:port][/db][?setting=value&…]` or `redis+unix:///path`.
    ///
    /// With the feature `tls-aws-lc-rs` or `tls-ring`, also connects to `rediss://…`.
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
        let redis = Self::connect_lazy(url)?;
        redis.ping().await?;
        Ok(redis)
    }

    /// Creates the store like [`connect`](Self::connect), but connects only when the store is first used.
    ///
    /// Operations on the store fail if the server cannot be reached, refuses this client or is unsuitable for locks.
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
        Self::with_config(config::from_url(url)?, group_commit)
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
        let config = Config { credentials: Some(Provider::new(credentials)), ..config::from_url(url)? };
        Self::with_config(config, GroupCommit::Auto)
    }

    /// Connects with the address, credentials and TLS settings of a `redis` crate client.
    ///
    /// The store opens its own connections and does not use the client's connections. The store keeps the client's
    /// credentials; if they change, use [`with_credentials`](Self::with_credentials).
    ///
    /// # Errors
    /// [`Backend`](crate::LockErrorKind::Backend) if the server does not respond or refuses this client,
    /// [`Unsupported`](crate::LockErrorKind::Unsupported) if the server is unsuitable for locks (too old, a Cluster
    /// node or a Sentinel).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn from_client(client: &::redis::Client) -> Result<Self, LockError> {
        let config = Config::new(client.get_connection_info().clone());
        let redis = Self::with_config(config, GroupCommit::Auto)?;
        redis.ping().await?;
        Ok(redis)
    }

    fn with_config(config: Config, group_commit: GroupCommit) -> Result<Self, LockError> {
        let server = Server::new(config, NAME, CONSEQUENCE)?;
        Ok(Self { servers: Servers::one(server, group_commit) })
    }

    /// Returns the name by which the server that answered last is recognised under any address, if known.
    fn server_name(&self) -> Option<String> {
        let db = self.config().store().1;
        self.servers.run_id().map(|run_id| format!("redis {run_id}/{db}"))
    }

    fn config(&self) -> &Config {
        self.servers.config()
    }
}

impl Backend for Redis {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new()
            .named(NAME)
            .shared_between_processes()
            .fair()
            .telling_of_waiters()
            .showing_locks()
            .revoking()
    }

    fn names(&self) -> Vec<String> {
        let (address, db) = self.config().store();
        // One server may have several addresses.
        self.server_name().into_iter().chain([format!("redis://{address}/{db}")]).collect()
    }

    fn status(&self) -> Vec<ServerStatus> {
        self.servers.status()
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(self.servers.ping())
    }

    fn acquire(&self, request: Acquire) -> BoxFuture<'static, Result<Acquired, LockError>> {
        match request.mode {
            Mode::Exclusive => {}
        }
        let servers = Arc::clone(&self.servers);
        Box::pin(async move {
            let is_over = || request.wait != Wait::No && request.wait.end().has_passed();
            let mut route = servers.route(&request.key, Again::IfNotApplied);
            if request.wait != Wait::No {
                route.extend(request.wait.end());
            }
            let mut unconfirmed = 0;
            loop {
                let ended = Attempt::new(&request, &servers, &mut route).run().await;
                match ended {
                    Ok(Ended::With(answer)) => return Ok(answer),
                    Ok(Ended::Gone) if is_over() => return Ok(Acquired::busy(None)),
                    Ok(Ended::Gone) => {}
                    // The lease is being released. The caller goes on waiting, as it does when the server is away.
                    Err(Failure::Unconfirmed(error)) if request.wait != Wait::No && !is_over() => {
                        request.progress.failed(&error);
                        let pause = Instant::now() + backoff(unconfirmed);
                        Box::pin(clock::sleep_until(request.wait.end().min(pause))).await;
                        unconfirmed = 3.min(unconfirmed + 1);
                    }
                    Err(failure) => {
                        // A short wait takes as long as a single attempt where another server takes the call.
                        if (route.is_for_another_server(&failure) || !is_over())
                            && let Some(pause) = route.again_after(&failure)
                        {
                            if !pause.is_zero() {
                                if !route.is_on_its_way(&failure) {
                                    request.progress.failed(&failure.into_error());
                                }
                                Box::pin(clock::sleep_until(Instant::now() + pause)).await;
                            }
                            continue;
                        }
                        let error = failure.into_error();
                        if error.kind() != LockErrorKind::InvalidKey {
                            return Err(error);
                        }
                        let found = cold(of_wrong_type(&servers, &request.key)).await;
                        return Err(found.unwrap_or(error));
                    }
                }
            }
        })
    }

    fn renewal(&self) -> Option<&dyn Renew> {
        Some(self)
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }

    fn on_revocation(&self, notifier: RevocationNotifier) {
        self.servers.participant().inbox().revocations().add(notifier);
    }
}

impl Renew for Redis {
    fn lane(&self, lease: &LeaseId) -> u64 {
        self.servers.lane(&lease.key)
    }

    fn renew<'a>(&'a self, due: &'a [LeaseId]) -> BoxFuture<'a, Vec<Renewal>> {
        Box::pin(async move {
            // As in a batch, one call has leases of one domain only: a user who loses the permissions for a prefix
            // loses only the locks under it.
            let process = self.servers.participant().process();
            let terms = |number: &usize| (due[*number].ttl, process.domain(&due[*number].key));
            let mut numbers: Vec<usize> = (0..due.len()).collect();
            numbers.sort_by(|a, b| terms(a).cmp(&terms(b)));
            let alike = numbers.chunk_by(|a, b| terms(a) == terms(b));
            let parts: Vec<&[usize]> = alike.flat_map(|alike| alike.chunks(RENEWALS_PER_CALL)).collect();
            let sent = Instant::now();
            // All calls are started before the first answer is awaited.
            let begin = |part: &[usize]| {
                let call = Renewals::of(part.iter().map(|number| &due[*number]));
                let route = self.servers.route(&due[part[0]].key, Again::IfBroken);
                Call(tokio::spawn(send_renewals(route, Arc::new(call), part.len() > 1)))
            };
            let mut calls: VecDeque<_> = parts.into_iter().map(|part| (begin(part), part)).collect();
            let mut answers: Vec<Option<Renewal>> = (0..due.len()).map(|_| None).collect();
            while let Some((mut call, part)) = calls.pop_front() {
                let answer = match (&mut call.0).await {
                    Ok(answer) => answer,
                    Err(_) => Err(Failure::Refused(error::unexpected("a renewal"))),
                };
                // Each lease is renewed alone if one key fails the whole call: one that this user may not name any more,
                // or one that is already on another server.
                let is_of_one = |failure: &Failure| match failure {
                    Failure::Redirected(redirection, _) => *redirection != Redirection::Down,
                    Failure::Refused(error) => !error.is_retryable(),
                    _ => false,
                };
                if answer.as_ref().is_err_and(is_of_one) && part.len() > 1 {
                    calls.extend(part.chunks(1).map(|alone| (begin(alone), alone)));
                    continue;
                }
                for (index, number) in part.iter().enumerate() {
                    answers[*number] = Some(match &answer {
                        Ok(renewed) => match renewed[index] {
                            Renewed::Yes => Renewal::Renewed(valid_until(sent, due[*number].ttl)),
                            Renewed::NotHeld => Renewal::NotHeld,
                            Renewed::Revoked => Renewal::Revoked,
                        },
                        Err(failure) => Renewal::Unknown(failure.clone().into_error()),
                    });
                }
            }
            answers.into_iter().map(|answer| answer.expect("each is in one part")).collect()
        })
    }
}

/// A call in a task of its own, which is aborted on drop. If the call has no answer by then, its connection counts as one
/// whose server has stopped answering.
struct Call<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for Call<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Renews leases in one call. Calls for several leases are not repeated where a cluster takes them only later.
async fn send_renewals(
    mut route: Route,
    call: Arc<Renewals>,
    has_several: bool,
) -> Result<Vec<Renewed>, Failure> {
    loop {
        let answer = match route.node().await {
            Ok(node) => renew_at(&node, &call).await,
            Err(failure) => Err(failure),
        };
        match answer {
            Err(failure @ Failure::Redirected(Redirection::Later | Redirection::Ask { .. }, _))
                if has_several =>
            {
                return Err(failure);
            }
            // The caller repeats a renewal, and knows how long one may take.
            Err(failure @ Failure::Refused(_)) if route.is_for_another_server(&failure) => {
                return Err(failure);
            }
            Err(failure) => match route.again_with_one_key_after(&failure) {
                Some(pause) if pause.is_zero() => {}
                Some(pause) => clock::sleep_until(Instant::now() + pause).await,
                None => return Err(failure),
            },
            answer => return answer,
        }
    }
}

/// Renews leases at a server that may have them.
async fn renew_at(node: &Node, call: &Arc<Renewals>) -> Result<Vec<Renewed>, Failure> {
    match &node.replicas {
        Some(replicas) => replicas.renew(call).await,
        None => node::renew(node.connections.here().await?.connection(), call).await,
    }
}

/// Returns an error that names the key of a wrong type, unless that key is the holder's or cannot be found out.
async fn of_wrong_type(servers: &Arc<Servers>, key: &LockKey) -> Option<LockError> {
    let line = servers.route(key, Again::IfNotApplied).line().await.ok()?;
    queue::of_wrong_type(line.connection(), line.process(), key).await
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("address", &self.config().address()).finish_non_exhaustive()
    }
}
