use std::{
    pin::Pin,
    sync::atomic::{AtomicBool, AtomicUsize},
    task::{Context, Wake},
};

use super::{slot::BLIND_AFTER, *};
use crate::{
    LockError, LockErrorKind, LockGuard, LockKey, LockManager,
    backend::Mode,
    idle::Idle,
    mock::{Mock, Reply, until},
};

const MS: Duration = Duration::from_millis(1);
const WAIT: Duration = Duration::from_secs(30);
/// Longer than an unpolled future may block others before it is given up.
const KEPT: Duration = Duration::from_secs(3);

type Acquiring = Pin<Box<dyn Future<Output = Result<LockGuard, LockError>> + Send>>;

fn acquiring(locks: &LockManager, wait: Duration) -> Acquiring {
    let lock = locks.lock("k").wait(wait);
    Box::pin(async move { lock.acquire().await })
}

/// Returns an acquisition that is polled only once.
fn kept(locks: &LockManager) -> Acquiring {
    let mut kept = acquiring(locks, WAIT);
    assert!(kept.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    kept
}

/// Returns an acquisition that is polled only twice. After the second poll, the slot sees the wake-ups.
fn kept_later(locks: &LockManager) -> Acquiring {
    let mut kept = kept(locks);
    assert!(kept.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    kept
}

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Returns a waker with the count of its calls.
fn counted() -> (Arc<Count>, Waker) {
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    (count, waker)
}

fn slots(locks: &LockManager) -> Vec<Arc<dyn Watched>> {
    let mut slots = Vec::new();
    locks.engine().waiting.each(|slot| slots.push(slot));
    slots
}

#[tokio::test]
async fn a_leader_that_nothing_wakes_hands_the_lead_on_when_others_follow() {
    let store = Mock::new();
    let locks = store.manager();
    store.acquires().once([Reply::Waits]);
    let _leader = kept_later(&locks);
    let began = std::time::Instant::now();
    let guard = acquiring(&locks, WAIT).await.expect("granted to the next leader");
    assert!(began.elapsed() >= POLL_GRACE && began.elapsed() < KEPT + KEPT, "{:?}", began.elapsed());
    assert_eq!(store.acquires().count("k"), 2);
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_leader_that_nothing_wakes_stays_where_it_is_when_nobody_follows() {
    let store = Mock::new();
    let locks = store.manager();
    store.acquires().once([Reply::Waits]);
    let _leader = kept_later(&locks);
    tokio::time::sleep(KEPT).await;
    assert_eq!(slots(&locks).len(), 1);
}

#[tokio::test]
async fn one_that_was_not_polled_after_its_first_question_is_given_up() {
    let store = Mock::new();
    let locks = store.manager();
    store.acquires().once([Reply::Waits]);
    let began = std::time::Instant::now();
    let _leader = kept(&locks);
    until("it is given up", || slots(&locks).is_empty()).await;
    assert!(began.elapsed() >= POLL_GRACE && began.elapsed() < KEPT + KEPT, "{:?}", began.elapsed());
}

#[tokio::test]
async fn one_that_still_waits_for_its_first_answer_lives_and_ends_with_the_manager() {
    let store = Mock::new();
    let locks = store.manager();
    store.acquires().once([Reply::Silent]);
    let waiter = tokio::spawn(acquiring(&locks, WAIT));
    until("it waits", || slots(&locks).len() == 1).await;
    assert!(slots(&locks)[0].state().is_unknown(), "not polled since it asked");
    tokio::time::sleep(KEPT).await;
    assert_eq!((store.acquires().count("k"), slots(&locks).len()), (1, 1));
    locks.shutdown().await;
    let error = waiter.await.expect("no panic").expect_err("shut down");
    assert_eq!(error.kind(), LockErrorKind::ShutDown, "{error}");
}

#[tokio::test]
async fn the_shutdown_wakes_one_that_was_not_polled_since_it_asked() {
    let store = Mock::new();
    let locks = store.manager();
    store.acquires().once([Reply::Silent]);
    let (count, waker) = counted();
    let mut acquiring = acquiring(&locks, WAIT);
    assert!(acquiring.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let mut shutdown = Box::pin(locks.shutdown());
    assert!(shutdown.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(slots(&locks)[0].state().is_unknown(), "it was not the job that woke it");
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    let error = acquiring.await.expect_err("shut down");
    assert_eq!(error.kind(), LockErrorKind::ShutDown, "{error}");
    shutdown.await;
}

#[tokio::test]
async fn a_leader_that_lives_is_not_given_up() {
    let store = Mock::new();
    let locks = store.manager();
    store.acquires().set(Reply::Waits);
    let (leader, follower) = (tokio::spawn(kept(&locks)), tokio::spawn(kept(&locks)));
    tokio::time::sleep(KEPT).await;
    assert_eq!((store.acquires().count("k"), slots(&locks).len()), (1, 2));
    leader.abort();
    follower.abort();
}

#[tokio::test]
async fn what_is_left_of_a_leader_that_was_given_up_has_no_say() {
    let store = Mock::new();
    let locks = store.manager();
    store.acquires().set(Reply::Waits);
    let _leader = kept(&locks);
    let old = store.take_progress().pop().expect("it waits");
    let _next = tokio::spawn(kept(&locks));
    until("the next one leads", || store.acquires().count("k") == 2).await;
    old.failed(&LockError::new(LockErrorKind::Backend, "long ago"));
    let error = acquiring(&locks, 20 * MS).await.expect_err("another client holds it");
    assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
    store.take_progress();
}

#[tokio::test]
async fn polled_again_after_another_was_granted_it_waits_behind_that() {
    let store = Mock::new();
    let locks = store.manager();
    store.acquires().once([Reply::Waits]);
    let leader = kept(&locks);
    let guard = acquiring(&locks, WAIT).await.expect("granted to the next leader");
    let leader = tokio::spawn(leader);
    tokio::time::sleep(20 * MS).await;
    assert!(!leader.is_finished() && guard.is_valid(), "two hold it");
    let token = guard.fencing_token();
    guard.release().await.expect("held");
    let guard = leader.await.expect("no panic").expect("handed over");
    assert_eq!(Some(guard.fencing_token()), token.successor());
}

#[tokio::test]
async fn polled_again_after_the_end_of_its_wait_it_says_so() {
    let store = Mock::new();
    let locks = store.manager();
    store.acquires().once([Reply::Waits]);
    let mut leader = acquiring(&locks, 50 * MS);
    assert!(leader.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    until("it is given up", || slots(&locks).is_empty()).await;
    let error = leader.await.expect_err("its wait is over");
    assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
    assert_eq!(store.acquires().count("k"), 1);
}

/// A never-ready future in a slot of its own, with the count of its polls and a record of its drop.
struct Probe {
    polls: Arc<AtomicUsize>,
    dropped: Arc<AtomicBool>,
    slot: Arc<dyn Watched>,
    watch: Pin<Box<dyn Future<Output = Option<()>>>>,
}

struct SetTrue(Arc<AtomicBool>);

impl Drop for SetTrue {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Creates a probe that calls `at_poll` at each poll.
fn probe(locks: &LockManager, at_poll: impl Fn(&LockManager) + Send + Sync + 'static) -> Probe {
    let (polls, dropped) = <(Arc<AtomicUsize>, Arc<AtomicBool>)>::default();
    let acquisition = {
        let (polls, dropped, locks) = (Arc::clone(&polls), SetTrue(Arc::clone(&dropped)), locks.clone());
        async move {
            let _dropped = dropped;
            poll_fn(|_| {
                polls.fetch_add(1, Ordering::SeqCst);
                at_poll(&locks);
                Poll::<()>::Pending
            })
            .await;
        }
    };
    let engine = Arc::clone(locks.engine());
    let lock = LockId { key: LockKey::new("k").expect("valid"), mode: Mode::Exclusive };
    let mut watch: Pin<Box<dyn Future<Output = Option<()>>>> = Box::pin(async move {
        let id = engine.cohorts.next_id();
        watch(&engine.waiting, id, &lock, Withheld::Lead, None, Box::pin(acquisition)).await
    });
    assert!(watch.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let slot = slots(locks).pop().expect("it waits");
    Probe { polls, dropped, slot, watch }
}

/// Returns a time after the grace of every future woken by now.
fn too_late() -> Instant {
    Instant::now() + POLL_GRACE + MS
}

#[tokio::test]
async fn what_was_not_woken_is_not_given_up() {
    let locks = Mock::new().manager();
    let probe = probe(&locks, |_| {});
    check_all(&locks.engine().waiting, too_late(), Instant::from_nanos(0));
    assert!(!probe.dropped.load(Ordering::SeqCst) && slots(&locks).len() == 1);
}

#[tokio::test]
async fn what_was_woken_is_given_up_in_time_and_not_before() {
    let locks = Mock::new().manager();
    let mut probe = probe(&locks, |_| {});
    probe.slot.state().wake();
    let woken = probe.slot.state().woken().expect("woken");
    // Each call of `check_all` returns the time of the next check.
    assert_eq!(
        check_all(&locks.engine().waiting, woken + POLL_GRACE / 2, Instant::from_nanos(0)),
        woken + POLL_GRACE / 2 + CHECK_INTERVAL
    );
    assert_eq!(
        check_all(&locks.engine().waiting, woken + POLL_GRACE.saturating_sub(MS), Instant::from_nanos(0)),
        woken + POLL_GRACE
    );
    assert!(!probe.dropped.load(Ordering::SeqCst));
    check_all(&locks.engine().waiting, woken + POLL_GRACE, Instant::from_nanos(0));
    until("it is dropped", || probe.dropped.load(Ordering::SeqCst)).await;
    let again = probe.watch.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!((again, probe.polls.load(Ordering::SeqCst)), (Poll::Ready(None), 1));
}

#[tokio::test]
async fn what_was_polled_since_is_not_given_up() {
    let locks = Mock::new().manager();
    let mut probe = probe(&locks, |_| {});
    probe.slot.state().wake();
    let woken = probe.slot.state().woken().expect("woken");
    assert!(probe.watch.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(probe.slot.give_up(woken).is_none(), "polled after the check and before it was given up");
    probe.slot.state().wake();
    assert!(probe.slot.give_up(woken).is_none(), "woken anew");
    assert!(!probe.dropped.load(Ordering::SeqCst));
}

#[tokio::test]
async fn what_is_being_polled_is_not_given_up() {
    let locks = Mock::new().manager();
    let mut probe = probe(&locks, |locks| {
        for slot in slots(locks) {
            slot.state().wake();
            check_all(&locks.engine().waiting, too_late(), Instant::from_nanos(0));
        }
    });
    assert!(probe.watch.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(!probe.dropped.load(Ordering::SeqCst) && slots(&locks).len() == 1);
}

#[tokio::test]
async fn a_process_that_stood_still_gives_nothing_up_at_once() {
    let locks = Mock::new().manager();
    let probe = probe(&locks, |_| {});
    probe.slot.state().wake();
    let now = too_late();
    check_all(&locks.engine().waiting, now, now);
    assert!(!probe.dropped.load(Ordering::SeqCst) && slots(&locks).len() == 1);
    check_all(&locks.engine().waiting, now + POLL_GRACE, now);
    until("it is dropped", || probe.dropped.load(Ordering::SeqCst)).await;
}

#[tokio::test]
async fn a_wake_up_that_may_be_missed_does_not_count_and_still_wakes() {
    let locks = Mock::new().manager();
    let mut probe = probe(&locks, |_| {});
    let (count, waker) = counted();
    assert!(probe.watch.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    {
        let _idle = Idle::set(true);
        probe.slot.state().wake();
    }
    assert_eq!((count.0.load(Ordering::SeqCst), probe.slot.state().woken()), (1, None));
    probe.slot.state().wake();
    assert!(count.0.load(Ordering::SeqCst) == 2 && probe.slot.state().woken().is_some());
}

#[tokio::test]
async fn the_job_ends_with_the_last_handle_to_the_store() {
    let store = Mock::new();
    let locks = store.manager();
    store.acquires().once([Reply::Silent]);
    let (leader, engine) = (kept(&locks), Arc::downgrade(locks.engine()));
    drop(locks);
    assert!(engine.strong_count() > 0);
    drop(leader);
    until("the store is not used any more", || engine.strong_count() == 0).await;
}

#[tokio::test]
async fn only_what_was_woken_for_long_has_something_at_which_it_did_not_look() {
    let locks = Mock::new().manager();
    let mut probe = probe(&locks, |_| {});
    let is_blind = |probe: &Probe| probe.slot.state().is_blind(Instant::now() + BLIND_AFTER);
    probe.slot.state().probe();
    assert!(probe.slot.state().woken().is_some() && !is_blind(&probe), "there was nothing to look at");
    probe.slot.state().wake();
    assert!(is_blind(&probe) && !probe.slot.state().is_blind(Instant::now()), "it may be about to run");
    assert!(probe.watch.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(!is_blind(&probe));
}
