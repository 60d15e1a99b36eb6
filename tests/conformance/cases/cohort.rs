//! The waiters of one client: in order, without a herd, and not at the expense of other clients.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use lock_runtime::LockErrorKind;

use super::{LONG, SLACK, ms};
use crate::{
    case::{Case, case},
    fixture::Fixture,
    polling::{begun, poll_once},
    support::stopwatch::Moment,
};

pub fn cases() -> Vec<Case> {
    vec![
        case!(tasks_are_served_in_the_order_in_which_they_came),
        case!(five_hundred_waiters_enter_once_each),
        case!(a_lease_that_is_passed_on_carries_rising_tokens_and_a_fresh_turn),
        case!(a_client_that_never_leaves_the_lock_alone_lets_others_in),
        case!(one_attempt_beside_a_busy_queue_is_answered),
        case!(a_waiter_in_the_middle_that_goes_away_is_passed_over),
        case!(a_waiter_that_is_called_and_not_polled_does_not_keep_the_lock),
        case!(waiters_go_on_when_the_holder_s_lease_is_lost),
        case!(a_panic_in_the_section_passes_the_lock_on),
        case!(a_body_s_result_outlives_a_panic_elsewhere),
        case!(an_aborted_holder_passes_the_lock_on),
    ]
}

async fn tasks_are_served_in_the_order_in_which_they_came(fixture: Fixture) {
    let locks = fixture.client().await.wait(LONG);
    let key = fixture.key("k");
    let guard = locks.lock(&key).acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for number in 0..200 {
        let (lock, order) = (locks.lock(&key), Arc::clone(&order));
        waiters.push(
            begun(async move {
                let guard = lock.acquire().await.unwrap();
                order.lock().unwrap().push(number);
                guard.release().await.unwrap();
            })
            .await,
        );
    }
    guard.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..200).collect::<Vec<_>>());
    fixture.clean().await;
}

async fn five_hundred_waiters_enter_once_each(fixture: Fixture) {
    let locks = fixture.client().await.wait(LONG);
    let key = fixture.key("k");
    let (inside, count) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let waiters: Vec<_> = (0..500)
        .map(|_| {
            let (lock, inside, count) = (locks.lock(&key), Arc::clone(&inside), Arc::clone(&count));
            tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                tokio::task::yield_now().await;
                count.fetch_add(1, Ordering::SeqCst);
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            })
        })
        .collect();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(count.load(Ordering::SeqCst), 500);
    fixture.clean().await;
}

async fn a_lease_that_is_passed_on_carries_rising_tokens_and_a_fresh_turn(fixture: Fixture) {
    let locks = fixture.client().await.wait(LONG);
    let key = fixture.key("k");
    let first = locks.lock(&key).max_hold(ms(400)).acquire().await.unwrap();
    let held = first.held();
    let lock = locks.lock(&key);
    let waiter = begun(async move { lock.acquire().await.unwrap() }).await;
    let token = first.fencing_token();
    first.release().await.unwrap();
    assert!(!held.is_valid(), "the turn of the first is over");
    let second = waiter.await.unwrap();
    assert!(second.fencing_token() > token);
    // The limit of the first is not that of the second.
    tokio::time::sleep(ms(600)).await;
    assert!(second.is_valid());
    assert!(!held.is_valid());
    second.release().await.unwrap();
    fixture.clean().await;
}

