//! What operators see: the holder of a lock, its waiters, and the locks that are held.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use lock_runtime::{FencingToken, LockErrorKind, LockManager, backend::LockState};
use tokio::task::JoinSet;

use super::{LONG, SLACK, ms};
use crate::{
    case::{Case, Need, case},
    fixture::Fixture,
    polling::begun,
    store::Fault,
    support::stopwatch::Moment,
};

pub fn cases() -> Vec<Case> {
    [
        case!(a_free_lock_has_no_holder),
        case!(a_holder_is_shown_with_its_process_and_its_grant),
        case!(a_label_of_any_text_is_shown_as_it_is),
        case!(the_first_token_of_a_grant_is_shown_after_a_hand_over),
        case!(waiters_are_shown_in_their_order).needs(Need::Can(|can| can.is_fair())),
        case!(a_lock_with_waiters_that_poll_has_one_holder),
        case!(an_error_of_contention_names_no_other_than_the_holder),
        case!(a_holder_of_another_library_is_shown_as_foreign).needs(Need::ForeignClients),
        case!(a_lock_of_another_process_is_shown_with_that_process)
            .needs(Need::Can(|can| can.is_shared_between_processes())),
        case!(a_holder_that_does_not_answer_is_shown_until_its_lease_ends)
            .needs(Need::Can(|can| can.is_shared_between_processes())),
        case!(a_lock_that_changes_its_holder_has_one_or_none),
        case!(a_scan_finds_the_held_locks_under_a_beginning_and_no_others),
        case!(a_scan_sees_the_locks_of_its_prefix_alone),
        case!(a_spoilt_name_does_not_end_a_scan).needs(Need::SharedCalls),
        case!(a_store_that_is_away_is_an_outage_and_no_free_lock).hurts(Fault::Killed),
    ]
    .into_iter()
    .map(|case| case.needs(Need::Can(|can| can.shows_locks())))
    .collect()
}

/// The only holder of a lock.
fn holder(state: &LockState) -> &lock_runtime::LockHolder {
    assert_eq!(state.holders.len(), 1, "{state:?}");
    &state.holders[0]
}

async fn a_free_lock_has_no_holder(fixture: Fixture) {
    let (locks, key) = (fixture.client().await, fixture.key("k"));
    let state = locks.inspect(&key).await.unwrap();
    assert!(!state.is_held() && state.waiters.is_empty() && state.key.as_str() == key, "{state:?}");
    locks.lock(&key).acquire().await.unwrap().release().await.unwrap();
    let state = locks.inspect(&key).await.unwrap();
    assert!(!state.is_held() && state.waiters.is_empty(), "{state:?}");
    fixture.clean().await;
}

