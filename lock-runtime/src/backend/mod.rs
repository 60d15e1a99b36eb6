//! What a store must provide: the whole contract, on one page.
//!
//! A store grants, renews and releases. It knows nothing of guards, of renewal in time, of several waiters in one
//! process or of several keys: those stand above this contract, once for all stores. How to wait for a lock is
//! the store's own business, hence one method that waits.
//!
//! # Where a store runs
//!
//! [`acquire`](Backend::acquire), [`ping`](Backend::ping) and a [`release`](Releasable::release) that a caller waits for are
//! polled on the caller's tokio runtime. Renewals, releases in the background and the end of unpolled acquisitions
//! run on a thread of the library's own, with a tokio runtime of one thread. It is one for all stores of the process: what
//! blocks it makes other locks lose their leases. What may block, if only for the time of a write to a disk, belongs into
//! [`tokio::task::spawn_blocking`].
//!
//! # What a store logs
//!
//! A store to which connections are made tells of an outage by one `WARN` when it begins, or one `ERROR` where the server
//! refuses us ([permanently](LockError::is_permanent)), and by one `INFO` when it is over, all with the address, however many
//! callers notice.

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
#[allow(unused_imports, unreachable_pub, reason = "none of them may be compiled in")]
pub use self::stores::*;
pub use self::{
    capabilities::{Capabilities, Mode},
    reports::{LossNotifier, Progress},
};
pub use crate::time::{clock::Instant, deadline::valid_until};

/// A boxed future: the contract is used as a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store that can hold locks.
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// What this store can do.
    fn capabilities(&self) -> Capabilities;

    /// The names of this store, as `redis://10.0.0.1:6379/0`, as far as they are known by now.
    ///
    /// Managers whose stores have a name in common are of one store: a section that holds a lock through one of them
    /// and asks for it through another is told so, or enters the hold again, see
    /// [`Lock::reentrant`](crate::Lock::reentrant). So a name must never fit two stores whose locks do not exclude each
    /// other. A store without a name is the same only to clones of its manager.
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    /// Asks for a sign of life, and connects first where that has not happened yet: an error says that locks cannot be
    /// acquired now, and why.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    fn ping(&self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Asks for one lock, waiting as `request.wait` allows. Busy is an answer, not an error.
    ///
    /// An error of kind [`Backend`](crate::LockErrorKind::Backend) ends this attempt only: the caller asks again
    /// while its own wait lasts, so a store does not loop over an outage. While it waits it tells what it hears
    /// through [`Acquire::progress`]. Errors need not name the lock: the library adds it.
    ///
    /// The future has to be woken when the lock may have become ours, and in a store with a queue also when our place comes
    /// to its front. The library drops a future that was woken and is not polled within two to two and a half seconds, so that
    /// it does not stop others. In a store that is [shared](Capabilities::shared_between_processes) the first wake-up after the
    /// first poll is taken for the answer to the first request, and counts; a future that was never woken counts as woken
    /// after half a second.
    ///
    /// A future that only looks again, to refresh its place or because nothing is notified, sleeps with
    /// [`Progress::sleep_until`], whose wake-ups do not count. Not polled then, it keeps its place for as long as the store
    /// lets a place stay that is not refreshed, and that is as long as it may stop the callers behind it.
    ///
    /// # Cancel safety
    /// Dropping the future must leave neither a hold nor a place in the store's queue. What a request that is
    /// already on its way may still do is undone through [`Acquire::cleanup`]. The future may be dropped on a thread
    /// that has never polled it.
    fn acquire(&self, request: Acquire) -> BoxFuture<'static, Result<Acquired, LockError>>;

    /// How the leases of this store are renewed. A store whose holds live as long as a session grants none and renews
    /// none.
    fn renewal(&self) -> Option<&dyn Renew> {
        None
    }
}

