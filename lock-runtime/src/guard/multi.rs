//! Several held locks.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use crate::{HeldLock, LockError, LockErrorKind, LockGuard, engine::hold, guard, time::clock::Instant};

/// Several locks that are held together.
///
/// Dropping it releases the locks in the background; [`release`](Self::release) also reports whether the section was
/// covered to its end.
///
/// The loss of one is the loss of all: none can be relied on from then on. The others stay held until the guard is
/// released or dropped, so that no other holder enters while code still runs under it. See [`LockGuard`] for how a loss
/// is seen.
#[must_use = "the locks are released as soon as the guard is dropped"]
pub struct MultiGuard {
    held: Vec<LockGuard>,
}

impl MultiGuard {
    /// Creates the guard if all the locks are still held; the wait for the last one may have been long.
    pub(crate) fn new(held: Vec<LockGuard>, hold_at_least: Duration) -> Result<Self, LockError> {
        // Before the check below: a loss after it is seen by the renewals.
        let own: Arc<[_]> =
            held.iter().filter(|held| held.leaves()).map(|held| Arc::downgrade(held.turn())).collect();
        for held in held.iter().filter(|held| held.leaves()) {
            held.turn().hold.hold_with(&own);
        }
        let now = Instant::now();
        if let Some(lost) = held.iter().find(|held| !held.is_worth_it(now)) {
            lost.ensure_valid()?;
            let why = "lost: too little of its lease was left when the last of the locks was acquired";
            return Err(LockError::new(LockErrorKind::Lost, why).with_key(lost.key()));
        }
        if !hold_at_least.is_zero() {
            let until = now + hold_at_least;
            held.iter().try_for_each(|held| held.check_held_until(until))?;
            for held in &held {
                held.turn().hold_until(until);
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

    /// Returns how long all the locks can be relied on without another renewal; zero once one is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.held.iter().map(LockGuard::remaining).min().unwrap_or_default()
    }

    /// Fails if one of the locks can no longer be relied on: a check before a step that cannot be undone.
    ///
    /// # Errors
    /// [`Lost`](LockErrorKind::Lost), which names the lock.
    pub fn ensure_valid(&self) -> Result<(), LockError> {
        if self.is_valid() { Ok(()) } else { Err(hold::loss(self.held.iter().map(LockGuard::turn))) }
    }

    /// Completes when one of the locks is lost, at its safe deadline at the latest; for `select!`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.held().lost()
    }

    /// Returns a view of these holds, for code that needs to know of them but must not release them.
    #[must_use]
    pub fn held(&self) -> HeldLocks {
        HeldLocks(self.held.iter().map(LockGuard::held).collect())
    }

    /// Releases all the locks at once and waits for the store to confirm it.
    ///
    /// # Errors
    /// As [`LockGuard::release`]; [`Lost`](LockErrorKind::Lost) if one of the locks was lost, whatever became of the
    /// others.
    ///
    /// # Cancel safety
    /// Once polled, the releases happen even if the future is dropped.
    pub async fn release(self) -> Result<(), LockError> {
        // If one is lost, all are dropped, which releases them in the background.
        self.ensure_valid()?;
        let mut under_way: Vec<_> =
            self.held.into_iter().map(|held| Some(Box::pin(held.release()))).collect();
        let mut released = Ok(());
        poll_fn(|cx| {
            for release in &mut under_way {
                if let Some(Poll::Ready(answer)) = release.as_mut().map(|release| Pin::new(release).poll(cx))
                {
                    *release = None;
                    released = worse(std::mem::replace(&mut released, Ok(())), answer);
                }
            }
            if under_way.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        released
    }
}

/// Picks the result that says more: an uncovered section outweighs an unconfirmed release.
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

/// A view of several holds that cannot release them: cheap to clone, and never keeps the locks held.
///
/// Once the guard is gone, it reports the holds as not valid.
#[derive(Clone)]
pub struct HeldLocks(Arc<[HeldLock]>);

impl HeldLocks {
    /// Returns the hold of the lock `key`.
    #[must_use]
    pub fn get(&self, key: impl AsRef<str>) -> Option<&HeldLock> {
        let key = key.as_ref();
        self.iter().find(|held| held.key() == key)
    }

    /// Iterates over the holds, in the order of their names.
    pub fn iter(&self) -> std::slice::Iter<'_, HeldLock> {
        self.0.iter()
    }

    /// Returns whether all the locks can still be relied on at this moment.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.iter().all(HeldLock::is_valid)
    }

    /// Returns how long all the locks can be relied on without another renewal; zero once one is lost or all are
    /// released.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.iter().map(HeldLock::remaining).min().unwrap_or_default()
    }

    /// Fails if one of the locks can no longer be relied on: a check before a step that cannot be undone.
    ///
    /// # Errors
    /// [`Lost`](LockErrorKind::Lost), which names the lock; also once the guard was released.
    pub fn ensure_valid(&self) -> Result<(), LockError> {
        if self.is_valid() { Ok(()) } else { Err(hold::loss(self.iter().map(HeldLock::turn))) }
    }

    /// Completes when one of the holds is over: lost, or released.
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
