use std::{
    cell::Cell,
    future::{pending, ready},
    pin::pin,
    rc::Rc,
    sync::{Arc, Mutex},
};

use super::*;
use crate::{
    FencingToken, Limits, OnLost, current,
    mock::{Mock, Reply, until},
    sync::lock,
};

const MS: Duration = Duration::from_millis(1);

/// A lock whose lease is renewed every 100 ms or so.
fn short(store: &Mock) -> Lock {
    store.manager().lock("k").ttl(300 * MS)
}

/// Fails the test if `future` takes longer than any of these tests should.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(10_000 * MS, future).await.expect("it does not wait forever")
}

#[tokio::test]
async fn the_value_of_a_body_that_ends_is_returned_and_the_lock_is_released() {
    let store = Mock::new();
    let lock = short(&store);
    let led = lock.lead(|held| async move {
        assert_eq!(current().expect("it runs under the lock").fencing_token(), held.fencing_token());
        assert!(held.is_valid());
        7
    });
    assert_eq!(soon(led).await.expect("granted"), 7);
    assert_eq!((store.acquires().count("k"), store.releases().count("k")), (1, 1));
}

#[tokio::test]
async fn a_body_that_lost_its_lock_is_dropped_and_runs_again_under_a_later_token() {
    struct Gone(Rc<Cell<usize>>);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let store = Mock::new();
    store.renewals().once([Reply::No]);
    let (gone, tokens) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(Vec::<FencingToken>::new())));
    let body = |held: HeldLock| {
        let (gone, mut seen) = (Rc::clone(&gone), tokens.take());
        assert_eq!(gone.get(), seen.len(), "two terms at the same time");
        seen.push(held.fencing_token());
        let terms = seen.len();
        tokens.set(seen);
        async move {
            let _gone = Gone(gone);
            if terms == 1 {
                pending::<()>().await;
            }
            terms
        }
    };
    assert_eq!(soon(short(&store).lead(body)).await.expect("granted"), 2);
    let seen = tokens.take();
    assert!(seen[0] < seen[1], "{seen:?}");
}

#[tokio::test]
async fn a_body_that_ends_after_its_lock_was_lost_runs_again() {
    let store = Mock::new();
    let terms = Cell::new(0);
    let lock = short(&store);
    let led = lock.lead(|_| {
        terms.set(terms.get() + 1);
        store.renewals().set(if terms.get() == 1 { Reply::Silent } else { Reply::Yes });
        if terms.get() == 1 {
            // Without an await, so that the body cannot be dropped in time.
            std::thread::sleep(450 * MS);
        }
        ready(terms.get())
    });
    assert_eq!(soon(led).await.expect("granted"), 2);
}

#[tokio::test]
async fn an_outage_and_a_limit_delay_the_body_and_end_nothing() {
    let store = Mock::new();
    let locks = store.manager().with_limits(Limits { held: 1, ..Limits::default() });
    store.acquires().once([Reply::Fails; 3]);
    let lock = locks.lock("k").wait(Duration::ZERO);
    assert_eq!(soon(lock.lead(async |_| 7)).await.expect("granted in the end"), 7);
    assert_eq!(store.acquires().count("k"), 4);

    let other = locks.lock("other").acquire().await.expect("granted");
    let mut led = pin!(lock.lead(async |_| 8));
    assert!(tokio::time::timeout(100 * MS, led.as_mut()).await.is_err(), "led beyond the limit");
    assert_eq!(store.acquires().count("k"), 4);
    other.release().await.expect("held");
    assert_eq!(soon(led).await.expect("granted in the end"), 8);
}

#[tokio::test]
async fn an_error_that_no_retry_can_fix_ends_it() {
    let store = Mock::new();
    let locks = store.manager();
    let kind = async |lock: Lock| soon(lock.lead(async |_| ())).await.expect_err("not led").kind();
    assert_eq!(kind(locks.lock("")).await, LockErrorKind::InvalidKey);
    assert_eq!(kind(locks.lock("k").ttl(Duration::ZERO)).await, LockErrorKind::InvalidOptions);
    assert_eq!(store.acquires().total(), 0);
    store.acquires().once([Reply::Refuses]);
    assert_eq!(kind(locks.lock("k")).await, LockErrorKind::Backend);
    assert_eq!(store.acquires().count("k"), 1);
    store.set_modeless();
    assert_eq!(kind(locks.lock("k")).await, LockErrorKind::Unsupported);
}

