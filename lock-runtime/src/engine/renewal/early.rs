//! The renewals for which the store has asked, because a lease may have been revoked.

use std::{collections::HashSet, mem, sync::Mutex, time::Duration};

use crate::{
    key::{MAX_KEY_BYTES, MAX_PREFIX_BYTES},
    sync::lock,
    time::clock::Instant,
};

/// The shortest time between two searches of the schedule for the named leases. A client that may send notices of
/// revocations can therefore cost little more than ten searches a second.
const SEARCH_PAUSE: Duration = Duration::from_millis(100);
/// Upper bound on the names that wait for the next search. Further leases are renewed when they are due.
const MAX_NAMES: usize = 1_024;

/// The stored names of locks whose leases are to be renewed early.
///
/// A lease whose renewal is in flight is not in the schedule, and this renewal may have been executed before the
/// revocation. Therefore, the next two searches look for each name.
#[derive(Debug, Default)]
pub(super) struct Early(Mutex<Names>);

#[derive(Debug)]
struct Names {
    /// The names that no search has looked for yet.
    new: HashSet<Box<str>>,
    /// The names that one search has looked for.
    again: HashSet<Box<str>>,
    /// The earliest time of the next search.
    next: Instant,
}

impl Default for Names {
    fn default() -> Self {
        Self { new: HashSet::new(), again: HashSet::new(), next: Instant::from_nanos(0) }
    }
}

/// What a search looks for, and when the next search is due, if there is one.
pub(super) struct Search {
    pub(super) names: HashSet<Box<str>>,
    pub(super) next: Option<Instant>,
}

impl Early {
    /// Adds a name; returns when the next search is due.
    pub(super) fn add(&self, stored: &str, now: Instant) -> Instant {
        let mut names = lock(&self.0);
        // No lock has a longer name, but a notice may be forged.
        if names.new.len() < MAX_NAMES && stored.len() <= MAX_PREFIX_BYTES + MAX_KEY_BYTES {
            names.new.insert(stored.into());
        }
        names.next.max(now)
    }

    /// Begins a search, if one is due.
    pub(super) fn take(&self, now: Instant) -> Search {
        let mut names = lock(&self.0);
        if names.new.is_empty() && names.again.is_empty() {
            return Search { names: HashSet::new(), next: None };
        }
        if now < names.next {
            return Search { names: HashSet::new(), next: Some(names.next) };
        }
        let new = mem::take(&mut names.new);
        let mut searched = mem::replace(&mut names.again, new.clone());
        searched.extend(new);
        names.next = now + SEARCH_PAUSE;
        let next = (!names.again.is_empty()).then_some(names.next);
        Search { names: searched, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_searched_for_twice_and_searches_are_rare() {
        let (early, now) = (Early::default(), Instant::now());
        assert_eq!(early.add("a", now), now);
        let first = early.take(now);
        assert!(first.names.contains("a"));
        assert_eq!(first.next, Some(now + SEARCH_PAUSE));
        assert_eq!(early.add("b", now), now + SEARCH_PAUSE);
        let too_early = early.take(now);
        assert!(too_early.names.is_empty());
        assert_eq!(too_early.next, Some(now + SEARCH_PAUSE));
        let second = early.take(now + SEARCH_PAUSE);
        assert!(second.names.contains("a") && second.names.contains("b"));
        let third = early.take(now + SEARCH_PAUSE * 2);
        assert!(!third.names.contains("a") && third.names.contains("b"));
        assert_eq!(third.next, None);
        assert!(early.take(now + SEARCH_PAUSE * 3).names.is_empty());
    }

    #[test]
    fn names_are_bounded() {
        let (early, now) = (Early::default(), Instant::now());
        for number in 0..2 * MAX_NAMES {
            early.add(&number.to_string(), now);
        }
        assert_eq!(early.take(now).names.len(), MAX_NAMES);
        early.add(&"x".repeat(MAX_PREFIX_BYTES + MAX_KEY_BYTES + 1), now);
        let later = early.take(now + SEARCH_PAUSE);
        assert_eq!(later.names.len(), MAX_NAMES, "those of the last search, again");
    }
}
