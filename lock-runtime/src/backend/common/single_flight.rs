//! Single-flight attempts to connect: all callers that need a connection wait for the same attempt. For a [`PAUSE`]
//! after a failed attempt, further callers get its error.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::SetOnce;

use crate::{LockError, sync::lock, time::clock::Instant};

/// Pause after a failed attempt, so that many callers do not cause many attempts.
pub(in crate::backend) const PAUSE: Duration = Duration::from_millis(50);

/// The result of an attempt, once the attempt has ended; `None` if the attempt was dropped unfinished. Waiting callers
/// are woken in the order in which they began to wait.
pub(in crate::backend) type Made<T> = Arc<SetOnce<Option<Result<T, LockError>>>>;

/// The current connection of a store, or the attempt to make one.
#[derive(Debug)]
pub(in crate::backend) struct SingleFlight<T> {
    state: Mutex<State<T>>,
}

#[derive(Debug)]
enum State<T> {
    Idle,
    Connecting(Made<T>),
    Open(T),
    /// No attempt is made until this moment.
    Failed(Instant, LockError),
}

impl<T> Default for SingleFlight<T> {
    fn default() -> Self {
        Self { state: Mutex::new(State::Idle) }
    }
}

impl<T: Clone> SingleFlight<T> {
    /// Returns the connection, if there is a usable one.
    pub(in crate::backend) fn open(&self, is_usable: impl FnOnce(&T) -> bool) -> Option<T> {
        match &*lock(&self.state) {
            State::Open(connection) if is_usable(connection) => Some(connection.clone()),
            _ => None,
        }
    }

    /// Returns whether the last attempt failed, and the [`PAUSE`] after that attempt is over.
    pub(in crate::backend) fn has_failed(&self) -> bool {
        matches!(&*lock(&self.state), State::Failed(until, _) if until.has_passed())
    }

    /// Joins the pending attempt, or starts an attempt with `begin`; returns the receiver of the result.
    ///
    /// `begin` must move the attempt into a task of its own, which ends the attempt with [`finish`](Self::finish). If
    /// the attempt ran inside a caller, all other callers would depend on that caller being polled and not dropped.
    ///
    /// # Errors
    /// The errors of `begin`; for a [`PAUSE`] after a failed attempt, the error of that attempt.
    pub(in crate::backend) fn join(
        &self,
        is_usable: impl FnOnce(&T) -> bool,
        begin: impl FnOnce(Attempt<T>) -> Result<(), LockError>,
    ) -> Result<Made<T>, LockError> {
        let mut state = lock(&self.state);
        match &*state {
            State::Connecting(made) if !made.initialized() => return Ok(Arc::clone(made)),
            State::Open(connection) if is_usable(connection) => {
                return Ok(Arc::new(SetOnce::new_with(Some(Some(Ok(connection.clone()))))));
            }
            State::Failed(until, error) if !until.has_passed() => return Err(error.clone()),
            State::Idle | State::Connecting(_) | State::Open(_) | State::Failed(..) => {}
        }
        let made = Made::<T>::default();
        begin(Attempt(Arc::clone(&made)))?;
        *state = State::Connecting(Arc::clone(&made));
        Ok(made)
    }

    /// Ends an attempt, and gives its result to all callers that joined it.
    pub(in crate::backend) fn finish(&self, attempt: Attempt<T>, made: Result<T, LockError>) {
        *lock(&self.state) = match &made {
            Ok(connection) => State::Open(connection.clone()),
            Err(error) => State::Failed(Instant::now() + PAUSE, error.clone()),
        };
        let _ = attempt.0.set(Some(made));
        drop(attempt);
    }
}

/// A pending attempt. If the attempt is dropped unfinished, the next caller begins another attempt.
pub(in crate::backend) struct Attempt<T>(Made<T>);

impl<T> Drop for Attempt<T> {
    fn drop(&mut self) {
        // Has no effect on a finished attempt.
        let _ = self.0.set(None);
    }
}

impl<T> fmt::Debug for Attempt<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Attempt")
    }
}

/// Waits for the result of an attempt; `None` if the attempt was dropped with its runtime.
///
/// # Cancel safety
/// Cancel safe.
pub(in crate::backend) async fn made<T: Clone>(attempt: Made<T>) -> Option<Result<T, LockError>> {
    attempt.wait().await.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockErrorKind;

    #[tokio::test]
    async fn all_wait_for_one_attempt_and_share_its_end() {
        let flight = SingleFlight::<u8>::default();
        let mut attempts = Vec::new();
        let mut join = || {
            let begin = |attempt| {
                attempts.push(attempt);
                Ok(())
            };
            flight.join(|_| true, begin)
        };
        let (first, second) = (join().expect("begun"), join().expect("joined"));
        assert_eq!(attempts.len(), 1);
        flight.finish(attempts.pop().expect("one"), Ok(7));
        assert_eq!(made(first).await.expect("finished").expect("connected"), 7);
        assert_eq!(made(second).await.expect("finished").expect("connected"), 7);
        assert_eq!(flight.open(|_| true), Some(7));
        assert_eq!(flight.open(|_| false), None);
    }

    #[tokio::test]
    async fn an_attempt_that_is_dropped_leaves_room_for_another_and_a_failure_is_shared_for_a_moment() {
        let flight = SingleFlight::<u8>::default();
        let (keep, kept) = std::sync::mpsc::channel();
        let begin = |attempt| {
            keep.send(attempt).expect("the receiver lives");
            Ok(())
        };
        let given_up = flight.join(|_| true, begin).expect("begun");
        drop(kept.recv());
        assert!(made(given_up).await.is_none());
        flight.join(|_| true, begin).expect("begun anew");
        let error = || LockError::new(LockErrorKind::Backend, "away");
        flight.finish(kept.try_recv().expect("begun"), Err(error()));
        let refused = |flight: &SingleFlight<u8>| flight.join(|_| true, |_| panic!("too early")).map(drop);
        assert!(refused(&flight).is_err() && !flight.has_failed());
        tokio::time::sleep(PAUSE).await;
        assert!(flight.has_failed());
        assert!(flight.join(|_| true, |_| Err(error())).is_err(), "refused to begin");
        flight.join(|_| true, begin).expect("begun");
    }
}
