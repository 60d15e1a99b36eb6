//! A waiter's loop around the requests for a lock.
//!
//! The loop misses no release, because of the order of its steps. Each round reads the count of messages, and then asks
//! for the lock. A waiter that is refused for the first time subscribes to the messages, and asks again at once. After
//! later refusals, the waiter sleeps until the count changes or a pause has passed. If the lock is released before the
//! subscription, the second request finds the lock free; if it is released later, the count changes.

use std::{future::Future, time::Duration};

use super::hints::Watch;
use crate::{
    LockError,
    backend::{Acquire, Acquired, Grant, Wait},
    time::clock::Instant,
};

/// A store's part in the loop: the request for the lock, and the pauses between requests.
pub(in crate::backend) trait Waiter: Send {
    /// A subscription to the messages about the lock's release; ends when dropped.
    type Subscription: AsRef<Watch> + Send + Sync;

    /// Asks for the lock. The `subscription` is `None` until the waiter was refused for the first time.
    ///
    /// The subscription, if there is one, must take effect on the server before the question is executed: otherwise, a
    /// release between the two is found only after the pause.
    fn ask(
        &mut self,
        subscription: Option<&mut Self::Subscription>,
    ) -> impl Future<Output = Result<Answer, LockError>> + Send;

    /// Subscribes to the messages about the lock's release.
    fn subscribe(&self) -> Self::Subscription;

    /// Handles the messages that have arrived since the last request; `before` is the count of messages before that
    /// request. Returns the grant if the last message grants the lock to this waiter.
    fn notified(
        &mut self,
        _subscription: &Self::Subscription,
        _before: u64,
    ) -> impl Future<Output = Option<Grant>> + Send {
        async { None }
    }
}

/// The answer to one request for the lock.
#[derive(Debug)]
pub(in crate::backend) enum Answer {
    Granted(Grant),
    /// No holder of the lock is known, or a request that does not wait was refused and is to be sent once more. The
    /// waiter asks again after this pause, and no message shortens the pause. The loop does not check the end of the
    /// wait after this answer: the store has to check that end, or to limit the number of such answers.
    Undecided {
        pause: Duration,
    },
    /// The lock is held. The holder's lease lasts for `remaining`, if known. After the first such answer, the waiter
    /// subscribes and asks again at once. After a later answer, the waiter asks again at the next message, after the
    /// pause or at the end of the wait, whichever comes first.
    Held {
        remaining: Option<Duration>,
        pause: Duration,
    },
}

