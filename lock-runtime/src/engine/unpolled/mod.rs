//! Gives up acquisitions whose futures stay unpolled.
//!
//! An unpolled future does nothing, but it keeps its place in a queue, a grant that was sent to it, the lead of its
//! cohort, and locks that it already holds. So each acquisition that has to wait is in a [`Slot`], within reach of a
//! job on the library's own thread. If an acquisition was woken and has not been polled for [`POLL_GRACE`], the job
//! gives up the acquisition: it is dropped, and the same destructors clean up as for any dropped future.
//!
//! The mutex of the slot decides between entering and giving up: while the mutex is locked, an acquisition is either
//! polled or taken out of its slot. An acquisition that was taken out is not polled again, so it cannot enter, even if
//! a grant has been sent to it. The acquisition then leaves its cohort like any dropped acquisition.
//!
//! A wake-up is the sign that something is ready for the acquisition: a grant, an answer, or the end of the wait. A
//! waiter deep in a queue is not woken, costs nothing and keeps its place. If an acquisition blocks others and nothing
//! wakes it, the job wakes it, to see whether its task is alive.

mod slot;

use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Poll, Waker},
    thread,
    time::Duration,
};

use tokio::sync::Notify;

pub(crate) use self::slot::Withheld;
use self::slot::{Slot, Watched};
use crate::{
    backend::LockId,
    background,
    engine::cohort::Cohorts,
    sync::Sharded,
    time::clock::{self, Instant},
};

/// How long a woken future may stay unpolled. A runtime that is blocked for longer looks the same as an unpolled
/// future.
pub(crate) const POLL_GRACE: Duration = Duration::from_secs(2);

/// Pause between two checks of all waiting acquisitions. A check comes sooner if the grace of an acquisition ends
/// sooner.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Upper bound on the slots listed while the mutex of a shard is locked: an acquisition that begins or ends its wait
/// needs the mutex, too.
const MAX_SLOTS_PER_LIST: usize = 1_024;

/// The waiting acquisitions of one store.
#[derive(Debug)]
pub(crate) struct Waiting {
    cohorts: Arc<Cohorts>,
    /// The id of a slot selects its shard.
    slots: Sharded<Slots>,
    /// Whether the job checks the slots. Otherwise, the job sleeps until a slot is added.
    is_active: AtomicBool,
    started: AtomicBool,
    begun: Notify,
    /// Whether the manager is shut down. Each acquisition is then polled, and ends.
    is_closed: AtomicBool,
}

/// Completes with the output of `acquisition`, which asks for `lock`, or with `None` if the acquisition was given up
/// because it was not polled.
///
/// `task` is given if the acquisition has already been polled, with this waker, in the task that polls this future. The
/// first poll of this future then does not poll the acquisition again, because the acquisition is usually not ready
/// before it has woken the task.
///
/// # Cancel safety
/// Dropping this future drops `acquisition`.
pub(crate) fn watch<'a, A>(
    waiting: &'a Arc<Waiting>,
    id: u64,
    lock: &LockId,
    withheld: Withheld,
    task: Option<Waker>,
    acquisition: A,
) -> impl Future<Output = Option<A::Output>> + Send + use<'a, A>
where
    A: Future + Unpin + Send + 'static,
{
    let mut polled = task.is_none();
    let entry = Entry { waiting, slot: Arc::new(Slot::new(id, lock.clone(), withheld, task, acquisition)) };
    if waiting.add(id, Arc::<Slot<A>>::clone(&entry.slot)) {
        background::handle().spawn(Job(Arc::clone(waiting)).run());
    }
    // A shutdown does not wake an acquisition whose slot is added later, so this acquisition is polled at once.
    polled |= waiting.is_closed.load(Ordering::SeqCst);
    poll_fn(move |cx| if mem::replace(&mut polled, true) { entry.slot.poll(cx) } else { Poll::Pending })
}

/// The registration of a slot for the checks.
struct Entry<'a, A: Send + 'static> {
    waiting: &'a Waiting,
    slot: Arc<Slot<A>>,
}

impl<A: Send + 'static> Drop for Entry<'_, A> {
    fn drop(&mut self) {
        self.waiting.remove(self.slot.state().id);
        let acquisition = self.slot.take();
        drop(acquisition);
    }
}

type Slots = BTreeMap<u64, Arc<dyn Watched>>;

