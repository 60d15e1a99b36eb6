//! Short faults: connections that break, answers that are lost, servers that forget.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use lock_runtime::LockErrorKind;

use super::{LONG, SLACK, ms};
use crate::{
    case::{Case, Need, case},
    stores::Fault,
    support::machine::Moment,
    world::{World, begun, poll_once},
};

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        case!(an_answer_lost_at_any_call_leaves_nothing_and_grants_nothing_twice).hurts(Fault::AnswerLost(1)),
        case!(a_connection_cut_in_any_request_leaves_nothing).hurts(Fault::CutInRequest(1)),
        case!(a_server_that_forgot_everything_ends_the_hold).hurts(Fault::Restarted),
        case!(a_waiter_of_a_server_that_forgot_everything_gets_the_lock).hurts(Fault::Restarted),
        case!(a_lock_survives_a_restart_that_forgets_nothing)
            .hurts(Fault::RestartedWithItsData)
            .limit(Duration::from_mins(3)),
        case!(a_grant_that_is_told_late_lets_nobody_in).hurts(Fault::AnswersHeld).needs(Need::ForeignClients),
        case!(an_outage_does_not_end_in_a_storm_of_connections).hurts(Fault::Reset),
        case!(a_full_server_refuses_new_holds_and_takes_releases_and_renewals).hurts(Fault::Full),
    ];
    cases.push(case!(connections_that_went_mute_cost_no_lease).hurts(Fault::BlackHole));
    cases.push(case!(an_acquire_that_nobody_polls_keeps_no_other_from_the_store).hurts(Fault::Cut));
    for fault in [Fault::Cut, Fault::Reset, Fault::ForgetsCaches] {
        cases.extend(
            [
                case!(a_held_lock_is_kept_and_renewed, fault),
                case!(the_next_acquire_succeeds, fault),
                case!(a_waiter_gets_the_lock, fault),
                case!(waiters_get_the_lock_while_it_happens_again_and_again, fault),
            ]
            .map(|case| case.under(fault)),
        );
    }
    cases
}

async fn a_held_lock_is_kept_and_renewed(world: World, fault: Fault) {
    let (locks, ttl) = world.client_that_keeps(ms(1500)).await;
    let guard = locks.lock(world.key("k")).ttl(ttl).acquire().await.unwrap();
    for _ in 0..8 {
        world.hurt(fault);
        tokio::time::sleep(ttl / 4).await;
        assert!(guard.is_valid());
    }
    guard.release().await.unwrap();
    world.clean().await;
}

/// What a firewall does that forgets a quiet connection: it stays open, and nothing passes.
async fn connections_that_went_mute_cost_no_lease(world: World) {
    // An attempt over a new connection has a tenth of it, which is a moment where many tests run.
    let (locks, ttl) = world.client_that_keeps(ms(5000)).await;
    // Long enough for a renewal, so that there is a connection for it.
    let short = world.declared().session_timeout.map_or(ms(300), |_| ttl);
    let warm = locks.lock(world.key("warm")).ttl(short).acquire().await.unwrap();
    tokio::time::sleep(ms(300)).await;
    warm.release().await.unwrap();
    let guard = locks.lock(world.key("k")).ttl(ttl).acquire().await.unwrap();
    for _ in 0..2 {
        world.hurt(Fault::BlackHole);
        world.heal();
        let began = Instant::now();
        while began.elapsed() < ttl + ttl / 2 {
            assert!(guard.is_valid(), "lost after {:?}", began.elapsed());
            tokio::time::sleep(ms(10)).await;
        }
    }
    let _ = guard.release().await;
    world.clean().await;
}

async fn an_acquire_that_nobody_polls_keeps_no_other_from_the_store(world: World) {
    let locks = world.client().await;
    for round in 0..5 {
        world.hurt(Fault::Cut);
        tokio::time::sleep(ms(50)).await;
        let parked_lock = locks.lock(world.key(&format!("parked {round}"))).ttl(LONG).wait(LONG);
        let mut parked = pin!(parked_lock.acquire());
        // Begins to connect, and is left alone.
        assert!(poll_once(parked.as_mut()).await.is_pending());
        let other = locks.lock(world.key("other")).ttl(LONG);
        let guard = tokio::time::timeout(ms(5000), other.try_acquire()).await.expect("not kept waiting");
        guard.unwrap().expect("it is free").release().await.unwrap();
        parked.await.unwrap().release().await.unwrap();
    }
    world.clean().await;
}

async fn the_next_acquire_succeeds(world: World, fault: Fault) {
    let locks = world.client().await;
    for _ in 0..10 {
        let guard = locks.lock(world.key("k")).acquire().await.unwrap();
        world.hurt(fault);
        // A release whose connection is broken under it may not be confirmed, but it happens.
        if let Err(error) = guard.release().await {
            assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
        }
        world.clean().await;
    }
}

