//! Several held locks.

use std::{
    fmt,
    future::{Future, poll_fn},
    mem,
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use crate::{
    HeldLock, LockError, LockErrorKind, LockGuard,
    engine::{hold, loss::Cause},
    guard,
    options::LockOptions,
    time::clock::Instant,
};

/// Several locks that are held together.
///
/// Dropping the guard releases the locks in the background. [`release`](Self::release) normally waits until the store
/// has confirmed the releases, and reports whether all the locks were still held.
///
/// Losing one lock counts as losing all: from then on, none of them can be relied on. The others stay held until the
/// guard is released or dropped, so that no other client can acquire them while code under this guard is still running.
/// The documentation of [`LockGuard`] describes how code learns of a loss.
#[must_use = "the locks are released as soon as the guard is dropped: bind it to a name, like `let guard = …`"]
pub struct MultiGuard {
    held: Vec<LockGuard>,
}

impl MultiGuard {
    /// Creates the guard if all the locks are still held. Some of the locks may have been lost, because the wait for
    /// the last lock may have been long.
    pub(crate) fn new(held: Vec<LockGuard>, options: &LockOptions) -> Result<Self, LockError> {
        // The turns are linked before the check below, so that a loss after the check ends all of them.
        let own: Arc<[_]> =
            held.iter().filter(|held| held.leaves()).map(|held| Arc::downgrade(held.turn())).collect();
        for held in held.iter().filter(|held| held.leaves()) {
            held.turn().hold.link_turns(&own);
        }
        let now = Instant::now();
        if let Some(lost) = held.iter().find(|held| !held.has_enough_validity(now, options.max_hold)) {
            lost.ensure_valid()?;
            let cause = Cause::TooLittleLeft;
            if lost.turn().hold.is_first_report() {
                cause.log(lost.key());
            }
            return Err(cause.error(lost.key()));
        }
        if !options.hold_at_least.is_zero() {
            let until = now + options.hold_at_least;
            held.iter().try_for_each(|held| held.check_held_until(until))?;
            for held in &held {
                held.turn().retain_until(until);
            }
        }
        Ok(Self { held })
    }

    pub(crate) fn locks(&self) -> &[LockGuard] {
        &self.held
    }

    /// Returns whether all the locks can still be relied on at this moment.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        guard::are_valid(&self.held)
    }

    /// Returns how much longer all the locks can be relied on if they are not renewed again. The result is zero once
    /// one of them has been lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.held.iter().map(LockGuard::remaining).min().unwrap_or_default()
    }

    /// Returns an error if one of the locks can no longer be relied on. Call this method before a step that cannot be
    /// undone.
    ///
    /// # Errors
    /// [`Lost`](LockErrorKind::Lost). The error names the lock that was lost.
    pub fn ensure_valid(&self) -> Result<(), LockError> {
        if self.is_valid() { Ok(()) } else { Err(hold::loss(self.held.iter().map(LockGuard::turn))) }
    }

    /// Completes when one of the locks is lost, which happens no later than that lock's
    /// [deadline](crate::docs::glossary#locks). Use this future in `select!`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.held().lost()
    }

    /// Returns a read-only handle to these locks, for code that inspects them but must not release them.
    #[must_use]
    pub fn held(&self) -> HeldLocks {
        HeldLocks(self.held.iter().map(LockGuard::held).collect())
    }

    /// Releases all the locks concurrently and waits for the store to confirm the releases.
    ///
    /// # Errors
    /// The same errors as [`LockGuard::release`]. If one of the locks was lost, the error is of kind
    /// [`Lost`](LockErrorKind::Lost), even if releasing another one failed.
    ///
    /// # Cancel safety
    /// If the future is dropped, the locks are still released in the background, whether or not the future was polled.
    pub async fn release(mut self) -> Result<(), LockError> {
        self.leave().await
    }

    /// Releases the locks as [`LockGuard::leave`] does.
    pub(crate) async fn leave(&mut self) -> Result<(), LockError> {
        // If one lock is lost, the drop of the guards releases all of them in the background.
        self.ensure_valid()?;
        // Each guard is dropped as soon as its lock is released, so that none waits for the slowest release.
        let mut under_way: Vec<_> =
            mem::take(&mut self.held).into_iter().map(|held| Some(Box::pin(held.release()))).collect();
        let mut released = Ok(());
        poll_fn(|cx| {
            for release in &mut under_way {
                if let Some(Poll::Ready(answer)) = release.as_mut().map(|release| Pin::new(release).poll(cx))
                {
                    *release = None;
                    released = worse(mem::replace(&mut released, Ok(())), answer);
                }
            }
            if under_way.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        released
    }
}

/// Picks the more informative result: the loss of a lock outweighs an unconfirmed release.
fn worse(one: Result<(), LockError>, other: Result<(), LockError>) -> Result<(), LockError> {
    match (&one, &other) {
        (Err(one), Err(other))
            if one.kind() != LockErrorKind::Lost && other.kind() == LockErrorKind::Lost => {}
        (Err(_), _) => return one,
        (Ok(()), _) => {}
    }
    other
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.held).finish()
    }
}

