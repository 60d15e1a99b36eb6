//! Several locks at once: all of them or none.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use lock_runtime::{HeldLock, LockError, LockErrorKind, LockManager};

use super::{LONG, SLACK, ms};
use crate::{
    case::{Case, Need, case},
    fixture::Fixture,
    polling::{MANY_POLLS, begun, drop_after},
    store::Fault,
    support::{stopwatch::Moment, until},
};

pub fn cases() -> Vec<Case> {
    vec![
        case!(all_are_held_until_they_are_released),
        case!(sections_that_name_them_in_opposite_order_never_deadlock),
        case!(what_was_taken_is_free_at_once_when_another_is_held),
        case!(one_attempt_takes_all_or_none),
        case!(all_are_renewed),
        case!(the_loss_of_one_ends_all_and_the_guard_frees_the_others).needs(Need::HoldsOutliveConnections),
        case!(a_guard_that_is_dropped_frees_all),
        case!(an_acquisition_that_is_dropped_at_any_await_leaves_nothing),
        case!(an_acquisition_that_is_dropped_while_it_waits_leaves_nothing),
        case!(a_release_that_is_dropped_happens_for_all),
        case!(tokens_rise_for_each),
        case!(a_store_that_breaks_in_between_leaves_nothing).hurts(Fault::Down),
    ]
}

fn keys(fixture: &Fixture) -> [String; 3] {
    ["c", "a", "b"].map(|name| fixture.key(name))
}

async fn all_are_held_until_they_are_released(fixture: Fixture) {
    let locks = fixture.client().await.ttl(LONG);
    let keys = keys(&fixture);
    let guard = locks.all(keys.iter().chain(&keys)).acquire().await.unwrap();
    let held = guard.held();
    assert_eq!(held.iter().count(), 3, "each once");
    for key in &keys {
        fixture.is_held(key).await;
        assert_eq!(held.get(key).expect("held").key(), key.as_str());
    }
    assert!(held.get(fixture.key("other")).is_none());
    assert!(guard.is_valid() && guard.remaining() > fixture.lease(LONG) / 2 && held.is_valid());
    guard.release().await.unwrap();
    assert!(!held.is_valid() && held.remaining().is_zero());
    held.lost().await;
    assert_eq!(fixture.left(), [""; 0]);
}

