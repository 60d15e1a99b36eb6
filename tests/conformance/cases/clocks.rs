//! Wall clocks that jump: the holder's changes nothing, the server's ends leases early or late.

use std::time::{Duration, Instant};

use super::{LEASES, LONG, SLACK, forget, ms};
use crate::{
    case::{Case, Need, case},
    fixture::Fixture,
    polling::begun,
    store::Fault,
    support::{stopwatch::Moment, wall_clock::Clock},
};

const HOUR: Duration = Duration::from_hours(1);

pub fn cases() -> Vec<Case> {
    vec![
        case!(a_jump_of_the_holder_s_clock_neither_ends_its_lease_nor_makes_it_longer)
            .needs(Need::Can(|can| can.is_shared_between_processes())),
        case!(tokens_rise_through_jumps_of_the_server_s_clock).hurts(Fault::ClockBack(HOUR)),
        case!(a_jump_forward_lets_the_next_one_in_with_a_larger_token_and_its_holder_learns_it)
            .hurts(Fault::ClockForward(HOUR))
            .needs(LEASES),
        case!(a_jump_back_leaves_the_holder_its_lease_and_the_waiters_their_turns)
            .hurts(Fault::ClockBack(HOUR))
            .needs(Need::Can(|can| can.is_fair())),
        case!(a_jump_back_makes_the_lease_of_a_dead_holder_as_much_longer)
            .hurts(Fault::ClockBack(Duration::ZERO))
            .needs(LEASES),
        case!(a_jump_forward_leaves_the_waiters_their_turns).hurts(Fault::ClockForward(HOUR)).needs(LEASES),
    ]
}

async fn a_jump_of_the_holder_s_clock_neither_ends_its_lease_nor_makes_it_longer(fixture: Fixture) {
    let key = fixture.key("k");
    let ttl = fixture.lease(ms(1000));
    let clock = Clock::new();
    let mut other = fixture.client_process_with_clock(&clock).await;
    for jump in [Clock::set_forward, Clock::set_back] {
        let token = other.acquire(&key, ttl, LONG).await.unwrap();
        jump(&clock, HOUR);
        // Beyond its first lease: it is renewed.
        let began = Instant::now();
        while began.elapsed() < ttl * 2 {
            assert!(other.is_valid(&key).await, "lost {:?} after the jump", began.elapsed());
            tokio::time::sleep(ms(20)).await;
        }
        fixture.is_held(&key).await;
        // It stops, and its lease ends; by its own clock that was long ago, or is far in the future.
        other.pause();
        let guard = fixture.client().await.lock(&key).wait(LONG).acquire().await.unwrap();
        assert!(guard.fencing_token().get() > token);
        other.resume();
        assert!(!other.is_valid(&key).await, "it believes that it holds the lock, as we do");
        assert_eq!(other.release(&key).await, "Lost");
        guard.release().await.unwrap();
        clock.set_right();
    }
    fixture.clean().await;
}

async fn tokens_rise_through_jumps_of_the_server_s_clock(fixture: Fixture) {
    let clients = [fixture.client().await, fixture.client().await];
    let key = fixture.key("k");
    let mut last = None;
    let jumps = [None, Some(Fault::ClockForward(HOUR)), None, Some(Fault::ClockBack(HOUR)), None];
    for (number, jump) in jumps.into_iter().enumerate() {
        match jump {
            Some(jump) => fixture.hurt(jump),
            None => fixture.heal(),
        }
        // Alone, and handed over.
        for round in number..number + 6 {
            let guard = clients[round % 2].lock(&key).wait(LONG).acquire().await.unwrap();
            let token = guard.fencing_token();
            assert!(last < Some(token), "{last:?}, then {token:?} after {jump:?}");
            let lock = clients[(round + 1) % 2].lock(&key).wait(LONG);
            let waiter = begun(async move { lock.acquire().await.unwrap() }).await;
            fixture.queued(&key, 1).await;
            guard.release().await.unwrap();
            let next = waiter.await.unwrap();
            assert!(
                next.fencing_token() > token,
                "{token:?}, then {:?} after {jump:?}",
                next.fencing_token()
            );
            last = Some(next.fencing_token());
            next.release().await.unwrap();
        }
    }
    fixture.clean().await;
}

