//! What a function with `#[distributed_lock]` returns if its body did not run, or did not end under the lock: the options
//! `on_contention`, `or_else` and `on_lost`.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    time::Duration,
};

use lock_runtime::{LockError, LockErrorKind, distributed_lock, with_manager};

use super::{LEASES, LONG, ms};
use crate::{
    case::{Case, case},
    fixture::Fixture,
    store::Fault,
};

pub fn cases() -> Vec<Case> {
    vec![
        case!(a_lock_that_is_held_is_skipped),
        case!(a_store_that_fails_is_not_skipped).hurts(Fault::Down),
        case!(or_else_gets_every_error).hurts(Fault::Down).needs(LEASES),
        case!(or_else_beside_skip_gets_all_but_contention).hurts(Fault::Down).needs(LEASES),
        case!(an_error_of_the_bodys_own_is_kept_beside_or_else).needs(LEASES),
        case!(a_body_that_is_to_be_finished_is_and_its_output_replaced_by_the_loss),
    ]
}

#[distributed_lock(key = "<mark>:k", wait = "0s", on_contention = skip)]
async fn skip_unit(mark: &str, runs: &AtomicUsize) -> Result<(), LockError> {
    runs.fetch_add(1, SeqCst);
    Ok(())
}

#[distributed_lock(key = "<mark>:k", wait = "100ms", on_contention = skip)]
async fn skip_option(mark: &str, runs: &AtomicUsize) -> Result<Option<usize>, LockError> {
    Ok(Some(runs.fetch_add(1, SeqCst)))
}

#[distributed_lock(key = "<mark>:k", wait = "0s", on_contention = skip, or_else = |error| panic!("{error}"))]
async fn skip_nothing(mark: &str, runs: &AtomicUsize) {
    runs.fetch_add(1, SeqCst);
}

#[distributed_lock(key = "<mark>:k", wait = "0s", on_contention = skip, or_else = |error| panic!("{error}"))]
async fn skip_plain_option(mark: &str, runs: &AtomicUsize) -> Option<usize> {
    Some(runs.fetch_add(1, SeqCst))
}

async fn a_lock_that_is_held_is_skipped(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let runs = AtomicUsize::new(0);
    let guard = theirs.lock(fixture.key("k")).ttl(LONG).acquire().await.unwrap();
    let all = async {
        let mark = fixture.mark();
        skip_nothing(mark, &runs).await;
        skip_unit(mark, &runs).await.unwrap();
        (skip_option(mark, &runs).await.unwrap(), skip_plain_option(mark, &runs).await)
    };
    assert_eq!(with_manager(ours.clone(), all).await, (None, None));
    assert_eq!(runs.load(SeqCst), 0, "a body ran without the lock");
    // The waiter's place in the queue is given up in the background.
    fixture.queued(&fixture.key("k"), 0).await;
    guard.release().await.unwrap();
    let all = async {
        let mark = fixture.mark();
        skip_nothing(mark, &runs).await;
        skip_unit(mark, &runs).await.unwrap();
        (skip_option(mark, &runs).await.unwrap(), skip_plain_option(mark, &runs).await)
    };
    assert_eq!(with_manager(ours, all).await, (Some(2), Some(3)));
    fixture.clean().await;
}