async fn a_holder_is_shown_with_its_process_and_its_grant(fixture: Fixture) {
    let (locks, key) = (fixture.client().await, fixture.key("k"));
    let ttl = fixture.lease(Duration::from_secs(20)) * 2;
    let before = SystemTime::now();
    let guard = locks.lock(&key).ttl(ttl).label("nightly report").acquire().await.unwrap();
    // Seen by another client: it is the store that knows all this.
    let state = fixture.client().await.inspect(&key).await.unwrap();
    let holder = holder(&state);
    assert_eq!(holder.token(), Some(guard.fencing_token()), "{holder:?}");
    assert!(!holder.is_foreign() && !holder.is_revoked(), "{holder:?}");
    let pid = format!(":{}", std::process::id());
    assert!(holder.client().is_none_or(|client| client.contains(&pid)), "{holder:?}");
    assert_eq!(holder.label(), Some("nightly report"), "{holder:?}");
    assert!(holder.client().is_some(), "{holder:?}");
    let since = holder.since().expect("a grant has a time");
    // Server and test have one clock, which some stores read in whole milliseconds or seconds.
    let coarse = Duration::from_secs(1);
    assert!(since + coarse >= before && since <= SystemTime::now() + coarse, "{holder:?}");
    match fixture.declared().session_timeout() {
        Some(_) => assert_eq!(holder.remaining(), None, "a session has no end that the store knows"),
        None => assert!(holder.remaining().is_some_and(|left| left <= ttl && !left.is_zero()), "{holder:?}"),
    }
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn a_label_of_any_text_is_shown_as_it_is(fixture: Fixture) {
    let (locks, key) = (fixture.client().await, fixture.key("k"));
    for label in ["Überweisung 🔒", "a:b,c;d e%20{f}'\"\\$*", &"x".repeat(63)] {
        let guard = locks.lock(&key).label(label).acquire().await.unwrap();
        let state = locks.inspect(&key).await.unwrap();
        assert_eq!(holder(&state).label(), Some(label));
        guard.release().await.unwrap();
    }
    let error = locks.lock(&key).label("x".repeat(64)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::InvalidOptions);
    fixture.clean().await;
}

async fn the_first_token_of_a_grant_is_shown_after_a_hand_over(fixture: Fixture) {
    let (locks, key) = (fixture.client().await.wait(LONG), fixture.key("k"));
    let first = locks.lock(&key).acquire().await.unwrap();
    let lock = locks.lock(&key);
    let second = begun(async move { lock.acquire().await.unwrap() }).await;
    let token = first.fencing_token();
    first.release().await.unwrap();
    let second = second.await.unwrap();
    let state = locks.inspect(&key).await.unwrap();
    let shown = holder(&state).token().expect("our own holders have a token");
    // Either the lease was handed over, or the store has granted the lock anew.
    assert!(shown == token || shown == second.fencing_token(), "{shown}");
    assert!(shown <= second.fencing_token());
    second.release().await.unwrap();
    fixture.clean().await;
}

async fn waiters_are_shown_in_their_order(fixture: Fixture) {
    let key = fixture.key("k");
    let guard = fixture.client().await.lock(&key).acquire().await.unwrap();
    let mut waiting = Vec::new();
    for number in 1..=3 {
        let lock = fixture.client().await.lock(&key).wait(LONG).label(format!("waiter {number}"));
        let waiter = begun(async move { lock.acquire().await.unwrap().release().await.unwrap() }).await;
        fixture.queued(&key, number).await;
        waiting.push(waiter);
    }
    let state = fixture.client().await.inspect(&key).await.unwrap();
    assert!(state.is_held());
    let labels: Vec<_> = state.waiters.iter().map(|waiter| waiter.label().unwrap_or_default()).collect();
    assert!(labels == ["waiter 1", "waiter 2", "waiter 3"] || labels == [""; 3], "{state:?}");
    guard.release().await.unwrap();
    for waiter in waiting {
        waiter.await.unwrap();
    }
    fixture.clean().await;
}

async fn a_lock_with_waiters_that_poll_has_one_holder(fixture: Fixture) {
    let (key, locks) = (fixture.key("k"), fixture.client().await);
    let guard = locks.lock(&key).acquire().await.unwrap();
    let lock = fixture.client().await.lock(&key).wait(LONG);
    let waiter = begun(async move { lock.acquire().await.unwrap().release().await.unwrap() }).await;
    fixture.queued(&key, 1).await;
    let state = locks.inspect(&key).await.unwrap();
    assert_eq!(holder(&state).token(), Some(guard.fencing_token()));
    guard.release().await.unwrap();
    waiter.await.unwrap();
    fixture.clean().await;
}

async fn an_error_of_contention_names_no_other_than_the_holder(fixture: Fixture) {
    let (ours, theirs, key) = (fixture.client().await, fixture.client().await, fixture.key("k"));
    let guard = ours.lock(&key).label("holder").acquire().await.unwrap();
    let once = theirs.lock(&key).wait(ms(0)).acquire().await.unwrap_err();
    let waited = theirs.lock(&key).wait(ms(100)).acquire().await.unwrap_err();
    let here = ours.lock(&key).wait(ms(0)).acquire().await.unwrap_err();
    for (error, kind) in [
        (&once, LockErrorKind::Contended),
        (&waited, LockErrorKind::Timeout),
        (&here, LockErrorKind::Contended),
    ] {
        assert_eq!(error.kind(), kind);
        if let Some(holder) = error.holder() {
            assert!(holder.token().is_none_or(|token| token == guard.fencing_token()), "{holder:?}");
            assert!(holder.label().is_none_or(|label| label == "holder"), "{holder:?}");
        }
    }
    assert!(here.holder().is_some(), "the holder is in this process");
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn a_holder_of_another_library_is_shown_as_foreign(fixture: Fixture) {
    let (locks, key) = (fixture.client().await, fixture.key("k"));
    let owner = fixture.foreign().take(&key, LONG).expect("the lock is free");
    let state = locks.inspect(&key).await.unwrap();
    let shown = holder(&state);
    assert!(shown.is_foreign() && shown.token().is_none() && shown.label().is_none(), "{shown:?}");
    let mut scan = locks.scan(fixture.mark());
    let found = scan.next().await.expect("it is held").unwrap();
    assert!(found.key.as_str() == key && holder(&found).is_foreign(), "{found:?}");
    assert!(fixture.foreign().free(&key, &owner));
    assert!(!locks.inspect(&key).await.unwrap().is_held());
    fixture.clean().await;
}

async fn a_lock_of_another_process_is_shown_with_that_process(fixture: Fixture) {
    let key = fixture.key("k");
    let mut other = fixture.client_process().await;
    let token = other.acquire(&key, LONG, LONG).await.unwrap();
    let state = fixture.client().await.inspect(&key).await.unwrap();
    let shown = holder(&state);
    assert_eq!(shown.token().map(FencingToken::get), Some(token));
    let ours = format!(":{}@", std::process::id());
    let client = shown.client().expect("our own holders state their process");
    assert!(client.contains('@') && !client.contains(&ours), "{shown:?}");
    assert_eq!(other.release(&key).await, "ok");
    fixture.clean().await;
}

/// Whether the process of the holder stands still or is dead.
async fn a_holder_that_does_not_answer_is_shown_until_its_lease_ends(fixture: Fixture) {
    let (locks, key) = (fixture.client().await, fixture.key("k"));
    let ttl = fixture.lease(ms(2500));
    let mut other = fixture.client_process().await;
    let token = other.acquire(&key, ttl, LONG).await.unwrap();
    other.pause();
    let state = locks.inspect(&key).await.unwrap();
    assert_eq!(holder(&state).token().map(FencingToken::get), Some(token));
    assert_eq!(found(&locks, fixture.mark()).await, BTreeSet::from([key.clone()]));
    other.kill();
    let killed = Moment::now();
    loop {
        let state = locks.inspect(&key).await.unwrap();
        let held = found(&locks, fixture.mark()).await;
        if !state.is_held() {
            assert!(state.waiters.is_empty() && held.is_empty(), "{state:?}, {held:?}");
            break;
        }
        assert_eq!(holder(&state).token().map(FencingToken::get), Some(token));
        assert!(killed.within(ttl + ms(250) + SLACK), "{state:?} after {:?}", killed.took());
        tokio::time::sleep(ms(50)).await;
    }
    fixture.clean().await;
}

/// What is read in the middle of a hand-over is never two holders, nor one of another library.
async fn a_lock_that_changes_its_holder_has_one_or_none(fixture: Fixture) {
    let (operator, key) = (fixture.client().await, fixture.key("k"));
    let is_over = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for _ in 0..3 {
        let lock = fixture.client().await.lock(&key).wait(LONG);
        let is_over = Arc::clone(&is_over);
        clients.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                lock.acquire().await.unwrap().release().await.unwrap();
            }
        });
    }
    let (began, mut last) = (Moment::now(), None);
    while began.elapsed() < ms(800) || last.is_none() {
        let state = operator.inspect(&key).await.unwrap();
        if state.is_held() {
            assert!(!holder(&state).is_foreign(), "{state:?}");
            // A holder may have the lock for a moment before the store says more.
            if let Some(token) = holder(&state).token() {
                assert!(last.is_none_or(|last| last <= token), "{last:?}, then {state:?}");
                last = Some(token);
            }
        }
        let mut scan = operator.scan(fixture.mark());
        while let Some(lock) = scan.next().await {
            let state = lock.unwrap();
            assert!(!holder(&state).is_foreign() && state.key.as_str() == key, "{state:?}");
        }
        assert!(began.elapsed() < LONG, "no holder is shown with its token");
    }
    is_over.store(true, Ordering::Relaxed);
    clients.join_all().await;
    fixture.clean().await;
}

