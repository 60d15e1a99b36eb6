//! A loss is logged once, and the log and the error of the holder name the one cause that is known.

use std::{future::pending, time::Duration};

use lock_runtime::{LockErrorKind, LockGuard};

use super::{LEASES, ms};
use crate::{
    case::{Case, Need, case},
    fixture::Fixture,
    store::Fault,
    support::{traces, until},
};

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        case!(a_section_that_reaches_max_hold_says_so),
        case!(a_guard_kept_beyond_max_hold_says_so),
        case!(a_lease_that_is_not_renewed_says_so),
        case!(a_lock_that_the_store_gave_away_says_so),
        case!(a_dropped_guard_of_a_lock_that_the_store_gave_away_is_a_loss).needs(LEASES),
    ];
    for fault in [Fault::Paused, Fault::BlackHole] {
        let case = case!(a_lock_whose_store_does_not_answer_says_so, fault).under(fault);
        cases.push(case);
    }
    let fault = Fault::Down;
    let case = case!(a_lock_whose_renewals_fail_names_their_failure, fault).under(fault);
    cases.push(case.needs(LEASES).needs(Need::HoldsOutliveConnections));
    cases
}

/// Long enough for a renewal, and short for the tests.
const TTL: Duration = ms(1500);

/// Loses the guard in a section, and returns the reason, which has been logged once.
async fn reason_of_section(fixture: &Fixture, guard: LockGuard) -> String {
    let key = guard.key().to_string();
    let error = guard.run(pending::<()>()).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Lost, "{error}");
    reason(fixture, &key, &error.to_string()).await
}

/// Returns the logged reason, which the error has as well.
async fn reason(fixture: &Fixture, key: &str, error: &str) -> String {
    until("the loss is logged", || {
        let lines = traces::losses_of(key);
        if lines.is_empty() { Err(error.to_owned()) } else { Ok(()) }
    })
    .await;
    // The deadline passes as well.
    tokio::time::sleep(fixture.lease(TTL) + ms(300)).await;
    let lines = traces::losses_of(key);
    let [line] = &lines[..] else { panic!("not logged once: {lines:?}") };
    assert!(error.contains(line.as_str()), "the log says {line:?}, and the error {error:?}");
    line.clone()
}

async fn a_section_that_reaches_max_hold_says_so(fixture: Fixture) {
    let locks = fixture.client().await.max_hold(ms(200));
    let guard = locks.lock(fixture.key("k")).acquire().await.unwrap();
    let reason = reason_of_section(&fixture, guard).await;
    assert!(reason.contains("`max_hold` is reached"), "{reason}");
    fixture.clean().await;
}

async fn a_guard_kept_beyond_max_hold_says_so(fixture: Fixture) {
    let ttl = fixture.lease(TTL);
    let locks = fixture.client().await.ttl(ttl).max_hold(ms(500));
    let key = fixture.key("k");
    let guard = locks.lock(&key).acquire().await.unwrap();
    // Its lease, which is no longer renewed, ends as well.
    tokio::time::sleep(ms(500) + ttl).await;
    let error = guard.release().await.unwrap_err();
    let reason = reason(&fixture, &key, &error.to_string()).await;
    assert!(reason.contains("`max_hold` is reached"), "{reason}");
    fixture.clean().await;
}

async fn a_lease_that_is_not_renewed_says_so(fixture: Fixture) {
    let locks = fixture.client().await.ttl(fixture.lease(TTL)).auto_renew(false);
    let guard = locks.lock(fixture.key("k")).acquire().await.unwrap();
    let reason = reason_of_section(&fixture, guard).await;
    assert!(reason.contains("its `ttl` is over and `auto_renew` is off"), "{reason}");
    fixture.clean().await;
}

async fn a_lock_that_the_store_gave_away_says_so(fixture: Fixture) {
    let locks = fixture.client().await.ttl(fixture.lease(TTL));
    let key = fixture.key("k");
    let guard = locks.lock(&key).acquire().await.unwrap();
    fixture.lose(&key);
    let reason = reason_of_section(&fixture, guard).await;
    assert!(!reason.contains("deadline") && !reason.contains("max_hold"), "{reason}");
    fixture.clean().await;
}

async fn a_dropped_guard_of_a_lock_that_the_store_gave_away_is_a_loss(fixture: Fixture) {
    let locks = fixture.client().await;
    let key = fixture.key("k");
    let guard = locks.lock(&key).acquire().await.unwrap();
    fixture.lose(&key);
    drop(guard);
    reason(&fixture, &key, "the store had given it up before it was released").await;
    fixture.clean().await;
}

async fn a_lock_whose_store_does_not_answer_says_so(fixture: Fixture, fault: Fault) {
    let locks = fixture.client().await.ttl(fixture.lease(TTL));
    let guard = locks.lock(fixture.key("k")).acquire().await.unwrap();
    fixture.hurt(fault);
    let reason = reason_of_section(&fixture, guard).await;
    assert!(!reason.contains("no longer ours") && !reason.contains("max_hold"), "{reason}");
    fixture.heal();
    fixture.clean().await;
}

async fn a_lock_whose_renewals_fail_names_their_failure(fixture: Fixture, fault: Fault) {
    let locks = fixture.client().await.ttl(fixture.lease(TTL));
    let guard = locks.lock(fixture.key("k")).acquire().await.unwrap();
    fixture.hurt(fault);
    let reason = reason_of_section(&fixture, guard).await;
    assert!(reason.contains("its renewals failed: "), "{reason}");
    fixture.heal();
    fixture.clean().await;
}
