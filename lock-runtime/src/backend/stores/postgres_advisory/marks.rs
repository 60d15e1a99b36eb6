//! The marks of periods: rows of the table, beside the rows of the locks.

use std::{borrow::Cow, sync::Arc};

use super::{PostgresAdvisory, names::mark, shared::Shared};
use crate::{
    LockError,
    backend::{
        BoxFuture, Mark, Marked, Marks,
        kits::postgres::{
            connections::{Lane, detached},
            error::Failure,
            statement::{Arg, micros},
        },
    },
};

impl Marks for PostgresAdvisory {
    fn set<'a>(&'a self, mark: &'a Mark) -> BoxFuture<'a, Result<Marked, LockError>> {
        let (shared, mark) = (Arc::clone(self.link.sessions()), mark.clone());
        Box::pin(async { detached(set(shared, mark)).await })
    }

    fn remove<'a>(&'a self, mark: &'a Mark) -> BoxFuture<'a, Result<(), LockError>> {
        let (shared, mark) = (Arc::clone(self.link.sessions()), mark.clone());
        Box::pin(async { detached(remove(shared, mark)).await })
    }
}

/// Returns the arguments that both statements begin with.
fn args(of: &Mark) -> [Arg<'_>; 3] {
    let period = i64::try_from(of.period).unwrap_or(i64::MAX);
    [Arg::Text(Cow::Owned(mark(&of.key))), Arg::Owner(Some(of.owner)), Arg::Number(period)]
}

async fn set(shared: Arc<Shared>, mark: Mark) -> Result<Marked, LockError> {
    let [name, owner, period] = args(&mark);
    let args = |_| vec![name.clone(), owner.clone(), period.clone(), micros(mark.lasts)];
    let answer = shared.operators.run(Lane::Here, &shared.statements.mark, args).await?;
    Ok(if answer.rows.is_empty() { Marked::Taken } else { Marked::Set })
}

async fn remove(shared: Arc<Shared>, mark: Mark) -> Result<(), LockError> {
    let [name, owner, period] = args(&mark);
    let args = |_| vec![name.clone(), owner.clone(), period.clone()];
    let removed = shared.operators.run(Lane::Here, &shared.statements.unmark, args).await;
    removed.map(drop).map_err(Failure::into)
}