impl Waiting {
    pub(crate) fn new(cohorts: &Arc<Cohorts>) -> Arc<Self> {
        Arc::new(Self {
            cohorts: Arc::clone(cohorts),
            slots: Sharded::default(),
            is_active: AtomicBool::new(false),
            started: AtomicBool::new(false),
            begun: Notify::new(),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Returns whether an acquisition was woken and has not been polled for [`BLIND_AFTER`](slot::BLIND_AFTER) since,
    /// so that it has not seen its answer.
    pub(crate) fn is_blind(&self, id: u64) -> bool {
        let now = Instant::now();
        self.slots.at(id).get(&id).is_some_and(|slot| slot.state().is_blind(now))
    }

    /// Lets the job check the slot; returns whether the job must be started.
    fn add(&self, id: u64, slot: Arc<dyn Watched>) -> bool {
        self.slots.at(id).insert(id, slot);
        // The flags are rarely false, and reading a flag is cheaper than writing it.
        let is_first = |flag: &AtomicBool| !flag.load(Ordering::SeqCst) && !flag.swap(true, Ordering::SeqCst);
        if is_first(&self.is_active) {
            self.begun.notify_one();
        }
        is_first(&self.started)
    }

    fn remove(&self, id: u64) {
        let slot = self.slots.at(id).remove(&id);
        // The slot is dropped after the mutex is unlocked, because dropping the last handle drops the acquisition.
        drop(slot);
    }

    /// Wakes the tasks of all acquisitions, so that each acquisition is polled if its task is alive. Later acquisitions
    /// are polled at once.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.each(|slot| slot.state().wake_owner());
    }

    /// Visits each slot. No mutex is locked during a visit.
    fn each(&self, mut visit: impl FnMut(Arc<dyn Watched>)) {
        for shard in Sharded::<Slots>::numbers() {
            let mut from = 0;
            loop {
                let slots = self.some_from(shard, from);
                let Some(last) = slots.last() else { break };
                from = last.state().id + 1;
                slots.into_iter().for_each(&mut visit);
            }
        }
    }

    /// Returns the slots of a shard from `id` on, up to [`MAX_SLOTS_PER_LIST`] slots.
    fn some_from(&self, shard: u64, id: u64) -> Vec<Arc<dyn Watched>> {
        let slots = self.slots.at(shard);
        slots.range(id..).take(MAX_SLOTS_PER_LIST).map(|(_, slot)| Arc::clone(slot)).collect()
    }

    /// Returns whether there is no slot, so that the job may sleep, and records the result in `is_active`.
    fn is_empty(&self) -> bool {
        // The flag is cleared first, so that the job is notified of a slot that is added after its shard was checked.
        self.is_active.store(false, Ordering::SeqCst);
        let is_empty = self.slots.each().all(|slots| slots.is_empty());
        if !is_empty {
            self.is_active.store(true, Ordering::SeqCst);
        }
        is_empty
    }
}

/// The job, which ends when the engine is gone. If the job panics, for example in a waker, the job starts again.
struct Job(Arc<Waiting>);

impl Job {
    async fn run(self) {
        let waiting = &self.0;
        let mut awake_since = Instant::now();
        let mut next = awake_since + CHECK_INTERVAL;
        loop {
            clock::sleep_until(next).await;
            if Arc::strong_count(waiting) == 1 {
                return;
            }
            let now = Instant::now();
            // If this check comes so late, the process or the machine was suspended, and no task could poll, so each
            // grace starts anew.
            if now > next + CHECK_INTERVAL {
                awake_since = now;
            }
            next = check_all(waiting, now, awake_since);
            if waiting.is_empty() {
                tokio::select! {
                    biased;
                    () = waiting.begun.notified() => {}
                    // The job wakes up at least once a minute, to check whether the engine still exists.
                    () = clock::sleep_until(Instant::now() + Duration::from_secs(60)) => {}
                }
                next = Instant::now() + CHECK_INTERVAL;
            }
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if thread::panicking() {
            background::handle().spawn(Self(Arc::clone(&self.0)).run());
        }
    }
}

/// Gives up unpolled acquisitions; returns when to check again.
fn check_all(waiting: &Waiting, now: Instant, awake_since: Instant) -> Instant {
    let mut next = now + CHECK_INTERVAL;
    waiting.each(|slot| {
        let state = slot.state();
        match state.woken() {
            Some(woken) => {
                let due = woken.max(awake_since) + POLL_GRACE;
                if now < due {
                    next = next.min(due);
                } else if let Some(acquisition) = slot.give_up(woken) {
                    waiting.remove(state.id);
                    tracing::debug!(key = %state.lock.key, "given up: its future is not polled");
                    // The acquisition is dropped in a new task, so that a panic in a destructor ends only this task.
                    tokio::spawn(async move {
                        drop(acquisition);
                        // If the task of the acquisition is alive after all, that task starts the acquisition over.
                        slot.state().wake_owner();
                    });
                }
            }
            None if state.is_unknown() => state.wake_unknown(),
            None if state.blocks_others(&waiting.cohorts) => state.probe(),
            None => {}
        }
    });
    next
}

#[cfg(test)]
mod tests;
