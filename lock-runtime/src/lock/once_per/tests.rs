use std::time::{Duration, Instant, SystemTime};

use super::*;
use crate::{
    LockErrorKind, LockKey, LockManager,
    mock::{Mock, Reply},
};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// The names of the marks of the lock `k` for hours.
const MARKS: [&str; 2] = ["k:~once:3600s:0", "k:~once:3600s:1"];
/// For seconds.
const SHORT_MARKS: [&str; 2] = ["k:~once:1s:0", "k:~once:1s:1"];
/// How long a removal takes that is [late](REMOVED_LATE).
const REMOVAL: Duration = Duration::from_millis(300);
const REMOVED_LATE: Reply = Reply::Late(REMOVAL);

async fn run(locks: &LockManager, wait: Duration) -> Result<LockGuard, LockError> {
    locks.lock("k").wait(wait).once_per(HOUR).acquire().await
}

fn marks_released(store: &Mock) -> usize {
    MARKS.iter().map(|mark| store.releases().count(mark)).sum()
}

#[tokio::test]
async fn a_mark_stays_with_the_lock_and_is_removed_without_it() {
    let store = Mock::new();
    let locks = store.manager();
    let guard = run(&locks, Duration::ZERO).await.expect("granted");
    assert!(guard.period().expect("it has one") <= SystemTime::now() + HOUR / 10);
    guard.release().await.expect("held");
    assert_eq!((store.releases().count("k"), marks_released(&store)), (1, 0));
    assert_eq!(MARKS.iter().map(|mark| store.acquires().count(mark)).sum::<usize>(), 1);
    for (reply, kind) in [(Reply::No, LockErrorKind::Contended), (Reply::Refuses, LockErrorKind::Backend)] {
        let store = Mock::new();
        let locks = store.manager();
        store.acquires().set_about("k", reply);
        assert_eq!(run(&locks, Duration::ZERO).await.expect_err("not granted").kind(), kind);
        locks.shutdown().await;
        assert_eq!(marks_released(&store), 1);
    }
}

#[tokio::test]
async fn the_lock_is_not_asked_for_without_its_mark() {
    for (reply, kind) in [
        (Reply::No, LockErrorKind::AlreadyRun),
        (Reply::Fails, LockErrorKind::Backend),
        (Reply::Refuses, LockErrorKind::Backend),
    ] {
        let store = Mock::new();
        let locks = store.manager();
        for mark in MARKS {
            store.acquires().set_about(mark, reply);
        }
        let error = run(&locks, Duration::from_millis(50)).await.expect_err("not marked");
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(error.key().map(LockKey::as_str), Some("k"), "the mark is not named");
        assert_eq!(store.acquires().count("k"), 0);
    }
}

/// Several clients may have divided the nodes of a quorum among them.
#[tokio::test]
async fn a_mark_without_a_holder_is_asked_for_again() {
    let store = Mock::new();
    let locks = store.manager();
    for mark in MARKS {
        store.acquires().set_about(mark, Reply::No);
    }
    let one = locks.clone();
    let start = tokio::spawn(async move { run(&one, Duration::ZERO).await.map(drop) });
    crate::mock::until("it was refused", || MARKS.iter().any(|mark| store.acquires().count(mark) > 0)).await;
    for mark in MARKS {
        store.acquires().set_about(mark, Reply::Yes);
    }
    start.await.expect("no panic").expect("granted at last");
}

#[tokio::test]
async fn a_mark_that_is_being_removed_is_no_run() {
    let store = Mock::new();
    let locks = store.manager();
    store.acquires().set_about("k", Reply::No);
    store.releases().set(Reply::Fails);
    let error = run(&locks, Duration::ZERO).await.expect_err("held");
    assert_eq!(error.kind(), LockErrorKind::Contended, "{error}");
    for mark in MARKS {
        store.acquires().set_about(mark, Reply::No);
    }
    let error = run(&locks, Duration::ZERO).await.expect_err("marked");
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    store.releases().set(Reply::Yes);
    locks.shutdown().await;
}

/// The answer comes when the period is over, or so late that the mark lasts too long.
#[tokio::test]
async fn a_late_mark_is_not_relied_on() {
    let store = Mock::new();
    let locks = store.manager();
    let late = Reply::Late(Duration::from_millis(600));
    for mark in SHORT_MARKS {
        store.acquires().set_about(mark, late);
    }
    let lock = locks.lock("k").wait(Duration::ZERO).once_per(Duration::from_secs(1));
    let error = lock.acquire().await.expect_err("too late");
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    locks.shutdown().await;
    let released = SHORT_MARKS.map(|mark| store.releases().count(mark));
    assert_eq!((store.acquires().count("k"), released.iter().sum::<usize>()), (0, 1));
}

/// The process may end as soon as its caller knows of the failure.
#[tokio::test]
async fn an_acquisition_that_fails_waits_for_the_removal_of_its_mark() {
    let store = Mock::new();
    let locks = store.manager();
    store.acquires().set_about("k", Reply::No);
    store.releases().set(REMOVED_LATE);
    let began = Instant::now();
    let error = run(&locks, Duration::ZERO).await.expect_err("held");
    assert_eq!(error.kind(), LockErrorKind::Contended, "{error}");
    assert!(began.elapsed() >= REMOVAL, "{:?}", began.elapsed());
}

/// A waiter that was dropped cannot wait for that itself.
#[tokio::test]
async fn a_shutdown_waits_for_the_removal_of_a_mark() {
    let store = Mock::new();
    let locks = store.manager();
    store.acquires().set_about("k", Reply::Waits);
    store.releases().set(REMOVED_LATE);
    let one = locks.clone();
    let waiter = tokio::spawn(async move { run(&one, HOUR).await.map(drop) });
    crate::mock::until("it waits", || store.acquires().count("k") > 0).await;
    // The removal begins with the drop.
    let began = Instant::now();
    waiter.abort();
    assert!(waiter.await.is_err_and(|error| error.is_cancelled()));
    locks.shutdown().await;
    assert!(began.elapsed() >= REMOVAL, "{:?}", began.elapsed());
    assert_eq!(marks_released(&store), 1);
}

#[tokio::test]
async fn an_option_that_is_refused_marks_nothing() {
    let store = Mock::new();
    let locks = store.manager();
    for lock in [
        locks.lock("k").once_per(Duration::from_millis(999)),
        locks.lock("k").once_per(HOUR).ttl(Duration::ZERO),
        locks.lock("k").once_per(HOUR).label("a\nb"),
    ] {
        let error = lock.acquire().await.expect_err("refused");
        assert_eq!(error.kind(), LockErrorKind::InvalidOptions, "{error}");
    }
    assert_eq!(store.acquires().total(), 0);
}
