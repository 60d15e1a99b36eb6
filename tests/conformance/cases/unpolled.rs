//! An unpolled future blocks no other waiter for long, and does not enter on a grant that it missed.

use std::{
    future::Future,
    pin::{Pin, pin},
    time::{Duration, Instant},
};

use lock_runtime::{LockError, LockErrorKind, LockGuard};

use super::{LEASES, LONG, SLACK, forget, ms};
use crate::{
    case::{Case, Need, case},
    fixture::Fixture,
    polling::{begun, drop_after, poll_once},
    support::PATIENCE,
};

pub fn cases() -> Vec<Case> {
    vec![
        case!(the_first_in_the_queue_stops_nobody),
        case!(the_first_in_the_queue_behind_a_holder_that_died_stops_nobody).needs(LEASES),
        case!(the_leader_of_its_client_stops_nobody),
        case!(a_waiter_that_is_called_to_lead_stops_nobody),
        case!(one_attempt_stops_nobody),
        case!(locks_that_are_held_while_another_is_waited_for_stop_nobody),
        case!(waiters_deeper_in_the_queue_keep_their_place).needs(Need::Can(|can| can.is_fair())),
        case!(after_the_end_of_its_wait_a_place_is_given_up),
        case!(what_was_given_up_leaves_nothing_when_it_is_dropped),
        case!(those_behind_are_not_told_of_an_outage),
        case!(shutdown_gives_them_up),
    ]
}

/// Upper bound until an unpolled future is given up: two seconds after it was woken, which happens at most half a
/// second after it got in the way.
const GIVEN_UP: Duration = ms(2500);

/// Polls until the lock has this many places in the store's queue, and nothing more is to be done until one of them
/// is woken.
async fn stands<T>(
    fixture: &Fixture,
    key: &str,
    places: usize,
    mut acquiring: Pin<&mut impl Future<Output = T>>,
) {
    let began = Instant::now();
    let stands = || match fixture.places(key) {
        Some(standing) => standing == places,
        None => began.elapsed() >= fixture.time_to_poll(),
    };
    while !stands() {
        assert!(drop_after(acquiring.as_mut(), 1).await.is_none(), "it is held");
        assert!(began.elapsed() < PATIENCE, "{:?} in the queue", fixture.places(key));
    }
    assert!(drop_after(acquiring, 10).await.is_none(), "it is held");
}

/// Asserts that the future enters in time.
async fn enters(
    acquiring: impl Future<Output = Result<LockGuard, LockError>>,
    within: Duration,
) -> LockGuard {
    let began = Instant::now();
    let guard = acquiring.await.unwrap();
    assert!(began.elapsed() < within + SLACK, "{:?}", began.elapsed());
    guard
}

