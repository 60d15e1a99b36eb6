//! `hold_at_least`: a lock is not free before its time, although its holder is done.

use std::time::{Duration, Instant};

use lock_runtime::{LockErrorKind, LockGuard};

use super::{LONG, SLACK, ms};
use crate::{
    case::{Case, case},
    fixture::Fixture,
    support::stopwatch::Moment,
};

pub fn cases() -> Vec<Case> {
    vec![
        case!(a_guard_that_is_gone_leaves_the_lock_held_until_its_time),
        case!(it_outlives_its_ttl_by_renewal),
        case!(who_waits_is_let_in_at_its_time),
        case!(who_is_let_in_at_its_time_keeps_the_lock_beyond_its_ttl),
        case!(it_neither_holds_up_a_shutdown_nor_is_freed_by_it),
        case!(it_ends_with_the_lease_when_the_store_loses_it),
        case!(several_are_kept_together),
        case!(without_renewal_the_lease_is_left_to_its_end),
        case!(it_outlives_the_runtime_of_its_holder),
    ]
}

/// Asserts that the lock is free `length` after `began`, and not before.
async fn is_kept(fixture: &Fixture, key: &str, began: Moment, length: Duration) {
    assert!(began.within(length), "the holder was kept waiting: {:?}", began.took());
    let other = fixture.client().await;
    let guard = other.lock(key).wait(length + SLACK * 2).acquire().await.unwrap();
    assert!(began.elapsed() >= length, "free after {:?}", began.elapsed());
    guard.release().await.unwrap();
}

async fn a_guard_that_is_gone_leaves_the_lock_held_until_its_time(fixture: Fixture) {
    let locks = fixture.client().await.ttl(LONG);
    let length = ms(2500);
    for way in 0..3 {
        let key = fixture.key(&way.to_string());
        let began = Moment::now();
        let guard = locks.lock(&key).hold_at_least(length).acquire().await.unwrap();
        let held = guard.held();
        match way {
            0 => guard.release().await.unwrap(),
            1 => guard.run(async {}).await.unwrap(),
            _ => drop(guard),
        }
        assert!(!held.is_valid() && held.remaining().is_zero());
        fixture.is_held(&key).await;
        assert!(locks.lock(&key).try_acquire().await.unwrap().is_none(), "free for its own client");
        is_kept(&fixture, &key, began, length).await;
    }
    fixture.clean().await;
}

async fn it_outlives_its_ttl_by_renewal(fixture: Fixture) {
    let key = fixture.key("k");
    let length = ms(3000);
    let began = Moment::now();
    let lock = fixture.client().await.lock(&key).ttl(fixture.lease(ms(900))).hold_at_least(length);
    // The manager is dropped, too.
    lock.acquire().await.unwrap().release().await.unwrap();
    drop(lock);
    is_kept(&fixture, &key, began, length).await;
    fixture.clean().await;
}