async fn a_waiter_gets_the_lock(world: World, fault: Fault) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let key = world.key("k");
    let guard = ours.lock(&key).ttl(LONG).acquire().await.unwrap();
    let lock = theirs.lock(&key).ttl(LONG).wait(LONG);
    let waiter = begun(async move { lock.acquire().await.unwrap() }).await;
    world.queued(&key, 1).await;
    world.hurt(fault);
    let began = Moment::now();
    let _ = guard.release().await;
    let guard = waiter.await.unwrap();
    // A message may be lost with the connection; then the waiter looks again by itself.
    assert!(began.within(ms(3000) + SLACK), "only after {:?}", began.took());
    guard.release().await.unwrap();
    world.clean().await;
}

async fn waiters_get_the_lock_while_it_happens_again_and_again(world: World, fault: Fault) {
    let clients = [world.client().await, world.client().await];
    let key = world.key("k");
    let mut waiters = Vec::new();
    for number in 0..10 {
        let lock = clients[number % 2].lock(&key).ttl(LONG).wait(LONG);
        waiters.push(
            begun(async move {
                let guard = lock.acquire().await?;
                tokio::time::sleep(ms(20)).await;
                let token = guard.fencing_token();
                match guard.release().await {
                    Err(error) if error.kind() != LockErrorKind::Backend => Err(error),
                    _ => Ok(token),
                }
            })
            .await,
        );
    }
    let mut tokens = Vec::new();
    for waiter in waiters {
        while !waiter.is_finished() {
            world.hurt(fault);
            tokio::time::sleep(ms(30)).await;
        }
        tokens.push(waiter.await.unwrap().unwrap());
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 10, "two holds with one token");
    world.clean().await;
}

async fn an_answer_lost_at_any_call_leaves_nothing_and_grants_nothing_twice(world: World) {
    let (locks, other) = (world.client().await, world.client().await);
    let key = world.key("k");
    for nth in 1.. {
        locks.lock(world.key("warm")).wait(LONG).acquire().await.unwrap().release().await.unwrap();
        world.clean().await;
        world.hurt(Fault::AnswerLost(nth));
        let began = Instant::now();
        // Free, then held with a waiter, then handed over: every call there is.
        let first = locks.lock(&key).ttl(LONG).wait(LONG).acquire().await.unwrap();
        let lock = other.lock(&key).ttl(LONG).wait(LONG);
        let waiter = begun(async move { lock.acquire().await.unwrap() }).await;
        world.queued(&key, 1).await;
        let token = first.fencing_token();
        let released = first.release().await;
        let second = waiter.await.unwrap();
        assert!(second.fencing_token() > token);
        let released_too = second.release().await;
        for released in [released, released_too] {
            if let Err(error) = released {
                assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
            }
        }
        world.clean().await;
        assert!(began.elapsed() < LONG / 2, "{:?} when answer {nth} was lost", began.elapsed());
        let lost = world.lost_an_answer();
        world.is_free(&key).await;
        if !lost {
            assert!(nth > 4, "no answer was lost");
            return;
        }
    }
}

async fn a_connection_cut_in_any_request_leaves_nothing(world: World) {
    let locks = world.client().await;
    let key = world.key("k");
    for byte in (0..1200).step_by(61) {
        let guard = locks.lock(&key).ttl(LONG).wait(LONG).acquire().await.unwrap();
        world.hurt(Fault::CutInRequest(byte));
        if let Err(error) = guard.release().await {
            assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
        }
        let guard = locks.lock(&key).ttl(LONG).wait(LONG).acquire().await.unwrap();
        let _ = guard.release().await;
        world.clean().await;
    }
    world.heal();
}

async fn a_server_that_forgot_everything_ends_the_hold(world: World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let key = world.key("k");
    let ttl = world.lease(ms(1500));
    let guard = ours.lock(&key).ttl(ttl).acquire().await.unwrap();
    let began = Moment::now();
    world.hurt(Fault::Restarted);
    guard.lost().await;
    assert!(began.within(ttl), "only after {:?}", began.took());
    let next = theirs.lock(&key).wait(LONG).acquire().await.unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(guard.release().await.unwrap_err().kind(), LockErrorKind::Lost);
    world.is_held(&key).await;
    next.release().await.unwrap();
    world.clean().await;
}

async fn a_waiter_of_a_server_that_forgot_everything_gets_the_lock(world: World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let key = world.key("k");
    let guard = ours.lock(&key).ttl(world.lease(ms(1500))).acquire().await.unwrap();
    let lock = theirs.lock(&key).wait(LONG);
    let waiter = begun(async move { lock.acquire().await.unwrap() }).await;
    world.queued(&key, 1).await;
    world.hurt(Fault::Restarted);
    let began = Moment::now();
    let next = waiter.await.unwrap();
    assert!(began.within(ms(3000) + SLACK), "only after {:?}", began.took());
    assert!(next.fencing_token() > guard.fencing_token());
    guard.lost().await;
    assert!(next.is_valid());
    next.release().await.unwrap();
    world.clean().await;
}

