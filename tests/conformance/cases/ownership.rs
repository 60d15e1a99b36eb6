//! Only the owner releases; a release by another client, a second or a late one changes nothing and reports it.

use std::time::Duration;

use lock_runtime::LockErrorKind;

use super::{LONG, ms};
use crate::{
    case::{Case, Need, case},
    fixture::Fixture,
    store::Fault,
    support::traces::{has_owner_token, owner_token},
};

pub fn cases() -> Vec<Case> {
    vec![
        case!(a_release_after_the_end_of_the_lease_says_lost_and_spares_the_successor),
        case!(a_drop_after_the_end_of_the_lease_spares_the_successor),
        case!(a_lost_guard_does_not_release_a_later_hold_of_the_same_client),
        case!(a_release_after_the_store_lost_the_hold_says_lost_and_spares_the_successor),
        case!(a_repeated_release_spares_the_successor).hurts(Fault::AnswerLost(1)),
        case!(a_release_that_arrives_late_spares_the_successor)
            .hurts(Fault::RequestsHeld)
            .needs(Need::ForeignClients),
        case!(a_lock_asked_for_again_keeps_its_first_hold),
        case!(an_owner_is_known_by_another_name_each_time).needs(Need::ForeignClients),
        case!(nothing_that_is_shown_lets_others_release).needs(Need::ForeignClients),
    ]
}

/// Lets the lease of a hold run out and gives the lock to another client.
async fn succeeded(fixture: &Fixture, key: &str) -> (lock_runtime::LockGuard, lock_runtime::LockGuard) {
    let stale = fixture
        .client()
        .await
        .lock(key)
        .ttl(fixture.lease(ms(200)))
        .auto_renew(false)
        .acquire()
        .await
        .unwrap();
    let successor = fixture.client().await.lock(key).wait(LONG).acquire().await.unwrap();
    (stale, successor)
}

async fn still_holds(fixture: &Fixture, successor: lock_runtime::LockGuard) {
    fixture.is_held(successor.key().as_str()).await;
    assert!(successor.is_valid());
    successor.release().await.expect("it is released by its owner");
    fixture.clean().await;
}

async fn a_release_after_the_end_of_the_lease_says_lost_and_spares_the_successor(fixture: Fixture) {
    let (stale, successor) = succeeded(&fixture, &fixture.key("k")).await;
    assert_eq!(stale.release().await.unwrap_err().kind(), LockErrorKind::Lost);
    still_holds(&fixture, successor).await;
}

async fn a_drop_after_the_end_of_the_lease_spares_the_successor(fixture: Fixture) {
    let locks = fixture.client().await;
    let key = fixture.key("k");
    let stale = locks.lock(&key).ttl(fixture.lease(ms(200))).auto_renew(false).acquire().await.unwrap();
    let successor = fixture.client().await.lock(&key).wait(LONG).acquire().await.unwrap();
    drop(stale);
    // Returns when the background release of the dropped guard is done.
    locks.shutdown().await;
    still_holds(&fixture, successor).await;
}

async fn a_lost_guard_does_not_release_a_later_hold_of_the_same_client(fixture: Fixture) {
    let locks = fixture.client().await;
    let key = fixture.key("k");
    for dropped in [false, true] {
        let stale = locks.lock(&key).ttl(fixture.lease(ms(200))).auto_renew(false).acquire().await.unwrap();
        let later = locks.lock(&key).wait(LONG).acquire().await.unwrap();
        assert!(!stale.is_valid());
        if dropped {
            drop(stale);
            tokio::time::sleep(ms(100)).await;
        } else {
            assert_eq!(stale.release().await.unwrap_err().kind(), LockErrorKind::Lost);
        }
        still_holds(&fixture, later).await;
    }
}

