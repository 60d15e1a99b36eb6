//! A process that is paused and resumed: at its first step it notices that time has passed.

use std::time::Duration;

use super::{LONG, SLACK, ms};
use crate::{
    case::{Case, Need, case},
    fixture::Fixture,
    polling::begun,
    support::stopwatch::Moment,
};

pub fn cases() -> Vec<Case> {
    [
        case!(a_holder_paused_beyond_its_lease_knows_it_at_once_and_spares_the_successor),
        case!(a_body_paused_beyond_its_lease_is_not_polled_again),
        case!(a_holder_paused_for_less_than_its_lease_keeps_the_lock),
        case!(a_paused_waiter_keeps_the_next_one_for_a_bounded_time_and_goes_on_later),
    ]
    .into_iter()
    .map(|case| case.needs(Need::Can(|can| can.is_shared_between_processes())))
    .collect()
}

async fn a_holder_paused_beyond_its_lease_knows_it_at_once_and_spares_the_successor(fixture: Fixture) {
    let key = fixture.key("k");
    let ttl = fixture.lease(ms(1000));
    let mut other = fixture.client_process().await;
    for _ in 0..2 {
        let token = other.acquire(&key, ttl, LONG).await.unwrap();
        assert!(other.is_valid(&key).await);
        other.pause();
        let guard = fixture.client().await.lock(&key).wait(LONG).acquire().await.unwrap();
        assert!(guard.fencing_token().get() > token);
        other.resume();
        assert!(!other.is_valid(&key).await, "it believes that it holds the lock, as we do");
        assert_eq!(other.release(&key).await, "Lost");
        assert!(guard.is_valid());
        fixture.is_held(&key).await;
        guard.release().await.unwrap();
    }
    fixture.clean().await;
}

async fn a_body_paused_beyond_its_lease_is_not_polled_again(fixture: Fixture) {
    let key = fixture.key("k");
    let mut other = fixture.client_process().await;
    other.acquire(&key, fixture.lease(ms(600)), LONG).await.unwrap();
    other.run_body(&key).await;
    tokio::time::sleep(ms(100)).await;
    other.pause();
    let guard = fixture.client().await.lock(&key).wait(LONG).acquire().await.unwrap();
    other.resume();
    let (outcome, late_polls) = other.body(&key).await;
    assert_eq!(outcome, "Lost");
    assert_eq!(late_polls, 0, "the body ran on under a lock that another client holds");
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn a_holder_paused_for_less_than_its_lease_keeps_the_lock(fixture: Fixture) {
    let key = fixture.key("k");
    let ttl = fixture.lease(ms(6000));
    let mut other = fixture.client_process().await;
    let token = other.acquire(&key, ttl, LONG).await.unwrap();
    for _ in 0..3 {
        other.pause();
        tokio::time::sleep(ttl / 8).await;
        other.resume();
        assert!(other.is_valid(&key).await);
    }
    fixture.is_held(&key).await;
    assert_eq!(other.release(&key).await, "ok");
    assert!(other.acquire(&key, ttl, LONG).await.unwrap() > token);
    assert_eq!(other.release(&key).await, "ok");
    fixture.clean().await;
}

async fn a_paused_waiter_keeps_the_next_one_for_a_bounded_time_and_goes_on_later(fixture: Fixture) {
    let key = fixture.key("k");
    let guard = fixture.client().await.lock(&key).acquire().await.unwrap();
    let mut other = fixture.client_process().await;
    other.begin_to_acquire(&key, LONG, LONG);
    fixture.queued(&key, 1).await;
    let lock = fixture.client().await.lock(&key).wait(LONG);
    let next = begun(async move { lock.acquire().await.unwrap() }).await;
    fixture.queued(&key, 2).await;
    other.pause();
    let released = Moment::now();
    guard.release().await.unwrap();
    let guard = next.await.unwrap();
    assert!(released.within(Duration::from_secs(5) + SLACK), "only after {:?}", released.took());
    other.resume();
    // It lost its turn but still wants the lock; it must not believe in a grant that has expired.
    tokio::time::sleep(ms(300)).await;
    assert!(guard.is_valid());
    fixture.is_held(&key).await;
    let token = guard.fencing_token().get();
    guard.release().await.unwrap();
    let later = other.acquired().await.expect("it lives").expect("it still wants the lock");
    assert!(later > token);
    assert!(other.is_valid(&key).await);
    assert_eq!(other.release(&key).await, "ok");
    fixture.clean().await;
}
