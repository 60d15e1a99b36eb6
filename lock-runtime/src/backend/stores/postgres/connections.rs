//! The connections of one store: a few for each runtime of the caller, and some for renewals alone.
//!
//! A connection takes one statement at a time. A statement runs in a task of its own: a caller that is dropped, or left
//! unpolled halfway, keeps no connection from the others, and what the statement did is known in the end.

use std::{
    collections::HashMap,
    fmt,
    ops::{Deref, DerefMut},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use sqlx::{
    AssertSqlSafe, ConnectOptions, Executor, PgConnection, PgPool, Postgres, Row, pool::PoolConnection,
    postgres::PgRow,
};
use tokio::{
    runtime,
    sync::{Semaphore, SemaphorePermit, oneshot},
    time::timeout,
};

use super::{
    config::Config,
    error::{self, Failure, Meaning},
    statement::{Arg, Statement},
};
use crate::{
    LockError, LockErrorKind,
    backend::common::{first_of::first_of, outage::Outage, server_clock::ServerClock, single_flight::PAUSE},
    background,
    sync::lock,
    time::clock::Instant,
};

/// Connections that renew leases. No other statement waits for them, and they wait for no other.
const FOR_RENEWALS: u32 = 2;
/// How long a connection may be unused before it is closed.
const IDLE: Duration = Duration::from_secs(60);
/// How often that is checked.
const CHECKED: Duration = Duration::from_secs(15);
/// How often a statement that met another one is repeated.
const CONFLICTS: u32 = 5;

/// The connections that a statement uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Those of the caller's runtime.
    Here,
    /// Those for renewals, on the library's own thread.
    Renewals,
}

/// The answer to a statement.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) rows: Vec<PgRow>,
    /// When the statement was sent the last time.
    pub(super) sent: Instant,
    /// Whether it may have been executed before.
    pub(super) repeated: bool,
}

/// The connections of one store.
pub(super) struct Connections {
    config: Config,
    /// The user's own, for the statements of the caller.
    pool: Option<PgPool>,
    by_runtime: Arc<Mutex<HashMap<runtime::Id, Arc<Slot>>>>,
    renewals: Mutex<Option<Arc<Slot>>>,
    outage: Outage,
    clock: ServerClock,
    server: Statement,
    fitness: Statement,
    /// The number of the next statement.
    echo: AtomicI64,
    /// Whether a connection keeps its session from one statement to the next, as far as is known; see `notices.rs`.
    keeps_sessions: AtomicBool,
    /// The identity of the table that was seen last, and whether the user's pool leads to it.
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    identity: Option<String>,
    /// What was last warned of.
    danger: Option<String>,
    /// When the server was started that was last found fit.
    fit: Option<i64>,
    pool_is_fit: bool,
}

