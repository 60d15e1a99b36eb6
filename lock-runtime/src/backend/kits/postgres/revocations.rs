//! How the holders in this process learn that an operator has revoked their locks.
//!
//! A revocation marks the row of its lock. A process that holds locks reads one other row twice a second: the number of
//! the last revocation in the table. If the number has changed, the process looks for marks in the rows of its locks. A
//! notification makes a process that listens look at once. Both are only hints: the renewal of a lease, or the row of an
//! advisory lock, decides.

use std::time::Duration;

use sqlx::{Row, postgres::PgRow};

use super::{
    connections::{Connections, Lane},
    error::{backend, not_understood},
    notices::Notices,
    statement::{Arg, Statement},
    table::Table,
};
use crate::{
    LockError,
    backend::Revoked,
    time::clock::{self, Instant},
};

/// Pause between two looks at the number of the last revocation.
pub(crate) const PAUSE: Duration = Duration::from_millis(500);
/// Shortest pause between two looks, however many notifications come: any user of the database can send them.
pub(crate) const PAUSE_IF_NOTIFIED: Duration = Duration::from_millis(100);
/// Pause before the second attempt to revoke a lock whose row is locked; it doubles with each attempt.
const WHILE_LOCKED: Duration = Duration::from_millis(1);
/// Upper bound on the names of one statement.
pub(crate) const MAX_NAMES_PER_STATEMENT: usize = 1_000;

/// The statements by which revocations are announced and found.
#[derive(Debug)]
pub(crate) struct Statements {
    /// Announces a revocation.
    pub(crate) announce: Statement,
    /// Reads the number of the last revocation.
    pub(crate) last: Statement,
    /// Finds the revoked locks among those with the given names. The versions are those of grants that may have been
    /// freed by force, so that the row may belong to a later grant.
    pub(crate) revoked: Statement,
}

impl Statements {
    pub(crate) fn of(table: &Table) -> Self {
        Self {
            announce: Statement::of(include_str!("sql/announce.sql"), table),
            last: Statement::of(include_str!("sql/revocations.sql"), table),
            revoked: Statement::of(include_str!("sql/revoked.sql"), table),
        }
    }
}

/// Revokes a grant with `statement`, whose answer says whether the grant is revoked and, if not, whether it lasts in a row
/// that is locked. Repeats the statement while the row is locked, for the response timeout at most.
///
/// # Cancel safety
/// Must not be dropped, except with its runtime.
pub(crate) async fn revoke(
    connections: &Connections,
    notices: &Notices,
    statement: &Statement,
    args: &[Arg<'_>],
    is_forced: bool,
) -> Result<Revoked, LockError> {
    let end = Instant::now() + connections.config.response_timeout;
    let (mut pause, mut repeated) = (WHILE_LOCKED, false);
    loop {
        let answer = connections.run(Lane::Here, statement, |_| args.to_vec()).await?;
        if let Some(refusal) = &answer.unnotified {
            notices.refused(refusal);
        }
        repeated |= answer.repeated;
        let row = answer.rows.first().ok_or(sqlx::Error::RowNotFound);
        let read = row.and_then(|row| Ok((row.try_get("is_revoked")?, row.try_get("is_held")?)));
        match read.map_err(not_understood)? {
            (true, _) => return Ok(Revoked::Revoked),
            (false, false) if repeated && is_forced => {
                let message = "the connection broke, and the lock is no longer held by this grant: either it was freed, or its \
                               holder has released it";
                return Err(backend(message));
            }
            (false, false) => return Ok(Revoked::NotHeld),
            (false, true) if end.has_passed() => {
                let such_as = if is_forced { ", such as one that has checked in with the lock" } else { "" };
                return Err(backend(format!(
                    "the row of the lock is locked by another transaction{such_as}: it is to be found in pg_locks"
                )));
            }
            (false, true) => {}
        }
        clock::sleep_until((Instant::now() + pause).min(end)).await;
        pause *= 2;
    }
}

/// Announces a revocation to the holders. If that fails, a holder learns of the revocation at its next renewal.
///
/// # Cancel safety
/// Must not be dropped, except with its runtime.
pub(crate) async fn announce(connections: &Connections, statements: &Statements) {
    let announced = connections.run(Lane::Here, &statements.announce, |_| Vec::new()).await;
    if let Err(failure) = announced {
        tracing::debug!(error = %LockError::from(failure), "a revocation is not announced");
    }
}

/// The number of the last revocation, as far as this process knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Last {
    #[default]
    Unknown,
    /// `None` if there was no revocation for long.
    Seen(Option<i64>),
}

impl Last {
    /// Reads the answer to the statement [`last`](Statements::last).
    pub(crate) fn read(rows: &[PgRow]) -> Result<Self, LockError> {
        let row = rows.first().ok_or(sqlx::Error::RowNotFound);
        row.and_then(|row| row.try_get("last")).map(Self::Seen).map_err(not_understood)
    }
}

/// Reads the answer to the statement [`revoked`](Statements::revoked).
pub(crate) fn revoked(rows: &[PgRow]) -> Result<Vec<String>, LockError> {
    let row = rows.first().ok_or(sqlx::Error::RowNotFound);
    row.and_then(|row| row.try_get("names")).map_err(not_understood)
}
