//! The steps of an acquisition: first the queue of this process, then the store.

mod errors;
mod store;

use std::{
    future::{Future, poll_fn},
    mem,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use self::{
    errors::{contended, missed, out_of_time},
    store::{Accepted, Judged, StoreCall, ask, ask_store, give_up, judge},
};
use crate::{
    LockError, LockGuard,
    backend::{Acquired, BoxFuture, Wait},
    engine::{
        Engine,
        cohort::{self, Entry, Follower, Leader, Waited},
        permit::Permit,
        renewal::Renewals,
        request::Request,
        turn_end::TurnEnd,
        unpolled::{self, Keeps},
    },
    section::scope,
    time::clock::{self, Instant},
};

pub(crate) use errors::not_polled;

/// Acquires a lock. In a child that was forked from the process of the manager, it fails, because the child must not
/// send requests.
pub(crate) async fn acquire(engine: &Arc<Engine>, request: &Request) -> Result<LockGuard, LockError> {
    let Some(process) = engine.process() else { return acquire_here(engine, request).await };
    let mut acquiring = pin!(acquire_here(engine, request));
    poll_fn(|cx| match process.check() {
        Ok(()) => acquiring.as_mut().poll(cx),
        Err(error) => Poll::Ready(Err(error)),
    })
    .await
}

/// Acquires a lock. An acquisition that was given up because it was not polled starts over at its next poll, if its
/// wait is not over.
async fn acquire_here(engine: &Arc<Engine>, request: &Request) -> Result<LockGuard, LockError> {
    // Otherwise a task that acquires and releases in a loop without ever waiting would starve the other tasks of its
    // runtime.
    tokio::task::coop::consume_budget().await;
    loop {
        let id = engine.cohorts.next_id();
        let mut rest = match begin(engine, request, id).await? {
            Begun::Acquired(guard) => return Ok(guard),
            Begun::Waits(rest) => rest,
        };
        let acquired =
            unpolled::watch(&engine.waiting, id, &request.lock, Keeps::Lead, rest.task.take(), rest).await;
        match acquired {
            Some(acquired) => return acquired,
            None if request.wait.end().has_passed() => return Err(not_polled()),
            None => {}
        }
    }
}

/// The state of an acquisition that has not waited yet.
#[allow(clippy::large_enum_variant, reason = "moved once; a box would cost every acquisition an allocation")]
pub(crate) enum Begun {
    Acquired(LockGuard),
    /// It has to wait, possibly only for the answer of the store.
    Waits(Rest),
}

/// The rest of an acquisition that has to wait: a future that borrows nothing from its caller, so that it can be
/// [watched].
///
/// [watched]: unpolled
pub(crate) struct Rest {
    stage: Stage,
    /// The task that the store's answer wakes, while that answer is pending.
    task: Option<Waker>,
}

#[allow(clippy::large_enum_variant, reason = "as above")]
enum Stage {
    /// The store's answer is pending. Most acquisitions end with it, and wait for nothing else.
    Asked {
        leader: Option<Leader>,
        call: BoxFuture<'static, Result<Acquired, LockError>>,
        give_up: Instant,
        about: About,
    },
    Waits(BoxFuture<'static, Result<LockGuard, LockError>>),
    Over,
}

/// A request, with the number of its acquisition.
struct About {
    request: Request,
    id: u64,
    /// The last field: the acquisition is counted until its other parts are dropped.
    permit: Permit,
}

/// Where an acquisition waits.
enum At {
    /// In the queue of this process.
    Queue(Follower),
    /// For the store, until this moment.
    Store(Option<Leader>, StoreCall, Instant),
}

/// Begins an acquisition with the number `id`, and continues it as far as possible without waiting.
///
/// # Cancel safety
/// Ready at its first poll.
pub(crate) async fn begin(engine: &Arc<Engine>, request: &Request, id: u64) -> Result<Begun, LockError> {
    request.check(engine.backend.capabilities())?;
    if let Some(again) = scope::enter_again(engine, request) {
        return again.map(Begun::Acquired);
    }
    // Declared first, so dropped last on every return.
    let permit = engine.permit()?;
    let about = |permit| About { request: request.clone(), id, permit };
    let at = match cohort::enter(&engine.cohorts, request, id, || Arc::clone(engine) as _)? {
        Entry::Busy(holder) => return Err(contended(&request.options, holder)),
        Entry::Follow(follower) => At::Queue(follower),
        entry => {
            let leader = if let Entry::Lead(leader) = entry { Some(leader) } else { None };
            let mut call = ask(engine, leader.as_ref(), request);
            // Computed when the store is asked: the rest of this acquisition may be polled much later.
            let give_up = give_up(request.wait);
            let first = poll_fn(|cx| match call.as_mut().poll(cx) {
                Poll::Ready(answer) => Poll::Ready(Ok(answer)),
                Poll::Pending => Poll::Ready(Err(cx.waker().clone())),
            });
            match first.await {
                Err(task) if engine.backend.capabilities().is_shared_between_processes() => {
                    let stage = Stage::Asked { leader, call, give_up, about: about(permit) };
                    return Ok(Begun::Waits(Rest { stage, task: Some(task) }));
                }
                Err(_) => At::Store(leader, Ok(call), give_up),
                Ok(answer) => match judge(engine, leader.as_ref(), request, answer) {
                    Judged::Over(accepted) => return Ok(Begun::Acquired(enter(permit, leader, accepted?))),
                    Judged::AskAgain(error) => At::Store(leader, Err(error), give_up),
                },
            }
        }
    };
    let stage = Stage::Waits(Box::pin(about(permit).acquire(at)));
    Ok(Begun::Waits(Rest { stage, task: None }))
}

impl Future for Rest {
    type Output = Result<LockGuard, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Stage::Asked { call, .. } = &mut self.stage {
            let answer = call.as_mut().poll(cx);
            let Stage::Asked { about, leader, call, give_up } = mem::replace(&mut self.stage, Stage::Over)
            else {
                unreachable!("matched above")
            };
            let at = match answer {
                Poll::Pending => At::Store(leader, Ok(call), give_up),
                Poll::Ready(answer) => {
                    match judge(about.permit.engine(), leader.as_ref(), &about.request, answer) {
                        Judged::Over(accepted) => {
                            return Poll::Ready(Ok(enter(about.permit, leader, accepted?)));
                        }
                        Judged::AskAgain(error) => At::Store(leader, Err(error), give_up),
                    }
                }
            };
            self.stage = Stage::Waits(Box::pin(about.acquire(at)));
        }
        match &mut self.stage {
            Stage::Waits(acquisition) => acquisition.as_mut().poll(cx),
            Stage::Asked { .. } | Stage::Over => unreachable!("it was ready when it was polled last"),
        }
    }
}

impl About {
    /// Waits in the queue of this process, then for the store.
    async fn acquire(self, mut at: At) -> Result<LockGuard, LockError> {
        let Self { request, id, permit } = self;
        let engine = Arc::clone(permit.engine());
        let (leader, call, give_up) = loop {
            at = match at {
                At::Store(leader, call, give_up) => break (leader, call, give_up),
                At::Queue(follower) => match follow(&engine, follower, request.wait).await? {
                    Waited::Entered(turn) => {
                        let (now, options) = (Instant::now(), &request.options);
                        if turn.hold.has_enough_validity(now, options.max_hold) {
                            turn.hold_until(now + options.hold_at_least);
                            return Ok(LockGuard::new(turn, permit));
                        }
                        // Lost before this task ran: it starts over if its wait is not over.
                        engine.end_turn_in_background(&turn, TurnEnd::Unused, now);
                        if request.wait.end().has_passed() {
                            return Err(missed());
                        }
                        match cohort::enter(&engine.cohorts, &request, id, || Arc::clone(&engine) as _)? {
                            Entry::Follow(follower) => At::Queue(follower),
                            Entry::Lead(leader) => ask_first(&engine, leader, &request)?,
                            Entry::Busy(_) | Entry::Bypass => unreachable!("it waits"),
                        }
                    }
                    Waited::Lead { leader, pause } => {
                        clock::sleep_until(Instant::now() + pause).await;
                        ask_first(&engine, leader, &request)?
                    }
                    Waited::TimedOut(cause) => return Err(out_of_time(&engine, &request.options, cause)),
                },
            };
        };
        let accepted = ask_store(&engine, leader.as_ref(), call, give_up, &request).await?;
        Ok(enter(permit, leader, accepted))
    }
}

/// Waits in the queue of this process, unless the manager is shut down.
async fn follow(engine: &Engine, follower: Follower, wait: Wait) -> Result<Waited, LockError> {
    tokio::select! {
        biased;
        waited = follower.wait(wait.end()) => Ok(waited),
        error = engine.closed() => Err(error),
    }
}

fn ask_first(engine: &Arc<Engine>, leader: Leader, request: &Request) -> Result<At, LockError> {
    // Otherwise a store that grants at once would be asked after the shutdown.
    engine.check_open()?;
    let call = ask(engine, Some(&leader), request);
    Ok(At::Store(Some(leader), Ok(call), give_up(request.wait)))
}

/// Makes a guard of a granted turn, and adds its hold to the renewals.
fn enter(permit: Permit, leader: Option<Leader>, Accepted { turn, at }: Accepted) -> LockGuard {
    if let Some(leader) = leader {
        leader.granted(&turn, at);
    }
    Renewals::add(permit.engine(), &turn.hold, at);
    tracing::trace!(key = %turn.hold.key(), fencing_token = %turn.token, "lock acquired");
    LockGuard::new(turn, permit)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use crate::{
        LockErrorKind,
        mock::{Mock, Reply},
    };

    #[tokio::test]
    async fn a_mode_that_the_store_does_not_have_is_refused_before_anything_else() {
        let store = Mock::new();
        let locks = store.manager();
        let guard = locks.lock("k").acquire().await.expect("granted");
        store.set_modeless();
        // Each of them would also be refused for its `ttl`, and because the section holds `k` already.
        let one = locks.lock("k").ttl(Duration::ZERO);
        let several = locks.all(["k", "l"]).ttl(Duration::ZERO);
        let section = async {
            for error in [
                one.acquire().await.expect_err("not there"),
                one.try_acquire().await.expect_err("not there"),
                several.acquire().await.expect_err("not there"),
                several.try_acquire().await.expect_err("not there"),
            ] {
                assert_eq!(error.kind(), LockErrorKind::Unsupported);
                assert_eq!(error.to_string(), "lock `k`: this store has no locks of the mode Exclusive");
            }
        };
        guard.run(section).await.expect("in time");
        assert_eq!(store.acquires().total(), 1, "the store was asked");
    }

    /// Until the second poll, only the answer wakes the task.
    #[tokio::test]
    async fn the_time_for_an_answer_counts_from_the_question_and_not_from_the_second_poll() {
        let store = Mock::new();
        let locks = store.manager();
        store.acquires().set(Reply::Silent);
        let began = Instant::now();
        let error = locks.lock("k").wait(Duration::from_millis(10)).acquire().await.expect_err("no answer");
        assert_eq!(error.kind(), LockErrorKind::Backend);
        // The second poll comes within half a second. The answer may come up to half a second after the wait. The two
        // periods begin at the same time.
        assert!(began.elapsed() < Duration::from_millis(850), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_lease_whose_token_leaves_no_numbers_for_handing_it_on_is_given_back_and_refused() {
        let store = Mock::new();
        store.set_numbering();
        let locks = store.manager();
        let error = locks.lock("k").acquire().await.expect_err("wrongly numbered");
        assert_eq!(error.kind(), LockErrorKind::Unsupported);
        assert!(error.to_string().contains("from_micros"), "{error}");
        locks.shutdown().await;
        assert_eq!(store.releases().count("k"), 1);
    }
}
