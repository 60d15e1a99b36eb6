//! What a store must provide.
//!
//! A store grants and releases locks, and renews leases. A store knows nothing of guards, the schedule of renewals,
//! several waiters in one process, or several locks held together: the library implements these once, for every store.
//! But each store waits for a lock in its own way, so [`acquire`](Backend::acquire) includes the wait.
//!
//! A held lock is either a *lease*, which expires unless it is renewed, or a *session lock*, which lasts as long as the
//! client's session with the store (see [`Held`]). The [glossary](crate::docs::glossary) explains these and other
//! words. To implement a store, begin with the page [writing a store](crate::docs::writing_a_store).
//!
//! # Which thread calls a store
//!
//! The futures of [`acquire`](Backend::acquire) and [`ping`](Backend::ping) are polled on the caller's tokio runtime.
//! The future of a [`release`](Releasable::release) that the caller awaits is polled there, too. The library also has
//! its own thread, with a single-threaded tokio runtime, which renews leases, releases locks in the background, and
//! drops acquisitions that are not polled. All stores in the process share this thread. If a store blocks the thread
//! for too long, other locks are not renewed in time and are lost. Therefore, run code that may block, even if only for
//! a disk write, in [`tokio::task::spawn_blocking`](https://docs.rs/tokio/latest/tokio/task/fn.spawn_blocking.html).
//!
//! # What a store logs
//!
//! A store that connects to a server should log each outage only once, however many callers notice it: at `WARN` when
//! the outage begins, and at `INFO` when it is over. If the server refuses this client
//! [permanently](LockError::is_permanent), the store should log this at `ERROR`. If the outage begins with the refusal,
//! this line replaces the one at `WARN`. Each line should contain the server's address. The library logs none of these.

use std::{any::Any, fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use crate::{FencingToken, Label, LockError, LockHolder, LockKey, OwnerToken};

mod capabilities;
mod cleanup;
#[cfg_attr(
    not(feature = "redis"),
    allow(dead_code, unused_imports, reason = "a store need not use all of it")
)]
mod common;
mod examination;
mod hand_over;
mod kits;
mod lock_id;
mod marks;
mod operate;
mod reports;
mod status;
pub(crate) mod stores;

#[cfg(any(feature = "postgres", feature = "redis"))]
pub use self::common::credentials::Credentials;
#[allow(unused_imports, reason = "a build may have no store with a server")]
pub(crate) use self::examination::measure;
#[allow(unused_imports, unreachable_pub, reason = "all of them may be compiled out")]
pub use self::stores::*;
pub use self::{
    capabilities::{Capabilities, Mode, Modes},
    cleanup::Cleanup,
    examination::{ClockOffset, Examination, Examined, RoundTrips, ServerReport},
    hand_over::HandOver,
    marks::{Mark, Marked, Marks},
    operate::{LockState, Operate, Page, RevocationNotifier, Revoke, Revoked, Scan},
    reports::{LossNotifier, Progress},
    status::ServerStatus,
};
pub(crate) use self::{
    cleanup::ReleasesLater,
    common::client_name::of_this_process as client_name,
    hand_over::Permission,
    lock_id::LockId,
    operate::RenewsEarly,
    reports::{Loss, Reporter, Reports},
};
pub use crate::finding::{Finding, FindingCode, Severity};
pub use crate::time::{clock::Instant, deadline::valid_until};

