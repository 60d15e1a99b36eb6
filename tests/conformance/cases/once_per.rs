//! `once_per`: a lock is acquired at most once in each period, and an acquisition that fails uses up no period.

use std::{
    ops::Range,
    pin::pin,
    time::{Duration, Instant, SystemTime},
};

use lock_runtime::{LockError, LockErrorKind, LockGuard, LockManager};

use super::{LONG, SLACK, forget, ms};
use crate::{
    case::{Case, Need, case},
    fixture::Fixture,
    polling::{MANY_POLLS, begun, drop_after},
    support::{PATIENCE, wall_clock::Clock},
};

const HOUR: Duration = Duration::from_hours(1);
const SHARED: Need = Need::Can(|can| can.is_shared_between_processes());

pub fn cases() -> Vec<Case> {
    vec![
        case!(one_of_six_clients_runs_a_period),
        case!(each_period_is_run_and_none_twice),
        case!(a_lock_that_another_client_holds_leaves_the_period),
        case!(a_period_whose_winner_died_is_not_run_again),
        case!(a_dropped_acquisition_leaves_the_period),
        case!(a_dropped_wait_for_the_lock_leaves_the_period),
        case!(an_unpolled_acquisition_leaves_the_period),
        case!(a_shutdown_leaves_the_period_of_a_waiter),
        case!(the_longest_period_is_marked),
        case!(bounds_and_calls_without_periods),
        case!(the_section_that_runs_the_period_does_not_wait_for_itself),
        case!(a_section_without_a_period_runs_none),
        case!(another_length_has_periods_of_its_own),
        case!(operators_see_no_mark).needs(Need::Can(|can| can.shows_locks())),
        case!(nothing_is_left_after_the_period),
        case!(clocks_may_differ_by_less_than_a_tenth).needs(SHARED),
        case!(a_start_in_the_last_tenth_counts_for_the_next_period).needs(SHARED),
    ]
}

pub(super) fn unix_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

/// A period of an hour or a little more, in whose first half we are for the rest of the case.
pub(super) fn calm_period() -> Duration {
    period_in_phase(20..50)
}

/// A length of whose present period these hundredths are over.
fn period_in_phase(hundredths: Range<u64>) -> Duration {
    let now = unix_time().as_secs();
    let is_in_phase = |length: &u64| hundredths.contains(&(now % length * 100 / length));
    Duration::from_secs(
        (HOUR.as_secs()..2 * HOUR.as_secs()).find(is_in_phase).expect("the lengths differ in their phases"),
    )
}

/// The beginning of the period for which a start counts, `now` after the beginning of 1970.
pub(super) fn beginning(now: Duration, length: Duration) -> SystemTime {
    let number = (now + length / 10).as_nanos() / length.as_nanos();
    SystemTime::UNIX_EPOCH + length * u32::try_from(number).unwrap()
}

pub(super) async fn once(locks: &LockManager, key: &str, period: Duration) -> Result<LockGuard, LockError> {
    locks.lock(key).ttl(LONG).wait(LONG).once_per(period).acquire().await
}

/// Asserts that the period was run.
pub(super) async fn is_used(locks: &LockManager, key: &str, period: Duration) {
    let error = once(locks, key, period).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::AlreadyRun, "{error}");
}

/// Asserts that the period can still be run, as soon as a mark in doubt is removed.
pub(super) async fn is_left(locks: &LockManager, key: &str, period: Duration) -> LockGuard {
    let began = Instant::now();
    loop {
        match once(locks, key, period).await {
            Ok(guard) => {
                assert_eq!(guard.period(), Some(beginning(unix_time(), period)));
                return guard;
            }
            Err(error) => assert!(began.elapsed() < PATIENCE, "still {error}"),
        }
        tokio::time::sleep(ms(20)).await;
    }
}

