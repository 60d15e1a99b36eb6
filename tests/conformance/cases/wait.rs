//! Waiting for a lock: order, wake-up and timeouts.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use lock_runtime::LockErrorKind;

use super::{LEASES, LONG, SLACK, forget, ms};
use crate::{
    case::{Case, Need, case},
    fixture::Fixture,
    polling::begun,
    store::Fault,
    support::stopwatch::Moment,
};

pub fn cases() -> Vec<Case> {
    let fair = Need::Can(|can| can.is_fair());
    vec![
        case!(released_lock_goes_to_the_first_waiter).needs(fair),
        case!(a_waiter_gets_the_lock_as_soon_as_it_is_released),
        case!(a_waiter_gets_the_lock_when_the_lease_of_a_silent_holder_ends),
        case!(a_waiter_gets_the_lock_when_a_lease_that_began_meanwhile_ends).needs(fair),
        case!(a_wait_that_runs_out_is_a_timeout_on_time_and_leaves_no_place),
        case!(a_waiter_behind_another_is_told_that_it_is_held),
        case!(a_timeout_says_what_the_holder_has_left).needs(LEASES),
        case!(a_newcomer_does_not_overtake_the_first_waiter_when_a_lease_ends).needs(fair),
        case!(zero_wait_and_one_attempt_are_answered_at_once),
        case!(a_failed_attempt_leaves_nothing),
        case!(a_lock_of_any_name_is_handed_over),
        case!(a_waiter_that_gives_up_lets_the_next_one_in),
        case!(a_wait_without_an_end_outlasts_the_default),
        case!(a_waiter_is_kept_out_for_as_long_as_the_holder_renews),
        case!(a_timeout_at_the_instant_of_the_grant_loses_neither_the_lock_nor_the_turn),
        case!(waiters_with_different_terms_are_all_served),
        case!(a_release_while_a_waiter_begins_to_wait_is_not_missed).hurts(Fault::Slow(Duration::ZERO)),
        case!(a_waiter_that_waits_for_long_keeps_its_place).needs(fair),
        case!(a_failed_attempt_sends_nothing_after_it).needs(Need::CountedCalls),
        case!(fifty_processes_that_wait_are_no_herd)
            .busy()
            .needs(fair)
            .needs(Need::CountedCalls)
            .needs(Need::Can(|can| can.is_shared_between_processes())),
    ]
}

async fn released_lock_goes_to_the_first_waiter(fixture: Fixture) {
    const WAITERS: usize = 5;
    let key = fixture.key("k");
    let guard = fixture.client().await.lock(&key).acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for number in 0..WAITERS {
        let lock = fixture.client().await.lock(&key).wait(LONG);
        let order = Arc::clone(&order);
        waiters.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            order.lock().unwrap().push(number);
            guard.release().await.unwrap();
        }));
        fixture.queued(&key, number + 1).await;
    }
    guard.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..WAITERS).collect::<Vec<_>>());
    fixture.clean().await;
}

async fn a_waiter_gets_the_lock_as_soon_as_it_is_released(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    let mut slowest = Duration::ZERO;
    for _ in 0..10 {
        let guard = ours.lock(&key).acquire().await.unwrap();
        let lock = theirs.lock(&key).wait(LONG);
        let waiter = tokio::spawn(async move { (lock.acquire().await, Instant::now()) });
        fixture.queued(&key, 1).await;
        let released = Instant::now();
        guard.release().await.unwrap();
        let (next, entered) = waiter.await.unwrap();
        slowest = slowest.max(entered.saturating_duration_since(released));
        next.unwrap().release().await.unwrap();
    }
    // Far below the second after which a waiter polls by itself.
    assert!(slowest < ms(700), "{slowest:?}");
}

