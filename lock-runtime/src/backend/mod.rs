//! What a store must provide: the whole contract, on one page.
//!
//! A store grants, renews and releases. It knows nothing of guards, of when to renew, of several waiters in one process
//! or of several keys: those stand above this contract, once for all stores. How to wait for a lock is the store's own
//! business, hence one method that waits.
//!
//! # Where a store runs
//!
//! [`acquire`](Backend::acquire), [`ping`](Backend::ping) and a [`release`](Releasable::release) that a caller waits
//! for are polled on the caller's tokio runtime. Renewals, background releases and the dropping of unpolled
//! acquisitions run on the library's own thread, which has a single-threaded tokio runtime. All stores of the process
//! share this thread: blocking it makes other locks lose their leases. Code that may block, if only for a disk write,
//! belongs in [`tokio::task::spawn_blocking`].
//!
//! # What a store logs
//!
//! A store that makes connections logs each outage once, however many callers notice it: a `WARN` when it begins, an
//! `ERROR` once the server refuses us ([permanently](LockError::is_permanent)), and an `INFO` when it is over. Each line
//! names the address.

use std::{any::Any, fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use crate::{FencingToken, LockError, LockKey, OwnerToken};

mod capabilities;
#[cfg_attr(
    not(feature = "redis"),
    allow(dead_code, unused_imports, reason = "a store need not use all of it")
)]
mod common;
mod reports;
pub(crate) mod stores;

pub(crate) use self::reports::{Reporter, Reports};
#[allow(unused_imports, unreachable_pub, reason = "all of them may be compiled out")]
pub use self::stores::*;
pub use self::{
    capabilities::{Capabilities, Mode},
    reports::{LossNotifier, Progress},
};
pub use crate::time::{clock::Instant, deadline::valid_until};

/// A boxed future, because the contract is used as a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store: the system that decides who holds a lock.
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Returns what this store can do.
    fn capabilities(&self) -> Capabilities;

    /// Returns the names of this store that are known so far, such as `redis://10.0.0.1:6379/0`.
    ///
    /// Managers whose stores share a name count as managers of one store: a section that holds a lock through one of
    /// them and asks for it through another gets an error, or re-enters the hold, see
    /// [`Lock::reentrant`](crate::Lock::reentrant). So a name must never fit two stores whose locks do not exclude each
    /// other. A store without a name counts as the same only among clones of its manager.
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    /// Checks that the store answers, connecting first if it has not connected yet.
    ///
    /// An error means that locks cannot be acquired now, and gives the reason.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    fn ping(&self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Asks for one lock, waiting as `request.wait` allows. Busy is an answer, not an error.
    ///
    /// An error of kind [`Backend`](crate::LockErrorKind::Backend) ends only this attempt: unless it is
    /// [permanent](LockError::is_permanent), the library asks again while the caller's wait lasts, so a store does not
    /// retry through an outage. While it waits, a store reports its progress through [`Acquire::progress`]. Errors need
    /// not name the lock: the library adds it.
    ///
    /// The future must be woken when the lock may have become ours, and in a store with a queue also when our place
    /// reaches the front. The library drops a woken future that stays unpolled for two to two and a half seconds, so
    /// that it does not hold up others. In a [shared](Capabilities::shared_between_processes) store, the first
    /// wake-up after the first poll is taken for the answer to the first request, and counts. A future that is not
    /// woken at all counts as woken after half a second.
    ///
    /// A future that only checks again, to refresh its place or because the store sends no wake-ups, sleeps with
    /// [`Progress::sleep_until`], whose wake-ups do not count. If it is not polled then, it keeps its place for as long
    /// as the store keeps places that are not refreshed. For that long it may hold up the callers behind it.
    ///
    /// # Cancel safety
    /// Dropping the future must leave neither a hold nor a place in the store's queue. Any effect that a pending
    /// request may still have is undone through [`Acquire::cleanup`]. The future may be dropped on a thread that has
    /// never polled it.
    fn acquire(&self, request: Acquire) -> BoxFuture<'static, Result<Acquired, LockError>>;

    /// Returns how the leases of this store are renewed. A store of session locks grants no leases and renews none.
    fn renewal(&self) -> Option<&dyn Renew> {
        None
    }
}