/// Single locks, taken in the order in which they are named, would deadlock at once.
async fn sections_that_name_them_in_opposite_order_never_deadlock(fixture: Fixture) {
    let clients: Vec<LockManager> = vec![fixture.client().await, fixture.client().await];
    let names = ["a", "b", "c", "d"].map(|name| fixture.key(name));
    let inside: Arc<[AtomicUsize]> = names.iter().map(|_| AtomicUsize::new(0)).collect();
    let began = Instant::now();
    let tasks: Vec<_> = (0..8_usize)
        .map(|number| {
            let locks = clients[number % 2].clone().wait(LONG);
            // Two or three of the four, half of the sections in reverse order.
            let mut wanted: Vec<usize> =
                (0..4).filter(|key| key % 4 != number / 2).take(2 + number % 2).collect();
            if number % 4 < 2 {
                wanted.reverse();
            }
            let wanted: Vec<_> = wanted.into_iter().map(|at| (at, names[at].clone())).collect();
            let inside = Arc::clone(&inside);
            tokio::spawn(async move {
                for _ in 0..25 {
                    let guard = locks.all(wanted.iter().map(|(_, key)| key)).acquire().await.unwrap();
                    for (at, _) in &wanted {
                        assert_eq!(inside[*at].fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                    }
                    tokio::task::yield_now().await;
                    for (at, _) in &wanted {
                        inside[*at].fetch_sub(1, Ordering::SeqCst);
                    }
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    fixture.clean().await;
}

async fn what_was_taken_is_free_at_once_when_another_is_held(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await.ttl(LONG), fixture.client().await.ttl(LONG));
    let [c, a, b] = keys(&fixture);
    let guard = theirs.lock(&b).acquire().await.unwrap();
    let began = Moment::now();
    let error = ours.all([&a, &b, &c]).wait(ms(200)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
    assert_eq!(error.key().expect("named").as_str(), b);
    assert!(began.elapsed() >= ms(200) && began.within(ms(200) + SLACK), "{:?}", began.took());
    // By another client, and far before the end of the lease.
    theirs.lock(&a).wait(SLACK).acquire().await.unwrap().release().await.unwrap();
    fixture.is_free(&c).await;
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn one_attempt_takes_all_or_none(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await.ttl(LONG), fixture.client().await.ttl(LONG));
    let keys = keys(&fixture);
    for key in &keys {
        let guard = theirs.lock(key).acquire().await.unwrap();
        assert!(ours.all(&keys).try_acquire().await.unwrap().is_none());
        guard.release().await.unwrap();
        fixture.clean().await;
    }
    let guard = ours.all(&keys).try_acquire().await.unwrap().expect("free");
    let error = theirs.all(&keys).wait(ms(0)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Contended, "{error}");
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn all_are_renewed(fixture: Fixture) {
    let ttl = fixture.lease(ms(1200));
    let guard = fixture.client().await.ttl(ttl).all(keys(&fixture)).acquire().await.unwrap();
    let began = Instant::now();
    while began.elapsed() < ttl * 2 {
        assert!(guard.is_valid(), "lost after {:?}", began.elapsed());
        tokio::time::sleep(ms(20)).await;
    }
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn the_loss_of_one_ends_all_and_the_guard_frees_the_others(fixture: Fixture) {
    let ttl = fixture.lease(ms(3000));
    let locks = fixture.client().await.ttl(ttl);
    let elsewhere = fixture.client().await.ttl(ttl);
    for lost in keys(&fixture) {
        let guard = locks.all(keys(&fixture)).acquire().await.unwrap();
        let held = guard.held();
        fixture.lose(&lost);
        guard.lost().await;
        assert!(!guard.is_valid() && !held.is_valid() && guard.remaining().is_zero());
        until("all have ended", || {
            if held.iter().all(|held| !held.is_valid()) { Ok(()) } else { Err(held.clone()) }
        })
        .await;
        // The code under the guard may still be running.
        for other in keys(&fixture).into_iter().filter(|key| *key != lost) {
            let entered = elsewhere.lock(&other).try_acquire().await.unwrap();
            assert!(entered.is_none(), "{other} is free while the guard is there");
        }
        let began = Moment::now();
        let error = guard.release().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Lost);
        assert_eq!(error.key().expect("named").as_str(), lost);
        until("the others are free", || {
            let left = fixture.left();
            if left.is_empty() { Ok(()) } else { Err(left) }
        })
        .await;
        assert!(began.within(ttl), "only at the end of their leases: {:?}", began.took());
    }
}

async fn a_guard_that_is_dropped_frees_all(fixture: Fixture) {
    let locks = fixture.client().await.ttl(LONG);
    drop(locks.all(keys(&fixture)).acquire().await.unwrap());
    fixture.clean().await;
    let guard = locks.all(keys(&fixture)).acquire().await.unwrap();
    let body = guard.run(std::future::pending::<()>());
    assert!(tokio::time::timeout(ms(50), body).await.is_err());
    fixture.clean().await;
}

async fn an_acquisition_that_is_dropped_at_any_await_leaves_nothing(fixture: Fixture) {
    let keys = keys(&fixture);
    fixture.dropped_at_each_await(async |locks| locks.all(&keys).ttl(LONG).acquire().await).await;
    let attempt = async |locks: LockManager| {
        let guard = locks.all(&keys).ttl(LONG).try_acquire().await?;
        guard.ok_or_else(|| LockError::new(LockErrorKind::Contended, "another client holds one of the locks"))
    };
    fixture.dropped_at_each_await(attempt).await;
}

async fn an_acquisition_that_is_dropped_while_it_waits_leaves_nothing(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await.ttl(LONG), fixture.client().await.ttl(LONG));
    let keys = keys(&fixture);
    for held in &keys {
        let guard = theirs.lock(held).acquire().await.unwrap();
        let lock = ours.all(&keys).wait(LONG);
        for polls in [1, 3, 6, 9] {
            assert!(drop_after(lock.acquire(), polls).await.is_none(), "one is held");
            fixture.queued(held, 0).await;
        }
        guard.release().await.unwrap();
        fixture.clean().await;
    }
}

async fn a_release_that_is_dropped_happens_for_all(fixture: Fixture) {
    let lock = fixture.client().await.ttl(LONG).all(keys(&fixture));
    for polls in 0.. {
        let guard = lock.acquire().await.unwrap();
        let done = drop_after(guard.release(), polls).await;
        fixture.clean().await;
        if done.is_some() {
            return;
        }
        assert!(polls < MANY_POLLS, "never ready");
    }
}

async fn tokens_rise_for_each(fixture: Fixture) {
    let clients = [fixture.client().await, fixture.client().await];
    let mut before = Vec::new();
    for round in 0..6 {
        let guard = clients[round % 2].all(keys(&fixture)).acquire().await.unwrap();
        let tokens: Vec<_> = guard.held().iter().map(HeldLock::fencing_token).collect();
        assert!(before.iter().zip(&tokens).all(|(before, token)| before < token), "{before:?} {tokens:?}");
        before = tokens;
        guard.release().await.unwrap();
    }
    fixture.clean().await;
}

async fn a_store_that_breaks_in_between_leaves_nothing(fixture: Fixture) {
    let (ours, theirs) =
        (fixture.client().await.ttl(LONG), fixture.client().await.ttl(fixture.lease(ms(2000))));
    let [c, a, b] = keys(&fixture);
    let guard = theirs.lock(&b).acquire().await.unwrap();
    let lock = ours.all([&a, &b, &c]).wait(ms(1000));
    let acquire = begun(async move { lock.acquire().await.map(drop) }).await;
    fixture.queued(&b, 1).await;
    fixture.hurt(Fault::Down);
    let error = acquire.await.unwrap().unwrap_err();
    if error.kind() == LockErrorKind::Lost && !fixture.spares_holds(Fault::Down) {
        // The one that it had ended with its connection.
        assert_eq!(error.key().expect("named").as_str(), a);
    } else {
        assert!(matches!(error.kind(), LockErrorKind::Backend | LockErrorKind::Timeout), "{error}");
        assert_eq!(error.key().expect("named").as_str(), b);
    }
    fixture.heal();
    drop(guard);
    fixture.clean().await;
}
