use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Wake, Waker},
    time::Duration,
};

use super::{follower::LATE_ANSWER, tenure::MAX_TENURE_ALONE, *};
use crate::{
    LockError, LockErrorKind, LockGuard, LockKey, LockManager,
    backend::{LockId, Mode, Wait},
    engine::{hold::Turn, request::Request, turn_end::TurnEnd, unpolled::POLL_GRACE},
    mock::{Mock, Reply, until},
    time::clock::Instant,
};

const MS: Duration = Duration::from_millis(1);

type Acquiring = std::pin::Pin<Box<dyn Future<Output = Result<LockGuard, LockError>> + Send>>;

/// Returns a waiter that has joined the queue and has not been polled since.
fn waiter(locks: &LockManager, ttl: Duration) -> Acquiring {
    let lock = locks.lock("k").ttl(ttl).wait(1000 * 30 * MS);
    let mut waiter: Acquiring = Box::pin(async move { lock.acquire().await });
    assert!(waiter.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    waiter
}

/// Returns a held lock with its store.
async fn held() -> (Mock, LockManager, LockGuard) {
    let store = Mock::new();
    let locks = store.manager();
    let guard = locks.lock("k").acquire().await.expect("granted");
    (store, locks, guard)
}

fn is_forgotten(locks: &LockManager) -> bool {
    locks.engine().cohorts.is_empty()
}

const TTL: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_lease_is_passed_on_without_the_store() {
    let (store, locks, guard) = held().await;
    let (second, third) = (waiter(&locks, TTL), waiter(&locks, TTL));
    let first = guard.fencing_token();
    guard.release().await.expect("held");
    let second = second.await.expect("handed over");
    assert_eq!(Some(second.fencing_token()), first.successor());
    drop(second);
    let third = third.await.expect("handed over");
    assert_eq!((store.acquires().count("k"), store.releases().count("k")), (1, 0));
    third.release().await.expect("held");
    assert_eq!((store.acquires().count("k"), store.releases().count("k")), (1, 1));
    assert!(is_forgotten(&locks));
}

/// A waker that checks, when the next waiter is woken, whether the previous turn is still valid.
struct AtTheCall {
    before: Arc<Turn>,
    both: AtomicUsize,
    calls: AtomicUsize,
}

impl Wake for AtTheCall {
    fn wake(self: Arc<Self>) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.both.fetch_add(usize::from(self.before.is_valid(Instant::now())), Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_turn_is_over_before_the_next_one_is_told_to_enter() {
    let (_store, locks, guard) = held().await;
    let mut next = waiter(&locks, TTL);
    let before = Arc::clone(guard.turn());
    let call = Arc::new(AtTheCall { before, both: AtomicUsize::new(0), calls: AtomicUsize::new(0) });
    assert!(next.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&call)))).is_pending());
    guard.release().await.expect("held");
    assert_eq!(call.calls.load(Ordering::SeqCst), 1);
    assert_eq!(call.both.load(Ordering::SeqCst), 0, "two believe that they hold it");
    next.await.expect("handed over").release().await.expect("held");
}

#[tokio::test]
async fn a_waiter_dropped_at_the_instant_of_the_call_passes_the_turn_on() {
    let (store, locks, guard) = held().await;
    let (called, next) = (waiter(&locks, TTL), waiter(&locks, TTL));
    guard.release().await.expect("held");
    // The first waiter was called, and has not been polled since.
    drop(called);
    let next = next.await.expect("handed over");
    assert_eq!(store.acquires().count("k"), 1);
    next.release().await.expect("held");
    assert!(is_forgotten(&locks));
}

#[tokio::test]
async fn the_last_waiter_dropped_at_the_instant_of_the_call_releases_in_the_store() {
    let (store, locks, guard) = held().await;
    let called = waiter(&locks, TTL);
    guard.release().await.expect("held");
    drop(called);
    until("released", || store.releases().count("k") == 1).await;
    assert!(is_forgotten(&locks));
}

#[tokio::test]
async fn a_waiter_called_to_lead_and_dropped_lets_the_next_one_lead() {
    let (store, locks, guard) = held().await;
    // The terms differ, so the lease cannot be handed over, and the waiter is called to ask the store.
    let (called, next) = (waiter(&locks, 2 * TTL), waiter(&locks, 2 * TTL));
    guard.release().await.expect("held");
    drop(called);
    next.await.expect("granted by the store").release().await.expect("held");
    assert_eq!((store.acquires().count("k"), store.releases().count("k")), (2, 2));
    assert!(is_forgotten(&locks));
}

