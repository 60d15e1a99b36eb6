//! The store does not answer for a while: nothing hangs, no holder trusts its lock for too long, and the client
//! recovers without help.

use std::time::{Duration, Instant};

use lock_runtime::{LockErrorKind, LockManager};
use tracing::Level;

use super::{LONG, SLACK, ms};
use crate::{
    case::{Case, Need, case},
    fixture::Fixture,
    polling::{begun, drop_after},
    store::Fault,
    support::{repeat, stopwatch::Moment, traces, until},
};

/// Each is an outage that lasts until it is healed; none of them loses data.
pub const OUTAGES: [Fault; 5] =
    [Fault::Down, Fault::Paused, Fault::BlackHole, Fault::AnswersHeld, Fault::RequestsHeld];

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = OUTAGES
        .into_iter()
        .flat_map(|fault| {
            [
                case!(acquire_ends_by_its_deadline_and_says_that_the_store_failed, fault),
                case!(one_attempt_ends_and_says_that_the_store_failed, fault),
                case!(a_waiter_is_told_that_the_store_failed, fault),
                case!(a_waiter_behind_another_is_told_that_the_store_failed, fault),
                case!(loss_is_signalled_before_the_lease_ends, fault),
                case!(it_heals_without_a_restart, fault),
                case!(a_waiter_gets_the_lock_after_the_outage, fault),
                case!(a_release_that_failed_happens_after_the_outage, fault),
                case!(a_guard_dropped_meanwhile_is_released_after_the_outage, fault),
                case!(guards_dropped_meanwhile_are_free_as_soon_as_the_store_is_back, fault),
                case!(an_acquire_dropped_meanwhile_leaves_nothing, fault),
                case!(an_acquire_that_failed_leaves_nothing, fault),
                case!(a_client_made_meanwhile_fails_in_time, fault),
                case!(a_client_made_meanwhile_without_connecting_heals, fault),
                case!(the_log_tells_its_beginning_once_and_its_end_once, fault).needs(Need::Connections),
            ]
            .map(|case| case.under(fault))
        })
        .collect();
    cases.extend(OUTAGES.map(|fault| {
        let case = case!(a_body_keeps_its_result_although_its_release_fails, fault).under(fault);
        // Otherwise the body ends with its hold.
        if fault.breaks_connections() { case.needs(Need::HoldsOutliveConnections) } else { case }
    }));
    cases.extend(OUTAGES.map(|fault| {
        let case = case!(an_outage_shorter_than_the_lease_costs_nothing, fault).under(fault);
        // A connection that went mute is closed in the end.
        let lasts = !fault.breaks_connections() && fault != Fault::BlackHole;
        if lasts { case } else { case.needs(Need::HoldsOutliveConnections) }
    }));
    cases.extend(
        [
            case!(acquire_ends_by_its_deadline_and_says_that_the_store_failed, Fault::Killed),
            case!(loss_is_signalled_before_the_lease_ends, Fault::Killed),
            case!(it_heals_without_a_restart, Fault::Killed),
        ]
        .map(|case| case.under(Fault::Killed)),
    );
    cases
}

/// A client whose connections exist.
async fn warm(fixture: &Fixture) -> LockManager {
    let locks = fixture.client().await;
    locks.lock(fixture.key("warm")).ttl(LONG).acquire().await.unwrap().release().await.unwrap();
    locks
}

async fn acquire_ends_by_its_deadline_and_says_that_the_store_failed(fixture: Fixture, fault: Fault) {
    let locks = warm(&fixture).await;
    fixture.hurt(fault);
    for wait in [ms(300), ms(1200)] {
        let began = Moment::now();
        let error = locks.lock(fixture.key("k")).wait(wait).acquire().await.unwrap_err();
        let took = began.took();
        assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
        assert!(error.is_retryable());
        assert!(took.within(wait + SLACK), "{took:?} instead of {wait:?}");
    }
    fixture.heal();
}

async fn one_attempt_ends_and_says_that_the_store_failed(fixture: Fixture, fault: Fault) {
    let locks = warm(&fixture).await;
    fixture.hurt(fault);
    let began = Moment::now();
    let error = locks.lock(fixture.key("k")).ttl(fixture.lease(ms(2000))).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    assert!(began.within(ms(5000) + SLACK), "{:?}", began.took());
    fixture.heal();
}

