//! Releases in the background, of which those that are due at the same time share a statement: after an outage there may
//! be many.

use std::sync::Arc;

use sqlx::{Row, postgres::PgRow};
use tokio::sync::oneshot;

use super::{
    connections::{Answer, Lane},
    error::{Failure, not_understood},
    released::{Left, Released},
    shared::{Shared, Statements},
    statement::Arg,
};
use crate::{LockError, LockErrorKind, backend::LeaseId, sync::lock};

/// Releases of one statement.
const MOST: usize = 256;

/// Releases together with others, from the library's own thread.
///
/// # Cancel safety
/// Dropped, it is still released.
pub(super) async fn together(shared: &Arc<Shared>, id: LeaseId) -> Released {
    let (answer, answered) = oneshot::channel();
    {
        let mut waiting = lock(&shared.releases);
        waiting.due.push((id, answer));
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
    // Those that are woken together come together.
    tokio::task::yield_now().await;
    loop {
        let due = {
            let mut waiting = lock(&shared.releases);
            let count = waiting.due.len().min(MOST);
            let due: Vec<_> = waiting.due.drain(..count).collect();
            waiting.runs = !due.is_empty();
            due
        };
        if due.is_empty() {
            return;
        }
        let (ids, callers): (Vec<_>, Vec<_>) = due.into_iter().unzip();
        let answers = send(&shared, &ids).await;
        for (number, caller) in callers.into_iter().enumerate() {
            let answer = match &answers {
                Ok((lefts, repeated)) => Ok((lefts[number], *repeated)),
                Err(failure) => Err(failure.clone()),
            };
            let _ = caller.send(answer);
        }
    }
}

/// Releases in one statement; returns an answer for each.
pub(super) async fn send(shared: &Shared, ids: &[LeaseId]) -> Result<(Vec<Left>, bool), Failure> {
    let args = |_| {
        vec![
            Arg::Texts(ids.iter().map(|id| id.key.stored()).collect()),
            Arg::Owners(ids.iter().map(|id| id.owner).collect()),
        ]
    };
    let answer = shared.connections.run(Lane::Here, &shared.statements.release_many, args).await?;
    let lefts: Result<Vec<_>, _> = answer.rows.iter().map(read).collect();
    match lefts {
        Ok(lefts) if lefts.len() == ids.len() => Ok((lefts, answer.repeated)),
        Ok(_) => Err(Failure::Unknown(not_understood(sqlx::Error::RowNotFound))),
        Err(error) => Err(Failure::Unknown(not_understood(error))),
    }
}

fn read(row: &PgRow) -> Result<Left, sqlx::Error> {
    Ok(match row.try_get::<Option<bool>, _>("was_valid")? {
        Some(true) => Left::Held,
        Some(false) => Left::Ended,
        None if row.try_get("was_ours")? => Left::Locked,
        None => Left::NotOurs,
    })
}

/// Releases one lock, at the price of a bare UPDATE if it is held and others do not `wait`.
pub(super) async fn alone(shared: &Shared, id: &LeaseId, others_wait: bool) -> Released {
    let Statements { release, hand_over, .. } = &shared.statements;
    let statement = if others_wait { hand_over } else { release };
    let args = |_| vec![Arg::Text(id.key.stored().into()), Arg::Owner(id.owner)];
    let Answer { rows, repeated, .. } = shared.connections.run(Lane::Here, statement, args).await?;
    if let Some(row) = rows.first() {
        let was_valid = row.try_get("was_valid").map_err(|error| Failure::Unknown(not_understood(error)))?;
        return Ok((if was_valid { Left::Held } else { Left::Ended }, repeated));
    }
    let (lefts, again) = send(shared, std::slice::from_ref(id)).await?;
    Ok((lefts[0], repeated || again))
}
