//! The effect of the options of `#[distributed_lock]` on a store. Signatures and error texts are tested in
//! `lock-macros`.

use std::{
    cell::Cell,
    future::pending,
    panic::resume_unwind,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::{Duration, Instant, SystemTime},
};

use lock_runtime::{LockError, LockErrorKind, LockManager, distributed_lock, with_manager};

use super::{LEASES, LONG, SLACK, ms};
use crate::{
    case::{Case, case},
    fixture::Fixture,
    polling::begun,
    support::stopwatch::Moment,
};

pub fn cases() -> Vec<Case> {
    vec![
        case!(the_key_names_the_lock_that_is_held),
        case!(different_values_are_different_locks),
        case!(every_way_out_of_the_body_releases),
        case!(the_lease_is_as_long_as_ttl_says).needs(LEASES),
        case!(no_wait_is_contention_and_a_wait_runs_out_in_time),
        case!(a_patient_function_runs_after_the_holder),
        case!(the_lock_comes_from_the_manager_that_is_named),
        case!(without_renewal_the_body_ends_with_the_lease).needs(LEASES),
        case!(whether_the_lease_is_renewed_is_what_the_function_says).needs(LEASES),
        case!(the_body_ends_with_max_hold),
        case!(a_function_enters_its_own_lock_only_when_reentrant),
        case!(the_body_knows_its_hold),
        case!(functions_with_opposite_keys_never_wait_for_each_other),
        case!(a_value_that_comes_twice_is_one_lock),
        case!(all_keys_are_held_or_none),
        case!(a_lock_is_kept_for_as_long_as_hold_at_least_says),
        case!(a_period_is_run_once_and_skipped_then),
    ]
}

#[distributed_lock(key = "<mark>:user/<id>")]
async fn by_key(mark: &str, id: &str, fixture: &Fixture) -> Result<(), LockError> {
    fixture.is_held(&fixture.key(&format!("user/{}", id.replace(':', "%3A")))).await;
    Ok(())
}

#[distributed_lock(key = "{<mark>}:slot:<id>")]
async fn by_hash_tag(mark: &str, id: u8, fixture: &Fixture) -> Result<(), LockError> {
    fixture.is_held(&format!("{{{mark}}}:slot:{id}")).await;
    Ok(())
}

async fn the_key_names_the_lock_that_is_held(fixture: Fixture) {
    let locks = fixture.client().await;
    with_manager(locks.clone(), by_key(fixture.mark(), "a:b", &fixture)).await.unwrap();
    with_manager(locks, by_hash_tag(fixture.mark(), 7, &fixture)).await.unwrap();
    fixture.clean().await;
}

// Pending until the test has checked that it is held.
#[distributed_lock(key = "<mark>:<a>:<b>", wait = "30s")]
async fn by_two(mark: &str, a: &str, b: &str) -> Result<(), LockError> {
    pending().await
}

async fn different_values_are_different_locks(fixture: Fixture) {
    let locks = fixture.client().await;
    let mark = fixture.mark();
    let both = async { tokio::join!(by_two(mark, "1:2", "3"), by_two(mark, "1", "2:3")) };
    let checks = async {
        fixture.is_held_soon(&fixture.key("1%3A2:3")).await;
        fixture.is_held_soon(&fixture.key("1:2%3A3")).await;
        fixture.is_free(&fixture.key("1:2:3")).await;
    };
    tokio::select! {
        _ = with_manager(locks, both) => unreachable!("they never end"),
        () = checks => {}
    }
    fixture.clean().await;
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Value,
    Error,
    Panic,
    Dropped,
}

#[distributed_lock(key = "<mark>:k")]
async fn leaves(mark: String, way: Way) -> Result<Way, LockError> {
    match way {
        Way::Value => {}
        Way::Error => Err(LockError::new(LockErrorKind::Unsupported, "the body's own"))?,
        // Like a panic, without its message.
        Way::Panic => resume_unwind(Box::new("on purpose")),
        Way::Dropped => pending().await,
    }
    Ok(way)
}

