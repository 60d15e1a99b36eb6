use std::{
    future::Future,
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Waker},
    time::Instant as StdInstant,
};

use super::*;
use crate::{
    HeldLock, Limits, LockManager, OnLost, ensure_locked,
    macro_support::Kept as _,
    mock::{Log, Mock, Reply, until},
    section::run::Outcome,
};

const MS: Duration = Duration::from_millis(1);

fn counts(store: &Mock, keys: [&str; 3]) -> [(usize, usize); 3] {
    keys.map(|key| (store.acquires().count(key), store.releases().count(key)))
}

fn names(guard: &MultiGuard) -> Vec<String> {
    guard.held().iter().map(|held| held.key().to_string()).collect()
}

#[tokio::test]
async fn they_are_taken_once_each_in_the_order_of_their_names() {
    let store = Mock::new();
    let locks = store.manager();
    let guard = locks.all(["c", "a", "b", "a"]).acquire().await.expect("granted");
    assert_eq!(names(&guard), ["a", "b", "c"]);
    let tokens: Vec<_> = guard.held().iter().map(HeldLock::fencing_token).collect();
    assert!(tokens.is_sorted(), "in another order: {tokens:?}");
    guard.release().await.expect("held");
    assert_eq!(counts(&store, ["a", "b", "c"]), [(1, 1); 3]);
}

#[tokio::test]
async fn none_and_malformed_names_are_refused_before_anything_is_taken() {
    let store = Mock::new();
    let locks = store.manager();
    let none = locks.all(Vec::<String>::new());
    for error in [none.acquire().await.expect_err("none"), none.try_acquire().await.expect_err("none")] {
        assert_eq!(error.kind(), LockErrorKind::InvalidOptions, "{error}");
    }
    let error = locks.all(["a", ""]).acquire().await.expect_err("malformed");
    assert_eq!(error.kind(), LockErrorKind::InvalidKey, "{error}");
    let error = locks.all(["a"]).ttl(Duration::ZERO).acquire().await.expect_err("too short");
    assert_eq!(error.kind(), LockErrorKind::InvalidOptions, "{error}");
    assert_eq!(store.acquires().count("a"), 0);
}

#[tokio::test]
async fn what_was_taken_is_free_as_soon_as_another_is_not_to_be_had() {
    let store = Mock::new();
    let locks = store.manager();
    for (reply, kind) in [(Reply::No, LockErrorKind::Timeout), (Reply::Fails, LockErrorKind::Backend)] {
        let before = store.releases().count("a");
        store.acquires().once([Reply::Yes, reply]);
        if reply == Reply::Fails {
            store.acquires().set(Reply::Fails);
        }
        let error = locks.all(["a", "b"]).wait(50 * MS).acquire().await.expect_err("told so");
        store.acquires().set(Reply::Yes);
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(error.key().expect("named").as_str(), "b");
        until("the first one is released", || store.releases().count("a") == before + 1).await;
    }
    store.acquires().once([Reply::Yes, Reply::No]);
    assert!(locks.all(["a", "b"]).try_acquire().await.expect("busy is no error").is_none());
    until("the first one is released", || store.releases().count("a") == 3).await;
    assert_eq!(store.releases().count("b"), 0);
}

#[tokio::test]
async fn one_deadline_is_for_all() {
    let store = Mock::new();
    let locks = store.manager();
    store.acquires().once([Reply::Late(1500 * MS), Reply::Waits]);
    let began = StdInstant::now();
    let error = locks.all(["a", "b"]).wait(2000 * MS).acquire().await.expect_err("it is held");
    assert_eq!(error.key().expect("named").as_str(), "b");
    // The time includes half a second for a last answer. A deadline for each lock would take 4 s.
    assert!(began.elapsed() < 3500 * MS, "{:?}", began.elapsed());
}

