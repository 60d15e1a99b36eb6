//! Renewals: all leases that are due in one statement.

use std::sync::Arc;

use sqlx::Row;

use super::{
    connections::Lane,
    error::{Failure, not_understood},
    shared::Shared,
    statement::Arg,
};
use crate::{
    LockError, LockErrorKind,
    backend::{LeaseId, Renewal},
    time::deadline::valid_until,
};

/// Leases of one statement: a row that is locked for long holds up none of the others, but a statement ends at once.
const MOST: usize = 1_000;

pub(super) async fn renew(shared: &Arc<Shared>, due: &[LeaseId]) -> Vec<Renewal> {
    let mut parts = Vec::new();
    for part in due.chunks(MOST) {
        parts.push(tokio::spawn(renew_part(Arc::clone(shared), part.to_vec())));
    }
    let mut renewals = Vec::with_capacity(due.len());
    for (part, ids) in parts.into_iter().zip(due.chunks(MOST)) {
        match part.await {
            Ok(Ok(part)) if part.len() == ids.len() => renewals.extend(part),
            Ok(Err(error)) => renewals.extend(ids.iter().map(|_| Renewal::Unknown(error.clone()))),
            Ok(Ok(_)) | Err(_) => {
                let error = not_understood(sqlx::Error::RowNotFound);
                renewals.extend(ids.iter().map(|_| Renewal::Unknown(error.clone())));
            }
        }
    }
    renewals
}

async fn renew_part(shared: Arc<Shared>, due: Vec<LeaseId>) -> Result<Vec<Renewal>, LockError> {
    let args = |_| {
        let micros = |id: &LeaseId| i64::try_from(id.ttl.as_micros()).unwrap_or(i64::MAX);
        vec![
            Arg::Texts(due.iter().map(|id| id.key.stored()).collect()),
            Arg::Owners(due.iter().map(|id| id.owner).collect()),
            Arg::Numbers(due.iter().map(micros).collect()),
        ]
    };
    let answer = shared.connections.run(Lane::Renewals, &shared.statements.renew, args).await;
    let answer = answer.map_err(Failure::into_error)?;
    let read = |row: &sqlx::postgres::PgRow| -> Result<(bool, bool), sqlx::Error> {
        Ok((row.try_get("renewed")?, row.try_get("was_ours")?))
    };
    let rows: Result<Vec<_>, _> = answer.rows.iter().map(read).collect();
    let outcome = |(id, (renewed, was_ours)): (&LeaseId, (bool, bool))| {
        if renewed {
            Renewal::Renewed(valid_until(answer.sent, id.ttl))
        } else if was_ours {
            let message = "the row of the lock is locked by another transaction";
            Renewal::Unknown(LockError::new(LockErrorKind::Backend, message))
        } else {
            Renewal::NotHeld
        }
    };
    Ok(due.iter().zip(rows.map_err(not_understood)?).map(outcome).collect())
}
