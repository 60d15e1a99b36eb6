//! Gives up acquisitions whose futures stay unpolled.
//!
//! An unpolled future does nothing, but it keeps its place in a queue, a grant that was sent to it, the lead of its
//! cohort, and locks that it holds while it waits for others. So each acquisition that has to wait is in a [`Slot`],
//! within reach of the library's own thread. That thread drops an acquisition that was woken and has not been polled
//! for [`POLL_GRACE`], and the same destructors clean up as for any dropped future.
//!
//! The mutex of the slot decides between entering and giving up: an acquisition is polled or dropped while the mutex is
//! locked. Once dropped, an acquisition can no longer enter, whatever its channels contain, and has no effect on its
//! cohort.
//!
//! Being woken is the sign that something waits for the poll: a grant, an answer, the end of the wait. A waiter deep in
//! a queue is not woken, costs nothing and keeps its place. An acquisition that blocks others although nothing wakes it
//! is woken here, to see whether its task is alive.

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
    time::Duration,
};

use tokio::sync::Notify;

pub(crate) use self::slot::Keeps;
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

/// Pause between two checks of all waiting acquisitions. A check is earlier if an acquisition is due before.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Upper bound on slots listed while the mutex is locked: acquisitions that begin or end to wait need it too.
const LOOKED_AT_TOGETHER: usize = 1_024;

/// The waiting acquisitions of one store.
#[derive(Debug)]
pub(crate) struct Waiting {
    cohorts: Arc<Cohorts>,
    /// A slot is in the part with the number of its id.
    slots: Sharded<Slots>,
    /// Whether the job checks the slots; otherwise, the job sleeps until there is a slot.
    looked_at: AtomicBool,
    started: AtomicBool,
    begun: Notify,
    /// Whether the manager is shut down: all acquisitions are then polled, and end.
    is_closed: AtomicBool,
}

/// Completes with the output of `acquisition`, which asks for `lock`, or with `None` if it was given up because
/// it was unpolled.
///
/// With a `task`, the acquisition was polled before and wakes that task, which polls this future. The acquisition is
/// not polled again at once: usually it is ready when it wakes the task.
///
/// # Cancel safety
/// Dropping this future drops `acquisition`.
pub(crate) fn watch<'a, A>(
    waiting: &'a Arc<Waiting>,
    id: u64,
    lock: &LockId,
    keeps: Keeps,
    task: Option<Waker>,
    acquisition: A,
) -> impl Future<Output = Option<A::Output>> + Send + use<'a, A>
where
    A: Future + Unpin + Send + 'static,
{
    let mut polled = task.is_none();
    let entry = Entry { waiting, slot: Arc::new(Slot::new(id, lock.clone(), keeps, task, acquisition)) };
    if waiting.add(id, Arc::<Slot<A>>::clone(&entry.slot)) {
        background::handle().spawn(run(Arc::clone(waiting)));
    }
    // A shutdown has woken only the acquisitions that were there by then.
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
        self.waiting.remove(self.slot.signs().id);
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
            looked_at: AtomicBool::new(false),
            started: AtomicBool::new(false),
            begun: Notify::new(),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Returns whether an acquisition was woken and has not been polled for some time, blind to its answer.
    pub(crate) fn is_blind(&self, id: u64) -> bool {
        let now = Instant::now();
        self.slots.at(id).get(&id).is_some_and(|slot| slot.signs().is_blind(now))
    }

    /// Lets the job check the slot; returns whether the job must be started.
    fn add(&self, id: u64, slot: Arc<dyn Watched>) -> bool {
        self.slots.at(id).insert(id, slot);
        // Flags are read before they are written, because they are rarely false.
        let is_first = |flag: &AtomicBool| !flag.load(Ordering::SeqCst) && !flag.swap(true, Ordering::SeqCst);
        if is_first(&self.looked_at) {
            self.begun.notify_one();
        }
        is_first(&self.started)
    }

    fn remove(&self, id: u64) {
        let slot = self.slots.at(id).remove(&id);
        // The slot is dropped after the mutex is unlocked: dropping the last handle drops the acquisition.
        drop(slot);
    }

    /// Wakes the tasks of all acquisitions; from now on each acquisition is polled, if its task is alive.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.each(|slot| slot.signs().wake_owner());
    }

    /// Visits each slot, without a mutex.
    fn each(&self, mut visit: impl FnMut(Arc<dyn Watched>)) {
        for part in Sharded::<Slots>::numbers() {
            let mut from = 0;
            loop {
                let slots = self.some_from(part, from);
                let Some(last) = slots.last() else { break };
                from = last.signs().id + 1;
                slots.into_iter().for_each(&mut visit);
            }
        }
    }

    /// Returns the next slots of a part, from `id` on.
    fn some_from(&self, part: u64, id: u64) -> Vec<Arc<dyn Watched>> {
        let slots = self.slots.at(part);
        slots.range(id..).take(LOOKED_AT_TOGETHER).map(|(_, slot)| Arc::clone(slot)).collect()
    }

    /// Returns whether the job may sleep until there is a slot, and records the answer.
    fn is_empty(&self) -> bool {
        // The flag is cleared first, so that a slot that is added behind the check notifies the job.
        self.looked_at.store(false, Ordering::SeqCst);
        let is_empty = self.slots.each().all(|slots| slots.is_empty());
        if !is_empty {
            self.looked_at.store(true, Ordering::SeqCst);
        }
        is_empty
    }
}

/// The job, which ends when the last handle to the store is gone.
async fn run(waiting: Arc<Waiting>) {
    let mut awake_since = Instant::now();
    let mut next = awake_since + LOOK_EVERY;
    loop {
        clock::sleep_until(next).await;
        if Arc::strong_count(&waiting) == 1 {
            return;
        }
        let now = Instant::now();
        // The process or the machine stood still, and with it the tasks that poll.
        if now > next + LOOK_EVERY {
            awake_since = now;
        }
        next = look(&waiting, now, awake_since);
        if waiting.is_empty() {
            tokio::select! {
                biased;
                () = waiting.begun.notified() => {}
                // The job sleeps for at most a minute, to check whether the store is still used.
                () = clock::sleep_until(Instant::now() + Duration::from_secs(60)) => {}
            }
            next = Instant::now() + LOOK_EVERY;
        }
    }
}

/// Gives up unpolled acquisitions; returns when to check again.
fn look(waiting: &Waiting, now: Instant, awake_since: Instant) -> Instant {
    let mut next = now + LOOK_EVERY;
    waiting.each(|slot| {
        let signs = slot.signs();
        match signs.woken() {
            Some(woken) => {
                let due = woken.max(awake_since) + POLL_GRACE;
                if now < due {
                    next = next.min(due);
                } else if let Some(acquisition) = slot.give_up(woken) {
                    waiting.remove(signs.id);
                    tracing::debug!(key = %signs.lock.key, "given up: its future is not polled");
                    // Dropped in a task of its own: a panic in a destructor ends only that task.
                    tokio::spawn(async move {
                        drop(acquisition);
                        // A task that is alive after all starts its acquisition over.
                        slot.signs().wake_owner();
                    });
                }
            }
            None if signs.is_unknown() => signs.wake_unknown(),
            None if signs.is_in_the_way(&waiting.cohorts) => signs.ask(),
            None => {}
        }
    });
    next
}

#[cfg(test)]
mod tests;