#[tokio::test]
async fn one_that_is_asked_for_after_the_end_of_the_wait_is_given_time_to_answer() {
    let store = Mock::new();
    let locks = store.manager();
    store.acquires().once([Reply::Late(450 * MS), Reply::Late(250 * MS)]);
    let granted = locks.all(["a", "b"]).wait(50 * MS).acquire().await;
    granted.expect("an answer that it is ours is no outage").release().await.expect("held");
    // Another task of this process that asked for the lock a little earlier and gets the lock is no outage either.
    store.acquires().once([Reply::Late(400 * MS), Reply::Late(450 * MS)]);
    let (several, other) = (locks.all(["c", "d"]).wait(50 * MS), locks.lock("d"));
    let (several, other) = tokio::join!(several.acquire(), async {
        tokio::time::sleep(200 * MS).await;
        other.acquire().await.expect("granted")
    });
    assert_eq!(several.expect_err("held").kind(), LockErrorKind::Timeout);
    drop(other);
}

#[tokio::test]
async fn a_lock_that_is_lost_while_the_next_is_waited_for_ends_the_wait() {
    let store = Mock::new();
    let locks = store.manager();
    store.acquires().once([Reply::Yes, Reply::Waits]);
    let lock = locks.all(["a", "b"]).ttl(150 * MS).auto_renew(false).wait_forever();
    let error = tokio::time::timeout(5000 * MS, lock.acquire()).await.expect("ended").expect_err("lost");
    assert_eq!(error.kind(), LockErrorKind::Lost, "{error}");
    assert_eq!(error.key().expect("named").as_str(), "a");
}

#[tokio::test]
async fn a_lock_that_is_almost_over_when_the_last_is_granted_is_not_handed_out() {
    let store = Mock::new();
    let locks = store.manager();
    let ttl = 3000 * MS;
    // The reply comes at the end of the first lease. No guard is polled meanwhile, so no loss is noticed before.
    store.acquires().once([Reply::Yes, Reply::Late(2700 * MS)]);
    let log = Log::default();
    let logging = tracing::subscriber::set_default(log.clone());
    let error = locks.all(["a", "b"]).ttl(ttl).auto_renew(false).acquire().await.expect_err("too late");
    drop(logging);
    assert_eq!(error.kind(), LockErrorKind::Lost, "{error}");
    let texts = log.texts();
    assert_eq!(texts.matches("lock lost").count(), 1, "{texts}");
    until("both are released", || store.releases().count("a") == 1).await;
}

#[tokio::test]
async fn the_loss_of_one_is_the_loss_of_all_and_the_others_are_released_with_the_guard() {
    let store = Mock::new();
    let locks = store.manager();
    // The first renewal is refused, whichever lock it is for.
    store.renewals().once([Reply::No]);
    let guard = locks.all(["a", "b", "c"]).ttl(3000 * MS).acquire().await.expect("granted");
    let held = guard.held();
    assert!(guard.is_valid() && !guard.remaining().is_zero());
    held.ensure_valid().expect("held");
    guard.lost().await;
    held.lost().await;
    assert!(!guard.is_valid() && guard.remaining().is_zero() && !held.is_valid());
    until("the others have ended", || held.iter().all(|held| !held.is_valid())).await;
    for held in &held {
        tokio::time::timeout(5000 * MS, held.lost()).await.expect("told");
    }
    let releases = || counts(&store, ["a", "b", "c"]).map(|(_, releases)| releases).iter().sum::<usize>();
    assert_eq!(releases(), 0, "free while the guard is there");
    let error = guard.ensure_valid().expect_err("lost");
    assert_eq!(held.ensure_valid().expect_err("lost").to_string(), error.to_string());
    let lost = error.key().expect("named").as_str().to_owned();
    assert_eq!(store.releases().count(&lost), 0, "the one that was lost is named: {error}");
    assert!(error.to_string().contains("no longer ours"), "{error}");
    for other in guard.locks().iter().filter(|held| held.key() != lost.as_str()) {
        let error = other.ensure_valid().expect_err("ended");
        assert!(error.to_string().contains("another of the locks"), "{error}");
    }
    assert_eq!(guard.release().await.expect_err("lost").kind(), LockErrorKind::Lost);
    // The loss is reported at once, so the releases run in the background.
    until("all are released", || releases() == 3).await;
    assert_eq!(locks.engine().renewals.len(), 0);
    // Nothing blocks the next callers.
    locks.all(["a", "b", "c"]).acquire().await.expect("free").release().await.expect("held");
}

