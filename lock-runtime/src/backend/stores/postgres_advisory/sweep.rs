//! The removal of rows by a session.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::keeper::Keeper;
use crate::{
    LockError,
    backend::kits::postgres::{error::Failure, sweep},
};

impl Keeper {
    /// Looks at the next page of the table, and removes the rows of locks that have long been unused. A row that the
    /// server refuses to remove does not keep other rows in the table.
    pub(super) async fn sweep_page(&mut self) -> Result<(), LockError> {
        let shared = Arc::clone(&self.shared);
        let sweeper = &shared.sweeper;
        let old = match self.run_without_pid(&sweeper.look, sweeper.page()).await {
            Ok(page) => sweeper.old(&page),
            Err(Failure::Refused(_) | Failure::Locked(_)) => return Ok(()),
            Err(failure) => return Err(failure.into()),
        };
        let keeper = &Mutex::new(self);
        let send = |names| async move {
            let mut keeper = keeper.lock().await;
            keeper.run_without_pid(&sweeper.remove, sweep::removal(names)).await.map(drop)
        };
        sweep::remove(&old, send).await
    }
}