#[tokio::test]
async fn a_leader_that_is_dropped_lets_the_next_one_lead() {
    let store = Mock::new();
    let locks = store.manager();
    store.acquires().once([Reply::Silent]);
    let (leader, next) = (waiter(&locks, TTL), waiter(&locks, TTL));
    drop(leader);
    next.await.expect("granted by the store").release().await.expect("held");
    assert_eq!(store.acquires().count("k"), 2);
    assert!(is_forgotten(&locks));
}

#[tokio::test]
async fn a_leader_that_fails_lets_the_next_one_lead() {
    let store = Mock::new();
    let locks = store.manager();
    store.acquires().once([Reply::No]);
    let impatient = locks.lock("k").wait(30 * MS);
    let mut leader = pin!(impatient.acquire());
    let lock = locks.lock("k").wait(TTL);
    let mut next = pin!(lock.acquire());
    let (first, second) = tokio::join!(leader.as_mut(), next.as_mut());
    assert_eq!(first.expect_err("busy").kind(), LockErrorKind::Timeout);
    second.expect("granted").release().await.expect("held");
    assert!(is_forgotten(&locks));
}

#[tokio::test]
async fn a_waiter_that_runs_out_of_time_takes_a_call_that_came_at_that_instant() {
    let (store, locks, guard) = held().await;
    let lock = locks.lock("k");
    let id = locks.engine().cohorts.next_id();
    let key = LockKey::with_prefix("lock:", "k").expect("valid");
    let wanted = LockId { key, mode: Mode::Exclusive };
    let request = Request { lock: wanted, options: lock.options, wait: Wait::Forever };
    let engine = locks.engine();
    let entry = enter(&engine.cohorts, &request, id, || Arc::clone(engine) as _).expect("there is room");
    let Entry::Follow(mut follower) = entry else { panic!("the lock is held") };
    guard.release().await.expect("held");
    let Waited::Entered(turn) = follower.time_out() else { panic!("called before") };
    assert!(turn.is_valid(Instant::now()));
    locks.engine().end_turn_in_background(&turn, TurnEnd::Unused, Instant::now());
    drop(follower);
    until("released", || store.releases().count("k") == 1).await;
    assert!(is_forgotten(&locks));
}

/// Returns the error of a waiter behind a leader that got `answers` from the store, and the time until that error.
async fn told(answers: &[Reply], asked: usize, before: Duration) -> (LockErrorKind, Duration) {
    let store = Mock::new();
    let locks = store.manager();
    store.acquires().once(answers.iter().copied());
    store.acquires().set(Reply::Silent);
    let leader = tokio::spawn(waiter(&locks, TTL));
    until("the leader has asked", || store.acquires().count("k") == asked).await;
    tokio::time::sleep(before).await;
    let began = std::time::Instant::now();
    let error = locks.lock("k").wait(50 * MS).acquire().await.expect_err("it is not granted");
    leader.abort();
    (error.kind(), began.elapsed())
}

#[tokio::test]
async fn a_waiter_that_runs_out_of_time_names_the_trouble_of_the_store_however_old() {
    let (kind, took) = told(&[Reply::Fails], 2, 2200 * MS).await;
    assert_eq!(kind, LockErrorKind::Backend, "an outage is not contention");
    assert!(took < 50 * MS + LATE_ANSWER, "{took:?}");
}

#[tokio::test]
async fn a_waiter_that_runs_out_of_time_does_not_say_that_it_is_held_when_nobody_has_said_so() {
    let (kind, took) = told(&[], 1, Duration::ZERO).await;
    assert_eq!(kind, LockErrorKind::Backend, "an outage is not contention");
    assert!(took >= 50 * MS + LATE_ANSWER, "a late answer would have been worth more: {took:?}");
}

#[tokio::test]
async fn a_waiter_that_runs_out_of_time_says_that_it_is_held_when_the_store_has_said_so() {
    for answers in [&[Reply::Waits][..], &[Reply::Fails, Reply::Waits]] {
        let (kind, took) = told(answers, answers.len(), Duration::ZERO).await;
        assert_eq!(kind, LockErrorKind::Timeout, "contention is not an outage");
        assert!(took < 50 * MS + LATE_ANSWER, "{took:?}");
    }
}

#[tokio::test]
async fn a_waiter_that_runs_out_of_time_hears_the_answer_that_comes_a_little_later() {
    let (kind, took) = told(&[Reply::Late(150 * MS)], 1, Duration::ZERO).await;
    assert_eq!(kind, LockErrorKind::Timeout, "a task of this process holds it");
    assert!(took < 50 * MS + LATE_ANSWER, "{took:?}");
}

