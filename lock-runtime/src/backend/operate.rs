//! What a store offers to operators: who holds which lock, who waits, and how a lock is taken from its holder.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use super::{BoxFuture, Examination, Examined, Mode};
use crate::{FencingToken, LockError, LockHolder, LockKey, LockWaiter, key::MAX_KEY_BYTES};

/// A store that can show its locks to operators, and take them from their holders.
///
/// The methods are polled on the caller's runtime. Like [`Backend::ping`](super::Backend::ping), each call fails with an
/// error of kind [`Backend`](crate::LockErrorKind::Backend) if the store does not answer within its own time limit. The
/// library does not repeat a failed call.
pub trait Operate: Send + Sync {
    /// Returns who holds the lock and who waits for it.
    ///
    /// # Cancel safety
    /// May be dropped at any time; nothing is changed.
    fn inspect<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState, LockError>>;

    /// Returns the next page of the locks that are held.
    ///
    /// A page is bounded in the work that it makes for the server: at most 10 ms at a time, however many locks there
    /// are. It may be empty although further pages follow. A lock that is held during the whole scan is on one of the
    /// pages, perhaps on two; a lock that is acquired or released meanwhile may be on a page.
    ///
    /// # Cancel safety
    /// May be dropped at any time; nothing is changed.
    fn scan<'a>(&'a self, scan: &'a Scan) -> BoxFuture<'a, Result<Page, LockError>>;

    /// Takes the lock from a holder.
    ///
    /// Without [force](Revoke::is_forced), the store marks the grant: from then on its renewals are refused with
    /// [`Renewal::Revoked`](super::Renewal::Revoked), and the lock is granted to no other client until the holder has
    /// released it or the holder's deadline has passed. The store then sends a hint to the holder
    /// ([`RevocationNotifier`], or [`LossNotifier::notify_of_revocation`](super::LossNotifier::notify_of_revocation) for
    /// a session lock). With force, the store frees the lock at once.
    ///
    /// A repeated call for the same grant returns [`Revoked::Revoked`] as long as the holder has not released the lock.
    ///
    /// # Cancel safety
    /// May be dropped at any time. A request that was already sent may still be applied.
    fn revoke<'a>(&'a self, revoke: &'a Revoke) -> BoxFuture<'a, Result<Revoked, LockError>>;

    /// Examines the servers: what they report of themselves, and which of it would bite the users of the locks. The
    /// default is nothing.
    ///
    /// A question that the user may not ask is no failure, but a finding
    /// ([`Unread`](super::FindingCode::Unread)). The library compares the clocks and judges the round trips of the reports,
    /// so a store only measures them.
    ///
    /// # Cancel safety
    /// May be dropped at any time; nothing is changed.
    fn examine<'a>(&'a self, examination: &'a Examination) -> BoxFuture<'a, Result<Examined, LockError>> {
        let _ = examination;
        Box::pin(std::future::ready(Ok(Examined::default())))
    }
}

/// The state of a lock in its store, at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockState {
    /// The lock.
    pub key: LockKey,
    /// How the lock is held; `None` if it is free, or if its holder belongs to another library or a later version.
    pub mode: Option<Mode>,
    /// The holders: none if the lock is free, one if it is held exclusively.
    pub holders: Vec<LockHolder>,
    /// The waiters that the store knows, in the order in which they are served if the store is
    /// [fair](super::Capabilities::is_fair). A waiter that only asks from time to time may be missing.
    pub waiters: Vec<LockWaiter>,
}

impl LockState {
    /// Describes a free lock.
    #[must_use]
    pub const fn free(key: LockKey) -> Self {
        Self { key, mode: None, holders: Vec::new(), waiters: Vec::new() }
    }

    /// Describes a lock that `holder` has, exclusively unless the holder is [foreign](LockHolder::is_foreign).
    #[must_use]
    pub fn held(key: LockKey, holder: LockHolder) -> Self {
        let mode = (!holder.is_foreign()).then_some(Mode::Exclusive);
        Self { key, mode, holders: vec![holder], waiters: Vec::new() }
    }