/// Returns whether the body still exists when another task gets the lock that was not lost.
async fn overlaps(on_lost: OnLost) -> bool {
    struct Inside(Arc<AtomicBool>);
    impl Drop for Inside {
        fn drop(&mut self) {
            self.0.store(false, Ordering::SeqCst);
        }
    }
    let store = Mock::new();
    let locks = store.manager().ttl(1500 * MS);
    // `a` is lost, `b` stays held.
    store.renewals().once([Reply::No]);
    let guard = locks.all(["a", "b"]).acquire().await.expect("granted");
    let (held, is_inside) = (guard.held(), Arc::new(AtomicBool::new(true)));
    let inside = Inside(Arc::clone(&is_inside));
    let body = async move {
        let _inside = inside;
        if on_lost == OnLost::Finish {
            held.lost().await;
            // The sleep is longer than the lease of `b` lasts without renewal.
            tokio::time::sleep(2000 * MS).await;
        } else {
            while held.is_valid() {
                std::thread::sleep(MS);
            }
            // For a while after the loss, the body reaches no await.
            std::thread::sleep(200 * MS);
            tokio::task::yield_now().await;
            unreachable!("polled without the locks");
        }
    };
    let section = tokio::spawn(crate::__private::run(guard, body, on_lost));
    let next = locks.lock("b").wait(10_000 * MS);
    let next = tokio::spawn(async move {
        let next = next.acquire().await.expect("granted in the end");
        assert!(next.is_valid());
        is_inside.load(Ordering::SeqCst)
    });
    let overlaps = next.await.expect("no panic");
    let outcome = section.await.expect("no panic");
    assert_eq!(matches!(outcome, Outcome::Dropped(_)), on_lost == OnLost::Cancel, "{outcome:?}");
    overlaps
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_loss_of_one_frees_the_others_only_when_the_body_is_gone() {
    for on_lost in [OnLost::Cancel, OnLost::Finish] {
        assert!(!overlaps(on_lost).await, "two inside, {on_lost:?}");
    }
}

#[tokio::test]
async fn releases_go_out_together_and_the_worst_answer_is_told() {
    let store = Mock::new();
    let locks = store.manager();
    store.releases().set(Reply::Late(20 * MS));
    let guard = locks.all(["a", "b", "c"]).acquire().await.expect("granted");
    let mut release = Box::pin(guard.release());
    assert!(release.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(counts(&store, ["a", "b", "c"]), [(1, 1); 3], "one after the other");
    release.await.expect("held");
    store.releases().set(Reply::Yes);
    for (replies, kind) in [
        ([Reply::Yes, Reply::Fails], LockErrorKind::Backend),
        ([Reply::No, Reply::Fails], LockErrorKind::Lost),
    ] {
        store.releases().once(replies);
        let guard = locks.all(["a", "b"]).acquire().await.expect("granted");
        let error = guard.release().await.expect_err("told so");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.key().is_some());
        locks.shutdown_of_releases().await;
    }
}

#[tokio::test]
async fn a_section_of_several_holds_each_of_them_and_drops_its_body_with_the_first_loss() {
    let store = Mock::new();
    let locks = store.manager();
    let guard = locks.all(["a", "b"]).acquire().await.expect("granted");
    let section = async {
        assert!(crate::current().is_none(), "none of the two is more its own");
        for key in ["a", "b"] {
            assert_eq!(ensure_locked(key).expect("held").key(), key);
            let error = locks.lock(key).acquire().await.expect_err("held");
            assert_eq!(error.kind(), LockErrorKind::WouldDeadlock, "{error}");
        }
        let error = ensure_locked("c").expect_err("not held");
        assert!(error.to_string().contains("`a` and others"), "{error}");
        // The deadlock is reported before `0` is waited for.
        store.acquires().set(Reply::Silent);
        let error = locks.all(["0", "b"]).acquire().await.expect_err("held");
        assert_eq!((error.kind(), error.key().expect("named").as_str()), (LockErrorKind::WouldDeadlock, "b"));
        store.acquires().set(Reply::Yes);
        let again = locks.all(["b", "c"]).reentrant(true).acquire().await.expect("entered");
        again.release().await.expect("held");
        "done"
    };
    assert_eq!(guard.run(section).await.expect("in time"), "done");
    assert_eq!(counts(&store, ["a", "b", "c"]), [(1, 1); 3]);
    let single = locks.all(["a"]).acquire().await.expect("granted");
    let key =
        single.run(async { crate::current().map(|held| held.key().to_string()) }).await.expect("in time");
    assert_eq!(key.as_deref(), Some("a"));

    store.renewals().once([Reply::No]);
    let guard = locks.all(["a", "b"]).ttl(3000 * MS).acquire().await.expect("granted");
    let error = guard.run(std::future::pending::<()>()).await.expect_err("lost");
    assert_eq!(error.kind(), LockErrorKind::Lost);
}

#[tokio::test]
async fn a_guard_of_several_with_a_hold_that_was_entered_again_is_lost_with_it() {
    let store = Mock::new();
    let locks = store.manager();
    let outer = locks.lock("b").acquire().await.expect("granted");
    let hold = Arc::clone(&outer.turn().hold);
    let run = crate::__private::run(
        outer,
        async {
            let inner = locks.all(["a", "b"]).reentrant(true).acquire().await.expect("entered");
            hold.lose(crate::engine::loss::Cause::GivenAway);
            inner.lost().await;
            let error = inner.release().await.expect_err("lost");
            assert_eq!(error.key().expect("named").as_str(), "b");
        },
        crate::OnLost::Finish,
    );
    assert_eq!(run.await.kept().expect_err("lost").kind(), LockErrorKind::Lost);
    until("the other one is released", || store.releases().count("a") == 1).await;
}

#[tokio::test]
async fn each_of_them_counts_as_a_held_lock() {
    let store = Mock::new();
    let locks = store.manager().with_limits(Limits { held: 2, ..Limits::default() });
    let error = locks.all(["a", "b", "c"]).acquire().await.expect_err("too many");
    assert_eq!(error.kind(), LockErrorKind::Overloaded, "{error}");
    until("what was taken is released", || counts(&store, ["a", "b", "c"])[1].1 == 1).await;
    locks.all(["a", "b"]).acquire().await.expect("room for two").release().await.expect("held");
}

#[tokio::test]
async fn the_end_of_max_hold_of_one_of_them_ends_the_others() {
    let store = Mock::new();
    let locks = store.manager();
    store.acquires().set_about("b", Reply::Late(1_500 * MS));
    let guard = locks.all(["a", "b"]).max_hold(1_800 * MS).acquire().await.expect("granted");
    let held = guard.held();
    guard.lost().await;
    // `max_hold` of `b` itself ends 1.5 s later.
    let b = held.get("b").expect("held");
    tokio::time::timeout(1_000 * MS, b.lost()).await.expect("lost with `a`");
    assert!(guard.ensure_valid().is_err());
}

#[tokio::test]
async fn an_acquisition_that_is_dropped_on_its_way_gives_back_what_it_has() {
    let store = Mock::new();
    let locks = store.manager();
    store.acquires().once([Reply::Yes, Reply::Yes, Reply::Waits]);
    {
        let lock = locks.all(["a", "b", "c"]);
        let mut acquire = pin!(lock.acquire());
        let pending = acquire.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(pending.is_pending());
    }
    until("both are released", || counts(&store, ["a", "b", "c"])[..2] == [(1, 1); 2]).await;
}

impl LockManager {
    /// Waits until no background release is left.
    async fn shutdown_of_releases(&self) {
        self.engine().releaser.drained().await;
    }
}