async fn one_of_six_clients_runs_a_period(fixture: Fixture) {
    let period = calm_period();
    for prepared in [false, true] {
        let key = fixture.key(if prepared { "prepared" } else { "first" });
        let mut clients = Vec::new();
        for _ in 0..6 {
            let locks = fixture.client().await;
            if prepared {
                drop(locks.lock(fixture.key("other")).wait(LONG).acquire().await.unwrap());
            }
            clients.push(locks);
        }
        let mut starts = Vec::new();
        for locks in &clients {
            let lock = locks.lock(&key).ttl(LONG).wait(LONG).once_per(period);
            starts.push(tokio::spawn(async move { lock.acquire().await }));
        }
        let mut ran = 0;
        for start in starts {
            match start.await.unwrap() {
                Ok(guard) => {
                    ran += 1;
                    assert_eq!(guard.period(), Some(beginning(unix_time(), period)));
                    assert_eq!(guard.held().period(), guard.period());
                    guard.release().await.unwrap();
                }
                Err(error) => {
                    assert_eq!(error.kind(), LockErrorKind::AlreadyRun, "{error}");
                    assert_eq!(error.key().map(lock_runtime::LockKey::as_str), Some(&*key));
                    assert!(error.to_string().contains("ran already in this period"), "{error}");
                    let next = error.retry_after().expect("the time until the next period");
                    assert!(next < period && next > period / 3, "{next:?}");
                    assert!(error.is_retryable());
                }
            }
        }
        assert_eq!(ran, 1);
        for locks in &clients {
            is_used(locks, &key, period).await;
            let error = locks.lock(&key).once_per(period).try_acquire().await.unwrap_err();
            assert_eq!(error.kind(), LockErrorKind::AlreadyRun, "{error}");
        }
        // The lock itself is free, and another length has other periods.
        let guard = clients[0].lock(&key).try_acquire().await.unwrap().expect("free");
        assert_eq!(guard.period(), None);
        guard.release().await.unwrap();
    }
}

async fn each_period_is_run_and_none_twice(fixture: Fixture) {
    let clients = [fixture.client().await, fixture.client().await];
    let (key, period) = (fixture.key("k"), ms(1500));
    let mut ran: Vec<SystemTime> = Vec::new();
    let mut skipped = 0;
    let began = Instant::now();
    while ran.len() < 5 {
        assert!(began.elapsed() < PATIENCE, "{ran:?}");
        for locks in &clients {
            let before = beginning(unix_time(), period);
            match once(locks, &key, period).await {
                Ok(guard) => {
                    let of = guard.period().unwrap();
                    assert!(of >= before && of <= beginning(unix_time(), period));
                    assert!(ran.last().is_none_or(|last| *last < of), "{of:?} after {ran:?}");
                    ran.push(of);
                    guard.release().await.unwrap();
                }
                Err(error) => {
                    assert_eq!(error.kind(), LockErrorKind::AlreadyRun, "{error}");
                    assert!(ran.last().is_some_and(|last| *last >= before), "{before:?} after {ran:?}");
                    skipped += 1;
                }
            }
        }
        tokio::time::sleep(ms(20)).await;
    }
    assert!(skipped > 0, "each start has run");
}