async fn a_store_that_fails_is_not_skipped(fixture: Fixture) {
    let locks = fixture.client().await;
    let runs = AtomicUsize::new(0);
    fixture.hurt(Fault::Down);
    let error = with_manager(locks.clone(), skip_unit(fixture.mark(), &runs)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    let error = with_manager(locks, skip_option(fixture.mark(), &runs)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    assert_eq!(runs.load(SeqCst), 0);
    fixture.heal();
}

/// The outcome of a call that has no `Result`.
#[derive(Debug, PartialEq)]
enum Answer {
    Ran,
    Refused(LockErrorKind),
}

#[expect(clippy::needless_pass_by_value, reason = "as `or_else` calls it")]
fn refused(error: LockError) -> Answer {
    Answer::Refused(error.kind())
}

#[distributed_lock(key = "<mark>:<name>", ttl = "1s", wait = "0s", auto_renew = false, or_else = refused)]
async fn answers(mark: &str, name: &str, section: Duration) -> Answer {
    tokio::time::sleep(section).await;
    Answer::Ran
}

async fn or_else_gets_every_error(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let answers = |name, section| with_manager(ours.clone(), answers(fixture.mark(), name, section));
    assert_eq!(answers("k", ms(0)).await, Answer::Ran);
    assert_eq!(answers("", ms(0)).await, Answer::Refused(LockErrorKind::InvalidKey));
    assert_eq!(answers("k", LONG).await, Answer::Refused(LockErrorKind::Lost));
    let guard = theirs.lock(fixture.key("k")).wait(LONG).acquire().await.unwrap();
    assert_eq!(answers("k", ms(0)).await, Answer::Refused(LockErrorKind::Contended));
    guard.release().await.unwrap();
    fixture.hurt(Fault::Down);
    assert_eq!(answers("k", ms(0)).await, Answer::Refused(LockErrorKind::Backend));
    fixture.heal();
}

#[distributed_lock(
    key = "<mark>:k", ttl = "1s", wait = "0s", auto_renew = false, on_contention = skip,
    or_else = |error| Some(refused(error))
)]
async fn answers_or_skips(mark: &str, section: Duration) -> Option<Answer> {
    tokio::time::sleep(section).await;
    Some(Answer::Ran)
}

async fn or_else_beside_skip_gets_all_but_contention(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let answers = |section| with_manager(ours.clone(), answers_or_skips(fixture.mark(), section));
    assert_eq!(answers(LONG).await, Some(Answer::Refused(LockErrorKind::Lost)));
    let guard = theirs.lock(fixture.key("k")).wait(LONG).acquire().await.unwrap();
    assert_eq!(answers(ms(0)).await, None);
    guard.release().await.unwrap();
    assert_eq!(answers(ms(0)).await, Some(Answer::Ran));
    fixture.hurt(Fault::Down);
    assert_eq!(answers(ms(0)).await, Some(Answer::Refused(LockErrorKind::Backend)));
    fixture.heal();
}

/// Not named `Result`: the type distinguishes an error of the body from a value.
type Charge = Result<u8, &'static str>;

#[distributed_lock(key = "<mark>:k", ttl = "500ms", auto_renew = false, or_else = |_| Err("lost"))]
async fn too_late(mark: &str, answer: Charge) -> Charge {
    // Blocks, so that it cannot be cancelled.
    std::thread::sleep(ms(700));
    answer
}

async fn an_error_of_the_bodys_own_is_kept_beside_or_else(fixture: Fixture) {
    let locks = fixture.client().await.wait(LONG);
    let too_late = |answer| with_manager(locks.clone(), too_late(fixture.mark(), answer));
    assert_eq!(too_late(Err("declined")).await, Err("declined"));
    assert_eq!(too_late(Ok(1)).await, Err("lost"));
    fixture.clean().await;
}

#[distributed_lock(key = "<mark>:k", ttl = Duration::from_secs(5), max_hold = "300ms", on_lost = finish)]
async fn finishes(mark: &str, ended: &AtomicBool) -> Result<(), LockError> {
    tokio::time::sleep(ms(800)).await;
    ended.store(true, SeqCst);
    Ok(())
}

#[distributed_lock(key = "<mark>:k", ttl = Duration::from_secs(5), max_hold = "300ms", on_lost = cancel)]
async fn is_cancelled(mark: &str, ended: &AtomicBool) -> Result<(), LockError> {
    tokio::time::sleep(ms(800)).await;
    ended.store(true, SeqCst);
    Ok(())
}

async fn a_body_that_is_to_be_finished_is_and_its_output_replaced_by_the_loss(fixture: Fixture) {
    let locks = fixture.client().await.wait(LONG);
    let ended = AtomicBool::new(false);
    let error = with_manager(locks.clone(), is_cancelled(fixture.mark(), &ended)).await.unwrap_err();
    assert_eq!((error.kind(), ended.load(SeqCst)), (LockErrorKind::Lost, false));
    let error = with_manager(locks, finishes(fixture.mark(), &ended)).await.unwrap_err();
    assert_eq!((error.kind(), ended.load(SeqCst)), (LockErrorKind::Lost, true));
    fixture.clean().await;
}
