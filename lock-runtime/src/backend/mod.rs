//! What a store must provide: the whole contract, on one page.
//!
//! A store grants, renews and releases locks. It knows nothing of guards, of when to renew, of several waiters in one
//! process or of several locks held together: the library implements these above the contract, once, for every store.
//! But each store waits for a lock in its own way, so [`acquire`](Backend::acquire) includes the wait.
//!
//! A *hold*, as in the names below, is the period in which this process has a lock: a *lease* or a *session lock*. The
//! [glossary](crate::docs::glossary) explains these and other words. To implement a store, begin with the page
//! [writing a store](crate::docs::writing_a_store).
//!
//! # Which thread calls a store
//!
//! The futures of [`acquire`](Backend::acquire), of [`ping`](Backend::ping) and of a [`release`](Releasable::release)
//! that a caller waits for are polled on the caller's tokio runtime. The library's own thread, which has a
//! single-threaded tokio runtime, renews leases, releases locks in the background, and drops acquisitions that are not
//! polled. All stores of the process share this thread. If a store blocks it, other locks are not renewed in time and
//! are lost. So run code that may block, even if only for a disk write, in
//! [`tokio::task::spawn_blocking`](https://docs.rs/tokio/latest/tokio/task/fn.spawn_blocking.html).
//!
//! # What a store logs
//!
//! A store that makes connections logs each outage only once, however many callers notice it: at `WARN` when the outage
//! begins, at `ERROR` if the server refuses this client [permanently](LockError::is_permanent), and at `INFO` when the
//! outage is over. Each line contains the address of the server.

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

/// A boxed future; the futures are boxed because [`Backend`] is used as a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store: the system that decides who holds a lock.
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Returns the capabilities of this store.
    fn capabilities(&self) -> Capabilities;

    /// Returns the names of this store that are known so far, such as `redis://10.0.0.1:6379/0`.
    ///
    /// Managers whose stores share a name count as managers of one store. If code that runs under a lock of one
    /// manager asks another manager of that store for the same lock, it gets an error, or re-enters the lock (see
    /// [`Lock::reentrant`](crate::Lock::reentrant)). So two stores must never share a name if their locks do not
    /// exclude each other. If a store has no name, only a manager and its clones count as managers of one store.
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    /// Checks that the store responds, and connects to it first if necessary.
    ///
    /// An error means that locks cannot be acquired at present, and gives the reason.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    fn ping(&self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Asks for one lock, and waits for it as long as `request.wait` allows. If another client still has the lock then,
    /// the result is [`Acquired::Busy`], not an error.
    ///
    /// An error of kind [`Backend`](crate::LockErrorKind::Backend) ends only this attempt. Unless the error is
    /// [permanent](LockError::is_permanent), the library asks again for as long as the caller is willing to wait, so a
    /// store need not retry during an outage. (It may, to keep its place in a queue; see [`Progress::failed`].) While
    /// it waits, a store reports its progress through [`Acquire::progress`]. The library adds the name of the lock to
    /// each error.
    ///
    /// # Wake-ups
    /// The store must wake the future when the lock may have been granted to it, and, in a store with a queue, also
    /// when its place reaches the front. If a future is woken and then not polled for two to two and a half seconds,
    /// the library drops it, so that it does not hold up others.
    ///
    /// In a store that is [shared between processes](Capabilities::shared_between_processes), the library does not see
    /// the wake-ups between the first and the second poll. If the second poll has not happened when the library next
    /// checks, at most half a second after the first poll, the library wakes the future itself, and the two seconds
    /// begin.
    ///
    /// A future may also wake up only to refresh its place, or to check again because the store sends no wake-ups. It
    /// then sleeps with [`Progress::sleep_until`], and these wake-ups do not count: if the future is not polled, it is
    /// not dropped, and keeps its place until the store removes places that are not refreshed. Until then it may hold
    /// up the waiters behind it in the store's queue. It does not hold up other callers of its own process: if any of
    /// them wait behind it, the library wakes it, and that wake-up does count.
    ///
    /// # Cancel safety
    /// Dropping the future must leave neither a hold nor a place in the store's queue. Any effect that a pending
    /// request may still have is undone through [`Acquire::cleanup`]. The future may be dropped on a thread that has
    /// never polled it.
    fn acquire(&self, request: Acquire) -> BoxFuture<'static, Result<Acquired, LockError>>;

    /// Returns the part of this store that renews leases; `None` for a store with session locks, which grants no
    /// leases.
    fn renewal(&self) -> Option<&dyn Renew> {
        None
    }
}

