use std::{
    future::{Future, poll_fn},
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use super::*;
use crate::{
    Limits, LockManager, OnLost,
    macro_support::Kept as _,
    mock::{Mock, until},
};

const MS: Duration = Duration::from_millis(1);

async fn held(locks: &LockManager, key: &str) -> LockGuard {
    locks.lock(key).acquire().await.expect("granted")
}

fn here() -> Option<String> {
    current().map(|held| held.key().to_string())
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn depth() -> usize {
    SCOPE.with_borrow(Vec::len)
}

#[tokio::test]
async fn the_lock_is_refused_to_its_own_section_at_once_and_with_a_way_out() {
    let store = Mock::new();
    let locks = store.manager();
    let lock = locks.lock("k").wait_forever();
    let section = async {
        for error in [lock.acquire().await.expect_err("held"), lock.try_acquire().await.expect_err("held")] {
            assert_eq!(error.kind(), LockErrorKind::WouldDeadlock);
            assert!(!error.is_retryable());
            let text = error.to_string();
            assert!(text.starts_with("lock `k`: ") && text.contains("reentrant"), "{text}");
        }
    };
    held(&locks, "k").await.run(section).await.expect("in time");
    assert_eq!(store.acquires().count("k"), 1, "the store was asked");
    // Outside the section, `lock` is acquired like any other lock.
    lock.acquire().await.expect("free").release().await.expect("held");
}

#[tokio::test]
async fn who_enters_again_shares_the_hold_and_neither_ends_nor_prolongs_it() {
    let store = Mock::new();
    let locks = store.manager();
    let outer = held(&locks, "k").await;
    let view = outer.held();
    let again = locks.lock("k").reentrant(true).max_hold(1 * MS).ttl(100 * MS).auto_renew(false);
    let section = async {
        let first = again.acquire().await.expect("entered");
        let second = again.try_acquire().await.expect("entered").expect("not busy");
        assert_eq!(first.fencing_token(), view.fencing_token());
        tokio::time::sleep(5 * MS).await;
        assert!(first.is_valid() && second.is_valid(), "by the terms of the outer hold");
        first.release().await.expect("valid");
        drop(second);
        again
            .acquire()
            .await
            .expect("entered")
            .run(async { tokio::task::yield_now().await })
            .await
            .expect("valid");
        drop(again.acquire().await.expect("entered").release());
        assert!(view.is_valid());
        assert_eq!(store.releases().count("k"), 0);
    };
    outer.run(section).await.expect("in time");
    assert_eq!((store.acquires().count("k"), store.releases().count("k")), (1, 1));
}

#[tokio::test]
async fn a_guard_that_outlives_the_section_ends_with_it() {
    let store = Mock::new();
    let locks = store.manager();
    let lock = locks.lock("k").reentrant(true);
    // The hold is handed over to another task of the process, and the inner guard must not end that task's turn.
    let outer = held(&locks, "k").await;
    let next = tokio::spawn(async move { locks.lock("k").acquire().await });
    tokio::task::yield_now().await;
    let inner = outer.run(async { lock.acquire().await.expect("entered") }).await.expect("in time");
    let next = next.await.expect("no panic").expect("handed over");
    assert_eq!(store.acquires().count("k"), 1, "not handed over");
    assert!(!inner.is_valid() && next.is_valid() && inner.remaining().is_zero());
    inner.lost().await;
    let error = inner.ensure_valid().expect_err("over");
    assert!(error.to_string().contains("has ended"), "{error}");
    assert_eq!(inner.release().await.expect_err("over").kind(), LockErrorKind::Lost);
    assert!(next.is_valid());
    assert_eq!(store.releases().count("k"), 0);
    next.release().await.expect("held");
}

#[tokio::test]
async fn a_section_that_lost_its_lock_is_told_so_whatever_it_asked_for() {
    let store = Mock::new();
    let locks = store.manager();
    let guard = held(&locks, "k").await;
    let hold = Arc::clone(&guard.turn().hold);
    let section = async {
        let inner = locks.lock("k").reentrant(true).acquire().await.expect("entered");
        hold.lose(crate::engine::loss::Cause::GivenAway);
        assert!(!inner.is_valid());
        assert_eq!(inner.release().await.expect_err("lost").kind(), LockErrorKind::Lost);
        for reentrant in [false, true] {
            let lock = locks.lock("k").reentrant(reentrant);
            for error in
                [lock.acquire().await.expect_err("lost"), lock.try_acquire().await.expect_err("lost")]
            {
                assert_eq!(error.kind(), LockErrorKind::Lost, "{error}");
            }
        }
        assert_eq!(ensure_locked("k").expect_err("lost").kind(), LockErrorKind::Lost);
        tokio::time::sleep(1 * MS).await;
    };
    let run = crate::__private::run(guard, section, OnLost::Finish);
    assert_eq!(run.await.kept().expect_err("lost").kind(), LockErrorKind::Lost);
    assert_eq!(store.acquires().count("k"), 1);
}

#[tokio::test]
async fn a_hold_that_is_lost_while_another_lock_is_waited_for_ends_the_section() {
    let store = Mock::new();
    let locks = store.manager();
    let guard = locks.lock("k").ttl(100 * MS).auto_renew(false).acquire().await.expect("granted");
    store.acquires().set(crate::mock::Reply::Waits);
    let error = guard.run(locks.lock("other").wait_forever().acquire()).await.expect_err("lost");
    assert_eq!(error.kind(), LockErrorKind::Lost);
    assert_eq!(depth(), 0);
}

#[tokio::test]
async fn sections_side_by_side_and_inside_each_other_see_their_own() {
    let locks = Mock::new().manager();
    let (a, b) = (held(&locks, "a").await, held(&locks, "b").await);
    let lock = locks.lock("a");
    let see = |name: &'static str| async move {
        for _ in 0..3 {
            assert_eq!(here().as_deref(), Some(name));
            tokio::task::yield_now().await;
        }
    };
    let (one, two) = tokio::join!(a.run(see("a")), b.run(see("b")));
    one.and(two).expect("in time");
    // Outside the section of `a`, even in the same task, an acquisition waits for `a` like any other acquisition.
    let a = held(&locks, "a").await;
    let (section, other) = tokio::join!(a.run(see("a")), lock.acquire());
    section.expect("in time");
    let a = other.expect("handed over");
    let nested = async {
        let b = held(&locks, "b").await;
        b.run(async {
            tokio::task::yield_now().await;
            assert_eq!(here().as_deref(), Some("b"));
            assert_eq!(ensure_locked("a").expect("around it").key(), "a");
            assert_eq!(lock.acquire().await.expect_err("held").kind(), LockErrorKind::WouldDeadlock);
        })
        .await
        .expect("in time");
        assert_eq!(here().as_deref(), Some("a"));
        let error = ensure_locked("b").expect_err("over");
        assert_eq!(error.kind(), LockErrorKind::NotHeld);
        assert_eq!(
            error.to_string(),
            "lock `b`: must be held by the section that calls this, and is not; the lock held here is `a`"
        );
    };
    a.run(nested).await.expect("in time");
    assert_eq!(here(), None);
    let error = ensure_locked("b").expect_err("not held");
    assert!(error.to_string().contains("no lock is held"), "{error}");
    assert_eq!(ensure_locked("").expect_err("no name").kind(), LockErrorKind::InvalidKey);
}

#[tokio::test]
async fn the_scope_counts_when_a_future_is_polled_and_not_when_it_was_made() {
    let locks = Mock::new().manager();
    let lock = locks.lock("k");
    let made_outside = lock.acquire();
    let other = locks.lock("k");
    let made_inside = held(&locks, "k")
        .await
        .run(async {
            assert_eq!(made_outside.await.expect_err("held").kind(), LockErrorKind::WouldDeadlock);
            Some(other.acquire())
        })
        .await
        .expect("in time");
    made_inside.expect("made").await.expect("free").release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_spawned_is_outside_and_what_is_blocked_on_is_inside() {
    let locks = Mock::new().manager();
    let guard = held(&locks, "k").await;
    let lock = locks.lock("k");
    let section = async {
        let spawned = tokio::spawn({
            let lock = lock.clone();
            async move { (here(), lock.try_acquire().await.expect("no error").is_none()) }
        });
        assert_eq!(spawned.await.expect("no panic"), (None, true));
        let blocked = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async { (here(), lock.acquire().await.map(drop)) })
        });
        assert_eq!(blocked.0.as_deref(), Some("k"));
        assert_eq!(blocked.1.expect_err("held").kind(), LockErrorKind::WouldDeadlock);
        assert_eq!(tokio::task::spawn_blocking(here).await.expect("no panic"), None);
    };
    guard.run(section).await.expect("in time");
}

