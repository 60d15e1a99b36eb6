//! The shutdown of a manager: nothing new, nothing left behind, and held locks stay held.

use std::{pin::pin, time::Duration};

use lock_runtime::LockErrorKind;

use super::{LONG, SLACK, ms, outage::back};
use crate::{
    case::{Case, case},
    fixture::Fixture,
    polling::{begun, poll_once},
    store::Fault,
    support::stopwatch::Moment,
};

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        case!(new_acquires_are_refused),
        case!(waiting_acquires_end_and_leave_the_queue),
        case!(a_waiter_that_nobody_polls_does_not_hold_it_up),
        case!(held_guards_stay_valid_and_renewed_and_can_be_released),
        case!(what_was_dropped_is_released_when_it_returns),
        case!(what_was_abandoned_is_cleaned_up_when_it_returns),
        case!(it_may_be_called_twice_and_without_anything_to_do),
        case!(other_managers_go_on),
        case!(it_returns_during_an_outage_when_the_leases_have_ended).hurts(Fault::Down),
        case!(it_returns_after_an_outage).hurts(Fault::Paused),
        case!(it_does_not_sleep_when_the_store_is_back).hurts(Fault::Down),
    ];
    for fault in [Fault::Paused, Fault::BlackHole, Fault::Down] {
        cases.push(case!(its_bound_holds_whatever_the_store_owes, fault).under(fault));
    }
    cases
}

async fn new_acquires_are_refused(fixture: Fixture) {
    let locks = fixture.client().await;
    let (clone, lock) = (locks.clone(), locks.lock(fixture.key("k")));
    locks.shutdown().await;
    for error in [
        lock.acquire().await.unwrap_err(),
        lock.try_acquire().await.unwrap_err(),
        clone.lock(fixture.key("other")).acquire().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), LockErrorKind::ShutDown, "{error}");
        assert!(!error.is_retryable());
    }
    assert_eq!(fixture.left(), [""; 0]);
}