impl Connections {
    pub(super) fn new(config: Config, pool: Option<PgPool>) -> Self {
        let outage =
            Outage::of(format!("PostgreSQL at {}", config.address()), "locks cannot be acquired or renewed");
        Self {
            server: Statement::of(include_str!("sql/server.sql"), &config.table, 0),
            fitness: Statement::of(include_str!("sql/fitness.sql"), &config.table, 0),
            config,
            pool,
            by_runtime: Arc::default(),
            renewals: Mutex::default(),
            outage,
            clock: ServerClock::default(),
            echo: AtomicI64::new(1),
            keeps_sessions: AtomicBool::new(false),
            seen: Mutex::default(),
        }
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn clock(&self) -> &ServerClock {
        &self.clock
    }

    /// Returns the identity of the table that was seen last: the server's, the database's and its own.
    pub(super) fn identity(&self) -> Option<String> {
        lock(&self.seen).identity.clone()
    }

    /// Returns an upper bound on the time in which a statement may be executed.
    pub(super) fn longest(&self) -> Duration {
        let Config { connect_timeout, response_timeout, .. } = self.config;
        // Connecting, twice, and then the statement.
        (response_timeout + connect_timeout) * 2 + response_timeout * 3
    }

    /// Makes a connection for renewals if there is none: at the first renewal there may be no time for that.
    pub(super) fn prepare_for_renewals(self: &Arc<Self>) {
        let is_there = |slot: &Arc<Slot>| {
            slot.permits.available_permits() < FOR_RENEWALS as usize || !lock(&slot.idle).is_empty()
        };
        if lock(&self.renewals).as_ref().is_some_and(is_there) {
            return;
        }
        let this = Arc::clone(self);
        background::handle().spawn(async move {
            if let Ok(line) = this.take(Lane::Renewals).await {
                line.give_back();
            }
        });
    }

    pub(super) fn keep_sessions(&self, keep: bool) {
        self.keeps_sessions.store(keep, Ordering::Release);
    }

    /// Executes a statement. A connection that broke while nobody used it is replaced: every statement may be repeated.
    ///
    /// `args` returns the arguments of a statement that is sent at this moment. One more is added, a number that each row
    /// of the answer has to repeat: an answer to another statement, of a driver or pooler that has lost count, would let
    /// two clients believe that they hold the lock.
    ///
    /// # Cancel safety
    /// Not to be dropped, except with its runtime: the statement may still be executed.
    pub(super) async fn run(
        &self,
        lane: Lane,
        statement: &Statement,
        mut args: impl FnMut(Instant) -> Vec<Arg>,
    ) -> Result<Answer, Failure> {
        let (mut conflicts, mut may_have_run) = (0, false);
        // Refused now, it may have been executed over a connection that broke.
        let not_here = |cause, may_have_run| {
            let error = error::explain(cause, &self.config);
            if may_have_run { Failure::Unknown(error) } else { Failure::NotExecuted(error) }
        };
        loop {
            let mut taken = match self.take(lane).await {
                Ok(taken) => taken,
                Err(error) if may_have_run => return Err(Failure::Unknown(error)),
                Err(error) => return Err(Failure::NotExecuted(error)),
            };
            // A renewal has time for one round trip only, and preparing a statement takes another one.
            let prepared =
                taken.is_of_pool() || (lane == Lane::Here && self.keeps_sessions.load(Ordering::Acquire));
            let round_trips = if prepared && taken.learn(statement) { 2 } else { 1 };
            let sent = Instant::now();
            let limit = self.config.response_timeout * round_trips;
            let echo = self.echo.fetch_add(1, Ordering::Relaxed);
            let mut args = args(sent);
            args.push(Arg::Number(echo));
            let Ok(answer) = timeout(limit, statement.fetch(&mut taken, &args, prepared)).await else {
                taken.give_up();
                let address = self.config.address();
                let error = LockError::new(
                    LockErrorKind::Backend,
                    format!("PostgreSQL at {address} did not answer within {limit:?}"),
                );
                self.outage.begins(sent, &error);
                return Err(Failure::Unknown(error));
            };
            let cause = match answer {
                Ok(rows) if !repeats(&rows, echo) => {
                    sqlx::Error::Protocol("it belongs to another request".into())
                }
                Ok(rows) => {
                    taken.give_back();
                    return Ok(Answer { rows, sent, repeated: may_have_run });
                }
                Err(cause) => cause,
            };
            let meaning = Meaning::of(&cause);
            match meaning {
                Meaning::Conflict if conflicts < CONFLICTS => {
                    taken.give_back();
                    conflicts += 1;
                }
                Meaning::OtherSession if conflicts < CONFLICTS && !taken.is_of_pool() => {
                    self.keep_sessions(false);
                    taken.give_up();
                    conflicts += 1;
                }
                Meaning::Broken if !taken.is_fresh() => {
                    taken.give_up();
                    may_have_run = true;
                }
                Meaning::Broken => {
                    taken.give_up();
                    return Err(Failure::Unknown(error::explain(cause, &self.config)));
                }
                Meaning::ReadOnly => {
                    // By now, the name may lead to another server.
                    taken.give_up();
                    return Err(not_here(cause, may_have_run));
                }
                Meaning::Conflict | Meaning::OtherSession | Meaning::Refused => {
                    taken.give_back();
                    return Err(not_here(cause, may_have_run));
                }
            }
        }
    }

    /// Takes a connection that nobody uses, or makes one.
    async fn take(&self, lane: Lane) -> Result<Line, LockError> {
        // Releases in the background do not depend on the pool, whose runtime may be gone.
        if let (Lane::Here, Some(pool)) = (lane, &self.pool)
            && !background::handle().is_here()
        {
            return self.take_of_pool(pool).await;
        }
        let slot = self.slot(lane);
        let limit = self.config.response_timeout;
        let Ok(permit) = timeout(limit, slot.permits.acquire()).await else {
            let message = format!(
                "none of the {} connections to PostgreSQL at {} became free within {limit:?}; allow more with the \
                 setting `connections`",
                slot.size,
                self.config.address()
            );
            return Err(LockError::new(LockErrorKind::Backend, message));
        };
        permit.map(SemaphorePermit::forget).expect("never closed");
        let permit = Permit(Arc::clone(&slot));
        if let Some(idle) = slot.pop() {
            return Ok(Line::of(idle, permit, false));
        }
        if slot.reached.load(Ordering::Acquire) {
            if let Ok(connection) = self.connect_soon(lane).await {
                self.outage.ends();
                return Ok(Line::of(Idle { connection, knows: 0, since: Instant::now() }, permit, true));
            }
            slot.reached.store(false, Ordering::Release);
        }
        // One after the other, and a failure is shared for a moment, so that an outage makes no storm of connections.
        let mut failed = slot.failed.lock().await;
        if let Some(idle) = slot.pop() {
            return Ok(Line::of(idle, permit, false));
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
                slot.reached.store(true, Ordering::Release);
                self.outage.ends();
                Ok(Line::of(Idle { connection, knows: 0, since: Instant::now() }, permit, true))
            }
            Err(error) => {
                self.outage.begins(began, &error);
                *failed = Some((Instant::now() + PAUSE, error.clone()));
                Err(error)
            }
        }
    }

