//! The attribute, observed in the store: no body without its lock, and a key that is computed once.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use lock_runtime::{LockError, LockErrorKind, LockManager, distributed_lock};

use super::{LONG, ms};
use crate::{
    case::{Case, case},
    fixture::Fixture,
};

pub fn cases() -> Vec<Case> {
    vec![
        case!(a_body_does_not_run_when_the_wait_for_its_lock_runs_out),
        case!(the_key_is_computed_once_and_freed_as_it_was_taken),
    ]
}

#[distributed_lock(key = "<name>", manager = locks, ttl = LONG, wait = ms(200))]
async fn counted(locks: &LockManager, name: &str, runs: &AtomicU64) -> Result<(), LockError> {
    runs.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

async fn a_body_does_not_run_when_the_wait_for_its_lock_runs_out(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let name = fixture.key("k").replace(':', "-");
    let runs = AtomicU64::new(0);
    // In the queue of the process, and in that of the store.
    for holder in [&ours, &theirs] {
        let guard = holder.lock(&name).ttl(LONG).acquire().await.unwrap();
        let error = counted(&ours, &name, &runs).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
        assert_eq!(runs.load(Ordering::SeqCst), 0, "the body ran without its lock");
        guard.release().await.unwrap();
    }
    counted(&ours, &name, &runs).await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    fixture.clean().await;
}

/// A name that changes each time it is read.
#[derive(Clone)]
struct Changing {
    mark: String,
    asked: Arc<AtomicU64>,
}

impl fmt::Display for Changing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.mark, self.asked.fetch_add(1, Ordering::SeqCst))
    }
}

#[distributed_lock(key = "<name>", manager = locks, ttl = LONG)]
async fn changes(locks: &LockManager, others: &LockManager, name: Changing) -> Result<Vec<bool>, LockError> {
    let mut held = Vec::new();
    for number in 0..3 {
        // From another task: this section would re-enter the lock.
        let lock = others.lock(format!("{}-{number}", name.mark));
        held.push(
            tokio::spawn(async move { lock.try_acquire().await.map(|guard| guard.is_none()) })
                .await
                .unwrap()?,
        );
    }
    Ok(held)
}

async fn the_key_is_computed_once_and_freed_as_it_was_taken(fixture: Fixture) {
    let (locks, others) = (fixture.client().await, fixture.client().await);
    let name = Changing { mark: fixture.key("k").replace(':', "-"), asked: Arc::default() };
    let held = changes(&locks, &others, name.clone()).await.unwrap();
    assert_eq!(held, [true, false, false]);
    assert_eq!(name.asked.load(Ordering::SeqCst), 1, "the key was computed again");
    fixture.clean().await;
}
