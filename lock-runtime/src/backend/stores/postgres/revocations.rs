//! The leases of this process, and the task that finds out whether they are revoked.

use std::sync::{
    Arc, Mutex, Weak,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use tokio::sync::Notify;

use crate::{
    LockError,
    backend::{
        LeaseId,
        common::revocations::Revocations as Notifiers,
        kits::postgres::{
            connections::{Connections, Lane},
            notices::Notices,
            revocations::{self, Last, MAX_NAMES_PER_STATEMENT, PAUSE, PAUSE_IF_NOTIFIED, Statements},
            statement::Arg,
        },
    },
    background,
    hash::HashMap,
    sync::{Sharded, lock},
    time::clock::{self, Instant},
};

/// The leases of one store, and what this process knows of revocations.
pub(super) struct Revocations {
    connections: Arc<Connections>,
    /// Notified when an operator may have revoked a lock.
    hint: Arc<Notify>,
    pub(super) statements: Statements,
    pub(super) notifiers: Notifiers,
    /// The versions of the leases under each name. Several, while an earlier one is not known to be lost.
    held: Sharded<HashMap<Arc<str>, Vec<i64>>>,
    /// The number of all leases.
    count: AtomicUsize,
    /// Whether the task runs.
    runs: AtomicBool,
    last: Mutex<Last>,
}

impl Revocations {
    pub(super) fn new(connections: &Arc<Connections>, notices: &Notices) -> Arc<Self> {
        Arc::new(Self {
            connections: Arc::clone(connections),
            hint: Arc::clone(&notices.revoked),
            statements: Statements::of(&connections.config.table),
            notifiers: Notifiers::default(),
            held: Sharded::default(),
            count: AtomicUsize::new(0),
            runs: AtomicBool::new(false),
            last: Mutex::default(),
        })
    }

    /// Records a lease, and begins to look at revocations.
    pub(super) fn add(self: &Arc<Self>, id: &LeaseId) {
        let name = id.key.stored_name();
        self.held.of(&name).entry(Arc::clone(&name)).or_default().push(version(id));
        self.count.fetch_add(1, Ordering::SeqCst);
        if !self.runs.swap(true, Ordering::SeqCst) {
            background::handle().spawn(look(Arc::downgrade(self), Arc::clone(&self.hint)));
        }
    }

    /// Forgets a lease that has ended.
    pub(super) fn remove(&self, id: &LeaseId) {
        let (name, version) = (id.key.stored(), version(id));
        let mut held = self.held.of(name);
        let Some(versions) = held.get_mut(name) else { return };
        let Some(at) = versions.iter().position(|held| *held == version) else { return };
        versions.swap_remove(at);
        if versions.is_empty() {
            held.remove(name);
        }
        self.count.fetch_sub(1, Ordering::SeqCst);
    }

    /// Returns whether the task has to go on.
    fn goes_on(&self) -> bool {
        if self.count.load(Ordering::SeqCst) > 0 {
            return true;
        }
        self.runs.store(false, Ordering::SeqCst);
        // A lease that was recorded before the last line has begun no task.
        self.count.load(Ordering::SeqCst) > 0 && !self.runs.swap(true, Ordering::SeqCst)
    }

    /// Lets each lease be renewed early that is revoked, if there was a revocation since the last look.
    async fn look(&self) -> Result<(), LockError> {
        let Statements { last, revoked, .. } = &self.statements;
        let answer = self.connections.run(Lane::Looks, last, |_| Vec::new()).await?;
        let last = Last::read(&answer.rows)?;
        if *lock(&self.last) == last {
            return Ok(());
        }
        let mut held = Vec::new();
        for shard in self.held.each() {
            held.extend(shard.iter().map(|(name, versions)| (Arc::clone(name), versions.clone())));
        }
        for part in held.chunks(MAX_NAMES_PER_STATEMENT) {
            let args = |_| {
                let names = part.iter().map(|(name, _)| &**name).collect();
                let versions = part.iter().flat_map(|(_, versions)| versions.iter().copied()).collect();
                vec![Arg::Texts(names), Arg::Numbers(versions)]
            };
            let answer = self.connections.run(Lane::Looks, revoked, args).await?;
            for name in revocations::revoked(&answer.rows)? {
                self.notifiers.notify(&name);
            }
        }
        *lock(&self.last) = last;
        Ok(())
    }
}

fn version(id: &LeaseId) -> i64 {
    i64::try_from(id.token.micros()).unwrap_or(i64::MAX)
}

/// Looks at revocations as long as this process has leases.
async fn look(store: Weak<Revocations>, hint: Arc<Notify>) {
    let mut looked = Instant::now();
    loop {
        tokio::select! {
            () = clock::sleep_until(looked + PAUSE) => {}
            () = hint.notified() => clock::sleep_until(looked + PAUSE_IF_NOTIFIED).await,
        }
        let Some(revocations) = store.upgrade() else { return };
        if !revocations.goes_on() {
            return;
        }
        looked = Instant::now();
        // While a statement is overdue, the other connections are left to the renewals.
        if revocations.connections.has_overdue() {
            continue;
        }
        // The renewals find out what this look does not.
        let _ = revocations.look().await;
    }
}