/// The renewal of leases.
pub trait Renew: Send + Sync {
    /// Pushes the deadlines of these leases forward by their `ttl`: many leases, few round trips, one answer
    /// each, in order. A slow part of the store must not delay the answers of the others.
    ///
    /// Called on the library's own thread, see the [module](self), never on the caller's runtime. A call that has not
    /// answered after a third of what the shortest of these leases has left is dropped, and all of its answers are unknown.
    ///
    /// # Cancel safety
    /// May be dropped at any time; what was already sent may still be applied, which is safe.
    fn renew<'a>(&'a self, due: &'a [LeaseId]) -> BoxFuture<'a, Vec<Renewal>>;
}

/// One acquisition, fully resolved: no default is left to the store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Acquire {
    /// The lock; [`LockKey::stored`] is the name to use in the store.
    pub key: LockKey,
    /// How many holders may coexist: one of [`Capabilities::modes`]. A store matches it and refuses every mode that it does
    /// not know, so that one which is added later is not granted as another.
    pub mode: Mode,
    /// How long the lease lasts unless it is renewed; between 100 ms and 24 h.
    pub ttl: Duration,
    /// Whether the lease is renewed while it is held; if not, it has to be granted in its whole length.
    pub auto_renew: bool,
    /// How long to wait.
    pub wait: Wait,
    /// Where to put what may have been left in the store.
    pub cleanup: Cleanup,
    /// Where to report how it goes while it waits.
    pub progress: Progress,
}

impl Acquire {
    /// The identity of a lease that answers this request.
    #[must_use]
    pub fn lease_id(&self, owner: OwnerToken, token: FencingToken) -> LeaseId {
        LeaseId { key: self.key.clone(), mode: self.mode, owner, token, ttl: self.ttl }
    }
}

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// One attempt, which ends when the store has answered or its own time limit for a request is over.
    No,
    /// Until this moment. For an answer that is on its way then, the future is polled half a second longer; a lock that
    /// another client holds at that moment is [`Busy`](Acquired::Busy), not an error.
    Until(Instant),
    /// Without an end.
    Forever,
}

impl Wait {
    /// The moment at which waiting ends.
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
    /// Another client had it for as long as we were willing to wait.
    #[non_exhaustive]
    Busy {
        /// What the holder's lease has left, where the store knows it.
        holder_remaining: Option<Duration>,
    },
}

impl Acquired {
    /// Another client had it for as long as we were willing to wait; what its lease has left, where that is known.
    #[must_use]
    pub const fn busy(holder_remaining: Option<Duration>) -> Self {
        Self::Busy { holder_remaining }
    }
}

/// A lock that the store has given to us. A lease with less than a tenth of its `ttl` left (500 ms of a long one) is given
/// back, and the store is asked again.
#[derive(Debug)]
#[non_exhaustive]
pub struct Grant {
    /// Strictly larger than the token of every grant of this lock that ended before this one was asked for. Of a lease, made
    /// by [`FencingToken::from_micros`].
    pub token: FencingToken,
    /// The hold itself.
    pub held: Held,
}

impl Grant {
    /// A grant with this token.
    #[must_use]
    pub const fn new(token: FencingToken, held: Held) -> Self {
        Self { token, held }
    }
}

/// How the store remembers us.
#[derive(Debug)]
#[non_exhaustive]
pub enum Held {
    /// Until a deadline that must be pushed forward.
    #[non_exhaustive]
    Lease {
        /// The hold in the store.
        lease: Arc<dyn Lease>,
        /// Until when we may rely on it: [`valid_until`] of the moment before the request was sent.
        valid_until: Instant,
    },
    /// For as long as our session with the store lives. Each holder has one of its own: it is not passed on inside the
    /// process.
    #[non_exhaustive]
    Session {
        /// The hold in the store.
        session: Arc<dyn Session>,
        /// A moment before the request was sent that made it ours; a hold that is not renewed ends one `ttl` after it.
        since: Instant,
    },
}