/// The renewal of leases.
pub trait Renew: Send + Sync {
    /// Sets each of these leases to its full `ttl` again, in few round trips.
    ///
    /// Returns one answer per lease, in order. A slow part of the store must not delay the answers of the others.
    ///
    /// Called on the library's own thread (see the [module](self)), never on the caller's runtime. A call that takes
    /// longer than a third of the shortest time that any of these leases has left is dropped, and all of its answers
    /// are unknown.
    ///
    /// # Cancel safety
    /// May be dropped at any time. A request already sent may still be applied, which is safe.
    fn renew<'a>(&'a self, due: &'a [LeaseId]) -> BoxFuture<'a, Vec<Renewal>>;
}

/// One acquisition, fully resolved: no default is left to the store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Acquire {
    /// The lock; [`LockKey::stored`] is the name to use in the store.
    pub key: LockKey,
    /// How many holders may coexist: one of [`Capabilities::modes`]. A store matches on it and refuses every mode
    /// that it does not know, so that a mode added later is not granted as another one.
    pub mode: Mode,
    /// How long the lease lasts unless it is renewed; between 100 ms and 24 h.
    pub ttl: Duration,
    /// Whether the lease is renewed while it is held; if not, it must be granted at full length.
    pub auto_renew: bool,
    /// How long to wait.
    pub wait: Wait,
    /// Takes attempts that may have left something in the store.
    pub cleanup: Cleanup,
    /// Where to report progress during the wait.
    pub progress: Progress,
}

impl Acquire {
    /// Returns the identity of a lease granted for this request.
    #[must_use]
    pub fn lease_id(&self, owner: OwnerToken, token: FencingToken) -> LeaseId {
        LeaseId { key: self.key.clone(), mode: self.mode, owner, token, ttl: self.ttl }
    }
}

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// One attempt, which ends with the store's answer or at the store's own time limit for a request.
    No,
    /// Until this moment. For a pending answer, the future is polled half a second longer. A lock that another client
    /// holds at this moment is [`Busy`](Acquired::Busy), not an error.
    Until(Instant),
    /// Without a time limit.
    Forever,
}

impl Wait {
    /// Returns the moment at which the wait ends.
    #[must_use]
    pub fn end(self) -> Instant {
        match self {
            Self::No => Instant::now(),
            Self::Until(end) => end,
            Self::Forever => Instant::FAR_FUTURE,
        }
    }
}

/// The answer to an [`Acquire`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Acquired {
    /// The lock is ours.
    Granted(Grant),
    /// Other clients held the lock until our wait ended.
    #[non_exhaustive]
    Busy {
        /// The remaining time of the holder's lease, if the store knows it.
        holder_remaining: Option<Duration>,
    },
}

impl Acquired {
    /// Creates [`Busy`](Self::Busy), with the remaining time of the holder's lease, if known.
    #[must_use]
    pub const fn busy(holder_remaining: Option<Duration>) -> Self {
        Self::Busy { holder_remaining }
    }
}

/// A lock that the store has granted to us.
///
/// A lease with less than a tenth of its `ttl` left (or 500 ms, if that is less) is released, and the store is asked
/// again.
#[derive(Debug)]
#[non_exhaustive]
pub struct Grant {
    /// Strictly larger than the token of every grant of this lock that ended before this one was requested. The token
    /// of a lease is made by [`FencingToken::from_micros`].
    pub token: FencingToken,
    /// The hold itself.
    pub held: Held,
}

impl Grant {
    /// Creates a grant.
    #[must_use]
    pub const fn new(token: FencingToken, held: Held) -> Self {
        Self { token, held }
    }
}

/// A hold: a lease or a session lock.
#[derive(Debug)]
#[non_exhaustive]
pub enum Held {
    /// A lease: it lasts until a deadline, which renewals push forward.
    #[non_exhaustive]
    Lease {
        /// The hold in the store.
        lease: Arc<dyn Lease>,
        /// The deadline: [`valid_until`] of a moment before the request was sent.
        valid_until: Instant,
    },
    /// A session lock: it lasts as long as our session with the store. Each holder gets its own: it is not handed over
    /// within the process.
    #[non_exhaustive]
    Session {
        /// The hold in the store.
        session: Arc<dyn Session>,
        /// A moment before the granting request was sent. A hold that is not renewed ends one `ttl` after it.
        since: Instant,
    },
}

