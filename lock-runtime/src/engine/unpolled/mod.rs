//! Gives up acquisitions whose futures are kept and not polled.
//!
//! A future that is not polled does nothing, but what it asked for stays: a place in a queue, a grant that was sent to
//! it, the lead of its cohort, locks that it holds while it waits for others. So each acquisition that has to wait lies
//! in a [`Slot`], within reach of the library's own thread. An acquisition that was woken and has not been polled for
//! [`POLL_GRACE`] is dropped there, and the destructors that clean up behind a dropped future clean up behind it as well.
//!
//! The mutex of the slot decides between entering and giving up: an acquisition is polled or dropped under it. What was
//! dropped cannot enter any more, whatever lies in its channels, and has no say in its cohort.
//!
//! Being woken is the sign that something waits for the poll: a grant, an answer, the end of the wait. A waiter deep in a
//! queue is not woken, costs nothing and keeps its place. One that is in the way of others all the same is woken here,
//! to see whether it lives.

mod slot;

use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    mem,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    task::{Poll, Waker},
    time::Duration,
};

use tokio::sync::Notify;

pub(crate) use self::slot::Keeps;
use self::slot::{Slot, Watched};
use crate::{
    LockKey, background,
    engine::cohort::Cohorts,
    sync::lock,
    time::clock::{self, Instant},
};

/// How long a future that was woken may stay unpolled. A runtime that is blocked for longer looks the same.
pub(crate) const POLL_GRACE: Duration = Duration::from_secs(2);

/// How often waiting acquisitions are looked at, beside the moments at which one is due.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How many are looked at without a pause for those that begin or end to wait.
const LOOKED_AT_TOGETHER: usize = 1_024;

/// The acquisitions of one store that wait.
#[derive(Debug)]
pub(crate) struct Waiting {
    cohorts: Arc<Cohorts>,
    slots: Mutex<Slots>,
    begun: Notify,
    /// The manager is shut down: all are polled, and end.
    is_closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Slots {
    by_id: BTreeMap<u64, Arc<dyn Watched>>,
    /// The job looks at the slots; otherwise it sleeps until there is one.
    looked_at: bool,
    started: bool,
}

/// Completes with the output of `acquisition`, which asks for the lock `key`; with `None` when it was given up because
/// it was not polled.
///
/// Where it was polled before and wakes `task`, which polls this, it is not polled now: mostly it is ready when it
/// wakes that task.
///
/// # Cancel safety
/// Dropping it drops `acquisition`.
pub(crate) fn watch<'a, A>(
    waiting: &'a Arc<Waiting>,
    id: u64,
    key: &LockKey,
    keeps: Keeps,
    task: Option<Waker>,
    acquisition: A,
) -> impl Future<Output = Option<A::Output>> + Send + use<'a, A>
where
    A: Future + Unpin + Send + 'static,
{
    let mut polled = task.is_none();
    let entry = Entry { waiting, slot: Arc::new(Slot::new(id, key.clone(), keeps, task, acquisition)) };
    if waiting.add(id, Arc::<Slot<A>>::clone(&entry.slot)) {
        background::handle().spawn(run(Arc::clone(waiting)));
    }
    // A shutdown has woken those that were there by then.
    polled |= waiting.is_closed.load(Ordering::SeqCst);
    poll_fn(move |cx| if mem::replace(&mut polled, true) { entry.slot.poll(cx) } else { Poll::Pending })
}

/// A slot's place among those that are looked at.
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

impl Waiting {
    pub(crate) fn new(cohorts: &Arc<Cohorts>) -> Arc<Self> {
        Arc::new(Self {
            cohorts: Arc::clone(cohorts),
            slots: Mutex::default(),
            begun: Notify::new(),
            is_closed: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        lock(&self.slots)
    }

    /// Whether an acquisition was woken and is not polled to look at the answer.
    pub(crate) fn is_blind(&self, id: u64) -> bool {
        let now = Instant::now();
        self.lock().by_id.get(&id).is_some_and(|slot| slot.signs().is_blind(now))
    }

    /// Lets the job look at it; returns whether the job must be started.
    fn add(&self, id: u64, slot: Arc<dyn Watched>) -> bool {
        let mut slots = self.lock();
        slots.by_id.insert(id, slot);
        if !mem::replace(&mut slots.looked_at, true) {
            self.begun.notify_one();
        }
        !mem::replace(&mut slots.started, true)
    }

    fn remove(&self, id: u64) {
        let slot = self.lock().by_id.remove(&id);
        // Not under the lock: with the last handle goes what it kept.
        drop(slot);
    }

    /// From here on each of them is polled, if its task lives.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        let mut from = 0;
        loop {
            let slots = self.some_from(from);
            let Some(last) = slots.last() else { return };
            from = last.signs().id + 1;
            for slot in slots {
                slot.signs().wake_owner();
            }
        }
    }

    /// The slots that come next, from `id` on.
    fn some_from(&self, id: u64) -> Vec<Arc<dyn Watched>> {
        self.lock().by_id.range(id..).take(LOOKED_AT_TOGETHER).map(|(_, slot)| Arc::clone(slot)).collect()
    }

    /// Whether the job may sleep until there is a slot.
    fn is_empty(&self) -> bool {
        let mut slots = self.lock();
        slots.looked_at = !slots.by_id.is_empty();
        !slots.looked_at
    }
}

/// The job. It ends when the last handle to the store is gone.
async fn run(waiting: Arc<Waiting>) {
    let mut awake_since = Instant::now();
    let mut next = awake_since + LOOK_EVERY;
    loop {
        clock::sleep_until(next).await;
        if Arc::strong_count(&waiting) == 1 {
            return;
        }
        let now = Instant::now();
        // The process or the machine stood still, and the tasks that poll with it.
        if now > next + LOOK_EVERY {
            awake_since = now;
        }
        next = look(&waiting, now, awake_since);
        if waiting.is_empty() {
            tokio::select! {
                () = waiting.begun.notified() => {}
                // Not longer than a minute without a look whether anybody still uses the store.
                () = clock::sleep_until(Instant::now() + Duration::from_secs(60)) => {}
            }
            next = Instant::now() + LOOK_EVERY;
        }
    }
}

/// Gives up what is not polled; returns when to look again.
fn look(waiting: &Waiting, now: Instant, awake_since: Instant) -> Instant {
    let mut next = now + LOOK_EVERY;
    let mut from = 0;
    loop {
        let slots = waiting.some_from(from);
        let Some(last) = slots.last() else { return next };
        from = last.signs().id + 1;
        for slot in slots {
            let signs = slot.signs();
            match signs.woken() {
                Some(woken) => {
                    let due = woken.max(awake_since) + POLL_GRACE;
                    if now < due {
                        next = next.min(due);
                    } else if let Some(acquisition) = slot.give_up(woken) {
                        waiting.remove(signs.id);
                        tracing::debug!(key = %signs.key, "given up: its future is kept and not polled");
                        // A task of its own, which a panic in a destructor ends alone.
                        tokio::spawn(async move {
                            drop(acquisition);
                            // If its owner lives after all, it begins anew.
                            slot.signs().wake_owner();
                        });
                    }
                }
                None if signs.is_unknown() => signs.wake_unknown(),
                None if signs.is_in_the_way(&waiting.cohorts) => signs.ask(),
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
