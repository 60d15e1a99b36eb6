//! Releases in the background, many of which may be due at once after an outage: they share a statement.

use std::sync::Arc;

use sqlx::{Row, postgres::PgRow};
use tokio::sync::oneshot;

use super::{
    released::{Due, ReleaseOutcome, Released},
    secret::Secret,
    shared::{Shared, Statements},
};
use crate::{
    LockError, LockErrorKind,
    backend::kits::postgres::{
        connections::{Answer, Lane},
        error::{Failure, not_understood},
        parts::in_parts,
        statement::{Arg, Statement},
    },
    sync::lock,
    time::clock::Instant,
};

/// Upper bound on the releases of one statement.
const MAX_RELEASES_PER_STATEMENT: usize = 256;

/// Releases a lock together with others, from the library's own thread.
///
/// # Cancel safety
/// If dropped, the lock is still released.
pub(super) async fn together(shared: &Arc<Shared>, due: Due) -> Released {
    let (answer, answered) = oneshot::channel();
    {
        let mut waiting = lock(&shared.releases);
        waiting.due.push((due, answer));
        if !std::mem::replace(&mut waiting.runs, true) {
            tokio::spawn(send_all(Arc::clone(shared)));
        }
    }
    answered.await.unwrap_or_else(|_| {
        let message = "the runtime was shut down during the release";
        Err(Failure::Unknown(LockError::new(LockErrorKind::Backend, message)))
    })
}

async fn send_all(shared: Arc<Shared>) {
    // Callers that are woken together share a statement.
    tokio::task::yield_now().await;
    loop {
        let due = {
            let mut waiting = lock(&shared.releases);
            let count = waiting.due.len().min(MAX_RELEASES_PER_STATEMENT);
            let due: Vec<_> = waiting.due.drain(..count).collect();
            waiting.runs = !due.is_empty();
            due
        };
        if due.is_empty() {
            return;
        }
        let (due, callers): (Vec<_>, Vec<_>) = due.into_iter().unzip();
        let released = in_parts(due.len(), |part| send(&shared, &due[part])).await;
        for (answer, caller) in released.into_iter().zip(callers) {
            let _ = caller.send(answer);
        }
    }
}

/// Executes a statement that releases locks, without its notification if the server refuses to notify.
async fn run<'a>(
    shared: &Shared,
    statement: &Statement,
    args: impl FnMut(Instant) -> Vec<Arg<'a>>,
) -> Result<Answer, Failure> {
    let answer = shared.connections.run(Lane::Releases, statement, args).await?;
    if let Some(refusal) = &answer.unnotified {
        shared.notices.refused(refusal);
    }
    Ok(answer)
}

/// Releases locks in one statement; returns an answer for each lock.
async fn send(shared: &Shared, due: &[Due]) -> Result<Vec<(ReleaseOutcome, bool)>, Failure> {
    let args = |_| {
        vec![
            Arg::Texts(due.iter().map(|due| due.id.key.stored()).collect()),
            Arg::Owners(due.iter().map(|due| due.id.owner).collect()),
            Arg::Secrets(due.iter().map(|due| due.secret.map(Secret::uuid)).collect()),
        ]
    };
    let answer = run(shared, &shared.statements.release_many, args).await?;
    let read = |row| Ok((read(row)?, answer.repeated));
    let lefts: Result<Vec<_>, _> = answer.rows.iter().map(read).collect();
    match lefts {
        Ok(lefts) if lefts.len() == due.len() => Ok(lefts),
        Ok(_) => Err(Failure::Unknown(not_understood(sqlx::Error::RowNotFound))),
        Err(error) => Err(Failure::Unknown(not_understood(error))),
    }
}

fn read(row: &PgRow) -> Result<ReleaseOutcome, sqlx::Error> {
    Ok(match row.try_get::<Option<bool>, _>("was_valid")? {
        Some(true) => ReleaseOutcome::Held,
        Some(false) => ReleaseOutcome::Ended,
        None if row.try_get("was_ours")? => ReleaseOutcome::Locked,
        None => ReleaseOutcome::NotOurs,
    })
}

/// Releases one lock, at the price of a bare UPDATE if the lock is held and no others wait (`others_wait`).
pub(super) async fn alone(shared: &Shared, mut due: Due, others_wait: bool) -> Released {
    let Statements { release, hand_over, .. } = &shared.statements;
    let args = |_| {
        let named = [Arg::Text(due.id.key.stored().into()), Arg::Owner(due.id.owner)];
        let shown = others_wait.then_some(Arg::Secret(due.secret.map(Secret::uuid)));
        named.into_iter().chain(shown).collect()
    };
    let statement = if others_wait { hand_over } else { release };
    let Answer { rows, repeated, .. } = run(shared, statement, args).await?;
    if let Some(row) = rows.first() {
        let was_valid = row.try_get("was_valid").map_err(|error| Failure::Unknown(not_understood(error)))?;
        return Ok((if was_valid { ReleaseOutcome::Held } else { ReleaseOutcome::Ended }, repeated));
    }
    if repeated {
        // The first release may still be executed, perhaps without a grant; see `next.rs`.
        due.secret = None;
    }
    let lefts = send(shared, std::slice::from_ref(&due)).await?;
    let (left, again) = lefts[0];
    Ok((left, repeated || again))
}
