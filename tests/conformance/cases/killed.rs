//! A process that is killed: its locks and its queue entries are free within a bound.

use std::time::Duration;

use super::{LONG, SLACK, ms};
use crate::{
    case::{Case, Need, case},
    fixture::Fixture,
    polling::begun,
    support::stopwatch::Moment,
};

pub fn cases() -> Vec<Case> {
    [
        case!(a_lock_held_by_another_process_is_held),
        case!(a_lock_of_a_killed_process_is_free_when_its_lease_ends),
        case!(a_waiter_enters_when_the_lease_of_a_killed_process_ends),
        case!(a_killed_waiter_keeps_the_next_one_for_a_bounded_time),
        case!(a_waiter_killed_with_its_grant_keeps_the_next_one_for_a_bounded_time),
        case!(a_crowd_of_killed_waiters_keeps_the_next_one_for_a_bounded_time).busy(),
        case!(a_process_that_shuts_down_leaves_nothing),
    ]
    .into_iter()
    .map(|case| case.needs(Need::Can(|can| can.is_shared_between_processes())))
    .collect()
}

async fn a_lock_held_by_another_process_is_held(fixture: Fixture) {
    let key = fixture.key("k");
    let mut other = fixture.client_process().await;
    let token = other.acquire(&key, LONG, LONG).await.unwrap();
    fixture.is_held(&key).await;
    let lock = fixture.client().await.lock(&key).wait(LONG);
    let waiter = begun(async move { lock.acquire().await.unwrap() }).await;
    fixture.queued(&key, 1).await;
    assert_eq!(other.release(&key).await, "ok");
    let guard = waiter.await.unwrap();
    assert!(guard.fencing_token().get() > token);
    assert_eq!(other.acquire(&key, LONG, ms(100)).await, Err("Timeout".into()));
    assert_eq!(other.acquire(&key, LONG, ms(0)).await, Err("Contended".into()));
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn a_lock_of_a_killed_process_is_free_when_its_lease_ends(fixture: Fixture) {
    let key = fixture.key("k");
    let ttl = fixture.lease(ms(800));
    let mut other = fixture.client_process().await;
    let token = other.acquire(&key, ttl, LONG).await.unwrap();
    // Beyond its first lease: it renews.
    tokio::time::sleep(ttl * 3 / 2).await;
    fixture.is_held(&key).await;
    other.kill();
    let killed = Moment::now();
    let locks = fixture.client().await;
    let guard = loop {
        if let Some(guard) = locks.lock(&key).try_acquire().await.unwrap() {
            break guard;
        }
        assert!(killed.within(ttl + ms(250) + SLACK), "still held after {:?}", killed.took());
        tokio::time::sleep(ms(10)).await;
    };
    assert!(guard.fencing_token().get() > token);
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn a_waiter_enters_when_the_lease_of_a_killed_process_ends(fixture: Fixture) {
    let key = fixture.key("k");
    let ttl = fixture.lease(ms(800));
    let mut other = fixture.client_process().await;
    let token = other.acquire(&key, ttl, LONG).await.unwrap();
    let lock = fixture.client().await.lock(&key).wait(LONG);
    let waiter = begun(async move { lock.acquire().await.unwrap() }).await;
    fixture.queued(&key, 1).await;
    other.kill();
    let killed = Moment::now();
    let guard = waiter.await.unwrap();
    assert!(killed.within(ttl + ms(250) + SLACK), "only after {:?}", killed.took());
    assert!(guard.fencing_token().get() > token);
    guard.release().await.unwrap();
    fixture.clean().await;
}

/// How long a dead waiter keeps the next one waiting: the claim window and a refresh, or the rest of its session.
async fn unclaimed(fixture: &Fixture) -> Duration {
    let can = fixture.client().await.capabilities();
    if can.session_timeout().is_some() { ms(5000) } else { ms(3300) }
}

async fn a_killed_waiter_keeps_the_next_one_for_a_bounded_time(fixture: Fixture) {
    let key = fixture.key("k");
    let guard = fixture.client().await.lock(&key).acquire().await.unwrap();
    let mut other = fixture.client_process().await;
    other.begin_to_acquire(&key, LONG, LONG);
    fixture.queued(&key, 1).await;
    let lock = fixture.client().await.lock(&key).wait(LONG);
    let next = begun(async move { lock.acquire().await.unwrap() }).await;
    fixture.queued(&key, 2).await;
    other.kill();
    let limit = unclaimed(&fixture).await + SLACK;
    let released = Moment::now();
    guard.release().await.unwrap();
    let guard = next.await.unwrap();
    // An unclaimed grant ends after the claim window, not after its ttl; the next waiter finds that when it polls.
    assert!(released.within(limit), "only after {:?}", released.took());
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn a_waiter_killed_with_its_grant_keeps_the_next_one_for_a_bounded_time(fixture: Fixture) {
    let key = fixture.key("k");
    let guard = fixture.client().await.lock(&key).acquire().await.unwrap();
    let mut other = fixture.client_process().await;
    other.begin_to_acquire(&key, LONG, LONG);
    fixture.queued(&key, 1).await;
    let lock = fixture.client().await.lock(&key).wait(LONG);
    let next = begun(async move { lock.acquire().await.unwrap() }).await;
    fixture.queued(&key, 2).await;
    // It is woken, and dies before it does anything.
    other.pause();
    guard.release().await.unwrap();
    fixture.queued(&key, 1).await;
    other.kill();
    let killed = Moment::now();
    let limit = unclaimed(&fixture).await + SLACK;
    let guard = next.await.unwrap();
    assert!(killed.within(limit), "only after {:?}", killed.took());
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn a_crowd_of_killed_waiters_keeps_the_next_one_for_a_bounded_time(fixture: Fixture) {
    let key = fixture.key("k");
    let guard = fixture.client().await.lock(&key).acquire().await.unwrap();
    let mut other = fixture.client_process().await;
    other.crowd(&key, 40, LONG);
    fixture.queued(&key, 40).await;
    let lock = fixture.client().await.lock(&key).wait(LONG);
    let next = begun(async move { lock.acquire().await.unwrap() }).await;
    fixture.queued(&key, 41).await;
    other.kill();
    let released = Moment::now();
    guard.release().await.unwrap();
    let guard = next.await.unwrap();
    // The first of them cost a claim window each until the others are stale; not 40 windows.
    assert!(released.within(Duration::from_secs(12) + SLACK), "only after {:?}", released.took());
    println!("the next one entered {:?} after the release", released.took());
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn a_process_that_shuts_down_leaves_nothing(fixture: Fixture) {
    let key = fixture.key("k");
    let mut other = fixture.client_process().await;
    other.acquire(&key, LONG, LONG).await.unwrap();
    assert_eq!(other.release(&key).await, "ok");
    other.shut_down().await;
    assert_eq!(fixture.left(), [""; 0]);
    assert_eq!(other.acquire(&key, LONG, LONG).await, Err("ShutDown".into()));
}