async fn a_waiter_gets_the_lock_when_the_lease_of_a_silent_holder_ends(fixture: Fixture) {
    let key = fixture.key("k");
    let ttl = fixture.lease(ms(600));
    let before = Instant::now();
    let silent = fixture.client().await.lock(&key).ttl(ttl).auto_renew(false).acquire().await.unwrap();
    let held = silent.held();
    forget(silent);
    let after = Moment::now();
    let guard = fixture.client().await.lock(&key).wait(LONG).acquire().await.unwrap();
    // A hold of a session is given up by its holder, a little earlier.
    assert!(before.elapsed() >= ttl * 9 / 10, "after {:?}, before the lease ended", before.elapsed());
    assert!(!held.is_valid());
    assert!(after.within(ttl + ms(250) + SLACK), "only after {:?}", after.took());
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn a_waiter_gets_the_lock_when_a_lease_that_began_meanwhile_ends(fixture: Fixture) {
    let key = fixture.key("k");
    let long = fixture.client().await.lock(&key).ttl(LONG).acquire().await.unwrap();
    // The next holder has a shorter lease than the one that the last waiter sees at first.
    let ttl = fixture.lease(ms(400));
    let lock = fixture.client().await.lock(&key).ttl(ttl).auto_renew(false).wait(LONG);
    let short = begun(async move { lock.acquire().await.unwrap() }).await;
    fixture.queued(&key, 1).await;
    let lock = fixture.client().await.lock(&key).wait(LONG);
    let last = begun(async move { lock.acquire().await.unwrap() }).await;
    fixture.queued(&key, 2).await;
    long.release().await.unwrap();
    forget(short.await.unwrap());
    let began = Moment::now();
    last.await.unwrap().release().await.unwrap();
    // It polls at least once a second.
    assert!(began.within(ttl + ms(1000) + SLACK), "only after {:?}", began.took());
    fixture.clean().await;
}

async fn a_wait_that_runs_out_is_a_timeout_on_time_and_leaves_no_place(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    let guard = ours.lock(&key).acquire().await.unwrap();
    // In the queue of the process, and in that of the store.
    for client in [&ours, &theirs] {
        let began = Moment::now();
        let error = client.lock(&key).wait(ms(300)).acquire().await.unwrap_err();
        let took = began.took();
        assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
        assert!(error.is_retryable());
        assert!(took.real >= ms(300) && took.within(ms(300) + SLACK), "{took:?}");
        fixture.queued(&key, 0).await;
    }
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn a_waiter_behind_another_is_told_that_it_is_held(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    let guard = theirs.lock(&key).acquire().await.unwrap();
    let lock = ours.lock(&key).wait(LONG);
    let leader = begun(async move { lock.acquire().await.unwrap().release().await.unwrap() }).await;
    for wait in [ms(10), ms(300), ms(1500)] {
        let began = Moment::now();
        let error = ours.lock(&key).wait(wait).acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Timeout, "the store has answered: {error}");
        assert!(began.within(wait + SLACK), "{:?} instead of {wait:?}", began.took());
    }
    guard.release().await.unwrap();
    leader.await.unwrap();
    fixture.clean().await;
}

async fn a_timeout_says_what_the_holder_has_left(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    let guard = ours.lock(&key).ttl(LONG).acquire().await.unwrap();
    for client in [&ours, &theirs] {
        for wait in [Duration::ZERO, ms(100)] {
            let error = client.lock(&key).wait(wait).acquire().await.unwrap_err();
            let left = error.retry_after().expect("the holder's remaining time is known");
            assert!(left > LONG / 2 && left <= LONG, "{left:?}");
        }
    }
    guard.release().await.unwrap();
}

async fn a_newcomer_does_not_overtake_the_first_waiter_when_a_lease_ends(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    let (mut shown, mut rounds) = (0, 0);
    while shown < 4 {
        let lock = fixture.client().await.lock(&key).wait(LONG);
        forget(ours.lock(&key).ttl(fixture.lease(ms(400))).auto_renew(false).acquire().await.unwrap());
        let waiter = begun(async move { lock.acquire().await.unwrap() }).await;
        // On a busy machine, the lease may end before.
        let is_queued = fixture.queued_before(&key, 1, || waiter.is_finished()).await;
        (shown, rounds) = (shown + u32::from(is_queued), rounds + 1);
        assert!(rounds < 20, "the waiter was in the queue in {shown} of {rounds} rounds");
        // Asks without a pause, so also between the end of the lease and the waiter's next poll.
        while !waiter.is_finished() {
            let newcomer = theirs.lock(&key).try_acquire().await.unwrap();
            assert!(newcomer.is_none() || waiter.is_finished(), "a newcomer was first");
        }
        waiter.await.unwrap().release().await.unwrap();
        fixture.clean().await;
    }
}

async fn zero_wait_and_one_attempt_are_answered_at_once(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    let guard = ours.lock(&key).acquire().await.unwrap();
    for client in [&ours, &theirs] {
        let began = Moment::now();
        assert!(client.lock(&key).try_acquire().await.unwrap().is_none());
        let error = client.lock(&key).wait(Duration::ZERO).acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Contended);
        assert!(began.within(SLACK));
    }
    guard.release().await.unwrap();
}

async fn a_failed_attempt_leaves_nothing(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    let guard = ours.lock(&key).acquire().await.unwrap();
    for _ in 0..20 {
        assert!(theirs.lock(&key).try_acquire().await.unwrap().is_none());
        assert!(ours.lock(&key).try_acquire().await.unwrap().is_none());
    }
    fixture.has_places(&key, 0);
    guard.release().await.unwrap();
    assert_eq!(fixture.left(), [""; 0]);
}