async fn a_lock_that_another_client_holds_leaves_the_period(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let (key, period) = (fixture.key("k"), calm_period());
    let guard = theirs.lock(&key).ttl(LONG).acquire().await.unwrap();
    let lock = ours.lock(&key).ttl(LONG).once_per(period);
    let error = lock.clone().wait(ms(300)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
    ours.ping().await.unwrap();
    // The mark of the first attempt may still be there for a moment.
    let began = Instant::now();
    loop {
        match lock.try_acquire().await {
            Ok(None) => break,
            Ok(Some(_)) => panic!("it is held"),
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
        tokio::time::sleep(ms(20)).await;
    }
    // A start that waits for the run before it runs its own period.
    let waiting = async {
        loop {
            match lock.clone().wait(LONG).acquire().await {
                Ok(guard) => return guard,
                Err(error) => assert_ne!(error.kind(), LockErrorKind::Timeout, "{error}"),
            }
            tokio::time::sleep(ms(20)).await;
        }
    };
    let held_for_a_while = async {
        tokio::time::sleep(ms(500)).await;
        guard.release().await.unwrap();
    };
    let (ran, ()) = tokio::join!(waiting, held_for_a_while);
    is_used(&theirs, &key, period).await;
    ran.release().await.unwrap();
    is_used(&theirs, &key, period).await;
}

async fn a_period_whose_winner_died_is_not_run_again(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let period = calm_period();
    let lost = fixture.key("lost");
    let guard = once(&ours, &lost, period).await.unwrap();
    fixture.lose(&lost);
    is_used(&theirs, &lost, period).await;
    drop(guard);
    is_used(&theirs, &lost, period).await;
    let dead = fixture.key("dead");
    let lease = fixture.lease(ms(500));
    let locks = fixture.client_for_leases_of(lease).await;
    let lock = locks.lock(&dead).ttl(lease).wait(LONG).auto_renew(false).once_per(period);
    forget(lock.acquire().await.unwrap());
    let free = theirs.lock(&dead).wait(LONG);
    if fixture.declared().session_timeout().is_none() {
        free.acquire().await.unwrap().release().await.unwrap();
    }
    is_used(&theirs, &dead, period).await;
}

async fn a_dropped_acquisition_leaves_the_period(fixture: Fixture) {
    let other = fixture.client().await;
    for prepared in [false, true] {
        for polls in 0.. {
            let (key, period) = (fixture.key(&format!("{prepared}{polls}")), calm_period());
            let locks = fixture.client().await;
            if prepared {
                let key = fixture.key(&format!("{polls}"));
                once(&locks, &key, period).await.unwrap().release().await.unwrap();
            }
            if let Some(ran) = drop_after(once(&locks, &key, period), polls).await {
                ran.unwrap().release().await.unwrap();
                is_used(&other, &key, period).await;
                break;
            }
            is_left(&other, &key, period).await.release().await.unwrap();
            assert!(polls < MANY_POLLS, "never ready");
        }
    }
}

async fn a_dropped_wait_for_the_lock_leaves_the_period(fixture: Fixture) {
    let (holder, ours, theirs) = (fixture.client().await, fixture.client().await, fixture.client().await);
    for polls in [2, 5, 9, 20] {
        let (key, period) = (fixture.key(&polls.to_string()), calm_period());
        let guard = holder.lock(&key).ttl(LONG).acquire().await.unwrap();
        assert!(drop_after(once(&ours, &key, period), polls).await.is_none(), "it is held");
        guard.release().await.unwrap();
        is_left(&theirs, &key, period).await.release().await.unwrap();
    }
}

async fn an_unpolled_acquisition_leaves_the_period(fixture: Fixture) {
    let (holder, ours, theirs) = (fixture.client().await, fixture.client().await, fixture.client().await);
    let period = calm_period();
    for is_held in [false, true] {
        let key = fixture.key(&is_held.to_string());
        let mut guard = None;
        if is_held {
            guard = Some(holder.lock(&key).ttl(LONG).acquire().await.unwrap());
        }
        let mut kept = pin!(once(&ours, &key, period));
        // It may be ready, at a store within this process.
        let polls = if is_held { 20 } else { 1 };
        if drop_after(kept.as_mut(), polls).await.is_some() {
            continue;
        }
        if let Some(guard) = guard {
            guard.release().await.unwrap();
        }
        is_left(&theirs, &key, period).await.release().await.unwrap();
        // It starts over, and finds the period run.
        let error = kept.await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::AlreadyRun, "{error}");
    }
}

async fn a_shutdown_leaves_the_period_of_a_waiter(fixture: Fixture) {
    let (holder, ours, theirs) = (fixture.client().await, fixture.client().await, fixture.client().await);
    let (key, period) = (fixture.key("k"), calm_period());
    let guard = holder.lock(&key).ttl(LONG).acquire().await.unwrap();
    let lock = ours.lock(&key).ttl(LONG).wait(LONG).once_per(period);
    let waiter = begun(async move { lock.acquire().await.map(drop) }).await;
    fixture.queued(&key, 1).await;
    ours.shutdown().await;
    assert_eq!(waiter.await.unwrap().unwrap_err().kind(), LockErrorKind::ShutDown);
    guard.release().await.unwrap();
    // The shutdown has waited for the removal of the mark.
    once(&theirs, &key, period).await.unwrap().release().await.unwrap();
}

async fn the_longest_period_is_marked(fixture: Fixture) {
    let locks = fixture.client().await;
    for days in [1, 7, 31] {
        let (key, period) = (fixture.key(&days.to_string()), Duration::from_hours(24 * days));
        // The last minute before a start counts for the next period is no time for this case.
        while beginning(unix_time(), period) != beginning(unix_time() + Duration::from_secs(20), period) {
            tokio::time::sleep(ms(500)).await;
        }
        let guard = once(&locks, &key, period).await.unwrap();
        assert_eq!(guard.period(), Some(beginning(unix_time(), period)));
        guard.release().await.unwrap();
        is_used(&fixture.client().await, &key, period).await;
    }
}

async fn bounds_and_calls_without_periods(fixture: Fixture) {
    let locks = fixture.client().await;
    let key = fixture.key("k");
    for period in [Duration::ZERO, ms(999), Duration::from_hours(31 * 24) + ms(1), Duration::MAX] {
        let error = once(&locks, &key, period).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::InvalidOptions, "{error}");
        assert!(error.to_string().contains("from 1s to 31 days"), "{error}");
    }
    let error = locks.lock(&key).once_per(HOUR).lead(async |_| ()).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::InvalidOptions, "{error}");
    assert!(error.to_string().contains("once_per"), "{error}");
    let error = locks.lock("a\nb").once_per(HOUR).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::InvalidKey, "{error}");
    fixture.clean().await;
}

