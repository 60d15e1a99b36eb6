//! The pure part of the store: the holder and the queue of each lock. This module reads no clock and wakes no task.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::{
    FencingToken, Label, LockHolder, LockKey, LockWaiter, OwnerToken, backend::LockState, hash::HashMap,
    time::clock::Instant,
};

/// The locks of one shard of a store.
#[derive(Debug, Default)]
pub(super) struct Locks {
    by_name: HashMap<Arc<str>, Slot>,
    last_fence: u64,
}

/// One lock, which exists in here while it is held or waited for.
#[derive(Debug)]
struct Slot {
    key: LockKey,
    holder: Option<Holder>,
    /// The waiters, in the order of their arrival.
    queue: VecDeque<Client>,
}

impl Slot {
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
    since: SystemTime,
    expires: Instant,
    label: Label,
    /// Whether the lease is no longer renewed, because an operator has revoked it.
    revoked: bool,
}

impl Holder {
    fn granted(client: &Client, fence: u64, now: Now) -> Self {
        let Client { owner, ttl, label } = *client;
        Self { owner, fence, since: now.time, expires: now.at + ttl, label, revoked: false }
    }

    /// Describes the holder for operators; `client` is the name of this process.
    fn shown(&self, client: &str, now: Now) -> LockHolder {
        let shown = LockHolder::new()
            .with_client(client)
            .with_label(self.label.as_str())
            .with_since(Some(self.since))
            .with_remaining(Some(self.expires.saturating_duration_since(now.at)))
            .with_token(FencingToken::from_micros(self.fence));
        if self.revoked { shown.revoked() } else { shown }
    }
}

/// A client that asks for a lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    pub(super) owner: OwnerToken,
    pub(super) ttl: Duration,
    pub(super) label: Label,
}

/// The answer to one request for a lock.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Granted { fence: u64 },
    Held { expires: Instant },
}

/// The result of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewed {
    Yes,
    NotHeld,
    Revoked,
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
    pub(super) time: SystemTime,
}

impl Now {
    fn micros(self) -> u64 {
        let since_epoch = self.time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
    }
}

