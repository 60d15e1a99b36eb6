//! The way from wanting a lock to holding it: the queue of this process, then the store.

use std::{
    future::{Future, poll_fn},
    mem,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use crate::{
    LockError, LockErrorKind, LockGuard,
    backend::{Acquire, Acquired, BoxFuture, Grant, Progress, Wait},
    engine::{
        Engine, Permit,
        cohort::{Entry, Follower, Holder, Leader, Waited, Why, last_answer},
        hold::{Hold, Turn},
        in_flight::{Counted, Underway},
        renewal::Renewals,
        unpolled::{self, Keeps},
    },
    lock::{options::LockOptions, request::Request},
    section::scope,
    time::{
        backoff::backoff,
        clock::{self, Instant},
    },
};

/// Acquires a lock, in the process of its manager: a child that was forked off meanwhile must ask for nothing more.
pub(crate) async fn acquire(engine: &Arc<Engine>, request: &Request) -> Result<LockGuard, LockError> {
    let Some(process) = engine.process() else { return acquire_here(engine, request).await };
    let mut acquiring = pin!(acquire_here(engine, request));
    poll_fn(|cx| match process.check() {
        Ok(()) => acquiring.as_mut().poll(cx),
        Err(error) => Poll::Ready(Err(error)),
    })
    .await
}

/// An unpolled acquisition that was given up begins anew at its next poll, while its wait lasts.
async fn acquire_here(engine: &Arc<Engine>, request: &Request) -> Result<LockGuard, LockError> {
    // A task that locks and releases in a loop without ever waiting would keep the runtime from its other work.
    tokio::task::coop::consume_budget().await;
    loop {
        let id = engine.cohorts.next_id();
        let mut rest = match begin(engine, request, id).await? {
            Begun::Acquired(guard) => return Ok(guard),
            Begun::Waits(rest) => rest,
        };
        let acquired =
            unpolled::watch(&engine.waiting, id, &request.key, Keeps::Lead, rest.asker.take(), rest).await;
        match acquired {
            Some(acquired) => return acquired,
            None if request.wait.end().has_passed() => return Err(not_polled()),
            None => {}
        }
    }
}

/// How far an acquisition came without waiting.
pub(crate) enum Begun {
    Acquired(LockGuard),
    /// It has to wait, if only for the answer of the store.
    Waits(Rest),
}

/// What is left of an acquisition that has to wait: a future that needs nothing of its caller's, so that it can be
/// [watched].
///
/// [watched]: unpolled
pub(crate) struct Rest {
    stage: Stage,
    /// The task that the answer of the store wakes, where it is on its way.
    asker: Option<Waker>,
}

enum Stage {
    /// The answer of the store is on its way. Most acquisitions come no further, and have nothing else to wait for.
    Asked {
        leader: Option<Leader>,
        call: BoxFuture<'static, Result<Acquired, LockError>>,
        about: About,
    },
    Waits(BoxFuture<'static, Result<LockGuard, LockError>>),
    Over,
}

/// What is asked for.
struct About {
    request: Request,
    id: u64,
    permit: Permit,
    /// Last: it is counted until everything else of it is dropped.
    asking: Counted<Arc<Underway>>,
}

/// Where an acquisition waits.
enum At {
    /// In the queue of this process.
    Queue(Follower),
    /// For the store.
    Store(Option<Leader>, Call),
}

/// A question to the store, or why one has to be asked again.
type Call = Result<BoxFuture<'static, Result<Acquired, LockError>>, LockError>;

/// Begins an acquisition with the number `id`, and goes as far as is possible without waiting.
///
/// # Cancel safety
/// It is ready when it is polled first.
pub(crate) async fn begin(engine: &Arc<Engine>, request: &Request, id: u64) -> Result<Begun, LockError> {
    request.check(engine.backend.capabilities())?;
    if let Some(again) = scope::enter_again(engine, request) {
        return again.map(Begun::Acquired);
    }
    // Counted before the look whether the manager is open, and until everything that is dropped on the way out is.
    let _asking = Counted::new(&*engine.asking);
    let permit = engine.permit()?;
    let about = |permit| {
        let asking = Counted::new(Arc::clone(&engine.asking));
        About { request: request.clone(), id, permit, asking }
    };
    let at = match engine.cohorts.enter(request, id, || Arc::clone(engine) as _)? {
        Entry::Busy(holder) => return Err(contended(&request.options, holder)),
        Entry::Follow(follower) => At::Queue(follower),
        entry => {
            let leader = if let Entry::Lead(leader) = entry { Some(leader) } else { None };
            let mut call = ask(engine, leader.as_ref(), request);
            let first = poll_fn(|cx| match call.as_mut().poll(cx) {
                Poll::Ready(answer) => Poll::Ready(Ok(answer)),
                Poll::Pending => Poll::Ready(Err(cx.waker().clone())),
            });
            match first.await {
                Err(asker) if engine.backend.capabilities().shared_between_processes => {
                    let stage = Stage::Asked { leader, call, about: about(permit) };
                    return Ok(Begun::Waits(Rest { stage, asker: Some(asker) }));
                }
                Err(_) => At::Store(leader, Ok(call)),
                Ok(answer) => match judge(engine, leader.as_ref(), request, answer) {
                    Judged::Over(turn) => return Ok(Begun::Acquired(enter(permit, leader, turn?))),
                    Judged::AskAgain(error) => At::Store(leader, Err(error)),
                },
            }
        }
    };
    let stage = Stage::Waits(Box::pin(about(permit).acquire(at)));
    Ok(Begun::Waits(Rest { stage, asker: None }))
}

impl Future for Rest {
    type Output = Result<LockGuard, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Stage::Asked { call, .. } = &mut self.stage {
            let answer = call.as_mut().poll(cx);
            let Stage::Asked { about, leader, call } = mem::replace(&mut self.stage, Stage::Over) else {
                unreachable!("looked at above")
            };
            let at = match answer {
                Poll::Pending => At::Store(leader, Ok(call)),
                Poll::Ready(answer) => {
                    match judge(about.permit.engine(), leader.as_ref(), &about.request, answer) {
                        Judged::Over(turn) => {
                            return Poll::Ready(Ok(enter(about.permit, leader, turn?)));
                        }
                        Judged::AskAgain(error) => At::Store(leader, Err(error)),
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
        let Self { request, id, permit, asking } = self;
        let _asking = asking;
        let engine = Arc::clone(permit.engine());
        let (leader, call) = loop {
            at = match at {
                At::Store(leader, call) => break (leader, call),
                At::Queue(follower) => match follow(&engine, follower, request.wait).await? {
                    Waited::Called(turn) if engine.is_worth_it(&turn) => {
                        turn.hold_until(Instant::now() + request.options.hold_at_least);
                        return Ok(LockGuard::new(turn, permit));
                    }
                    // Lost before this task ran: the way begins anew.
                    Waited::Called(_) if request.wait.end().has_passed() => return Err(missed()),
                    Waited::Called(_) => {
                        match engine.cohorts.enter(&request, id, || Arc::clone(&engine) as _)? {
                            Entry::Follow(follower) => At::Queue(follower),
                            Entry::Lead(leader) => ask_first(&engine, leader, &request)?,
                            Entry::Busy(_) | Entry::Alone => unreachable!("it waits"),
                        }
                    }
                    Waited::Lead { leader, pause } => {
                        clock::sleep_until(Instant::now() + pause).await;
                        ask_first(&engine, leader, &request)?
                    }
                    Waited::TimedOut(why) => return Err(out_of_time(&engine, &request.options, why)),
                },
            };
        };
        let turn = ask_store(&engine, leader.as_ref(), call, &request).await?;
        Ok(enter(permit, leader, turn))
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
    // A store that grants at once would be asked after the end.
    engine.check_open()?;
    let call = ask(engine, Some(&leader), request);
    Ok(At::Store(Some(leader), Ok(call)))
}

/// Asks the store once.
fn ask(
    engine: &Arc<Engine>,
    leader: Option<&Leader>,
    request: &Request,
) -> BoxFuture<'static, Result<Acquired, LockError>> {
    engine.backend.acquire(Acquire {
        key: request.key.clone(),
        mode: request.mode,
        ttl: request.options.ttl,
        auto_renew: request.options.auto_renew,
        wait: request.wait,
        cleanup: engine.cleanup(),
        progress: Progress(leader.map(|leader| leader.asker().reporter())),
    })
}

/// Waits for the answer to `call`, and asks the store again until it answers or the wait is over.
async fn ask_store(
    engine: &Arc<Engine>,
    leader: Option<&Leader>,
    mut call: Call,
    request: &Request,
) -> Result<Arc<Turn>, LockError> {
    let Request { key, options, wait, .. } = request;
    // One attempt ends when the store gives up; only the store knows how long an answer may take.
    let give_up = if *wait == Wait::No { Instant::FAR_FUTURE } else { last_answer(wait.end()) };
    for attempt in 0.. {
        let error = match call {
            Err(error) => error,
            Ok(call) => {
                let answer = tokio::select! {
                    biased;
                    answer = call => answer,
                    error = engine.closed() => return Err(error),
                    () = clock::sleep_until(give_up) => return Err(no_answer(engine, leader, options)),
                };
                match judge(engine, leader, request, answer) {
                    Judged::Over(turn) => return turn,
                    Judged::AskAgain(error) => error,
                }
            }
        };
        let pause = backoff(attempt);
        if wait.end().remaining() <= pause {
            return Err(error);
        }
        tracing::debug!(%key, %error, "the store failed, asking again");
        tokio::select! {
            () = clock::sleep_until(Instant::now() + pause) => {}
            error = engine.closed() => return Err(error),
        }
        engine.check_open()?;
        call = Ok(ask(engine, leader, request));
    }
    unreachable!("the loop ends by returning")
}

/// What an answer of the store is worth.
enum Judged {
    Over(Result<Arc<Turn>, LockError>),
    AskAgain(LockError),
}

fn judge(
    engine: &Arc<Engine>,
    leader: Option<&Leader>,
    request: &Request,
    answer: Result<Acquired, LockError>,
) -> Judged {
    let Request { options, wait, .. } = request;
    let asker = leader.map(Leader::asker);
    let error = match answer {
        Ok(Acquired::Granted(grant)) => match accept(engine, grant, request) {
            Some(turn) => return Judged::Over(Ok(turn)),
            None => too_late(),
        },
        Ok(Acquired::Busy { holder_remaining }) => {
            asker.inspect(|asker| asker.contended());
            // The store does not know whether it is renewed.
            let holder = Holder { remaining: holder_remaining, is_final: false };
            let error = if *wait == Wait::No { contended(options, holder) } else { timeout(options, holder) };
            return Judged::Over(Err(error));
        }
        Err(error) => error,
    };
    let failed = error.kind() == LockErrorKind::Backend;
    if failed {
        asker.inspect(|asker| asker.failed(&error));
    }
    if failed && error.is_retryable() && *wait != Wait::No {
        Judged::AskAgain(error)
    } else {
        Judged::Over(Err(error))
    }
}

/// The store granted it.
fn enter(permit: Permit, leader: Option<Leader>, turn: Arc<Turn>) -> LockGuard {
    let now = Instant::now();
    if let Some(leader) = leader {
        leader.granted(&turn, now);
    }
    Renewals::add(permit.engine(), &turn.hold, now);
    tracing::trace!(key = %turn.hold.key(), fencing_token = %turn.token, "lock acquired");
    LockGuard::new(turn, permit)
}

/// Makes a turn of a grant, unless it came too late to be of use; then it is given back.
fn accept(engine: &Arc<Engine>, grant: Grant, request: &Request) -> Option<Arc<Turn>> {
    let (now, options) = (Instant::now(), &request.options);
    let hold = Hold::new(grant.held, request.terms(), options.max_hold, engine.process());
    if hold.remaining_unrenewed(now) < engine.least_validity(options.ttl.min(options.max_hold)) {
        engine.releaser.release(hold.taken(), hold.gone_by(now));
        return None;
    }
    let turn = Turn::first(hold, grant.token);
    turn.hold_until(now + options.hold_at_least);
    Some(turn)
}

fn contended(options: &LockOptions, holder: Holder) -> LockError {
    is_held(LockErrorKind::Contended, "somebody else holds it".into(), options, holder)
}

fn timeout(options: &LockOptions, holder: Holder) -> LockError {
    let waited = match options.wait {
        crate::lock::options::WaitFor::AtMost(length) => format!("{length:?}"),
        crate::lock::options::WaitFor::Forever => "the wait".into(),
    };
    is_held(LockErrorKind::Timeout, format!("somebody else still held it after {waited}"), options, holder)
}

fn is_held(kind: LockErrorKind, message: String, options: &LockOptions, holder: Holder) -> LockError {
    // Of a lease that is renewed, the rest says nothing about the section under it.
    let advice = holder.remaining.filter(|_| holder.is_final).unwrap_or(options.retry_after);
    LockError::new(kind, message).with_retry_after(holder.remaining).advising(advice)
}

fn missed() -> LockError {
    LockError::new(
        LockErrorKind::Timeout,
        "it was passed on to this task, which did not run in time to take it, and the wait is over",
    )
}

pub(crate) fn not_polled() -> LockError {
    LockError::new(
        LockErrorKind::Timeout,
        "the future of this acquisition was not polled in time and lost its place, and the wait is over",
    )
}

/// The store has not answered until the end.
fn no_answer(engine: &Engine, leader: Option<&Leader>, options: &LockOptions) -> LockError {
    let Some(asker) = leader.map(Leader::asker) else { return unanswered() };
    let error = match asker.why() {
        Why::Unanswered { .. } => unanswered(),
        why => return out_of_time(engine, options, why),
    };
    asker.failed(&error);
    error
}

/// The wait ran out.
fn out_of_time(engine: &Engine, options: &LockOptions, why: Why) -> LockError {
    match why {
        Why::Held(holder) => timeout(options, holder),
        Why::Trouble(error) => error,
        Why::Unanswered { leader } if engine.waiting.is_blind(leader) => LockError::new(
            LockErrorKind::Timeout,
            "another task of this process asked the store for it, and was not polled to see the answer in time",
        ),
        Why::Unanswered { .. } => unanswered(),
    }
}

fn unanswered() -> LockError {
    LockError::new(LockErrorKind::Backend, "the store did not answer within the wait")
}

fn too_late() -> LockError {
    LockError::new(
        LockErrorKind::Backend,
        "the store granted it, but the answer took so long that too little of the lease was left",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::Mock;

    #[tokio::test]
    async fn a_mode_that_the_store_does_not_have_is_refused_before_it_is_asked() {
        let store = Mock::new();
        store.set_modeless();
        let locks = store.manager();
        for error in [
            locks.lock("k").acquire().await.expect_err("not there"),
            locks.all(["k", "l"]).acquire().await.expect_err("not there"),
        ] {
            assert_eq!(error.kind(), LockErrorKind::Unsupported);
            assert!(error.to_string().contains("Exclusive"), "{error}");
        }
        assert_eq!(store.acquires().total(), 0);
    }
}
