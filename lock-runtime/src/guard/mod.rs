//! A held lock.

mod held;
pub(crate) mod multi;
pub(crate) mod set;

pub use self::{
    held::HeldLock,
    multi::{HeldLocks, MultiGuard},
};

use std::{
    fmt,
    future::{Future, poll_fn},
    sync::Arc,
    task::Poll,
    time::{Duration, SystemTime},
};

use tracing::{Span, field::Empty};

use crate::{
    FencingToken, LockError, LockErrorKind, LockKey,
    backend::{LockId, Released},
    engine::{
        Engine,
        cohort::AfterTurn,
        hold::{Hold, Turn},
        loss::{ReleaseTarget, log_given_up},
        permit::Permit,
        turn_end::TurnEnd,
    },
    metrics::{HoldEnd, Holding},
    time::clock::Instant,
};

/// A held lock.
///
/// Dropping the guard releases the lock in the background (with `memory:`, at once). [`release`](Self::release)
/// normally waits until the store has confirmed the release, and reports whether the lock was still held.
///
/// The lock counts as lost from its *deadline* on. Under the [conditions of the
/// store](crate::docs::safety#the-promise), the deadline is earlier than the moment at which the store can grant the
/// lock to another client. Each renewal of the [lease](crate::docs::glossary#locks) postpones the deadline. The guard's
/// methods read the clock on each call, so their results are correct even if the process has been paused for a while.
///
/// Code that relies on the lock should stop when the lock is lost. Pass the code as a future to [`run`](Self::run),
/// which drops the future if the lock is lost, or await [`lost`](Self::lost). Tasks that this code has spawned are not
/// stopped.
#[must_use = "the lock is released as soon as the guard is dropped: bind it to a name, like `let guard = …`"]
pub struct LockGuard {
    turn: Arc<Turn>,
    permit: Permit,
    /// Whether the turn ends with this guard. False once the guard is released, and for a guard by which the lock was
    /// re-entered.
    leaves: bool,
    /// Whether the lock was re-entered by this guard, which then counts as one more hold.
    reentered: bool,
    pub(crate) holding: Holding,
}

impl LockGuard {
    /// Creates the guard of a turn that begins at `now`.
    pub(crate) fn new(turn: Arc<Turn>, mut permit: Permit, now: Instant) -> Self {
        permit.entered();
        Self { turn, permit, leaves: true, reentered: false, holding: Holding::since(now) }
    }

    /// Creates another guard of the same turn. The new guard is valid no longer than the turn, and its release has no
    /// effect.
    pub(crate) fn again(&self) -> Self {
        Self {
            turn: Arc::clone(&self.turn),
            permit: self.permit.again(),
            leaves: false,
            reentered: false,
            holding: Holding::again(),
        }
    }

    /// Turns a guard made by [`again`](Self::again) into a guard by which the lock is re-entered.
    pub(crate) fn reentered(mut self) -> Self {
        self.turn.reenter();
        self.reentered = true;
        self
    }

    /// Returns whether this is a guard of a lock named `key`, in whatever mode, in the store of `engine`.
    pub(crate) fn is_of(&self, engine: &Engine, key: &LockKey) -> bool {
        self.key().stored() == key.stored() && self.permit.engine().is_store_of(engine)
    }

    pub(crate) fn lock(&self) -> &LockId {
        &self.turn.hold.lock
    }