async fn every_way_out_of_the_body_releases(fixture: Fixture) {
    let locks = fixture.client().await.ttl(LONG);
    for way in [Way::Value, Way::Error, Way::Panic, Way::Dropped] {
        let call = tokio::spawn(with_manager(locks.clone(), leaves(fixture.mark().to_owned(), way)));
        if way == Way::Dropped {
            fixture.is_held_soon(&fixture.key("k")).await;
            call.abort();
        }
        match (way, call.await) {
            (Way::Value, Ok(Ok(Way::Value))) => {}
            (Way::Error, Ok(Err(error))) => assert_eq!(error.kind(), LockErrorKind::Unsupported),
            (Way::Panic, Err(error)) => assert!(error.is_panic()),
            (Way::Dropped, Err(error)) => assert!(error.is_cancelled()),
            (way, ended) => panic!("{way:?}: {ended:?}"),
        }
        fixture.clean().await;
    }
}

#[distributed_lock(key = "<mark>:k", ttl = "3s", guard = held)]
async fn with_ttl(mark: &str) -> Result<Duration, LockError> {
    Ok(held.remaining())
}

#[distributed_lock(key = "<mark>:k", ttl = ttl, guard = held)]
async fn with_computed_ttl(mark: &str, ttl: Duration) -> Result<Duration, LockError> {
    Ok(held.remaining())
}

async fn the_lease_is_as_long_as_ttl_says(fixture: Fixture) {
    let locks = fixture.client().await;
    let remaining = with_manager(locks.clone(), with_ttl(fixture.mark())).await.unwrap();
    assert!(remaining <= ms(3000) && remaining > ms(1000), "{remaining:?}");
    let computed = |ttl| with_manager(locks.clone(), with_computed_ttl(fixture.mark(), ttl));
    let remaining = computed(ms(9000)).await.unwrap();
    assert!(remaining <= ms(9000) && remaining > ms(7000), "{remaining:?}");
    for ttl in [ms(99), Duration::from_hours(25)] {
        assert_eq!(computed(ttl).await.unwrap_err().kind(), LockErrorKind::InvalidOptions);
    }
    fixture.clean().await;
}

#[distributed_lock(key = "<mark>:k", wait = "0s")]
async fn at_once(mark: &str) -> Result<(), LockError> {
    unreachable!("the lock is held")
}

#[distributed_lock(key = "<mark>:k", wait = "300ms")]
async fn soon(mark: &str) -> Result<(), LockError> {
    unreachable!("the lock is held")
}

#[distributed_lock(key = "<mark>:k", wait = "forever")]
async fn some_day(mark: String) -> Result<Instant, LockError> {
    Ok(Instant::now())
}

async fn no_wait_is_contention_and_a_wait_runs_out_in_time(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let guard = theirs.lock(fixture.key("k")).ttl(LONG).acquire().await.unwrap();
    let error = with_manager(ours.clone(), at_once(fixture.mark())).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Contended);
    let began = Moment::now();
    let error = with_manager(ours, soon(fixture.mark())).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout);
    let took = began.took();
    assert!(took.real >= ms(300) && took.within(ms(300) + SLACK), "{took:?}");
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn a_patient_function_runs_after_the_holder(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let guard = theirs.lock(fixture.key("k")).ttl(LONG).acquire().await.unwrap();
    let waiter = begun(with_manager(ours.wait(ms(1)), some_day(fixture.mark().to_owned()))).await;
    fixture.queued(&fixture.key("k"), 1).await;
    let released = Instant::now();
    guard.release().await.unwrap();
    assert!(waiter.await.unwrap().unwrap() >= released);
    fixture.clean().await;
}

#[distributed_lock(key = "<mark>:k", manager = locks, wait = "0s")]
async fn of_a_parameter(locks: &LockManager, mark: &str) -> Result<(), LockError> {
    Ok(())
}

async fn the_lock_comes_from_the_manager_that_is_named(fixture: Fixture) {
    let locks = fixture.client().await;
    let (named, scoped) =
        (locks.clone().with_prefix("named:").unwrap(), locks.with_prefix("scoped:").unwrap());
    let guard = scoped.lock(fixture.key("k")).acquire().await.unwrap();
    // It has another name, so it is free.
    with_manager(scoped.clone(), of_a_parameter(&named, fixture.mark())).await.unwrap();
    let error = with_manager(named.clone(), of_a_parameter(&scoped, fixture.mark())).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Contended);
    guard.release().await.unwrap();
    fixture.clean().await;
}

/// Records the moment of its drop.
struct Dropped<'a>(&'a Cell<Option<Moment>>);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.set(Some(Moment::now()));
    }
}

