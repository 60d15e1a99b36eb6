#![doc = include_str!("docs.md")]

mod faults;
mod operate;
mod queue;

use std::{
    fmt,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use tokio::sync::oneshot;

use self::{
    faults::Faults,
    queue::{Answer, Client, Granted, Locks, Now, Renewed},
};
use crate::{
    FencingToken, LockError, LockErrorKind, LockKey, OwnerToken,
    backend::{
        Acquire, Acquired, Backend, BoxFuture, Capabilities, Grant, HandOver, Held, Lease, LeaseId, Mode,
        Operate, Releasable, Released, Renew, Renewal, RevocationNotifier, Wait, client_name,
        common::{hints::Hints, revocations::Revocations},
    },
    hash::HashMap,
    sync::{Sharded, lock},
    time::{clock::Instant, deadline::valid_until},
};

/// Upper bound on the pause between two checks of a waiter.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long the last check of a waiter may take after the end of the wait, if the store is slow on demand.
const LAST_LOOK_LIMIT: Duration = Duration::from_millis(400);
/// How long a release or a ping may take, if the store is slow on demand.
const RELEASE_LIMIT: Duration = Duration::from_secs(1);

/// The in-process store, which needs no server.
///
/// Clones share one store. The [module documentation](self) describes what the store guarantees.
#[derive(Clone, Default)]
pub struct Memory(Arc<Store>);

#[derive(Default)]
struct Store {
    state: Sharded<State>,
    faults: Faults,
    /// Notified, by the lock's name, when a client begins to wait for a lock.
    waits: Arc<Hints>,
    revocations: Revocations,
    owners: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    locks: Locks,
    /// The channels by which the waiters are notified of their grants.
    waiting: HashMap<OwnerToken, oneshot::Sender<GrantNotice>>,
}

/// The message that grants the lock to a waiter.
#[derive(Debug)]
struct GrantNotice {
    fence: u64,
    /// The moment of the grant.
    at: Instant,
}

impl Memory {
    /// Creates a new store. Only its clones share it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the store with the given name. Its URL is `memory:name`.
    ///
    /// The first call with a name creates the store. All later calls in this process with that name return clones of
    /// that store.
    #[must_use]
    pub fn named(name: &str) -> Self {
        static NAMED: LazyLock<Mutex<HashMap<String, Memory>>> = LazyLock::new(Mutex::default);
        lock(&NAMED).entry(name.to_owned()).or_default().clone()
    }

    /// Returns the store for the URL `memory:name`.
    ///
    /// # Errors
    /// [`InvalidOptions`](LockErrorKind::InvalidOptions) for a URL that is not understood.
    pub(crate) fn connect_lazy(url: &str) -> Result<Self, LockError> {
        let name = url.strip_prefix("memory:").unwrap_or(url);
        if name.contains(['?', '/', '#', '@']) {
            let message = "`memory:` takes nothing but a name, like `memory:orders`";
            return Err(LockError::new(LockErrorKind::InvalidOptions, message));
        }
        Ok(Self::named(name))
    }

    /// Returns the number of locks that have a holder or at least one waiter.
    #[must_use]
    pub fn len(&self) -> usize {
        let now = Instant::now();
        self.0.state.each().map(|state| state.locks.len(now)).sum()
    }

    /// Returns true if no lock has a holder or a waiter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the total number of waiters for the lock `key` under all prefixes.
    ///
    /// All callers that wait through one manager or its clones count as one waiter.
    #[must_use]
    pub fn waiting(&self, key: &str) -> usize {
        let waiting = |state: MutexGuard<'_, State>| -> usize {
            let keys = state.locks.keys().filter(|locked| *locked == key);
            keys.map(|locked| state.locks.waiting(locked.stored())).sum()
        };
        self.0.state.each().map(waiting).sum()
    }

    /// Simulates a loss of data: takes the lock `key`, under every prefix, away from its holder.
    ///
    /// Returns whether the lock was held. The holder notices the loss when its lease is next renewed, at most a third
    /// of its `ttl` later, or when it releases the lock before that. With `auto_renew = false`, the holder notices the
    /// loss only on release or when the lease ends.
    #[expect(clippy::must_use_candidate, reason = "called for its effect")]
    pub fn lose(&self, key: &str) -> bool {
        let mut held = false;
        for mut state in self.0.state.each() {
            let keys: Vec<LockKey> = state.locks.keys().filter(|held| *held == key).cloned().collect();
            for key in keys {
                let now = now();
                let (was_held, next) = state.locks.lose(key.stored(), now);
                state.tell(next.as_ref(), now);
                held |= was_held;
            }
        }
        held
    }

    /// Simulates an outage: makes every call to the store fail (`true`), or lets calls work again (`false`).
    pub fn set_failing(&self, failing: bool) {
        self.0.faults.set_failing(failing);
    }

    /// Simulates a slow store: from now on, every call to the store takes `delay` longer.
    ///
    /// Calls fail when they reach their time limit. The limit is 1 s for a ping or a release, and the lock's `ttl` for
    /// an acquisition that does not wait. A waiting acquisition fails at the end of its wait. Renewals have no such
    /// limit, but if the delay is so long that a lease cannot be renewed before its deadline, the holder loses the
    /// lock.
    pub fn set_delay(&self, delay: Duration) {
        self.0.faults.set_delay(delay);
    }
}