#[tokio::test]
async fn waiters_do_not_wait_for_the_holder_of_a_lost_lease() {
    let (store, locks, guard) = held().await;
    let next = waiter(&locks, TTL);
    guard.turn().hold.lose(crate::engine::loss::Cause::GivenAway);
    locks.engine().cohorts.dissolve(&guard.turn().hold);
    let next = next.await.expect("granted by the store");
    assert_eq!(store.acquires().count("k"), 2);
    // The old holder leaves late, which does not affect the new cohort.
    drop(guard);
    until("released", || store.releases().count("k") == 1).await;
    assert!(next.is_valid());
    next.release().await.expect("held");
    assert!(is_forgotten(&locks));
}

#[tokio::test]
async fn a_lost_lease_is_not_passed_on() {
    let (store, locks, guard) = held().await;
    let next = waiter(&locks, TTL);
    guard.turn().hold.lose(crate::engine::loss::Cause::GivenAway);
    assert_eq!(guard.release().await.expect_err("lost").kind(), LockErrorKind::Lost);
    assert!(next.await.expect("granted by the store").is_valid());
    assert_eq!(store.acquires().count("k"), 2);
}

#[tokio::test]
async fn a_lease_with_too_little_left_is_not_passed_on() {
    let store = Mock::new();
    let locks = store.manager();
    store.renewals().set(Reply::Silent);
    let guard = locks.lock("k").ttl(300 * MS).acquire().await.expect("granted");
    let next = waiter(&locks, 300 * MS);
    until("less than a tenth is left", || guard.remaining() < 28 * MS).await;
    let _ = guard.release().await;
    let next = next.await.expect("granted by the store");
    assert_eq!(store.acquires().count("k"), 2);
    assert!(next.remaining() > 28 * MS);
}

#[tokio::test]
async fn a_turn_that_was_lost_before_its_waiter_woke_is_not_handed_out() {
    let (store, locks, guard) = held().await;
    let next = waiter(&locks, TTL);
    let hold = Arc::clone(&guard.turn().hold);
    guard.release().await.expect("held");
    hold.lose(crate::engine::loss::Cause::GivenAway);
    let next = next.await.expect("granted by the store");
    assert!(next.is_valid());
    assert_eq!(store.acquires().count("k"), 2);
    next.release().await.expect("held");
    until("both are released", || store.releases().count("k") == 2).await;
    assert!(is_forgotten(&locks));
}

#[tokio::test]
async fn a_turn_whose_max_hold_ended_before_its_waiter_woke_is_not_handed_out() {
    let (store, locks, guard) = held().await;
    let lock = locks.lock("k").ttl(TTL).max_hold(100 * MS);
    let mut next = pin!(lock.acquire());
    assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    guard.release().await.expect("held");
    tokio::time::sleep(150 * MS).await;
    let next = next.await.expect("granted by the store");
    assert!(next.is_valid());
    assert_eq!(store.acquires().count("k"), 2);
}

#[tokio::test]
async fn a_turn_that_was_lost_before_its_waiter_woke_too_late_is_an_error() {
    let (_store, locks, guard) = held().await;
    let lock = locks.lock("k").wait(20 * MS);
    let mut next = pin!(lock.acquire());
    assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let hold = Arc::clone(&guard.turn().hold);
    guard.release().await.expect("held");
    hold.lose(crate::engine::loss::Cause::GivenAway);
    tokio::time::sleep(30 * MS).await;
    let error = next.await.expect_err("neither held nor waited for any more");
    assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
    assert!(is_forgotten(&locks));
}

#[tokio::test]
async fn a_turn_that_nobody_takes_goes_to_others_and_its_waiter_waits_on() {
    let (store, locks, guard) = held().await;
    let (kept, next) = (waiter(&locks, TTL), waiter(&locks, TTL));
    guard.release().await.expect("held");
    // The first waiter is called, but not polled.
    let began = std::time::Instant::now();
    let next = tokio::time::timeout(TTL / 3, next).await.expect("in time").expect("granted by the store");
    assert!(began.elapsed() >= POLL_GRACE, "{:?}", began.elapsed());
    until("the turn is given back", || store.releases().count("k") == 1).await;
    assert_eq!(store.acquires().count("k"), 2);
    let mut kept = tokio::spawn(kept);
    let too_early = tokio::time::timeout(50 * MS, &mut kept).await;
    assert!(too_early.is_err() && next.is_valid(), "two hold it");
    next.release().await.expect("held");
    kept.await.expect("no panic").expect("handed over").release().await.expect("held");
    assert!(is_forgotten(&locks));
}

