//! Single-flight attempts to connect: all callers that need a connection wait for the same attempt. For a [`PAUSE`]
//! after a failed attempt, further callers get its error.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::SetOnce;

use crate::{LockError, sync::lock, time::clock::Instant};

/// Pause after a failed attempt, so that many callers do not cause many attempts.
pub(in crate::backend) const PAUSE: Duration = Duration::from_millis(50);

/// The current connection of a store, or the attempt to make one.
#[derive(Debug)]
pub(in crate::backend) struct SingleFlight<T> {
    state: Mutex<State<T>>,
}

/// The result of an attempt, once the attempt has ended; `None` if the attempt was dropped unfinished. Waiting callers
/// are woken in the order in which they began to wait.
type Made<T> = Arc<SetOnce<Option<Result<T, LockError>>>>;

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

    /// Returns the connection. If there is no usable connection, waits for the pending attempt, or for an attempt that
    /// `begin` starts.
    ///
    /// `begin` must move the attempt into a task of its own, which ends the attempt with [`finish`](Self::finish). If
    /// the attempt ran inside a caller, all other callers would depend on that caller being polled and not dropped.
    ///
    /// # Errors
    /// The errors of `begin` and of the attempt; for a [`PAUSE`] after a failed attempt, the error of that attempt; an
    /// error with the message `given_up` if the attempt was dropped with its runtime.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(in crate::backend) async fn get(
        &self,
        is_usable: impl FnOnce(&T) -> bool,
        begin: impl FnOnce(Attempt<T>) -> Result<(), LockError>,
        given_up: &str,
    ) -> Result<T, LockError> {
        let attempt = {
            let mut state = lock(&self.state);
            match &*state {
                State::Connecting(attempt) if !attempt.initialized() => Arc::clone(attempt),
                State::Open(connection) if is_usable(connection) => return Ok(connection.clone()),
                State::Failed(until, error) if !until.has_passed() => return Err(error.clone()),
                State::Idle | State::Connecting(_) | State::Open(_) | State::Failed(..) => {
                    let attempt = Made::default();
                    begin(Attempt(Arc::clone(&attempt)))?;
                    *state = State::Connecting(Arc::clone(&attempt));
                    attempt
                }
            }
        };
        let made = attempt.wait().await.clone();
        made.unwrap_or_else(|| Err(LockError::backend(given_up)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_wait_for_one_attempt_and_share_its_end() {
        let flight = SingleFlight::<u8>::default();
        let attempts = Mutex::new(Vec::new());
        let get = || {
            let begin = |attempt| {
                lock(&attempts).push(attempt);
                Ok(())
            };
            flight.get(|_| true, begin, "given up")
        };
        let finish = async {
            let attempt = lock(&attempts).pop().expect("begun");
            assert!(lock(&attempts).is_empty(), "two attempts");
            flight.finish(attempt, Ok(7));
        };
        let (first, second, ()) = tokio::join!(biased; get(), get(), finish);
        assert_eq!(first.expect("connected"), 7);
        assert_eq!(second.expect("connected"), 7);
        assert_eq!(flight.open(|_| true), Some(7));
        assert_eq!(flight.open(|_| false), None);
    }

    #[tokio::test]
    async fn an_attempt_that_is_dropped_leaves_room_for_another_and_a_failure_is_shared_for_a_moment() {
        let flight = SingleFlight::<u8>::default();
        let (keep, kept) = std::sync::mpsc::channel();
        let begin = |attempt| {
            assert!(keep.send(attempt).is_ok(), "the receiver lives");
            Ok(())
        };
        let get = || flight.get(|_| true, begin, "given up");
        let (given_up, ()) = tokio::join!(biased; get(), async { drop(kept.try_recv().expect("begun")) });
        assert_eq!(given_up.expect_err("it was dropped").message(), "given up");
        let error = || LockError::backend("away");
        let fail = async { flight.finish(kept.try_recv().expect("begun anew"), Err(error())) };
        let (failed, ()) = tokio::join!(biased; get(), fail);
        assert_eq!(failed.expect_err("it failed").message(), "away");
        let refused = flight.get(|_| true, |_| panic!("too early"), "given up").await;
        assert!(refused.is_err() && !flight.has_failed());
        tokio::time::sleep(PAUSE).await;
        assert!(flight.has_failed());
        assert!(flight.get(|_| true, |_| Err(error()), "given up").await.is_err(), "refused to begin");
        let (dropped, ()) = tokio::join!(biased; get(), async { drop(kept.try_recv().expect("begun")) });
        assert!(dropped.is_err());
    }
}