async fn a_waiter_is_told_that_the_store_failed(fixture: Fixture, fault: Fault) {
    let (ours, theirs) = (warm(&fixture).await, warm(&fixture).await);
    let key = fixture.key("k");
    let guard = theirs.lock(&key).ttl(LONG).acquire().await.unwrap();
    // One waits in the store, one behind it in the process.
    let mut waiters = Vec::new();
    for _ in 0..2 {
        let lock = ours.lock(&key).ttl(LONG).wait(ms(3000));
        waiters.push(begun(async move { lock.acquire().await.map(drop) }).await);
    }
    fixture.queued(&key, 1).await;
    fixture.hurt(fault);
    let began = Moment::now();
    let mut kinds = Vec::new();
    for waiter in waiters {
        kinds.push(waiter.await.unwrap().unwrap_err().kind());
    }
    assert_eq!(kinds[0], LockErrorKind::Backend, "an outage is not contention");
    // The waiter behind it knows only that the one in front still waits.
    assert!(matches!(kinds[1], LockErrorKind::Backend | LockErrorKind::Timeout), "{kinds:?}");
    assert!(began.within(ms(3000) + SLACK), "{:?}", began.took());
    fixture.heal();
    drop(guard);
    fixture.clean().await;
}

async fn a_waiter_behind_another_is_told_that_the_store_failed(fixture: Fixture, fault: Fault) {
    let locks = warm(&fixture).await;
    let key = fixture.key("k");
    fixture.hurt(fault);
    let lock = locks.lock(&key).wait(ms(5000));
    let leader = begun(async move { lock.acquire().await.map(drop) }).await;
    // Before the store has failed for the first time, and after it.
    let mut waiters = Vec::new();
    for wait in [ms(100), ms(1000), ms(2500), ms(4500)] {
        let lock = locks.lock(&key).wait(wait);
        waiters.push(begun(async move { lock.acquire().await.map(drop) }).await);
    }
    for waiter in waiters {
        let error = waiter.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Backend, "it is not held: {error}");
    }
    assert_eq!(leader.await.unwrap().unwrap_err().kind(), LockErrorKind::Backend);
    fixture.heal();
    fixture.clean().await;
}

async fn loss_is_signalled_before_the_lease_ends(fixture: Fixture, fault: Fault) {
    let locks = warm(&fixture).await;
    let ttl = fixture.lease(ms(2000));
    let guard = locks.lock(fixture.key("k")).ttl(ttl).acquire().await.unwrap();
    tokio::time::sleep(ms(100)).await;
    fixture.hurt(fault);
    let began = Moment::now();
    guard.lost().await;
    // The last renewal that can have reached the store was sent before the outage.
    assert!(began.within(ttl), "only after {:?}", began.took());
    assert!(!guard.is_valid());
    fixture.heal();
    // It stays lost, although the store may still know it as ours.
    tokio::time::sleep(ms(200)).await;
    assert!(!guard.is_valid());
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error.kind(), LockErrorKind::Lost | LockErrorKind::Backend), "{error}");
    fixture.clean().await;
}

async fn an_outage_shorter_than_the_lease_costs_nothing(fixture: Fixture, fault: Fault) {
    let (locks, ttl) = fixture.client_that_keeps(ms(6000)).await;
    locks.lock(fixture.key("warm")).ttl(LONG).acquire().await.unwrap().release().await.unwrap();
    let key = fixture.key("k");
    let guard = locks.lock(&key).ttl(ttl).acquire().await.unwrap();
    // Covers the whole first renewal attempt, which begins after a third of the lease and has two ninths of it.
    tokio::time::sleep(ttl * 5 / 16).await;
    fixture.hurt(fault);
    tokio::time::sleep(ttl / 4).await;
    fixture.heal();
    let began = Instant::now();
    while began.elapsed() < ttl * 5 / 4 {
        assert!(guard.is_valid(), "lost {:?} after the healing", began.elapsed());
        tokio::time::sleep(ms(20)).await;
    }
    // A mute connection from the outage may be noticed only now; the release happens all the same.
    if let Err(error) = guard.release().await {
        fixture.was_not_confirmed(&error);
    }
    fixture.clean().await;
}

async fn it_heals_without_a_restart(fixture: Fixture, fault: Fault) {
    let locks = warm(&fixture).await;
    for round in 0..2 {
        fixture.hurt(fault);
        let key = fixture.key(&round.to_string());
        let error = locks.lock(&key).wait(ms(700)).acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
        fixture.heal();
        let healed = Moment::now();
        let guard = locks.lock(&key).wait(LONG).acquire().await.unwrap();
        assert!(healed.within(ms(5000)), "only after {:?}", healed.took());
        guard.release().await.unwrap();
        fixture.clean().await;
    }
}

