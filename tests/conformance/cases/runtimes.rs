//! A manager works from every runtime of its process and outlives the runtime that created it; the upkeep of a hold
//! does not depend on the runtime of the caller.

use std::{thread, time::Instant};

use tokio::runtime::{Builder, Runtime};

use super::{LONG, ms};
use crate::{
    case::{Case, case},
    fixture::Fixture,
    polling::begun,
    support::until,
};

pub fn cases() -> Vec<Case> {
    vec![
        case!(a_manager_outlives_the_runtime_it_was_made_in),
        case!(a_manager_is_used_from_several_runtimes_at_once),
        case!(a_guard_moves_to_another_runtime),
        case!(a_guard_outlives_the_runtime_in_which_it_was_acquired),
        case!(a_guard_dropped_outside_a_runtime_frees_the_lock),
        case!(a_guard_dropped_with_its_runtime_frees_the_lock),
        case!(waiters_whose_runtime_is_shut_down_leave_the_queue),
        case!(a_blocked_runtime_does_not_stop_renewal),
        case!(the_last_manager_may_go_before_its_guards),
    ]
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Runs `work` on its own thread, outside of the case's runtime.
async fn elsewhere<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = tokio::sync::oneshot::channel();
    thread::spawn(move || {
        let _ = send.send(work());
    });
    receive.await.expect("the other thread did not panic")
}

async fn a_manager_outlives_the_runtime_it_was_made_in(fixture: Fixture) {
    let connected = fixture.connect(fixture.url());
    let locks = elsewhere(move || {
        let runtime = runtime();
        let locks = runtime.block_on(connected).unwrap();
        // Used once, so that connections and tasks exist.
        runtime.block_on(async { locks.lock("warm").acquire().await.unwrap().release().await.unwrap() });
        drop(runtime);
        locks
    })
    .await;
    let key = fixture.key("k");
    for _ in 0..2 {
        let guard = locks.lock(&key).ttl(fixture.lease(ms(1200))).wait(LONG).acquire().await.unwrap();
        tokio::time::sleep(ms(1800)).await;
        assert!(guard.is_valid(), "it is not renewed");
        guard.release().await.unwrap();
    }
    drop(locks.lock(&key).acquire().await.unwrap());
    fixture.clean().await;
}

async fn a_manager_is_used_from_several_runtimes_at_once(fixture: Fixture) {
    let locks = fixture.client().await.wait(LONG);
    let key = fixture.key("k");
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let lock = locks.lock(&key);
            thread::spawn(move || {
                for _ in 0..5 {
                    let runtime = runtime();
                    runtime.block_on(async {
                        for _ in 0..10 {
                            lock.acquire().await.unwrap().release().await.unwrap();
                        }
                    });
                }
            })
        })
        .collect();
    elsewhere(move || {
        for thread in threads {
            thread.join().unwrap();
        }
    })
    .await;
    fixture.clean().await;
}

async fn a_guard_moves_to_another_runtime(fixture: Fixture) {
    let locks = fixture.client().await.wait(LONG);
    let key = fixture.key("k");
    let guard = locks.lock(&key).acquire().await.unwrap();
    let lock = locks.lock(&key);
    let waiter = begun(async move { lock.acquire().await.unwrap() }).await;
    elsewhere(move || runtime().block_on(guard.release())).await.unwrap();
    let next = waiter.await.unwrap();
    elsewhere(move || runtime().block_on(next.run(async {}))).await.unwrap();
    fixture.clean().await;
}

