//! Holds that last for longer than their guards: `hold_at_least`.

use std::{panic::AssertUnwindSafe, time::Duration};

use crate::{
    Limits, LockErrorKind, LockManager, OnLost,
    macro_support::Kept,
    mock::{Mock, Reply, until},
    time::clock::Instant,
};

const MS: Duration = Duration::from_millis(1);
const LENGTH: Duration = Duration::from_millis(2500);

fn manager(store: &Mock) -> LockManager {
    store.manager().ttl(1500 * MS)
}

/// Asserts that the lock is renewed until [`LENGTH`] has passed since `began`, and is then released.
async fn is_kept(store: &Mock, began: Instant) {
    assert!(Instant::now() < began + LENGTH, "the caller was kept waiting");
    until("it is released", || store.releases().count("k") == 1).await;
    assert!(
        Instant::now() >= began + LENGTH,
        "released after {:?}",
        Instant::now().saturating_duration_since(began)
    );
    assert!(store.renewals().count("k") > 1, "not renewed");
}

/// Acquires a lock as soon as the limit of held locks leaves room.
async fn room(locks: &LockManager, key: &str) -> crate::LockGuard {
    let end = Instant::now() + 4 * LENGTH;
    loop {
        match locks.lock(key).acquire().await {
            Ok(guard) => return guard,
            Err(full) => assert!(full.kind() == LockErrorKind::Overloaded && Instant::now() < end, "{full}"),
        }
        tokio::time::sleep(5 * MS).await;
    }
}

#[tokio::test]
async fn a_guard_that_is_released_leaves_its_hold_behind_until_its_time() {
    let store = Mock::new();
    let locks = manager(&store);
    let began = Instant::now();
    let guard = locks.lock("k").hold_at_least(LENGTH).acquire().await.expect("granted");
    let held = guard.held();
    held.ensure_valid().expect("held");
    guard.release().await.expect("held");
    assert!(!held.is_valid() && held.remaining().is_zero(), "a view of it is still valid");
    let error = held.ensure_valid().expect_err("released");
    assert!(error.kind() == LockErrorKind::Lost && error.to_string().contains("has ended"), "{error}");
    held.lost().await;
    assert!(locks.lock("k").try_acquire().await.expect("no error").is_none(), "free for this process");
    is_kept(&store, began).await;
    until("nothing is kept", || locks.engine().renewals.len() == 0).await;
}

#[tokio::test]
async fn a_body_a_panic_and_a_drop_do_so_too() {
    for way in 0..4 {
        let store = Mock::new();
        let locks = manager(&store);
        let began = Instant::now();
        let guard = locks.lock("k").hold_at_least(LENGTH).acquire().await.expect("granted");
        match way {
            0 => guard.run(async {}).await.expect("in time"),
            1 => drop(guard),
            2 => drop(guard.release()),
            _ => {
                let panics = AssertUnwindSafe(|| {
                    let _guard = guard;
                    std::panic::resume_unwind(Box::new("told to panic"));
                });
                assert!(std::panic::catch_unwind(panics).is_err());
            }
        }
        is_kept(&store, began).await;
    }
}

#[tokio::test]
async fn it_is_kept_when_nothing_else_is_left_of_the_manager() {
    let store = Mock::new();
    let began = Instant::now();
    let held = {
        let runtime = std::thread::spawn({
            let store = store.clone();
            move || {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                let lock = manager(&store).lock("k").hold_at_least(LENGTH);
                let guard = runtime.block_on(lock.acquire()).expect("granted");
                let engine = std::sync::Arc::downgrade(guard.engine());
                runtime.spawn(async move {
                    let _guard = guard;
                    std::future::pending::<()>().await;
                });
                drop(runtime);
                engine
            }
        });
        runtime.join().expect("no panic")
    };
    is_kept(&store, began).await;
    until("the store is unused", || held.strong_count() == 0).await;
}

#[tokio::test]
async fn a_section_that_takes_longer_is_released_at_its_end() {
    let store = Mock::new();
    let locks = manager(&store);
    let guard = locks.lock("k").hold_at_least(50 * MS).acquire().await.expect("granted");
    guard.run(tokio::time::sleep(100 * MS)).await.expect("in time");
    assert_eq!(store.releases().count("k"), 1);
}