async fn a_client_that_never_leaves_the_lock_alone_lets_others_in(fixture: Fixture) {
    let (busy, other) = (fixture.client().await.wait(LONG), fixture.client().await.wait(LONG));
    let key = fixture.key("k");
    let sections = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (lock, sections) = (busy.lock(&key), Arc::clone(&sections));
            tokio::spawn(async move {
                loop {
                    let guard = lock.acquire().await.unwrap();
                    sections.fetch_add(1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    while sections.load(Ordering::SeqCst) < 100 {
        tokio::time::sleep(ms(1)).await;
    }
    let (mut slowest, mut most) = (Duration::ZERO, 0);
    for _ in 0..10 {
        let (began, before) = (Moment::now(), sections.load(Ordering::SeqCst));
        let guard = other.lock(&key).acquire().await.unwrap();
        let took = began.took();
        assert!(took.within(SLACK), "kept out for {took:?}");
        slowest = slowest.max(took.real);
        most = most.max(sections.load(Ordering::SeqCst) - before);
        guard.release().await.unwrap();
    }
    for task in tasks {
        task.abort();
    }
    println!("others waited {slowest:?} at most, and for {most} sections");
    fixture.clean().await;
}

async fn one_attempt_beside_a_busy_queue_is_answered(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await.wait(LONG), fixture.client().await);
    let key = fixture.key("k");
    let guard = theirs.lock(&key).acquire().await.unwrap();
    let lock = ours.lock(&key);
    // It asks the store and waits there.
    let leader = tokio::spawn(async move { lock.acquire().await });
    fixture.queued(&key, 1).await;
    let began = Moment::now();
    assert!(ours.lock(&key).try_acquire().await.unwrap().is_none());
    assert!(began.within(SLACK));
    fixture.has_places(&key, 1);
    guard.release().await.unwrap();
    leader.await.unwrap().unwrap().release().await.unwrap();
    fixture.clean().await;
}

async fn a_waiter_in_the_middle_that_goes_away_is_passed_over(fixture: Fixture) {
    let locks = fixture.client().await.wait(LONG);
    let key = fixture.key("k");
    let guard = locks.lock(&key).acquire().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..9 {
        let lock = locks.lock(&key);
        waiters.push(begun(async move { lock.acquire().await.unwrap().release().await }).await);
    }
    for number in [0, 4, 8] {
        waiters[number].abort();
    }
    guard.release().await.unwrap();
    for (number, waiter) in waiters.into_iter().enumerate() {
        match waiter.await {
            Ok(released) => released.unwrap(),
            Err(aborted) => assert!(aborted.is_cancelled() && number % 4 == 0, "{aborted}"),
        }
    }
    fixture.clean().await;
}

async fn a_waiter_that_is_called_and_not_polled_does_not_keep_the_lock(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await.ttl(fixture.lease(ms(1000))), fixture.client().await);
    let key = fixture.key("k");
    let guard = ours.lock(&key).acquire().await.unwrap();
    let lock = ours.lock(&key).wait(LONG);
    let mut kept = pin!(lock.acquire());
    assert!(poll_once(kept.as_mut()).await.is_pending());
    guard.release().await.unwrap();
    let began = Moment::now();
    let guard = theirs.lock(&key).wait(LONG).acquire().await.unwrap();
    assert!(began.within(ms(2000) + SLACK), "{:?}", began.took());
    guard.release().await.unwrap();
    kept.await.unwrap().release().await.unwrap();
    fixture.clean().await;
}

async fn waiters_go_on_when_the_holder_s_lease_is_lost(fixture: Fixture) {
    let locks = fixture.client().await.wait(LONG);
    let key = fixture.key("k");
    let guard = locks.lock(&key).ttl(fixture.lease(ms(600))).acquire().await.unwrap();
    let lock = locks.lock(&key);
    let waiter = begun(async move { lock.acquire().await.unwrap() }).await;
    fixture.lose(&key);
    // The guard is not dropped: its holder has not noticed.
    let began = Moment::now();
    let next = waiter.await.unwrap();
    assert!(began.within(ms(600) + SLACK), "{:?}", began.took());
    assert!(!guard.is_valid() && next.is_valid());
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(guard.release().await.unwrap_err().kind(), LockErrorKind::Lost);
    assert!(next.is_valid());
    next.release().await.unwrap();
    fixture.clean().await;
}

async fn a_panic_in_the_section_passes_the_lock_on(fixture: Fixture) {
    let locks = fixture.client().await.wait(LONG);
    let key = fixture.key("k");
    for in_body in [false, true] {
        let guard = locks.lock(&key).acquire().await.unwrap();
        let lock = locks.lock(&key);
        let waiter = begun(async move { lock.acquire().await.unwrap() }).await;
        let panicking = tokio::spawn(async move {
            // Without the hook, which would print it.
            let panic = || std::panic::resume_unwind(Box::new("on purpose"));
            if in_body {
                guard.run(async { panic() }).await.unwrap();
            } else {
                let _guard = guard;
                panic();
            }
        });
        assert!(panicking.await.unwrap_err().is_panic());
        waiter.await.unwrap().release().await.unwrap();
        fixture.clean().await;
    }
}

async fn a_body_s_result_outlives_a_panic_elsewhere(fixture: Fixture) {
    let locks = fixture.client().await.wait(LONG);
    let key = fixture.key("k");
    let guard = locks.lock(&key).acquire().await.unwrap();
    let lock = locks.lock(&key);
    // A waiter that panics while it waits leaves the queue.
    let waiter = tokio::spawn(async move {
        tokio::select! {
            guard = lock.acquire() => drop(guard),
            () = tokio::time::sleep(ms(20)) => std::panic::resume_unwind(Box::new("on purpose")),
        }
    });
    let result = guard.run(async { waiter.await.unwrap_err().is_panic() }).await;
    assert!(result.unwrap());
    fixture.clean().await;
}

async fn an_aborted_holder_passes_the_lock_on(fixture: Fixture) {
    let locks = fixture.client().await.wait(LONG);
    let key = fixture.key("k");
    let lock = locks.lock(&key);
    let (entered, inside) = tokio::sync::oneshot::channel();
    let holder = tokio::spawn(async move {
        let guard = lock.acquire().await.unwrap();
        entered.send(()).unwrap();
        guard.run(std::future::pending::<()>()).await
    });
    inside.await.unwrap();
    let lock = locks.lock(&key);
    let waiter = begun(async move { lock.acquire().await.unwrap() }).await;
    holder.abort();
    waiter.await.unwrap().release().await.unwrap();
    fixture.clean().await;
}