    /// Returns the name of the lock, without the prefix.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        self.turn.hold.key()
    }

    /// Returns the fencing token, which is [larger](FencingToken) than the tokens of all earlier holders. Send the
    /// token along with each write, so that the resource that the lock protects can reject writes with a smaller token.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.turn.token
    }

    /// Returns the beginning of the period for which the lock was acquired, if the lock has the option
    /// [`once_per`](crate::Lock::once_per). No other acquisition of this lock with the same length has the same period (a
    /// guard that re-enters the lock shares it), so the body can use it as an idempotency key, or to find out what there is
    /// to do.
    #[must_use]
    pub fn period(&self) -> Option<SystemTime> {
        self.turn.period.get().copied()
    }

    /// Returns whether the lock can still be relied on at this moment.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.turn.is_valid(Instant::now())
    }

    /// Returns how much longer the lock can be relied on if it is not renewed again. The result is zero once the lock
    /// has been lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.turn.remaining(Instant::now())
    }

    /// Returns an error if the lock can no longer be relied on. Call this method before a step that cannot be undone.
    ///
    /// # Errors
    /// [`Lost`](LockErrorKind::Lost) if the lock has been lost.
    pub fn ensure_valid(&self) -> Result<(), LockError> {
        if self.is_valid() { Ok(()) } else { Err(self.turn.loss()) }
    }

    /// Completes when the lock is lost, which happens no later than its deadline. Use this future in `select!`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let turn = Arc::clone(&self.turn);
        async move { turn.lost().await }
    }

    /// Completes when another acquisition is known to wait for the lock, so that a long job can stop at a good place; see
    /// [`HeldLock::wanted`]. The future never completes once the lock has been lost or released.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn wanted(&self) -> impl Future<Output = ()> + Send + use<> {
        let turn = Arc::clone(&self.turn);
        async move { turn.wanted().await }
    }

    /// Returns a read-only handle to this lock, for code that inspects it but must not release it.
    #[must_use]
    pub fn held(&self) -> HeldLock {
        HeldLock::of(Arc::clone(&self.turn))
    }

    /// Releases the lock and waits for the store to confirm the release.
    ///
    /// Nothing is sent to the store in these cases:
    /// * the lock is handed to the next caller in this process;
    /// * the minimum time set by [`hold_at_least`](crate::Lock::hold_at_least) has not elapsed (the lock is then
    ///   released later);
    /// * this is the inner guard of a [re-entered](crate::Lock::reentrant) lock (the outer guard releases the lock).
    ///
    /// # Errors
    /// * [`Lost`](LockErrorKind::Lost) if the lock was lost before it was released. If the loss is already known, the
    ///   error is returned at once, and whatever is still recorded in the store is removed in the background.
    /// * [`Backend`](LockErrorKind::Backend) if the store did not confirm the release. The release is then retried
    ///   in the background until the store responds or the lease has expired.
    /// * [`Unsupported`](LockErrorKind::Unsupported), with a store that has a server, outside of a tokio runtime with
    ///   timers and I/O. The lock is then released in the background.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock is still released in the background, whether or not the future was polled.
    pub async fn release(mut self) -> Result<(), LockError> {
        self.leave().await
    }

    /// Releases the lock as [`release`](Self::release) does; the drop of the guard has to follow. This method borrows the
    /// guard, because a future that owns a guard has room for the guard twice, and so has each future around that future.
    pub(crate) async fn leave(&mut self) -> Result<(), LockError> {
        let now = Instant::now();
        if !self.turn.is_valid(now) {
            // The drop of the guard releases the lock in the background.
            return Err(self.turn.loss());
        }
        let engine = self.permit.engine();
        let released = if std::mem::replace(&mut self.leaves, false)
            && engine.end_turn(&self.turn, TurnEnd::Left(&self.permit), now) == AfterTurn::Release
        {
            release_in_store(engine, &self.turn.hold).await
        } else {
            Ok(())
        };
        let is_lost = released.as_ref().is_err_and(|error| error.kind() == LockErrorKind::Lost);
        self.holding.ends(if is_lost { HoldEnd::Lost } else { HoldEnd::Released }, now, None);
        released
    }

    /// Returns an error if the lock was re-entered by this guard, and the turn ends before `until`.
    pub(crate) fn check_held_until(&self, until: Instant) -> Result<(), LockError> {
        if self.leaves || until <= self.turn.hold.turn_ends() {
            return Ok(());
        }
        let problem = "hold_at_least reaches beyond the end of the re-entered hold";
        Err(LockError::new(LockErrorKind::InvalidOptions, problem).with_key(self.key()))
    }

    /// Returns whether the turn ends with this guard.
    pub(crate) fn leaves(&self) -> bool {
        self.leaves
    }

    /// Returns whether enough validity is left at `now` for a caller that may hold the lock for `max_hold`. If the lock
    /// was re-entered by this guard, any validity is enough.
    pub(crate) fn has_enough_validity(&self, now: Instant, max_hold: Duration) -> bool {
        self.turn.is_valid(now) && (!self.leaves || self.turn.hold.has_enough_validity(now, max_hold))
    }

    pub(crate) fn loss(&self) -> LockError {
        self.turn.loss()
    }

    /// Returns the span of a section under this lock and `count - 1` others; `None` unless a subscriber wants the span.
    pub(crate) fn section_span(&self, count: usize) -> Option<Span> {
        let LockId { key, mode } = self.lock();
        let span = tracing::debug_span!(
            "hold lock",
            lock.store = self.permit.engine().backend.capabilities().name(),
            lock.class = key.class(),
            lock.mode = mode.name(),
            lock.count = count,
            lock.held = Empty,
        );
        (!span.is_disabled()).then_some(span)
    }

    #[cfg(test)]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        self.permit.engine()
    }

    pub(crate) fn turn(&self) -> &Arc<Turn> {
        &self.turn
    }
}

