//! The queue of releases: which release is tried next, and which releases are in doubt.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    sync::Arc,
};

use crate::{
    backend::Releasable,
    engine::{in_flight::InFlightGuard, loss::ReleaseTarget},
    metrics::Counted,
    time::clock::Instant,
};

/// Upper bound on unanswered probes: the number that begin within two seconds, the time after which stores give up a
/// hanging request.
const MAX_UNANSWERED_PROBES: usize = 8;
/// Upper bound on concurrent releases: two full batches of requests to Redis (`MAX_BATCH`).
const MAX_CONCURRENT_RELEASES: usize = 256;

/// A lock to be released.
pub(super) struct Entry {
    pub(super) releasable: Arc<dyn Releasable>,
    pub(super) target: ReleaseTarget,
    /// The time by which the lock's lease must have ended by itself.
    pub(super) until: Instant,
    /// Unique among the entries.
    number: u64,
    /// How often the release has come into doubt.
    doubts: u32,
    /// Counts the entry in the metrics once it has come into doubt.
    pub(super) in_doubt: Option<(Counted, InFlightGuard)>,
    _pending: InFlightGuard,
}

/// The order of the entries in doubt: how often an entry came into doubt, then its number.
type Place = (u32, u64);

#[derive(Default)]
pub(super) struct Queue {
    /// Entries that were not tried yet, or are to be tried anew.
    pub(super) due: VecDeque<Entry>,
    /// Entries that failed, and are tried again when a probe is answered.
    in_doubt: BTreeMap<Place, Entry>,
    /// The entries in doubt by the ends of their leases.
    lease_ends: BTreeSet<(Instant, Place)>,
    /// Entries that failed before a probe was answered, and are tried again when there is room.
    returning: BTreeMap<Place, Entry>,
    /// The number of attempts that count against [`MAX_CONCURRENT_RELEASES`].
    pub(super) under_way: usize,
    /// The number of unanswered probes.
    pub(super) probes: usize,
    /// Whether the latest probe tried the oldest entry rather than the newest.
    probed_oldest: bool,
    pub(super) prober_runs: bool,
}

impl Entry {
    pub(super) fn new(
        releasable: Arc<dyn Releasable>,
        target: ReleaseTarget,
        until: Instant,
        number: u64,
        pending: InFlightGuard,
    ) -> Self {
        Self { releasable, target, until, number, doubts: 0, in_doubt: None, _pending: pending }
    }
}

impl Queue {
    /// Takes the next entry, if there is room for it.
    pub(super) fn next(&mut self) -> Option<Entry> {
        if self.under_way >= MAX_CONCURRENT_RELEASES {
            return None;
        }
        let next = self.due.pop_front().or_else(|| self.returning.pop_first().map(|(_, entry)| entry))?;
        self.under_way += 1;
        Some(next)
    }

    /// Takes the entry for the next probe. Of the entries that failed least often, the oldest and the newest take
    /// turns.
    ///
    /// Therefore the newest entry does not wait behind many entries that the store refuses to release, and the oldest
    /// entry does not wait forever.
    pub(super) fn next_probe(&mut self) -> Option<Entry> {
        if self.probes >= MAX_UNANSWERED_PROBES {
            return None;
        }
        let (oldest, _) = self.in_doubt.first_key_value()?;
        let (newest, _) = self.in_doubt.range(..=(oldest.0, u64::MAX)).next_back()?;
        self.probed_oldest = !self.probed_oldest;
        let place = if self.probed_oldest { *oldest } else { *newest };
        let entry = self.in_doubt.remove(&place)?;
        self.lease_ends.remove(&(entry.until, place));
        self.probes += 1;
        Some(entry)
    }

    pub(super) fn doubt(&mut self, mut entry: Entry) {
        entry.target = ReleaseTarget::Remains;
        entry.doubts = entry.doubts.saturating_add(1);
        let place = (entry.doubts, entry.number);
        self.lease_ends.insert((entry.until, place));
        self.in_doubt.insert(place, entry);
    }

    /// Takes entries in doubt whose leases have ended by themselves, at most `MAX_AT_ONCE`. The result is empty only if
    /// there is no such entry.
    pub(super) fn ended(&mut self) -> Vec<Entry> {
        // The number is low, so that a destructor does not wait long for the mutex of the queue.
        const MAX_AT_ONCE: usize = 1_024;
        let now = Instant::now();
        let mut ended = Vec::new();
        while ended.len() < MAX_AT_ONCE && self.lease_ends.first().is_some_and(|(until, _)| *until <= now) {
            ended.extend(self.lease_ends.pop_first().and_then(|(_, place)| self.in_doubt.remove(&place)));
        }
        ended
    }

    /// Returns whether no release is in doubt or being probed: a release comes into doubt again if its probe fails.
    pub(super) fn is_settled(&self) -> bool {
        self.in_doubt.is_empty() && self.probes == 0
    }

    /// Lets all entries in doubt be tried again. Returns `lease_ends`, which the caller drops once the queue is
    /// unlocked.
    pub(super) fn return_all(&mut self) -> BTreeSet<(Instant, Place)> {
        if self.returning.is_empty() {
            mem::swap(&mut self.returning, &mut self.in_doubt);
        } else {
            self.returning.append(&mut self.in_doubt);
        }
        mem::take(&mut self.lease_ends)
    }
}
