//! The connections of one runtime ([`Slot`]), and a connection in use ([`Checkout`]).

use std::{
    ops::{Deref, DerefMut},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use sqlx::{Connection as _, PgConnection, Postgres, pool::PoolConnection};
use tokio::{
    runtime,
    sync::{Semaphore, oneshot},
    time::timeout,
};

use super::statement::Prepared;
use crate::{LockError, hash::HashMap, sync::lock, time::clock::Instant};

/// How long a connection may be unused before it is closed.
const CLOSE_IF_UNUSED_FOR: Duration = Duration::from_secs(60);
/// Interval between checks for unused connections.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(15);

/// The connections of one runtime.
pub(super) struct Slot {
    pub(super) size: u32,
    permits: Semaphore,
    idle: Mutex<Vec<Idle>>,
    /// Rises each time the connections are given up. A connection that was taken before such a rise is closed after its
    /// statement.
    generation: AtomicU64,
    /// Whether the last attempt to connect succeeded, and no connection was given up since. In this state, several
    /// attempts may be made at once.
    reached: AtomicBool,
    /// The failure of the last single attempt to connect, and the time until which other callers get this failure. The
    /// mutex is locked during a single attempt, but not during attempts that are made while `reached` is set.
    pub(super) failed: tokio::sync::Mutex<Option<(Instant, LockError)>>,
    /// Ends the task that closes idle connections.
    _end: oneshot::Sender<()>,
}

pub(super) struct Idle {
    connection: PgConnection,
    prepared: Prepared,
    since: Instant,
}

pub(super) type SlotsOfRuntimes = Mutex<HashMap<runtime::Id, Arc<Slot>>>;

impl Slot {
    /// Creates a slot of the caller's runtime. `registered` is the map from which the slot is removed when that runtime
    /// is shut down.
    pub(super) fn of(size: u32, registered: Option<(Weak<SlotsOfRuntimes>, runtime::Id)>) -> Arc<Self> {
        let (end, mut ended) = oneshot::channel();
        let slot = Arc::new(Self {
            size,
            permits: Semaphore::new(size as usize),
            idle: Mutex::default(),
            generation: AtomicU64::new(0),
            reached: AtomicBool::new(false),
            failed: tokio::sync::Mutex::default(),
            _end: end,
        });
        let caretaker = Caretaker { slot: Arc::downgrade(&slot), registered };
        tokio::spawn(async move {
            while timeout(IDLE_CHECK_INTERVAL, &mut ended).await.is_err() {
                caretaker.close_idle();
            }
        });
        slot
    }

    /// Takes a permit for a connection if one is free and no other caller waits for one.
    pub(super) fn try_permit(self: &Arc<Self>) -> Option<Permit> {
        self.permits.try_acquire().ok()?.forget();
        Some(Permit(Arc::clone(self)))
    }

    /// Waits for a permit for a connection.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn permit(self: &Arc<Self>) -> Permit {
        let permit = self.permits.acquire().await;
        permit.expect("never closed").forget();
        Permit(Arc::clone(self))
    }

    /// Returns whether there is a connection, or one is being made.
    pub(super) fn has_connections(&self) -> bool {
        self.permits.available_permits() < self.size as usize || !lock(&self.idle).is_empty()
    }

    pub(super) fn is_reached(&self) -> bool {
        self.reached.load(Ordering::Acquire)
    }

    pub(super) fn set_reached(&self, reached: bool) {
        self.reached.store(reached, Ordering::Release);
    }

    pub(super) fn pop(&self) -> Option<Idle> {
        lock(&self.idle).pop()
    }

    pub(super) fn give_up(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.reached.store(false, Ordering::Release);
        lock(&self.idle).clear();
    }
}

/// Closes idle connections of a slot. When the slot's runtime is shut down, removes the slot, because nothing drives
/// the slot's connections any more.
struct Caretaker {
    slot: Weak<Slot>,
    registered: Option<(Weak<SlotsOfRuntimes>, runtime::Id)>,
}

impl Caretaker {
    fn close_idle(&self) {
        if let Some(slot) = self.slot.upgrade() {
            lock(&slot.idle).retain(|idle| !(idle.since + CLOSE_IF_UNUSED_FOR).has_passed());
        }
    }
}

impl Drop for Caretaker {
    fn drop(&mut self) {
        if let Some((slots, id)) = &self.registered
            && let Some(slots) = slots.upgrade()
        {
            lock(&slots).remove(id);
        }
    }
}

