//! Releases in the background: of dropped holds, and of attempts that may have left something in the store.
//!
//! A release is tried at once. A release that fails is in doubt until the store answers. While releases are in doubt,
//! the prober tries one of them after each pause; the pauses grow to a quarter of a second. Each probe takes a release
//! that has failed least often. Therefore a lock that the store refuses to release does not keep other locks from being
//! released, and a failing store gets few requests even if very many releases are in doubt. When a probe is answered,
//! the store is back, and all other releases are tried again.

mod marks;
mod queue;

use std::{
    fmt, mem,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use self::{
    marks::Marks,
    queue::{Entry, Queue},
};
use crate::{
    LockKey,
    backend::{Releasable, ReleasesLater},
    background::Background,
    engine::{
        in_flight::{InFlight, InFlightGuard},
        loss::ReleaseTarget,
    },
    log_limiter::LogLimiter,
    metrics::Metrics,
    sync::{check_or_wait, lock},
    time::{
        backoff::backoff,
        clock::{self, Instant},
    },
};

/// The longest pause between two probes, and the time after which an unanswered release makes room for other releases.
const PROBE_PAUSE: Duration = Duration::from_millis(250);

/// Repeats each release until the store gives a definite answer or the lease must have ended by itself.
pub(crate) struct Releaser {
    /// Made before the first release, so that a destructor that releases a lock need not start the library's thread.
    background: Background,
    metrics: Arc<Metrics>,
    pending: Arc<InFlight>,
    doubtful: Arc<InFlight>,
    marks: Arc<Marks>,
    numbers: AtomicU64,
    queue: Mutex<Queue>,
    /// When the latest answered probe began.
    answered: Mutex<Instant>,
    /// Notified of each change of `answered`.
    changed: Notify,
    /// Ends the prober's pause early.
    probe_now: Notify,
    /// Returns the prober's pause before a probe, by the number of the probe, from 0.
    pause: fn(u32) -> Duration,
}

impl Releaser {
    pub(crate) fn new(background: Background, metrics: Arc<Metrics>) -> Arc<Self> {
        Self::with_pause(background, metrics, |probe| backoff(probe).min(PROBE_PAUSE))
    }

    fn with_pause(background: Background, metrics: Arc<Metrics>, pause: fn(u32) -> Duration) -> Arc<Self> {
        Arc::new(Self {
            background,
            metrics,
            pending: Arc::default(),
            doubtful: Arc::default(),
            marks: Arc::default(),
            numbers: AtomicU64::new(0),
            queue: Mutex::default(),
            answered: Mutex::new(Instant::now()),
            changed: Notify::new(),
            probe_now: Notify::new(),
            pause,
        })
    }

    /// Returns the number of releases that have failed so far and are repeated.
    pub(crate) fn in_doubt(&self) -> usize {
        self.doubtful.count()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Starts a release, and returns at once. May be called on any thread, also by a destructor.
    pub(crate) fn release(
        self: &Arc<Self>,
        releasable: Arc<dyn Releasable>,
        target: ReleaseTarget,
        until: Instant,
    ) {
        self.put(self.entry(releasable, target, until, self.pending()));
    }

    /// Removes a mark, at once if the store can do this, and else in the background: until the moment `until`, from which
    /// the mark is of no use. A shutdown waits for the removal until `awaited_until` at most.
    pub(crate) fn remove_mark(
        self: &Arc<Self>,
        mark: Arc<dyn Releasable>,
        awaited_until: Instant,
        until: Instant,
    ) {
        if mark.release_now().is_none() {
            let (removal, pending) = self.marks.begin(mark, awaited_until);
            self.put(self.entry(removal, ReleaseTarget::Remains, until, pending));
        }
    }

    /// Completes when no mark is being removed, or one has been for as long as a shutdown would wait for it.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn marks_removed(&self) {
        self.marks.drained().await;
    }

    /// Returns whether this process is removing a mark with this stored name.
    pub(crate) fn is_removing_mark(&self, stored: &str) -> bool {
        self.marks.has(stored)
    }

    fn pending(&self) -> InFlightGuard {
        InFlightGuard::new(Arc::clone(&self.pending))
    }

    fn entry(
        &self,
        releasable: Arc<dyn Releasable>,
        target: ReleaseTarget,
        until: Instant,
        pending: InFlightGuard,
    ) -> Entry {
        Entry::new(releasable, target, until, self.numbers.fetch_add(1, Ordering::Relaxed), pending)
    }

    /// Starts the release of the remains of a lost hold, but neither before `start` nor while the lock is retained.
    ///
    /// A shutdown waits for this release, unless the lock is retained beyond `start`.
    pub(crate) fn release_after(
        self: &Arc<Self>,
        start: Instant,
        retained_until: Instant,
        releasable: Arc<dyn Releasable>,
        until: Instant,
    ) {
        let this = Arc::clone(self);
        if start < retained_until {
            return self.background.spawn(async move {
                clock::sleep_until(retained_until).await;
                this.release(releasable, ReleaseTarget::Remains, until);
            });
        }
        let entry = self.entry(releasable, ReleaseTarget::Remains, until, self.pending());
        self.background.spawn(async move {
            clock::sleep_until(start).await;
            this.put(entry);
        });
    }

    /// Starts the next probe at once, and completes when nothing is left to release. Marks of periods are awaited for no
    /// longer than the release of a lock.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn drained(&self) {
        self.probe_now.notify_one();
        self.pending.drained().await;
        self.marks_removed().await;
    }

    fn put(self: &Arc<Self>, entry: Entry) {
        self.queue().due.push_back(entry);
        self.fill();
    }

    /// Starts the due releases, as far as the bound on concurrent releases allows.
    fn fill(self: &Arc<Self>) {
        loop {
            let Some(entry) = self.queue().next() else { return };
            self.background.spawn(try_release(Attempt::new(self, entry, Room::Shared)));
        }
    }

    /// Puts a failed release among the releases in doubt, and starts the prober if necessary.
    fn doubt(self: &Arc<Self>, mut entry: Entry) {
        entry.in_doubt.get_or_insert_with(|| {
            let counted = self.metrics.in_doubt(entry.releasable.key().class());
            (counted, InFlightGuard::new(Arc::clone(&self.doubtful)))
        });
        let mut queue = self.queue();
        queue.doubt(entry);
        if !mem::replace(&mut queue.prober_runs, true) {
            drop(queue);
            self.background.spawn(Prober(Arc::clone(self)).run());
        }
    }

    /// Tries all releases in doubt again, because a probe that began at `began` was answered.
    fn store_is_back(self: &Arc<Self>, began: Instant) {
        // Attempts that began before `began` start over, because their requests may have been lost while the store was
        // away.
        let mut answered = lock(&self.answered);
        if *answered < began {
            *answered = began;
            self.changed.notify_waiters();
        }
        drop(answered);
        let returned = self.queue().return_all();
        // The returned set of lease ends may be very large, so the set is dropped after the queue is unlocked.
        drop(returned);
        self.fill();
    }
}