async fn a_lock_of_any_name_is_handed_over(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await.wait(LONG));
    for name in ["{tag}:a", "a{tag}", "a b", "é🔒", "a*?[b]", "a'\"\\%", "a:b/c", "0", "a~b", "KEYS[1]", "-"]
    {
        let key = fixture.key(name);
        let guard = ours.lock(&key).acquire().await.unwrap();
        let lock = theirs.lock(&key);
        let waiter = begun(async move { lock.acquire().await.unwrap() }).await;
        fixture.queued(&key, 1).await;
        let began = Moment::now();
        let token = guard.fencing_token();
        guard.release().await.unwrap();
        let next = waiter.await.unwrap();
        assert!(began.within(ms(700)), "{name:?}: only after {:?}", began.took());
        assert!(next.fencing_token() > token);
        next.release().await.unwrap();
    }
    fixture.clean().await;
}

async fn a_waiter_that_gives_up_lets_the_next_one_in(fixture: Fixture) {
    let key = fixture.key("k");
    let guard = fixture.client().await.lock(&key).acquire().await.unwrap();
    let (impatient, patient) = (fixture.client().await, fixture.client().await);
    let first = begun({
        let lock = impatient.lock(&key).wait(LONG);
        async move { lock.acquire().await.map(drop) }
    })
    .await;
    fixture.queued(&key, 1).await;
    let second = begun({
        let lock = patient.lock(&key).wait(LONG);
        async move { lock.acquire().await }
    })
    .await;
    fixture.queued(&key, 2).await;
    first.abort();
    fixture.queued(&key, 1).await;
    let released = Moment::now();
    guard.release().await.unwrap();
    let next = second.await.unwrap().unwrap();
    assert!(released.within(SLACK), "{:?}", released.took());
    next.release().await.unwrap();
    fixture.clean().await;
}

async fn a_wait_without_an_end_outlasts_the_default(fixture: Fixture) {
    let key = fixture.key("k");
    let guard = fixture.client().await.lock(&key).acquire().await.unwrap();
    let locks = fixture.client().await.wait(ms(100));
    let lock = locks.lock(&key).wait_forever();
    let waiter = tokio::spawn(async move { lock.acquire().await });
    let error = locks.lock(&key).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout);
    tokio::time::sleep(ms(300)).await;
    assert!(!waiter.is_finished());
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    fixture.clean().await;
}