async fn the_section_that_runs_the_period_does_not_wait_for_itself(fixture: Fixture) {
    let locks = fixture.client().await;
    let (key, period) = (fixture.key("k"), calm_period());
    let guard = once(&locks, &key, period).await.unwrap();
    let ran = guard.period();
    let section = async {
        let lock = locks.lock(&key).once_per(period);
        let error = lock.acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::WouldDeadlock, "{error}");
        let again = lock.reentrant(true).acquire().await.unwrap();
        assert_eq!(again.period(), ran);
        assert_eq!(lock_runtime::current().and_then(|held| held.period()), ran);
        again.release().await.unwrap();
    };
    guard.run(section).await.unwrap();
    is_used(&locks, &key, period).await;
}

async fn a_section_without_a_period_runs_none(fixture: Fixture) {
    let locks = fixture.client().await;
    let (key, period) = (fixture.key("k"), calm_period());
    let guard = locks.lock(&key).acquire().await.unwrap();
    let section = async {
        let error = locks.lock(&key).reentrant(true).once_per(period).acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::WouldDeadlock, "{error}");
        assert!(error.to_string().contains("`once_per`"), "{error}");
    };
    guard.run(section).await.unwrap();
    once(&locks, &key, period).await.unwrap().release().await.unwrap();
}

/// A shorter one counts with larger numbers, and the mark of a longer one would last far longer.
async fn another_length_has_periods_of_its_own(fixture: Fixture) {
    let locks = fixture.client().await;
    let (key, period) = (fixture.key("k"), calm_period());
    let lengths = [period, 24 * period, period + ms(1), 2 * period];
    for length in lengths {
        once(&locks, &key, length).await.unwrap().release().await.unwrap();
    }
    for length in lengths {
        is_used(&locks, &key, length).await;
    }
}