async fn waiting_acquires_end_and_leave_the_queue(fixture: Fixture) {
    let (theirs, ours) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    let guard = theirs.lock(&key).acquire().await.unwrap();
    // The first waits in the store, the others behind it; the last without a time limit.
    let mut waiters = Vec::new();
    for lock in [ours.lock(&key).wait(LONG), ours.lock(&key).wait(LONG), ours.lock(&key).wait_forever()] {
        waiters.push(begun(async move { lock.acquire().await.map(drop) }).await);
    }
    fixture.queued(&key, 1).await;
    let began = Moment::now();
    ours.shutdown().await;
    fixture.has_places(&key, 0);
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap().unwrap_err().kind(), LockErrorKind::ShutDown);
    }
    assert!(began.within(SLACK), "{:?}", began.took());
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn a_waiter_that_nobody_polls_does_not_hold_it_up(fixture: Fixture) {
    let (theirs, ours) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    let guard = theirs.lock(&key).acquire().await.unwrap();
    let lock = ours.lock(&key).wait_forever();
    let mut waiter = pin!(lock.acquire());
    assert!(poll_once(waiter.as_mut()).await.is_pending());
    tokio::time::timeout(LONG / 2, ours.shutdown()).await.expect("it does not wait forever");
    assert_eq!(waiter.await.unwrap_err().kind(), LockErrorKind::ShutDown);
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn held_guards_stay_valid_and_renewed_and_can_be_released(fixture: Fixture) {
    let locks = fixture.client().await;
    let (key, other) = (fixture.key("k"), fixture.key("other"));
    let ttl = fixture.lease(ms(1200));
    let guard = locks.lock(&key).ttl(ttl).acquire().await.unwrap();
    let dropped = locks.lock(&other).ttl(ttl).acquire().await.unwrap();
    let began = Moment::now();
    locks.shutdown().await;
    assert!(began.within(SLACK), "it does not wait for guards that are held");
    tokio::time::sleep(ttl * 2).await;
    assert!(guard.is_valid() && dropped.is_valid());
    fixture.is_held(&key).await;
    guard.release().await.unwrap();
    drop(dropped);
    fixture.clean().await;
}

async fn what_was_dropped_is_released_when_it_returns(fixture: Fixture) {
    let locks = fixture.client().await.ttl(LONG);
    let mut guards = Vec::new();
    for number in 0..50 {
        guards.push(locks.lock(fixture.key(&number.to_string())).acquire().await.unwrap());
    }
    drop(guards);
    locks.shutdown().await;
    assert_eq!(fixture.left(), [""; 0]);
}

async fn what_was_abandoned_is_cleaned_up_when_it_returns(fixture: Fixture) {
    for polls in 1..5 {
        let locks = fixture.client().await.ttl(LONG);
        let lock = locks.lock(fixture.key("k"));
        drop(crate::polling::drop_after(lock.acquire(), polls).await);
        locks.shutdown().await;
        assert_eq!(fixture.left(), [""; 0], "after {polls} polls");
    }
}

async fn it_may_be_called_twice_and_without_anything_to_do(fixture: Fixture) {
    let locks = fixture.client().await;
    locks.shutdown().await;
    locks.shutdown().await;
    let clone = locks.clone();
    tokio::join!(locks.shutdown(), clone.shutdown());
}

async fn other_managers_go_on(fixture: Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    one.shutdown().await;
    let guard = two.lock(fixture.key("k")).ttl(fixture.lease(ms(1200))).acquire().await.unwrap();
    tokio::time::sleep(ms(2000)).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn it_returns_during_an_outage_when_the_leases_have_ended(fixture: Fixture) {
    let ttl = fixture.lease(ms(800));
    let locks = fixture.client().await.ttl(ttl);
    let guard = locks.lock(fixture.key("k")).acquire().await.unwrap();
    fixture.hurt(Fault::Down);
    drop(guard);
    let began = Moment::now();
    locks.shutdown().await;
    assert!(began.within(ttl * 3 + SLACK), "{:?}", began.took());
    fixture.heal();
    fixture.clean().await;
}

async fn it_returns_after_an_outage(fixture: Fixture) {
    let locks = fixture.client().await.ttl(LONG);
    let guard = locks.lock(fixture.key("k")).acquire().await.unwrap();
    fixture.hurt(Fault::Paused);
    drop(guard);
    let shutdown = begun({
        let locks = locks.clone();
        async move { locks.shutdown().await }
    })
    .await;
    tokio::time::sleep(ms(300)).await;
    assert!(!shutdown.is_finished(), "something is left to release");
    fixture.heal();
    shutdown.await.unwrap();
    assert_eq!(fixture.left(), [""; 0]);
}

async fn it_does_not_sleep_when_the_store_is_back(fixture: Fixture) {
    let locks = fixture.client().await.ttl(Duration::from_mins(10));
    let at_once = locks.lock(fixture.key("dropped at once")).acquire().await.unwrap();
    let later = locks.lock(fixture.key("dropped later")).acquire().await.unwrap();
    fixture.hurt(Fault::Down);
    drop(at_once);
    // In some stores it is lost by then.
    tokio::time::sleep(ms(200)).await;
    drop(later);
    tokio::time::sleep(ms(3000)).await;
    fixture.heal();
    let back = back(&fixture, &locks).await;
    locks.shutdown().await;
    assert!(back.within(ms(500)), "only after {:?}", back.took());
    assert_eq!(fixture.left(), [""; 0]);
}

/// How much longer than its `ttl` a lock may be left by an attempt: its request may be executed a little later.
const LATE_REQUEST: Duration = ms(1500);

async fn its_bound_holds_whatever_the_store_owes(fixture: Fixture, fault: Fault) {
    // Longer than a place in a queue may still be granted the lock.
    let ttl = fixture.lease(ms(8000));
    let locks = fixture.client().await.ttl(ttl);
    let mut guards = Vec::new();
    for number in 0..20 {
        guards.push(locks.lock(fixture.key(&number.to_string())).acquire().await.unwrap());
    }
    fixture.hurt(fault);
    let mut unanswered = Vec::new();
    for name in ["asked", "asked too"] {
        let lock = locks.lock(fixture.key(name)).wait(LONG);
        unanswered.push(begun(async move { lock.acquire().await.map(drop) }).await);
    }
    tokio::time::sleep(ms(100)).await;
    drop(guards);
    let began = Moment::now();
    locks.shutdown().await;
    assert!(began.within(ttl + LATE_REQUEST + SLACK), "{:?} with a ttl of {ttl:?}", began.took());
    for unanswered in unanswered {
        unanswered.await.unwrap().unwrap_err();
    }
    fixture.heal();
    fixture.clean().await;
}