async fn who_waits_is_let_in_at_its_time(fixture: Fixture) {
    let locks = fixture.client().await.ttl(LONG);
    let key = fixture.key("k");
    let length = ms(2000);
    let began = Moment::now();
    drop(locks.lock(&key).hold_at_least(length).acquire().await.unwrap());
    let error = locks.lock(&key).wait(ms(100)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
    let next = locks.lock(&key).wait(LONG).acquire().await.unwrap();
    assert!(began.elapsed() >= length && began.within(length + SLACK), "{:?}", began.took());
    next.release().await.unwrap();
    fixture.clean().await;
}

async fn who_is_let_in_at_its_time_keeps_the_lock_beyond_its_ttl(fixture: Fixture) {
    let (locks, key) = (fixture.client().await, fixture.key("k"));
    let ttl = fixture.lease(ms(900));
    // Short, so that the lease is handed over to the waiter.
    drop(locks.lock(&key).ttl(ttl).hold_at_least(ms(300)).acquire().await.unwrap());
    let next = locks.lock(&key).ttl(ttl).wait(LONG).acquire().await.unwrap();
    tokio::time::sleep(ttl * 2).await;
    assert!(next.is_valid(), "not renewed");
    next.release().await.unwrap();
    fixture.clean().await;
}

async fn it_neither_holds_up_a_shutdown_nor_is_freed_by_it(fixture: Fixture) {
    let locks = fixture.client().await.ttl(LONG);
    let key = fixture.key("k");
    let length = ms(2500);
    let began = Moment::now();
    drop(locks.lock(&key).hold_at_least(length).acquire().await.unwrap());
    locks.shutdown().await;
    is_kept(&fixture, &key, began, length).await;
    fixture.clean().await;
}

async fn it_ends_with_the_lease_when_the_store_loses_it(fixture: Fixture) {
    let locks = fixture.client().await;
    let key = fixture.key("k");
    let began = Moment::now();
    let guard = locks.lock(&key).ttl(fixture.lease(ms(900))).hold_at_least(LONG).acquire().await.unwrap();
    guard.release().await.unwrap();
    fixture.lose(&key);
    // Waiters of the same client enter once its renewal notices the loss.
    let next = locks.lock(&key).wait(LONG).acquire().await.unwrap();
    assert!(began.within(fixture.lease(ms(900)) + SLACK), "{:?}", began.took());
    next.release().await.unwrap();
    fixture.clean().await;
}

async fn several_are_kept_together(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await.ttl(LONG), fixture.client().await.ttl(LONG));
    let keys = ["a", "b"].map(|name| fixture.key(name));
    let length = ms(2000);
    // A lock that was taken in vain is not kept.
    let busy = theirs.lock(&keys[1]).acquire().await.unwrap();
    let lock = ours.all(&keys).hold_at_least(length);
    assert!(lock.try_acquire().await.unwrap().is_none());
    busy.release().await.unwrap();
    fixture.clean().await;
    let began = Instant::now();
    lock.acquire().await.unwrap().release().await.unwrap();
    for key in &keys {
        fixture.is_held(key).await;
    }
    let next = theirs.all(&keys).wait(length + SLACK).acquire().await.unwrap();
    assert!(began.elapsed() >= length, "{:?}", began.elapsed());
    next.release().await.unwrap();
    fixture.clean().await;
}

async fn without_renewal_the_lease_is_left_to_its_end(fixture: Fixture) {
    let locks = fixture.client().await;
    let key = fixture.key("k");
    let ttl = fixture.lease(ms(1000));
    for lost in [false, true] {
        let began = Instant::now();
        let guard: LockGuard =
            locks.lock(&key).ttl(ttl).auto_renew(false).hold_at_least(ttl).acquire().await.unwrap();
        if lost {
            // At its safe deadline, which comes before the end of the lease.
            guard.lost().await;
        }
        drop(guard);
        let other = fixture.client().await;
        let guard = other.lock(&key).wait(ttl + SLACK).acquire().await.unwrap();
        assert!(began.elapsed() >= ttl, "free after {:?}", began.elapsed());
        guard.release().await.unwrap();
        fixture.clean().await;
    }
}

async fn it_outlives_the_runtime_of_its_holder(fixture: Fixture) {
    let (key, connected, ttl) = (fixture.key("k"), fixture.connect(fixture.url()), fixture.lease(ms(900)));
    let length = ms(2500);
    let began = Moment::now();
    let holder = std::thread::spawn({
        let key = key.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let locks = connected.await.unwrap().ttl(ttl);
                let guard = locks.lock(&key).hold_at_least(length).acquire().await.unwrap();
                // Dropped with its runtime.
                tokio::spawn(async move {
                    let _guard = guard;
                    std::future::pending::<()>().await;
                });
            });
        }
    });
    tokio::task::spawn_blocking(move || holder.join()).await.unwrap().unwrap();
    is_kept(&fixture, &key, began, length).await;
    fixture.clean().await;
}