/// Releases the hold in the store. If the response does not arrive or is not awaited, the release is repeated in the
/// background.
async fn release_in_store(engine: &Arc<Engine>, hold: &Arc<Hold>) -> Result<(), LockError> {
    let mut unfinished = Unfinished { engine, hold, armed: true };
    // If the caller's runtime cannot reach the store, the hold is released in the background only.
    engine.check_caller().map_err(|error| error.with_key(hold.key()))?;
    match hold.in_store.releasable().release().await {
        Ok(Released::Released) => {
            unfinished.disarm();
            tracing::trace!(key = %hold.key(), "lock released");
            Ok(())
        }
        Ok(Released::NotHeld) => {
            unfinished.disarm();
            log_given_up(hold.key());
            Err(LockError::new(
                LockErrorKind::Lost,
                "lost: the store no longer knew it as ours when it was released; \
                 use the fencing token to check what was done",
            )
            .with_key(hold.key()))
        }
        // `unfinished` repeats the release in the background.
        Err(error) => Err(LockError::new(
            LockErrorKind::Backend,
            format!("the release was not confirmed and is repeated in the background: {}", error.message()),
        )
        .with_key(hold.key())
        .with_source(error)),
    }
}

/// A release that is repeated in the background, unless the store has confirmed the release before this value is
/// dropped.
struct Unfinished<'a> {
    engine: &'a Arc<Engine>,
    hold: &'a Arc<Hold>,
    armed: bool,
}

impl Unfinished<'_> {
    fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if self.armed {
            let (hold, target) = (self.hold, ReleaseTarget::Remains);
            self.engine.releaser.release(hold.in_store.releasable(), target, hold.gone_by(Instant::now()));
        }
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if self.reentered {
            self.turn.leave_reentered();
        }
        // In a forked child, the hold is the parent's, and the mutexes on this path may have been locked at the fork.
        if !self.turn.hold.is_here() {
            return;
        }
        if self.leaves {
            let now = Instant::now();
            if self.holding.is_open() {
                let (end, late) = self.turn.left_at(now);
                self.holding.ends(end, now, late);
            }
            self.permit.engine().end_turn_in_background(&self.turn, TurnEnd::Left(&self.permit), now);
        } else if self.holding.is_open() {
            // The future of the release was dropped.
            self.holding.ends(HoldEnd::Released, Instant::now(), None);
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        held::show(f, "LockGuard", &self.turn)
    }
}

pub(crate) fn are_valid(held: &[LockGuard]) -> bool {
    held.iter().all(LockGuard::is_valid)
}

/// Completes with the error of the first of these locks that is lost.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn any_lost(held: &[LockGuard]) -> LockError {
    let mut alarms: Vec<_> = held.iter().map(|held| (held, Box::pin(held.lost()))).collect();
    poll_fn(|cx| {
        let lost =
            alarms.iter_mut().find_map(|(held, alarm)| alarm.as_mut().poll(cx).is_ready().then_some(held));
        lost.map_or(Poll::Pending, |held| Poll::Ready(held.loss()))
    })
    .await
}

#[cfg(test)]
mod tests;
