//! A future that is dropped at any of its awaits leaves neither a hold nor a queue entry.
//!
//! Each case polls the future once, twice, … and drops it, until it is ready before that. The lease is far longer
//! than the bound within which nothing may be left, so that the end of a lease cannot hide a leak.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use lock_runtime::{LockError, LockManager, distributed_lock};

use super::{LONG, ms};
use crate::{
    case::{Case, Need, case},
    fixture::{Fixture, attempt},
    polling::{MANY_POLLS, drop_after, poll_once},
    support::stopwatch::Moment,
};

pub fn cases() -> Vec<Case> {
    vec![
        case!(acquire_of_a_free_lock),
        case!(one_attempt_at_a_free_lock),
        case!(acquire_of_a_lock_that_the_same_client_holds),
        case!(acquire_of_a_lock_that_another_client_holds),
        case!(acquire_while_the_lock_is_being_granted_by_the_same_client),
        case!(acquire_while_the_lock_is_being_granted_by_another_client),
        case!(acquire_that_leads_the_waiters_of_its_client),
        case!(release_happens_once_it_was_polled),
        case!(release_that_was_never_polled_happens_too),
        case!(a_body_that_is_dropped_frees_the_lock),
        case!(shutdown_goes_on),
        case!(waiting_for_the_loss_changes_nothing),
        case!(futures_that_are_never_polled_do_nothing),
        case!(at_any_moment_in_time),
        case!(a_call_repeated_at_once_does_not_meet_its_own_lock).needs(WITHIN_THE_PROCESS),
    ]
}

/// No round trip is needed to release a lock.
const WITHIN_THE_PROCESS: Need = Need::Can(|can| !can.is_shared_between_processes());

async fn acquire_of_a_free_lock(fixture: Fixture) {
    let key = fixture.key("k");
    fixture.dropped_at_each_await(async |locks| locks.lock(&key).ttl(LONG).acquire().await).await;
    fixture.is_free(&key).await;
}

async fn one_attempt_at_a_free_lock(fixture: Fixture) {
    let key = fixture.key("k");
    fixture.dropped_at_each_await(async |locks| attempt(&locks, &key).await).await;
    fixture.is_free(&key).await;
}

async fn acquire_of_a_lock_that_the_same_client_holds(fixture: Fixture) {
    let locks = fixture.client().await;
    waiting(&fixture, &locks, &locks).await;
}

async fn acquire_of_a_lock_that_another_client_holds(fixture: Fixture) {
    waiting(&fixture, &fixture.client().await, &fixture.client().await).await;
}

async fn waiting(fixture: &Fixture, holder: &LockManager, waiter: &LockManager) {
    let key = fixture.key("k");
    let guard = holder.lock(&key).ttl(LONG).acquire().await.unwrap();
    let lock = waiter.lock(&key).ttl(LONG).wait(LONG);
    for polls in 0..8 {
        assert!(drop_after(lock.acquire(), polls).await.is_none(), "it is held");
        let dropped = Moment::now();
        fixture.queued(&key, 0).await;
        // An abandoned place goes by itself, after some seconds.
        assert!(dropped.within(ms(4000)), "only after {:?}", dropped.took());
    }
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    fixture.is_clean_and_free(&key).await;
}

async fn acquire_while_the_lock_is_being_granted_by_the_same_client(fixture: Fixture) {
    let locks = fixture.client().await;
    being_granted(&fixture, &locks, &locks).await;
}

async fn acquire_while_the_lock_is_being_granted_by_another_client(fixture: Fixture) {
    being_granted(&fixture, &fixture.client().await, &fixture.client().await).await;
}

async fn being_granted(fixture: &Fixture, holder: &LockManager, waiter: &LockManager) {
    let key = fixture.key("k");
    for before in 1..4 {
        for after in 0..6 {
            let guard = holder.lock(&key).ttl(LONG).acquire().await.unwrap();
            let lock = waiter.lock(&key).ttl(LONG).wait(LONG);
            let mut dropped = Box::pin(lock.acquire());
            assert!(drop_after(dropped.as_mut(), before).await.is_none(), "it is held");
            let patient = waiter.lock(&key).ttl(LONG).wait(LONG);
            let mut patient = Box::pin(patient.acquire());
            assert!(poll_once(patient.as_mut()).await.is_pending());
            guard.release().await.unwrap();
            drop(drop_after(dropped.as_mut(), after).await);
            drop(dropped);
            // The waiter behind it has its turn.
            tokio::time::timeout(LONG / 2, patient)
                .await
                .expect("the queue goes on")
                .unwrap()
                .release()
                .await
                .unwrap();
            fixture.is_clean_and_free(&key).await;
        }
    }
}

