//! The steps of an acquisition: first the queue of this process, then the store.

mod errors;
mod store;
pub(crate) mod trace;

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Poll, Waker},
};

use self::{
    errors::{contended, missed, out_of_time},
    store::{Accepted, Judged, StoreCall, ask, ask_store, call_deadline, judge},
};
use crate::{
    LockError, LockGuard,
    backend::{BoxFuture, LockId, Wait},
    engine::{
        Engine,
        cohort::{self, Entry, Follower, Leader, Waited},
        in_flight::InFlightGuard,
        permit::Permit,
        renewal::Renewals,
        request::Request,
        turn_end::TurnEnd,
        unpolled::{self, Withheld},
    },
    metrics::{Acquisition, HandedOver},
    section::scope,
    time::clock::{self, Instant},
};

pub(crate) use errors::not_polled;

/// Acquires a lock.
pub(crate) async fn acquire(engine: &Arc<Engine>, request: &Request) -> Result<LockGuard, LockError> {
    unless_forked(engine, pin!(acquire_here(engine, request))).await
}

/// Acquires by `acquiring`. Fails in a forked child of the manager's process, because the child must not send requests.
pub(crate) async fn unless_forked(
    engine: &Engine,
    mut acquiring: Pin<&mut impl Future<Output = Result<LockGuard, LockError>>>,
) -> Result<LockGuard, LockError> {
    // Without this call, a task that acquires and releases in a loop without ever waiting would starve the other tasks
    // of its runtime.
    tokio::task::coop::consume_budget().await;
    let Some(process) = engine.process() else { return acquiring.await };
    poll_fn(|cx| match process.check() {
        Ok(()) => acquiring.as_mut().poll(cx),
        Err(error) => Poll::Ready(Err(error)),
    })
    .await
}

/// Acquires a lock. An acquisition that was given up because it was not polled starts over at its next poll, if its
/// wait is not over.
async fn acquire_here(engine: &Arc<Engine>, request: &Request) -> Result<LockGuard, LockError> {
    let acquisition = request.meter(&engine.metrics).begin();
    let acquired = loop {
        let id = engine.cohorts.next_id();
        let (pending, task) = match start(engine, request, id).await {
            Ok(Started::Acquired(guard)) => break Ok(guard),
            Ok(Started::Waits { pending, task }) => (pending, task),
            Err(error) => break Err(error),
        };
        let _waits = (acquisition.waits(), InFlightGuard::new(Arc::clone(&engine.unanswered)));
        match unpolled::watch(&engine.waiting, id, &request.lock, Withheld::Lead, task, pending).await {
            Some(acquired) => break acquired,
            None if request.wait.end().has_passed() => break Err(not_polled()),
            None => {}
        }
    };
    ended(acquisition, acquired)
}

/// Records how an acquisition ended.
pub(crate) fn ended(
    acquisition: Acquisition,
    acquired: Result<LockGuard, LockError>,
) -> Result<LockGuard, LockError> {
    match acquired {
        Ok(mut guard) => {
            acquisition.acquired(&mut guard.holding);
            Ok(guard)
        }
        Err(error) => {
            acquisition.failed(error.kind());
            Err(error)
        }
    }
}

/// The remaining steps of an acquisition that has to wait. This future borrows nothing from the caller, so that it can
/// be [watched].
///
/// [watched]: unpolled
pub(crate) type Pending = BoxFuture<'static, Result<LockGuard, LockError>>;

/// The state of an acquisition that has not waited yet.
pub(crate) enum Started {
    Acquired(LockGuard),
    /// The acquisition has to wait, possibly only for the answer of the store.
    Waits {
        pending: Pending,
        /// The task that the store's answer wakes, until `pending` is polled.
        task: Option<Waker>,
    },
}