    async fn take_of_pool(&self, pool: &PgPool) -> Result<Line, LockError> {
        let limit = self.config.connect_timeout;
        let taken = timeout(limit, pool.acquire()).await;
        let mut connection = match taken {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return Err(error::cannot_connect(error, &self.config)),
            Err(_) => {
                let message = format!("the pool gave no connection to PostgreSQL within {limit:?}");
                return Err(LockError::new(LockErrorKind::Backend, message));
            }
        };
        if !lock(&self.seen).pool_is_fit {
            self.check(&mut connection, Lane::Here).await?;
            lock(&self.seen).pool_is_fit = true;
        }
        Ok(Line {
            connection: Some(Raw::OfPool(connection)),
            permit: None,
            generation: 0,
            fresh: true,
            knows: 0,
        })
    }

    /// Connects like [`connect`](Self::connect); on the library's own thread by several attempts, because there is no time
    /// to wait for one without an answer.
    async fn connect_soon(&self, lane: Lane) -> Result<PgConnection, LockError> {
        if background::handle().is_here() {
            first_of(|| self.connect(lane)).await
        } else {
            self.connect(lane).await
        }
    }

    /// Connects to a server with a table for locks.
    async fn connect(&self, lane: Lane) -> Result<PgConnection, LockError> {
        let limit = self.config.connect_timeout;
        let connecting = async {
            let connected = self.config.options.connect().await;
            let mut connection = connected.map_err(|error| error::cannot_connect(error, &self.config))?;
            self.check(&mut connection, lane).await?;
            Ok(connection)
        };
        timeout(limit, connecting).await.unwrap_or_else(|_| {
            let address = self.config.address();
            Err(LockError::new(
                LockErrorKind::Backend,
                format!(
                    "PostgreSQL at {address} did not answer within {limit:?}; check address, port and firewall"
                ),
            ))
        })
    }

    /// Checks that the server and the table can hold locks; creates the table if that is wanted.
    ///
    /// Over a connection for renewals no lock is acquired, so `strict` does not apply there: held locks are kept.
    async fn check(&self, connection: &mut PgConnection, lane: Lane) -> Result<(), LockError> {
        let failed = |error| error::explain(error, &self.config);
        let server = self.server(connection).await.map_err(failed)?;
        if server.is_read_only {
            return Err(error::read_only(&self.config.address()));
        }
        if lock(&self.seen).fit == Some(server.started) {
            return Ok(());
        }
        let mut fitness = self.fitness(connection).await.map_err(failed)?;
        if fitness.identity.is_none() && self.config.create_table {
            self.create_table(connection).await?;
            fitness = self.fitness(connection).await.map_err(failed)?;
        }
        let Fitness { may_change, danger, identity } = fitness;
        let Some(identity) = identity else {
            return Err(error::missing(&self.config.table));
        };
        if !may_change {
            return Err(error::may_not(&self.config, "permission denied"));
        }
        let danger = danger.map(|danger| {
            format!(
                "PostgreSQL at {} may lose locks that it has granted, if it crashes: {danger}",
                self.config.address()
            )
        });
        let mut seen = lock(&self.seen);
        seen.identity = Some(format!("{}/{identity}", server.started));
        if seen.danger != danger {
            if let Some(danger) = &danger {
                tracing::warn!("{danger}");
            }
            seen.danger.clone_from(&danger);
        }
        if let Some(danger) = &danger
            && self.config.strict
        {
            if lane == Lane::Renewals {
                return Ok(());
            }
            let message = format!("{danger} (refused because of `strict`)");
            return Err(LockError::new(LockErrorKind::Backend, message));
        }
        seen.fit = Some(server.started);
        Ok(())
    }

