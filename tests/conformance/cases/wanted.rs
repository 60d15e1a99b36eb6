//! A holder learns that other acquisitions wait for its lock, and only then.

use std::pin::pin;

use lock_runtime::{LockGuard, LockManager};
use tokio::time::timeout;

use super::{LONG, SLACK, ms};
use crate::{
    case::{Case, Need, case},
    fixture::Fixture,
    polling::{begun, poll_once},
    support::stopwatch::Moment,
};

pub fn cases() -> Vec<Case> {
    let tells = Need::Can(|can| can.tells_of_waiters());
    vec![
        case!(a_lock_for_which_none_waits_is_not_wanted),
        case!(a_waiter_of_this_client_makes_the_lock_wanted),
        case!(a_waiter_that_came_before_the_call_counts),
        case!(a_waiter_that_has_gone_does_not_count),
        case!(a_waiter_of_another_client_makes_the_lock_wanted).needs(tells),
        case!(a_waiter_of_another_client_that_came_before_the_call_counts).needs(tells),
        case!(a_waiter_of_another_client_counts_after_the_holder_has_waited_itself).needs(tells),
        case!(a_holder_that_has_waited_itself_does_not_count),
        case!(a_lock_that_is_no_longer_held_is_never_wanted),
        case!(a_dropped_call_leaves_nothing),
    ]
}

/// Time in which a holder learns of a waiter, on a machine that is not busy.
const SOON: std::time::Duration = ms(1000);
/// Time after which a false alarm has come, if one comes: longer than the pause between two questions to a store.
const LATER: std::time::Duration = ms(800);

async fn held(fixture: &Fixture, key: &str) -> (LockManager, LockGuard) {
    let locks = fixture.client().await.wait(LONG);
    let guard = locks.lock(key).acquire().await.unwrap();
    (locks, guard)
}

/// A task that waits for the lock, and releases it at once.
async fn waiter(locks: &LockManager, key: &str) -> tokio::task::JoinHandle<()> {
    let lock = locks.lock(key).wait(LONG);
    begun(async move { lock.acquire().await.unwrap().release().await.unwrap() }).await
}

async fn is_wanted_soon(guard: &LockGuard) {
    let began = Moment::now();
    timeout(LONG, guard.wanted()).await.expect("the waiter is seen");
    assert!(began.within(SOON + SLACK), "{:?}", began.took());
    assert!(guard.is_valid(), "the holder decides");
}

async fn is_not_wanted(guard: &LockGuard) {
    assert!(timeout(LATER, guard.wanted()).await.is_err(), "no acquisition waits");
}

async fn a_lock_for_which_none_waits_is_not_wanted(fixture: Fixture) {
    let (ours, theirs, key) = (fixture.client().await, fixture.client().await, fixture.key("k"));
    let guard = ours.lock(&key).acquire().await.unwrap();
    // A single attempt does not wait, and a lock of another name is another lock.
    for locks in [&ours, &theirs] {
        assert!(locks.lock(&key).try_acquire().await.unwrap().is_none());
    }
    let (other, other_guard) = held(&fixture, &fixture.key("other")).await;
    let waiter = waiter(&other, &fixture.key("other")).await;
    is_not_wanted(&guard).await;
    assert!(timeout(ms(50), guard.held().wanted()).await.is_err());
    guard.release().await.unwrap();
    other_guard.release().await.unwrap();
    waiter.await.unwrap();
    fixture.clean().await;
}

async fn a_waiter_of_this_client_makes_the_lock_wanted(fixture: Fixture) {
    let key = fixture.key("k");
    let (locks, guard) = held(&fixture, &key).await;
    let mut wanted = pin!(guard.wanted());
    assert!(poll_once(wanted.as_mut()).await.is_pending());
    let waiter = waiter(&locks, &key).await;
    timeout(SLACK, wanted).await.expect("the waiter is seen at once");
    assert!(guard.is_valid(), "the holder decides");
    guard.release().await.unwrap();
    waiter.await.unwrap();
    fixture.clean().await;
}

async fn a_waiter_that_came_before_the_call_counts(fixture: Fixture) {
    let key = fixture.key("k");
    let (locks, guard) = held(&fixture, &key).await;
    let (first, second) = (waiter(&locks, &key).await, waiter(&locks, &key).await);
    assert!(poll_once(pin!(guard.held().wanted())).await.is_ready());
    guard.release().await.unwrap();
    for waiter in [first, second] {
        waiter.await.unwrap();
    }
    fixture.clean().await;
}

