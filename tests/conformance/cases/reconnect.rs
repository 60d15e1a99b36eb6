//! Short faults: connections that break, answers that are lost, servers that forget.

use std::{
    pin::pin,
    task::Poll,
    time::{Duration, Instant},
};

use lock_runtime::{LockError, LockErrorKind};

use super::{LONG, SLACK, ms};
use crate::{
    case::{Case, Need, case},
    fixture::Fixture,
    polling::{begun, poll_once},
    store::Fault,
    support::{stopwatch::Moment, traces},
};

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        case!(an_answer_lost_at_any_call_leaves_nothing_and_grants_nothing_twice).hurts(Fault::AnswerLost(1)),
        case!(an_answer_lost_to_a_new_client_costs_nothing_but_time)
            .hurts(Fault::AnswerLost(1))
            .needs(Need::Connections),
        case!(a_connection_cut_in_any_request_leaves_nothing).hurts(Fault::CutInRequest(1)),
        case!(a_server_that_forgot_everything_ends_the_hold).hurts(Fault::Restarted),
        case!(a_waiter_of_a_server_that_forgot_everything_gets_the_lock).hurts(Fault::Restarted),
        case!(a_lock_survives_a_restart_that_forgets_nothing)
            .hurts(Fault::RestartedWithItsData)
            .needs(Need::HoldsOutliveConnections)
            .limit(Duration::from_mins(3)),
        case!(a_grant_that_is_told_late_lets_nobody_in).hurts(Fault::AnswersHeld).needs(Need::ForeignClients),
        case!(an_outage_does_not_end_in_a_storm_of_connections).hurts(Fault::Reset),
        case!(a_full_server_refuses_new_holds_and_takes_releases_and_renewals).hurts(Fault::Full),
        case!(records_that_are_locked_for_a_second_cost_no_hold_and_no_waiter).hurts(Fault::RecordsLocked),
    ];
    cases.push(
        case!(connections_that_went_mute_cost_no_lease)
            .hurts(Fault::BlackHole)
            .needs(Need::HoldsOutliveConnections),
    );
    cases.push(case!(an_acquire_that_nobody_polls_keeps_no_other_from_the_store).hurts(Fault::Cut));
    for fault in [Fault::Cut, Fault::Reset, Fault::ForgetsCaches] {
        cases.extend(
            [
                case!(a_held_lock_is_kept_and_renewed, fault).needs(Need::HoldsOutliveConnections),
                case!(a_hold_whose_connection_broke_is_lost_at_once, fault)
                    .needs(Need::HoldsEndWithTheirConnection),
                case!(the_next_acquire_succeeds, fault),
                case!(a_waiter_gets_the_lock, fault),
                case!(waiters_get_the_lock_while_it_happens_again_and_again, fault).busy(),
            ]
            .map(|case| case.under(fault)),
        );
    }
    cases
}