/// Asks for a lock until it is granted or the wait is over.
///
/// # Errors
/// The errors of [`Waiter::ask`].
///
/// # Cancel safety
/// As cancel safe as [`Waiter::ask`] and [`Waiter::notified`].
pub(in crate::backend) async fn until_granted<W: Waiter>(
    request: &Acquire,
    mut waiter: W,
) -> Result<Acquired, LockError> {
    let mut subscription = None::<W::Subscription>;
    loop {
        let before = subscription.as_ref().map_or(0, |subscription| subscription.as_ref().count());
        let (remaining, pause) = match waiter.ask(subscription.as_mut()).await? {
            Answer::Granted(grant) => return Ok(Acquired::Granted(grant)),
            Answer::Undecided { pause } => {
                if !pause.is_zero() {
                    request.progress.sleep_until(Instant::now() + pause).await;
                }
                continue;
            }
            Answer::Held { remaining, pause } => (remaining, pause),
        };
        let (now, end) = (Instant::now(), request.wait.end());
        if request.wait == Wait::No || now >= end {
            return Ok(Acquired::busy(remaining));
        }
        request.progress.contended();
        let Some(subscription) = &subscription else {
            subscription = Some(waiter.subscribe());
            continue;
        };
        tokio::select! {
            biased;
            () = subscription.as_ref().reached(before + 1) => {
                if let Some(grant) = waiter.notified(subscription, before).await {
                    return Ok(Acquired::Granted(grant));
                }
            }
            () = request.progress.sleep_until((now + pause).min(end)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use super::*;
    use crate::{
        FencingToken, LockKey, OwnerToken,
        backend::{
            BoxFuture, Cleanup, HandOver, Held, Lease, LeaseId, Mode, Progress, Releasable, Released,
            ReleasesLater, common::hints::Hints,
        },
    };

    const CHANNEL: &str = "channel";
    const HOUR: Duration = Duration::from_secs(3_600);
    /// Time limit of a test: far longer than the test takes, and far shorter than the pause.
    const LONG: Duration = Duration::from_secs(10);

    struct NoCleanup;

    impl ReleasesLater for NoCleanup {
        fn release_later(self: Arc<Self>, _: Arc<dyn Releasable>, _: Instant) {}
    }

    fn request(wait: Wait) -> Acquire {
        Acquire {
            key: LockKey::new("user:42").expect("valid"),
            mode: Mode::Exclusive,
            ttl: HOUR,
            auto_renew: true,
            wait,
            label: crate::Label::NONE,
            cleanup: Cleanup(Arc::new(NoCleanup)),
            progress: Progress(None),
        }
    }

    #[derive(Debug)]
    struct FakeLease(LeaseId);

    impl Releasable for FakeLease {
        fn key(&self) -> &LockKey {
            &self.0.key
        }

        fn release(&self) -> BoxFuture<'_, Result<Released, LockError>> {
            Box::pin(async { Ok(Released::Released) })
        }
    }

    impl Lease for FakeLease {
        fn id(&self) -> &LeaseId {
            &self.0
        }

        fn may_hand_over(&self) -> HandOver {
            HandOver::uncontended()
        }
    }

    fn grant() -> Grant {
        let token = FencingToken::from_micros(1);
        let id = request(Wait::No).lease_id(OwnerToken::random(), token);
        Grant::new(token, Held::lease(Arc::new(FakeLease(id)), Instant::now() + HOUR))
    }

    struct Subscription(Watch);

    impl AsRef<Watch> for Subscription {
        fn as_ref(&self) -> &Watch {
            &self.0
        }
    }

    /// A store whose holder releases the lock right after the refusal of request number `released_after`.
    struct Store {
        hints: Arc<Hints>,
        asked: Arc<AtomicU32>,
        released_after: u32,
        grants_by_message: bool,
        pause: Duration,
    }

    impl Store {
        fn releases_after(question: u32) -> Self {
            Self {
                hints: Arc::default(),
                asked: Arc::default(),
                released_after: question,
                grants_by_message: false,
                pause: HOUR,
            }
        }

        /// Returns the number of requests, and whether the lock was granted.
        async fn acquire(self, wait: Wait) -> (u32, bool) {
            let asked = Arc::clone(&self.asked);
            let request = request(wait);
            let acquired = tokio::time::timeout(LONG, until_granted(&request, self)).await;
            let acquired = acquired.expect("no release is missed").expect("no error");
            (asked.load(Ordering::SeqCst), matches!(acquired, Acquired::Granted(_)))
        }
    }

    impl Waiter for Store {
        type Subscription = Subscription;

        async fn ask(&mut self, _: Option<&mut Subscription>) -> Result<Answer, LockError> {
            let question = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
            if question > self.released_after && !self.grants_by_message {
                return Ok(Answer::Granted(grant()));
            }
            if question == self.released_after {
                self.hints.notify(CHANNEL);
            }
            Ok(Answer::Held { remaining: None, pause: self.pause })
        }

        fn subscribe(&self) -> Subscription {
            Subscription(self.hints.watch(CHANNEL.into()))
        }

        async fn notified(&mut self, _: &Subscription, _: u64) -> Option<Grant> {
            self.grants_by_message.then(grant)
        }
    }

    #[tokio::test]
    async fn a_release_before_the_subscription_is_found_by_the_question_after_it() {
        assert_eq!(Store::releases_after(1).acquire(Wait::Forever).await, (2, true));
    }

    #[tokio::test]
    async fn a_release_between_a_question_and_the_wait_for_messages_wakes_the_waiter() {
        assert_eq!(Store::releases_after(2).acquire(Wait::Forever).await, (3, true));
        assert_eq!(
            Store { pause: Duration::ZERO, ..Store::releases_after(9) }.acquire(Wait::Forever).await,
            (10, true)
        );
    }

    #[tokio::test]
    async fn a_message_may_contain_the_grant() {
        let store = Store { grants_by_message: true, ..Store::releases_after(2) };
        assert_eq!(store.acquire(Wait::Forever).await, (2, true));
    }

    #[tokio::test]
    async fn the_last_question_is_asked_at_the_end_of_the_wait() {
        assert_eq!(Store::releases_after(u32::MAX).acquire(Wait::No).await, (1, false));
        let end = Wait::Until(Instant::now() + Duration::from_millis(20));
        assert_eq!(Store::releases_after(u32::MAX).acquire(end).await, (3, false));
    }
}
