//! An operator takes a lock from its holder: a live holder is gone soon, and never are there two that believe they hold it.

use std::time::Duration;

use lock_runtime::{FencingToken, LockErrorKind, LockGuard, LockManager};
use tokio::time::timeout;

use super::{LEASES, LONG, SLACK, ms};
use crate::{
    case::{Case, Need, case},
    fixture::Fixture,
    polling::begun,
    store::Fault,
    support::stopwatch::Moment,
};

pub fn cases() -> Vec<Case> {
    let without_force = [
        case!(a_live_holder_is_told_soon_and_the_lock_is_granted_when_it_has_left),
        case!(a_section_of_a_revoked_lock_is_stopped_and_the_next_one_enters),
        case!(a_wrong_token_revokes_nothing),
        case!(any_token_of_a_grant_revokes_it_with_all_its_turns),
        case!(a_revoked_grant_is_revoked_until_it_has_ended),
        case!(a_grant_that_was_released_cannot_be_revoked_and_the_next_one_is_spared),
        case!(a_revocation_beside_a_release_spares_the_next_holder),
        case!(a_revocation_beside_renewals_is_not_undone_by_them).needs(LEASES),
        case!(a_lock_that_is_kept_in_the_background_is_given_up),
        case!(a_holder_that_was_to_keep_its_lock_for_longer_gives_it_up_as_well),
        case!(a_lease_without_renewal_ends_when_it_would_have_ended).needs(LEASES),
        case!(waiters_keep_their_order_behind_a_revoked_holder).needs(Need::Can(|can| can.is_fair())),
        case!(a_paused_holder_keeps_its_lock_until_its_deadline_and_knows_of_nothing_later)
            .needs(Need::Can(|can| can.is_shared_between_processes())),
        case!(a_dead_holder_keeps_its_lock_until_its_deadline)
            .needs(Need::Can(|can| can.is_shared_between_processes())),
        case!(a_hundred_revocations_at_once_reach_their_holders),
    ];
    let without_force =
        without_force.into_iter().map(|case| case.needs(Need::Can(|can| can.shows_locks() && can.revokes())));
    let by_force = [
        case!(a_lock_is_free_at_once_by_force_and_its_holder_learns_of_it),
        case!(a_wrong_token_frees_nothing_by_force),
        case!(a_holder_of_ours_is_not_freed_as_one_without_a_token),
        case!(a_waiter_enters_at_once_after_force),
        case!(a_holder_of_another_library_is_freed_by_force_alone).needs(Need::ForeignClients),
    ];
    let by_force = by_force.into_iter().map(|case| case.needs(Need::Can(|can| can.shows_locks())));
    without_force.chain(by_force).collect()
}

/// Time in which a live holder learns of a revocation, on a machine that is not busy.
const SOON: Duration = ms(1000);

async fn held(fixture: &Fixture, key: &str) -> (LockManager, LockGuard) {
    let locks = fixture.client().await.ttl(LONG * 2).wait(LONG);
    let guard = locks.lock(key).acquire().await.unwrap();
    (locks, guard)
}

async fn is_lost_soon(guard: &LockGuard) {
    let began = Moment::now();
    timeout(LONG, guard.lost()).await.expect("the holder is told");
    assert!(began.within(SOON + SLACK), "only after {:?}", began.took());
    assert_eq!(guard.held().ensure_valid().unwrap_err().kind(), LockErrorKind::Lost);
}

async fn is_granted_soon(locks: &LockManager, key: &str) -> LockGuard {
    let began = Moment::now();
    let guard = locks.lock(key).wait(LONG).acquire().await.unwrap();
    assert!(began.within(SOON + SLACK), "only after {:?}", began.took());
    guard
}

