//! The rules of every session with a server: its deadline, its end, and the notice to the holds that end with it.

use std::{
    collections::HashMap,
    mem,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use crate::{backend::LossNotifier, sync::lock, time::clock::Instant};

/// The lifetime of a session. `H` is what a store keeps of each hold, beside the notifier of its loss.
pub(in crate::backend) struct Lifetime<H = ()> {
    /// The deadline, in nanoseconds.
    valid_until: AtomicU64,
    /// Changes only under the mutex of the holds, so that a hold is either registered before the end or sees the end.
    ended: AtomicBool,
    /// The holds of the session that are not released, by their numbers.
    holds: Mutex<HashMap<i64, (H, LossNotifier)>>,
}

impl<H> Lifetime<H> {
    /// Begins the lifetime of a session with this deadline.
    pub(in crate::backend) fn new(valid_until: Instant) -> Self {
        Self {
            valid_until: AtomicU64::new(valid_until.as_nanos()),
            ended: AtomicBool::new(false),
            holds: Mutex::default(),
        }
    }

    /// Moves the deadline to `valid_until`, unless the deadline is later already.
    pub(in crate::backend) fn extend(&self, valid_until: Instant) {
        self.valid_until.fetch_max(valid_until.as_nanos(), Ordering::AcqRel);
    }

    /// Returns the deadline. Once the session has ended, the returned deadline is in the past.
    pub(in crate::backend) fn valid_until(&self) -> Instant {
        Instant::from_nanos(if self.has_ended() { 0 } else { self.valid_until.load(Ordering::Acquire) })
    }

    pub(in crate::backend) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Registers a hold under a number that no other registered hold of the session has. If the session has ended since
    /// the grant, the hold is lost at once.
    pub(in crate::backend) fn register(&self, number: i64, hold: H, notifier: LossNotifier) {
        {
            let mut holds = lock(&self.holds);
            if !self.has_ended() {
                holds.insert(number, (hold, notifier));
                return;
            }
        }
        notifier.notify("it was lost before it was handed out");
    }

    /// Removes a hold that was released: its holder is not notified of a loss any more.
    pub(in crate::backend) fn forget(&self, number: i64) {
        lock(&self.holds).remove(&number);
    }

    /// Notifies the holder of one hold of its loss; the session goes on.
    pub(in crate::backend) fn lose(&self, number: i64, why: &str) {
        let lost = lock(&self.holds).remove(&number);
        if let Some((_, notifier)) = lost {
            notifier.notify(why);
        }
    }

    /// Notifies the holder of one hold that its lock was revoked; the session goes on, and so does the hold in the store.
    pub(in crate::backend) fn revoke(&self, number: i64) {
        let revoked = lock(&self.holds).remove(&number);
        if let Some((_, notifier)) = revoked {
            notifier.notify_of_revocation();
        }
    }

    /// Ends the session, and notifies the holder of each registered hold that the hold is lost.
    pub(in crate::backend) fn end(&self, why: &str) {
        let lost = {
            let mut holds = lock(&self.holds);
            self.ended.store(true, Ordering::Release);
            mem::take(&mut *holds)
        };
        for (_, notifier) in lost.into_values() {
            notifier.notify(why);
        }
    }
}

#[cfg(feature = "zookeeper")]
impl<H: Clone> Lifetime<H> {
    /// Returns what the store keeps of each registered hold.
    pub(in crate::backend) fn registered(&self) -> Vec<H> {
        lock(&self.holds).values().map(|(hold, _)| hold.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, Barrier},
        thread,
        time::Duration,
    };

    use super::*;
    use crate::backend::Loss;

    /// The reasons of the losses that were notified.
    #[derive(Clone, Default)]
    struct Losses(Arc<Mutex<Vec<String>>>);

    impl Losses {
        fn notifier(&self) -> LossNotifier {
            let losses = Arc::clone(&self.0);
            LossNotifier(Box::new(move |loss| {
                lock(&losses).push(match loss {
                    Loss::Lost(why) => why.to_owned(),
                    Loss::Revoked => "revoked".to_owned(),
                });
            }))
        }

        fn take(&self) -> Vec<String> {
            mem::take(&mut *lock(&self.0))
        }
    }

    fn in_a_minute() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn the_end_notifies_each_hold_once() {
        let (lifetime, losses) = (Lifetime::new(in_a_minute()), Losses::default());
        lifetime.register(1, (), losses.notifier());
        lifetime.register(2, (), losses.notifier());
        lifetime.end("the server said so");
        assert_eq!(losses.take(), ["the server said so"; 2]);
        lifetime.end("again");
        assert_eq!(losses.take(), [""; 0]);
    }

    #[test]
    fn a_hold_that_is_registered_after_the_end_is_lost_at_once() {
        let (lifetime, losses) = (Lifetime::new(in_a_minute()), Losses::default());
        lifetime.end("too early for the hold");
        lifetime.register(1, (), losses.notifier());
        assert_eq!(losses.take(), ["it was lost before it was handed out"]);
    }

    #[test]
    fn a_hold_that_is_registered_at_the_end_is_lost_once() {
        for _ in 0..500 {
            let (lifetime, losses) = (Lifetime::new(in_a_minute()), Losses::default());
            let both = Barrier::new(2);
            thread::scope(|scope| {
                scope.spawn(|| {
                    both.wait();
                    lifetime.end("over");
                });
                both.wait();
                lifetime.register(1, (), losses.notifier());
            });
            assert_eq!(losses.take().len(), 1);
        }
    }

    #[test]
    fn a_forgotten_hold_is_not_notified_and_a_lost_one_alone() {
        let (lifetime, losses) = (Lifetime::new(in_a_minute()), Losses::default());
        for number in 1..=3 {
            lifetime.register(number, (), losses.notifier());
        }
        lifetime.forget(1);
        lifetime.lose(2, "removed by hand");
        assert_eq!(losses.take(), ["removed by hand"]);
        lifetime.register(4, (), losses.notifier());
        lifetime.revoke(4);
        lifetime.revoke(4);
        assert_eq!(losses.take(), ["revoked"]);
        lifetime.lose(2, "removed again");
        lifetime.end("over");
        assert_eq!(losses.take(), ["over"]);
    }

    #[test]
    fn the_deadline_moves_forward_only_and_has_passed_after_the_end() {
        let (now, later) = (Instant::now(), in_a_minute());
        let lifetime = Lifetime::<()>::new(now);
        lifetime.extend(later);
        lifetime.extend(now);
        assert_eq!(lifetime.valid_until(), later);
        lifetime.end("over");
        // The answer to a request that was sent before the end.
        lifetime.extend(later + Duration::from_secs(1));
        assert!(lifetime.valid_until().has_passed());
    }
}
