//! Releases: one at a time for a caller, and many in one statement in the background, as after an outage.

use std::{
    sync::{Arc, Mutex},
    thread,
};

use sqlx::{Row, postgres::PgRow};
use tokio::sync::oneshot;

use super::next_holder::Secret;
use crate::{
    backend::{
        LeaseId,
        kits::postgres::{
            connections::{Answer, Connections, Lane},
            error::{Failure, backend, not_understood},
            halves::in_halves,
            notices::Notices,
            statement::{Arg, Statement, read_rows},
        },
    },
    sync::lock,
    time::clock::Instant,
};

/// Upper bound on the releases of one statement.
const MAX_RELEASES_PER_STATEMENT: usize = 256;

/// A release that is due.
#[derive(Clone, Debug)]
pub(super) struct Due {
    pub(super) id: LeaseId,
    /// The secret for the next holder; `None`: the next holder has to ask.
    pub(super) secret: Option<Secret>,
}

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReleaseOutcome {
    /// The lock was held, and its lease had not ended.
    Held,
    /// The lock was held, but its lease had ended.
    Ended,
    /// The row names the owner as the holder or as the next holder, but the row is locked.
    Locked,
    NotOurs,
}

/// An answer, and whether an earlier copy of the statement may have been executed, too.
type Released = Result<(ReleaseOutcome, bool), Failure>;

/// The releases of one store.
pub(super) struct Releases {
    connections: Arc<Connections>,
    notices: Arc<Notices>,
    release: Statement,
    hand_over: Statement,
    release_many: Statement,
    waiting: Mutex<Waiting>,
}

/// The releases that wait for a statement.
#[derive(Debug, Default)]
struct Waiting {
    due: Vec<(Due, oneshot::Sender<Released>)>,
    /// Whether a task is sending the releases.
    runs: bool,
}

/// Handles a panic that ends the task which sends the releases: for example, a subscriber of the log may panic. The
/// outcome of the waiting releases is then unknown, and the next release starts a new task.
struct StopsAtPanic<'a>(&'a Mutex<Waiting>);

impl Drop for StopsAtPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            *lock(self.0) = Waiting::default();
        }
    }
}

impl Releases {
    pub(super) fn new(connections: &Arc<Connections>, notices: &Arc<Notices>) -> Arc<Self> {
        let table = &connections.config.table;
        let of = |text: &str| {
            Statement::of(&text.replace("{grant}", include_str!("sql/grant.sql")), table).or_unnotified()
        };
        Arc::new(Self {
            connections: Arc::clone(connections),
            notices: Arc::clone(notices),
            release: of(include_str!("sql/release.sql")),
            hand_over: of(include_str!("sql/hand_over.sql")),
            release_many: of(include_str!("sql/release_many.sql")),
            waiting: Mutex::default(),
        })
    }

    /// Releases one lock. If the lock is held and `others_wait` is false, the release costs the server one bare UPDATE.
    pub(super) async fn alone(&self, mut due: Due, others_wait: bool) -> Released {
        let args = |_| {
            let named = [Arg::Text(due.id.key.stored().into()), Arg::Owner(Some(due.id.owner))];
            let shown = others_wait.then_some(Arg::Secret(due.secret.map(Secret::uuid)));
            named.into_iter().chain(shown).collect()
        };
        let statement = if others_wait { &self.hand_over } else { &self.release };
        let Answer { rows, repeated, .. } = self.run(statement, args).await?;
        if let Some(row) = rows.first() {
            let outcome = outcome(row).map_err(|cause| Failure::Unknown(not_understood(cause)))?;
            return Ok((outcome, repeated));
        }
        if repeated {
            // The first copy of the release may still be executed, and may end the hold without a grant. Therefore,
            // this release shows no secret (see the rules in `next_holder.rs`).
            due.secret = None;
        }
        let outcomes = self.send(std::slice::from_ref(&due)).await?;
        let (outcome, again) = outcomes[0];
        Ok((outcome, repeated || again))
    }

    /// Releases a lock together with others, from the library's own thread.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock is still released.
    pub(super) async fn together(self: &Arc<Self>, due: Due) -> Released {
        let (answer, answered) = oneshot::channel();
        {
            let mut waiting = lock(&self.waiting);
            waiting.due.push((due, answer));
            if !std::mem::replace(&mut waiting.runs, true) {
                tokio::spawn(Arc::clone(self).send_all());
            }
        }
        let shut_down = || Failure::Unknown(backend("the runtime was shut down during the release"));
        answered.await.unwrap_or_else(|_| Err(shut_down()))
    }

    async fn send_all(self: Arc<Self>) {
        let _panic = StopsAtPanic(&self.waiting);
        // Callers that are woken together share a statement.
        tokio::task::yield_now().await;
        loop {
            let due = {
                let mut waiting = lock(&self.waiting);
                let count = waiting.due.len().min(MAX_RELEASES_PER_STATEMENT);
                let due: Vec<_> = waiting.due.drain(..count).collect();
                waiting.runs = !due.is_empty();
                due
            };
            if due.is_empty() {
                return;
            }
            let (due, callers): (Vec<_>, Vec<_>) = due.into_iter().unzip();
            let released = in_halves(due.len(), |part| self.send(&due[part])).await;
            for (answer, caller) in released.into_iter().zip(callers) {
                let _ = caller.send(answer);
            }
        }
    }

    /// Releases locks in one statement; returns an answer for each lock.
    async fn send(&self, due: &[Due]) -> Result<Vec<(ReleaseOutcome, bool)>, Failure> {
        let args = |_| {
            vec![
                Arg::Texts(due.iter().map(|due| due.id.key.stored()).collect()),
                Arg::Owners(due.iter().map(|due| due.id.owner).collect()),
                Arg::Secrets(due.iter().map(|due| due.secret.map(Secret::uuid)).collect()),
            ]
        };
        let answer = self.run(&self.release_many, args).await?;
        // If the answer cannot be read, the locks may have been released.
        let read = |row: &PgRow| Ok((outcome(row)?, answer.repeated));
        read_rows(&answer.rows, due.len(), read).map_err(Failure::Unknown)
    }

    /// Executes a statement that releases locks, without its notification if the server refuses to notify.
    async fn run<'a>(
        &self,
        statement: &Statement,
        args: impl FnMut(Instant) -> Vec<Arg<'a>>,
    ) -> Result<Answer, Failure> {
        let answer = self.connections.run(Lane::Releases, statement, args).await?;
        if let Some(refusal) = &answer.unnotified {
            self.notices.refused(refusal);
        }
        Ok(answer)
    }
}

/// Reads a row of an answer. Only `release_many.sql` returns a row for a hold that it has not ended.
fn outcome(row: &PgRow) -> Result<ReleaseOutcome, sqlx::Error> {
    Ok(match row.try_get::<Option<bool>, _>("was_valid")? {
        Some(true) => ReleaseOutcome::Held,
        Some(false) => ReleaseOutcome::Ended,
        None if row.try_get("was_ours")? => ReleaseOutcome::Locked,
        None => ReleaseOutcome::NotOurs,
    })
}