async fn a_waiter_gets_the_lock_after_the_outage(fixture: Fixture, fault: Fault) {
    let (ours, theirs) = (warm(&fixture).await, warm(&fixture).await);
    let key = fixture.key("k");
    let guard = ours.lock(&key).ttl(LONG).acquire().await.unwrap();
    let mut waiters = Vec::new();
    for locks in [&theirs, &theirs, &ours] {
        let lock = locks.lock(&key).ttl(LONG).wait(LONG);
        waiters.push(begun(async move { lock.acquire().await.unwrap().release().await }).await);
    }
    fixture.queued(&key, 1).await;
    fixture.hurt(fault);
    tokio::time::sleep(ms(700)).await;
    fixture.heal();
    let healed = Moment::now();
    // Held until then, because the outage was shorter than the lease.
    let _ = guard.release().await;
    for waiter in waiters {
        let _ = waiter.await.unwrap();
    }
    assert!(healed.within(ms(10_000)), "only after {:?}", healed.took());
    fixture.clean().await;
}

async fn a_release_that_failed_happens_after_the_outage(fixture: Fixture, fault: Fault) {
    let locks = warm(&fixture).await;
    let key = fixture.key("k");
    let guard = locks.lock(&key).ttl(LONG).acquire().await.unwrap();
    fixture.hurt(fault);
    let began = Moment::now();
    // A store that only slows down may answer in the end; an endless wait is not acceptable.
    let released = tokio::time::timeout(LONG, guard.release()).await.expect("a release does not hang");
    fixture.was_not_confirmed(&released.unwrap_err());
    assert!(began.within(ms(5000) + SLACK), "{:?}", began.took());
    fixture.heal();
    fixture.is_clean_and_free(&key).await;
}

async fn a_body_keeps_its_result_although_its_release_fails(fixture: Fixture, fault: Fault) {
    let locks = warm(&fixture).await;
    let key = fixture.key("k");
    let guard = locks.lock(&key).ttl(LONG).acquire().await.unwrap();
    let hurt = || fixture.hurt(fault);
    let result = tokio::time::timeout(
        LONG,
        guard.run(async {
            hurt();
            "done"
        }),
    )
    .await
    .expect("it does not hang");
    assert_eq!(result.unwrap(), "done");
    fixture.heal();
    fixture.is_clean_and_free(&key).await;
}

async fn a_guard_dropped_meanwhile_is_released_after_the_outage(fixture: Fixture, fault: Fault) {
    let locks = warm(&fixture).await;
    let key = fixture.key("k");
    let guard = locks.lock(&key).ttl(LONG).acquire().await.unwrap();
    fixture.hurt(fault);
    drop(guard);
    tokio::time::sleep(ms(500)).await;
    fixture.heal();
    fixture.is_clean_and_free(&key).await;
}

/// However long their leases still last, and however long the outage was.
async fn guards_dropped_meanwhile_are_free_as_soon_as_the_store_is_back(fixture: Fixture, fault: Fault) {
    let locks = warm(&fixture).await.ttl(Duration::from_mins(10));
    let mut guards = Vec::new();
    for number in 0..100 {
        guards.push(locks.lock(fixture.key(&number.to_string())).acquire().await.unwrap());
    }
    let last = guards.split_off(50);
    fixture.hurt(fault);
    drop(guards);
    tokio::time::sleep(ms(3000)).await;
    // The earlier releases have been tried by now; these hang or fail when the store comes back.
    drop(last);
    tokio::time::sleep(ms(100)).await;
    fixture.heal();
    let back = back(&fixture, &locks).await;
    fixture.clean().await;
    assert!(back.within(ms(500)), "only after {:?}", back.took());
}

/// Returns the moment at which the store is back for a client: after the healing, or when its session is connected
/// again, for which the driver has pauses of its own.
pub async fn back(fixture: &Fixture, locks: &LockManager) -> Moment {
    if fixture.declared().session_timeout().is_some() {
        locks.lock(fixture.key("back")).wait(LONG).acquire().await.unwrap().release().await.unwrap();
    }
    Moment::now()
}