impl Store {
    fn release(&self, name: &str, owner: OwnerToken) -> bool {
        let mut state = self.state.of(name);
        let now = now();
        let (was_held, next) = state.locks.release(name, owner, now);
        state.waiting.remove(&owner);
        state.tell(next.as_ref(), now);
        was_held
    }

    /// Returns the answer for a client that no longer waits for a lock, whose lease ends at `expires`.
    fn busy(&self, key: &LockKey, expires: Instant) -> Acquired {
        match self.state.of(key.stored()).locks.holder(key.stored(), &client_name(), now()) {
            Some(holder) => Acquired::busy_with(holder),
            None => Acquired::busy(Some(expires.remaining())),
        }
    }

    async fn acquire(self: &Arc<Self>, request: &Acquire) -> Result<Acquired, LockError> {
        let sent = Instant::now();
        // A single attempt has no use for an answer that comes after a whole lease.
        let limit = if request.wait == Wait::No { sent + request.ttl } else { request.wait.end() };
        self.faults.pass(sent, limit).await?;
        let key = &request.key;
        let owner = OwnerToken::from(u128::from(self.owners.fetch_add(1, Ordering::Relaxed)));
        let place = Place { store: self, key, owner };
        let client = Client { owner, ttl: request.ttl, label: request.label };
        let queues = request.wait != Wait::No;
        let (answer, mut told) = {
            let mut state = self.state.of(key.stored());
            let now = now();
            let answer = state.locks.acquire(key, client, queues, now);
            // The first waiter in the queue has not checked since the lease expired. The lock is granted to this waiter
            // now. Even a waiter that is gone keeps others out no longer than its lease.
            if matches!(answer, Answer::Held { expires } if expires <= now.at) {
                let next = state.locks.expire(key.stored(), now);
                state.tell(next.as_ref(), now);
            }
            let told = (queues && matches!(answer, Answer::Held { .. })).then(|| {
                let (tell, told) = oneshot::channel();
                state.waiting.insert(owner, tell);
                told
            });
            (answer, told)
        };
        let mut expires = match answer {
            Answer::Granted { fence } => return Ok(place.granted(request, fence, sent)),
            Answer::Held { expires } => expires,
        };
        let Some(told) = told.as_mut() else {
            return Ok(self.busy(key, expires));
        };
        self.waits.notify(key.stored());
        let end = request.wait.end();
        loop {
            request.progress.contended();
            // The waiter also checks before the current lease ends, because the next holder's lease may be shorter.
            let look_at = expires.min(end).min(Instant::now() + LOOK_AGAIN);
            let looked = async {
                request.progress.sleep_until(look_at).await;
                self.faults.pass(Instant::now(), end + LAST_LOOK_LIMIT).await
            };
            tokio::select! {
                biased;
                Ok(GrantNotice { fence, at }) = &mut *told => return Ok(place.granted(request, fence, at)),
                looked = looked => looked?,
            }
            let mut state = self.state.of(key.stored());
            let now = now();
            let next = state.locks.expire(key.stored(), now);
            state.tell(next.as_ref(), now);
            // The lock was granted while the timer ran out; the next round receives the grant.
            if !state.waiting.contains_key(&owner) {
                continue;
            }
            expires = match state.locks.acquire(key, client, true, now) {
                Answer::Held { expires } => expires.max(now.at + Duration::from_millis(1)),
                Answer::Granted { fence } => {
                    state.waiting.remove(&owner);
                    drop(state);
                    return Ok(place.granted(request, fence, now.at));
                }
            };
            if end.has_passed() {
                drop(state);
                return Ok(self.busy(key, expires));
            }
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("locks", &self.len()).field("faults", &self.0.faults).finish()
    }
}

impl State {
    fn tell(&mut self, granted: Option<&Granted>, now: Now) {
        if let Some(Granted { owner, fence }) = granted
            && let Some(waiter) = self.waiting.remove(owner)
        {
            // If the waiter is gone, the drop of its `Place` releases this grant.
            let _ = waiter.send(GrantNotice { fence: *fence, at: now.at });
        }
    }
}

/// A place in the queue, or a grant that was not delivered yet; given up when dropped.
struct Place<'a> {
    store: &'a Arc<Store>,
    key: &'a LockKey,
    owner: OwnerToken,
}