/// Starts an acquisition with the number `id`, and continues it as far as possible without waiting.
///
/// # Cancel safety
/// The future is ready at its first poll.
pub(crate) async fn start(engine: &Arc<Engine>, request: &Request, id: u64) -> Result<Started, LockError> {
    request.check(engine.backend.capabilities())?;
    if let Some(again) = scope::reenter(engine, request) {
        return again.map(Started::Acquired);
    }
    // Declared first, so that the permit is dropped last on every return.
    let permit = engine.permit()?;
    let context = |permit| Context { request: request.clone(), id, permit };
    let leader = match cohort::enter(&engine.cohorts, request, id, || Arc::clone(engine) as _)? {
        Entry::Busy(holder) => return Err(contended(&request.options, holder)),
        Entry::Follow(follower) => {
            return Ok(Started::Waits { pending: Box::pin(context(permit).follow(follower)), task: None });
        }
        Entry::Lead(leader) => Some(leader),
        Entry::Bypass => None,
    };
    let mut call = ask(engine, leader.as_ref(), request);
    // The deadline is computed now, when the store is asked, because the rest of this acquisition may be polled much
    // later.
    let deadline = call_deadline(request.wait);
    let first = poll_fn(|cx| match call.as_mut().poll(cx) {
        Poll::Ready(answer) => Poll::Ready(Ok(answer)),
        Poll::Pending => Poll::Ready(Err(cx.waker().clone())),
    });
    let (call, task) = match first.await {
        // The call to a store inside the process is polled again at once, so that the store gets the waker of the slot
        // in place of the task's.
        Err(task) => (Ok(call), engine.process().is_some().then_some(task)),
        Ok(answer) => match judge(engine, leader.as_ref(), request, answer) {
            Judged::Over(accepted) => return Ok(Started::Acquired(enter(permit, leader, accepted?))),
            Judged::AskAgain(error) => (Err(error), None),
        },
    };
    let question = Question { leader, call, deadline, context: context(permit) };
    Ok(Started::Waits { pending: Box::pin(question.answered()), task })
}

/// The parts of an acquisition that has to wait.
struct Context {
    request: Request,
    id: u64,
    /// Declared last, so that the acquisition is counted until its other parts are dropped.
    permit: Permit,
}

impl Context {
    /// Waits in the queue of this process, then for the store.
    async fn follow(self, mut follower: Follower) -> Result<LockGuard, LockError> {
        let Self { request, id, permit } = &self;
        let engine = permit.engine();
        let leader = loop {
            match wait_in_queue(engine, follower, request.wait).await? {
                Waited::Entered(turn) => {
                    let (now, options) = (Instant::now(), &request.options);
                    if turn.is_valid(now) && turn.hold.has_enough_validity(now, options.max_hold) {
                        turn.retain_until(now + options.hold_at_least);
                        request.meter(&engine.metrics).handed_over(HandedOver::InProcess);
                        return Ok(LockGuard::new(turn, self.permit, now));
                    }
                    // By the time this task runs, the hold is lost or too little of it is left. The acquisition starts
                    // over if its wait is not over.
                    engine.end_turn_in_background(&turn, TurnEnd::Unused, now);
                    if request.wait.end().has_passed() {
                        return Err(missed());
                    }
                    match cohort::enter(&engine.cohorts, request, *id, || Arc::clone(engine) as _)? {
                        Entry::Follow(next) => follower = next,
                        Entry::Lead(leader) => break leader,
                        Entry::Busy(_) | Entry::Bypass => unreachable!("it waits"),
                    }
                }
                Waited::Lead { leader, pause } => {
                    clock::sleep_until(Instant::now() + pause).await;
                    break leader;
                }
                Waited::TimedOut(cause) => return Err(out_of_time(engine, &request.options, cause)),
            }
        };
        // Without this check, the store could be asked, and could grant the lock, after a shutdown.
        engine.check_open()?;
        let call = ask(engine, Some(&leader), request);
        let deadline = call_deadline(request.wait);
        Question { leader: Some(leader), call: Ok(call), deadline, context: self }.answered().await
    }
}

/// An acquisition that has asked the store.
///
/// The fields are dropped in the order of their declaration, also if the acquisition is dropped before its first poll:
/// `call` may register a cleanup when dropped, and a shutdown waits for that cleanup only while the acquisition is
/// counted.
struct Question {
    leader: Option<Leader>,
    call: StoreCall,
    deadline: Instant,
    context: Context,
}

