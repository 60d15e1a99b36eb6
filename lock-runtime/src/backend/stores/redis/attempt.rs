//! One attempt to acquire a lock: ask, wait in the queue, enter.

use std::{
    mem,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use super::{
    hold::{NO_GRANT, RedisLease, Unanswered},
    queue::{
        self, Address, Answer, Line, Need, Notice, Notices, Participant, Waiting,
        place::{self, Place, Push, Standing},
    },
    replicas::Replicas,
    servers::{Route, Servers},
    shown::{self, Shown},
};
use crate::{
    FencingToken, LockErrorKind, OwnerToken,
    backend::{
        Acquire, Acquired, Grant, Held, Wait,
        common::{
            cold::cold,
            inquiry::Inquiry,
            place_proof::{PlaceProof, is_usable},
            server_clock,
        },
        kits::redis::{
            error::{self, Failure, Redirection},
            foreign::FOREIGN_USE_RETENTION,
        },
    },
    time::{
        backoff::{backoff, random},
        clock::{self, Instant},
        deadline::valid_until,
    },
};

/// The end of an attempt without an error.
pub(super) enum Ended {
    With(Acquired),
    /// The place was lost; a new attempt begins at the end of the queue.
    Gone,
}

/// An attempt under one owner token, from before the first byte is sent until the grant is returned.
///
/// If the attempt is dropped earlier, anything that it may have left on the server is removed in the background.
pub(super) struct Attempt<'a> {
    request: &'a Acquire,
    servers: &'a Arc<Servers>,
    /// The way to the server that has the lock.
    route: &'a mut Route,
    /// Whether the lock is at another server than the one that was asked last.
    has_moved: bool,
    /// Where the lease is confirmed, if replicas must have it.
    replicas: Option<Arc<Replicas>>,
    owner: OwnerToken,
    /// When the last request that could take the lock was sent; zero before the first request.
    last_sent: Instant,
    /// When a confirmation by replicas, which extends the lease, has been executed or never will be; zero without one.
    confirmed_by: Instant,
    /// Whether the attempt may have left something on the server.
    open: bool,
    /// The unanswered request that could take the lock, if any. A poll is not recorded here, because it takes the lock
    /// only with a place, and a release removes the place.
    unanswered: Option<Unanswered>,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(request: &'a Acquire, servers: &'a Arc<Servers>, route: &'a mut Route) -> Self {
        Self {
            request,
            servers,
            route,
            has_moved: false,
            replicas: None,
            owner: OwnerToken::random(),
            last_sent: Instant::from_nanos(0),
            confirmed_by: Instant::from_nanos(0),
            open: false,
            unanswered: None,
        }
    }

    fn participant(&self) -> &'a Participant {
        self.servers.participant()
    }

    /// Returns the connection to use; retries an unreachable server while the caller waits for its lock.
    async fn line(&mut self) -> Result<Arc<Line>, Failure> {
        let mut failures = 0;
        loop {
            let answer = self.connected().await;
            let (Err(failure @ Failure::Refused(error)), Wait::Until(_) | Wait::Forever) =
                (&answer, self.request.wait)
            else {
                return answer;
            };
            let end = self.request.wait.end();
            let may_be_repeated = error.kind() == LockErrorKind::Backend && error.is_retryable();
            if !may_be_repeated || end.has_passed() {
                return answer;
            }
            if !self.route.is_on_its_way(failure) {
                self.request.progress.failed(error);
            }
            // The pause is 160 ms at most: a retry costs the server nothing, and the caller is waiting.
            Box::pin(clock::sleep_until(end.min(Instant::now() + backoff(failures)))).await;
            failures = 3.min(failures + 1);
        }
    }

    /// Returns the connection to use, once there is a connection for renewals, too.
    async fn connected(&mut self) -> Result<Arc<Line>, Failure> {
        let node = self.route.node().await?;
        let line = node.connections.here().await?;
        if self.request.auto_renew && !node.connections.can_renew() {
            cold(node.connections.connect_for_renewals()).await.map_err(Failure::Refused)?;
        }
        if self.request.auto_renew
            && let Some(replicas) = &node.replicas
        {
            cold(replicas.connect_for_renewals()).await.map_err(Failure::Refused)?;
        }
        self.replicas.clone_from(&node.replicas);
        Ok(line)
    }

    pub(super) async fn run(&mut self) -> Result<Ended, Failure> {
        let line = self.line().await?;
        // The address is needed even if the caller does not wait: this process then listens on the channel on which it
        // is notified, as the holder, that others wait.
        let address = Address::on(line, &self.request.key, self.owner).await?;
        let want = if self.request.wait == Wait::No { Need::Lock } else { Need::LockOrPlace };
        let foreign = self.participant().foreign();
        if !foreign.is_empty() {
            let now = Instant::now();
            if let Some(until) = foreign.open_until(self.request.key.stored(), now) {
                // This process has released the lock, and leaves it open to clients that do not queue.
                if want == Need::Lock {
                    let holder_remaining = Some(until.saturating_duration_since(now));
                    return Ok(Ended::With(Acquired::busy(holder_remaining)));
                }
                Box::pin(clock::sleep_until(until.min(self.request.wait.end()))).await;
            }
        }
        match self.ask(&address, want).await? {
            (sent, Answer::Granted { fence, others_wait }) => {
                self.granted(fence, others_wait, valid_until(sent, self.request.ttl)).await
            }
            (sent, Answer::Waiting(waiting, _)) if want == Need::LockOrPlace => {
                self.request.progress.contended();
                let place = self.placed(sent, waiting);
                cold(self.wait(address, place)).await
            }
            (_, Answer::Held { pttl_ms, holder }) if want == Need::Lock => {
                self.open = false;
                Ok(busy(shown::remaining(pttl_ms), holder.as_ref()))
            }
            (_, Answer::Revoked) => Ok(Ended::Gone),
            (_, Answer::Waiting(..) | Answer::Held { .. } | Answer::Gone) => {
                Err(Failure::Refused(error::unexpected("an acquisition")))
            }
        }
    }

    /// Waits in the queue for a push, and polls at the latest when the place has to be refreshed.
    async fn wait(&mut self, mut address: Address, mut place: Place) -> Result<Ended, Failure> {
        // `None` once the connection over which the pushes came is gone.
        let mut notices = Some(address.listen());
        let end = self.request.wait.end();
        let mut heard = Instant::now();
        let mut failures = 0;
        let mut look_at = place.first_poll(heard, random());
        loop {
            tokio::select! {
                biased;
                notice = next(&mut notices), if notices.is_some() => {
                    match notice {
                        Some(Notice::Granted { proof, terms }) => {
                            let proven = proof == terms.proof(self.owner);
                            match place.judge(terms, proven, self.request.ttl) {
                                Push::ValidUntil(until) => {
                                    self.remember_foreign(terms.foreign);
                                    if is_usable(self.request, until) {
                                        // The message does not say whether others wait, because finding out would cost
                                        // the server a command. This process assumes that others wait. If none does,
                                        // this process releases the lease early, after 64 hand-overs or 5 ms.
                                        return self.granted(terms.fence, true, until).await;
                                    }
                                    // The lock is ours, but its lease is too short for the caller. The poll that
                                    // follows at once extends the lease.
                                    look_at = heard;
                                }
                                Push::Doubtful => look_at = look_at.min(heard + place::LOOK_ON_DOUBT),
                                Push::Stale => {}
                            }
                        }
                        Some(Notice::Free { length }) => {
                            let now = Instant::now();
                            place.opened(now, length);
                            let soon = heard + place::LOOK_WHILE_OPEN;
                            look_at = look_at.min(place.next_poll(now, random()).max(soon));
                        }
                        None => {
                            notices = None;
                            look_at = heard;
                        }
                    }
                    // However many notices come, polling goes on.
                    if !look_at.min(end).has_passed() {
                        continue;
                    }
                }
                () = self.request.progress.sleep_until(look_at.min(end)) => {}
            }
            // A last poll at the end of the wait is worth its cost, because the lock may be ours already.
            let last = end.has_passed();
            match self.look(&mut address, &mut notices).await {
                Ok((sent, Answer::Granted { fence, others_wait })) => {
                    return self.granted(fence, others_wait, valid_until(sent, self.request.ttl)).await;
                }
                Ok((sent, Answer::Waiting(waiting, holder))) => {
                    self.request.progress.contended();
                    (heard, failures) = (Instant::now(), 0);
                    place.update(self.placed(sent, waiting), heard);
                    look_at = place.next_poll(heard, random());
                    if last {
                        return Ok(busy(place.holder_remaining(heard), holder.as_ref()));
                    }
                }
                // The attempt stays open, and so releases the lock in the background.
                Ok((_, Answer::Revoked)) => return Ok(Ended::Gone),
                Ok((_, Answer::Gone)) => {
                    self.open = false;
                    return Ok(Ended::Gone);
                }
                Ok((_, Answer::Held { .. })) => {
                    return Err(Failure::Refused(error::unexpected("a poll of the queue")));
                }
                // The place outlasts an outage that is shorter than `STALE`.
                Err(failure) if heard + place::STALE <= Instant::now() => return Err(failure),
                Err(failure) => {
                    // Only the change of the server counts here: the call is repeated in any case.
                    let is_elsewhere = self.route.is_for_another_server(&failure);
                    let again_after = if is_elsewhere { self.route.again_after(&failure) } else { None };
                    let is_on_its_way = self.route.is_on_its_way(&failure);
                    self.has_moved = matches!(failure, Failure::Redirected(Redirection::Moved { .. }, _));
                    if last {
                        match &failure {
                            // The last poll is made where the lock is now.
                            Failure::Redirected(Redirection::Moved { .. }, _) if again_after.is_some() => {}
                            // A moment ago, the caller still had to wait.
                            Failure::Redirected(Redirection::Ask { .. } | Redirection::Later, _) => {
                                return Ok(busy(place.holder_remaining(Instant::now()), None));
                            }
                            Failure::Refused(_) | Failure::GivenUp(_) if is_on_its_way => {
                                return Ok(busy(place.holder_remaining(Instant::now()), None));
                            }
                            _ => return Err(failure),
                        }
                    }
                    let error = failure.into_error();
                    if !is_on_its_way {
                        self.request.progress.failed(&error);
                    }
                    tracing::debug!(key = %self.request.key, %error, "polling again");
                    // Only the first is waited for by the others, of whom there may be many.
                    let again_after = again_after.filter(|after| after.is_zero() || place.is_first());
                    look_at = Instant::now() + again_after.unwrap_or_else(|| backoff(failures));
                    failures += 1;
                }
            }
        }
    }

    /// Returns the place as described by the answer to a request sent at `sent`.
    fn placed(&self, sent: Instant, waiting: Waiting) -> Place {
        let Waiting { seen, rank, standing, pttl_ms } = waiting;
        if matches!(standing, Standing::HeldByForeign { .. }) {
            self.remember_foreign(FOREIGN_USE_RETENTION);
        }
        let now = Instant::now();
        // `pttl_ms` is negative if there is no expiry, or the expiry was not queried.
        let ends = u64::try_from(pttl_ms).ok().map(|ms| now + Duration::from_millis(ms));
        Place { proof: PlaceProof { sent, last: seen }, rank, standing, ends, rush: None }
    }

    fn remember_foreign(&self, length: Duration) {
        if !length.is_zero() {
            self.participant().foreign().remember(self.request.key.stored(), Instant::now(), length);
        }
    }

    /// Refreshes the place, over a new connection if the old one is unusable.
    async fn look(
        &mut self,
        address: &mut Address,
        notices: &mut Option<Notices>,
    ) -> Result<(Instant, Answer), Failure> {
        if !address.line.connection().is_usable() || mem::take(&mut self.has_moved) {
            let line = self.line().await?;
            *address = Address::on(line, &self.request.key, self.owner).await?;
            // The old mailbox is closed first, because both mailboxes have the same number.
            *notices = None;
            *notices = Some(address.listen());
        }
        self.ask(address, Need::Place).await
    }

    /// Makes one request: in a batch if one is due, otherwise alone.
    async fn ask(&mut self, address: &Address, want: Need) -> Result<(Instant, Answer), Failure> {
        let line = &address.line;
        let call = line.batcher.begin(line.process().slot(&self.request.key));
        if call.is_due {
            let give_up = self.sends(line, want);
            let id = self.request.lease_id(self.owner, NO_GRANT);
            let polled_at = (want == Need::Place).then(|| address.to_string());
            let answer = line.ask((id, self.request.label), polled_at, give_up).await;
            self.answered(want, &answer);
            match answer {
                Ok(Some(answer)) => return Ok((self.last_sent, answer)),
                // A batch does not serve this request, for example because the lock is held.
                Ok(None) => {}
                // One operation that is not permitted fails its whole batch; asked alone, each operation gets its own
                // answer. A redirection is that of all, because they are in one slot.
                Err(Failure::Refused(_)) if line.connection().is_usable() => {}
                Err(failure) => return Err(failure),
            }
        }
        let _alone = line.batcher.alone();
        cold(self.ask_alone(address, want)).await
    }

    /// Makes one request alone.
    ///
    /// If the server refuses the request as too late, its answer corrects the estimate of its clock, and the request is
    /// made once more.
    async fn ask_alone(&mut self, address: &Address, want: Need) -> Result<(Instant, Answer), Failure> {
        let (connection, process) = (address.line.connection(), self.participant().process());
        for _ in 0..2 {
            let give_up = self.sends(&address.line, want);
            let request = (self.request, self.owner);
            let answer = queue::ask(connection, process, request, want, give_up, address).await;
            let answer = answer.map(|told| told.learn(self.last_sent, connection.clock()));
            self.answered(want, &answer);
            if let Some(answer) = answer? {
                return Ok((self.last_sent, answer));
            }
        }
        Err(Failure::too_late())
    }

    /// Records that a request is sent now. Returns the time until which the request may be executed.
    fn sends(&mut self, line: &Arc<Line>, want: Need) -> Instant {
        self.last_sent = Instant::now();
        let give_up = self.last_sent + line.connection().response_timeout();
        // A poll neither creates a place nor, without a place, takes the lock, so a poll that is executed late does no
        // harm.
        if want != Need::Place {
            self.unanswered = Some(Unanswered { on: Arc::clone(line), until: give_up });
        }
        self.open = true;
        give_up
    }

    /// Records the answer to a request; `None` if the server has executed nothing.
    fn answered(&mut self, want: Need, answer: &Result<Option<Answer>, Failure>) {
        if answer.as_ref().err().is_none_or(Failure::is_definite) {
            self.unanswered = None;
            if answer.is_ok() {
                self.route.arrived();
            }
            // A place remains, whatever became of its poll.
            self.open = want == Need::Place || matches!(answer, Ok(Some(_)));
        }
    }

    /// Ends the attempt with a grant, whose deadline is `valid_until` unless replicas must have it: then the deadline
    /// counts from the confirmation, also if the grant came by a message.
    async fn granted(
        &mut self,
        fence: u64,
        others_wait: bool,
        mut valid_until: Instant,
    ) -> Result<Ended, Failure> {
        let token = FencingToken::from_micros(fence);
        if let Some(replicas) = self.replicas.clone() {
            // If the confirmation fails, or is dropped, the drop of the attempt releases the lease.
            match Box::pin(self.confirm(replicas, token)).await? {
                Some(confirmed) => valid_until = confirmed,
                None => return Ok(Ended::Gone),
            }
        }
        self.open = false;
        let lease = Arc::new(self.lease(token, others_wait));
        Ok(Ended::With(Acquired::Granted(Grant::new(token, Held::lease(lease, valid_until)))))
    }

    /// Confirms a grant by replicas of the server that has the lock; see [`Replicas::confirm`]. If the grant came by a
    /// message, this may be another server than the one that was asked last.
    async fn confirm(
        &mut self,
        mut replicas: Arc<Replicas>,
        token: FencingToken,
    ) -> Result<Option<Instant>, Failure> {
        let id = self.request.lease_id(self.owner, token);
        loop {
            self.confirmed_by = Instant::now() + Replicas::limit(self.servers.config());
            let failure = match replicas.confirm(&id).await {
                Err(failure) if self.route.is_for_another_server(&failure) => failure,
                answer => return answer,
            };
            let Some(pause) = self.route.again_with_one_key_after(&failure) else { return Err(failure) };
            // The lock is held by this attempt, so the end of the wait would be no contention.
            self.request.progress.failed(&failure.clone().into_error());
            clock::sleep_until(Instant::now() + pause).await;
            match &self.route.node().await?.replicas {
                Some(others) => replicas = Arc::clone(others),
                None => return Err(failure),
            }
        }
    }

    fn lease(&mut self, token: FencingToken, others_wait: bool) -> RedisLease {
        RedisLease {
            servers: Arc::clone(self.servers),
            id: self.request.lease_id(self.owner, token),
            label: self.request.label,
            unanswered: self.unanswered.take(),
            others_wait,
            granted_at: self.last_sent,
            inquiry: Inquiry::since(self.last_sent),
            release_unanswered: AtomicBool::new(false),
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.open {
            // The last request is executed at its limit at the latest, and its hold ends one `ttl` later. A place can
            // be granted the lock until the place is stale, and the grant then lasts for up to `CLAIM_WINDOW`.
            let limit = self.last_sent + self.servers.config().response_timeout + server_clock::ERROR;
            let of_place = if self.request.wait == Wait::No {
                Duration::ZERO
            } else {
                place::STALE + place::CLAIM_WINDOW
            };
            let until = limit.max(self.confirmed_by) + of_place.max(self.request.ttl);
            // A release in a batch also compares the fencing token. No grant has the token `NO_GRANT`, so a batch
            // releases nothing here, and the release is repeated alone. A release alone compares only the owner.
            let lease = self.lease(NO_GRANT, false);
            self.request.cleanup.release_later(Arc::new(lease), until);
        }
    }
}

/// Returns the end of an attempt whose caller no longer waits for the lock.
fn busy(remaining: Option<Duration>, holder: Option<&Shown>) -> Ended {
    Ended::With(match holder {
        Some(holder) => Acquired::busy_with(holder.holder(remaining)),
        None => Acquired::busy(remaining),
    })
}

async fn next(notices: &mut Option<Notices>) -> Option<Notice> {
    notices.as_mut()?.next().await
}
