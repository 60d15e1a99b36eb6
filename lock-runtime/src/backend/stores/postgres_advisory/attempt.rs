//! Attempts to acquire a lock: a request, and the wait until the next request is worthwhile.

use std::{sync::Arc, time::Duration};

use super::{
    claim::Claim,
    names::Name,
    session::{Taken, ended},
    shared::Shared,
};
use crate::{
    FencingToken, LockError,
    backend::{
        Acquire, Acquired, Grant, Held, Wait,
        common::{
            link::Link,
            signature,
            waiting::{Answer, Waiter, until_granted},
        },
        kits::postgres::notices::{NOTICE_PERIOD, Watch},
    },
    time::backoff::between,
};

/// Pause after the first request with which a waiter asks for notifications. A release at the same moment may not see
/// that the waiter waits, and then sends no notification.
const PAUSE_AT_FIRST: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(20)];
/// Pause if the row of a free lock is locked.
const PAUSE_IF_LOCKED: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(8)];
/// Upper bound on the doublings of `PAUSE_IF_LOCKED`.
const MOST_DOUBLINGS: u32 = 5;
/// Upper bound on the sessions that may end during one attempt.
const MAX_ENDED_SESSIONS: u32 = 3;

pub(super) async fn acquire(link: &Arc<Link<Arc<Shared>>>, request: &Acquire) -> Result<Acquired, LockError> {
    until_granted(request, Requests::new(link, request)).await
}

/// The requests of one waiter.
struct Requests<'a> {
    link: &'a Arc<Link<Arc<Shared>>>,
    request: &'a Acquire,
    name: Name,
    /// What this acquisition states of itself.
    signature: Arc<str>,
    /// Whether an earlier request has asked for notifications.
    is_registered: bool,
    /// Number of sessions that have ended.
    ended: u32,
    /// Number of consecutive answers which say that the lock is free, but its row is locked; at most `MOST_DOUBLINGS`.
    locked: u32,
}

impl<'a> Requests<'a> {
    fn new(link: &'a Arc<Link<Arc<Shared>>>, request: &'a Acquire) -> Self {
        let (name, signature) = (Name::of(&request.key), signature::of(request.label).into());
        Self { link, request, name, signature, is_registered: false, ended: 0, locked: 0 }
    }
}

impl Waiter for Requests<'_> {
    type Subscription = Watch;

    async fn ask(&mut self, watch: Option<&mut Watch>) -> Result<Answer, LockError> {
        let Self { link, request, .. } = *self;
        if let Some(until) = link.sessions().left_free.until(self.name.number)
            && request.wait != Wait::No
        {
            request.progress.sleep_until(until.min(request.wait.end())).await;
        }
        let wanted = if watch.is_some() { NOTICE_PERIOD } else { Duration::ZERO };
        let session = link.session().await?;
        let claim = Claim::new(request, &session, &self.name, wanted, &self.signature);
        let pauses = match claim.answered().await? {
            Some(Taken::Granted { hold, version, since }) => {
                let token = FencingToken::from_micros(version);
                return Ok(Answer::Granted(Grant::new(token, Held::session(hold, since))));
            }
            Some(Taken::Held) => {
                self.locked = 0;
                watch.as_ref().filter(|_| self.is_registered).map_or(PAUSE_AT_FIRST, |watch| watch.pause())
            }
            Some(Taken::Locked) => {
                self.locked = MOST_DOUBLINGS.min(self.locked + 1);
                PAUSE_IF_LOCKED.map(|pause| pause * (1 << self.locked))
            }
            Some(Taken::Failed(error)) => return Err(error),
            None if self.ended < MAX_ENDED_SESSIONS => {
                self.ended += 1;
                return Ok(Answer::Undecided { pause: Duration::ZERO });
            }
            None => return Err(ended()),
        };
        self.is_registered = watch.is_some();
        Ok(Answer::Held { remaining: None, pause: between(pauses) })
    }

    /// Subscribes to the notifications that arrive in this process. The next request asks the server to send
    /// notifications.
    fn subscribe(&self) -> Watch {
        Watch::begin(&self.link.sessions().notices, Arc::clone(&self.name.payload))
    }
}