#[tokio::test]
async fn a_lock_that_is_not_renewed_is_refused_before_anything_is_sent() {
    let store = Mock::new();
    let locks = store.manager().auto_renew(false);
    let error = soon(locks.lock("k").lead(async |_| ())).await.expect_err("not renewed");
    assert_eq!(error.kind(), LockErrorKind::InvalidOptions);
    assert!(error.to_string().starts_with("lock `k`: `lead` needs auto_renew"), "{error}");
    assert_eq!(store.acquires().total(), 0);
}

#[tokio::test]
async fn neither_the_wait_nor_a_term_has_a_limit() {
    let store = Mock::new();
    let lock = store.manager().lock("k").wait(Duration::ZERO).max_hold(50 * MS);
    store.acquires().once([Reply::Late(60 * MS)]);
    let terms = Cell::new(0);
    let led = lock.lead(|_| {
        terms.set(terms.get() + 1);
        tokio::time::sleep(300 * MS)
    });
    soon(led).await.expect("granted");
    assert_eq!(terms.get(), 1, "`max_hold` ended a term");
}

#[tokio::test]
async fn locks_that_are_lost_at_once_are_not_asked_for_again_at_once() {
    let store = Mock::new();
    store.renewals().set(Reply::No);
    let lock = short(&store);
    let led = tokio::time::timeout(1500 * MS, lock.lead(async |_| pending::<()>().await)).await;
    assert!(led.is_err(), "{led:?}");
    // 100 ms until each loss, and at least 10, 20, 40, 80, 160, 320 and 500 ms of pauses.
    let terms = store.acquires().count("k");
    assert!((3..=8).contains(&terms), "{terms} terms");
}

#[tokio::test]
async fn a_pause_after_a_long_term_is_short() {
    let store = Mock::new();
    let lock = short(&store);
    let terms = Cell::new(0);
    // Short terms first, after which the pauses are long, and then a long term.
    store.renewals().once([Reply::No; 6]);
    let lost = Cell::new(None);
    let led = lock.lead(|_| {
        terms.set(terms.get() + 1);
        let (term, store, lost) = (terms.get(), &store, &lost);
        async move {
            if term == 7 {
                tokio::time::sleep(LONGEST_PAUSE).await;
                store.renewals().once([Reply::No]);
                lost.set(Some(Instant::now()));
                pending::<()>().await;
            }
            if term < 7 { pending().await } else { Instant::now() }
        }
    });
    let again = soon(led).await.expect("granted");
    let pause = again.saturating_duration_since(lost.get().expect("lost"));
    assert!(pause < 320 * MS, "{pause:?}");
}

#[tokio::test]
async fn a_shutdown_ends_the_wait_for_the_lock_and_the_pause_after_a_loss() {
    let store = Mock::new();
    let locks = store.manager();
    store.acquires().set(Reply::Waits);
    let lock = locks.lock("k");
    let waiting = tokio::spawn(async move { lock.lead(async |_| ()).await });
    until("it waits", || store.acquires().count("k") == 1).await;
    soon(locks.shutdown()).await;
    let error = soon(waiting).await.expect("no panic").expect_err("not led");
    assert_eq!(error.kind(), LockErrorKind::ShutDown);
    assert!(error.to_string().starts_with("lock `k`: "), "{error}");

    let locks = store.manager().with_limits(Limits { held: 0, ..Limits::default() });
    let lock = locks.lock("k");
    let mut pausing = pin!(lock.lead(async |_| ()));
    // The pauses are half a second long by then.
    assert!(tokio::time::timeout(700 * MS, pausing.as_mut()).await.is_err());
    let (began, ended) = (Instant::now(), tokio::join!(locks.shutdown(), pausing).1);
    assert_eq!(ended.expect_err("not led").kind(), LockErrorKind::ShutDown);
    assert!(Instant::now() < began + 250 * MS, "it slept on");
}