async fn a_release_after_the_store_lost_the_hold_says_lost_and_spares_the_successor(fixture: Fixture) {
    let key = fixture.key("k");
    let guard = fixture.client().await.lock(&key).acquire().await.unwrap();
    fixture.lose(&key);
    let successor =
        fixture.client().await.lock(&key).try_acquire().await.unwrap().expect("the store forgot it");
    // It looks valid until a renewal asks; the release reveals the loss.
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Lost, "{error}");
    still_holds(&fixture, successor).await;
}

async fn a_repeated_release_spares_the_successor(fixture: Fixture) {
    let locks = fixture.client().await;
    let other = fixture.client().await;
    let key = fixture.key("k");
    let guard = locks.lock(&key).acquire().await.unwrap();
    other.lock(fixture.key("warm")).acquire().await.unwrap().release().await.unwrap();
    // Carried out, but its answer is lost: it is repeated in the background while the successor holds.
    fixture.hurt(Fault::AnswerLost(1));
    let released = guard.release().await;
    assert!(
        released.as_ref().is_ok() || released.as_ref().is_err_and(|e| e.kind() == LockErrorKind::Backend),
        "{released:?}"
    );
    assert!(fixture.lost_an_answer());
    let successor = other.lock(&key).wait(Duration::from_secs(5)).acquire().await.unwrap();
    locks.shutdown().await;
    still_holds(&fixture, successor).await;
}

async fn a_release_that_arrives_late_spares_the_successor(fixture: Fixture) {
    let locks = fixture.client().await;
    let key = fixture.key("k");
    let guard = locks.lock(&key).ttl(ms(500)).auto_renew(false).acquire().await.unwrap();
    fixture.hurt(Fault::RequestsHeld);
    // Sent while the client holds the lock, and pending until another holds it.
    let release = tokio::spawn(guard.release());
    let mut owner = None;
    while owner.is_none() {
        tokio::time::sleep(ms(2)).await;
        owner = fixture.foreign().take(&key, LONG);
    }
    fixture.heal();
    let released = release.await.unwrap();
    assert!(released.is_err(), "it was not released by us");
    locks.shutdown().await;
    let (holder, _) = fixture.foreign().holder(&key).expect("the successor still holds it");
    assert_eq!(Some(holder), owner);
    assert!(fixture.foreign().free(&key, &owner.unwrap()));
    fixture.clean().await;
}

async fn a_lock_asked_for_again_keeps_its_first_hold(fixture: Fixture) {
    let locks = fixture.client().await;
    let key = fixture.key("k");
    let lock = locks.lock(&key);
    let guard = lock.acquire().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    let error = lock.clone().wait(ms(100)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout);
    assert!(guard.is_valid());
    fixture.is_held(&key).await;
    guard.release().await.unwrap();
    fixture.is_clean_and_free(&key).await;
}

async fn an_owner_is_known_by_another_name_each_time(fixture: Fixture) {
    let locks = fixture.client().await;
    let key = fixture.key("k");
    let mut owners = Vec::new();
    for _ in 0..5 {
        let guard = locks.lock(&key).acquire().await.unwrap();
        let (shown, _) = fixture.foreign().holder(&key).expect("it is held");
        owners.push(owner_token(&shown).expect("an owner has one").to_owned());
        guard.release().await.unwrap();
    }
    owners.sort_unstable();
    owners.dedup();
    assert_eq!(owners.len(), 5);
}

async fn nothing_that_is_shown_lets_others_release(fixture: Fixture) {
    let locks = fixture.client().await;
    let lock = locks.lock(fixture.key("k"));
    let guard = lock.acquire().await.unwrap();
    let busy = lock.clone().wait(Duration::ZERO).acquire().await.unwrap_err();
    let (owner, _) = fixture.foreign().holder(guard.key().as_str()).expect("it is held");
    let shown = format!("{locks:?} {lock:?} {guard:?} {:?} {busy:?} {busy}", guard.held());
    assert!(has_owner_token(&owner), "no 128 bits in {owner:?}");
    assert!(!has_owner_token(&shown), "{shown}");
    guard.release().await.unwrap();
}