/// A store that renews leases.
pub trait Renew: Send + Sync {
    /// Extends each of these leases to its full `ttl` again, in as few round trips as possible.
    ///
    /// Returns one result per lease, in the order of `due`. If a part of the store is slow, return
    /// [`Unknown`](Renewal::Unknown) for its leases in good time, so that they do not delay the results of the others:
    /// the library drops a call that takes longer than a third of the shortest time that any of these leases has left.
    /// All results of that call then count as unknown.
    ///
    /// The library calls this method on its own thread (see the [module](self)), never on the caller's runtime.
    ///
    /// # Cancel safety
    /// May be dropped at any time. A request that was already sent may still be applied, which is safe.
    fn renew<'a>(&'a self, due: &'a [LeaseId]) -> BoxFuture<'a, Vec<Renewal>>;
}

/// A request for one lock. All options have their final values, so a store needs no defaults of its own.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Acquire {
    /// The lock; [`LockKey::stored`] is the name to use in the store.
    pub key: LockKey,
    /// How many holders the lock may have at the same time: one of [`Capabilities::modes`]. A store should match on the
    /// mode and refuse every mode that it does not know, so that it does not treat a mode added later as another one.
    pub mode: Mode,
    /// How long the lease lasts without renewal: between 100 ms and 24 h.
    pub ttl: Duration,
    /// Whether the lease is renewed while it is held. If not, the store must grant it with its full `ttl`.
    pub auto_renew: bool,
    /// How long to wait for the lock.
    pub wait: Wait,
    /// Takes over attempts that may have left something in the store, and releases them in the background.
    pub cleanup: Cleanup,
    /// Receives reports of progress during the wait.
    pub progress: Progress,
}

impl Acquire {
    /// Returns the identity of a lease that is granted for this request.
    #[must_use]
    pub fn lease_id(&self, owner: OwnerToken, token: FencingToken) -> LeaseId {
        LeaseId { key: self.key.clone(), mode: self.mode, owner, token, ttl: self.ttl }
    }
}

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// Makes one attempt, which ends with the store's response or at the store's own time limit for a request.
    No,
    /// Waits until this moment. If a response is pending then, the library polls the future for half a second longer.
    /// If another client holds the lock at this moment, the result is [`Busy`](Acquired::Busy), not an error.
    Until(Instant),
    /// Waits without a time limit.
    Forever,
}

impl Wait {
    /// Returns the moment at which the wait ends: now for [`No`](Self::No), and [`Instant::FAR_FUTURE`] for
    /// [`Forever`](Self::Forever).
    #[must_use]
    pub fn end(self) -> Instant {
        match self {
            Self::No => Instant::now(),
            Self::Until(end) => end,
            Self::Forever => Instant::FAR_FUTURE,
        }
    }
}

/// The result of an [`Acquire`] request.
#[derive(Debug)]
#[non_exhaustive]
pub enum Acquired {
    /// The lock is granted.
    Granted(Grant),
    /// Other clients held the lock until the wait ended.
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

/// A lock that the store has granted.
///
/// If a lease has less than a tenth of its `ttl` left when it is returned (or less than 500 ms, if that is shorter),
/// the library releases it and asks the store again.
#[derive(Debug)]
#[non_exhaustive]
pub struct Grant {
    /// The fencing token. It must be strictly larger than the token of every grant of this lock that had ended before
    /// this one was requested. The token of a lease must be made with [`FencingToken::from_micros`].
    pub token: FencingToken,
    /// The granted lease or session lock.
    pub held: Held,
}

impl Grant {
    /// Creates a grant.
    #[must_use]
    pub const fn new(token: FencingToken, held: Held) -> Self {
        Self { token, held }
    }
}

/// A lock that is held: a lease or a session lock.
#[derive(Debug)]
#[non_exhaustive]
pub enum Held {
    /// A lease, which lasts until its deadline. Each renewal moves the deadline forward.
    #[non_exhaustive]
    Lease {
        /// The store's part of the lease.
        lease: Arc<dyn Lease>,
        /// The deadline, computed with [`valid_until()`] from a moment before the request was sent.
        valid_until: Instant,
    },
    /// A session lock, which lasts as long as this client's session with the store. It is not handed over within the
    /// process: each holder acquires the lock from the store.
    #[non_exhaustive]
    Session {
        /// The store's part of the session lock.
        session: Arc<dyn Session>,
        /// A moment before the successful request was sent. With `auto_renew = false`, the hold ends one `ttl` after
        /// this moment at the latest.
        since: Instant,
    },
}

impl Held {
    /// Creates a lease with this deadline, computed with [`valid_until()`] from a moment before the request was sent.
    #[must_use]
    pub fn lease(lease: Arc<dyn Lease>, valid_until: Instant) -> Self {
        Self::Lease { lease, valid_until }
    }

