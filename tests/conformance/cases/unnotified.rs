//! The server has no room for a notification: no release needs one.

use std::time::Instant;

use lock_runtime::{LockGuard, LockManager};
use tokio::task::JoinHandle;

use super::{LONG, SLACK, ms};
use crate::{
    case::{Case, case},
    fixture::Fixture,
    store::Fault,
};

pub fn cases() -> Vec<Case> {
    [
        case!(a_release_succeeds_and_its_waiter_gets_the_lock),
        case!(dropped_guards_are_released_and_their_waiters_get_the_locks),
        case!(a_lock_is_acquired_held_and_released),
    ]
    .map(|case| case.hurts(Fault::Unnotified))
    .into()
}

/// A waiter of another client, which has asked the store.
async fn waiter(fixture: &Fixture, locks: &LockManager, key: &str) -> JoinHandle<LockGuard> {
    let lock = locks.lock(key).wait(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    fixture.queued(key, 1).await;
    waiter
}

async fn a_release_succeeds_and_its_waiter_gets_the_lock(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let (key, kept) = (fixture.key("k"), fixture.key("kept"));
    let kept = ours.lock(kept).ttl(LONG).acquire().await.unwrap();
    for _ in 0..2 {
        let guard = ours.lock(&key).ttl(LONG).acquire().await.unwrap();
        let waiter = waiter(&fixture, &theirs, &key).await;
        fixture.hurt(Fault::Unnotified);
        let released = Instant::now();
        guard.release().await.unwrap();
        let guard = waiter.await.unwrap();
        assert!(released.elapsed() < fixture.time_to_poll() + SLACK, "{:?}", released.elapsed());
        guard.release().await.unwrap();
        fixture.heal();
    }
    assert!(kept.is_valid());
    kept.release().await.unwrap();
    fixture.clean().await;
}

async fn dropped_guards_are_released_and_their_waiters_get_the_locks(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let (mut guards, mut waiters) = (Vec::new(), Vec::new());
    for number in 0..20 {
        let key = fixture.key(&format!("k{number}"));
        guards.push(ours.lock(&key).ttl(LONG).acquire().await.unwrap());
        if number % 10 == 0 {
            waiters.push(waiter(&fixture, &theirs, &key).await);
        }
    }
    fixture.hurt(Fault::Unnotified);
    let dropped = Instant::now();
    drop(guards);
    for waiter in waiters {
        let guard = waiter.await.unwrap();
        assert!(dropped.elapsed() < fixture.time_to_poll() + SLACK, "{:?}", dropped.elapsed());
        guard.release().await.unwrap();
    }
    fixture.clean().await;
}

async fn a_lock_is_acquired_held_and_released(fixture: Fixture) {
    let (locks, ttl) = fixture.client_that_keeps(ms(1500)).await;
    let key = fixture.key("k");
    fixture.hurt(Fault::Unnotified);
    let guard = locks.lock(&key).ttl(ttl).acquire().await.unwrap();
    tokio::time::sleep(ttl * 2).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    fixture.is_free(&key).await;
}
