//! The fixture of a case: its store, further clients of it, and keys that no other case uses.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use lock_runtime::{
    LockError, LockErrorKind, LockGuard, LockManager,
    backend::{BoxFuture, Capabilities},
};

use crate::{
    client_process::ClientProcess,
    polling::{MANY_POLLS, drop_after},
    store::{Fault, Foreign, Server, Site, Store},
    support::{PATIENCE, child::Child, until, wall_clock::Clock},
};

/// One case's store, and names in it that no other case uses.
pub struct Fixture {
    site: Box<dyn Site>,
    store: &'static dyn Store,
    mark: String,
}

impl Fixture {
    pub fn new(store: &'static dyn Store, server: Server) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let mark = format!("case{}x", NUMBER.fetch_add(1, Ordering::Relaxed));
        Self { site: store.site(server), store, mark }
    }

    /// Another store of the same kind, with the same keys.
    pub fn elsewhere(&self) -> Self {
        Self { site: self.store.site(Server::Own), store: self.store, mark: self.mark.clone() }
    }

    /// The capabilities of the store as its module declares them.
    pub fn declared(&self) -> Capabilities {
        self.store.capabilities()
    }

    /// Returns the length of a lease: `wanted`, or the [least](Store::least_lease), or, where holds live as long as a
    /// session, the session timeout.
    pub fn lease(&self, wanted: Duration) -> Duration {
        self.declared().session_timeout().unwrap_or(wanted.max(self.store.least_lease()))
    }

    pub fn calls_of_a_refused_attempt(&self) -> u64 {
        self.store.calls_of_a_refused_attempt().expect("selected by `Need::CountedCalls`")
    }

    pub fn offers(&self, fault: Fault) -> bool {
        self.store.offers(fault)
    }

    /// Whether holds stay as they are under a fault of this kind, at most for as long as their lease.
    pub fn spares_holds(&self, fault: Fault) -> bool {
        !(self.store.holds_end_with_their_connection() && fault.breaks_connections())
    }

    /// Asserts that a release failed because it was not confirmed; where a hold ends with its connection, it may have been
    /// lost before.
    pub fn was_not_confirmed(&self, error: &LockError) {
        let lost = error.kind() == LockErrorKind::Lost && self.store.holds_end_with_their_connection();
        assert!(lost || error.kind() == LockErrorKind::Backend, "{error}");
    }

    /// URLs of this store that are refused, with the kind of the refusal.
    pub fn bad_urls(&self) -> Vec<(String, LockErrorKind)> {
        self.store.bad_urls()
    }

    pub fn url(&self) -> String {
        self.site.url()
    }

    pub fn url_with_password(&self, password: &str) -> String {
        self.site.url_with_password(password)
    }

    /// Creates another client: a manager with its own connections and queue.
    pub async fn client(&self) -> LockManager {
        self.connected(self.url()).await
    }

    /// Creates another client, whose network to the server has no faults.
    pub async fn client_past_faults(&self) -> LockManager {
        self.connected(self.site.url_past_faults()).await
    }

    /// Creates another client, for leases of this length where the store would otherwise choose it.
    pub async fn client_for_leases_of(&self, lease: Duration) -> LockManager {
        self.connected(self.site.url_for_leases_of(lease)).await
    }

    async fn connected(&self, url: String) -> LockManager {
        self.connect(url).await.expect("the store can be reached")
    }

