//! The connections of one store: at most `connections` (a setting) for each runtime of the caller, and `FOR_RENEWALS`
//! for renewals alone.
//!
//! A connection executes one statement at a time, and stays in use until the server has ended that statement. Each
//! statement runs in a task of its own. Therefore, a caller that is dropped or left unpolled keeps no connection from
//! the others, and the outcome of its statement becomes known.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use sqlx::{AssertSqlSafe, Executor as _, PgConnection, PgPool, postgres::PgRow};
use tokio::{runtime, sync::oneshot, time::timeout};

use super::{
    config::Config,
    dial,
    error::{self, Failure, Meaning},
    fitness::Fitness,
    overdue::Overdue,
    slot::{Checkout, Permit, Slot},
    statement::{Arg, Form, Statement, set_lock_timeout},
};
use crate::{
    LockError,
    backend::{
        ServerStatus,
        common::{
            cold::cold, hedged::hedged, outage::Outage, renewable::cannot_renew, server_clock::ServerClock,
            single_flight::PAUSE,
        },
    },
    background,
    hash::HashMap,
    sync::lock,
    time::clock::Instant,
};

/// Number of connections that renew leases. Renewals and other statements do not wait for each other.
pub(super) const FOR_RENEWALS: u32 = 2;
/// Upper bound on the repetitions of a statement that conflicted with another statement, or whose session a pooler
/// replaced.
const CONFLICTS: u32 = 5;

/// The connections that a statement uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// The user's pool. If there is no pool, or the caller runs on the library's own thread, the statement uses the
    /// connections of the runtime on which the caller runs.
    Here,
    /// Like [`Here`](Self::Here), but without the user's pool once the program has closed that pool.
    Releases,
    /// The connections for renewals, on the library's own thread.
    Renewals,
    /// One more connection on the library's own thread, for statements that only look for hints: their failure is no
    /// outage, and gives up no other connection.
    Looks,
}

impl Lane {
    fn is_beside_the_pool(self) -> bool {
        matches!(self, Self::Renewals | Self::Looks)
    }
}

/// The answer to a statement.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) rows: Vec<PgRow>,
    /// When the statement was sent the last time.
    pub(crate) sent: Instant,
    /// Whether an earlier copy of the statement may have been executed, too.
    pub(crate) repeated: bool,
    /// The error with which the server refused the statement, if the statement then succeeded without its notification.
    pub(crate) unnotified: Option<sqlx::Error>,
}

/// The connections of one store.
pub(crate) struct Connections {
    pub(crate) config: Config,
    by_runtime: Arc<Mutex<HashMap<runtime::Id, Arc<Slot>>>>,
    renewals: Mutex<Option<Arc<Slot>>>,
    looks: Mutex<Option<Arc<Slot>>>,
    overdue: Arc<Overdue>,
    outage: Outage,
    /// Whether these are the connections of operators, whose failure says nothing about the locks.
    is_of_operators: bool,
    pub(crate) clock: ServerClock,
    pub(crate) fitness: Fitness,
    /// Whether the listener has proved that a connection keeps its session from one statement to the next. Behind a
    /// pooler that gives each transaction another session, a connection does not keep its session.
    pub(crate) keeps_sessions: Arc<AtomicBool>,
    /// Whether the user's pool leads to a server that can hold locks.
    pool_is_fit: AtomicBool,
}

impl Connections {
    pub(crate) fn new(config: Config, store: &'static str) -> Self {
        Self::of(config, store, false)
    }

    /// Creates the connections over which operators look at the locks of a store that keeps its own connections.
    pub(crate) fn of_operators(config: Config) -> Self {
        // Nothing is reported under the name.
        Self::of(config, "postgres", true)
    }

    fn of(config: Config, store: &'static str, is_of_operators: bool) -> Self {
        let address = config.address().clone();
        let outage = Outage::of(store, "PostgreSQL", address, "locks cannot be acquired or renewed");
        Self {
            // Only locks that are in the table have to outlive a crash.
            fitness: Fitness::of(&config.table, !is_of_operators),
            overdue: Overdue::of(&config),
            config,
            by_runtime: Arc::default(),
            renewals: Mutex::default(),
            looks: Mutex::default(),
            outage,
            is_of_operators,
            clock: ServerClock::default(),
            keeps_sessions: Arc::default(),
            pool_is_fit: AtomicBool::new(false),
        }
    }