async fn operators_see_no_mark(fixture: Fixture) {
    let locks = fixture.client().await;
    let (key, period) = (fixture.key("k"), calm_period());
    let mut guard = Some(once(&locks, &key, period).await.unwrap());
    loop {
        let mut scan = locks.scan(fixture.mark());
        let mut found = Vec::new();
        while let Some(lock) = scan.next().await {
            found.push(lock.unwrap().key.to_string());
        }
        assert_eq!(found, if guard.is_some() { vec![key.clone()] } else { vec![] });
        let state = locks.inspect(&key).await.unwrap();
        assert_eq!(state.is_held(), guard.is_some());
        assert!(state.waiters.is_empty(), "{state:?}");
        match guard.take() {
            Some(guard) => guard.release().await.unwrap(),
            None => break,
        }
    }
    for parity in 0..2 {
        let error = locks.inspect(format!("{key}:~once:{period:?}:{parity}")).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::InvalidKey, "{error}");
    }
}

async fn nothing_is_left_after_the_period(fixture: Fixture) {
    let locks = fixture.client().await;
    let (key, period) = (fixture.key("k"), ms(1000));
    let guard = once(&locks, &key, period).await.unwrap();
    let over = guard.period().unwrap() + period * 6 / 5;
    guard.release().await.unwrap();
    tokio::time::sleep(over.duration_since(SystemTime::now()).unwrap_or_default()).await;
    let began = Instant::now();
    while !fixture.left().is_empty() {
        assert!(began.elapsed() < SLACK, "{:?}", fixture.left());
        tokio::time::sleep(ms(20)).await;
    }
    once(&locks, &key, period).await.unwrap().release().await.unwrap();
}

async fn clocks_may_differ_by_less_than_a_tenth(fixture: Fixture) {
    let locks = fixture.client().await;
    let clock = Clock::new();
    let mut other = fixture.client_process_with_clock(&clock).await;
    let period = calm_period();
    let jumps: [fn(&Clock, Duration); 2] = [Clock::set_forward, Clock::set_back];
    for (number, jump) in jumps.into_iter().enumerate() {
        jump(&clock, (period / 10).saturating_sub(ms(1000)));
        let key = fixture.key(&format!("ours{number}"));
        once(&locks, &key, period).await.unwrap().release().await.unwrap();
        assert_eq!(other.run_once(&key, period).await, Err("AlreadyRun".into()));
        let key = fixture.key(&format!("theirs{number}"));
        let ran = other.run_once(&key, period).await.unwrap();
        assert_eq!(SystemTime::UNIX_EPOCH + ran, beginning(unix_time(), period));
        is_used(&locks, &key, period).await;
    }
    // Between the periods, where the clocks differ about which one it is.
    let period = period_in_phase(92..94);
    let tenth = (period / 10).saturating_sub(ms(1000));
    let key = fixture.key("between");
    clock.set_back(period / 2);
    let present = other.run_once(&key, period).await.unwrap();
    let guard = once(&locks, &key, period).await.unwrap();
    assert_eq!(guard.period(), Some(SystemTime::UNIX_EPOCH + present + period));
    guard.release().await.unwrap();
    for jump in jumps {
        jump(&clock, tenth);
        assert_eq!(other.run_once(&key, period).await, Err("AlreadyRun".into()));
    }
}

async fn a_start_in_the_last_tenth_counts_for_the_next_period(fixture: Fixture) {
    let clock = Clock::new();
    let mut other = fixture.client_process_with_clock(&clock).await;
    let (key, period) = (fixture.key("k"), calm_period());
    let phase = Duration::from_nanos((unix_time().as_nanos() % period.as_nanos()).try_into().unwrap());
    let present = other.run_once(&key, period).await.unwrap();
    // In the last tenth, and then in the next period.
    let to_the_end = period.saturating_sub(phase);
    let moves = [to_the_end.saturating_sub(period / 20), to_the_end + period / 20];
    for (number, moved) in moves.into_iter().enumerate() {
        clock.set_forward(moved);
        let ran = other.run_once(&key, period).await;
        if number == 0 {
            assert_eq!(ran, Ok(present + period));
        } else {
            assert_eq!(ran, Err("AlreadyRun".into()));
        }
    }
}