async fn a_guard_outlives_the_runtime_in_which_it_was_acquired(fixture: Fixture) {
    let locks = fixture.client().await;
    let key = fixture.key("k");
    let lock = locks.lock(&key).ttl(fixture.lease(ms(1200)));
    let guard = elsewhere(move || runtime().block_on(lock.acquire())).await.unwrap();
    let began = Instant::now();
    while began.elapsed() < ms(2500) {
        assert!(guard.is_valid(), "lost after {:?}", began.elapsed());
        fixture.is_held(&key).await;
        tokio::time::sleep(ms(50)).await;
    }
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn a_guard_dropped_outside_a_runtime_frees_the_lock(fixture: Fixture) {
    let guard = fixture.client().await.lock(fixture.key("k")).ttl(LONG).acquire().await.unwrap();
    let guard = guard.run(std::future::pending::<()>());
    elsewhere(move || drop(guard)).await;
    fixture.clean().await;
    let guard = fixture.client().await.lock(fixture.key("k")).ttl(LONG).acquire().await.unwrap();
    elsewhere(move || drop(guard)).await;
    fixture.clean().await;
}

async fn a_guard_dropped_with_its_runtime_frees_the_lock(fixture: Fixture) {
    let locks = fixture.client().await;
    let key = fixture.key("k");
    let lock = locks.lock(&key).ttl(LONG);
    elsewhere(move || {
        let runtime = runtime();
        runtime.block_on(async {
            let guard = lock.acquire().await.unwrap();
            tokio::spawn(async move { guard.run(std::future::pending::<()>()).await });
            tokio::task::yield_now().await;
        });
        drop(runtime);
    })
    .await;
    fixture.is_clean_and_free(&key).await;
}

async fn waiters_whose_runtime_is_shut_down_leave_the_queue(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await.wait(LONG), fixture.client().await.wait(LONG));
    let key = fixture.key("k");
    let guard = ours.lock(&key).ttl(LONG).acquire().await.unwrap();
    let runtime = runtime();
    for lock in [ours.lock(&key), theirs.lock(&key)] {
        runtime.spawn(async move { lock.acquire().await });
    }
    let runtime = elsewhere(move || {
        runtime.block_on(async { tokio::time::sleep(ms(100)).await });
        runtime
    })
    .await;
    fixture.queued(&key, 1).await;
    // Behind them, and without a leader once they are gone.
    let lock = theirs.lock(&key);
    let patient = begun(async move { lock.acquire().await.unwrap() }).await;
    elsewhere(move || drop(runtime)).await;
    fixture.queued(&key, 1).await;
    guard.release().await.unwrap();
    patient.await.unwrap().release().await.unwrap();
    fixture.clean().await;
}

async fn a_blocked_runtime_does_not_stop_renewal(fixture: Fixture) {
    let locks = fixture.client().await;
    let other = fixture.client().await;
    let key = fixture.key("k");
    let ttl = fixture.lease(ms(1200));
    let lock = locks.lock(&key).ttl(ttl);
    let blocked = thread::spawn(move || {
        runtime().block_on(async {
            let guard = lock.acquire().await.unwrap();
            // Blocks the only thread of this runtime.
            thread::sleep(ttl * 4);
            let valid = guard.is_valid();
            guard.release().await.unwrap();
            valid
        })
    });
    until("the other thread holds it", || {
        if fixture.left().is_empty() { Err("it is not held") } else { Ok(()) }
    })
    .await;
    let began = Instant::now();
    while began.elapsed() < ttl * 3 {
        assert!(other.lock(&key).try_acquire().await.unwrap().is_none(), "it was not renewed");
        tokio::time::sleep(ms(20)).await;
    }
    assert!(elsewhere(move || blocked.join().unwrap()).await, "lost while the runtime was blocked");
    fixture.clean().await;
}

async fn the_last_manager_may_go_before_its_guards(fixture: Fixture) {
    let guard = {
        let locks = fixture.client().await;
        locks.lock(fixture.key("k")).ttl(fixture.lease(ms(1200))).acquire().await.unwrap()
    };
    tokio::time::sleep(ms(2500)).await;
    assert!(guard.is_valid(), "it is not renewed");
    let dropped = {
        let locks = fixture.client().await;
        locks.lock(fixture.key("other")).ttl(LONG).acquire().await.unwrap()
    };
    guard.release().await.unwrap();
    drop(dropped);
    fixture.clean().await;
}