async fn the_first_in_the_queue_stops_nobody(fixture: Fixture) {
    let (holder, ours, theirs) = (fixture.client().await, fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    let guard = holder.lock(&key).ttl(LONG).acquire().await.unwrap();
    let lock = ours.lock(&key).ttl(LONG).wait(LONG);
    let mut kept = Box::pin(async move { lock.acquire().await });
    stands(&fixture, &key, 1, kept.as_mut()).await;
    guard.release().await.unwrap();
    let next = enters(theirs.lock(&key).ttl(LONG).wait(LONG).acquire(), GIVEN_UP).await;
    // The grant that it missed is no longer its own; it waits anew.
    let mut kept = tokio::spawn(kept);
    assert!(tokio::time::timeout(ms(1500), &mut kept).await.is_err(), "two hold it");
    assert!(next.is_valid());
    next.release().await.unwrap();
    let again = kept.await.unwrap().unwrap();
    assert!(again.is_valid());
    again.release().await.unwrap();
    fixture.clean().await;
}

async fn the_first_in_the_queue_behind_a_holder_that_died_stops_nobody(fixture: Fixture) {
    let (holder, ours, theirs) = (fixture.client().await, fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    let ttl = ms(1000);
    let began = Instant::now();
    forget(holder.lock(&key).ttl(ttl).auto_renew(false).acquire().await.unwrap());
    let lock = ours.lock(&key).ttl(LONG).wait(LONG);
    let mut kept = pin!(lock.acquire());
    stands(&fixture, &key, 1, kept.as_mut()).await;
    // A client that makes single attempts has no place in the queue from which to watch the others.
    let next = loop {
        if let Some(guard) = theirs.lock(&key).try_acquire().await.unwrap() {
            break guard;
        }
        tokio::time::sleep(ms(20)).await;
        // A place in the queue of Redis ends five seconds after it was refreshed last.
        assert!(began.elapsed() < ttl + ms(5000) + SLACK, "{:?}", began.elapsed());
    };
    next.release().await.unwrap();
    kept.await.unwrap().release().await.unwrap();
    fixture.clean().await;
}

async fn the_leader_of_its_client_stops_nobody(fixture: Fixture) {
    let (theirs, ours) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    let guard = theirs.lock(&key).ttl(LONG).acquire().await.unwrap();
    let lock = ours.lock(&key).ttl(LONG).wait(LONG);
    let mut kept = pin!(lock.acquire());
    stands(&fixture, &key, 1, kept.as_mut()).await;
    let mut behind = pin!(lock.acquire());
    assert!(poll_once(behind.as_mut()).await.is_pending());
    guard.release().await.unwrap();
    let next = enters(behind, GIVEN_UP).await;
    assert!(drop_after(kept.as_mut(), 30).await.is_none(), "two hold it");
    assert!(next.is_valid());
    next.release().await.unwrap();
    kept.await.unwrap().release().await.unwrap();
    fixture.clean().await;
}

async fn a_waiter_that_is_called_to_lead_stops_nobody(fixture: Fixture) {
    let locks = fixture.client().await;
    let key = fixture.key("k");
    let guard = locks.lock(&key).ttl(LONG).acquire().await.unwrap();
    // Other terms: the lease is not handed over.
    let lock = locks.lock(&key).ttl(LONG * 2).wait(LONG);
    let (mut kept, mut behind) = (pin!(lock.acquire()), pin!(lock.acquire()));
    assert!(poll_once(kept.as_mut()).await.is_pending());
    assert!(poll_once(behind.as_mut()).await.is_pending());
    guard.release().await.unwrap();
    let next = enters(behind, GIVEN_UP).await;
    assert!(drop_after(kept.as_mut(), 30).await.is_none(), "two hold it");
    next.release().await.unwrap();
    kept.await.unwrap().release().await.unwrap();
    fixture.clean().await;
}

async fn one_attempt_stops_nobody(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    // Connected and prepared.
    ours.lock(&key).acquire().await.unwrap().release().await.unwrap();
    for polls in 1..3 {
        let lock = ours.lock(&key).ttl(LONG);
        let mut kept = pin!(lock.try_acquire());
        if drop_after(kept.as_mut(), polls).await.is_some() {
            return;
        }
        enters(theirs.lock(&key).wait(LONG).acquire(), GIVEN_UP).await.release().await.unwrap();
        // A single attempt is not repeated.
        if let Err(error) = kept.await {
            assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
        }
        fixture.clean().await;
    }
}

async fn locks_that_are_held_while_another_is_waited_for_stop_nobody(fixture: Fixture) {
    let (theirs, ours) = (fixture.client().await, fixture.client().await);
    let (first, second) = (fixture.key("a"), fixture.key("b"));
    let guard = theirs.lock(&second).ttl(LONG).acquire().await.unwrap();
    let both = ours.all([first.clone(), second.clone()]).ttl(LONG).wait(LONG);
    let mut kept = Box::pin(async move { both.acquire().await });
    stands(&fixture, &second, 1, kept.as_mut()).await;
    let other = enters(theirs.lock(&first).ttl(LONG).wait(LONG).acquire(), GIVEN_UP).await;
    fixture.queued(&second, 0).await;
    let mut kept = tokio::spawn(kept);
    assert!(tokio::time::timeout(ms(100), &mut kept).await.is_err(), "two hold it");
    other.release().await.unwrap();
    guard.release().await.unwrap();
    let both = kept.await.unwrap().unwrap();
    assert!(both.is_valid());
    both.release().await.unwrap();
    fixture.clean().await;
}

async fn waiters_deeper_in_the_queue_keep_their_place(fixture: Fixture) {
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(fixture.client().await.ttl(LONG).wait(LONG));
    }
    let key = fixture.key("k");
    let guard = clients[0].lock(&key).acquire().await.unwrap();
    let live = |number: usize| {
        let lock = clients[number].lock(&key);
        begun(async move { lock.acquire().await.unwrap() })
    };
    let first = live(1).await;
    fixture.queued(&key, 1).await;
    let lock = clients[2].lock(&key);
    let mut kept = Box::pin(async move { lock.acquire().await.unwrap() });
    stands(&fixture, &key, 2, kept.as_mut()).await;
    let mut last = live(3).await;
    fixture.queued(&key, 3).await;
    // Longer than an unpolled future may stay in the way.
    tokio::time::sleep(GIVEN_UP + ms(500)).await;
    fixture.has_places(&key, 3);
    let kept = tokio::spawn(kept);
    guard.release().await.unwrap();
    first.await.unwrap().release().await.unwrap();
    let second = kept.await.unwrap();
    assert!(tokio::time::timeout(ms(50), &mut last).await.is_err(), "it lost its place");
    second.release().await.unwrap();
    last.await.unwrap().release().await.unwrap();
    fixture.clean().await;
}

async fn after_the_end_of_its_wait_a_place_is_given_up(fixture: Fixture) {
    let (theirs, ours) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    let guard = theirs.lock(&key).ttl(LONG).acquire().await.unwrap();
    let wait = ms(800);
    let lock = ours.lock(&key).ttl(LONG).wait(wait);
    let began = Instant::now();
    let mut kept = pin!(lock.acquire());
    stands(&fixture, &key, 1, kept.as_mut()).await;
    fixture.queued(&key, 0).await;
    assert!(began.elapsed() < wait + GIVEN_UP + SLACK, "{:?}", began.elapsed());
    let error = kept.await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn what_was_given_up_leaves_nothing_when_it_is_dropped(fixture: Fixture) {
    let (theirs, ours) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    for polls in [0, 1, 3] {
        let guard = theirs.lock(&key).ttl(LONG).acquire().await.unwrap();
        let lock = ours.lock(&key).ttl(LONG).wait(LONG);
        let mut kept = Box::pin(lock.acquire());
        stands(&fixture, &key, 1, kept.as_mut()).await;
        guard.release().await.unwrap();
        // No waiter wants the lock: it is given up all the same.
        fixture.clean().await;
        drop(drop_after(kept.as_mut(), polls).await);
        drop(kept);
        // Its request may arrive only now; a round trip of the same client comes after it.
        ours.lock(fixture.key("other")).acquire().await.unwrap().release().await.unwrap();
        fixture.is_clean_and_free(&key).await;
    }
}

async fn those_behind_are_not_told_of_an_outage(fixture: Fixture) {
    let locks = fixture.client().await;
    let key = fixture.key("k");
    let guard = locks.lock(&key).ttl(LONG).acquire().await.unwrap();
    let lock = locks.lock(&key).ttl(LONG * 2);
    let (long, short) = (lock.clone().wait(LONG), lock.wait(ms(300)));
    let (mut kept, mut behind) = (pin!(long.acquire()), pin!(short.acquire()));
    assert!(poll_once(kept.as_mut()).await.is_pending());
    assert!(poll_once(behind.as_mut()).await.is_pending());
    guard.release().await.unwrap();
    let error = behind.await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
    kept.await.unwrap().release().await.unwrap();
    fixture.clean().await;
}

async fn shutdown_gives_them_up(fixture: Fixture) {
    let (theirs, ours) = (fixture.client().await, fixture.client().await);
    let (key, other) = (fixture.key("k"), fixture.key("a"));
    let guard = theirs.lock(&key).ttl(LONG).acquire().await.unwrap();
    let (one, both) = (ours.lock(&key).wait_forever(), ours.all([other, key.clone()]).wait_forever());
    let (mut one, mut both) = (pin!(one.acquire()), pin!(both.acquire()));
    stands(&fixture, &key, 1, one.as_mut()).await;
    assert!(drop_after(both.as_mut(), 10).await.is_none());
    let began = Instant::now();
    ours.shutdown().await;
    assert!(began.elapsed() < GIVEN_UP + SLACK, "{:?}", began.elapsed());
    // All that they had is gone; the holder of `key` is left.
    assert_eq!(fixture.left().len(), 1, "{:?}", fixture.left());
    for error in [one.await.map(drop).unwrap_err(), both.await.map(drop).unwrap_err()] {
        assert_eq!(error.kind(), LockErrorKind::ShutDown, "{error}");
    }
    guard.release().await.unwrap();
    fixture.clean().await;
}
