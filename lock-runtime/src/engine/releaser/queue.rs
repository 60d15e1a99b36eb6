//! The locks to be released: which is tried next, and which are in doubt.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    sync::Arc,
};

use crate::{
    backend::Releasable,
    engine::{in_flight::InFlightGuard, loss::Ends},
    time::clock::Instant,
};

/// Upper bound on unanswered probes: as many as begin within two seconds, after which stores give up a hanging request.
const PROBES: usize = 8;
/// Upper bound on concurrent releases: two full groups of Redis.
const MAX_CONCURRENT_RELEASES: usize = 256;

/// A lock to be released.
pub(super) struct Entry {
    pub(super) releasable: Arc<dyn Releasable>,
    pub(super) ends: Ends,
    /// When the lock's lease must have ended by itself.
    pub(super) until: Instant,
    /// Unique among the entries.
    number: u64,
    /// How often the release came into doubt.
    doubts: u32,
    _pending: InFlightGuard,
}

/// How often an entry came into doubt, and its number.
type Place = (u32, u64);

#[derive(Default)]
pub(super) struct Queue {
    /// Entries that were not tried yet, or are to be tried anew.
    pub(super) due: VecDeque<Entry>,
    /// Entries that failed, and are tried again when a probe is answered.
    in_doubt: BTreeMap<Place, Entry>,
    /// The entries in doubt by the ends of their leases.
    ends: BTreeSet<(Instant, Place)>,
    /// Entries that failed before a probe was answered, and are tried again when there is room.
    returning: BTreeMap<Place, Entry>,
    /// The attempts that have room, and next to them the unanswered probes.
    pub(super) under_way: usize,
    pub(super) probes: usize,
    is_turn_of_oldest: bool,
    pub(super) prober_runs: bool,
}

impl Entry {
    pub(super) fn new(
        releasable: Arc<dyn Releasable>,
        ends: Ends,
        until: Instant,
        number: u64,
        pending: InFlightGuard,
    ) -> Self {
        Self { releasable, ends, until, number, doubts: 0, _pending: pending }
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

    /// Takes the next probe from the entries that failed least often: the oldest and the newest by turns.
    ///
    /// Therefore the newest entry does not wait behind many that the store refuses, and the oldest does not wait
    /// forever.
    pub(super) fn next_probe(&mut self) -> Option<Entry> {
        if self.probes >= PROBES {
            return None;
        }
        let (oldest, _) = self.in_doubt.first_key_value()?;
        let (newest, _) = self.in_doubt.range(..=(oldest.0, u64::MAX)).next_back()?;
        self.is_turn_of_oldest = !self.is_turn_of_oldest;
        let place = if self.is_turn_of_oldest { *oldest } else { *newest };
        let entry = self.in_doubt.remove(&place)?;
        self.ends.remove(&(entry.until, place));
        self.probes += 1;
        Some(entry)
    }

    pub(super) fn doubt(&mut self, mut entry: Entry) {
        entry.ends = Ends::Remains;
        entry.doubts = entry.doubts.saturating_add(1);
        let place = (entry.doubts, entry.number);
        self.ends.insert((entry.until, place));
        self.in_doubt.insert(place, entry);
    }

    /// Takes some of the entries in doubt whose leases have ended by themselves; empty only if there are none.
    pub(super) fn ended(&mut self) -> Vec<Entry> {
        // A batch is small enough not to keep a destructor waiting.
        const AT_ONCE: usize = 1_024;
        let now = Instant::now();
        let mut ended = Vec::new();
        while ended.len() < AT_ONCE && self.ends.first().is_some_and(|(until, _)| *until <= now) {
            ended.extend(self.ends.pop_first().and_then(|(_, place)| self.in_doubt.remove(&place)));
        }
        ended
    }

    /// Returns whether nothing is in doubt, and nothing can come into doubt by a probe.
    pub(super) fn is_settled(&self) -> bool {
        self.in_doubt.is_empty() && self.probes == 0
    }

    /// Has all entries in doubt tried again; returns their ends, which the caller only has to drop.
    pub(super) fn return_all(&mut self) -> BTreeSet<(Instant, Place)> {
        if self.returning.is_empty() {
            mem::swap(&mut self.returning, &mut self.in_doubt);
        } else {
            self.returning.append(&mut self.in_doubt);
        }
        mem::take(&mut self.ends)
    }
}