impl Held {
    /// Creates a lease with this deadline: [`valid_until`] of a moment before the request was sent.
    #[must_use]
    pub fn lease(lease: Arc<dyn Lease>, valid_until: Instant) -> Self {
        Self::Lease { lease, valid_until }
    }

    /// Creates a session lock; `since` is a moment before the granting request was sent.
    #[must_use]
    pub fn session(session: Arc<dyn Session>, since: Instant) -> Self {
        Self::Session { session, since }
    }
}

/// A hold, or an attempt at one, that can be released.
pub trait Releasable: Any + fmt::Debug + Send + Sync {
    /// Returns the key of the lock.
    fn key(&self) -> &LockKey;

    /// Removes the hold or the place in the queue, if it is still this owner's, and lets the next waiter in.
    ///
    /// An error means that the outcome is unknown. May be called again, even after the release was applied.
    ///
    /// # Cancel safety
    /// May be dropped at any time; the library repeats the release elsewhere.
    fn release(&self) -> BoxFuture<'_, Result<Released, LockError>>;
}

/// A hold, or an attempt at one, that ends at a deadline.
pub trait Lease: Releasable {
    /// Returns the identity of the lease in the store.
    fn id(&self) -> &LeaseId;

    /// Returns whether another client is known, or must be assumed, to wait for this lock.
    ///
    /// Called at hand-overs within the process, under a mutex: it returns at once, without asking the server.
    fn is_contended(&self) -> bool;

    /// Returns how long this process pauses after the release before it asks for the lock again for its own waiters.
    ///
    /// Not zero if the lock is shared with clients that wait without the store's knowledge, or that only check from
    /// time to time. Returns at once.
    fn leave_free(&self) -> Duration;
}

/// A hold that lasts as long as our session with the store.
pub trait Session: Releasable {
    /// Returns the deadline as known now.
    ///
    /// The store pushes it forward whenever the server answers. Once the hold has ended, the deadline lies in the past
    /// forever.
    fn valid_until(&self) -> Instant;

    /// Registers `notifier` for a hold that ends before its deadline; notifies at once if it already has. Called once.
    fn on_loss(self: Arc<Self>, notifier: LossNotifier);
}

/// The identity of a lease in the store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeaseId {
    /// The key of the lock.
    pub key: LockKey,
    /// The mode in which it is held.
    pub mode: Mode,
    /// The owner token: fresh for every attempt, chosen before the first byte is sent.
    pub owner: OwnerToken,
    /// The token that the store granted: hand-overs within the process do not change it. Renewal compares owner and
    /// token.
    pub token: FencingToken,
    /// The length to which a renewal sets the lease.
    pub ttl: Duration,
}

/// The definite answers to [`Releasable::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Released {
    /// The hold was ours until now.
    Released,
    /// The hold was no longer ours, and no pending request can make it ours.
    NotHeld,
}

/// The answer to the renewal of one lease.
#[derive(Debug)]
#[non_exhaustive]
pub enum Renewal {
    /// Renewed until this deadline: [`valid_until`] of a moment before the request was sent.
    Renewed(Instant),
    /// The lease is no longer ours, and never will be again.
    NotHeld,
    /// The outcome is unknown; the renewal is tried again while the lease lasts.
    Unknown(LockError),
}

/// Takes the attempts whose outcome a store does not know.
///
/// Each is released in the background, again and again, until the store gives a definite answer or the lease must have
/// ended by itself.
#[derive(Clone)]
pub struct Cleanup(pub(crate) Arc<dyn ReleasesLater>);

/// Releases attempts in the background.
pub(crate) trait ReleasesLater: Send + Sync {
    /// See [`Cleanup::release_later`].
    fn release_later(self: Arc<Self>, attempt: Arc<dyn Releasable>, until: Instant);
}

impl Cleanup {
    /// Releases `attempt` in the background.
    ///
    /// `until` is when it must have ended by itself: one `ttl` after the last moment at which a request can have
    /// granted it, or [`Instant::FAR_FUTURE`] if only its [`release`](Releasable::release) can tell.
    ///
    /// May be called from a destructor: it neither blocks nor panics nor needs a runtime.
    pub fn release_later(&self, attempt: Arc<dyn Releasable>, until: Instant) {
        Arc::clone(&self.0).release_later(attempt, until);
    }
}

impl fmt::Debug for Cleanup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cleanup")
    }
}