#[tokio::test]
async fn who_waits_in_this_process_is_let_in_after_it() {
    let store = Mock::new();
    let locks = manager(&store);
    let began = Instant::now();
    drop(locks.lock("k").hold_at_least(LENGTH).acquire().await.expect("granted"));
    let error = locks.lock("k").wait(100 * MS).acquire().await.expect_err("held");
    assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
    let next = locks.lock("k").acquire().await.expect("free in the end");
    assert!(Instant::now() >= began + LENGTH);
    next.release().await.expect("held");
}

#[tokio::test]
async fn a_turn_that_was_passed_on_is_kept_for_its_own_time() {
    let store = Mock::new();
    let locks = manager(&store);
    let first = locks.lock("k").acquire().await.expect("granted");
    let next = locks.lock("k").hold_at_least(LENGTH);
    let (passed, ()) = tokio::join!(next.acquire(), async { first.release().await.expect("held") });
    let began = Instant::now();
    drop(passed.expect("handed over"));
    assert_eq!(store.acquires().count("k"), 1);
    is_kept(&store, began).await;
}

#[tokio::test]
async fn what_was_taken_beside_the_queue_is_kept_and_released_as_well() {
    let store = Mock::new();
    let locks = manager(&store);
    store.acquires().once([Reply::Waits]);
    let waiting = locks.lock("k").wait_forever();
    let waiting = tokio::spawn(async move { waiting.acquire().await.map(drop) });
    until("it asks", || store.acquires().count("k") == 1).await;
    let began = Instant::now();
    drop(locks.lock("k").hold_at_least(LENGTH).try_acquire().await.expect("no error").expect("granted"));
    is_kept(&store, began).await;
    waiting.abort();
}

#[tokio::test]
async fn lost_while_it_is_kept_it_is_over_for_everybody() {
    let store = Mock::new();
    let locks = manager(&store).with_limits(Limits { held: 1, ..Limits::default() });
    store.renewals().once([Reply::No]);
    let guard = locks.lock("k").hold_at_least(LENGTH * 10).acquire().await.expect("granted");
    guard.release().await.expect("held");
    // The lost hold neither counts against the limit nor blocks the lock.
    room(&locks, "k").await.release().await.expect("held");
    assert_eq!(store.releases().count("k"), 1, "only that of the second");
}

#[tokio::test]
async fn a_lock_that_is_lost_before_its_time_is_not_released_before_it() {
    let store = Mock::new();
    let locks = manager(&store);
    let lock = locks.lock("k").auto_renew(false).hold_at_least(1500 * MS);
    let guard = lock.acquire().await.expect("granted");
    let hold = std::sync::Arc::clone(&guard.turn().hold);
    let section = async {
        assert!(hold.lose(crate::engine::loss::Cause::GivenAway));
        std::future::pending::<()>().await;
    };
    assert_eq!(guard.run(section).await.expect_err("lost").kind(), LockErrorKind::Lost);
    let guard = lock.acquire().await.expect("granted");
    assert!(guard.turn().hold.lose(crate::engine::loss::Cause::GivenAway));
    assert_eq!(guard.release().await.expect_err("lost").kind(), LockErrorKind::Lost);
    // The deadline of a retained hold comes before the end of its lease in the store. The store must keep the lease
    // until that end.
    let lock = locks.lock("k").ttl(300 * MS).auto_renew(false).hold_at_least(300 * MS);
    drop(lock.acquire().await.expect("granted"));
    tokio::time::sleep(600 * MS).await;
    assert_eq!(store.releases().count("k"), 0);
    assert_eq!(locks.engine().renewals.len(), 0);
}

#[tokio::test]
async fn a_shutdown_neither_waits_for_it_nor_ends_it() {
    let store = Mock::new();
    let locks = manager(&store);
    let began = Instant::now();
    drop(locks.lock("k").hold_at_least(LENGTH).acquire().await.expect("granted"));
    locks.shutdown().await;
    assert!(Instant::now() < began + LENGTH, "it waited");
    is_kept(&store, began).await;
}

#[tokio::test]
async fn it_counts_as_held_until_its_time() {
    let store = Mock::new();
    let locks = manager(&store).with_limits(Limits { held: 1, ..Limits::default() });
    drop(locks.lock("k").hold_at_least(LENGTH).acquire().await.expect("granted"));
    assert_eq!(locks.lock("x").acquire().await.expect_err("held").kind(), LockErrorKind::Overloaded);
    until("it is released", || store.releases().count("k") == 1).await;
    locks.lock("x").acquire().await.expect("room").release().await.expect("held");
}