/// The right to use one of the connections of a slot.
pub(super) struct Permit(Arc<Slot>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.permits.add_permits(1);
    }
}

/// Idle connections that no statement may take for the time being. The connections are closed when this value is
/// dropped.
pub(super) struct Aside {
    slot: Option<Arc<Slot>>,
    idle: Vec<Idle>,
    generation: u64,
}

impl Aside {
    pub(super) fn restore(&mut self) {
        let idle = std::mem::take(&mut self.idle);
        if let Some(slot) = &self.slot
            && slot.generation.load(Ordering::SeqCst) == self.generation
        {
            lock(&slot.idle).extend(idle);
        }
    }
}

/// A connection in use; closed when dropped, because it may be in the middle of a statement.
pub(super) struct Checkout {
    connection: Option<Raw>,
    /// `None` for a connection of the user's pool.
    permit: Option<Permit>,
    generation: u64,
    /// Whether the connection was just made, or was taken from the user's pool.
    pub(super) fresh: bool,
    pub(super) prepared: Prepared,
}

enum Raw {
    Own(PgConnection),
    OfPool(PoolConnection<Postgres>),
}

impl Checkout {
    /// Wraps a connection that was just made.
    pub(super) fn new(connection: PgConnection, permit: Permit) -> Self {
        let idle = Idle { connection, prepared: Prepared::default(), since: Instant::now() };
        let mut checkout = Self::of(idle, permit);
        checkout.fresh = true;
        checkout
    }

    pub(super) fn of(Idle { connection, prepared, .. }: Idle, permit: Permit) -> Self {
        let generation = permit.0.generation.load(Ordering::SeqCst);
        Self {
            connection: Some(Raw::Own(connection)),
            permit: Some(permit),
            generation,
            fresh: false,
            prepared,
        }
    }

    /// Wraps a connection of the user's pool. The connection counts as fresh, because the pool tests each connection
    /// before giving it out, unless the user has turned the pool's option `test_before_acquire` off.
    pub(super) fn of_pool(connection: PoolConnection<Postgres>) -> Self {
        Self {
            connection: Some(Raw::OfPool(connection)),
            permit: None,
            generation: 0,
            fresh: true,
            prepared: Prepared::default(),
        }
    }

    pub(super) fn is_of_pool(&self) -> bool {
        self.permit.is_none()
    }

    /// Gives the connection back after a statement.
    pub(super) fn give_back(mut self) {
        match (self.connection.take(), &self.permit) {
            (Some(Raw::Own(connection)), Some(Permit(slot)))
                if slot.generation.load(Ordering::SeqCst) == self.generation =>
            {
                let prepared = std::mem::take(&mut self.prepared);
                lock(&slot.idle).push(Idle { connection, prepared, since: Instant::now() });
            }
            // A connection of the user's pool returns to the pool when the connection is dropped. Any other connection
            // was taken before the connections were given up, and is closed.
            (connection, _) => drop(connection),
        }
    }

    /// Waits until the server has ended the overdue statement; returns whether the connection still answers.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn ended(&mut self) -> bool {
        loop {
            match self.ping().await {
                Ok(()) => return true,
                // The overdue statement has ended.
                Err(sqlx::Error::Database(_)) => {}
                Err(_) => return false,
            }
        }
    }

    /// Takes the idle connections out of use, until it is known whether they answer.
    pub(super) fn set_idle_aside(&self) -> Aside {
        let slot = self.permit.as_ref().map(|Permit(slot)| Arc::clone(slot));
        let idle = slot.as_ref().map(|slot| std::mem::take(&mut *lock(&slot.idle))).unwrap_or_default();
        Aside { slot, idle, generation: self.generation }
    }

    /// Closes this connection and the idle connections of its slot: what ended one connection has usually ended them
    /// all.
    pub(super) fn give_up(self) {
        if let Some(Permit(slot)) = &self.permit {
            slot.give_up();
        }
    }
}

impl Deref for Checkout {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match self.connection.as_ref().expect("taken only at the end") {
            Raw::Own(connection) => connection,
            Raw::OfPool(connection) => connection,
        }
    }
}

impl DerefMut for Checkout {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match self.connection.as_mut().expect("taken only at the end") {
            Raw::Own(connection) => connection,
            Raw::OfPool(connection) => connection,
        }
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        // The connection is detached from the pool and closed. If the connection went back to the pool, the pool would
        // wait for the rest of the statement.
        if let Some(Raw::OfPool(connection)) = self.connection.take() {
            drop(connection.detach());
        }
    }
}