/// The names of the locks that a scan finds.
async fn found(locks: &LockManager, names: &str) -> BTreeSet<String> {
    let (mut found, mut scan) = (BTreeSet::new(), locks.scan(names));
    while let Some(lock) = scan.next().await {
        let lock = lock.unwrap();
        assert!(lock.is_held(), "{lock:?}");
        found.insert(lock.key.as_str().to_owned());
    }
    found
}

async fn a_scan_finds_the_held_locks_under_a_beginning_and_no_others(fixture: Fixture) {
    let locks = fixture.client().await;
    let (mut guards, mut expected) = (Vec::new(), BTreeSet::new());
    for number in 0..150 {
        let key = fixture.key(&format!("user:{number}"));
        guards.push(locks.lock(&key).acquire().await.unwrap());
        expected.insert(key);
    }
    // Names that only resemble those: some stores have patterns.
    let others = ["user", "users:1", "order:1", "us?r:1", "user*"].map(|name| fixture.key(name));
    for key in &others {
        guards.push(locks.lock(key).acquire().await.unwrap());
    }
    let released = fixture.key("user:released");
    locks.lock(&released).acquire().await.unwrap().release().await.unwrap();
    assert_eq!(found(&locks, &fixture.key("user:")).await, expected);
    assert_eq!(found(&locks, &fixture.key("us?r")).await, BTreeSet::from([others[3].clone()]));
    assert_eq!(found(&locks, &fixture.key("user*")).await, BTreeSet::from([others[4].clone()]));
    let all = expected.into_iter().chain(others).collect();
    assert_eq!(found(&locks, fixture.mark()).await, all);
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert_eq!(found(&locks, fixture.mark()).await, BTreeSet::new());
    fixture.clean().await;
}