/// A boxed future. The methods of the traits return boxed futures because [`Backend`] is used as a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store: the system that decides who holds a lock.
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Returns the capabilities of this store.
    fn capabilities(&self) -> Capabilities;

    /// Returns the names by which this store is known, such as `redis://10.0.0.1:6379/0`.
    ///
    /// A store may learn further names when it connects: Redis adds the server's ID, because one server may have
    /// several addresses. Two stores that share a name count as the same store.
    ///
    /// The library uses the names when code that is running under a lock asks another manager for a lock with the same
    /// stored name ([`LockKey::stored`]). If both managers have the same store, the code is asking for a lock that it
    /// already holds. The acquisition then fails, or re-enters the lock if [`Lock::reentrant`](crate::Lock::reentrant)
    /// is set. Therefore, two stores may share a name only if their locks exclude each other. If a store has no name,
    /// only managers that were cloned or derived from each other count as managers of the same store.
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    /// Checks that the store responds, and connects to it first if necessary. An error means that locks cannot be acquired
    /// at present, and gives the reason.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    fn ping(&self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Returns what this process knows of the servers, without asking them; see [`ServerStatus`]. The default is none.
    fn status(&self) -> Vec<ServerStatus> {
        Vec::new()
    }

    /// Asks for one lock, and waits for it as long as `request.wait` allows. If another client still has the lock when
    /// the wait is over, the result is [`Acquired::Busy`], not an error.
    ///
    /// An error of kind [`Backend`](crate::LockErrorKind::Backend) ends only this attempt. Unless the error is
    /// [permanent](LockError::is_permanent), the library asks again for as long as the caller is willing to wait, so a
    /// store need not retry during an outage. (A store with a queue may retry, so that the acquisition keeps its place;
    /// see [`Progress::failed`].) While it waits, a store reports its progress through [`Acquire::progress`]. The
    /// library adds the name of the lock to each error.
    ///
    /// # Wake-ups
    /// The store must wake the future when the lock may have been granted. A store with a queue must also wake the
    /// future when the acquisition reaches the front of the queue. If a future is woken and then not polled within
    /// two seconds, the library drops it, so that an abandoned acquisition does not hold up others.
    ///
    /// For a store that is [shared between processes](Capabilities::is_shared_between_processes), the library passes
    /// the waker of the caller's task to the first poll, and its own waker only from the second poll on. Most
    /// acquisitions complete at the second poll, so they never need the library's waker. Before the second poll, the
    /// store wakes the caller's task directly, and the library does not see the wake-up. If the second poll has not
    /// happened by the library's next check, usually within half a second of the first poll, the library wakes the task
    /// itself, which starts this two-second countdown. A store need not do anything about this.
    ///
    /// Sometimes a future is woken only so that it can refresh its place in the queue, or check the lock again because
    /// the server sends no notifications. For the pause before such a wake-up, the store must use
    /// [`Progress::sleep_until`]. The wake-up then does not start the countdown: if the future is not polled
    /// afterwards, the library does not drop it. The acquisition then keeps its place in the store's queue. The place
    /// may hold up the waiters behind it until the store notices that the place is no longer refreshed, and removes it.
    /// But the acquisition does not hold up callers in its own process for long: if callers wait behind the
    /// acquisition, the library wakes the task itself, which starts the countdown.
    ///
    /// # Cancel safety
    /// After the future is dropped, the store must no longer keep the lock or a place in its queue for this
    /// acquisition. If a request is still pending and may still take effect, the store must pass the attempt to
    /// [`Acquire::cleanup`], which undoes the effect. The future may be dropped on a thread that has never polled it.
    fn acquire(&self, request: Acquire) -> BoxFuture<'static, Result<Acquired, LockError>>;

    /// Returns the part of this store that renews leases, or `None` if the store has session locks, which are not
    /// renewed individually.
    fn renewal(&self) -> Option<&dyn Renew> {
        None
    }

    /// Returns the part of this store that shows its locks to operators, and takes locks from their holders, or `None`
    /// if the store has no such part. The default implementation returns `None`.
    fn operate(&self) -> Option<&dyn Operate> {
        None
    }

    /// Returns the part of this store that marks the periods of scheduled jobs, or `None` if the store has leases. The
    /// library then takes a lease for each mark, which it neither renews nor releases.
    ///
    /// A store with session locks that returns `None`, as the default implementation does, refuses
    /// [`once_per`](crate::Lock::once_per).
    fn marks(&self) -> Option<&dyn Marks> {
        None
    }

    /// Registers a `notifier`, which a store with leases calls when it learns that a lease may have been
    /// [revoked](Operate::revoke). The library calls this method once for each manager that does not share the limits
    /// of another one; a store keeps all notifiers, and drops those that are no longer of use.
    ///
    /// The default implementation drops the notifier: a holder then learns of the revocation at its next renewal.
    fn on_revocation(&self, notifier: RevocationNotifier) {
        drop(notifier);
    }
}

/// A store that renews leases.
pub trait Renew: Send + Sync {
    /// Renews each of these leases for its full `ttl`, in as few round trips as possible.
    ///
    /// Returns one result per lease, in the order of `due`. When a third of the time until the first deadline of these
    /// leases has passed, the library drops the future, and the outcome of all these renewals counts as unknown. If only
    /// some servers of the store may be slow, separate their leases by [`lane`](Self::lane).
    ///
    /// The library calls this method on its own thread, never on the caller's runtime (see
    /// [*Which thread calls a store*](self#which-thread-calls-a-store)).
    ///
    /// # Cancel safety
    /// May be dropped at any time. A request that was already sent may still be applied, which only makes the lease
    /// last longer in the store.
    fn renew<'a>(&'a self, due: &'a [LeaseId]) -> BoxFuture<'a, Vec<Renewal>>;

    /// Returns a number that leases have in common if their renewals may wait for each other, because they are on one
    /// server. One call of [`renew`](Self::renew) has leases with one number only.
    fn lane(&self, _lease: &LeaseId) -> u64 {
        0
    }
}

