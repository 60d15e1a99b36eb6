//! Some of the servers of which a majority decides hang, or are far away: no attempt waits for them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use lock_runtime::LockManager;

use super::{LONG, ms};
use crate::{
    case::{Case, case},
    fixture::Fixture,
    store::Fault,
    support::stopwatch::{Moment, Took},
};

pub fn cases() -> Vec<Case> {
    [Fault::MinorityPaused, Fault::MinoritySlow(ms(200))]
        .map(|fault| case!(no_contended_attempt_waits_for_them, fault).under(fault).busy())
        .into()
}

/// Clients that ask at the same time divide the servers among them. The one that is missing cannot be waited for: until a
/// client gives its servers back, no other gets the lock.
async fn no_contended_attempt_waits_for_them(fixture: Fixture, fault: Fault) {
    let mut clients = Vec::new();
    for _ in 0..4 {
        let locks = fixture.client().await;
        locks.lock(fixture.key("warm")).wait(LONG).acquire().await.unwrap().release().await.unwrap();
        clients.push(locks);
    }
    let key = fixture.key("k");
    let (healthy, slowest) = contend(&clients, &key).await;
    println!("all well: {healthy} holds, slowest attempt {slowest:?}");
    fixture.hurt(fault);
    let (hurt, slowest) = contend(&clients, &key).await;
    println!("{}: {hurt} holds, slowest attempt {slowest:?}", fault.name());
    fixture.heal();
    // Half of the shortest time for which a server is waited for.
    assert!(slowest.within(ms(250)), "an attempt waited {slowest:?}");
    // The usual figure is above a half; on a busy machine only waiting for the minority is certain to be seen.
    assert!(hurt > healthy / 8, "{hurt} holds instead of {healthy}");
}

/// Returns the number of holds in a while, and the time of the slowest single attempt.
async fn contend(clients: &[LockManager], key: &str) -> (u32, Took) {
    const SECTION: Duration = ms(1);
    let over = Arc::new(AtomicBool::new(false));
    let [trier, waiters @ ..] = clients else { unreachable!("there are some") };
    let waiting: Vec<_> = waiters
        .iter()
        .map(|locks| {
            let (lock, over) = (locks.lock(key).wait(LONG), Arc::clone(&over));
            tokio::spawn(async move {
                let mut holds = 0;
                while !over.load(Ordering::Relaxed) {
                    let guard = lock.acquire().await.unwrap();
                    tokio::time::sleep(SECTION).await;
                    guard.release().await.unwrap();
                    holds += 1;
                }
                holds
            })
        })
        .collect();
    let began = Moment::now();
    let (mut slowest, mut holds) = (began.took(), 0);
    while began.elapsed() < ms(2_000) {
        let attempt = Moment::now();
        let guard = trier.lock(key).try_acquire().await.unwrap();
        let took = attempt.took();
        if took.real > slowest.real {
            slowest = took;
        }
        if let Some(guard) = guard {
            tokio::time::sleep(SECTION).await;
            guard.release().await.unwrap();
            holds += 1;
        }
    }
    over.store(true, Ordering::Relaxed);
    for task in waiting {
        holds += task.await.unwrap();
    }
    (holds, slowest)
}