async fn a_waiter_is_kept_out_for_as_long_as_the_holder_renews(fixture: Fixture) {
    let key = fixture.key("k");
    let ttl = fixture.lease(ms(1200));
    let guard = fixture.client().await.lock(&key).ttl(ttl).acquire().await.unwrap();
    let error = fixture.client().await.lock(&key).wait(ttl * 3).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout);
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn a_timeout_at_the_instant_of_the_grant_loses_neither_the_lock_nor_the_turn(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    let (mut granted, mut timed_out) = (0, 0);
    for round in 0..60_u32 {
        // In the queue of the process, and in that of the store.
        let waiting = if round % 2 == 0 { &ours } else { &theirs };
        let guard = ours.lock(&key).acquire().await.unwrap();
        let wait = ms(20);
        let began = Instant::now();
        let lock = waiting.lock(&key).wait(wait);
        let waiter = begun(async move { lock.acquire().await }).await;
        // From 2 ms before the end of the wait to 2 ms after it.
        let moment = ms(18) + Duration::from_micros(u64::from(round) * 67);
        tokio::time::sleep(moment.saturating_sub(began.elapsed())).await;
        guard.release().await.unwrap();
        match waiter.await.unwrap() {
            Ok(guard) => {
                granted += 1;
                guard.release().await.unwrap();
            }
            Err(error) => {
                assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
                timed_out += 1;
            }
        }
        let guard = theirs.lock(&key).wait(LONG).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    fixture.clean().await;
    println!("granted {granted}, timed out {timed_out}");
}

async fn waiters_with_different_terms_are_all_served(fixture: Fixture) {
    let locks = fixture.client().await.wait(LONG);
    let (key, least) = (fixture.key("k"), fixture.lease(ms(1000)));
    let guard = locks.lock(&key).acquire().await.unwrap();
    let mut waiters = Vec::new();
    for number in 0..12_u64 {
        let lock = locks.lock(&key).ttl(least + ms(number % 3 * 500)).auto_renew(number % 4 != 0);
        waiters.push(
            begun(async move {
                let guard = lock.acquire().await.unwrap();
                let left = guard.remaining();
                guard.release().await.unwrap();
                left
            })
            .await,
        );
    }
    guard.release().await.unwrap();
    for (number, waiter) in waiters.into_iter().enumerate() {
        let left = waiter.await.unwrap();
        assert!(left <= least + ms(number as u64 % 3 * 500), "{left:?}: not on the requested terms");
    }
    fixture.clean().await;
}

async fn a_release_while_a_waiter_begins_to_wait_is_not_missed(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    // Slow enough that there is time between any two steps of the waiter.
    let delay = ms(60);
    for step in 0..16 {
        let guard = ours.lock(&key).ttl(LONG).acquire().await.unwrap();
        // A client that has never waited has more steps to take.
        let locks = if step % 2 == 0 { fixture.client().await } else { theirs.clone() };
        fixture.hurt(Fault::Slow(delay));
        let began = Instant::now();
        let waiter = tokio::spawn({
            // A new client would first connect once more for its renewals.
            let lock = locks.lock(&key).ttl(LONG).wait(LONG).auto_renew(step % 2 == 1);
            async move { (lock.acquire().await.unwrap(), Instant::now()) }
        });
        tokio::time::sleep(delay / 4 * step / 2).await;
        let release = tokio::spawn(guard.release());
        let (next, entered) = waiter.await.unwrap();
        release.await.unwrap().unwrap();
        let took = entered - began;
        // A waiter that misses the release polls again after a second.
        assert!(took < ms(900), "only after {took:?} when released at step {step}");
        fixture.heal();
        next.release().await.unwrap();
    }
    fixture.clean().await;
}

async fn a_waiter_that_waits_for_long_keeps_its_place(fixture: Fixture) {
    const WAITERS: usize = 3;
    let key = fixture.key("k");
    let mut holder = fixture.client().await.lock(&key).ttl(LONG).acquire().await.unwrap();
    let mut waiters = VecDeque::new();
    for number in 0..WAITERS {
        let lock = fixture.client().await.lock(&key).ttl(LONG).wait(LONG);
        waiters.push_back(begun(async move { lock.acquire().await.unwrap() }).await);
        fixture.queued(&key, number + 1).await;
    }
    // Longer than a store waits before it takes a silent waiter for dead.
    tokio::time::sleep(ms(6500)).await;
    fixture.has_places(&key, WAITERS);
    while let Some(next) = waiters.pop_front() {
        let released = Moment::now();
        holder.release().await.unwrap();
        holder = next.await.unwrap();
        fixture.has_places(&key, waiters.len());
        assert!(released.within(SLACK), "only after {:?}", released.took());
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "the order is kept");
    }
    holder.release().await.unwrap();
    fixture.clean().await;
}

async fn a_failed_attempt_sends_nothing_after_it(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    let guard = ours.lock(&key).ttl(LONG).auto_renew(false).acquire().await.unwrap();
    // The first attempt may include preparations.
    assert!(theirs.lock(&key).try_acquire().await.unwrap().is_none());
    let before = fixture.calls();
    for _ in 0..50 {
        assert!(theirs.lock(&key).try_acquire().await.unwrap().is_none());
    }
    // There is nothing to release.
    tokio::time::sleep(ms(300)).await;
    let (calls, allowed) = (fixture.calls() - before, 50 * fixture.calls_of_a_refused_attempt());
    assert!(calls <= allowed, "{calls} calls for 50 attempts, instead of {allowed}");
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn fifty_processes_that_wait_are_no_herd(fixture: Fixture) {
    const PROCESSES: u64 = 50;
    let key = fixture.key("k");
    let guard = fixture.client().await.lock(&key).ttl(LONG).acquire().await.unwrap();
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        let mut process = fixture.client_process().await;
        process.begin_to_acquire(&key, LONG, LONG);
        processes.push(process);
    }
    fixture.queued(&key, 50).await;
    let (began, before) = (Instant::now(), fixture.calls());
    guard.release().await.unwrap();
    let entries: Vec<_> = processes
        .into_iter()
        .map(|mut process| {
            let key = key.clone();
            tokio::spawn(async move {
                let token = process.acquired().await.expect("it lives").expect("it gets the lock");
                assert_eq!(process.release(&key).await, "ok");
                token
            })
        })
        .collect();
    let mut tokens = Vec::new();
    for entry in entries {
        tokens.push(entry.await.unwrap());
    }
    let (calls, took) = (fixture.calls() - before, began.elapsed());
    println!("{PROCESSES} processes entered in {took:?} with {calls} calls");
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 50, "each entered once");
    // A release for each, and a poll per second by each waiter. If all came at each release, there would be 1275.
    let allowed = 2 * PROCESSES + PROCESSES * (took.as_secs() + 1);
    assert!(calls <= allowed, "{calls} calls instead of {allowed} at most");
    fixture.clean().await;
}