/// A request for one lock. All options have their final values, so a store needs no defaults of its own.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Acquire {
    /// The lock; [`LockKey::stored`] is the name to use in the store.
    pub key: LockKey,
    /// How many holders the lock may have at the same time: one of the modes that the store
    /// [declares](Capabilities::with_modes). Before anything else, a store should match on the mode and refuse every
    /// mode that it does not know, so that a mode added later is not mistaken for a known one.
    pub mode: Mode,
    /// How long the lease lasts without renewal: between 100 ms and 24 h; for the mark of a period
    /// ([`once_per`](crate::Lock::once_per)), up to 1.2 times the longest period, 31 days.
    pub ttl: Duration,
    /// Whether the lease is renewed while it is held. If `false`, the store must grant a lease that lasts for the full
    /// `ttl`, because nothing extends it later. If `true`, the store may at first grant a shorter lease (for example,
    /// one that is just long enough for the client to learn of the grant), because the first renewal extends it to the
    /// full `ttl`. See [`Grant`] for the least time that must be left when `acquire` returns.
    pub auto_renew: bool,
    /// How long to wait for the lock.
    pub wait: Wait,
    /// What the holder says of itself. A store that [shows its locks](Backend::operate) records the label with the
    /// grant and, if that costs nothing, with a place in the queue.
    pub label: Label,
    /// Takes over attempts that may have left something in the store, and undoes them in the background.
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
    /// Makes one attempt. The attempt ends when the store responds, or when the store's own time limit for a request
    /// has passed.
    No,
    /// Waits until this moment. If a response is still pending then, the library waits half a second longer for it. If
    /// another client holds the lock at this moment, the result is [`Busy`](Acquired::Busy), not an error.
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
        /// The remaining time of the holder's lease, if the store knows it; [`Duration::MAX`] if another client holds
        /// the lock without an expiry, so that it never becomes free by itself.
        holder_remaining: Option<Duration>,
        /// The holder, if the store's answer states it.
        holder: Option<Arc<LockHolder>>,
    },
}

impl Acquired {
    /// Creates [`Busy`](Self::Busy), with the remaining time of the holder's lease, if known; [`Duration::MAX`] if the
    /// lease has no end.
    #[must_use]
    pub const fn busy(holder_remaining: Option<Duration>) -> Self {
        Self::Busy { holder_remaining, holder: None }
    }

    /// Creates [`Busy`](Self::Busy), with the holder as the store's answer states it.
    #[must_use]
    pub fn busy_with(holder: LockHolder) -> Self {
        Self::Busy { holder_remaining: holder.remaining(), holder: Some(Arc::new(holder)) }
    }
}