async fn a_held_lock_is_kept_and_renewed(fixture: Fixture, fault: Fault) {
    // A quarter of it has to suffice for a new connection and a renewal, on a busy machine, too.
    let (locks, ttl) = fixture.client_that_keeps(ms(3000)).await;
    let guard = locks.lock(fixture.key("k")).ttl(ttl).acquire().await.unwrap();
    for _ in 0..8 {
        fixture.hurt(fault);
        tokio::time::sleep(ttl / 4).await;
        assert!(guard.is_valid());
    }
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn a_hold_whose_connection_broke_is_lost_at_once(fixture: Fixture, fault: Fault) {
    let (ours, theirs) = (fixture.client().await, fixture.client_past_faults().await);
    let key = fixture.key("k");
    for _ in 0..3 {
        let guard = ours.lock(&key).ttl(LONG).acquire().await.unwrap();
        fixture.hurt(fault);
        let began = Moment::now();
        guard.lost().await;
        assert!(began.within(SLACK), "only after {:?}", began.took());
        assert!(!guard.is_valid());
        let next = theirs.lock(&key).wait(LONG).acquire().await.unwrap();
        assert!(next.fencing_token() > guard.fencing_token());
        assert_eq!(guard.release().await.unwrap_err().kind(), LockErrorKind::Lost);
        if fault != Fault::ForgetsCaches {
            assert!(next.is_valid());
            next.release().await.unwrap();
        }
    }
    fixture.clean().await;
}

/// Like a firewall that forgets a quiet connection: it stays open, and nothing passes.
async fn connections_that_went_mute_cost_no_lease(fixture: Fixture) {
    // An attempt over a new connection has a tenth of it, which is little where many tests run.
    let (locks, ttl) = fixture.client_that_keeps(ms(5000)).await;
    // Long enough for a renewal, so that there is a connection for it.
    let short = fixture.declared().session_timeout().map_or(ms(300), |_| ttl);
    let warm = locks.lock(fixture.key("warm")).ttl(short).acquire().await.unwrap();
    tokio::time::sleep(ms(300)).await;
    warm.release().await.unwrap();
    let guard = locks.lock(fixture.key("k")).ttl(ttl).acquire().await.unwrap();
    for _ in 0..2 {
        fixture.hurt(Fault::BlackHole);
        fixture.heal();
        let began = Instant::now();
        while began.elapsed() < ttl + ttl / 2 {
            assert!(guard.is_valid(), "lost after {:?}", began.elapsed());
            tokio::time::sleep(ms(10)).await;
        }
    }
    let _ = guard.release().await;
    fixture.clean().await;
}

async fn an_acquire_that_nobody_polls_keeps_no_other_from_the_store(fixture: Fixture) {
    let locks = fixture.client().await;
    for round in 0..5 {
        fixture.hurt(Fault::Cut);
        tokio::time::sleep(ms(50)).await;
        let parked_lock = locks.lock(fixture.key(&format!("parked {round}"))).ttl(LONG).wait(LONG);
        let mut parked = pin!(parked_lock.acquire());
        // Begins to connect, and is left unpolled, unless another thread has connected and heard the answer meanwhile.
        let done = poll_once(parked.as_mut()).await;
        let other = locks.lock(fixture.key("other")).ttl(LONG);
        let guard = tokio::time::timeout(ms(5000), other.try_acquire()).await.expect("not kept waiting");
        guard.unwrap().expect("it is free").release().await.unwrap();
        let guard = match done {
            Poll::Ready(done) => done,
            Poll::Pending => parked.await,
        };
        guard.unwrap().release().await.unwrap();
    }
    fixture.clean().await;
}

async fn the_next_acquire_succeeds(fixture: Fixture, fault: Fault) {
    let locks = fixture.client().await;
    for _ in 0..10 {
        let guard = locks.lock(fixture.key("k")).acquire().await.unwrap();
        fixture.hurt(fault);
        // A release whose connection is broken under it may not be confirmed, but it happens.
        if let Err(error) = guard.release().await {
            fixture.was_not_confirmed(&error);
        }
        fixture.clean().await;
    }
}

async fn a_waiter_gets_the_lock(fixture: Fixture, fault: Fault) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    let guard = ours.lock(&key).ttl(LONG).acquire().await.unwrap();
    let lock = theirs.lock(&key).ttl(LONG).wait(LONG);
    let waiter = begun(async move { lock.acquire().await.unwrap() }).await;
    fixture.queued(&key, 1).await;
    fixture.hurt(fault);
    let began = Moment::now();
    let _ = guard.release().await;
    let guard = waiter.await.unwrap();
    // A wake-up may be lost with the connection; then the waiter polls by itself.
    assert!(began.within(ms(3000) + SLACK), "only after {:?}", began.took());
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn waiters_get_the_lock_while_it_happens_again_and_again(fixture: Fixture, fault: Fault) {
    let clients = [fixture.client().await, fixture.client().await];
    let key = fixture.key("k");
    let mut waiters = Vec::new();
    for number in 0..10 {
        let lock = clients[number % 2].lock(&key).ttl(LONG).wait(LONG);
        waiters.push(
            begun(async move {
                let guard = lock.acquire().await?;
                tokio::time::sleep(ms(20)).await;
                Ok::<_, LockError>((guard.fencing_token(), guard.release().await))
            })
            .await,
        );
    }
    // Where a hold ends with its session, there has to be time to make one.
    let first_pause = if fixture.spares_holds(fault) { ms(30) } else { ms(200) };
    let mut tokens = Vec::new();
    for waiter in waiters {
        let mut pause = first_pause;
        while !waiter.is_finished() {
            fixture.hurt(fault);
            tokio::time::sleep(pause).await;
            // A busy machine needs longer to connect.
            pause = ms(500).min(pause + pause / 8);
        }
        let (token, released) = waiter.await.unwrap().unwrap();
        if let Err(error) = released {
            fixture.was_not_confirmed(&error);
        }
        tokens.push(token);
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 10, "two holds with one token");
    fixture.clean().await;
}

async fn an_answer_lost_at_any_call_leaves_nothing_and_grants_nothing_twice(fixture: Fixture) {
    let (locks, other) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    for nth in 1.. {
        locks.lock(fixture.key("warm")).wait(LONG).acquire().await.unwrap().release().await.unwrap();
        fixture.clean().await;
        fixture.hurt(Fault::AnswerLost(nth));
        let began = Instant::now();
        // Free, then held with a waiter, then handed over: every kind of call.
        let first = locks.lock(&key).ttl(LONG).wait(LONG).acquire().await.unwrap();
        let lock = other.lock(&key).ttl(LONG).wait(LONG);
        let waiter = begun(async move { lock.acquire().await.unwrap() }).await;
        fixture.queued(&key, 1).await;
        let token = first.fencing_token();
        let released = first.release().await;
        let second = waiter.await.unwrap();
        assert!(second.fencing_token() > token);
        let released_too = second.release().await;
        for error in [released, released_too].into_iter().filter_map(Result::err) {
            fixture.was_not_confirmed(&error);
        }
        fixture.clean().await;
        assert!(began.elapsed() < LONG / 2, "{:?} when answer {nth} was lost", began.elapsed());
        let lost = fixture.lost_an_answer();
        fixture.is_free(&key).await;
        if !lost {
            assert!(nth > 4, "no answer was lost");
            return;
        }
    }
}

async fn an_answer_lost_to_a_new_client_costs_nothing_but_time(fixture: Fixture) {
    for nth in 1.. {
        fixture.hurt(Fault::AnswerLost(nth));
        let locks = fixture.connect_lazy().unwrap();
        let key = fixture.key(&nth.to_string());
        let guard = locks.lock(key).wait(LONG).acquire().await;
        let guard = guard.unwrap_or_else(|error| panic!("answer {nth} was lost: {error:?}"));
        if let Err(error) = guard.release().await {
            fixture.was_not_confirmed(&error);
        }
        if !fixture.lost_an_answer() {
            assert!(nth > 4, "no answer was lost");
            return;
        }
    }
}

async fn a_connection_cut_in_any_request_leaves_nothing(fixture: Fixture) {
    let locks = fixture.client().await;
    let key = fixture.key("k");
    for byte in (0..1200).step_by(61) {
        let guard = locks.lock(&key).ttl(LONG).wait(LONG).acquire().await.unwrap();
        fixture.hurt(Fault::CutInRequest(byte));
        if let Err(error) = guard.release().await {
            fixture.was_not_confirmed(&error);
        }
        let guard = locks.lock(&key).ttl(LONG).wait(LONG).acquire().await.unwrap();
        let _ = guard.release().await;
        fixture.clean().await;
    }
    fixture.heal();
}

async fn a_server_that_forgot_everything_ends_the_hold(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    let ttl = fixture.lease(ms(1500));
    let guard = ours.lock(&key).ttl(ttl).acquire().await.unwrap();
    let began = Moment::now();
    fixture.hurt(Fault::Restarted);
    guard.lost().await;
    assert!(began.within(ttl), "only after {:?}", began.took());
    let next = theirs.lock(&key).wait(LONG).acquire().await.unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(guard.release().await.unwrap_err().kind(), LockErrorKind::Lost);
    fixture.is_held(&key).await;
    next.release().await.unwrap();
    fixture.clean().await;
}

async fn a_waiter_of_a_server_that_forgot_everything_gets_the_lock(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    let guard = ours.lock(&key).ttl(fixture.lease(ms(1500))).acquire().await.unwrap();
    let lock = theirs.lock(&key).wait(LONG);
    let waiter = begun(async move { lock.acquire().await.unwrap() }).await;
    fixture.queued(&key, 1).await;
    fixture.hurt(Fault::Restarted);
    let began = Moment::now();
    let next = waiter.await.unwrap();
    assert!(began.within(ms(3000) + SLACK), "only after {:?}", began.took());
    assert!(next.fencing_token() > guard.fencing_token());
    guard.lost().await;
    assert!(next.is_valid());
    next.release().await.unwrap();
    fixture.clean().await;
}

async fn a_lock_survives_a_restart_that_forgets_nothing(fixture: Fixture) {
    // There are servers that take seconds to start, and more on a busy machine.
    let began = Instant::now();
    fixture.hurt(Fault::RestartedWithItsData);
    let ttl = (began.elapsed() * 6).clamp(ms(8000), ms(60_000));
    let (ours, theirs) = (fixture.client_for_leases_of(ttl).await, fixture.client_for_leases_of(ttl).await);
    let key = fixture.key("k");
    let guard = ours.lock(&key).ttl(ttl).acquire().await.unwrap();
    let lock = theirs.lock(&key).wait(ttl * 3);
    let waiter = begun(async move { lock.acquire().await.unwrap() }).await;
    fixture.queued(&key, 1).await;
    fixture.hurt(Fault::RestartedWithItsData);
    let began = Instant::now();
    while began.elapsed() < ttl + ttl / 2 {
        assert!(guard.is_valid(), "lost {:?} after the restart", began.elapsed());
        assert!(!waiter.is_finished(), "two hold it");
        tokio::time::sleep(ms(20)).await;
    }
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    let released = Moment::now();
    let next = waiter.await.unwrap();
    assert!(released.within(SLACK), "only after {:?}", released.took());
    assert!(next.fencing_token() > token);
    next.release().await.unwrap();
    fixture.clean().await;
}

/// A push is delayed in the network until its grant has ended and another client has entered.
async fn a_grant_that_is_told_late_lets_nobody_in(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    let ttl = ms(400);
    for _ in 0..4 {
        // A client that has waited knows of other waiters, and then hands over with its first call.
        let first = theirs.lock(&key).ttl(LONG).acquire().await.unwrap();
        let lock = ours.lock(&key).ttl(LONG).wait(LONG);
        let second = begun(async move { lock.acquire().await.unwrap() }).await;
        fixture.queued(&key, 1).await;
        first.release().await.unwrap();
        let guard = second.await.unwrap();
        let lock = theirs.lock(&key).ttl(ttl).wait(LONG);
        let waiter = begun(async move { lock.acquire().await.unwrap() }).await;
        fixture.queued(&key, 1).await;
        // The answer to this call comes behind that notice.
        ours.lock(fixture.key("other")).acquire().await.unwrap().release().await.unwrap();
        fixture.hurt(Fault::AnswersHeld);
        let release = tokio::spawn(guard.release());
        // The lock is handed over, and the waiter notified; then its lease ends without its knowing.
        fixture.queued(&key, 0).await;
        let mut owner = None;
        while owner.is_none() {
            tokio::time::sleep(ms(2)).await;
            owner = fixture.foreign().take(&key, LONG);
        }
        fixture.heal();
        let began = Instant::now();
        while began.elapsed() < ms(300) {
            assert!(!waiter.is_finished(), "two hold it");
            tokio::time::sleep(ms(2)).await;
        }
        assert!(fixture.foreign().free(&key, &owner.unwrap()), "it was taken away from its holder");
        waiter.await.unwrap().release().await.unwrap();
        // The answer to the release was held back as well.
        if let Err(error) = release.await.unwrap() {
            assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
        }
        fixture.clean().await;
    }
}

async fn an_outage_does_not_end_in_a_storm_of_connections(fixture: Fixture) {
    const TASKS: u64 = 100;
    let locks = fixture.client().await.wait(LONG);
    let waiters: Vec<_> = (0..TASKS)
        .map(|number| {
            let lock = locks.lock(fixture.key(&number.to_string()));
            tokio::spawn(async move { lock.acquire().await.unwrap().release().await })
        })
        .collect();
    fixture.hurt(Fault::Down);
    let before = fixture.connections();
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| {
            let lock = locks.lock(fixture.key(&format!("b{number}")));
            tokio::spawn(async move { lock.acquire().await.unwrap().release().await })
        })
        .collect();
    tokio::time::sleep(ms(2000)).await;
    let tried = fixture.connections() - before;
    fixture.heal();
    for task in waiters.into_iter().chain(tasks) {
        if let Err(error) = task.await.unwrap() {
            assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
        }
    }
    println!("{tried} connections were tried in 2 s by {TASKS} tasks");
    assert!(tried < 5 * TASKS, "{tried} connections were tried in 2 s by {TASKS} tasks");
    fixture.clean().await;
}