#[tokio::test]
async fn the_scope_goes_with_the_future_from_thread_to_thread() {
    let locks = Mock::new().manager();
    let guard = held(&locks, "k").await;
    let mut seen = Vec::new();
    let mut run = Box::pin(guard.run(poll_fn(move |_| {
        seen.push((here(), std::thread::current().id()));
        if seen.len() < 3 { Poll::Pending } else { Poll::Ready(std::mem::take(&mut seen)) }
    })));
    for _ in 0..2 {
        let runtime = tokio::runtime::Handle::current();
        run = std::thread::spawn(move || {
            let _timers = runtime.enter();
            assert!(poll(run.as_mut()).is_pending());
            assert_eq!(depth(), 0);
            run
        })
        .join()
        .expect("no panic");
    }
    assert_eq!(here(), None);
    let seen = run.await.expect("in time");
    assert!(seen.iter().all(|(key, _)| key.as_deref() == Some("k")), "{seen:?}");
    assert!(seen[0].1 != seen[1].1 && seen[1].1 != seen[2].1);
}

#[tokio::test]
async fn a_panic_leaves_the_scope_and_frees_the_lock() {
    let store = Mock::new();
    let locks = store.manager();
    let outer = held(&locks, "outer").await;
    let section = async {
        let inner = held(&locks, "inner").await;
        let mut run = Box::pin(inner.run(async { std::panic::resume_unwind(Box::new("told to panic")) }));
        let panicked = std::panic::catch_unwind(AssertUnwindSafe(|| {
            poll::<crate::Run<_>>(run.as_mut()).map_ok(|()| ())
        }));
        assert!(panicked.is_err());
        assert_eq!(here().as_deref(), Some("outer"));
        assert_eq!(store.releases().count("inner"), 0);
        drop(run);
        until("it is released", || store.releases().count("inner") == 1).await;
    };
    outer.run(section).await.expect("in time");
    assert_eq!(depth(), 0);
}

