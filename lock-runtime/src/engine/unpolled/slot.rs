//! One acquisition that waits, and the signs by which the job knows whether its task lives.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, TryLockError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use crate::{
    LockKey,
    engine::cohort::Cohorts,
    idle::{self, Idle},
    sync::lock,
    time::clock::Instant,
};

/// After this time an answer counts as one that is not looked at. A task that lives may have to wait for its turn.
pub(super) const BLIND_AFTER: Duration = Duration::from_millis(400);

/// See [`Signs::woken`].
const ASKED: u64 = 1;
const UNKNOWN: u64 = u64::MAX;

/// What a waiting acquisition may keep from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// The lead of the cohort of its lock, while it has that.
    Lead,
    /// Locks that it holds already.
    Locks,
}

/// One acquisition that waits, until it is ready, dropped or given up.
pub(super) struct Slot<A> {
    acquisition: Mutex<Option<A>>,
    signs: Signs,
}

/// What can be told of a slot without its mutex.
#[derive(Debug)]
pub(super) struct Signs {
    pub(super) id: u64,
    pub(super) key: LockKey,
    keeps: Keeps,
    /// When it was woken first since it was polled last, in nanoseconds; 0 when it was not. The lowest bit is set while
    /// it was only [asked](Self::ask). [`UNKNOWN`] while what wakes it goes to its task.
    woken: AtomicU64,
    /// Of the task that polls it.
    owner: Mutex<Waker>,
}

impl Signs {
    pub(super) fn woken(&self) -> Option<Instant> {
        match self.woken.load(Ordering::Acquire) {
            0 | UNKNOWN => None,
            woken => Some(Instant::from_nanos(woken)),
        }
    }

    pub(super) fn is_unknown(&self) -> bool {
        self.woken.load(Ordering::Acquire) == UNKNOWN
    }

    /// There is something at which it has to look.
    pub(super) fn wake(&self) {
        if !idle::is_under_way() {
            self.woken.fetch_and(!ASKED, Ordering::AcqRel);
            self.woken_now(0);
        }
        self.wake_owner();
    }

    /// Whether it lives.
    pub(super) fn ask(&self) {
        self.woken_now(ASKED);
        self.wake_owner();
    }

    /// What woke it went to its task: that counts from now on, and its next poll shows that it lives.
    pub(super) fn wake_unknown(&self) {
        self.woken_since(UNKNOWN, 0);
        self.wake_owner();
    }

    fn woken_now(&self, asked: u64) {
        if self.woken.load(Ordering::Acquire) == 0 {
            self.woken_since(0, asked);
        }
    }

    fn woken_since(&self, before: u64, asked: u64) {
        let now = Instant::now().as_nanos().max(2) & !ASKED | asked;
        let _ = self.woken.compare_exchange(before, now, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether it has had something for long at which it has not looked.
    pub(super) fn is_blind(&self, now: Instant) -> bool {
        self.woken().is_some_and(|woken| woken.as_nanos() & ASKED == 0 && now >= woken + BLIND_AFTER)
    }

    pub(super) fn wake_owner(&self) {
        // Cloned, because a runtime may poll from within.
        let owner = lock(&self.owner).clone();
        owner.wake();
    }

    fn polled_by(&self, owner: &Waker) {
        self.woken.store(0, Ordering::Release);
        let mut present = lock(&self.owner);
        if !present.will_wake(owner) {
            present.clone_from(owner);
        }
    }

    pub(super) fn is_in_the_way(&self, cohorts: &Cohorts) -> bool {
        match self.keeps {
            Keeps::Lead => cohorts.leads_others(self.key.stored(), self.id),
            Keeps::Locks => true,
        }
    }
}

impl<A> Slot<A> {
    /// Of the acquisition of the lock `key`, which was polled before where it wakes `task`.
    pub(super) fn new(id: u64, key: LockKey, keeps: Keeps, task: Option<Waker>, acquisition: A) -> Self {
        let woken = AtomicU64::new(if task.is_some() { UNKNOWN } else { 0 });
        let owner = Mutex::new(task.unwrap_or_else(|| Waker::noop().clone()));
        Self { acquisition: Mutex::new(Some(acquisition)), signs: Signs { id, key, keeps, woken, owner } }
    }

    fn lock(&self) -> MutexGuard<'_, Option<A>> {
        lock(&self.acquisition)
    }

    /// Takes out what is left.
    pub(super) fn take(&self) -> Option<A> {
        self.lock().take()
    }
}

impl<A: Future + Unpin + Send + 'static> Slot<A> {
    pub(super) fn poll(self: &Arc<Self>, cx: &mut Context<'_>) -> Poll<Option<A::Output>> {
        let mut slot = self.lock();
        // After a panic in it, its owner drops it.
        let Some(acquisition) = &mut *slot else { return Poll::Ready(None) };
        // Before the poll: what wakes it from here on wants another one.
        self.signs.polled_by(cx.waker());
        let _counted = Idle::set(false);
        let waker = Waker::from(Arc::clone(self));
        Pin::new(acquisition).poll(&mut Context::from_waker(&waker)).map(Some)
    }
}

impl<A: Send + 'static> Wake for Slot<A> {
    fn wake(self: Arc<Self>) {
        self.signs.wake();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.signs.wake();
    }
}

/// A slot, whatever its acquisition is for.
pub(super) trait Watched: fmt::Debug + Send + Sync {
    fn signs(&self) -> &Signs;

    /// Takes the acquisition out if it was woken at `woken`, not later, and not polled since.
    fn give_up(&self, woken: Instant) -> Option<Box<dyn Send>>;
}

impl<A: Send + 'static> Watched for Slot<A> {
    fn signs(&self) -> &Signs {
        &self.signs
    }

    fn give_up(&self, woken: Instant) -> Option<Box<dyn Send>> {
        let mut slot = match self.acquisition.try_lock() {
            Ok(slot) => slot,
            Err(TryLockError::Poisoned(slot)) => slot.into_inner(),
            // It is being polled.
            Err(TryLockError::WouldBlock) => return None,
        };
        if self.signs.woken() != Some(woken) {
            return None;
        }
        slot.take().map(|acquisition| -> Box<dyn Send> { Box::new(acquisition) })
    }
}

impl<A> fmt::Debug for Slot<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("signs", &self.signs).finish_non_exhaustive()
    }
}
