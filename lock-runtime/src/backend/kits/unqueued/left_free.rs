//! The locks that this process leaves free for other clients.

use std::{collections::HashMap, sync::Mutex};

use crate::{sync::lock, time::clock::Instant};

/// Upper bound on the recorded locks; further locks are not recorded.
const MAX_LOCKS: usize = 1_024;

/// The locks that this process has just released while other clients waited for them, by stored name, with the time
/// until which this process does not ask for the lock.
///
/// This process knows of its own release first. Without this record, the process would get the lock again and again,
/// because the other clients ask only after they were notified of the release.
#[derive(Debug, Default)]
pub(super) struct LeftFree(Mutex<HashMap<String, Instant>>);

impl LeftFree {
    /// Records that this process leaves a lock free until `until`.
    pub(super) fn insert(&self, name: &str, now: Instant, until: Instant) {
        let mut all = lock(&self.0);
        if all.len() >= MAX_LOCKS {
            all.retain(|_, until| *until > now);
        }
        if all.len() < MAX_LOCKS {
            all.insert(name.to_owned(), until);
        }
    }

    /// Removes the record of a lock, and returns the time until which the caller has to leave the lock free.
    pub(super) fn take(&self, name: &str) -> Option<Instant> {
        lock(&self.0).remove(name)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_lock_is_recorded_once_and_within_a_bound() {
        let (left, now) = (LeftFree::default(), Instant::now());
        let until = now + Duration::from_millis(1);
        assert_eq!(left.take("a"), None);
        left.insert("a", now, until);
        assert_eq!(left.take("a"), Some(until));
        assert_eq!(left.take("a"), None);
        (0..=MAX_LOCKS).for_each(|number| left.insert(&number.to_string(), now, until));
        assert_eq!(lock(&left.0).len(), MAX_LOCKS);
        left.insert("later", until, until + Duration::from_millis(1));
        assert_eq!(lock(&left.0).len(), 1, "records that are over make room");
    }
}