/// By an operator who changes them, or by a backup.
async fn records_that_are_locked_for_a_second_cost_no_hold_and_no_waiter(fixture: Fixture) {
    let (locks, ttl) = fixture.client_that_keeps(ms(4000)).await;
    let theirs = fixture.client().await;
    let kept = locks.lock(fixture.key("kept")).ttl(ttl).acquire().await.unwrap();
    let key = fixture.key("k");
    for _ in 0..3 {
        let guard = locks.lock(&key).ttl(ttl).wait(LONG).acquire().await.unwrap();
        let token = guard.fencing_token();
        let lock = theirs.lock(&key).ttl(ttl).wait(LONG);
        let waiter = begun(async move { lock.acquire().await }).await;
        fixture.queued(&key, 1).await;
        fixture.hurt(Fault::RecordsLocked);
        let began = Instant::now();
        let attempt = locks.lock(fixture.key("other")).ttl(ttl).try_acquire().await;
        assert!(attempt.as_ref().is_err_and(LockError::is_retryable), "{attempt:?}");
        let lock = locks.lock(fixture.key("other")).ttl(ttl).wait(LONG);
        let other = begun(async move { lock.acquire().await }).await;
        // Confirmed or not, it happens.
        if let Err(error) = guard.release().await {
            fixture.was_not_confirmed(&error);
        }
        tokio::time::sleep(ms(1000).saturating_sub(began.elapsed())).await;
        fixture.heal();
        let healed = Moment::now();
        let next = waiter.await.unwrap().expect("a waiter waits on");
        assert!(healed.within(ms(1500) + SLACK), "only after {:?}", healed.took());
        assert!(next.fencing_token() > token && kept.is_valid());
        next.release().await.unwrap();
        other.await.unwrap().expect("a waiter waits on").release().await.unwrap();
    }
    kept.release().await.unwrap();
    fixture.clean().await;
}

async fn a_full_server_refuses_new_holds_and_takes_releases_and_renewals(fixture: Fixture) {
    let locks = fixture.client().await;
    let ttl = fixture.lease(ms(3000));
    let (key, other) = (fixture.key("k"), fixture.key("other"));
    let guard = locks.lock(&key).ttl(ttl).acquire().await.unwrap();
    let waiter = begun({
        let lock = fixture.client().await.lock(&key).wait(LONG);
        async move { lock.acquire().await }
    })
    .await;
    fixture.queued(&key, 1).await;
    fixture.hurt(Fault::Full);
    let error = locks.lock(&other).wait(ms(300)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    tokio::time::sleep(ttl * 3 / 2).await;
    assert!(guard.is_valid(), "it is not renewed: {:?}", traces::losses_of(&key));
    // The message for the waiter may be refused; the release itself is not.
    let _ = guard.release().await;
    fixture.heal();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    fixture.clean().await;
}