    /// Creates a session lock; `since` is a moment before the successful request was sent.
    #[must_use]
    pub fn session(session: Arc<dyn Session>, since: Instant) -> Self {
        Self::Session { session, since }
    }
}

/// A lock that is held, or an attempt to acquire one, that can be released.
pub trait Releasable: Any + fmt::Debug + Send + Sync {
    /// Returns the key of the lock.
    fn key(&self) -> &LockKey;

    /// Removes the hold or the place in the queue if it still belongs to this owner, so that the next waiter can get
    /// the lock.
    ///
    /// An error means that the outcome is unknown. The method may be called again, even after the release was applied.
    ///
    /// # Cancel safety
    /// May be dropped at any time. The library then repeats the release in the background.
    fn release(&self) -> BoxFuture<'_, Result<Released, LockError>>;
}

/// A lease, or an attempt to acquire one: it ends at a deadline, even if it is not released.
pub trait Lease: Releasable {
    /// Returns the identity of the lease in the store.
    fn id(&self) -> &LeaseId;

    /// Returns whether another client is, or must be assumed to be, waiting for this lock.
    ///
    /// The library calls this method at hand-overs within the process, while it holds a mutex. So the method must
    /// return at once, without asking the server.
    fn is_contended(&self) -> bool;

    /// Returns how long this process pauses after the release before it asks for the lock again for its own waiters.
    ///
    /// The pause must not be zero if the lock is shared with clients that wait without the store's knowledge, or that
    /// only check from time to time. The method must return at once.
    fn leave_free(&self) -> Duration;
}

/// A session lock: it lasts as long as this client's session with the store.
pub trait Session: Releasable {
    /// Returns the deadline as it is known at present.
    ///
    /// The store moves the deadline forward when responses of the server prove that the session is alive. Once the lock
    /// is no longer held, the deadline must stay in the past forever.
    fn valid_until(&self) -> Instant;

    /// Registers the `notifier`, which the store must notify if the lock is lost before its deadline, and at once if it
    /// already is. The library calls this method once.
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
    /// The owner token. It is fresh for every attempt, and chosen before the first byte is sent.
    pub owner: OwnerToken,
    /// The fencing token of the grant. Hand-overs within the process do not change it. A renewal may compare it in
    /// addition to the owner token.
    pub token: FencingToken,
    /// How long the lease lasts after each renewal.
    pub ttl: Duration,
}

/// The possible results of [`Releasable::release`] when its outcome is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Released {
    /// The owner had the lock until now, and it has been released.
    Released,
    /// The owner did not have the lock (any more), and no pending request can give it the lock.
    NotHeld,
}

/// The result of the renewal of one lease.
#[derive(Debug)]
#[non_exhaustive]
pub enum Renewal {
    /// The lease is renewed until this deadline, computed with [`valid_until()`] from a moment before the request was
    /// sent.
    Renewed(Instant),
    /// The owner no longer has the lease, and never will have it again.
    NotHeld,
    /// The outcome is unknown. The library tries the renewal again while the lease lasts.
    Unknown(LockError),
}

/// Takes over attempts whose outcome the store does not know, and releases them in the background.
///
/// The release of each attempt is repeated until its result is definite, or until the lease must have ended by itself.
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
    /// `until` is the moment by which the attempt must have ended by itself: one `ttl` after the last moment at which
    /// a request could have been granted, or [`Instant::FAR_FUTURE`] if only its [`release`](Releasable::release) can
    /// tell whether it has ended.
    ///
    /// This method may be called from a destructor: it neither blocks nor panics, and it needs no runtime.
    pub fn release_later(&self, attempt: Arc<dyn Releasable>, until: Instant) {
        Arc::clone(&self.0).release_later(attempt, until);
    }
}

impl fmt::Debug for Cleanup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cleanup")
    }
}
