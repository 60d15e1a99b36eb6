//! Attempts to acquire a lock: a request, and the wait until the next request is worthwhile.

use std::{sync::Arc, time::Duration};

use super::{
    claim::Claim,
    names::Name,
    session::{Failure, Taken},
    sessions::Sessions,
};
use crate::{
    FencingToken, LockError,
    backend::{
        Acquire, Acquired, Grant, Held, Wait,
        common::link::Link,
        kits::postgres::notices::{NOTICE_PERIOD, Watch},
    },
    time::{backoff::between, clock::Instant},
};

/// Pause after the first request of a waiter: a release at the same moment does not know of the waiter.
const PAUSE_AT_FIRST: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(20)];
/// Pause if the row of a free lock is locked.
const PAUSE_IF_LOCKED: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(8)];
/// Upper bound on the doublings of `PAUSE_IF_LOCKED`.
const MOST_DOUBLINGS: u32 = 5;
/// Upper bound on the sessions that may end during one attempt.
const MAX_ENDED_SESSIONS: u32 = 3;

pub(super) async fn acquire(link: &Arc<Link<Sessions>>, request: &Acquire) -> Result<Acquired, LockError> {
    let shared = link.sessions().shared();
    let (name, end) = (Name::of(&request.key), request.wait.end());
    let (mut watch, mut ends, mut asked, mut locked) = (None::<Watch>, 0, 0, 0);
    loop {
        if let Some(until) = shared.left_free.until(name.number)
            && request.wait != Wait::No
        {
            request.progress.sleep_until(until.min(end)).await;
        }
        let before = watch.as_ref().map_or(0, Watch::count);
        let wanted = if watch.is_some() { NOTICE_PERIOD } else { Duration::ZERO };
        let session = link.session().await?;
        let pauses = match Claim::new(request, &session, &name, wanted).answered().await {
            Ok(Taken::Granted { hold, version, since }) => {
                let token = FencingToken::from_micros(version);
                return Ok(Acquired::Granted(Grant::new(token, Held::session(hold, since))));
            }
            Ok(Taken::Held) => {
                locked = 0;
                watch.as_ref().filter(|_| asked > 1).map_or(PAUSE_AT_FIRST, Watch::pause)
            }
            Ok(Taken::Locked) => {
                locked = MOST_DOUBLINGS.min(locked + 1);
                PAUSE_IF_LOCKED.map(|pause| pause * (1 << locked))
            }
            Err(Failure::Ended(_)) if ends < MAX_ENDED_SESSIONS => {
                ends += 1;
                continue;
            }
            Ok(Taken::Failed(error)) | Err(Failure::Ended(error) | Failure::Failed(error)) => {
                return Err(error);
            }
        };
        drop(session);
        let now = Instant::now();
        if request.wait == Wait::No || now >= end {
            return Ok(Acquired::busy(None));
        }
        request.progress.contended();
        let Some(watch) = &watch else {
            // The next request, sent at once, asks for notifications; and the lock may have been released before the
            // watch began.
            watch = Some(Watch::begin(&shared.notices, Arc::clone(&name.payload)));
            asked = 1;
            continue;
        };
        asked += 1;
        tokio::select! {
            biased;
            () = watch.reached(before + 1) => {}
            () = request.progress.sleep_until((now + between(pauses)).min(end)) => {}
        }
    }
}