    async fn server(&self, connection: &mut PgConnection) -> Result<Server, sqlx::Error> {
        let sent = Instant::now();
        let rows = self.server.fetch(connection, &[], false).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let us: i64 = row.try_get("us")?;
        self.clock.learn(sent, Instant::now(), u64::try_from(us).unwrap_or_default());
        Ok(Server { is_read_only: row.try_get("is_read_only")?, started: row.try_get("started")? })
    }

    async fn fitness(&self, connection: &mut PgConnection) -> Result<Fitness, sqlx::Error> {
        let rows = self.fitness.fetch(connection, &[], false).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        Ok(Fitness {
            danger: row.try_get("danger")?,
            may_change: row.try_get::<Option<bool>, _>("may_change")?.unwrap_or_default(),
            identity: row.try_get("identity")?,
        })
    }

    async fn create_table(&self, connection: &mut PgConnection) -> Result<(), LockError> {
        // Two clients that create it at once may disturb each other.
        for _ in 0..2 {
            let created = connection.execute(sqlx::raw_sql(AssertSqlSafe(self.config.table.ddl()))).await;
            match created {
                Ok(_) => {
                    tracing::info!("the table {} is created", self.config.table.name());
                    return Ok(());
                }
                Err(error)
                    if error.as_database_error().is_some_and(|error| {
                        // unique_violation, duplicate_object, duplicate_table
                        error.code().is_some_and(|code| ["23505", "42710", "42P07"].contains(&&*code))
                    }) => {}
                Err(error) => {
                    let table = self.config.table.name();
                    let ddl = self.config.table.ddl();
                    let message =
                        format!("the table {table} cannot be created ({error}); create it with: {ddl}");
                    return Err(LockError::new(LockErrorKind::Backend, message).into_permanent());
                }
            }
        }
        Ok(())
    }

    fn slot(&self, lane: Lane) -> Arc<Slot> {
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

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Returns whether an answer belongs to the statement with this number.
fn repeats(rows: &[PgRow], echo: i64) -> bool {
    rows.iter().all(|row| row.try_get::<i64, _>("echo").is_ok_and(|number| number == echo))
}

/// A server, as a new connection finds it.
struct Server {
    is_read_only: bool,
    /// When it was started, us.
    started: i64,
}

/// What a server says about itself and the table.
struct Fitness {
    /// Why it may lose data that it has confirmed.
    danger: Option<String>,
    may_change: bool,
    /// `None` without the table.
    identity: Option<String>,
}

/// The connections of one runtime.
struct Slot {
    size: u32,
    permits: Semaphore,
    idle: Mutex<Vec<Idle>>,
    /// Rises when connections are given up: those taken before are not used again.
    generation: AtomicU64,
    /// Whether the last attempt to connect succeeded. Then several may be made at once.
    reached: AtomicBool,
    /// The failure of the last attempt to connect, and until when it is shared. Held while an attempt is made.
    failed: tokio::sync::Mutex<Option<(Instant, LockError)>>,
    /// Ends the task that closes idle connections.
    _end: oneshot::Sender<()>,
}

struct Idle {
    connection: PgConnection,
    /// The bits of the statements that it has prepared.
    knows: u32,
    since: Instant,
}

type SlotsOfRuntimes = Mutex<HashMap<runtime::Id, Arc<Slot>>>;

impl Slot {
    /// Creates a slot of the caller's runtime. `registered` is where to remove it when its runtime is shut down.
    fn of(size: u32, registered: Option<(Weak<SlotsOfRuntimes>, runtime::Id)>) -> Arc<Self> {
        let (end, mut ended) = oneshot::channel();
        let slot = Arc::new(Self {
            size,
            permits: Semaphore::new(size as usize),
            idle: Mutex::default(),
            generation: AtomicU64::new(0),
            reached: AtomicBool::new(false),
            failed: tokio::sync::Mutex::default(),
            _end: end,
        });
        let caretaker = Caretaker { slot: Arc::downgrade(&slot), registered };
        tokio::spawn(async move {
            while timeout(CHECKED, &mut ended).await.is_err() {
                caretaker.close_idle();
            }
        });
        slot
    }

    fn pop(&self) -> Option<Idle> {
        lock(&self.idle).pop()
    }

    fn give_up(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.reached.store(false, Ordering::Release);
        lock(&self.idle).clear();
    }
}

/// Closes idle connections of a slot, and removes it when its runtime is shut down, because they are no longer driven.
struct Caretaker {
    slot: Weak<Slot>,
    registered: Option<(Weak<SlotsOfRuntimes>, runtime::Id)>,
}

impl Caretaker {
    fn close_idle(&self) {
        if let Some(slot) = self.slot.upgrade() {
            lock(&slot.idle).retain(|idle| !(idle.since + IDLE).has_passed());
        }
    }
}

impl Drop for Caretaker {
    fn drop(&mut self) {
        if let Some((slots, id)) = &self.registered
            && let Some(slots) = slots.upgrade()
        {
            lock(&slots).remove(id);
        }
    }
}

/// A place among the connections of a slot.
struct Permit(Arc<Slot>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.permits.add_permits(1);
    }
}

/// A connection that is in use. Dropped, it is closed: it may be in the middle of a statement.
struct Line {
    connection: Option<Raw>,
    /// `None` for a connection of the user's pool.
    permit: Option<Permit>,
    generation: u64,
    fresh: bool,
    /// The bits of the statements that it has prepared.
    knows: u32,
}

enum Raw {
    Own(PgConnection),
    OfPool(PoolConnection<Postgres>),
}

impl Line {
    fn of(Idle { connection, knows, .. }: Idle, permit: Permit, fresh: bool) -> Self {
        let generation = permit.0.generation.load(Ordering::SeqCst);
        Self { connection: Some(Raw::Own(connection)), permit: Some(permit), generation, fresh, knows }
    }