    /// Returns what is known of the server.
    pub(crate) fn status(&self) -> ServerStatus {
        self.outage.status()
    }

    /// Makes a connection for renewals if there is none: the first renewal may have no time to connect.
    pub(crate) fn prepare_for_renewals(self: &Arc<Self>) {
        if lock(&self.renewals).as_ref().is_some_and(|slot| slot.has_connections()) {
            return;
        }
        drop(self.connect_for_renewals());
    }

    /// Waits until there is a connection for renewals; returns an error if none can be made. Without such a connection,
    /// a granted lock would be lost at the end of its `ttl`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn can_renew(self: &Arc<Self>) -> Result<(), LockError> {
        if lock(&self.renewals).as_ref().is_some_and(|slot| slot.is_reached() && slot.has_connections()) {
            return Ok(());
        }
        cold(async {
            // The caller's connection comes first: without it, there is nothing to renew.
            self.take(Lane::Here).await?.give_back();
            let made = self.connect_for_renewals().await;
            let made = made.unwrap_or_else(|_| Err(error::backend("the library's own thread ended")));
            made.map_err(|error| cannot_renew(&error, error::is_full(&error)))
        })
        .await
    }

    /// Begins to make a connection for renewals, on the library's own thread; returns the receiver of the result.
    fn connect_for_renewals(self: &Arc<Self>) -> oneshot::Receiver<Result<(), LockError>> {
        let (tell, told) = oneshot::channel();
        let this = Arc::clone(self);
        background::handle().spawn(async move {
            let taken = this.take(Lane::Renewals).await;
            let _ = tell.send(taken.map(Checkout::give_back));
        });
        told
    }

    /// Returns whether the server may still be executing a statement that was not answered in time.
    pub(crate) fn has_overdue(&self) -> bool {
        self.overdue.is_any()
    }

    /// Executes a statement. If the connection breaks, and was neither just made nor taken from the user's pool, the
    /// statement is sent again over another connection. Executing any of the library's statements twice does no harm.
    ///
    /// `args` returns the arguments for a statement that is sent at the moment given to `args`.
    ///
    /// # Cancel safety
    /// Must not be dropped, except with its runtime: the statement may still be executed.
    pub(crate) async fn run<'a>(
        &self,
        lane: Lane,
        statement: &Statement,
        mut args: impl FnMut(Instant) -> Vec<Arg<'a>>,
    ) -> Result<Answer, Failure> {
        let (mut conflicts, mut may_have_run) = (0, false);
        let (mut statement, mut refusal) = (statement, None);
        loop {
            let mut taken = match self.take(lane).await {
                Ok(taken) => taken,
                Err(error) if may_have_run => return Err(Failure::Unknown(error)),
                Err(error) => return Err(Failure::NotExecuted(error)),
            };
            // A renewal has time for one round trip only, and preparing a statement takes another one.
            let prepared = taken.is_of_pool()
                || (!lane.is_beside_the_pool() && self.keeps_sessions.load(Ordering::Acquire));
            // The lock timeout of a session is set before the first prepared statement of a connection, but not for a
            // connection of the user's pool, because the user chooses the settings of the pool's connections.
            let is_unset = prepared && taken.prepared.is_empty() && !taken.is_of_pool();
            let is_new = prepared && taken.prepared.add(statement);
            let round_trips = 1 + u32::from(is_unset) + u32::from(is_new);
            let lock_timeout = self.config.lock_timeout();
            let form = if prepared { Form::Prepared } else { Form::Text { lock_timeout } };
            let sent = Instant::now();
            let limit = self.config.response_timeout * round_trips;
            let args = args(sent);
            let answer = timeout(limit, async {
                if is_unset {
                    let text = set_lock_timeout("SESSION", lock_timeout);
                    taken.execute(sqlx::raw_sql(AssertSqlSafe(text))).await?;
                }
                statement.fetch(&mut taken, &args, form).await
            });
            let Ok(answer) = answer.await else {
                self.overdue.keep(taken);
                let error = error::silent(limit, &self.config);
                self.outage_begins(lane, sent, &error);
                return Err(Failure::Unknown(error));
            };
            let cause = match answer {
                Ok(rows) => {
                    self.outage.answered(sent);
                    taken.give_back();
                    return Ok(Answer { rows, sent, repeated: may_have_run, unnotified: refusal });
                }
                Err(cause) => cause,
            };
            let meaning = Meaning::of(&cause);
            if meaning != Meaning::Broken {
                self.outage.answered(sent);
            }
            match meaning {
                Meaning::Conflict if conflicts < CONFLICTS => {
                    taken.give_back();
                    conflicts += 1;
                    continue;
                }
                Meaning::OtherSession if conflicts < CONFLICTS && !taken.is_of_pool() => {
                    self.keeps_sessions.store(false, Ordering::Release);
                    taken.give_up();
                    conflicts += 1;
                    continue;
                }
                Meaning::Broken if !taken.fresh => {
                    taken.give_up();
                    may_have_run = true;
                    continue;
                }
                // If the server is read-only, the host name may lead to another server by now.
                Meaning::Broken | Meaning::ReadOnly => taken.give_up(),
                Meaning::Conflict | Meaning::Locked | Meaning::OtherSession | Meaning::Refused => {
                    taken.give_back();
                }
            }
            if meaning == Meaning::Refused
                && let Some(unnotified) = statement.unnotified()
            {
                (statement, refusal) = (unnotified, Some(cause));
                continue;
            }
            let is_of_a_row = error::is_of_a_row(&cause);
            let error = error::explain(cause, &self.config);
            return Err(match meaning {
                // A statement that is refused now may have been executed before, over a connection that broke.
                _ if may_have_run => Failure::Unknown(error),
                Meaning::Broken => Failure::Unknown(error),
                Meaning::Locked if is_of_a_row => Failure::Locked(error),
                Meaning::Refused => Failure::Refused(error),
                Meaning::Conflict | Meaning::Locked | Meaning::OtherSession | Meaning::ReadOnly => {
                    Failure::NotExecuted(error)
                }
            });
        }
    }

    /// Takes an idle connection, or makes one.
    async fn take(&self, lane: Lane) -> Result<Checkout, LockError> {
        // Releases in the background do not depend on the pool, whose runtime may be gone.
        if let Some(pool) = &self.config.pool
            && !lane.is_beside_the_pool()
            && !background::handle().is_here()
            && !(lane == Lane::Releases && pool.is_closed())
        {
            return Box::pin(self.take_of_pool(pool)).await;
        }
        let slot = self.slot(lane);
        let permit = if let Some(permit) = slot.try_permit() { permit } else { self.wait(&slot).await? };
        if let Some(idle) = slot.pop() {
            return Ok(Checkout::of(idle, permit));
        }
        // The future of `make` is boxed, because it is far larger than the future of a statement, which is moved to a
        // task.
        cold(self.make(lane, &slot, permit)).await
    }

    /// Waits for a permit for a connection.
    async fn wait(&self, slot: &Arc<Slot>) -> Result<Permit, LockError> {
        let limit = self.config.response_timeout;
        timeout(limit, slot.permit()).await.map_err(|_| {
            error::backend(format!(
                "none of the {} connections to PostgreSQL at {} became free within {limit:?}; allow more with the \
                 setting `connections`",
                slot.size,
                self.config.address()
            ))
        })
    }

    /// Makes a connection, or takes one that became idle meanwhile.
    async fn make(&self, lane: Lane, slot: &Slot, permit: Permit) -> Result<Checkout, LockError> {
        if slot.is_reached() {
            if let Ok(connection) = self.connect_soon(lane).await {
                self.outage_ends(lane);
                return Ok(Checkout::new(connection, permit));
            }
            slot.set_reached(false);
        }
        // From here on, only one caller at a time connects. For `PAUSE` after a caller has failed to connect, the other
        // callers get the error of that failure, so that an outage does not cause many attempts.
        let mut failed = slot.failed.lock().await;
        if let Some(idle) = slot.pop() {
            return Ok(Checkout::of(idle, permit));
        }
        if let Some((until, error)) = &*failed
            && !until.has_passed()
        {
            return Err(error.clone());
        }
        let began = Instant::now();
        let made = self.connect_soon(lane).await;
        match made {
            Ok(connection) => {
                *failed = None;
                slot.set_reached(true);
                self.outage_ends(lane);
                Ok(Checkout::new(connection, permit))
            }
            Err(error) => {
                self.outage_begins(lane, began, &error);
                *failed = Some((Instant::now() + PAUSE, error.clone()));
                Err(error)
            }
        }
    }

    fn outage_begins(&self, lane: Lane, began: Instant, error: &LockError) {
        if lane != Lane::Looks && !self.is_of_operators {
            self.outage.begins(began, error);
        }
    }

    fn outage_ends(&self, lane: Lane) {
        if lane != Lane::Looks && !self.is_of_operators {
            self.outage.ends();
        }
    }

    async fn take_of_pool(&self, pool: &PgPool) -> Result<Checkout, LockError> {
        let limit = self.config.connect_timeout;
        let taken = timeout(limit, pool.acquire()).await;
        let mut connection = match taken {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return Err(error::cannot_connect(error, &self.config)),
            Err(_) => {
                let message = format!("the pool gave no connection to PostgreSQL within {limit:?}");
                return Err(error::backend(message));
            }
        };
        if !self.pool_is_fit.load(Ordering::Acquire) {
            self.check(&mut connection, Lane::Here).await?;
            self.pool_is_fit.store(true, Ordering::Release);
        }
        Ok(Checkout::of_pool(connection))
    }

    /// Connects like [`connect`](Self::connect). On the library's own thread, further attempts begin while one is
    /// unanswered, because renewals have no time to wait for a single attempt.
    async fn connect_soon(&self, lane: Lane) -> Result<PgConnection, LockError> {
        if background::handle().is_here() {
            hedged(|| self.connect(lane)).await
        } else {
            self.connect(lane).await
        }
    }

    /// Connects to a server with a table for locks.
    async fn connect(&self, lane: Lane) -> Result<PgConnection, LockError> {
        let limit = self.config.connect_timeout;
        let connecting = async {
            let mut connection = dial::connect(&self.config).await?;
            self.check(&mut connection, lane).await?;
            if !self.fitness.is_of_one_table() {
                // The user's pool leads to one table, and this connection leads to another table. Therefore, the pool
                // is checked again, and refused, at the next statement.
                self.pool_is_fit.store(false, Ordering::Release);
            }
            Ok(connection)
        };
        timeout(limit, connecting).await.unwrap_or_else(|_| Err(error::out_of_reach(limit, &self.config)))
    }

    async fn check(&self, connection: &mut PgConnection, lane: Lane) -> Result<(), LockError> {
        self.fitness.check(connection, &self.config, &self.clock, lane.is_beside_the_pool()).await
    }

    fn slot(&self, lane: Lane) -> Arc<Slot> {
        if lane == Lane::Looks {
            return Arc::clone(lock(&self.looks).get_or_insert_with(|| Slot::of(1, None)));
        }
        if lane == Lane::Renewals {
            let mut renewals = lock(&self.renewals);
            return Arc::clone(renewals.get_or_insert_with(|| Slot::of(FOR_RENEWALS, None)));
        }
        let here = runtime::Handle::current().id();
        let mut slots = lock(&self.by_runtime);
        let new = || Slot::of(self.config.connections, Some((Arc::downgrade(&self.by_runtime), here)));
        Arc::clone(slots.entry(here).or_insert_with(new))
    }
}