impl Locks {
    /// Takes the lock if it is free and no other waiter is ahead; otherwise takes a place at the end of the queue, if
    /// `queues`.
    pub(super) fn acquire(&mut self, key: &LockKey, client: Client, queues: bool, now: Now) -> Answer {
        let owner = client.owner;
        let slot = self.by_name.entry(key.stored_name()).or_insert_with(|| Slot {
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
                slot.queue.push_back(client);
            }
            // If there is no holder, the first waiter has not checked yet; the lock is left to that waiter.
            return Answer::Held { expires: slot.holder.as_ref().map_or(now.at, |holder| holder.expires) };
        }
        slot.queue.pop_front();
        let fence = mint(&mut self.last_fence, now);
        slot.holder = Some(Holder::granted(&client, fence, now));
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

    /// Renews a lease, unless it was revoked.
    pub(super) fn renew(
        &mut self,
        name: &str,
        owner: OwnerToken,
        fence: u64,
        ttl: Duration,
        now: Now,
    ) -> Renewed {
        let holder = self.by_name.get_mut(name).and_then(|slot| slot.holder.as_mut());
        match holder {
            Some(holder) if holder.owner == owner && holder.fence == fence && holder.expires > now.at => {
                if holder.revoked {
                    return Renewed::Revoked;
                }
                holder.expires = now.at + ttl;
                Renewed::Yes
            }
            _ => Renewed::NotHeld,
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
    pub(super) fn lose(&mut self, name: &str, now: Now) -> (bool, Option<Granted>) {
        match self.by_name.get(name).and_then(|slot| slot.holder.as_ref()) {
            Some(holder) => {
                let owner = holder.owner;
                let (_, next) = self.release(name, owner, now);
                (true, next)
            }
            None => (false, None),
        }
    }

    /// Returns the owner of the grant with this fence.
    fn owner_of(&self, name: &str, fence: u64, now: Now) -> Option<OwnerToken> {
        let holder = self.by_name.get(name)?.holder.as_ref()?;
        (holder.fence == fence && holder.expires > now.at).then_some(holder.owner)
    }

    /// Ends the renewals of the grant with this fence; returns whether the lock is held by this grant.
    pub(super) fn revoke(&mut self, name: &str, fence: u64, now: Now) -> bool {
        let is_held = self.owner_of(name, fence, now).is_some();
        if is_held && let Some(holder) = self.by_name.get_mut(name).and_then(|slot| slot.holder.as_mut()) {
            holder.revoked = true;
        }
        is_held
    }

    /// Frees a lock that is held by the grant with this fence; returns whether it was, and the next holder.
    pub(super) fn revoke_by_force(&mut self, name: &str, fence: u64, now: Now) -> (bool, Option<Granted>) {
        match self.owner_of(name, fence, now) {
            Some(owner) => self.release(name, owner, now),
            None => (false, None),
        }
    }

    /// Describes a lock for operators; `client` is the name of this process.
    pub(super) fn inspect(&self, key: &LockKey, client: &str, now: Now) -> LockState {
        let Some(slot) = self.by_name.get(key.stored()) else { return LockState::free(key.clone()) };
        let waiters = slot
            .queue
            .iter()
            .map(|waiter| LockWaiter::new().with_client(client).with_label(waiter.label.as_str()));
        let state = match slot.holder.as_ref().filter(|holder| holder.expires > now.at) {
            Some(holder) => LockState::held(key.clone(), holder.shown(client, now)),
            None => LockState::free(key.clone()),
        };
        state.with_waiters(waiters.collect())
    }

    /// Returns the holder of a lock, for operators.
    pub(super) fn holder(&self, name: &str, client: &str, now: Now) -> Option<LockHolder> {
        let holder = self.by_name.get(name)?.holder.as_ref()?;
        (holder.expires > now.at).then(|| holder.shown(client, now))
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
        let Some(client) = slot.queue.pop_front() else {
            self.by_name.remove(name);
            return None;
        };
        let fence = mint(&mut self.last_fence, now);
        slot.holder = Some(Holder::granted(&client, fence, now));
        Some(Granted { owner: client.owner, fence })
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
    *last = now.micros().max(*last + 1);
    *last
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn now(seconds: u64) -> Now {
        Now {
            at: Instant::from_nanos(seconds * 1_000_000_000),
            time: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
        }
    }

    fn owner(n: u128) -> OwnerToken {
        OwnerToken::from(n)
    }

    fn client(n: u128) -> Client {
        Client { owner: owner(n), ttl: TTL, label: Label::new("test") }
    }

    #[test]
    fn first_come_first_served() {
        let (mut locks, k) = (Locks::default(), LockKey::new("k").expect("valid"));
        assert!(matches!(locks.acquire(&k, client(1), true, now(1)), Answer::Granted { .. }));
        for n in 2..=3 {
            assert_eq!(locks.acquire(&k, client(n), true, now(1)), Answer::Held { expires: now(11).at });
        }
        // A second request takes no second place.
        locks.acquire(&k, client(2), true, now(1));
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
            let Answer::Granted { fence } = locks.acquire(&k, client(1), false, now(seconds)) else {
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
        locks.acquire(&k, client(1), true, now(1));
        locks.acquire(&k, client(2), true, now(2));
        // A third client that comes after the end of the lease does not overtake the second.
        assert_eq!(locks.acquire(&k, client(3), false, now(12)), Answer::Held { expires: now(12).at });
        assert_eq!(locks.renew("k", owner(1), 0, TTL, now(12)), Renewed::NotHeld);
        assert_eq!(locks.expire("k", now(12)).map(|granted| granted.owner), Some(owner(2)));
        assert_eq!(locks.release("k", owner(1), now(12)), (false, None), "the late release changes nothing");
        assert!(locks.release("k", owner(2), now(13)).0);
    }

    #[test]
    fn only_the_owner_of_this_very_grant_renews() {
        let (mut locks, k) = (Locks::default(), LockKey::new("k").expect("valid"));
        let Answer::Granted { fence } = locks.acquire(&k, client(1), true, now(1)) else { panic!("free") };
        assert_eq!((locks.len(now(10).at), locks.len(now(11).at)), (1, 0));
        assert_eq!(locks.renew("k", owner(1), fence, TTL, now(9)), Renewed::Yes);
        assert_eq!(locks.renew("k", owner(2), fence, TTL, now(9)), Renewed::NotHeld);
        assert_eq!(locks.renew("k", owner(1), fence + 1, TTL, now(9)), Renewed::NotHeld);
        assert_eq!(locks.acquire(&k, client(2), false, now(12)), Answer::Held { expires: now(19).at });
    }
}