async fn an_acquire_dropped_meanwhile_leaves_nothing(fixture: Fixture, fault: Fault) {
    let locks = warm(&fixture).await;
    let key = fixture.key("k");
    for polls in 1..4 {
        fixture.hurt(fault);
        let lock = locks.lock(&key).ttl(LONG).wait(LONG);
        assert!(drop_after(lock.acquire(), polls).await.is_none());
        fixture.heal();
        // Its request may arrive only now; a round trip of the same client comes after it.
        locks.lock(fixture.key("other")).wait(LONG).acquire().await.unwrap().release().await.unwrap();
        fixture.clean().await;
    }
    fixture.is_free(&key).await;
    fixture.clean().await;
}

async fn an_acquire_that_failed_leaves_nothing(fixture: Fixture, fault: Fault) {
    let locks = warm(&fixture).await;
    let key = fixture.key("k");
    fixture.hurt(fault);
    // The store may still execute a pending request: Redis for a second.
    let error = locks.lock(&key).ttl(LONG).wait(ms(100)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    fixture.heal();
    // The pending request may arrive only now; a successful round trip of the same client comes after it.
    locks.lock(fixture.key("other")).wait(LONG).acquire().await.unwrap().release().await.unwrap();
    fixture.is_clean_and_free(&key).await;
}

async fn a_client_made_meanwhile_fails_in_time(fixture: Fixture, fault: Fault) {
    let url = fixture.url();
    fixture.hurt(fault);
    let began = Moment::now();
    let made = tokio::time::timeout(LONG, fixture.connect(url)).await.expect("connecting does not hang");
    // A store without a server is made at once.
    if let Err(error) = made {
        assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
        assert!(error.is_retryable());
        assert!(error.to_string().len() > 20, "the text gives no help: {error}");
    }
    assert!(began.within(Duration::from_secs(10) + SLACK), "{:?}", began.took());
    fixture.heal();
    fixture.client().await;
}

async fn a_client_made_meanwhile_without_connecting_heals(fixture: Fixture, fault: Fault) {
    fixture.hurt(fault);
    let locks = fixture.connect_lazy().expect("the URL is understood");
    let ping = tokio::time::timeout(LONG, locks.ping()).await.expect("it does not hang");
    assert_eq!(ping.expect_err("nothing answers").kind(), LockErrorKind::Backend);
    let began = Moment::now();
    let error = locks.lock(fixture.key("k")).wait(ms(1000)).acquire().await.expect_err("nothing answers");
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    assert!(error.is_retryable() && began.took().within(ms(1000) + SLACK), "{:?}", began.took());
    let lock = locks.lock(fixture.key("k")).ttl(LONG).wait(LONG);
    let waiting = begun(async move { lock.acquire().await }).await;
    tokio::time::sleep(ms(300)).await;
    fixture.heal();
    waiting.await.unwrap().expect("the store is back").release().await.expect("held");
    locks.ping().await.expect("the store is back");
    fixture.clean().await;
}

async fn the_log_tells_its_beginning_once_and_its_end_once(fixture: Fixture, fault: Fault) {
    let locks = warm(&fixture).await;
    let url = fixture.url();
    let address = url.split_once("//").expect("a server has an address").1;
    // Of several servers, the first; without a database.
    let end = address.find(['?', '|', '/']).unwrap_or(address.len());
    let address = &address[address[..end].find('@').map_or(0, |at| at + 1)..end];
    let guard = locks.lock(fixture.key("held")).ttl(LONG).acquire().await.expect("free");
    let told = || traces::outages_of(address);
    // On a busy machine there may be another outage: one before, whose end is logged late, or one between a connection that
    // was made just before the fault and one that is made after the fault is noticed.
    repeat(3, async || {
        let start = told().len();
        for _ in 0..2 {
            let before = told().len();
            fixture.hurt(fault);
            while told().len() == before {
                let asked = (0..8).map(|n| {
                    let lock = locks.lock(fixture.key(&format!("k{n}"))).wait(ms(1000));
                    tokio::spawn(async move { lock.acquire().await.map(drop) })
                });
                for asked in asked.collect::<Vec<_>>() {
                    asked.await.unwrap().expect_err("nothing answers");
                }
            }
            fixture.heal();
            locks
                .lock(fixture.key("after"))
                .wait(LONG)
                .acquire()
                .await
                .expect("it is back")
                .release()
                .await
                .unwrap();
            until("the end is logged", || if told().len() < before + 2 { Err(told()) } else { Ok(()) }).await;
        }
        let told = &told()[start..];
        assert!(told.len() <= 6, "one other outage at most: {told:?}");
        let is_each_once = *told == [Level::WARN, Level::INFO, Level::WARN, Level::INFO];
        if is_each_once { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await;
    drop(guard);
}