impl Held {
    /// Until this deadline, which must be pushed forward: [`valid_until`] of the moment before the request was sent.
    #[must_use]
    pub fn lease(lease: Arc<dyn Lease>, valid_until: Instant) -> Self {
        Self::Lease { lease, valid_until }
    }

    /// For as long as our session lives; `since` is a moment before the request was sent that made it ours.
    #[must_use]
    pub fn session(session: Arc<dyn Session>, since: Instant) -> Self {
        Self::Session { session, since }
    }
}

/// A hold, or an attempt at one, that can be given back.
pub trait Releasable: Any + fmt::Debug + Send + Sync {
    /// The lock.
    fn key(&self) -> &LockKey;

    /// Ends it: removes the hold, or the place in the queue, if it is still this owner's, and lets the next
    /// waiter in. An error means that the outcome is unknown. May be called again, also after it was applied.
    ///
    /// # Cancel safety
    /// May be dropped at any time; the caller repeats it elsewhere.
    fn release(&self) -> BoxFuture<'_, Result<Released, LockError>>;
}

/// A hold, or an attempt at one, that ends at a deadline.
pub trait Lease: Releasable {
    /// What identifies it in the store.
    fn id(&self) -> &LeaseId;

    /// Whether a client outside this process is known, or must be feared, to wait for this lock. Asked at hand-overs inside
    /// the process, under a mutex: it answers at once, from what the store has heard.
    fn is_contended(&self) -> bool;

    /// How long this process waits after the release before it asks for the lock again for its own waiters. Not zero
    /// where the lock is shared with clients that the store does not know to wait, or that only look from time to time. It
    /// answers at once.
    fn leave_free(&self) -> Duration;
}

/// A hold that lives as long as our session with the store does.
pub trait Session: Releasable {
    /// Until when we may rely on it, as known now. The store moves it whenever it hears from the other side; once the
    /// hold has ended, it lies in the past forever.
    fn valid_until(&self) -> Instant;

    /// Registers what is to be notified if the hold ends before its deadline; notifies it at once if it has. Called once.
    fn on_loss(self: Arc<Self>, notifier: LossNotifier);
}

/// What identifies a lease in the store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeaseId {
    /// The lock.
    pub key: LockKey,
    /// In which mode it is held.
    pub mode: Mode,
    /// Who holds it: fresh for every attempt, chosen before the first byte was sent.
    pub owner: OwnerToken,
    /// As the store granted it: hand-overs inside the process do not change it. Renewal compares owner and token.
    pub token: FencingToken,
    /// What a renewal sets the lease to.
    pub ttl: Duration,
}

/// The definite answers to [`Releasable::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Released {
    /// It was ours until now.
    Released,
    /// It was not ours any more, and it will not become ours by a request that is still on its way.
    NotHeld,
}

/// The answer to the renewal of one lease.
#[derive(Debug)]
#[non_exhaustive]
pub enum Renewal {
    /// We may rely on it until then: [`valid_until`] of the moment before the request was sent.
    Renewed(Instant),
    /// It is not ours any more. Final.
    NotHeld,
    /// It is unknown; it is tried again while the lease lasts.
    Unknown(LockError),
}

/// Where a store puts attempts whose outcome it does not know.
///
/// They are released in the background, again and again, until the store gives a definite answer or the lease
/// must have ended by itself.
#[derive(Clone)]
pub struct Cleanup(pub(crate) Arc<dyn ReleasesLater>);

/// What releases in the background.
pub(crate) trait ReleasesLater: Send + Sync {
    /// See [`Cleanup::release_later`].
    fn release_later(self: Arc<Self>, attempt: Arc<dyn Releasable>, until: Instant);
}

impl Cleanup {
    /// Releases `attempt` in the background. `until` is when it must have ended by itself: one `ttl` after the
    /// last request that could have granted it can have been executed, or [`Instant::FAR_FUTURE`] where only its
    /// [`release`](Releasable::release) knows.
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
