//! What a request asks the store, within its bounds.

use std::{cmp::Reverse, time::Duration};

use lock_runtime::{LockError, LockErrorKind, LockManager, LockScan, backend::LockState};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};

/// Upper bound on the locks in a list.
const MAX_LOCKS: usize = 1_000;
/// Upper bound on the locks of a list whose waiters are asked for one by one.
const MAX_INSPECTED: usize = 100;
/// Upper bound on the time of a request.
const LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Question {
    pub(super) locks: LockManager,
    /// The right to ask for a list: operators press "reload" when a store is slow.
    pub(super) turn: Semaphore,
}

/// The locks that a list has.
#[derive(Debug)]
pub(super) struct Found {
    /// Those with waiters first.
    pub(super) locks: Vec<LockState>,
    /// Why there may be more locks; `None` if these are all.
    pub(super) incomplete: Option<&'static str>,
}

impl Question {
    /// Asks for one lock.
    pub(super) async fn lock(&self, key: &str) -> Result<LockState, LockError> {
        let answer = timeout_at(Instant::now() + LIMIT, self.locks.inspect(key)).await;
        answer.unwrap_or_else(|_| Err(late()))
    }

    /// Asks for the held locks whose names begin with `prefix`, and if wanted, for their waiters.
    pub(super) async fn list(&self, prefix: &str, with_waiters: bool) -> Result<Found, LockError> {
        let began = Instant::now();
        let end = began + LIMIT;
        let busy = || LockError::new(LockErrorKind::Overloaded, "another list is being made; try again");
        let turn = timeout_at(end, self.turn.acquire()).await;
        let _turn = turn.map_err(|_| busy())?.map_err(|_| busy())?;
        let mut found = Found { locks: Vec::new(), incomplete: None };
        let mut scan = self.locks.scan(prefix);
        loop {
            match timeout_at(end, next(&mut scan)).await {
                // A store with many other keys may answer all the time and show no lock.
                Err(_) if found.locks.is_empty() && !self.has_answered_since(began) => return Err(late()),
                Err(_) => {
                    found.incomplete = Some("the store has not shown all locks within 5 s");
                    break;
                }
                Ok(None) => break,
                Ok(Some(lock)) => {
                    let lock = lock?;
                    if found.locks.len() == MAX_LOCKS {
                        found.incomplete = Some("a list has at most 1,000 locks");
                        break;
                    }
                    found.locks.push(lock);
                }
            }
        }
        drop(scan);
        // A scan may show a lock twice.
        found.locks.sort_by(|a, b| a.key.cmp(&b.key));
        found.locks.dedup_by(|a, b| a.key == b.key);
        if with_waiters {
            let unknown = found.locks.iter().filter(|lock| lock.waiters.is_empty()).count();
            if unknown > MAX_INSPECTED {
                found.incomplete.get_or_insert("the waiters of 100 locks only were asked for");
            }
            let without = found.locks.iter_mut().filter(|lock| lock.waiters.is_empty());
            for lock in without.take(MAX_INSPECTED) {
                match timeout_at(end, self.locks.inspect(lock.key.as_str())).await {
                    // A lock that became free meanwhile stays in the list as the scan has shown it.
                    Ok(Ok(state)) if state.is_held() => *lock = state,
                    Ok(Ok(_)) => {}
                    Ok(Err(_)) | Err(_) => {
                        found.incomplete.get_or_insert("the store has not shown all waiters");
                        break;
                    }
                }
            }
        }
        found.locks.sort_by_key(|lock| Reverse(lock.waiters.len()));
        Ok(found)
    }

    /// Returns whether a server of the store has answered since `began`; a store inside this process has no servers.
    fn has_answered_since(&self, began: Instant) -> bool {
        let servers = self.locks.status().servers;
        servers.iter().any(|server| server.last_answer_age().is_some_and(|age| age < began.elapsed()))
    }
}

/// Returns the next lock of a scan. A store inside this process answers at once, so this function lets other tasks run.
async fn next(scan: &mut LockScan) -> Option<Result<LockState, LockError>> {
    tokio::task::coop::consume_budget().await;
    scan.next().await
}

fn late() -> LockError {
    LockError::new(LockErrorKind::Backend, "the store has not answered within 5 s")
}