async fn a_waiter_that_has_gone_does_not_count(fixture: Fixture) {
    let key = fixture.key("k");
    let (locks, guard) = held(&fixture, &key).await;
    let waiter = waiter(&locks, &key).await;
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    is_not_wanted(&guard).await;
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn a_waiter_of_another_client_makes_the_lock_wanted(fixture: Fixture) {
    let (theirs, key) = (fixture.client().await, fixture.key("k"));
    let (_locks, guard) = held(&fixture, &key).await;
    let mut wanted = pin!(guard.wanted());
    assert!(timeout(ms(100), wanted.as_mut()).await.is_err(), "no acquisition waits");
    let waiter = waiter(&theirs, &key).await;
    let began = Moment::now();
    timeout(LONG, wanted).await.expect("the waiter is seen");
    println!("seen after {:?}", began.took());
    assert!(began.within(SOON + SLACK), "{:?}", began.took());
    assert!(guard.is_valid(), "the holder decides");
    guard.release().await.unwrap();
    waiter.await.unwrap();
    fixture.clean().await;
}

async fn a_waiter_of_another_client_that_came_before_the_call_counts(fixture: Fixture) {
    let (theirs, key) = (fixture.client().await, fixture.key("k"));
    let (_locks, guard) = held(&fixture, &key).await;
    let waiter = waiter(&theirs, &key).await;
    fixture.queued(&key, 1).await;
    is_wanted_soon(&guard).await;
    guard.release().await.unwrap();
    waiter.await.unwrap();
    fixture.clean().await;
}

async fn a_waiter_of_another_client_counts_after_the_holder_has_waited_itself(fixture: Fixture) {
    let key = fixture.key("k");
    let (_locks, guard) = held(&fixture, &key).await;
    // In a queue, the second waiter stands behind the first, and begins to wait before the first becomes the holder.
    let mut waiters = Vec::new();
    for number in 1..=2 {
        let lock = fixture.client().await.lock(&key).wait(LONG);
        waiters.push(tokio::spawn(async move { lock.acquire().await.unwrap() }));
        fixture.queued(&key, number).await;
    }
    let [mut first, mut second] = <[_; 2]>::try_from(waiters).unwrap();
    guard.release().await.unwrap();
    let (guard, waiter) = tokio::select! {
        guard = &mut first => (guard.unwrap(), second),
        guard = &mut second => (guard.unwrap(), first),
    };
    timeout(LONG, guard.wanted()).await.expect("the waiter is seen");
    guard.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
    fixture.clean().await;
}

async fn a_holder_that_has_waited_itself_does_not_count(fixture: Fixture) {
    let (theirs, key) = (fixture.client().await, fixture.key("k"));
    let (_locks, guard) = held(&fixture, &key).await;
    let lock = theirs.lock(&key).wait(LONG);
    let next = tokio::spawn(async move { lock.acquire().await.unwrap() });
    fixture.queued(&key, 1).await;
    guard.release().await.unwrap();
    let guard = next.await.unwrap();
    is_not_wanted(&guard).await;
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn a_lock_that_is_no_longer_held_is_never_wanted(fixture: Fixture) {
    let key = fixture.key("k");
    let (locks, guard) = held(&fixture, &key).await;
    let mut wanted = pin!(guard.wanted());
    assert!(poll_once(wanted.as_mut()).await.is_pending());
    // The next holder has the lock, in most stores by the same grant, and a waiter.
    let lock = locks.lock(&key);
    let next = begun(async move { lock.acquire().await.unwrap() }).await;
    guard.release().await.unwrap();
    let next = next.await.unwrap();
    let waiter = waiter(&locks, &key).await;
    assert!(poll_once(pin!(next.wanted())).await.is_ready());
    assert!(timeout(LATER, wanted).await.is_err(), "the lock is not held for this caller any more");
    next.release().await.unwrap();
    waiter.await.unwrap();
    fixture.clean().await;
}

async fn a_dropped_call_leaves_nothing(fixture: Fixture) {
    let (theirs, key) = (fixture.client().await, fixture.key("k"));
    let (_locks, guard) = held(&fixture, &key).await;
    for _ in 0..3 {
        assert!(timeout(ms(20), guard.wanted()).await.is_err(), "no acquisition waits");
        assert!(poll_once(pin!(guard.wanted())).await.is_pending());
    }
    let waiter = waiter(&theirs, &key).await;
    fixture.queued(&key, 1).await;
    if fixture.declared().tells_of_waiters() {
        is_wanted_soon(&guard).await;
    }
    guard.release().await.unwrap();
    waiter.await.unwrap();
    fixture.is_clean_and_free(&key).await;
}