async fn a_live_holder_is_told_soon_and_the_lock_is_granted_when_it_has_left(fixture: Fixture) {
    let (operator, key) = (fixture.client().await, fixture.key("k"));
    let (_locks, guard) = held(&fixture, &key).await;
    let token = operator.inspect(&key).await.unwrap().holders[0].token().expect("ours have one");
    assert!(operator.revoke(&key, token).await.unwrap());
    is_lost_soon(&guard).await;
    // The holder may still be in a step that it began while the lock was valid.
    let once = operator.lock(&key).wait(ms(400)).acquire().await.unwrap_err();
    assert_eq!(once.kind(), LockErrorKind::Timeout, "granted although the last holder has not left: {once}");
    drop(guard);
    let next = is_granted_soon(&operator, &key).await;
    assert!(next.fencing_token() > token);
    next.release().await.unwrap();
    fixture.clean().await;
}

async fn a_section_of_a_revoked_lock_is_stopped_and_the_next_one_enters(fixture: Fixture) {
    let (operator, key) = (fixture.client().await, fixture.key("k"));
    let (_locks, guard) = held(&fixture, &key).await;
    let token = guard.fencing_token();
    let section = begun(guard.run(std::future::pending::<()>())).await;
    let lock = fixture.client().await.lock(&key).wait(LONG);
    let next = begun(async move { lock.acquire().await.unwrap() }).await;
    fixture.queued(&key, 1).await;
    assert!(operator.revoke(&key, token).await.unwrap());
    let began = Moment::now();
    let error = section.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Lost);
    assert!(error.to_string().contains("revoked"), "{error}");
    let next = next.await.unwrap();
    assert!(began.within(SOON * 2 + SLACK), "only after {:?}", began.took());
    next.release().await.unwrap();
    fixture.clean().await;
}