impl Question {
    /// Waits for the store until `deadline`.
    async fn answered(self) -> Result<LockGuard, LockError> {
        // The variables are dropped in the reverse order of their declaration, so the permit is dropped last.
        let Self { context: Context { permit, request, .. }, call, leader, deadline } = self;
        let accepted = ask_store(permit.engine(), leader.as_ref(), call, deadline, &request).await?;
        Ok(enter(permit, leader, accepted))
    }
}

/// Waits in the queue of this process, unless the manager is shut down.
async fn wait_in_queue(engine: &Engine, follower: Follower, wait: Wait) -> Result<Waited, LockError> {
    tokio::select! {
        biased;
        waited = follower.wait(wait.end()) => Ok(waited),
        error = engine.closed() => Err(error),
    }
}

/// Makes a guard of a granted turn, and adds its hold to the renewals.
fn enter(permit: Permit, leader: Option<Leader>, Accepted { turn, at }: Accepted) -> LockGuard {
    if leader.is_some_and(|leader| leader.granted(&turn, at)) {
        let LockId { key, mode } = &turn.hold.lock;
        permit.engine().metrics.meter(key.class(), mode.name()).handed_over(HandedOver::ByStore);
    }
    Renewals::add(permit.engine(), &turn.hold, at);
    let guard = LockGuard::new(turn, permit, at);
    // The log comes last, because its subscriber may panic.
    tracing::trace!(key = %guard.key(), fencing_token = %guard.fencing_token(), "lock acquired");
    guard
}

#[cfg(test)]
mod tests {
    use std::{
        future::{Future, pending},
        pin::pin,
        sync::{Arc, Mutex, OnceLock},
        task::{Context, Poll, Waker},
        time::{Duration, Instant},
    };

    use crate::{
        LockError, LockErrorKind, LockManager,
        backend::{Acquire, Acquired, Backend, BoxFuture, Capabilities},
        mock::{Mock, Reply},
        sync::lock,
    };

    /// A store that never answers, and notes for each dropped call whether its acquisition was still counted.
    #[derive(Clone, Debug, Default)]
    struct Counting {
        manager: Arc<OnceLock<LockManager>>,
        counted: Arc<Mutex<Vec<bool>>>,
    }

    struct Call(Counting);

    impl Drop for Call {
        fn drop(&mut self) {
            let engine = self.0.manager.get().expect("set by the test").engine();
            let drained = pin!(engine.asking.drained()).poll(&mut Context::from_waker(Waker::noop()));
            lock(&self.0.counted).push(drained.is_pending());
        }
    }

    impl Backend for Counting {
        fn capabilities(&self) -> Capabilities {
            Capabilities::new().shared_between_processes()
        }

        fn acquire(&self, _: Acquire) -> BoxFuture<'static, Result<Acquired, LockError>> {
            let call = Call(self.clone());
            Box::pin(async move {
                let _call = call;
                pending().await
            })
        }
    }

    #[tokio::test]
    async fn an_acquisition_is_counted_until_the_call_of_its_store_is_dropped() {
        let store = Counting::default();
        let locks = LockManager::new(store.clone());
        store.manager.set(locks.clone()).expect("once");
        for polls in 1..=2 {
            let one = locks.lock("k");
            let mut acquiring = Box::pin(one.acquire());
            for _ in 0..polls {
                let mut context = Context::from_waker(Waker::noop());
                assert!(matches!(acquiring.as_mut().poll(&mut context), Poll::Pending));
            }
            drop(acquiring);
        }
        assert_eq!(*lock(&store.counted), [true, true]);
    }

    #[tokio::test]
    async fn a_mode_that_the_store_does_not_have_is_refused_before_anything_else() {
        let store = Mock::new();
        let locks = store.manager();
        let guard = locks.lock("k").acquire().await.expect("granted");
        store.set_modeless();
        // Each acquisition would also be refused for its `ttl`, and because the section holds `k` already.
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

    /// Until the second poll, only the store's answer wakes the task.
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
