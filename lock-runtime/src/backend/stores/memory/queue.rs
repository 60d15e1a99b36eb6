//! The pure part of the store: the holder and the queue of each lock. This module reads no clock and wakes no task.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use crate::{LockKey, OwnerToken, hash::HashMap, time::clock::Instant};

/// The locks of one shard of a store.
#[derive(Debug, Default)]
pub(super) struct Locks {
    by_name: HashMap<Arc<str>, LockState>,
    last_fence: u64,
}

/// The state of one lock, which exists while the lock is held or waited for.
#[derive(Debug)]
struct LockState {
    key: LockKey,
    holder: Option<Holder>,
    /// The waiters, in the order of their arrival.
    queue: VecDeque<Place>,
}

impl LockState {
    /// Returns whether the lock is held or waited for. A holder whose lease has expired keeps the slot, but not the
    /// lock.
    fn is_used(&self, now: Instant) -> bool {
        !self.queue.is_empty() || self.holder.as_ref().is_some_and(|holder| holder.expires > now)
    }
}

#[derive(Debug)]
struct Holder {
    owner: OwnerToken,
    fence: u64,
    expires: Instant,
}

#[derive(Debug)]
struct Place {
    owner: OwnerToken,
    ttl: Duration,
}

/// The answer to one request for a lock.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Granted { fence: u64 },
    Held { expires: Instant },
}

/// A waiter that has become the holder, and is to be notified.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) owner: OwnerToken,
    pub(super) fence: u64,
}

/// The moment of a change: on the clock of the leases, and as the time of day in microseconds, for fencing tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) at: Instant,
    pub(super) micros: u64,
}

impl Locks {
    /// Takes the lock if it is free and no other waiter is ahead; otherwise takes a place at the end of the queue, if
    /// `queues`.
    pub(super) fn acquire(
        &mut self,
        key: &LockKey,
        owner: OwnerToken,
        ttl: Duration,
        queues: bool,
        now: Now,
    ) -> Answer {
        let slot = self.by_name.entry(key.stored_name()).or_insert_with(|| LockState {
            key: key.clone(),
            holder: None,
            queue: VecDeque::new(),
        });
        if let Some(holder) = &slot.holder
            && holder.owner == owner
        {
            return Answer::Granted { fence: holder.fence };
        }
        slot.holder.take_if(|holder| holder.expires <= now.at);
        let first_is_another = slot.queue.front().is_some_and(|first| first.owner != owner);
        if slot.holder.is_some() || first_is_another {
            if queues && slot.queue.iter().all(|place| place.owner != owner) {
                slot.queue.push_back(Place { owner, ttl });
            }
            // If there is no holder, the first waiter has not checked yet; the lock is left to that waiter.
            return Answer::Held { expires: slot.holder.as_ref().map_or(now.at, |holder| holder.expires) };
        }
        slot.queue.pop_front();
        let fence = mint(&mut self.last_fence, now);
        slot.holder = Some(Holder { owner, fence, expires: now.at + ttl });
        Answer::Granted { fence }
    }

    /// Makes the first waiter in the queue the holder, if the lease has expired.
    pub(super) fn expire(&mut self, name: &str, now: Now) -> Option<Granted> {
        let slot = self.by_name.get_mut(name)?;
        if slot.holder.as_ref().is_some_and(|holder| holder.expires > now.at) {
            return None;
        }
        slot.holder = None;
        self.hand_over(name, now)
    }

    /// Renews a lease; returns false if the lease no longer belongs to this owner.
    pub(super) fn renew(
        &mut self,
        name: &str,
        owner: OwnerToken,
        fence: u64,
        ttl: Duration,
        now: Now,
    ) -> bool {
        let holder = self.by_name.get_mut(name).and_then(|slot| slot.holder.as_mut());
        match holder {
            Some(holder) if holder.owner == owner && holder.fence == fence && holder.expires > now.at => {
                holder.expires = now.at + ttl;
                true
            }
            _ => false,
        }
    }

    /// Ends a hold or gives up a place; returns whether the lock was held until now, and the next holder.
    pub(super) fn release(&mut self, name: &str, owner: OwnerToken, now: Now) -> (bool, Option<Granted>) {
        let Some(slot) = self.by_name.get_mut(name) else { return (false, None) };
        slot.queue.retain(|place| place.owner != owner);
        let Some(holder) = slot.holder.take_if(|holder| holder.owner == owner) else {
            self.forget_if_unused(name);
            return (false, None);
        };
        (holder.expires > now.at, self.hand_over(name, now))
    }

    /// Takes a lock away from its holder, like a store that lost its data.
    pub(super) fn revoke(&mut self, name: &str, now: Now) -> (bool, Option<Granted>) {
        match self.by_name.get(name).and_then(|slot| slot.holder.as_ref()) {
            Some(holder) => {
                let owner = holder.owner;
                let (_, next) = self.release(name, owner, now);
                (true, next)
            }
            None => (false, None),
        }
    }

