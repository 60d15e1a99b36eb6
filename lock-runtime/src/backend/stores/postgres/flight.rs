//! Requests for a lock that are under way, and holds that dropped attempts may have left.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::SetOnce;

use crate::{sync::lock, time::clock::Instant};

/// Upper bound on an attempt's wait for the release of earlier, abandoned attempts.
const MAX_WAIT_FOR_ABANDONED: Duration = Duration::from_millis(250);

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Landed {
    /// If the request was sent twice, the first statement may still be executed until this moment.
    Granted(Option<Instant>),
    NotGranted,
    /// The request may have been granted, or may still be granted until this moment.
    Unknown(Instant),
}

/// The state of one request, shared by the caller and the task that sends the request's statements.
#[derive(Clone, Debug, Default)]
pub(super) struct Flight(Arc<State>);

#[derive(Debug, Default)]
struct State {
    landed: SetOnce<Landed>,
    /// Whether the request's caller has gone.
    is_given_up: AtomicBool,
}

impl Flight {
    /// Returns a flight that has ended.
    pub(super) fn ended(landed: Landed) -> Self {
        let landed = SetOnce::new_with(Some(landed));
        Self(Arc::new(State { landed, is_given_up: AtomicBool::new(false) }))
    }

    /// Returns how the request ended, if it has ended.
    pub(super) fn landed(&self) -> Option<Landed> {
        self.0.landed.get().copied()
    }

    /// Gives the request up: a statement that is sent for the request from now on cannot take the lock.
    pub(super) fn give_up(&self) {
        self.0.is_given_up.store(true, Ordering::SeqCst);
    }

    /// Waits for the end of the request, which comes within the timeouts of a statement.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn end(&self) -> Landed {
        *self.0.landed.wait().await
    }
}

/// The part of a flight that belongs to the task which sends the request's statements. If the task's runtime is shut
/// down before the request has ended, this part is dropped, and the outcome of the request is unknown.
pub(super) struct InFlight {
    pub(super) flight: Flight,
    /// How long after the sending of a statement the server may still execute the statement.
    limit: Duration,
}

impl InFlight {
    pub(super) fn new(flight: Flight, limit: Duration) -> Self {
        Self { flight, limit }
    }

    /// Returns the moment after which the server no longer executes any statement that has been sent so far.
    pub(super) fn until(&self) -> Instant {
        Instant::now() + self.limit
    }

    pub(super) fn lands(&self, landed: Landed) {
        let _ = self.flight.0.landed.set(landed);
    }

    /// Returns whether the request's caller has gone.
    pub(super) fn is_given_up(&self) -> bool {
        self.flight.0.is_given_up.load(Ordering::SeqCst)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        // Has no effect on a request that has landed.
        self.lands(Landed::Unknown(self.until()));
    }
}

/// Dropped attempts of this process, whose locks may be held until the release in the background. The next attempt of
/// this process waits for that release.
#[derive(Debug, Default)]
pub(super) struct Abandoned(Mutex<HashMap<String, Vec<Gone>>>);

/// Set once an abandoned attempt has been released.
pub(super) type Gone = Arc<SetOnce<()>>;

impl Abandoned {
    pub(super) fn add(&self, name: &str) -> Gone {
        let gone = Gone::default();
        lock(&self.0).entry(name.to_owned()).or_default().push(Arc::clone(&gone));
        gone
    }

    pub(super) fn remove(&self, name: &str, gone: &Gone) {
        let _ = gone.set(());
        let mut abandoned = lock(&self.0);
        if let Some(of_lock) = abandoned.get_mut(name) {
            of_lock.retain(|other| !Arc::ptr_eq(gone, other));
            if of_lock.is_empty() {
                abandoned.remove(name);
            }
        }
    }

    /// Waits until the present abandoned attempts for a lock are released, but no longer than
    /// `MAX_WAIT_FOR_ABANDONED`: in an outage, a release takes long.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn settled(&self, name: &str) {
        let of_lock = lock(&self.0).get(name).cloned().unwrap_or_default();
        let settled = async {
            for gone in &of_lock {
                gone.wait().await;
            }
        };
        if !of_lock.is_empty() {
            let _ = tokio::time::timeout(MAX_WAIT_FOR_ABANDONED, settled).await;
        }
    }
}