    /// Notes that a statement is prepared; returns whether it is the first time.
    fn learn(&mut self, statement: &Statement) -> bool {
        let is_new = self.knows & statement.bit() == 0;
        self.knows |= statement.bit();
        is_new
    }

    fn is_of_pool(&self) -> bool {
        self.permit.is_none()
    }

    /// Returns whether it was just made, or checked by the user's pool.
    fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Gives the connection back after a statement.
    fn give_back(mut self) {
        match (self.connection.take(), &self.permit) {
            (Some(Raw::Own(connection)), Some(Permit(slot)))
                if slot.generation.load(Ordering::SeqCst) == self.generation =>
            {
                lock(&slot.idle).push(Idle { connection, knows: self.knows, since: Instant::now() });
            }
            // The pool takes it back by itself.
            (connection, _) => drop(connection),
        }
    }

    /// Closes the connection, and those that nobody uses: what ended one has mostly ended all.
    fn give_up(self) {
        if let Some(Permit(slot)) = &self.permit {
            slot.give_up();
        }
    }
}

impl Deref for Line {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match self.connection.as_ref().expect("taken only at the end") {
            Raw::Own(connection) => connection,
            Raw::OfPool(connection) => connection,
        }
    }
}

impl DerefMut for Line {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match self.connection.as_mut().expect("taken only at the end") {
            Raw::Own(connection) => connection,
            Raw::OfPool(connection) => connection,
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // Not into the pool, which would first wait for the rest of the statement.
        if let Some(Raw::OfPool(connection)) = self.connection.take() {
            drop(connection.detach());
        }
    }
}

/// Pings over a connection of the caller's runtime, and so makes one if there is none.
pub(super) async fn ping(connections: &Connections) -> Result<(), LockError> {
    let mut line = connections.take(Lane::Here).await?;
    if line.is_fresh() && !line.is_of_pool() {
        line.give_back();
        return Ok(());
    }
    // In a transaction of its own that changes nothing: a replica answers other requests.
    let fit = timeout(connections.config.response_timeout, connections.check(&mut line, Lane::Here)).await;
    match fit {
        Ok(Ok(())) => {
            line.give_back();
            Ok(())
        }
        Ok(Err(error)) => {
            line.give_up();
            Err(error)
        }
        Err(_) => {
            line.give_up();
            let limit = connections.config.response_timeout;
            let address = connections.config.address();
            Err(LockError::new(
                LockErrorKind::Backend,
                format!("PostgreSQL at {address} did not answer within {limit:?}"),
            ))
        }
    }
}

/// Runs `work` in a task of its own on this runtime; an error if the runtime is shut down meanwhile.
pub(super) async fn detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, LockError>> + Send + 'static,
) -> Result<T, LockError> {
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|_| {
        Err(LockError::new(LockErrorKind::Backend, "the runtime was shut down while PostgreSQL was asked"))
    })
}