    /// Returns the number of waiters for a lock.
    pub(super) fn waiting(&self, name: &str) -> usize {
        self.by_name.get(name).map_or(0, |slot| slot.queue.len())
    }

    /// Returns the number of locks that are held or waited for.
    pub(super) fn len(&self, now: Instant) -> usize {
        self.by_name.values().filter(|slot| slot.is_used(now)).count()
    }

    /// Returns the keys of all slots.
    pub(super) fn keys(&self) -> impl Iterator<Item = &LockKey> {
        self.by_name.values().map(|slot| &slot.key)
    }

    /// Makes the first waiter in the queue the holder. Precondition: the lock is not held.
    fn hand_over(&mut self, name: &str, now: Now) -> Option<Granted> {
        let slot = self.by_name.get_mut(name)?;
        let Some(Place { owner, ttl }) = slot.queue.pop_front() else {
            self.by_name.remove(name);
            return None;
        };
        let fence = mint(&mut self.last_fence, now);
        slot.holder = Some(Holder { owner, fence, expires: now.at + ttl });
        Some(Granted { owner, fence })
    }

    fn forget_if_unused(&mut self, name: &str) {
        if self.by_name.get(name).is_some_and(|slot| slot.holder.is_none() && slot.queue.is_empty()) {
            self.by_name.remove(name);
        }
    }
}

/// Returns the next fencing token by a hybrid clock: the time of day, or one more than the last token, whichever is
/// larger.
fn mint(last: &mut u64, now: Now) -> u64 {
    *last = now.micros.max(*last + 1);
    *last
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn now(seconds: u64) -> Now {
        Now { at: Instant::from_nanos(seconds * 1_000_000_000), micros: seconds * 1_000_000 }
    }

    fn owner(n: u128) -> OwnerToken {
        OwnerToken::from(n)
    }

    #[test]
    fn first_come_first_served() {
        let (mut locks, k) = (Locks::default(), LockKey::new("k").expect("valid"));
        assert!(matches!(locks.acquire(&k, owner(1), TTL, true, now(1)), Answer::Granted { .. }));
        for n in 2..=3 {
            assert_eq!(locks.acquire(&k, owner(n), TTL, true, now(1)), Answer::Held { expires: now(11).at });
        }
        // A second request takes no second place.
        locks.acquire(&k, owner(2), TTL, true, now(1));
        assert_eq!(locks.waiting("k"), 2);
        let (was_held, next) = locks.release("k", owner(1), now(2));
        assert!(was_held);
        assert_eq!(next.map(|granted| granted.owner), Some(owner(2)));
        let (_, next) = locks.release("k", owner(2), now(2));
        assert_eq!(next.map(|granted| granted.owner), Some(owner(3)));
        assert_eq!(locks.release("k", owner(3), now(2)), (true, None));
        assert_eq!(locks.len(now(2).at), 0);
    }

    #[test]
    fn fences_rise_also_when_the_clock_is_set_back() {
        let (mut locks, k) = (Locks::default(), LockKey::new("k").expect("valid"));
        let mut last = 0;
        for seconds in [5, 5, 3, 1, 9] {
            let Answer::Granted { fence } = locks.acquire(&k, owner(1), TTL, false, now(seconds)) else {
                panic!("free")
            };
            assert!(fence > last);
            last = fence;
            locks.release("k", owner(1), now(seconds));
        }
    }

    #[test]
    fn a_lease_that_ran_out_goes_to_the_first_in_the_queue_and_to_nobody_else() {
        let (mut locks, k) = (Locks::default(), LockKey::new("k").expect("valid"));
        locks.acquire(&k, owner(1), TTL, true, now(1));
        locks.acquire(&k, owner(2), TTL, true, now(2));
        // A third client that comes after the end of the lease does not overtake the second.
        assert_eq!(locks.acquire(&k, owner(3), TTL, false, now(12)), Answer::Held { expires: now(12).at });
        assert!(!locks.renew("k", owner(1), 0, TTL, now(12)));
        assert_eq!(locks.expire("k", now(12)).map(|granted| granted.owner), Some(owner(2)));
        assert_eq!(locks.release("k", owner(1), now(12)), (false, None), "the late release changes nothing");
        assert!(locks.release("k", owner(2), now(13)).0);
    }

    #[test]
    fn only_the_owner_of_this_very_grant_renews() {
        let (mut locks, k) = (Locks::default(), LockKey::new("k").expect("valid"));
        let Answer::Granted { fence } = locks.acquire(&k, owner(1), TTL, true, now(1)) else {
            panic!("free")
        };
        assert_eq!((locks.len(now(10).at), locks.len(now(11).at)), (1, 0));
        assert!(locks.renew("k", owner(1), fence, TTL, now(9)));
        assert!(!locks.renew("k", owner(2), fence, TTL, now(9)));
        assert!(!locks.renew("k", owner(1), fence + 1, TTL, now(9)));
        assert_eq!(locks.acquire(&k, owner(2), TTL, false, now(12)), Answer::Held { expires: now(19).at });
    }
}
