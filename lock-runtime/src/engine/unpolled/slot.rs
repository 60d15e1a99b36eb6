//! The slot of a waiting acquisition, and the state that tells the job whether the acquisition's task is alive.

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
    backend::LockId,
    engine::cohort::Cohorts,
    idle::{self, Idle},
    sync::lock,
    time::clock::Instant,
};

/// How long an answer may wait for a poll before the acquisition counts as blind to the answer. The runtime may need
/// some time to run a live task.
pub(super) const BLIND_AFTER: Duration = Duration::from_millis(400);

/// The lowest bit of the field `woken` of [`SlotState`]: the acquisition was only [probed](SlotState::probe).
const PROBED: u64 = 1;
/// The value of the field `woken` of [`SlotState`] while wake-ups go to the acquisition's task directly.
const UNKNOWN: u64 = u64::MAX;

/// The resource that a waiting acquisition may withhold from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withheld {
    /// The lead of its cohort, if the acquisition leads at present.
    Lead,
    /// Locks that the acquisition holds while it waits for further locks.
    Locks,
}

/// One waiting acquisition, until it is ready, dropped or given up.
pub(super) struct Slot<A> {
    acquisition: Mutex<Option<A>>,
    state: SlotState,
}

/// The state of a slot that can be read without the mutex of the acquisition.
#[derive(Debug)]
pub(super) struct SlotState {
    pub(super) id: u64,
    pub(super) lock: LockId,
    withheld: Withheld,
    /// When the acquisition was first woken since its last poll, in nanoseconds; 0 if it has not been woken since,
    /// [`UNKNOWN`] if its wake-ups go to its task directly. The lowest bit is [`PROBED`].
    woken: AtomicU64,
    /// Wakes the task that polls the acquisition.
    owner: Mutex<Waker>,
}

impl SlotState {
    pub(super) fn woken(&self) -> Option<Instant> {
        match self.woken.load(Ordering::Acquire) {
            0 | UNKNOWN => None,
            woken => Some(Instant::from_nanos(woken)),
        }
    }

    pub(super) fn is_unknown(&self) -> bool {
        self.woken.load(Ordering::Acquire) == UNKNOWN
    }

    /// Wakes the task, and records the wake-up, because the task then has to poll. A wake-up that is marked as [idle]
    /// is not recorded, because the task need not poll after an idle wake-up.
    pub(super) fn wake(&self) {
        if !idle::is_idle_wake_up() {
            self.woken.fetch_and(!PROBED, Ordering::AcqRel);
            self.woken_now(0);
        }
        self.wake_owner();
    }

    /// Wakes the task to see whether it is alive.
    pub(super) fn probe(&self) {
        self.woken_now(PROBED);
        self.wake_owner();
    }

    /// Wakes the task of an acquisition whose earlier wake-ups went to the task directly.
    ///
    /// The time without a poll counts from now on; the next poll shows that the task is alive.
    pub(super) fn wake_unknown(&self) {
        self.woken_since(UNKNOWN, 0);
        self.wake_owner();
    }

    fn woken_now(&self, probed: u64) {
        if self.woken.load(Ordering::Acquire) == 0 {
            self.woken_since(0, probed);
        }
    }

    fn woken_since(&self, before: u64, probed: u64) {
        let now = Instant::now().as_nanos().max(2) & !PROBED | probed;
        let _ = self.woken.compare_exchange(before, now, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Returns whether the acquisition was woken, not only [probed](Self::probe), and has not been polled for
    /// [`BLIND_AFTER`] since.
    pub(super) fn is_blind(&self, now: Instant) -> bool {
        self.woken().is_some_and(|woken| woken.as_nanos() & PROBED == 0 && now >= woken + BLIND_AFTER)
    }

    pub(super) fn wake_owner(&self) {
        // The waker is cloned, so that the mutex is not locked during `wake`, in which a runtime may poll the task.
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

    pub(super) fn blocks_others(&self, cohorts: &Cohorts) -> bool {
        match self.withheld {
            Withheld::Lead => cohorts.leads_others(&self.lock, self.id),
            Withheld::Locks => true,
        }
    }
}

impl<A> Slot<A> {
    /// Creates the slot of an acquisition of `lock`. If the acquisition was polled before, `task` is the waker of that
    /// poll, and the wake-ups of the acquisition go to `task` directly.
    pub(super) fn new(
        id: u64,
        lock: LockId,
        withheld: Withheld,
        task: Option<Waker>,
        acquisition: A,
    ) -> Self {
        let woken = AtomicU64::new(if task.is_some() { UNKNOWN } else { 0 });
        let owner = Mutex::new(task.unwrap_or_else(|| Waker::noop().clone()));
        Self {
            acquisition: Mutex::new(Some(acquisition)),
            state: SlotState { id, lock, withheld, woken, owner },
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<A>> {
        lock(&self.acquisition)
    }

    /// Takes out the acquisition, if it is still there.
    pub(super) fn take(&self) -> Option<A> {
        self.lock().take()
    }
}

impl<A: Future + Unpin + Send + 'static> Slot<A> {
    pub(super) fn poll(self: &Arc<Self>, cx: &mut Context<'_>) -> Poll<Option<A::Output>> {
        let mut slot = self.lock();
        // The acquisition stays in the slot while it is polled. After a panic, the owner of the slot drops the
        // acquisition.
        let Some(acquisition) = &mut *slot else { return Poll::Ready(None) };
        // The poll is recorded before it begins, because a wake-up from here on calls for another poll.
        self.state.polled_by(cx.waker());
        let _counted = Idle::set(false);
        let waker = Waker::from(Arc::clone(self));
        Pin::new(acquisition).poll(&mut Context::from_waker(&waker)).map(Some)
    }
}

impl<A: Send + 'static> Wake for Slot<A> {
    fn wake(self: Arc<Self>) {
        self.state.wake();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.state.wake();
    }
}

/// A slot with an acquisition of any type.
pub(super) trait Watched: fmt::Debug + Send + Sync {
    fn state(&self) -> &SlotState;

    /// Takes out the acquisition if it was woken at `woken` and has not been polled since.
    fn give_up(&self, woken: Instant) -> Option<Box<dyn Send>>;
}

impl<A: Send + 'static> Watched for Slot<A> {
    fn state(&self) -> &SlotState {
        &self.state
    }

    fn give_up(&self, woken: Instant) -> Option<Box<dyn Send>> {
        let mut slot = match self.acquisition.try_lock() {
            Ok(slot) => slot,
            Err(TryLockError::Poisoned(slot)) => slot.into_inner(),
            // The acquisition is being polled.
            Err(TryLockError::WouldBlock) => return None,
        };
        if self.state.woken() != Some(woken) {
            return None;
        }
        slot.take().map(|acquisition| -> Box<dyn Send> { Box::new(acquisition) })
    }
}

impl<A> fmt::Debug for Slot<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("state", &self.state).finish_non_exhaustive()
    }
}