async fn a_wrong_token_revokes_nothing(fixture: Fixture) {
    let (operator, key) = (fixture.client().await, fixture.key("k"));
    let (_locks, guard) = held(&fixture, &key).await;
    let token = guard.fencing_token().get();
    for wrong in [0, 1, token.saturating_sub(2048), token + 2048, i64::MAX.unsigned_abs()] {
        assert!(!operator.revoke(&key, FencingToken::from_number(wrong)).await.unwrap(), "{wrong}");
    }
    let free = fixture.key("free");
    assert!(!operator.revoke(&free, guard.fencing_token()).await.unwrap(), "it is not held at all");
    tokio::time::sleep(ms(300)).await;
    assert!(guard.is_valid());
    assert!(!operator.inspect(&key).await.unwrap().holders[0].is_revoked());
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn any_token_of_a_grant_revokes_it_with_all_its_turns(fixture: Fixture) {
    let (operator, key) = (fixture.client().await, fixture.key("k"));
    let (locks, first) = held(&fixture, &key).await;
    let lock = locks.lock(&key);
    let second = begun(async move { lock.acquire().await.unwrap() }).await;
    first.release().await.unwrap();
    let second = second.await.unwrap();
    assert!(operator.revoke(&key, second.fencing_token()).await.unwrap());
    is_lost_soon(&second).await;
    drop(second);
    is_granted_soon(&operator, &key).await.release().await.unwrap();
    fixture.clean().await;
}

async fn a_revoked_grant_is_revoked_until_it_has_ended(fixture: Fixture) {
    let (operator, key) = (fixture.client().await, fixture.key("k"));
    let (_locks, guard) = held(&fixture, &key).await;
    let token = guard.fencing_token();
    assert!(operator.revoke(&key, token).await.unwrap());
    is_lost_soon(&guard).await;
    assert!(operator.revoke(&key, token).await.unwrap(), "the holder has not left");
    assert!(operator.inspect(&key).await.unwrap().holders[0].is_revoked());
    drop(guard);
    is_granted_soon(&operator, &key).await.release().await.unwrap();
    assert!(!operator.revoke(&key, token).await.unwrap());
    fixture.clean().await;
}

async fn a_grant_that_was_released_cannot_be_revoked_and_the_next_one_is_spared(fixture: Fixture) {
    let (operator, key) = (fixture.client().await, fixture.key("k"));
    let (_locks, guard) = held(&fixture, &key).await;
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    let next = operator.lock(&key).acquire().await.unwrap();
    assert!(!operator.revoke(&key, token).await.unwrap());
    assert!(!operator.revoke_by_force(&key, token).await.unwrap());
    tokio::time::sleep(ms(300)).await;
    assert!(next.is_valid());
    next.release().await.unwrap();
    fixture.clean().await;
}

async fn a_revocation_beside_a_release_spares_the_next_holder(fixture: Fixture) {
    let operator = fixture.client().await;
    for number in 0..10 {
        let key = fixture.key(&number.to_string());
        let (_locks, guard) = held(&fixture, &key).await;
        let lock = operator.lock(&key).wait(LONG);
        let next = begun(async move { lock.acquire().await.unwrap() }).await;
        fixture.queued(&key, 1).await;
        let token = guard.fencing_token();
        let (released, revoked) = tokio::join!(guard.release(), operator.revoke(&key, token));
        // Either of them may have come first. A holder that was revoked first has lost its lock, or has left in time.
        revoked.unwrap();
        assert!(released.is_ok() || released.is_err_and(|error| error.kind() == LockErrorKind::Lost));
        let next = timeout(LONG, next).await.expect("the waiter enters").unwrap();
        tokio::time::sleep(ms(50)).await;
        assert!(next.is_valid(), "the next grant was revoked with the last one");
        next.release().await.unwrap();
    }
    fixture.clean().await;
}

async fn a_revocation_beside_renewals_is_not_undone_by_them(fixture: Fixture) {
    let (operator, locks) = (fixture.client().await, fixture.client().await);
    let ttl = ms(600);
    let mut guards = Vec::new();
    for number in 0..20 {
        let key = fixture.key(&number.to_string());
        guards.push((locks.lock(&key).ttl(ttl).acquire().await.unwrap(), key));
    }
    // The renewals come every 200 ms, and the revocations at all moments between them.
    for (guard, key) in &guards {
        // A busy machine may have lost the lease already.
        let is_revoked = operator.revoke(key, guard.fencing_token()).await.unwrap();
        assert!(is_revoked || !guard.is_valid());
        tokio::time::sleep(ms(23)).await;
    }
    for (guard, key) in guards {
        is_lost_soon(&guard).await;
        let began = Moment::now();
        // The guard stays, so the lock is free when the lease that was not renewed has ended.
        let next = operator.lock(&key).wait(LONG).acquire().await.unwrap();
        assert!(began.within(ttl + ms(250) + SLACK), "only after {:?}", began.took());
        next.release().await.unwrap();
        drop(guard);
    }
    fixture.clean().await;
}

async fn a_lock_that_is_kept_in_the_background_is_given_up(fixture: Fixture) {
    let (operator, key) = (fixture.client().await, fixture.key("k"));
    let locks = fixture.client().await.ttl(LONG * 2);
    let guard = locks.lock(&key).hold_at_least(LONG).acquire().await.unwrap();
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    assert!(operator.lock(&key).try_acquire().await.unwrap().is_none(), "it is kept");
    assert!(operator.revoke(&key, token).await.unwrap());
    is_granted_soon(&operator, &key).await.release().await.unwrap();
    fixture.clean().await;
}

async fn a_holder_that_was_to_keep_its_lock_for_longer_gives_it_up_as_well(fixture: Fixture) {
    let (operator, key) = (fixture.client().await, fixture.key("k"));
    let locks = fixture.client().await.ttl(LONG * 2);
    let guard = locks.lock(&key).hold_at_least(LONG).acquire().await.unwrap();
    let token = guard.fencing_token();
    let section = begun(guard.run(std::future::pending::<()>())).await;
    assert!(operator.revoke(&key, token).await.unwrap());
    assert_eq!(section.await.unwrap().unwrap_err().kind(), LockErrorKind::Lost);
    is_granted_soon(&operator, &key).await.release().await.unwrap();
    fixture.clean().await;
}

async fn a_lease_without_renewal_ends_when_it_would_have_ended(fixture: Fixture) {
    let (operator, locks, key) = (fixture.client().await, fixture.client().await, fixture.key("k"));
    let ttl = ms(2000);
    let began = std::time::Instant::now();
    let guard = locks.lock(&key).ttl(ttl).auto_renew(false).acquire().await.unwrap();
    assert!(operator.revoke(&key, guard.fencing_token()).await.unwrap());
    tokio::time::sleep(ms(300)).await;
    assert!(guard.is_valid() || began.elapsed() > ttl / 2, "it never asks the store again");
    let next = operator.lock(&key).wait(LONG).acquire().await.unwrap();
    assert!(began.elapsed() >= ttl, "granted before the holder's deadline");
    assert!(!guard.is_valid());
    next.release().await.unwrap();
    fixture.clean().await;
}

async fn waiters_keep_their_order_behind_a_revoked_holder(fixture: Fixture) {
    let (operator, key) = (fixture.client().await, fixture.key("k"));
    let (_locks, guard) = held(&fixture, &key).await;
    let (entered, mut order) = tokio::sync::mpsc::unbounded_channel();
    for number in 1..=3 {
        let (lock, entered) = (fixture.client().await.lock(&key).wait(LONG), entered.clone());
        drop(
            begun(async move {
                let guard = lock.acquire().await.unwrap();
                entered.send(number).unwrap();
                guard.release().await.unwrap();
            })
            .await,
        );
        fixture.queued(&key, number).await;
    }
    assert!(operator.revoke(&key, guard.fencing_token()).await.unwrap());
    is_lost_soon(&guard).await;
    drop(guard);
    for number in 1..=3 {
        assert_eq!(timeout(LONG, order.recv()).await.expect("they enter"), Some(number));
    }
    fixture.clean().await;
}

/// A holder in a process that cannot be told, because it is paused.
async fn a_paused_holder_keeps_its_lock_until_its_deadline_and_knows_of_nothing_later(fixture: Fixture) {
    let (operator, key) = (fixture.client().await, fixture.key("k"));
    let ttl = fixture.lease(ms(2500));
    let mut other = fixture.client_process().await;
    let token = other.acquire(&key, ttl, LONG).await.unwrap();
    other.pause();
    let paused = std::time::Instant::now();
    assert!(operator.revoke(&key, FencingToken::from_number(token)).await.unwrap());
    let next = operator.lock(&key).wait(LONG).acquire().await.unwrap();
    // Its last renewal may have been a third of the lease ago.
    let least = ttl / 2;
    let waited = paused.elapsed();
    assert!(waited > least, "granted after {waited:?}, before the deadline of the holder");
    other.resume();
    assert!(!other.is_valid(&key).await, "it believes that it holds the lock, as we do");
    assert!(next.is_valid());
    assert_eq!(other.release(&key).await, "Lost");
    assert!(next.is_valid());
    next.release().await.unwrap();
    fixture.clean().await;
}

async fn a_dead_holder_keeps_its_lock_until_its_deadline(fixture: Fixture) {
    let (operator, key) = (fixture.client().await, fixture.key("k"));
    let ttl = fixture.lease(ms(1500));
    let mut other = fixture.client_process().await;
    let token = FencingToken::from_number(other.acquire(&key, ttl, LONG).await.unwrap());
    other.kill();
    let killed = Moment::now();
    // Where a hold ends with the connection of its process, it may have ended by now.
    operator.revoke(&key, token).await.unwrap();
    let next = operator.lock(&key).wait(LONG).acquire().await.unwrap();
    assert!(killed.within(ttl + ms(250) + SLACK), "revoking made it longer: {:?}", killed.took());
    // Its last renewal may have been a third of the lease ago.
    let is_early = fixture.spares_holds(Fault::Cut) && killed.elapsed() <= ttl / 2;
    assert!(!is_early, "granted after {:?}, before the deadline of the holder", killed.elapsed());
    next.release().await.unwrap();
    fixture.clean().await;
}

async fn a_hundred_revocations_at_once_reach_their_holders(fixture: Fixture) {
    let (operator, locks) = (fixture.client().await, fixture.client().await.ttl(LONG * 2));
    let mut guards = Vec::new();
    for number in 0..100 {
        let key = fixture.key(&number.to_string());
        guards.push((locks.lock(&key).acquire().await.unwrap(), key));
    }
    for (guard, key) in &guards {
        assert!(operator.revoke(key, guard.fencing_token()).await.unwrap());
    }
    let began = Moment::now();
    for (guard, _) in &guards {
        timeout(LONG, guard.lost()).await.expect("each is told");
    }
    assert!(began.within(SOON * 2 + SLACK), "the last only after {:?}", began.took());
    drop(guards);
    fixture.clean().await;
}

async fn a_lock_is_free_at_once_by_force_and_its_holder_learns_of_it(fixture: Fixture) {
    let (operator, key) = (fixture.client().await, fixture.key("k"));
    let (_locks, guard) = held(&fixture, &key).await;
    let token = guard.fencing_token();
    assert!(operator.revoke_by_force(&key, token).await.unwrap());
    let next = is_granted_soon(&operator, &key).await;
    assert!(next.fencing_token() > token);
    is_lost_soon(&guard).await;
    drop(guard);
    tokio::time::sleep(ms(200)).await;
    assert!(next.is_valid(), "the late release of the last holder spares it");
    fixture.is_held(&key).await;
    next.release().await.unwrap();
    fixture.clean().await;
}

async fn a_wrong_token_frees_nothing_by_force(fixture: Fixture) {
    let (operator, key) = (fixture.client().await, fixture.key("k"));
    let (_locks, guard) = held(&fixture, &key).await;
    let token = guard.fencing_token().get();
    for wrong in [0, token.saturating_sub(2048), token + 2048] {
        assert!(!operator.revoke_by_force(&key, FencingToken::from_number(wrong)).await.unwrap(), "{wrong}");
    }
    fixture.is_held(&key).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn a_holder_of_ours_is_not_freed_as_one_without_a_token(fixture: Fixture) {
    let (operator, key) = (fixture.client().await, fixture.key("k"));
    let (_locks, guard) = held(&fixture, &key).await;
    assert!(!operator.revoke_by_force(&key, None).await.unwrap());
    fixture.is_held(&key).await;
    guard.release().await.unwrap();
    assert!(!operator.revoke_by_force(&key, None).await.unwrap(), "it is not held at all");
    fixture.clean().await;
}

async fn a_waiter_enters_at_once_after_force(fixture: Fixture) {
    let (operator, key) = (fixture.client().await, fixture.key("k"));
    let (_locks, guard) = held(&fixture, &key).await;
    let lock = fixture.client().await.lock(&key).wait(LONG);
    let next = begun(async move { lock.acquire().await.unwrap() }).await;
    fixture.queued(&key, 1).await;
    assert!(operator.revoke_by_force(&key, guard.fencing_token()).await.unwrap());
    let began = Moment::now();
    let next = next.await.unwrap();
    assert!(began.within(SOON + SLACK), "only after {:?}", began.took());
    drop(guard);
    next.release().await.unwrap();
    fixture.clean().await;
}

async fn a_holder_of_another_library_is_freed_by_force_alone(fixture: Fixture) {
    let (operator, key) = (fixture.client().await, fixture.key("k"));
    let owner = fixture.foreign().take(&key, LONG).expect("the lock is free");
    let some = FencingToken::from_micros(1);
    // A store that cannot revoke without force may say so before it looks.
    let revoked = operator.revoke(&key, some).await;
    assert!(!revoked.is_ok_and(|revoked| revoked));
    assert!(!operator.revoke_by_force(&key, some).await.unwrap(), "it has no token");
    assert!(operator.lock(&key).try_acquire().await.unwrap().is_none());
    assert!(operator.revoke_by_force(&key, None).await.unwrap());
    let next = is_granted_soon(&operator, &key).await;
    assert!(!fixture.foreign().free(&key, &owner), "it is not the holder any more");
    assert!(next.is_valid());
    next.release().await.unwrap();
    fixture.clean().await;
}
