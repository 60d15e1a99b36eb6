//! Locks shared with clients of other libraries.

use std::time::Instant;

use lock_runtime::LockErrorKind;

use super::{LONG, SLACK, ms};
use crate::{
    case::{Case, Need, case},
    fixture::Fixture,
    polling::begun,
    support::{stopwatch::Moment, until},
};

pub fn cases() -> Vec<Case> {
    [
        case!(a_held_lock_looks_to_others_as_one_of_their_own),
        case!(a_foreign_holder_excludes_us),
        case!(we_exclude_a_foreign_client),
        case!(a_release_by_a_foreign_holder_lets_a_waiter_in),
        case!(the_end_of_a_foreign_lease_lets_a_waiter_in),
        case!(a_foreign_holder_without_an_end_excludes_us),
        case!(a_foreign_lease_of_any_length_excludes_us),
        case!(a_name_under_which_something_else_is_kept_is_an_error_in_words),
        case!(a_foreign_client_gets_in_although_we_hand_over_among_ourselves),
        case!(a_lock_that_a_foreign_client_took_away_is_lost_and_not_freed_by_us),
    ]
    .into_iter()
    .map(|case| case.needs(Need::ForeignClients))
    .collect()
}

/// Longer than 10^14 ms, the number from which a script would write a power of ten.
async fn a_foreign_lease_of_any_length_excludes_us(fixture: Fixture) {
    for (number, millis) in [1_u64 << 47, 1 << 53, 9_000_000_000_000_000_000].into_iter().enumerate() {
        let (locks, key) = (fixture.client().await, fixture.key(&format!("k{number}")));
        let owner = fixture.foreign().take(&key, ms(millis)).expect("it is free");
        assert!(locks.lock(&key).try_acquire().await.unwrap().is_none());
        // The first of the queue, and one behind it.
        let waits = [ms(300); 2].map(|wait| {
            let lock = locks.lock(&key).wait(wait);
            async move { lock.acquire().await.map(drop).unwrap_err() }
        });
        let [first, second] = waits;
        let (first, second) = tokio::join!(first, second);
        for error in [first, second] {
            assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
        }
        assert!(fixture.foreign().free(&key, &owner));
        // The places of the two are given back in the background.
        fixture.is_clean_and_free(&key).await;
    }
}

async fn a_held_lock_looks_to_others_as_one_of_their_own(fixture: Fixture) {
    let key = fixture.key("user:42");
    let ttl = ms(20_000);
    assert_eq!(fixture.foreign().holder(&key), None);
    let guard = fixture.client().await.lock(&key).ttl(ttl).acquire().await.unwrap();
    let (owner, left) = fixture.foreign().holder(&key).expect("it is held");
    assert!(!owner.is_empty());
    assert!(left > ttl / 2 && left <= ttl, "{left:?}");
    // Our deadline comes before the end of the store's lease.
    assert!(guard.remaining() < left);
    guard.release().await.unwrap();
    assert_eq!(fixture.foreign().holder(&key), None);
    assert_eq!(fixture.left(), [""; 0]);
}

