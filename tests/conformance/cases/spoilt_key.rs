//! What stands under the name of one lock harms no other of the same call.

use std::time::Duration;

use lock_runtime::{LockErrorKind, LockGuard, LockManager};

use super::{LONG, ms};
use crate::{
    case::{Case, Need, case},
    fixture::Fixture,
    store::Fault,
    support::stopwatch::Moment,
};

/// The time of an answer: calls that follow each other are seen.
const WAY: Duration = ms(20);
const LOCKS: usize = 100;
const SPOILT: usize = 50;

pub fn cases() -> Vec<Case> {
    [
        case!(acquisitions_beside_it_are_answered_in_their_own_call),
        case!(releases_beside_it_are_answered_in_their_own_call),
        case!(renewals_beside_it_are_on_time),
        case!(waiters_beside_it_keep_their_places),
    ]
    .map(|case| case.hurts(Fault::Slow(WAY)).needs(Need::SharedCalls))
    .into()
}

fn keys(fixture: &Fixture) -> Vec<String> {
    (0..LOCKS).map(|number| fixture.key(&format!("k{number}"))).collect()
}

/// A client with a connection, and a slow network.
async fn client(fixture: &Fixture) -> LockManager {
    let locks = fixture.client().await;
    locks.lock(fixture.key("warm")).acquire().await.unwrap().release().await.unwrap();
    fixture.hurt(Fault::Slow(WAY));
    locks
}

/// Acquires all at the same time.
async fn acquire(locks: &LockManager, keys: &[String], ttl: Duration) -> Vec<Option<LockGuard>> {
    let tasks: Vec<_> = keys
        .iter()
        .map(|key| {
            let lock = locks.lock(key).ttl(ttl);
            tokio::spawn(async move { lock.try_acquire().await })
        })
        .collect();
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(match task.await.unwrap() {
            Ok(guard) => Some(guard.expect("it is free")),
            Err(error) => {
                assert_eq!(error.kind(), LockErrorKind::InvalidKey, "{error}");
                None
            }
        });
    }
    guards
}

/// A few round trips, and the same again for the spoilt one: one for each lock would be a hundred.
const FEW: Duration = ms(500);

async fn acquisitions_beside_it_are_answered_in_their_own_call(fixture: Fixture) {
    let (locks, keys) = (client(&fixture).await, keys(&fixture));
    fixture.spoil(&keys[SPOILT]);
    for _ in 0..3 {
        let began = Moment::now();
        let guards = acquire(&locks, &keys, LONG).await;
        let took = began.took();
        for (number, guard) in guards.iter().enumerate() {
            assert_eq!(guard.is_some(), number != SPOILT, "{number}");
        }
        assert!(took.within(FEW), "{took:?}");
        for guard in guards.into_iter().flatten() {
            guard.release().await.unwrap();
        }
    }
}

async fn releases_beside_it_are_answered_in_their_own_call(fixture: Fixture) {
    let (locks, keys) = (client(&fixture).await, keys(&fixture));
    let guards = acquire(&locks, &keys, LONG).await;
    fixture.spoil(&keys[SPOILT]);
    let began = Moment::now();
    let tasks: Vec<_> = guards
        .into_iter()
        .flatten()
        .map(|guard| tokio::spawn(async move { guard.release().await }))
        .collect();
    let mut released = Vec::new();
    for task in tasks {
        released.push(task.await.unwrap());
    }
    let took = began.took();
    for (number, released) in released.iter().enumerate() {
        assert_eq!(released.is_ok(), number != SPOILT, "{number}: {released:?}");
    }
    assert!(took.within(FEW), "{took:?}");
}

async fn renewals_beside_it_are_on_time(fixture: Fixture) {
    let ttl = ms(2_000);
    let (locks, keys) = (client(&fixture).await, keys(&fixture));
    let guards = acquire(&locks, &keys, ttl).await;
    fixture.spoil(&keys[SPOILT]);
    tokio::time::sleep(2 * ttl).await;
    for (number, guard) in guards.iter().flatten().enumerate() {
        assert_eq!(guard.is_valid(), number != SPOILT, "{number}");
    }
}

async fn waiters_beside_it_keep_their_places(fixture: Fixture) {
    let (locks, keys) = (client(&fixture).await, keys(&fixture));
    let theirs = fixture.client().await;
    let mut guards = acquire(&theirs, &keys, LONG).await;
    let tasks: Vec<_> = keys
        .iter()
        .map(|key| {
            let lock = locks.lock(key).wait(LONG);
            tokio::spawn(async move { lock.acquire().await })
        })
        .collect();
    tokio::time::sleep(ms(1_000)).await;
    fixture.spoil(&keys[SPOILT]);
    // Each asks a few times meanwhile.
    tokio::time::sleep(ms(2_500)).await;
    drop(guards.remove(SPOILT));
    for guard in guards.into_iter().flatten() {
        guard.release().await.unwrap();
    }
    for (number, task) in tasks.into_iter().enumerate() {
        match task.await.unwrap() {
            Ok(guard) => {
                assert_ne!(number, SPOILT);
                guard.release().await.unwrap();
            }
            Err(error) => {
                assert_eq!((number, error.kind()), (SPOILT, LockErrorKind::InvalidKey), "{error}");
            }
        }
    }
}