async fn a_jump_forward_lets_the_next_one_in_with_a_larger_token_and_its_holder_learns_it(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    let ttl = ms(6000);
    let guard = ours.lock(&key).ttl(ttl).acquire().await.unwrap();
    let began = Moment::now();
    fixture.hurt(Fault::ClockForward(HOUR));
    let next = theirs.lock(&key).wait(LONG).acquire().await.unwrap();
    // No lease on a server's clock can exclude this, as the documentation says.
    let overlap = guard.is_valid() && next.is_valid();
    assert!(next.fencing_token() > guard.fencing_token(), "the resource could not tell them apart");
    guard.lost().await;
    assert!(began.within(ttl / 2 + SLACK), "noticed only after {:?}", began.took());
    println!("overlap: {overlap}, noticed by the first holder after {:?}", began.took());
    assert!(overlap, "the jump did not do what the documentation warns of");
    assert!(guard.release().await.is_err());
    assert!(next.is_valid());
    fixture.is_held(&key).await;
    next.release().await.unwrap();
    fixture.clean().await;
}

async fn a_jump_back_leaves_the_holder_its_lease_and_the_waiters_their_turns(fixture: Fixture) {
    let key = fixture.key("k");
    let ttl = ms(1500);
    let guard = fixture.client().await.lock(&key).ttl(ttl).acquire().await.unwrap();
    let token = guard.fencing_token();
    let lock = fixture.client().await.lock(&key).wait(LONG);
    let first = begun(async move { lock.acquire().await.unwrap() }).await;
    fixture.queued(&key, 1).await;
    fixture.hurt(Fault::ClockBack(HOUR));
    let lock = fixture.client().await.lock(&key).wait(LONG);
    let second = begun(async move { lock.acquire().await.unwrap() }).await;
    fixture.queued(&key, 2).await;
    let began = Instant::now();
    while began.elapsed() < ttl * 2 {
        assert!(guard.is_valid(), "lost {:?} after the jump", began.elapsed());
        tokio::time::sleep(ms(20)).await;
    }
    guard.release().await.unwrap();
    let first = first.await.unwrap();
    assert!(first.fencing_token() > token);
    assert!(!second.is_finished(), "the order is kept");
    let token = first.fencing_token();
    first.release().await.unwrap();
    let second = second.await.unwrap();
    assert!(second.fencing_token() > token);
    second.release().await.unwrap();
    fixture.clean().await;
}

/// As the documentation says; the lease ends all the same.
async fn a_jump_back_makes_the_lease_of_a_dead_holder_as_much_longer(fixture: Fixture) {
    let key = fixture.key("k");
    let (ttl, jump) = (ms(800), ms(2500));
    forget(fixture.client().await.lock(&key).ttl(ttl).auto_renew(false).acquire().await.unwrap());
    let died = Moment::now();
    fixture.hurt(Fault::ClockBack(jump));
    let guard = fixture.client().await.lock(&key).wait(LONG).acquire().await.unwrap();
    let took = died.took();
    assert!(took.real > jump && took.within(ttl + jump + SLACK), "{took:?}");
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn a_jump_forward_leaves_the_waiters_their_turns(fixture: Fixture) {
    let key = fixture.key("k");
    let guard = fixture.client().await.lock(&key).ttl(LONG).acquire().await.unwrap();
    let token = guard.fencing_token();
    let lock = fixture.client().await.lock(&key).wait(LONG);
    let waiter = begun(async move { lock.acquire().await.unwrap() }).await;
    fixture.queued(&key, 1).await;
    // The lease has ended, and the place looks abandoned: the waiter enters at its next poll, or begins anew.
    fixture.hurt(Fault::ClockForward(HOUR));
    let began = Moment::now();
    let next = waiter.await.unwrap();
    assert!(began.within(ms(3000) + SLACK), "only after {:?}", began.took());
    assert!(next.fencing_token() > token);
    assert_eq!(guard.release().await.unwrap_err().kind(), lock_runtime::LockErrorKind::Lost);
    assert!(next.is_valid());
    next.release().await.unwrap();
    fixture.clean().await;
}