/// Returns the number of turns between two requests to the store.
async fn turns(contended: bool) -> usize {
    let (store, locks, mut guard) = held().await;
    store.set_contended(contended);
    let mut turns = 1;
    while store.acquires().count("k") == 1 && turns < 5000 {
        let next = waiter(&locks, TTL);
        guard.release().await.expect("held");
        guard = next.await.expect("granted");
        turns += 1;
    }
    turns - 1
}

#[tokio::test]
async fn others_in_the_store_are_let_in_after_a_bound_of_turns() {
    let turns = turns(true).await;
    // At most the first turn and 64 hand-overs; fewer if five milliseconds pass first.
    assert!(turns <= 65, "{turns}");
}

#[tokio::test]
async fn a_lease_nobody_else_wants_is_passed_on_until_its_tokens_are_used_up() {
    let began = std::time::Instant::now();
    let turns = turns(false).await;
    // On a slow machine, the tenure ends by its length, before the tokens of the grant are used up.
    assert!(turns == 2048 || turns > 65 && began.elapsed() >= MAX_TENURE_ALONE, "{turns}");
}

#[tokio::test]
async fn one_attempt_is_answered_from_the_queue_only_while_the_hold_is_sure() {
    let (store, locks, guard) = held().await;
    assert!(locks.lock("k").try_acquire().await.expect("an answer").is_none());
    assert_eq!(store.acquires().count("k"), 1, "who holds is known here");
    guard.turn().hold.lose(crate::engine::loss::Cause::GivenAway);
    let beside = locks.lock("k").try_acquire().await.expect("an answer").expect("the store grants it");
    assert_eq!(store.acquires().count("k"), 2);
    drop(guard);
    until("released", || store.releases().count("k") == 1).await;
    assert!(beside.is_valid());
}

fn is_wanted_now(guard: &LockGuard) -> bool {
    pin!(guard.wanted()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[tokio::test]
async fn a_task_that_begins_to_wait_wakes_the_holder_that_awaits_it() {
    let (_store, locks, guard) = held().await;
    let wanted = tokio::spawn(guard.wanted());
    assert!(!is_wanted_now(&guard));
    tokio::task::yield_now().await;
    let next = waiter(&locks, TTL);
    tokio::time::timeout(TTL, wanted).await.expect("woken").expect("no panic");
    assert!(is_wanted_now(&guard), "the task still waits");
    drop(next);
    assert!(!is_wanted_now(&guard), "the task has gone");
    guard.release().await.expect("held");
    assert!(is_forgotten(&locks));
}

#[tokio::test]
async fn a_task_that_waited_before_the_grant_is_seen() {
    let store = Mock::new();
    let locks = store.manager();
    store.acquires().once([Reply::Late(20 * MS)]);
    let (leader, next) = (waiter(&locks, TTL), waiter(&locks, TTL));
    let guard = leader.await.expect("granted");
    assert!(is_wanted_now(&guard));
    drop(next);
}

#[tokio::test]
async fn after_a_hand_over_only_the_tasks_that_still_wait_count() {
    let (_store, locks, guard) = held().await;
    let (second, third) = (waiter(&locks, TTL), waiter(&locks, TTL));
    let first = guard.held();
    guard.release().await.expect("held");
    let second = second.await.expect("handed over");
    assert!(is_wanted_now(&second));
    let of_first = pin!(first.wanted()).poll(&mut Context::from_waker(Waker::noop())).is_pending();
    assert!(of_first, "the third task waits for the second holder");
    second.release().await.expect("held");
    let third = third.await.expect("handed over");
    assert!(!is_wanted_now(&third));
}

#[tokio::test]
async fn the_store_tells_of_other_clients_until_the_lock_is_lost() {
    let (store, _locks, guard) = held().await;
    let wanted = tokio::spawn(guard.wanted());
    assert!(!is_wanted_now(&guard));
    store.set_contended(true);
    tokio::time::timeout(TTL, wanted).await.expect("told by the store").expect("no panic");
    guard.turn().hold.lose(crate::engine::loss::Cause::GivenAway);
    let late = tokio::time::timeout(20 * MS, guard.wanted()).await;
    assert!(late.is_err(), "a lost lock is never wanted");
}