#[tokio::test]
async fn a_shutdown_ends_no_term() {
    let store = Mock::new();
    for is_lost in [false, true] {
        let locks = store.manager();
        let (lock, terms) = (locks.lock("k").ttl(300 * MS), Arc::new(Mutex::new(0)));
        let seen = Arc::clone(&terms);
        let led = tokio::spawn(async move {
            lock.lead(|held| {
                *self::lock(&seen) += 1;
                async move {
                    // Beyond the first lease.
                    tokio::time::sleep(600 * MS).await;
                    held.is_valid()
                }
            })
            .await
        });
        until("it leads", || *self::lock(&terms) == 1).await;
        soon(locks.shutdown()).await;
        if is_lost {
            store.renewals().once([Reply::No]);
        }
        let led = soon(led).await.expect("no panic");
        match led {
            Ok(is_valid) => assert!(is_valid && !is_lost),
            Err(error) => assert_eq!((error.kind(), is_lost), (LockErrorKind::ShutDown, true), "{error}"),
        }
        assert_eq!(*self::lock(&terms), 1);
    }
    until("both are released", || store.releases().count("k") == 2).await;
}

#[tokio::test]
async fn a_dropped_future_drops_the_body_and_then_releases_the_lock() {
    struct Last(Rc<Cell<usize>>, Mock);
    impl Drop for Last {
        fn drop(&mut self) {
            self.0.set(self.1.releases().count("k"));
        }
    }
    let store = Mock::new();
    let lock = short(&store);
    let released_before = Rc::new(Cell::new(usize::MAX));
    let mut led = Box::pin(lock.lead(|_| {
        let last = Last(Rc::clone(&released_before), store.clone());
        async move {
            let _last = last;
            pending::<()>().await;
        }
    }));
    assert!(tokio::time::timeout(50 * MS, led.as_mut()).await.is_err());
    drop(led);
    assert_eq!(released_before.get(), 0);
    until("it is released", || store.releases().count("k") == 1).await;
    // Nothing is asked for by a future that was never polled.
    drop(lock.lead(async |_| ()));
    assert_eq!(store.acquires().count("k"), 1);
}

#[tokio::test]
async fn a_panic_of_the_body_releases_the_lock_and_ends_it() {
    let store = Mock::new();
    for before_the_future in [false, true] {
        let lock = short(&store);
        let led = tokio::spawn(async move {
            lock.lead(|_| {
                assert!(!before_the_future, "a panic on purpose");
                async { panic!("a panic on purpose") }
            })
            .await
        });
        assert!(soon(led).await.expect_err("it panics").is_panic());
    }
    until("both are released", || store.releases().count("k") == 2).await;
    assert_eq!(store.acquires().count("k"), 2, "led again after a panic");
}

#[tokio::test]
async fn a_section_cannot_lead_under_its_own_lock_unless_it_is_re_entered() {
    let store = Mock::new();
    let lock = short(&store);
    let inner = lock.clone();
    let led = lock.lead(|held| {
        let inner = inner.clone();
        async move {
            let refused = inner.lead(async |_| ()).await.expect_err("it would wait for itself");
            assert_eq!(refused.kind(), LockErrorKind::WouldDeadlock);
            let again = inner.reentrant(true).lead(async |again| again.fencing_token()).await;
            assert_eq!(again.expect("re-entered"), held.fencing_token());
        }
    });
    soon(led).await.expect("granted");
    assert_eq!(store.releases().count("k"), 1);
}

#[tokio::test]
async fn a_section_that_has_lost_its_lock_does_not_lead_under_it_again() {
    let store = Mock::new();
    let lock = short(&store);
    store.renewals().set(Reply::No);
    let guard = lock.acquire().await.expect("granted");
    let inner = lock.reentrant(true);
    let terms = Cell::new(0);
    let body = async {
        let led = inner.lead(|_| {
            terms.set(terms.get() + 1);
            pending::<()>()
        });
        Ok::<_, LockError>(soon(led).await.expect_err("lost").kind())
    };
    // A body that is not dropped at the loss.
    let run = soon(crate::__private::run(guard, body, OnLost::Finish)).await;
    let crate::__private::Outcome::Late(kind, _) = run else { panic!("not late: {run:?}") };
    assert_eq!(kind.expect("no error"), LockErrorKind::Lost);
    assert_eq!((terms.get(), store.acquires().count("k")), (1, 1));
}