#[tokio::test]
async fn several_are_kept_together_and_only_when_all_were_held() {
    let store = Mock::new();
    let locks = manager(&store);
    store.acquires().once([Reply::Yes, Reply::No]);
    let lock = locks.all(["j", "k"]).hold_at_least(LENGTH);
    assert!(lock.try_acquire().await.expect("no error").is_none());
    until("the first one is free at once", || store.releases().count("j") == 1).await;
    let began = Instant::now();
    lock.acquire().await.expect("granted").release().await.expect("held");
    assert_eq!(store.releases().count("j"), 1);
    is_kept(&store, began).await;
    until("both are released", || store.releases().count("j") == 2).await;
}

#[tokio::test]
async fn the_loss_of_one_does_not_free_the_others_before_their_time() {
    let store = Mock::new();
    let locks = manager(&store);
    store.renewals().once([Reply::No]);
    let began = Instant::now();
    let guard = locks.all(["j", "k"]).hold_at_least(LENGTH).acquire().await.expect("granted");
    guard.lost().await;
    drop(guard);
    let released = || store.releases().count("j") + store.releases().count("k");
    assert_eq!(released(), 0);
    until("the other is released", || released() == 1).await;
    assert!(Instant::now() >= began + LENGTH);
    assert_eq!(locks.engine().renewals.len(), 0);
}

#[tokio::test]
async fn what_is_kept_after_the_loss_of_another_counts_as_held() {
    let store = Mock::new();
    let locks = manager(&store).with_limits(Limits { held: 2, ..Limits::default() });
    store.renewals().once([Reply::No]);
    let began = Instant::now();
    let guard = locks.all(["j", "k"]).hold_at_least(LENGTH).acquire().await.expect("granted");
    guard.lost().await;
    drop(guard);
    let _beside = locks.lock("x").acquire().await.expect("room for what was lost");
    assert_eq!(locks.lock("y").acquire().await.expect_err("full").kind(), LockErrorKind::Overloaded);
    let room = room(&locks, "y").await;
    assert!(Instant::now() >= began + LENGTH);
    drop(room);
}

#[tokio::test]
async fn a_renewal_on_its_way_at_the_end_of_the_time_does_not_make_it_longer() {
    let store = Mock::new();
    let locks = manager(&store);
    // The renewal is sent at a third of the lease, and answered after the end of the retention.
    store.renewals().once([Reply::Late(400 * MS)]);
    let began = Instant::now();
    let lock = locks.lock("k");
    drop(lock.clone().hold_at_least(600 * MS).acquire().await.expect("granted"));
    let next = lock.wait(10_000 * MS).acquire().await.expect("granted");
    let after = Instant::now().saturating_duration_since(began);
    assert_eq!(store.renewals().count("k"), 1);
    // If the answer did not end the retention, the lease would have to run out, which takes 1.9 s.
    assert!(after >= 600 * MS && after < 1600 * MS, "{after:?}");
    next.release().await.expect("held");
}

#[tokio::test]
async fn who_enters_again_can_ask_for_a_longer_hold_within_that_of_the_section() {
    let store = Mock::new();
    let locks = manager(&store);
    let began = Instant::now();
    let inner = locks.lock("k").reentrant(true).hold_at_least(LENGTH);
    let outer = locks.lock("k").max_hold(LENGTH * 2).acquire().await.expect("granted");
    let section = async {
        let too_long = inner.clone().hold_at_least(LENGTH * 3).acquire().await.expect_err("too long");
        assert_eq!(too_long.kind(), LockErrorKind::InvalidOptions, "{too_long}");
        let too_long = locks.all(["k", "x"]).reentrant(true).hold_at_least(LENGTH * 3).acquire().await;
        assert_eq!(too_long.expect_err("too long").kind(), LockErrorKind::InvalidOptions);
        drop(inner.acquire().await.expect("entered"));
    };
    outer.run(section).await.expect("in time");
    is_kept(&store, began).await;
    until("the other was not kept", || store.releases().count("x") == 1).await;
}

#[tokio::test]
async fn a_body_that_is_finished_after_the_loss_frees_nothing_early_either() {
    let store = Mock::new();
    let locks = manager(&store);
    let guard = locks.lock("k").hold_at_least(LENGTH).acquire().await.expect("granted");
    let hold = std::sync::Arc::clone(&guard.turn().hold);
    let run = crate::__private::run(
        guard,
        async { assert!(hold.lose(crate::engine::loss::Cause::GivenAway)) },
        OnLost::Finish,
    );
    assert_eq!(run.await.kept().expect_err("lost").kind(), LockErrorKind::Lost);
    tokio::time::sleep(20 * MS).await;
    assert_eq!(store.releases().count("k"), 0);
}
