//! Protected writes: a transaction of your own that commits only if a lock is still held, and tokens as parameters.
//!
//! **Data in the same database as the lock**: [check in](CheckIn::check_in) with the lock inside the transaction that
//! writes. A check-in is safe however long the process was paused before, and whatever the clocks show: from the
//! check-in until the transaction ends, no other client can be granted the lock.
//!
//! ```no_run
//! use lock_runtime::{LockManager, backend::postgres::fence::CheckIn};
//!
//! # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! let locks = LockManager::connect("postgres://127.0.0.1/app").await?;
//! let guard = locks.lock("user:42").acquire().await?;
//! let mut transaction = pool.begin().await?;
//! guard.check_in(&mut transaction).await?;
//! sqlx::query("UPDATE account SET balance = balance - 30 WHERE id = 42").execute(&mut *transaction).await?;
//! transaction.commit().await?;
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! **Data elsewhere**: keep the largest fencing token next to the data, and refuse smaller ones in the statement that
//! writes. A [`FencingToken`] can be bound as a parameter of the type `bigint`:
//!
//! ```no_run
//! # async fn example(pool: sqlx::PgPool, guard: lock_runtime::LockGuard) -> Result<(), Box<dyn std::error::Error>> {
//! let written = sqlx::query("UPDATE account SET balance = $1, fence = $2 WHERE id = 42 AND fence <= $2")
//!     .bind(70_i64)
//!     .bind(guard.fencing_token())
//!     .execute(&pool)
//!     .await?;
//! if written.rows_affected() == 0 {
//!     return Err("a later holder has written".into());
//! }
//! # Ok(())
//! # }
//! ```

use sqlx::{
    Postgres, Row, Transaction, Type,
    encode::{Encode, IsNull},
    error::BoxDynError,
    postgres::{PgArgumentBuffer, PgTypeInfo},
};

use super::hold::PostgresLease;
use crate::{
    FencingToken, HeldLock, LockError, LockErrorKind, LockGuard,
    backend::{
        BoxFuture,
        kits::postgres::{
            error::{in_transaction, not_understood},
            statement::uuid,
        },
    },
};

/// A lock that a transaction can depend on.
pub trait CheckIn {
    /// Makes a transaction depend on this lock: the check-in fails if the lock is no longer held, and from the check-in
    /// until the transaction ends, no other client can be granted the lock.
    ///
    /// Call this method in the transaction that writes, before or after the writes, in the lock's database, as a user
    /// who has `SELECT` and `UPDATE` on the locks' table. If the check-in fails, roll the transaction back. Renewals go
    /// on meanwhile, so the transaction may last longer than the `ttl`. The lock is not handed over in the process any
    /// more, and its release waits for the end of the transaction: end the transaction first.
    ///
    /// A check-in works at each isolation level. If the lock was lost after a transaction that is `REPEATABLE READ` or
    /// `SERIALIZABLE` had begun, the error is a serialization failure.
    ///
    /// # Errors
    /// * [`Lost`](LockErrorKind::Lost) if the lock is no longer held, was revoked by an operator, or is not in this database.
    ///   (A revocation that is not visible to the transaction does not fail the check-in. This does no harm: until the
    ///   transaction ends, no other client is granted the lock.)
    /// * [`Backend`](LockErrorKind::Backend) if the statement failed. The source is the driver's error.
    /// * [`Unsupported`](LockErrorKind::Unsupported) if the lock is not held in a row of PostgreSQL.
    ///
    /// # Cancel safety
    /// If the future is dropped, the transaction may or may not depend on the lock. In this case, roll the transaction
    /// back.
    fn check_in<'a>(
        &'a self,
        transaction: &'a mut Transaction<'_, Postgres>,
    ) -> BoxFuture<'a, Result<(), LockError>>;
}

impl CheckIn for LockGuard {
    fn check_in<'a>(
        &'a self,
        transaction: &'a mut Transaction<'_, Postgres>,
    ) -> BoxFuture<'a, Result<(), LockError>> {
        Box::pin(async move { check_in(&self.held(), transaction).await })
    }
}

impl CheckIn for HeldLock {
    fn check_in<'a>(
        &'a self,
        transaction: &'a mut Transaction<'_, Postgres>,
    ) -> BoxFuture<'a, Result<(), LockError>> {
        Box::pin(check_in(self, transaction))
    }
}

async fn check_in(held: &HeldLock, transaction: &mut Transaction<'_, Postgres>) -> Result<(), LockError> {
    let Some(lease) = held.in_store::<PostgresLease>() else {
        return Err(LockError::new(
            LockErrorKind::Unsupported,
            "the lock is not held in a row of PostgreSQL, as with `postgres:`; hand its fencing token to the resource",
        )
        .with_key(held.key()));
    };
    // Hand-overs in this process are stopped before the check, so a holder that is valid at the check has no successor
    // in this process. The statement could not tell such a successor from the holder, because both have the same row.
    lease.keep_from_others();
    held.ensure_valid()?;
    let statement = &lease.shared.statements.check_in;
    let version = i64::try_from(lease.id.token.micros()).unwrap_or(i64::MAX);
    let query = statement.query().bind(lease.id.key.stored()).bind(uuid(lease.id.owner)).bind(version);
    match query.fetch_optional(&mut **transaction).await {
        Ok(Some(row)) => match row.try_get("is_revoked") {
            Ok(false) => Ok(()),
            Ok(true) => {
                let message = "lost: it was revoked by an operator; roll the transaction back";
                Err(LockError::new(LockErrorKind::Lost, message).with_key(held.key()))
            }
            Err(error) => Err(not_understood(error).with_key(held.key())),
        },
        Ok(None) => {
            let message = "lost: its row in this database belongs to another holder or to none; roll the transaction back";
            Err(LockError::new(LockErrorKind::Lost, message).with_key(held.key()))
        }
        Err(error) => Err(in_transaction(error, &lease.shared.connections.config).with_key(held.key())),
    }
}

/// A `bigint`.
impl Type<Postgres> for FencingToken {
    fn type_info() -> PgTypeInfo {
        <i64 as Type<Postgres>>::type_info()
    }
}

impl Encode<'_, Postgres> for FencingToken {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        Encode::<Postgres>::encode_by_ref(&i64::from(*self), buffer)
    }
}
