//! The task that has the connection of a session: it executes the requests, keeps the session alive, and sees the end
//! of the connection. No other task uses the connection, so the outcome of a statement is known in the end, even if its
//! caller has gone.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use sqlx::{
    Acquire as _, Row,
    postgres::{PgListener, PgRow},
};
use tokio::{sync::mpsc, time::timeout};

use super::{
    answer::{Tried, read_answer},
    hold::Hold,
    names::Name,
    revocations::Revocations,
    session::{End, Free, Inquire, Request, Session, Take, Taken},
    shared::Shared,
};
use crate::{
    LockError,
    backend::{
        common::{cold::cold, contention::Contention, outage::Outage},
        kits::postgres::{
            error::{self, Failure, Meaning},
            notices::{HEAD_START, NOTICE_PERIOD},
            statement::{Arg, Form, Statement, micros},
        },
    },
    time::clock::{self, Instant},
};

/// Upper bound on the requests of one statement.
const MAX_REQUESTS_PER_STATEMENT: usize = 256;
/// Number of pings in a session timeout.
const PINGS: u32 = 5;
/// How long a session is kept without locks, waiters and requests.
const UNUSED: Duration = Duration::from_secs(60);
/// Upper bound on refused attempts to give locks back, as when an operator cancels statements.
const MAX_REFUSALS: u32 = 16;

pub(super) struct Keeper {
    pub(super) session: Weak<Session>,
    pub(super) shared: Arc<Shared>,
    pid: i32,
    mark: i64,
    listener: PgListener,
    requests: mpsc::UnboundedReceiver<Request>,
    outage: Arc<Outage>,
    /// The locks that the session has, or may have, by their numbers.
    pub(super) held: HashMap<i64, Name>,
    pub(super) revocations: Revocations,
    /// When the last answered statement was sent, and when its answer came.
    sent: Instant,
    answered: Instant,
    used: Instant,
}

/// Ends the session before its connection is closed, even if a panic has ended the keeper: for example, a subscriber of
/// the log may panic.
impl Drop for Keeper {
    fn drop(&mut self) {
        self.end("its keeper has ended");
        // Waiters ask again, in another session.
        self.shared.notices.hints.notify_all();
    }
}

impl Keeper {
    pub(super) fn new(
        session: &Arc<Session>,
        listener: PgListener,
        requests: mpsc::UnboundedReceiver<Request>,
        outage: Arc<Outage>,
    ) -> Self {
        let now = Instant::now();
        Self {
            session: Arc::downgrade(session),
            shared: Arc::clone(&session.shared),
            pid: session.pid,
            mark: session.mark,
            listener,
            requests,
            outage,
            held: HashMap::new(),
            revocations: Revocations::since(now),
            sent: now,
            answered: now,
            used: now,
        }
    }

    /// Keeps the session until it ends, or until it is dropped.
    pub(super) async fn keep(mut self) {
        let why = loop {
            match self.step().await {
                Ok(true) => {}
                Ok(false) => break "it is no longer needed".to_owned(),
                Err(error) => break error.to_string(),
            }
        };
        self.end(&why);
        tracing::debug!(pid = self.pid, why, "the session with PostgreSQL ends");
    }

    /// Ends the session in this process, unless the session has ended.
    fn end(&self, why: &str) {
        if let Some(session) = self.session.upgrade() {
            session.lifetime.end(why);
        }
    }

    /// Handles the next message or requests, or pings; returns whether to go on.
    async fn step(&mut self) -> Result<bool, LockError> {
        let interval = self.shared.config.session_timeout / PINGS;
        let look_at = if self.held.is_empty() { Instant::FAR_FUTURE } else { self.revocations.next_look() };
        let mut due = Vec::new();
        tokio::select! {
            message = self.listener.try_recv() => match message {
                // A message from before the session stopped listening.
                Ok(Some(_)) => {}
                Ok(None) => return Err(self.broke()),
                Err(error) => return Err(error::explain(error, &self.shared.config.of_server)),
            },
            count = self.requests.recv_many(&mut due, MAX_REQUESTS_PER_STATEMENT) => {
                if count == 0 {
                    return Ok(false);
                }
                self.used = Instant::now();
                self.execute(due).await?;
            }
            () = clock::sleep_until(self.sent + interval) => self.ping().await?,
            () = clock::sleep_until(look_at) => self.look().await?,
            () = self.shared.notices.revoked.notified() => self.revocations.is_hinted = true,
        }
        let is_suspect = self.session.upgrade().is_none_or(|session| session.is_suspect());
        let is_unused = (self.used + UNUSED).has_passed() && !self.shared.notices.hints.is_watched();
        Ok(!self.held.is_empty() || !is_suspect && !is_unused)
    }