async fn a_lock_survives_a_restart_that_forgets_nothing(world: World) {
    // There are servers that take seconds to start, and more on a busy machine.
    let began = Instant::now();
    world.hurt(Fault::RestartedWithItsData);
    let ttl = (began.elapsed() * 6).clamp(ms(8000), ms(60_000));
    let (ours, theirs) = (world.client_for_leases_of(ttl).await, world.client_for_leases_of(ttl).await);
    let key = world.key("k");
    let guard = ours.lock(&key).ttl(ttl).acquire().await.unwrap();
    let lock = theirs.lock(&key).wait(ttl * 3);
    let waiter = begun(async move { lock.acquire().await.unwrap() }).await;
    world.queued(&key, 1).await;
    world.hurt(Fault::RestartedWithItsData);
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
    world.clean().await;
}

/// A push waits in the network until what it grants has ended and somebody else has come in.
async fn a_grant_that_is_told_late_lets_nobody_in(world: World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let key = world.key("k");
    let ttl = ms(400);
    for _ in 0..4 {
        // Who has waited is told that others wait, and then hands over with its first call.
        let first = theirs.lock(&key).ttl(LONG).acquire().await.unwrap();
        let lock = ours.lock(&key).ttl(LONG).wait(LONG);
        let second = begun(async move { lock.acquire().await.unwrap() }).await;
        world.queued(&key, 1).await;
        first.release().await.unwrap();
        let guard = second.await.unwrap();
        let lock = theirs.lock(&key).ttl(ttl).wait(LONG);
        let waiter = begun(async move { lock.acquire().await.unwrap() }).await;
        world.queued(&key, 1).await;
        // Its answer comes behind that message.
        ours.lock(world.key("other")).acquire().await.unwrap().release().await.unwrap();
        world.hurt(Fault::AnswersHeld);
        let release = tokio::spawn(guard.release());
        // The lock is handed over, and the waiter is told; then its lease ends without its knowing.
        world.queued(&key, 0).await;
        let mut owner = None;
        while owner.is_none() {
            tokio::time::sleep(ms(2)).await;
            owner = world.foreign().take(&key, LONG);
        }
        world.heal();
        let began = Instant::now();
        while began.elapsed() < ms(300) {
            assert!(!waiter.is_finished(), "two hold it");
            tokio::time::sleep(ms(2)).await;
        }
        assert!(world.foreign().free(&key, &owner.unwrap()), "it was taken away from its holder");
        waiter.await.unwrap().release().await.unwrap();
        // Its answer was held back as well.
        if let Err(error) = release.await.unwrap() {
            assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
        }
        world.clean().await;
    }
}

async fn an_outage_does_not_end_in_a_storm_of_connections(world: World) {
    const TASKS: u64 = 100;
    let locks = world.client().await.wait(LONG);
    let waiters: Vec<_> = (0..TASKS)
        .map(|number| {
            let lock = locks.lock(world.key(&number.to_string()));
            tokio::spawn(async move { lock.acquire().await.unwrap().release().await })
        })
        .collect();
    world.hurt(Fault::Down);
    let before = world.connections();
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| {
            let lock = locks.lock(world.key(&format!("b{number}")));
            tokio::spawn(async move { lock.acquire().await.unwrap().release().await })
        })
        .collect();
    tokio::time::sleep(ms(2000)).await;
    let tried = world.connections() - before;
    world.heal();
    for task in waiters.into_iter().chain(tasks) {
        if let Err(error) = task.await.unwrap() {
            assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
        }
    }
    println!("{tried} connections were tried in 2 s by {TASKS} tasks");
    assert!(tried < 5 * TASKS, "{tried} connections were tried in 2 s by {TASKS} tasks");
    world.clean().await;
}

async fn a_full_server_refuses_new_holds_and_takes_releases_and_renewals(world: World) {
    let locks = world.client().await;
    let ttl = world.lease(ms(1500));
    let (key, other) = (world.key("k"), world.key("other"));
    let guard = locks.lock(&key).ttl(ttl).acquire().await.unwrap();
    let waiter = begun({
        let lock = world.client().await.lock(&key).wait(LONG);
        async move { lock.acquire().await }
    })
    .await;
    world.queued(&key, 1).await;
    world.hurt(Fault::Full);
    let error = locks.lock(&other).wait(ms(300)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    tokio::time::sleep(ttl * 3 / 2).await;
    assert!(guard.is_valid(), "it is not renewed");
    // What it has to write for the waiter may be refused; the release itself is not.
    let _ = guard.release().await;
    world.heal();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    world.clean().await;
}