#[distributed_lock(key = "<mark>:k", ttl = "1s", auto_renew = false)]
async fn not_renewed(mark: &str, gone: &Cell<Option<Moment>>) -> Result<(), LockError> {
    let _dropped = Dropped(gone);
    pending().await
}

#[distributed_lock(key = "<mark>:k", ttl = Duration::from_secs(5), max_hold = "500ms")]
async fn capped(mark: &str, gone: &Cell<Option<Moment>>) -> Result<(), LockError> {
    let _dropped = Dropped(gone);
    pending().await
}

async fn without_renewal_the_body_ends_with_the_lease(fixture: Fixture) {
    let gone = Cell::new(None);
    let began = Moment::now();
    let error = with_manager(fixture.client().await, not_renewed(fixture.mark(), &gone)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Lost, "{error}");
    let dropped = gone.get().expect("dropped").since(began);
    assert!(dropped.real > ms(500) && dropped.within(ms(1000) + SLACK), "{dropped:?}");
    fixture.clean().await;
}

#[distributed_lock(key = "<mark>:k", ttl = ttl, auto_renew = true)]
async fn renewed(mark: &str, ttl: Duration) -> Result<(), LockError> {
    tokio::time::sleep(ttl * 5 / 2).await;
    Ok(())
}

async fn whether_the_lease_is_renewed_is_what_the_function_says(fixture: Fixture) {
    let locks = fixture.client().await;
    let ttl = fixture.lease(ms(1000));
    with_manager(locks.clone().auto_renew(false), renewed(fixture.mark(), ttl)).await.unwrap();
    let gone = Cell::new(None);
    let error = with_manager(locks.auto_renew(true), not_renewed(fixture.mark(), &gone)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Lost, "{error}");
    fixture.clean().await;
}

async fn the_body_ends_with_max_hold(fixture: Fixture) {
    let gone = Cell::new(None);
    let began = Moment::now();
    let error = with_manager(fixture.client().await, capped(fixture.mark(), &gone)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Lost, "{error}");
    let dropped = gone.get().expect("dropped").since(began);
    assert!(dropped.real > ms(200) && dropped.within(ms(500) + SLACK), "{dropped:?}");
    // The end of the lease does not free it.
    fixture.clean().await;
}

#[distributed_lock(key = "<mark>:k")]
async fn outer(mark: &str, reentrant: bool) -> Result<u8, LockError> {
    if reentrant { inner_again(mark).await } else { inner(mark).await }
}

#[distributed_lock(key = "<mark>:k")]
async fn inner(mark: &str) -> Result<u8, LockError> {
    Ok(1)
}

#[distributed_lock(key = "<mark>:k", reentrant = true)]
async fn inner_again(mark: &str) -> Result<u8, LockError> {
    Ok(2)
}

async fn a_function_enters_its_own_lock_only_when_reentrant(fixture: Fixture) {
    let locks = fixture.client().await.ttl(LONG).wait(LONG);
    let began = Moment::now();
    let error = with_manager(locks.clone(), outer(fixture.mark(), false)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::WouldDeadlock);
    assert_eq!(with_manager(locks, outer(fixture.mark(), true)).await.unwrap(), 2);
    assert!(began.within(SLACK), "{:?}", began.took());
    fixture.clean().await;
}

#[distributed_lock(key = "<mark>:k", guard = held)]
async fn knows(mark: &str, fixture: &Fixture) -> Result<lock_runtime::HeldLock, LockError> {
    assert!(held.is_valid());
    assert_eq!(held.key().as_str(), fixture.key("k"));
    let ambient = lock_runtime::current().expect("under a lock");
    assert_eq!(ambient.fencing_token(), held.fencing_token());
    Ok(held)
}

async fn the_body_knows_its_hold(fixture: Fixture) {
    let locks = fixture.client().await;
    let first = with_manager(locks.clone(), knows(fixture.mark(), &fixture)).await.unwrap();
    let second = with_manager(locks, knows(fixture.mark(), &fixture)).await.unwrap();
    assert!(!first.is_valid() && !second.is_valid(), "they ended with the functions");
    assert!(first.fencing_token() < second.fencing_token());
    assert!(lock_runtime::current().is_none());
    fixture.clean().await;
}