impl ReleasesLater for Releaser {
    fn release_later(self: Arc<Self>, attempt: Arc<dyn Releasable>, until: Instant) {
        self.release(attempt, ReleaseTarget::Remains, until);
    }
}

impl fmt::Debug for Releaser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Releaser").field("pending", &self.pending).finish_non_exhaustive()
    }
}

/// The bound against which an attempt counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Shared,
    Probe,
    /// No bound: the attempt has had no answer for [`PROBE_PAUSE`], and no longer keeps other releases waiting.
    None,
}

/// An attempt to release. If the attempt is dropped before its lock is known to be free, also by a panic in the store,
/// the release is in doubt.
struct Attempt {
    releaser: Arc<Releaser>,
    entry: Option<Entry>,
    room: Room,
}

impl Attempt {
    fn new(releaser: &Arc<Releaser>, entry: Entry, room: Room) -> Self {
        Self { releaser: Arc::clone(releaser), entry: Some(entry), room }
    }

    fn leave_room(&mut self) {
        match mem::replace(&mut self.room, Room::None) {
            Room::Shared => {
                self.releaser.queue().under_way -= 1;
                self.releaser.fill();
            }
            Room::Probe => self.releaser.queue().probes -= 1,
            Room::None => {}
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.releaser.doubt(entry);
        }
        self.leave_room();
    }
}

async fn try_release(mut attempt: Attempt) {
    let began = Instant::now();
    let releaser = Arc::clone(&attempt.releaser);
    let Some((releasable, until)) =
        attempt.entry.as_ref().map(|entry| (Arc::clone(&entry.releasable), entry.until))
    else {
        return;
    };
    let is_probe = attempt.room == Room::Probe;
    let newer = || check_or_wait(&releaser.changed, || (*lock(&releaser.answered) > began).then_some(()));
    let mut release = releasable.release();
    let slow = tokio::time::sleep(PROBE_PAUSE);
    tokio::pin!(slow);
    let answer = loop {
        tokio::select! {
            biased;
            answer = &mut release => break Some(answer),
            later = newer() => if later.is_some() { break None },
            () = &mut slow, if attempt.room == Room::Shared => attempt.leave_room(),
        }
    };
    drop(release);
    let key = releasable.key();
    match answer {
        Some(Ok(answer)) => {
            if let Some(entry) = attempt.entry.take() {
                entry.target.log(key, answer);
            }
            if is_probe {
                releaser.store_is_back(began);
            }
        }
        Some(Err(error)) if until.has_passed() => {
            tracing::debug!(%error, "the last answer to a release");
            ended_by_itself(key);
            attempt.entry = None;
        }
        Some(Err(error)) => tracing::debug!(%key, %error, "release failed, trying again"),
        None => {
            if let Some(mut entry) = attempt.entry.take() {
                entry.target = ReleaseTarget::Remains;
                releaser.put(entry);
            }
        }
    }
}

fn ended_by_itself(key: &LockKey) {
    static LEFT: LogLimiter = LogLimiter::new();
    LEFT.log(
        "",
        key,
        || tracing::warn!(%key, "not released; the lease has ended by itself"),
        |left, key| {
            tracing::warn!(
                left,
                key,
                "more locks not released, whose leases have ended; the last one is named"
            );
        },
    );
}

/// The job that probes the store with the releases in doubt, and ends when no release is in doubt.
struct Prober(Arc<Releaser>);

impl Prober {
    async fn run(self) {
        let releaser = &self.0;
        for probe in 0.. {
            tokio::select! {
                biased;
                () = tokio::time::sleep((releaser.pause)(probe)) => {}
                () = releaser.probe_now.notified() => {}
            }
            loop {
                let ended = releaser.queue().ended();
                if ended.is_empty() {
                    break;
                }
                for entry in ended {
                    ended_by_itself(entry.releasable.key());
                }
            }
            let next = releaser.queue().next_probe();
            if let Some(entry) = next {
                releaser.background.spawn(try_release(Attempt::new(releaser, entry, Room::Probe)));
            }
            if releaser.queue().is_settled() {
                return;
            }
        }
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        if queue.is_settled() {
            queue.prober_runs = false;
        } else {
            // A release has come into doubt since the last check, or a panic has ended this job.
            drop(queue);
            self.0.background.spawn(Prober(Arc::clone(&self.0)).run());
        }
    }
}

#[cfg(test)]
mod tests;