/// A lock that the store has granted.
///
/// The library does not use a grant that is about to end. If [`acquire`](Backend::acquire) returns one with too little
/// time left, the library releases the lock, and asks the store again if the caller is still willing to wait. "Too
/// little" means less than 500 ms and also less than a tenth of the `ttl`, `max_hold` or
/// [session timeout](Capabilities::session_timeout), whichever of the three is shortest.
#[derive(Debug)]
#[non_exhaustive]
pub struct Grant {
    /// The fencing token, which must be strictly larger than the token of every grant of this lock that ended before
    /// this grant began, including grants that ended while the request for this one was waiting. This way, a resource
    /// can reject late writes by earlier holders. (If two grants overlap because one of the conditions for the
    /// [library's promise](crate::docs::safety#the-promise) is violated, for example because the server lost its data,
    /// the order of their tokens is not guaranteed.) Create the token of a lease with [`FencingToken::from_micros`],
    /// which leaves the low bits free to count the hand-overs inside the process. For a lock that is not handed over (a
    /// session lock, or a lease that [may not be](HandOver::refused)), use [`FencingToken::from_number`].
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
        /// The store's handle to the lease. The library uses it to release the lease.
        lease: Arc<dyn Lease>,
        /// The deadline, computed with [`valid_until()`] from a moment before the request was sent.
        valid_until: Instant,
    },
    /// A session lock, which lasts as long as this client's session with the store. A session lock is not handed over
    /// within the process: each holder acquires the lock from the store.
    #[non_exhaustive]
    Session {
        /// The store's handle to the session lock. The library uses it to read the deadline and to release the lock.
        session: Arc<dyn Session>,
        /// A moment before the successful request was sent. With `auto_renew = false`, the holder loses the lock no
        /// later than one `ttl` after this moment.
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

/// Something that can be released: a held lock, or an attempt to acquire a lock.
pub trait Releasable: Any + fmt::Debug + Send + Sync {
    /// Returns the key of the lock.
    fn key(&self) -> &LockKey;

    /// Releases the lock, or gives up the place in the queue, if the lock or the place still belongs to this owner. The
    /// next waiter can then get the lock.
    ///
    /// An error means that the outcome is unknown. The library may call the method again, even if the release was
    /// already applied.
    ///
    /// # Cancel safety
    /// May be dropped at any time. The library then repeats the release in the background.
    fn release(&self) -> BoxFuture<'_, Result<Released, LockError>>;

    /// Releases the lock at once, like [`release`](Self::release), if no wait is necessary; otherwise returns `None`.
    /// The default implementation always returns `None`.
    ///
    /// This is for stores within the process: the lock is then free as soon as its guard has been dropped, and not a
    /// moment later. The library calls this method in destructors, on any thread, so the method must neither block nor
    /// panic, and must work without a runtime.
    fn release_now(&self) -> Option<Released> {
        None
    }
}

/// A lease, or an attempt to acquire one. A lease expires in the store even if it is not released.
pub trait Lease: Releasable {
    /// Returns the identity of the lease in the store.
    fn id(&self) -> &LeaseId;

    /// Returns whether the library may hand the lease over to the next caller within the process, and if not, how long
    /// the process keeps off the lock.
    ///
    /// The library calls this method when a holder leaves while other callers in the process wait, and sometimes when
    /// the lease is granted. The library may hold a mutex during the call, so the method must return at once, without
    /// asking the server.
    fn may_hand_over(&self) -> HandOver;

    /// Receives the number of times that the lock is held, after the holder has [re-entered](crate::Lock::reentrant)
    /// the lock or left it again. The default implementation does nothing.
    ///
    /// The library decides who may re-enter a lock, without asking the store. This method is for stores in which other
    /// clients can see a hold count. The method must return at once.
    fn count_holds(&self, holds: u32) {
        let _ = holds;
    }

    /// Completes when another client is known to wait for the lock. The default implementation never completes.
    ///
    /// Implement this method if the store [tells of waiters](Capabilities::tells_of_waiters). The library polls the
    /// future only while a holder awaits [`HeldLock::wanted`](crate::HeldLock::wanted), on the runtime of that holder,
    /// so the store may ask the server from time to time. A future that is not polled must cost the server nothing. The
    /// library itself sees the waiters in its queue, and drops the future when the lock is released or lost.
    ///
    /// # Cancel safety
    /// May be dropped at any time. Nothing then remains on the server, for example no watch.
    fn wanted(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// A session lock: it lasts as long as this client's session with the store.
pub trait Session: Releasable {
    /// Returns the current deadline.
    ///
    /// The store moves the deadline forward when responses from the server prove that the session is alive. Once the
    /// lock is no longer held, every call must return a moment in the past.
    fn valid_until(&self) -> Instant;

    /// Registers a `notifier`. The store must call its [`notify`](LossNotifier::notify) method if the lock is lost
    /// before the deadline, and immediately if the lock has already been lost. If the lock is
    /// [revoked](Operate::revoke), the store calls [`notify_of_revocation`](LossNotifier::notify_of_revocation) instead,
    /// and keeps the lock until the library releases it. The library calls `on_loss` once.
    fn on_loss(self: Arc<Self>, notifier: LossNotifier);

    /// Completes when another client is known to wait for the lock, like [`Lease::wanted`]. The default implementation
    /// never completes.
    ///
    /// # Cancel safety
    /// May be dropped at any time. Nothing then remains on the server, for example no watch.
    fn wanted(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// The identity of a lease in the store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeaseId {
    /// The key of the lock.
    pub key: LockKey,
    /// The mode in which the lock is held.
    pub mode: Mode,
    /// The owner token. The store creates a new owner token for every attempt, before it sends the first byte.
    pub owner: OwnerToken,
    /// The fencing token of the grant. Hand-overs within the process do not change this token. A renewal may compare
    /// this token in addition to the owner token.
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
    /// The owner does not have the lock, and no pending request can still acquire the lock for this owner.
    NotHeld,
}

/// The result of the renewal of one lease.
#[derive(Debug)]
#[non_exhaustive]
pub enum Renewal {
    /// The lease is renewed until this deadline, computed with [`valid_until()`] from a moment before the request was
    /// sent.
    Renewed(Instant),
    /// The owner no longer has the lease, and will never have it again.
    NotHeld,
    /// The lease was [revoked](Operate::revoke), and was not renewed. No other client is granted the lock before this
    /// owner has released it, or the lease's deadline has passed.
    Revoked,
    /// The outcome is unknown. The library tries the renewal again while the lease lasts.
    Unknown(LockError),
}