/// Checks the server over a connection of the caller's runtime, or of the user's pool; makes the connection if there is
/// none.
pub(crate) async fn ping(connections: &Connections) -> Result<(), LockError> {
    let mut checkout = connections.take(Lane::Here).await?;
    if checkout.fresh && !checkout.is_of_pool() {
        checkout.give_back();
        return Ok(());
    }
    let limit = connections.config.response_timeout;
    let sent = Instant::now();
    let fit = timeout(limit, connections.check(&mut checkout, Lane::Here)).await;
    let fit = fit.unwrap_or_else(|_| Err(error::silent(limit, &connections.config)));
    if fit.is_ok() {
        connections.outage.answered(sent);
        checkout.give_back();
    } else {
        checkout.give_up();
    }
    fit
}

/// Runs `work` in a task of its own on this runtime, beginning now; an error if the runtime is shut down meanwhile.
///
/// # Cancel safety
/// If the future is dropped, the work goes on.
pub(crate) fn detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, LockError>> + Send + 'static,
) -> impl Future<Output = Result<T, LockError>> {
    // Boxed first, because the future of a statement is large, and the runtime moves it several times.
    let done = tokio::spawn(Box::pin(work));
    async {
        let shut_down = || error::backend("the runtime was shut down while PostgreSQL was asked");
        done.await.unwrap_or_else(|_| Err(shut_down()))
    }
}