    /// Sets the waiters.
    #[must_use]
    pub fn with_waiters(mut self, waiters: Vec<LockWaiter>) -> Self {
        self.waiters = waiters;
        self
    }

    /// Returns whether the lock is held.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.holders.is_empty()
    }
}

/// The question for one page of the locks that are held.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Scan {
    /// The prefix of the manager.
    pub prefix: Arc<str>,
    /// The beginning of the names, without the manager's prefix; empty for all names.
    pub names: String,
    /// Where the page begins: the [`next`](Page::next) of the page before, or `None` for the first page.
    pub from: Option<String>,
}

impl Scan {
    /// Returns the common beginning of the stored names.
    #[must_use]
    pub fn stored(&self) -> String {
        [&*self.prefix, &*self.names].concat()
    }

    /// Returns the lock with this stored name, or `None` if the name does not belong to the scan, or to no lock.
    #[must_use]
    pub fn key(&self, stored: &str) -> Option<LockKey> {
        let name = stored.strip_prefix(&*self.prefix)?;
        if name.len() > MAX_KEY_BYTES || !name.starts_with(&self.names) {
            return None;
        }
        LockKey::with_prefix(&self.prefix, name).ok()
    }
}

/// A page of the locks that are held.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Page {
    /// The locks of this page, in no particular order.
    pub locks: Vec<LockState>,
    /// Where the next page begins, in a form that only the store reads; `None` after the last page.
    pub next: Option<String>,
}

impl Page {
    /// Creates a page.
    #[must_use]
    pub const fn new(locks: Vec<LockState>, next: Option<String>) -> Self {
        Self { locks, next }
    }
}

/// A request to take a lock from a holder.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Revoke {
    /// The lock.
    pub key: LockKey,
    /// A token of the grant to be revoked: the first one, or that of a hand-over within the holder's process. `None` for
    /// a holder that has none (a client of another library), which can only be revoked by force.
    pub token: Option<FencingToken>,
    /// Whether the lock is freed at once, although its holder may still rely on it.
    pub is_forced: bool,
}

/// The result of a [`Revoke`] request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Revoked {
    /// The grant is revoked or, with force, the lock is free.
    Revoked,
    /// The lock is not held by this grant.
    NotHeld,
}

/// Notifies the holders of leases in this process that a lease may have been revoked, so that they renew at once and
/// learn whether it is true.
///
/// The notice is only a hint, so a forged one does no harm.
#[derive(Clone)]
pub struct RevocationNotifier(pub(crate) Weak<dyn RenewsEarly>);

/// Renews leases before they are due.
pub(crate) trait RenewsEarly: Send + Sync {
    /// See [`RevocationNotifier::notify`].
    fn renew_early(&self, stored: &str);
}

impl RevocationNotifier {
    /// Returns whether there may still be holders to notify. If not, the store may drop the notifier.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// Renews the lease of the lock with this [stored name](LockKey::stored) soon, if this process has the lease and
    /// renews it. Returns false once there are no more holders to notify; the store may then drop the notifier.
    ///
    /// This method may be called from anywhere: it neither blocks nor panics, and it needs no runtime. Notices that come
    /// in quick succession are handled together, at most ten times a second.
    #[expect(clippy::must_use_candidate, reason = "called for its effect")]
    pub fn notify(&self, stored: &str) -> bool {
        let Some(renewals) = self.0.upgrade() else { return false };
        renewals.renew_early(stored);
        true
    }
}

impl fmt::Debug for RevocationNotifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RevocationNotifier")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_has_the_locks_under_its_prefix_and_nothing_else() {
        let scan = Scan { prefix: "lock:".into(), names: "user:".into(), from: None };
        assert_eq!(scan.stored(), "lock:user:");
        assert_eq!(scan.key("lock:user:42").expect("a lock").as_str(), "user:42");
        for other in ["lock:order:1", "user:42", "lock:user:~1:fence", "lock:user:a\nb"] {
            assert!(scan.key(other).is_none(), "{other:?}");
        }
        let long = format!("lock:user:{}", "x".repeat(MAX_KEY_BYTES));
        assert!(scan.key(&long).is_none());
    }
}