    /// A client at this URL, or why there is none.
    pub fn connect(&self, url: String) -> BoxFuture<'static, Result<LockManager, LockError>> {
        self.store.connect(url)
    }

    /// A client that connects when it is used first.
    pub fn connect_lazy(&self) -> Result<LockManager, LockError> {
        self.store.connect_lazy(&self.url())
    }

    pub fn store(&self) -> &'static dyn Store {
        self.store
    }

    /// Creates another client for a hold that is to survive a fault, and returns the length of its leases: `wanted`,
    /// or longer where a session has to be resumed, for which a busy machine needs longer than for a renewal.
    pub async fn client_that_keeps(&self, wanted: Duration) -> (LockManager, Duration) {
        let lease = self.declared().session_timeout().map_or(wanted, |session| session * 3);
        (self.client_for_leases_of(lease).await, lease)
    }

    /// Starts a client in its own process.
    pub async fn client_process(&self) -> ClientProcess {
        ClientProcess::start(Child::start("client"), self.store, &self.url()).await
    }

    /// The same, with a wall clock that can be moved.
    pub async fn client_process_with_clock(&self, clock: &Clock) -> ClientProcess {
        ClientProcess::start(Child::start_with_clock("client", clock), self.store, &self.url()).await
    }

    /// The first part of this case's names.
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// A name that no other case uses.
    pub fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.mark)
    }

    pub fn hurt(&self, fault: Fault) {
        self.site.hurt(fault);
    }

    pub fn heal(&self) {
        self.site.heal();
    }

    /// Makes the store forget the holder of this lock.
    pub fn lose(&self, key: &str) {
        assert!(self.site.lose(key), "the store knew of no holder of {key}");
    }

    /// Puts something that is no lock in the place of this one.
    pub fn spoil(&self, key: &str) {
        self.site.spoil(key);
    }

    pub fn lost_an_answer(&self) -> bool {
        self.site.lost_an_answer()
    }

    /// Number of calls about locks that the server has answered.
    pub fn calls(&self) -> u64 {
        self.site.calls()
    }

    pub fn connections(&self) -> u64 {
        self.site.connections()
    }

    pub fn foreign(&self) -> &dyn Foreign {
        self.site.foreign().expect("selected by `Need::ForeignClients`")
    }

    /// The store's records of this case: holders, and places in queues.
    pub fn left(&self) -> Vec<String> {
        self.site.left(&self.mark)
    }

    /// Waits until the store keeps nothing of this case. The bound is far below the leases that cases use where
    /// they check this, so it is not the end of a lease that cleans up.
    pub async fn clean(&self) {
        until("nothing is left in the store", || {
            let left = self.left();
            if left.is_empty() { Ok(()) } else { Err(left) }
        })
        .await;
    }

    /// Drops an acquisition at its first await, its second, … until it is ready before that; nothing may be left,
    /// neither in the store nor in the client itself.
    ///
    /// At first each acquisition is its client's first, which has to connect and to prepare; then each client has
    /// had the locks before, so that only the locks are requested.
    pub async fn dropped_at_each_await<T>(&self, acquire: impl AsyncFn(LockManager) -> Result<T, LockError>) {
        for prepared in [false, true] {
            for polls in 0.. {
                let locks = self.client().await;
                let once = async || {
                    drop(self.once_clean(|| acquire(locks.clone())).await);
                    self.clean().await;
                };
                if prepared {
                    once().await;
                }
                let ready = drop_after(acquire(locks.clone()), polls).await.is_some();
                once().await;
                if ready {
                    break;
                }
                assert!(polls < MANY_POLLS, "never ready");
            }
        }
    }

    /// Acquires once nothing is left. The request of a dropped acquisition may reach the server only after the store was
    /// seen to be clean, and a single attempt then meets the lock.
    async fn once_clean<T>(&self, acquire: impl AsyncFn() -> Result<T, LockError>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            self.clean().await;
            match acquire().await {
                Ok(held) => return held,
                Err(error) => {
                    let is_held = error.kind() == LockErrorKind::Contended;
                    assert!(is_held && Instant::now() < end, "{error}, still {:?}", self.left());
                }
            }
        }
    }

    /// Number of clients that wait for the lock, as the store sees it; `None` if its waiters poll.
    pub fn places(&self, key: &str) -> Option<usize> {
        self.store.poll_pause().is_none().then(|| self.site.places(key))
    }

    /// Checks the number of clients that wait for the lock, if the store can count them.
    pub fn has_places(&self, key: &str, count: usize) {
        let places = self.places(key);
        assert!(places.is_none_or(|places| places == count), "{places:?} instead of {count} places");
    }

    /// Upper bound on the time until a polling waiter has seen that the lock is held.
    pub fn time_to_poll(&self) -> Duration {
        2 * self.store.poll_pause().unwrap_or_default() + Duration::from_millis(50)
    }

    /// Waits until this many clients are in the store's queue.
    pub async fn queued(&self, key: &str, count: usize) {
        self.queued_before(key, count, || false).await;
    }

    /// Waits until this many clients are in the store's queue, or until the wait is over; returns whether they were.
    pub async fn queued_before(&self, key: &str, count: usize, is_over: impl Fn() -> bool) -> bool {
        if self.places(key).is_none() {
            tokio::time::sleep(self.time_to_poll()).await;
            return !is_over();
        }
        until(&format!("{count} stand in the queue"), || match self.site.places(key) {
            places if places == count => Ok(true),
            _ if is_over() => Ok(false),
            places => Err(places),
        })
        .await
    }

    /// Asserts that another client can take the lock now.
    pub async fn is_free(&self, key: &str) {
        let guard = self.client().await.lock(key).try_acquire().await.unwrap().expect("the lock is free");
        guard.release().await.unwrap();
    }

    /// Waits until the store keeps nothing of this case, and another client can take the lock.
    pub async fn is_clean_and_free(&self, key: &str) {
        let locks = self.client().await;
        let guard = self.once_clean(async || attempt(&locks, key).await).await;
        guard.release().await.unwrap();
    }

    /// Waits until a client holds the lock.
    pub async fn is_held_soon(&self, key: &str) {
        let locks = self.client().await;
        let end = Instant::now() + PATIENCE;
        tokio::time::sleep(Duration::from_millis(10)).await;
        while let Some(guard) = locks.lock(key).try_acquire().await.unwrap() {
            guard.release().await.unwrap();
            assert!(Instant::now() < end, "{key} was not taken");
            // A client that does not wait for the lock needs a moment in which it is free.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Asserts that the lock is held. Asks from another task: the caller may be the section that holds it.
    pub async fn is_held(&self, key: &str) {
        let lock = self.client().await.lock(key);
        let guard = tokio::spawn(async move { lock.try_acquire().await }).await.unwrap().unwrap();
        assert!(guard.is_none(), "a held lock was granted: {guard:?}");
    }
}

/// Makes a single attempt; an error if another client holds the lock.
pub async fn attempt(locks: &LockManager, key: &str) -> Result<LockGuard, LockError> {
    let guard = locks.lock(key).try_acquire().await?;
    guard.ok_or_else(|| LockError::new(LockErrorKind::Contended, "another client holds the lock"))
}
