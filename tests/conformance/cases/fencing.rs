//! Each grant carries a token larger than that of every grant that ended before it was requested.

use lock_runtime::FencingToken;

use super::{LONG, ms};
use crate::{
    case::{Case, case},
    fixture::Fixture,
    polling::begun,
    store::Fault,
};

pub fn cases() -> Vec<Case> {
    vec![
        case!(tokens_rise_from_grant_to_grant),
        case!(tokens_rise_through_hand_overs_of_many_waiters),
        case!(renewal_keeps_the_token),
        case!(the_token_of_a_successor_is_larger_than_that_of_the_hold_that_ran_out),
        case!(tokens_fit_a_signed_integer),
        case!(tokens_rise_after_all_data_was_lost).hurts(Fault::DataLost),
        case!(tokens_rise_after_a_restart_that_lost_all_data).hurts(Fault::Restarted),
    ]
}

async fn tokens_rise_from_grant_to_grant(fixture: Fixture) {
    let clients = [fixture.client().await, fixture.client().await];
    let key = fixture.key("k");
    let mut last = None::<FencingToken>;
    for round in 0..60 {
        let lock = clients[round % 2].lock(&key);
        let guard = lock.try_acquire().await.unwrap().expect("it is free");
        assert!(last < Some(guard.fencing_token()), "{last:?}, then {:?}", guard.fencing_token());
        last = Some(guard.fencing_token());
        guard.release().await.unwrap();
    }
}

async fn tokens_rise_through_hand_overs_of_many_waiters(fixture: Fixture) {
    let clients = [fixture.client().await, fixture.client().await];
    let key = fixture.key("k");
    let guard = clients[0].lock(&key).acquire().await.unwrap();
    let first = guard.fencing_token();
    let (send, mut tokens) = tokio::sync::mpsc::unbounded_channel();
    for round in 0..80 {
        let lock = clients[round % 2].lock(&key).wait(LONG);
        let send = send.clone();
        begun(async move {
            let guard = lock.acquire().await.unwrap();
            // Sent under the lock, so the order of the channel is that of the holds.
            send.send(guard.fencing_token()).unwrap();
            guard.release().await.unwrap();
        })
        .await;
    }
    drop(send);
    guard.release().await.unwrap();
    let mut last = first;
    let mut count = 0;
    while let Some(token) = tokens.recv().await {
        assert!(token > last, "{last:?}, then {token:?}");
        (last, count) = (token, count + 1);
    }
    assert_eq!(count, 80);
    fixture.clean().await;
}

async fn renewal_keeps_the_token(fixture: Fixture) {
    let ttl = fixture.lease(ms(1200));
    let guard = fixture.client().await.lock(fixture.key("k")).ttl(ttl).acquire().await.unwrap();
    let token = guard.fencing_token();
    tokio::time::sleep(ttl * 2).await;
    assert!(guard.is_valid());
    assert_eq!(guard.fencing_token(), token);
    guard.release().await.unwrap();
}

async fn the_token_of_a_successor_is_larger_than_that_of_the_hold_that_ran_out(fixture: Fixture) {
    let key = fixture.key("k");
    let stale = fixture
        .client()
        .await
        .lock(&key)
        .ttl(fixture.lease(ms(200)))
        .auto_renew(false)
        .acquire()
        .await
        .unwrap();
    let next = fixture.client().await.lock(&key).wait(LONG).acquire().await.unwrap();
    assert!(next.fencing_token() > stale.fencing_token());
    next.release().await.unwrap();
}

async fn tokens_fit_a_signed_integer(fixture: Fixture) {
    let guard = fixture.client().await.lock(fixture.key("k")).acquire().await.unwrap();
    let token = guard.fencing_token();
    assert!(i64::from(token) > 0);
    assert_eq!(token.to_string().parse::<u64>().unwrap(), token.get());
    guard.release().await.unwrap();
}

async fn tokens_rise_after_all_data_was_lost(fixture: Fixture) {
    rises_through(fixture, Fault::DataLost).await;
}

async fn tokens_rise_after_a_restart_that_lost_all_data(fixture: Fixture) {
    rises_through(fixture, Fault::Restarted).await;
}

async fn rises_through(fixture: Fixture, fault: Fault) {
    let locks = fixture.client().await;
    let key = fixture.key("k");
    let mut last = None;
    for _ in 0..3 {
        for _ in 0..10 {
            let guard = locks.lock(&key).wait(LONG).acquire().await.unwrap();
            assert!(last < Some(guard.fencing_token()), "{last:?}, then {:?}", guard.fencing_token());
            last = Some(guard.fencing_token());
            guard.release().await.unwrap();
        }
        fixture.hurt(fault);
    }
}