#[tokio::test]
async fn the_same_name_elsewhere_is_another_lock_and_the_same_store_is_the_same() {
    let (store, other) = (Mock::new(), Mock::new());
    let locks = store.manager();
    let section = async {
        other.manager().lock("k").acquire().await.expect("another store").release().await.expect("held");
        let prefixed = locks.clone().with_prefix("app:").expect("valid");
        prefixed.lock("k").acquire().await.expect("another name").release().await.expect("held");
        let one_name = locks.clone().with_prefix("").expect("valid");
        let limited = locks.clone().with_limits(Limits::default());
        for lock in [locks.lock("k"), one_name.lock("lock:k"), limited.lock("k")] {
            let error = lock.acquire().await.expect_err("held");
            assert_eq!(error.kind(), LockErrorKind::WouldDeadlock, "{error}");
        }
    };
    held(&locks, "k").await.run(section).await.expect("in time");
}

#[cfg(feature = "memory")]
#[tokio::test]
async fn managers_of_one_store_are_one_store_to_the_scope() {
    let name = "memory:managers_of_one_store_are_one_store_to_the_scope";
    let [ours, theirs] =
        [LockManager::connect(name).await, LockManager::connect(name).await].map(|made| made.expect("valid"));
    let elsewhere = LockManager::new(crate::backend::Memory::new());
    let section = async {
        let token = current().expect("held").fencing_token();
        elsewhere.lock("k").acquire().await.expect("another store").release().await.expect("held");
        for error in [
            theirs.lock("k").wait(100 * MS).acquire().await.expect_err("held"),
            theirs.lock("k").try_acquire().await.map(drop).expect_err("held"),
            theirs.all(["j", "k"]).wait(100 * MS).acquire().await.expect_err("held"),
        ] {
            assert_eq!(error.kind(), LockErrorKind::WouldDeadlock, "{error}");
        }
        let again = theirs.lock("k").reentrant(true).acquire().await.expect("entered again");
        assert_eq!(again.fencing_token(), token);
        again.release().await.expect("held");
    };
    held(&ours, "k").await.run(section).await.expect("in time");
}

#[tokio::test]
async fn a_lock_that_is_entered_again_counts_once() {
    let store = Mock::new();
    let locks = store.manager().with_limits(Limits { held: 1, ..Limits::default() });
    for _ in 0..3 {
        let section = async {
            let again = locks.lock("k").reentrant(true).acquire().await.expect("not another lock");
            let error = locks.lock("other").acquire().await.expect_err("another lock");
            assert_eq!(error.kind(), LockErrorKind::Overloaded);
            again
        };
        let inner = held(&locks, "k").await.run(section).await.expect("in time");
        // The count of held locks falls by one, whichever guard is dropped first.
        held(&locks, "k").await.release().await.expect("held");
        drop(inner);
    }
}

#[tokio::test]
async fn after_a_shutdown_a_section_goes_on_as_it_was() {
    let locks = Mock::new().manager();
    let guard = held(&locks, "k").await;
    let section = async {
        locks.shutdown().await;
        locks.lock("k").reentrant(true).acquire().await.expect("entered").release().await.expect("held");
        assert_eq!(locks.lock("x").acquire().await.expect_err("over").kind(), LockErrorKind::ShutDown);
    };
    guard.run(section).await.expect("in time");
}

#[tokio::test]
async fn views_of_the_scope_do_not_keep_the_lock() {
    let store = Mock::new();
    let locks = store.manager();
    let view = held(&locks, "k").await.run(async { current().expect("held") }).await.expect("in time");
    assert!(!view.is_valid());
    assert_eq!((store.releases().count("k"), Arc::strong_count(locks.engine())), (1, 1));
}