/// A read-only handle to several held locks. It is cheap to clone, cannot release the locks, and does not keep them
/// held.
///
/// [`is_valid`](Self::is_valid) returns false once one of the locks has been lost, or once the locks have been
/// released. The locks count as released when their [`MultiGuard`] is released or dropped, or when the function or
/// request that runs under them ends.
#[derive(Clone)]
pub struct HeldLocks(Arc<[HeldLock]>);

impl HeldLocks {
    /// Returns the handle to the lock with the name `key`, or `None` if none of these locks has that name.
    #[must_use]
    pub fn get(&self, key: impl AsRef<str>) -> Option<&HeldLock> {
        let key = key.as_ref();
        self.iter().find(|held| held.key() == key)
    }

    /// Iterates over the locks, in order of name.
    pub fn iter(&self) -> std::slice::Iter<'_, HeldLock> {
        self.0.iter()
    }

    /// Returns whether all the locks can still be relied on at this moment.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.iter().all(HeldLock::is_valid)
    }

    /// Returns how much longer all the locks can be relied on if they are not renewed again. The result is zero once
    /// one of them has been lost, or once the locks have been released.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.iter().map(HeldLock::remaining).min().unwrap_or_default()
    }

    /// Returns an error if one of the locks can no longer be relied on. Call this method before a step that cannot be
    /// undone.
    ///
    /// # Errors
    /// [`Lost`](LockErrorKind::Lost), even if the locks were released rather than lost. The error names a lock that can
    /// no longer be relied on.
    pub fn ensure_valid(&self) -> Result<(), LockError> {
        if self.is_valid() { Ok(()) } else { Err(hold::loss(self.iter().map(HeldLock::turn))) }
    }

    /// Completes when one of the locks is lost, or when the locks are released.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut alarms: Vec<_> = self.iter().map(|held| Box::pin(held.lost())).collect();
        poll_fn(move |cx| {
            let over = alarms.iter_mut().any(|alarm| alarm.as_mut().poll(cx).is_ready());
            if over { Poll::Ready(()) } else { Poll::Pending }
        })
    }
}

impl<'a> IntoIterator for &'a HeldLocks {
    type Item = &'a HeldLock;
    type IntoIter = std::slice::Iter<'a, HeldLock>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Debug for HeldLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_says_more_than_an_unknown_end_and_the_first_of_its_kind_is_told() {
        let error = |kind, text: &str| Err(LockError::new(kind, text));
        let lost = |text| error(LockErrorKind::Lost, text);
        let unknown = |text| error(LockErrorKind::Backend, text);
        let told = |one, other| worse(one, other).map_err(|error| error.to_string());
        assert_eq!(told(Ok(()), Ok(())), Ok(()));
        for (one, other) in [
            (lost("a"), Ok(())),
            (Ok(()), lost("a")),
            (unknown("a"), Ok(())),
            (Ok(()), unknown("a")),
            (lost("a"), unknown("b")),
            (unknown("b"), lost("a")),
            (lost("a"), lost("b")),
            (unknown("a"), unknown("b")),
        ] {
            assert_eq!(told(one, other), Err("a".into()));
        }
    }
}