impl Place<'_> {
    fn granted(self, request: &Acquire, fence: u64, at: Instant) -> Acquired {
        let token = FencingToken::from_micros(fence);
        let id = request.lease_id(self.owner, token);
        let lease = Arc::new(MemoryLease { store: Arc::clone(self.store), id });
        let held = Held::lease(lease, valid_until(at, request.ttl));
        // From here on the lease owns the grant.
        let _disarmed = std::mem::ManuallyDrop::new(self);
        Acquired::Granted(Grant::new(token, held))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.store.release(self.key.stored(), self.owner);
    }
}

impl Backend for Memory {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new().named("memory").fair().telling_of_waiters().showing_locks().revoking()
    }

    fn names(&self) -> Vec<String> {
        // The address of the store's state, which no other store can have while this store exists.
        vec![format!("memory {:p}", Arc::as_ptr(&self.0))]
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), LockError>> {
        let sent = Instant::now();
        Box::pin(self.0.faults.pass(sent, sent + RELEASE_LIMIT))
    }

    fn acquire(&self, request: Acquire) -> BoxFuture<'static, Result<Acquired, LockError>> {
        match request.mode {
            Mode::Exclusive => {}
        }
        let store = Arc::clone(&self.0);
        Box::pin(async move { store.acquire(&request).await })
    }

    fn renewal(&self) -> Option<&dyn Renew> {
        Some(self)
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }

    fn on_revocation(&self, notifier: RevocationNotifier) {
        self.0.revocations.add(notifier);
    }
}

impl Renew for Memory {
    fn renew<'a>(&'a self, due: &'a [LeaseId]) -> BoxFuture<'a, Vec<Renewal>> {
        Box::pin(async move {
            let sent = Instant::now();
            if let Err(error) = self.0.faults.pass(sent, Instant::FAR_FUTURE).await {
                return due.iter().map(|_| Renewal::Unknown(error.clone())).collect();
            }
            let renew = |id: &LeaseId| {
                let (name, fence) = (id.key.stored(), id.token.micros());
                match self.0.state.of(name).locks.renew(name, id.owner, fence, id.ttl, now()) {
                    Renewed::Yes => Renewal::Renewed(valid_until(sent, id.ttl)),
                    Renewed::NotHeld => Renewal::NotHeld,
                    Renewed::Revoked => Renewal::Revoked,
                }
            };
            due.iter().map(renew).collect()
        })
    }
}

struct MemoryLease {
    store: Arc<Store>,
    id: LeaseId,
}

impl fmt::Debug for MemoryLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLease").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Releasable for MemoryLease {
    fn key(&self) -> &LockKey {
        &self.id.key
    }

    fn release(&self) -> BoxFuture<'_, Result<Released, LockError>> {
        Box::pin(async move {
            let sent = Instant::now();
            self.store.faults.pass(sent, sent + RELEASE_LIMIT).await?;
            Ok(self.release_it())
        })
    }

    fn release_now(&self) -> Option<Released> {
        (!self.store.faults.any()).then(|| self.release_it())
    }
}

impl MemoryLease {
    fn others_wait(&self) -> bool {
        let name = self.id.key.stored();
        self.store.state.of(name).locks.waiting(name) > 0
    }

    fn release_it(&self) -> Released {
        let was_held = self.store.release(self.id.key.stored(), self.id.owner);
        if was_held { Released::Released } else { Released::NotHeld }
    }
}

impl Lease for MemoryLease {
    fn id(&self) -> &LeaseId {
        &self.id
    }

    fn may_hand_over(&self) -> HandOver {
        if self.others_wait() { HandOver::contended() } else { HandOver::uncontended() }
    }

    fn wanted(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let waits = self.store.waits.watch(self.id.key.stored_name());
            loop {
                let before = waits.count();
                if self.others_wait() {
                    return;
                }
                waits.reached(before + 1).await;
            }
        })
    }
}

fn now() -> Now {
    Now { at: Instant::now(), time: SystemTime::now() }
}