async fn a_scan_sees_the_locks_of_its_prefix_alone(fixture: Fixture) {
    let (locks, key) = (fixture.client().await, fixture.key("a"));
    // What the locks of a prefix share may stay in the store, so the prefix is not one of this case alone.
    let under = locks.clone().with_prefix("scanned:").unwrap();
    let guard = under.lock(&key).acquire().await.unwrap();
    let others = ["a", "b"].map(|name| locks.lock(fixture.key(name)));
    let [other, another] = [others[0].acquire().await.unwrap(), others[1].acquire().await.unwrap()];
    assert_eq!(found(&under, fixture.mark()).await, BTreeSet::from([key.clone()]));
    assert_eq!(found(&under, &fixture.key("b")).await, BTreeSet::new());
    assert_eq!(under.inspect(&key).await.unwrap().holders[0].token(), Some(guard.fencing_token()));
    guard.release().await.unwrap();
    other.release().await.unwrap();
    another.release().await.unwrap();
    fixture.clean().await;
}

async fn a_spoilt_name_does_not_end_a_scan(fixture: Fixture) {
    let (locks, spoilt) = (fixture.client().await, fixture.key("spoilt"));
    let good = ["a", "z"].map(|name| fixture.key(name));
    let mut guards = Vec::new();
    for key in &good {
        guards.push(locks.lock(key).acquire().await.unwrap());
    }
    fixture.spoil(&spoilt);
    let found = found(&locks, fixture.mark()).await;
    assert!(good.iter().all(|key| found.contains(key)), "{found:?}");
    // What is no lock is an error or no lock, and never a hold of ours.
    if let Ok(state) = locks.inspect(&spoilt).await {
        assert!(state.holders.iter().all(lock_runtime::LockHolder::is_foreign), "{state:?}");
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
}

async fn a_store_that_is_away_is_an_outage_and_no_free_lock(fixture: Fixture) {
    let (locks, key) = (fixture.client().await, fixture.key("k"));
    let guard = locks.lock(&key).acquire().await.unwrap();
    fixture.hurt(Fault::Killed);
    let error = tokio::time::timeout(LONG, locks.inspect(&key)).await.expect("an end").unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    let mut scan = locks.scan(fixture.mark());
    let error =
        tokio::time::timeout(LONG, scan.next()).await.expect("an end").expect("an answer").unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    assert!(scan.next().await.is_none(), "a scan is over after an error");
    let token = guard.fencing_token();
    let error = tokio::time::timeout(LONG, locks.revoke(&key, token)).await.expect("an end").unwrap_err();
    assert!(matches!(error.kind(), LockErrorKind::Backend | LockErrorKind::Unsupported), "{error}");
    fixture.heal();
    drop(guard);
    tokio::time::timeout(LONG + SLACK, async {
        while locks.inspect(&key).await.is_err() {
            tokio::time::sleep(ms(50)).await;
        }
    })
    .await
    .expect("it comes back");
}