async fn acquire_that_leads_the_waiters_of_its_client(fixture: Fixture) {
    let (theirs, ours) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    for polls in 1..6 {
        let guard = theirs.lock(&key).ttl(LONG).acquire().await.unwrap();
        let lock = ours.lock(&key).ttl(LONG).wait(LONG);
        let mut leader = Box::pin(lock.acquire());
        assert!(drop_after(leader.as_mut(), polls).await.is_none(), "it is held");
        let mut follower = pin!(lock.acquire());
        assert!(poll_once(follower.as_mut()).await.is_pending());
        drop(leader);
        guard.release().await.unwrap();
        tokio::time::timeout(LONG / 2, follower)
            .await
            .expect("the next one leads")
            .unwrap()
            .release()
            .await
            .unwrap();
        fixture.clean().await;
    }
}

async fn release_happens_once_it_was_polled(fixture: Fixture) {
    let locks = fixture.client().await.ttl(LONG);
    let key = fixture.key("k");
    for polls in 1.. {
        let guard = locks.lock(&key).acquire().await.unwrap();
        let done = drop_after(guard.release(), polls).await;
        fixture.is_clean_and_free(&key).await;
        if let Some(done) = done {
            done.unwrap();
            return;
        }
        assert!(polls < MANY_POLLS, "never ready");
    }
}

async fn release_that_was_never_polled_happens_too(fixture: Fixture) {
    let guard = fixture.client().await.ttl(LONG).lock(fixture.key("k")).acquire().await.unwrap();
    drop(guard.release());
    fixture.clean().await;
}

async fn a_body_that_is_dropped_frees_the_lock(fixture: Fixture) {
    let locks = fixture.client().await.ttl(LONG);
    let key = fixture.key("k");
    for polls in 0.. {
        let guard = locks.lock(&key).acquire().await.unwrap();
        let inside = Arc::new(AtomicBool::new(true));
        let body = {
            let inside = SetFalse(Arc::clone(&inside));
            async move {
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
                drop(inside);
            }
        };
        let ready = drop_after(guard.run(body), polls).await.is_some();
        assert!(!inside.load(Ordering::SeqCst), "what the body held is dropped with it");
        fixture.is_clean_and_free(&key).await;
        if ready {
            assert!(polls > 3);
            return;
        }
        assert!(polls < MANY_POLLS, "never ready");
    }
}

struct SetFalse(Arc<AtomicBool>);

impl Drop for SetFalse {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

async fn shutdown_goes_on(fixture: Fixture) {
    for polls in 0..4 {
        let locks = fixture.client().await.ttl(LONG);
        drop(locks.lock(fixture.key("k")).acquire().await.unwrap());
        let _ = drop_after(locks.shutdown(), polls).await;
        fixture.clean().await;
    }
}

async fn waiting_for_the_loss_changes_nothing(fixture: Fixture) {
    let guard = fixture.client().await.ttl(LONG).lock(fixture.key("k")).acquire().await.unwrap();
    for polls in 0..4 {
        assert!(drop_after(guard.lost(), polls).await.is_none());
        assert!(drop_after(guard.held().lost(), polls).await.is_none());
    }
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

async fn futures_that_are_never_polled_do_nothing(fixture: Fixture) {
    let locks = fixture.client().await;
    let lock = locks.lock(fixture.key("k"));
    drop(lock.acquire());
    drop(lock.try_acquire());
    assert_eq!(fixture.left(), [""; 0]);
    fixture.is_free(&fixture.key("k")).await;
}

/// Drops it between its awaits, too, while its requests are pending.
async fn at_any_moment_in_time(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await.ttl(LONG), fixture.client().await.ttl(LONG).wait(LONG));
    let key = fixture.key("k");
    for step in 0..60_u64 {
        let moment = Duration::from_micros(step * step);
        let lock = ours.lock(&key);
        drop(cut_at(moment, lock.acquire()).await);
        let guard = theirs.lock(&key).acquire().await.unwrap();
        let other = cut_at(moment, guard.release());
        drop(tokio::join!(other, cut_at(moment * 2, lock.acquire())));
        if step % 10 == 9 {
            fixture.is_clean_and_free(&key).await;
        }
    }
}

async fn cut_at<T>(moment: Duration, future: impl Future<Output = Result<T, LockError>>) -> Option<T> {
    // Finer than the runtime's timer, which counts in milliseconds.
    if moment < ms(2) {
        let end = Instant::now() + moment;
        let mut future = pin!(future);
        while Instant::now() < end {
            if let std::task::Poll::Ready(done) = poll_once(future.as_mut()).await {
                return done.ok();
            }
            tokio::task::yield_now().await;
        }
        return None;
    }
    tokio::time::timeout(moment, future).await.ok()?.ok()
}

#[distributed_lock(key = "<mark>:k", manager = locks, wait = "0s")]
async fn refused_while_held(locks: &LockManager, mark: &str) -> Result<(), LockError> {
    std::future::pending().await
}

async fn a_call_repeated_at_once_does_not_meet_its_own_lock(fixture: Fixture) {
    let locks = fixture.client().await;
    for call in 0..100 {
        let cut = tokio::time::timeout(ms(6), refused_while_held(&locks, fixture.mark())).await;
        assert!(cut.is_err(), "call {call}: {cut:?}");
    }
    fixture.clean().await;
}
