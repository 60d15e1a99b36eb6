//! Renewals: all due leases in one statement.

use std::sync::Arc;

use sqlx::{Row, postgres::PgRow};

use super::shared::Shared;
use crate::{
    backend::{
        LeaseId, Renewal,
        kits::postgres::{
            connections::Lane,
            error::{Failure, backend, not_understood},
            halves::in_halves,
            statement::{Arg, read_rows},
        },
    },
    time::deadline::valid_until,
};

/// Upper bound on the leases of one statement, which are all renewed when the statement ends. (A row that stays locked
/// holds up none of the others: the statement skips that row.)
const MAX_LEASES_PER_STATEMENT: usize = 1_000;

pub(super) async fn renew(shared: &Arc<Shared>, due: &[LeaseId]) -> Vec<Renewal> {
    let mut parts = Vec::new();
    for part in due.chunks(MAX_LEASES_PER_STATEMENT) {
        let (shared, part) = (Arc::clone(shared), part.to_vec());
        let renewed = async move { in_halves(part.len(), |range| send(&shared, &part[range])).await };
        parts.push(tokio::spawn(renewed));
    }
    let mut renewals = Vec::with_capacity(due.len());
    for (part, ids) in parts.into_iter().zip(due.chunks(MAX_LEASES_PER_STATEMENT)) {
        let unknown = |failure: Failure| Renewal::Unknown(failure.into());
        if let Ok(part) = part.await {
            renewals.extend(part.into_iter().map(|renewal| renewal.unwrap_or_else(unknown)));
        } else {
            let error = not_understood(sqlx::Error::RowNotFound);
            renewals.extend(ids.iter().map(|_| Renewal::Unknown(error.clone())));
        }
    }
    renewals
}

/// Renews leases in one statement; returns an answer for each lease.
async fn send(shared: &Shared, due: &[LeaseId]) -> Result<Vec<Renewal>, Failure> {
    let args = |_| {
        let micros = |id: &LeaseId| i64::try_from(id.ttl.as_micros()).unwrap_or(i64::MAX);
        vec![
            Arg::Texts(due.iter().map(|id| id.key.stored()).collect()),
            Arg::Owners(due.iter().map(|id| id.owner).collect()),
            Arg::Numbers(due.iter().map(micros).collect()),
        ]
    };
    let answer = shared.connections.run(Lane::Renewals, &shared.statements.renew, args).await?;
    let read =
        |row: &PgRow| Ok((row.try_get("renewed")?, row.try_get("was_ours")?, row.try_get("is_revoked")?));
    let rows = read_rows(&answer.rows, due.len(), read).map_err(Failure::Unknown)?;
    let outcome = |(id, (renewed, was_ours, is_revoked)): (&LeaseId, (bool, bool, bool))| {
        if renewed {
            Renewal::Renewed(valid_until(answer.sent, id.ttl))
        } else if is_revoked {
            Renewal::Revoked
        } else if was_ours {
            Renewal::Unknown(backend("the row of the lock is locked by another transaction"))
        } else {
            Renewal::NotHeld
        }
    };
    Ok(due.iter().zip(rows).map(outcome).collect())
}