    /// Executes requests, first the requests that give locks back.
    async fn execute(&mut self, due: Vec<Request>) -> Result<(), LockError> {
        let (mut takes, mut frees, mut inquiries, mut pings) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for request in due {
            match request {
                Request::Take(take) => takes.push(take),
                Request::Free(free) => frees.push(free),
                Request::Inquire(inquire) => inquiries.push(inquire),
                Request::Ping(answer) => pings.push(answer),
            }
        }
        self.give_back(frees).await?;
        self.take(takes).await?;
        self.inquire(inquiries).await?;
        if !pings.is_empty() {
            self.ping().await?;
            for answer in pings {
                let _ = answer.send(());
            }
        }
        Ok(())
    }

    async fn ping(&mut self) -> Result<(), LockError> {
        let shared = Arc::clone(&self.shared);
        self.run(&shared.statements.ping, Vec::new()).await?;
        Ok(())
    }

    /// Answers the holders that ask whether other sessions wait.
    async fn inquire(&mut self, mut inquiries: Vec<Inquire>) -> Result<(), LockError> {
        inquiries.retain(|inquire| !inquire.answer.is_closed());
        if inquiries.is_empty() {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let names: Vec<_> = inquiries.iter().map(|inquire| inquire.name.clone()).collect();
        let answer = self.run(&shared.statements.wanted, vec![rows(&names), micros(NOTICE_PERIOD)]).await;
        match answer.and_then(|rows| read_answer(&rows, &names, |row| row.try_get("wanted"))) {
            Ok(answers) => {
                for (inquire, is_wanted) in inquiries.into_iter().zip(answers) {
                    let _ = inquire.answer.send(is_wanted);
                }
                Ok(())
            }
            // A holder without an answer asks again later.
            Err(Failure::Refused(_) | Failure::Locked(_)) => Ok(()),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Gives locks back, and answers the requests to do so.
    async fn give_back(&mut self, frees: Vec<Free>) -> Result<(), LockError> {
        if frees.is_empty() {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let names: Vec<_> = frees.iter().map(|free| free.name.clone()).collect();
        let args = vec![numbers(&names), rows(&names)];
        let read = |row: &PgRow| Ok((row.try_get("was_held")?, row.try_get("wanted")?));
        let answer = self.run(&shared.statements.unlock, args).await;
        let answers = match answer.and_then(|rows| read_answer(&rows, &names, read)) {
            Ok(answers) => answers,
            Err(Failure::Refused(_) | Failure::Locked(_)) => {
                self.free(&names).await?;
                vec![(true, false); names.len()]
            }
            Err(failure) => return Err(failure.into()),
        };
        for (free, (was_held, wanted)) in frees.into_iter().zip(answers) {
            let name = &free.name;
            if wanted {
                let way = Contention { asked_at: self.sent, answered_at: self.answered, others_wait: true };
                shared.left_free.leave(name.number, Instant::now() + way.head_start(HEAD_START));
            }
            self.has_not(name);
            // The keeper refuses a request for a lock of this session without asking the server. The table therefore
            // may not show that the request's caller waits, so the waiters of this process are notified here.
            shared.notices.hints.notify(&name.payload);
            let _ = free.end.set(if was_held { End::Released } else { End::NotHeld });
        }
        Ok(())
    }

    /// Gives back each of these locks that the session has, and notifies no waiter. This method is used after a refused
    /// statement, and for locks that were taken but not granted: a notification would make their waiters ask at once.
    async fn free(&mut self, names: &[Name]) -> Result<(), LockError> {
        if names.is_empty() {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        for refusals in 1.. {
            match self.run(&shared.statements.free, vec![numbers(names)]).await {
                Ok(_) => break,
                Err(Failure::Refused(_) | Failure::Locked(_)) if refusals < MAX_REFUSALS => {}
                // The error ends the session. If the session went on, locks without a holder would stay taken.
                Err(failure) => return Err(failure.into()),
            }
        }
        for name in names {
            self.has_not(name);
        }
        Ok(())
    }

    /// Notes that the session does not have a lock any more.
    fn has_not(&mut self, name: &Name) {
        self.held.remove(&name.number);
        self.revocations.revoked.remove(&name.number);
        if let Some(session) = self.session.upgrade() {
            session.lifetime.forget(name.number);
        }
    }

    /// Answers requests for locks.
    async fn take(&mut self, takes: Vec<Take>) -> Result<(), LockError> {
        let mut due = Vec::new();
        for take in takes {
            if take.answer.is_closed() {
                continue;
            }
            // The server would grant a lock again to the session that has it.
            if self.held.insert(take.name.number, take.name.clone()).is_none() {
                due.push(take);
            } else {
                let _ = take.answer.send(Taken::Held);
            }
        }
        if due.is_empty() {
            return Ok(());
        }
        self.want(&due).await?;
        let names: Vec<_> = due.iter().map(|take| take.name.clone()).collect();
        let sent = Instant::now();
        match self.lock(&names, &due).await {
            Ok(tried) => self.grant(due, tried, sent).await,
            // A refused statement may have taken its locks.
            Err(Failure::Refused(error) | Failure::Locked(error)) => {
                self.free(&names).await?;
                // One of several locks may be the reason for the refusal.
                let is_alone = due.len() == 1;
                for take in due {
                    if is_alone {
                        let _ = take.answer.send(Taken::Failed(error.clone()));
                    } else {
                        Box::pin(self.take(vec![take])).await?;
                    }
                }
                Ok(())
            }
            Err(failure) => Err(failure.into()),
        }
    }

    /// Marks the rows of locks whose waiters want to be notified.
    async fn want(&mut self, due: &[Take]) -> Result<(), LockError> {
        let waiting = due.iter().filter(|take| !take.wanted.is_zero());
        let Some(wanted) = waiting.clone().map(|take| take.wanted).max() else { return Ok(()) };
        let shared = Arc::clone(&self.shared);
        let names = waiting.clone().map(|take| &*take.name.row).collect();
        let signatures = waiting.map(|take| &*take.signature).collect();
        let args = vec![Arg::Texts(names), micros(wanted), Arg::Texts(signatures)];
        match self.run(&shared.statements.want, args).await {
            // The waiters ask again by themselves.
            Ok(_) | Err(Failure::Refused(_) | Failure::Locked(_)) => Ok(()),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Tries to take locks, for which these requests ask.
    async fn lock(&mut self, names: &[Name], due: &[Take]) -> Result<Vec<Tried>, Failure> {
        let shared = Arc::clone(&self.shared);
        let signatures: Vec<_> = due.iter().map(|take| &*take.signature).collect();
        let args = self.of_grant(names, signatures.clone());
        let answer = self.run(&shared.statements.lock, args).await?;
        let mut tried = read_answer(&answer, names, Tried::read)?;
        let without: Vec<_> = (0..names.len()).filter(|at| matches!(tried[*at], Tried::NoRow)).collect();
        if without.is_empty() {
            return Ok(tried);
        }
        let names: Vec<_> = without.iter().map(|at| names[*at].clone()).collect();
        let signatures: Vec<_> = without.iter().map(|at| signatures[*at]).collect();
        let created = match self.create(&names, &signatures).await {
            // One of several rows may be the reason for the failure.
            Err(Failure::Locked(_)) => {
                let mut created = Vec::with_capacity(names.len());
                for (name, signature) in names.chunks(1).zip(signatures.chunks(1)) {
                    created.extend(self.create(name, signature).await?);
                }
                created
            }
            created => created?,
        };
        for (at, version) in without.into_iter().zip(created) {
            if let Some(version) = version {
                tried[at] = Tried::Created(version);
            }
        }
        Ok(tried)
    }

    /// Creates the rows of locks that are taken; returns the version of each row, or `None` for a row that cannot be
    /// created now. Fails as `Locked` only if there are several rows.
    async fn create(&mut self, names: &[Name], signatures: &[&str]) -> Result<Vec<Option<i64>>, Failure> {
        let shared = Arc::clone(&self.shared);
        let args = self.of_grant(names, signatures.to_vec());
        match self.run(&shared.statements.create, args).await {
            Err(Failure::Locked(_)) if names.len() == 1 => Ok(vec![None]),
            answer => read_answer(&answer?, names, |row| row.try_get("version")),
        }
    }

    /// Returns the arguments of the statements that take locks: these locks, and who takes them.
    fn of_grant<'a>(&self, names: &'a [Name], signatures: Vec<&'a str>) -> Vec<Arg<'a>> {
        vec![numbers(names), rows(names), Arg::Texts(signatures), Arg::Number(self.mark)]
    }

    /// Answers requests for locks that were tried.
    async fn grant(&mut self, due: Vec<Take>, tried: Vec<Tried>, sent: Instant) -> Result<(), LockError> {
        let Some(session) = self.session.upgrade() else {
            return Err(error::backend("the store was dropped"));
        };
        let (mut locked, mut sweeps) = (Vec::new(), 0);
        for (take, tried) in due.into_iter().zip(tried) {
            let taken = match tried {
                Tried::Held => {
                    self.held.remove(&take.name.number);
                    Taken::Held
                }
                Tried::NoRow => {
                    locked.push(take.name);
                    Taken::Locked
                }
                Tried::Raised(version) | Tried::Created(version) => {
                    if let Tried::Created(_) = tried {
                        sweeps += u32::from(self.shared.sweeper.grown());
                    }
                    let hold = Hold::new(&session, take.key, take.name);
                    let version = u64::try_from(version).unwrap_or_default();
                    Taken::Granted { hold, version, since: sent }
                }
            };
            // A hold without a caller is dropped, which puts a request to give the lock back into the queue.
            let _ = take.answer.send(taken);
        }
        drop(session);
        self.free(&locked).await?;
        for _ in 0..sweeps {
            cold(self.sweep_page()).await?;
        }
        Ok(())
    }

    /// Executes a statement whose answer names its session.
    pub(super) async fn run(
        &mut self,
        statement: &Statement,
        args: Vec<Arg<'_>>,
    ) -> Result<Vec<PgRow>, Failure> {
        let answer = self.run_without_pid(statement, args).await?;
        let is_ours = |row: &PgRow| row.try_get::<i32, _>("pid").is_ok_and(|pid| pid == self.pid);
        if !answer.is_empty() && answer.iter().all(is_ours) {
            return Ok(answer);
        }
        let message =
            "PostgreSQL has executed a statement in another session, as behind a pooler of transactions";
        Err(Failure::Unknown(error::backend(message)))
    }

    /// Executes a statement once: a statement takes its lock even if the statement fails, and a second execution would
    /// take the lock twice. If the answer is late, the session becomes suspect. A session without locks then ends at
    /// once. A session with locks waits for the answer, and ends if the answer has not come by the session's deadline.
    /// After a failure other than `Refused` and `Locked`, the session is over.
    pub(super) async fn run_without_pid(
        &mut self,
        statement: &Statement,
        args: Vec<Arg<'_>>,
    ) -> Result<Vec<PgRow>, Failure> {
        let server = &self.shared.config.of_server;
        let Some(session) = self.session.upgrade() else {
            return Err(Failure::NotExecuted(error::backend("the store was dropped")));
        };
        let sent = Instant::now();
        let answer = {
            let answer =
                async { statement.fetch(self.listener.acquire().await?, &args, Form::Prepared).await };
            let mut answer = pin!(answer);
            if let Ok(answer) = timeout(server.response_timeout, &mut answer).await {
                answer
            } else {
                self.outage.begins(sent, &session.silent());
                session.suspect();
                let until = if self.held.is_empty() { sent } else { session.lifetime.valid_until() };
                tokio::select! {
                    answer = answer => {
                        if answer.is_ok() {
                            self.outage.ends();
                        }
                        answer
                    }
                    () = clock::sleep_until(until) => return Err(Failure::Unknown(session.silent())),
                }
            }
        };
        match answer {
            Ok(rows) => {
                session.answered(sent);
                self.outage.answered(sent);
                (self.sent, self.answered) = (sent, Instant::now());
                Ok(rows)
            }
            Err(cause) => {
                let meaning = Meaning::of(&cause);
                if error::is_of_notification(&cause) {
                    self.shared.notices.refused(&cause);
                }
                let error = error::explain(cause, server);
                match meaning {
                    Meaning::Broken | Meaning::OtherSession => return Err(Failure::Unknown(error)),
                    // Fencing tokens cannot be raised on this server, but perhaps on the server to which the address
                    // leads by now.
                    Meaning::ReadOnly => session.suspect(),
                    Meaning::Conflict | Meaning::Locked | Meaning::Refused => {}
                }
                session.answered(sent);
                self.outage.answered(sent);
                Err(if meaning == Meaning::Locked { Failure::Locked(error) } else { Failure::Refused(error) })
            }
        }
    }

    /// Returns the error for a connection that was closed.
    fn broke(&self) -> LockError {
        let address = self.shared.config.of_server.address();
        error::backend(format!(
            "the connection to PostgreSQL at {address} was closed, and its session has ended"
        ))
    }
}

fn numbers(names: &[Name]) -> Arg<'_> {
    Arg::Numbers(names.iter().map(|name| name.number).collect())
}

pub(super) fn rows(names: &[Name]) -> Arg<'_> {
    Arg::Texts(names.iter().map(|name| &*name.row).collect())
}
