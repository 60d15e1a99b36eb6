//! What a manager says of its servers and its locks without asking them.

use std::time::{Duration, Instant};

use lock_runtime::{LockManager, ManagerStatus};

use super::{LONG, SLACK, ms, outage::OUTAGES};
use crate::{
    case::{Case, Need, case},
    fixture::Fixture,
    polling::begun,
    store::Fault,
    support::{PATIENCE, until},
};

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        case!(nothing_is_known_before_the_first_use),
        case!(locks_and_waiters_are_counted),
        case!(servers_that_answer_are_reachable).needs(Need::Connections),
    ];
    cases.extend(OUTAGES.map(|fault| {
        case!(an_outage_is_shown_until_it_is_over, fault).under(fault).needs(Need::Connections)
    }));
    cases
}

fn counts(status: &ManagerStatus) -> [usize; 3] {
    [status.held, status.waiting, status.in_doubt]
}

async fn nothing_is_known_before_the_first_use(fixture: Fixture) {
    let status = fixture.connect_lazy().unwrap().status();
    assert_eq!(counts(&status), [0; 3]);
    assert_eq!(status.is_reachable(), status.servers.is_empty(), "{status:?}");
    for server in &status.servers {
        assert!(!server.address().is_empty() && !server.address().contains('@'), "{server:?}");
        assert!(!server.is_reachable() && server.connected_for().is_none(), "{server:?}");
        assert!(server.last_answer_age().is_none() && server.error().is_none(), "{server:?}");
    }
}

async fn locks_and_waiters_are_counted(fixture: Fixture) {
    let (locks, key) = (fixture.client().await, fixture.key("k"));
    let guard = locks.lock(&key).ttl(LONG).acquire().await.unwrap();
    assert_eq!(counts(&locks.status()), [1, 0, 0]);
    assert_eq!(counts(&fixture.client().await.status()), [0; 3], "those of another client");
    let lock = locks.lock(&key).ttl(LONG).wait(LONG);
    let waiter = begun(async move { lock.acquire().await.unwrap() }).await;
    is(&locks, [1, 1, 0]).await;
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap();
    is(&locks, [1, 0, 0]).await;
    drop(guard);
    is(&locks, [0, 0, 0]).await;
    fixture.clean().await;
}

async fn is(locks: &LockManager, wanted: [usize; 3]) {
    until(&format!("{wanted:?} are counted"), || {
        let counted = counts(&locks.status());
        if counted == wanted { Ok(()) } else { Err(counted) }
    })
    .await;
}

/// Waits until the servers have answered, and checks what is then known.
async fn all_answer(locks: &LockManager, since: Instant) {
    until("all servers have answered", || {
        let status = locks.status();
        let answered = |age: Duration| age <= since.elapsed();
        let answer =
            |server: &lock_runtime::backend::ServerStatus| server.last_answer_age().is_some_and(answered);
        if status.servers.iter().all(answer) { Ok(()) } else { Err(status) }
    })
    .await;
    let status = locks.status();
    assert!(status.is_reachable() && !status.servers.is_empty(), "{status:?}");
    for server in &status.servers {
        assert!(server.is_reachable() && server.connected_for().is_some(), "{server:?}");
        assert!(server.outage_for().is_none() && server.error().is_none(), "{server:?}");
    }
}

async fn servers_that_answer_are_reachable(fixture: Fixture) {
    let began = Instant::now();
    let locks = fixture.client().await;
    let guard = locks.lock(fixture.key("k")).ttl(LONG).acquire().await.unwrap();
    all_answer(&locks, began).await;
    let connected = locks.status().servers[0].connected_for().expect("reachable");
    assert!(connected <= began.elapsed(), "{connected:?}");
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn an_outage_is_shown_until_it_is_over(fixture: Fixture, fault: Fault) {
    let began = Instant::now();
    let locks = fixture.client().await;
    let guard = locks.lock(fixture.key("k")).ttl(LONG).acquire().await.unwrap();
    all_answer(&locks, began).await;

    fixture.hurt(fault);
    let hurt = Instant::now();
    let status = loop {
        // The status alone asks nothing.
        let lock = locks.lock(fixture.key("other")).wait(ms(200));
        let _ = lock.acquire().await;
        let status = locks.status();
        if !status.is_reachable() {
            break status;
        }
        assert!(hurt.elapsed() < PATIENCE, "{status:?}");
    };
    let away = status.servers.iter().filter(|server| !server.is_reachable()).collect::<Vec<_>>();
    assert!(away.len() > status.servers.len() / 2, "{status:?}");
    for server in away {
        assert!(server.connected_for().is_none(), "{server:?}");
        assert!(server.outage_for().is_some_and(|length| length <= hurt.elapsed() + SLACK), "{server:?}");
        assert!(server.error().is_some_and(|error| !error.to_string().is_empty()), "{server:?}");
        assert!(server.last_answer_age().is_some(), "{server:?}");
    }
    assert_eq!(status.held, 1, "the guard is there, whether or not the lock is lost");

    fixture.heal();
    let healed = Instant::now();
    while locks.ping().await.is_err() {
        assert!(healed.elapsed() < PATIENCE, "{:?}", locks.status());
        tokio::time::sleep(ms(50)).await;
    }
    until("it is over", || {
        let status = locks.status();
        let over = status.is_reachable() && status.servers.iter().any(|server| server.error().is_none());
        if over { Ok(()) } else { Err(status) }
    })
    .await;
    drop(guard);
    is(&locks, [0; 3]).await;
}