#[distributed_lock(keys = ["<mark>:account/<from>", "<mark>:account/<to>"], ttl = "5s", wait = "30s", guard = held)]
async fn transfer(mark: &str, from: u8, to: u8, inside: &AtomicUsize) -> Result<Vec<String>, LockError> {
    assert!(held.is_valid());
    let (first, second) = (format!("{mark}:account/{from}"), format!("{mark}:account/{to}"));
    assert_eq!(held.get(&first).expect("one of them").key().as_str(), first);
    assert!(held.get(&second).is_some() && held.get("another").is_none());
    assert_eq!(inside.fetch_add(1, SeqCst), 0, "two hold the same locks");
    tokio::time::sleep(ms(2)).await;
    inside.fetch_sub(1, SeqCst);
    Ok(held.iter().map(|held| held.key().to_string()).collect())
}

async fn functions_with_opposite_keys_never_wait_for_each_other(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let (mark, inside) = (fixture.mark(), AtomicUsize::new(0));
    let there = async {
        for _ in 0..40 {
            transfer(mark, 1, 2, &inside).await.unwrap();
        }
    };
    let back = async {
        for _ in 0..40 {
            transfer(mark, 2, 1, &inside).await.unwrap();
        }
    };
    // In one process and from two.
    let both = async { tokio::join!(there, with_manager(theirs, back)) };
    with_manager(ours, both).await;
    fixture.clean().await;
}

async fn a_value_that_comes_twice_is_one_lock(fixture: Fixture) {
    let inside = AtomicUsize::new(0);
    let call = transfer(fixture.mark(), 1, 1, &inside);
    let keys = with_manager(fixture.client().await, call).await.unwrap();
    assert_eq!(keys, [fixture.key("account/1")]);
    fixture.clean().await;
}

#[distributed_lock(keys = ["<mark>:a", "<mark>:b"], wait = "0s", on_contention = skip)]
async fn both_or_nothing(mark: &str) -> Result<Option<()>, LockError> {
    Ok(Some(()))
}

async fn all_keys_are_held_or_none(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    for key in ["a", "b"] {
        let guard = theirs.lock(fixture.key(key)).ttl(LONG).acquire().await.unwrap();
        assert_eq!(with_manager(ours.clone(), both_or_nothing(fixture.mark())).await.unwrap(), None);
        guard.release().await.unwrap();
        fixture.clean().await;
    }
    assert_eq!(with_manager(ours, both_or_nothing(fixture.mark())).await.unwrap(), Some(()));
    fixture.clean().await;
}

#[distributed_lock(key = "<mark>:k", ttl = "10s", wait = "0s", hold_at_least = "3s")]
async fn kept(mark: &str) -> Result<(), LockError> {
    Ok(())
}

async fn a_lock_is_kept_for_as_long_as_hold_at_least_says(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let least = ms(3000);
    let began = Moment::now();
    with_manager(ours.clone(), kept(fixture.mark())).await.unwrap();
    let returned = began.elapsed();
    assert!(returned < least, "the caller waited for {returned:?}");
    for locks in [ours, theirs] {
        let busy = with_manager(locks, kept(fixture.mark())).await;
        let asked = began.elapsed();
        assert!(busy.is_err() || asked >= least, "given away after {asked:?}");
    }
    fixture.clean().await;
    let freed = began.took();
    assert!(freed.real >= least && freed.within(least + SLACK), "{freed:?}");
}

#[distributed_lock(key = "<mark>:report", once_per = "24h", on_contention = skip, guard = held)]
async fn daily(mark: &str) -> Result<Option<SystemTime>, LockError> {
    Ok(held.period())
}

#[distributed_lock(key = "<mark>:report", once_per = Duration::from_hours(24))]
async fn daily_or_error(mark: &str) -> Result<(), LockError> {
    Ok(())
}

async fn a_period_is_run_once_and_skipped_then(fixture: Fixture) {
    let locks = fixture.client().await;
    let ran = with_manager(locks, daily(fixture.mark())).await.unwrap().expect("the first one runs");
    assert!(ran < SystemTime::now() + Duration::from_hours(3));
    let theirs = fixture.client().await;
    let skipped = with_manager(theirs.clone(), daily(fixture.mark())).await.unwrap();
    // At the moment at which the next period begins, it runs another one.
    assert!(skipped.is_none_or(|next| next > ran), "{skipped:?} after {ran:?}");
    let error = with_manager(theirs, daily_or_error(fixture.mark())).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::AlreadyRun, "{error}");
}