async fn a_foreign_holder_excludes_us(fixture: Fixture) {
    let locks = fixture.client().await;
    let key = fixture.key("user:42");
    let owner = fixture.foreign().take(&key, LONG).expect("it is free");
    assert!(locks.lock(&key).try_acquire().await.unwrap().is_none());
    let error = locks.lock(&key).wait(ms(300)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
    assert!(error.retry_after().expect("the lease is known") <= LONG);
    assert!(fixture.foreign().free(&key, &owner), "we took it away from its holder");
    fixture.is_clean_and_free(&key).await;
}

async fn we_exclude_a_foreign_client(fixture: Fixture) {
    let key = fixture.key("user:42");
    let guard = fixture.client().await.lock(&key).ttl(fixture.lease(ms(1200))).acquire().await.unwrap();
    let began = Instant::now();
    while began.elapsed() < ms(2500) {
        assert_eq!(fixture.foreign().take(&key, LONG), None);
        assert!(!fixture.foreign().free(&key, "another owner"));
        tokio::time::sleep(ms(10)).await;
    }
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    let owner = fixture.foreign().take(&key, LONG).expect("it is free");
    assert!(fixture.foreign().free(&key, &owner));
}

async fn a_release_by_a_foreign_holder_lets_a_waiter_in(fixture: Fixture) {
    let key = fixture.key("user:42");
    let mut found_after = Vec::new();
    for _ in 0..7 {
        let owner = fixture.foreign().take(&key, LONG).expect("it is free");
        let lock = fixture.client().await.lock(&key).wait(LONG);
        let waiter = begun(async move { lock.acquire().await.unwrap() }).await;
        fixture.queued(&key, 1).await;
        assert!(fixture.foreign().free(&key, &owner));
        let freed = Moment::now();
        let guard = waiter.await.unwrap();
        found_after.push(freed.took());
        guard.release().await.unwrap();
    }
    // Without a wake-up: the waiter polled, every 50 to 100 ms, where the machine let it.
    found_after.sort_by_key(|took| took.real);
    assert!(found_after[3].within(ms(150)), "only after {found_after:?}");
    fixture.clean().await;
}

async fn the_end_of_a_foreign_lease_lets_a_waiter_in(fixture: Fixture) {
    let key = fixture.key("user:42");
    let ttl = ms(700);
    fixture.foreign().take(&key, ttl).expect("it is free");
    let taken = Moment::now();
    let guard = fixture.client().await.lock(&key).wait(LONG).acquire().await.unwrap();
    assert!(taken.elapsed() + ms(20) > ttl, "after {:?}", taken.elapsed());
    assert!(taken.within(ttl + ms(250) + SLACK), "only after {:?}", taken.took());
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn a_foreign_holder_without_an_end_excludes_us(fixture: Fixture) {
    let locks = fixture.client().await;
    let key = fixture.key("user:42");
    let owner = fixture.foreign().take_for_ever(&key);
    assert!(locks.lock(&key).try_acquire().await.unwrap().is_none());
    let error = locks.lock(&key).wait(ms(1300)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
    assert_eq!(error.retry_after(), None, "its end is unknown");
    let lock = locks.lock(&key).wait(LONG);
    let waiter = begun(async move { lock.acquire().await.unwrap() }).await;
    fixture.queued(&key, 1).await;
    assert!(fixture.foreign().free(&key, &owner));
    waiter.await.unwrap().release().await.unwrap();
    fixture.clean().await;
}

async fn a_name_under_which_something_else_is_kept_is_an_error_in_words(fixture: Fixture) {
    let locks = fixture.client().await;
    let key = fixture.key("user:42");
    fixture.foreign().misuse(&key);
    for error in [
        locks.lock(&key).try_acquire().await.unwrap_err(),
        locks.lock(&key).wait(ms(300)).acquire().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), LockErrorKind::InvalidKey, "another name is needed: {error}");
        assert!(error.to_string().contains("is not a lock"), "{error}");
    }
    // Other locks are not disturbed, not even those that are renewed together with it.
    let ttl = fixture.lease(ms(1200));
    let other = locks.lock(fixture.key("other")).ttl(ttl).acquire().await.unwrap();
    fixture.foreign().clear(&key);
    let guard = locks.lock(&key).ttl(ttl).wait(LONG).acquire().await.unwrap();
    fixture.foreign().clear(&key);
    fixture.foreign().misuse(&key);
    guard.lost().await;
    tokio::time::sleep(ms(1500)).await;
    assert!(other.is_valid(), "lost with another lock");
    assert_eq!(other.release().await.map_err(|error| error.kind()), Ok(()));
    assert!(guard.release().await.is_err());
    fixture.foreign().clear(&key);
    fixture.clean().await;
}

async fn a_foreign_client_gets_in_although_we_hand_over_among_ourselves(fixture: Fixture) {
    let key = fixture.key("user:42");
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let locks = fixture.client().await.wait(LONG);
        for _ in 0..4 {
            let lock = locks.lock(&key);
            tasks.push(tokio::spawn(async move {
                loop {
                    // The foreign client holds it for a while, and no lease is lost.
                    lock.acquire().await.unwrap().release().await.unwrap();
                }
            }));
        }
    }
    // Like redis-py: ten times a second.
    let mut waits = Vec::new();
    while waits.len() < 6 {
        let began = Moment::now();
        let owner = loop {
            if let Some(owner) = fixture.foreign().take(&key, LONG) {
                break owner;
            }
            // First the managers have to notice the foreign client; from then on they wait for it.
            let most = if waits.is_empty() { ms(30_000) } else { ms(10_000) };
            assert!(began.within(most), "it did not find the lock free; before: {waits:?}");
            tokio::time::sleep(ms(100)).await;
        };
        waits.push(began.took());
        tokio::time::sleep(ms(20)).await;
        assert!(fixture.foreign().free(&key, &owner));
    }
    println!("the foreign client was let in after {waits:?}");
    let mut later = waits.split_off(1);
    later.sort_by_key(|took| took.real);
    assert!(later[2].within(ms(2_000) + SLACK), "{later:?}");
    for task in tasks {
        task.abort();
    }
    fixture.clean().await;
}

async fn a_lock_that_a_foreign_client_took_away_is_lost_and_not_freed_by_us(fixture: Fixture) {
    let key = fixture.key("user:42");
    let guard = fixture.client().await.lock(&key).ttl(ms(900)).acquire().await.unwrap();
    fixture.lose(&key);
    let owner = fixture.foreign().take(&key, LONG).expect("it was taken away from us");
    guard.lost().await;
    assert_eq!(guard.release().await.unwrap_err().kind(), LockErrorKind::Lost);
    until("the foreign holder keeps it", || match fixture.foreign().holder(&key) {
        Some((holder, left)) if holder == owner && left > LONG / 2 => Ok(()),
        other => Err(other),
    })
    .await;
    assert!(fixture.foreign().free(&key, &owner));
}
