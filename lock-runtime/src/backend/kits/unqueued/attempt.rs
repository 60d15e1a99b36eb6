//! Attempts to acquire a lock: ask all nodes, and wait until it is worth asking again.

use std::{
    future::poll_fn,
    mem,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use super::{
    claim::{Claim, UnansweredAcquisitions},
    error::out_of_reach,
    hold::RacedLease,
    protocol::Kind,
    quorum::{Decision, Fence, Fences, MIN_QUIET, Patience},
    shared::Shared,
    watch::Watch,
};
use crate::{
    FencingToken, LockError, OwnerToken,
    backend::{
        Acquire, Acquired, Grant, Held, Wait,
        common::{
            contention::Contention,
            inquiry::Inquiry,
            signature,
            waiting::{Answer, Waiter, until_granted},
        },
        kits::redis::{error::Failure, foreign::FOREIGN_USE_RETENTION},
    },
    time::{backoff::between, clock::Instant, deadline::valid_until},
};

/// The pause after a tie is random, up to a maximum. The bounds are the smallest and the largest maximum. A tie
/// is a round in which several clients may each have got the lock on some of the nodes. After the first tie, a request
/// that does not wait (`Wait::No`) has the smallest maximum. A waiter makes no pause after the first tie, because all
/// waiters then ask the same node first, the leader, which grants the lock to at most one waiter. With each further
/// tie, the maximum doubles, until the maximum has its largest value.
const TIE_PAUSE_BOUNDS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(32)];
/// Upper bound on the number of doublings of the maximum pause after a tie.
const MAX_PAUSE_DOUBLINGS: u32 = 5;
/// Upper bound on the immediate repetitions in a row after rounds in which some nodes granted the lock, although a
/// majority refused the lock. In such a round, either one other client holds the lock on a majority of the nodes, and a
/// repetition is useless, or several other clients hold the lock on some nodes each, and a repetition may succeed.
///
/// For a request that does not wait (`Wait::No`), the bound applies to all repetitions. Such a request plans no
/// repetition once the longest timeout of a node has passed since the request began.
const MAX_REPEATS_IF_DENIED: u32 = 2;
/// How long a waiter breaks off [divided](Count::is_divided) rounds early, as a multiple of a node's timeout. This time
/// counts from the first broken-off round; a round that the answers decide resets this time. When this time is over,
/// the waiter makes one round that waits for all nodes. One timeout is too short: if another client makes a round that
/// waits for all nodes, the other client's round may hold some nodes for one timeout, and for as long may keep the
/// waiter from a majority.
const TIMEOUTS_UNTIL_PATIENCE: u32 = 2;

/// The outcome of one round.
enum Round {
    Granted(Grant),
    Refused(Refusal),
}

/// The result of a round in which the lock was not granted.
struct Refusal {
    /// The time at which enough leases have ended to leave a majority of the nodes free, if known;
    /// [`Instant::FAR_FUTURE`] if clients of other libraries hold a majority of the nodes without an expiry.
    ends: Option<Instant>,
    end: End,
    /// Whether some nodes granted the lock.
    granted_some: bool,
    /// Whether a majority refused the lock.
    is_denied: bool,
    /// Whether some node is held by a client of another library.
    has_foreign: bool,
}

/// How a refused round ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The answers decided the round.
    Decided,
    /// The answers were divided, and no further answer came in time.
    BrokenOff,
    /// The leader refused, so the other nodes were not asked.
    RefusedByLeader,
}

pub(crate) async fn acquire(shared: &Arc<Shared>, request: &Acquire) -> Result<Acquired, LockError> {
    // A request that does not wait would lose the lock for good by a pause.
    if request.wait != Wait::No
        && let Some(until) = shared.left_free.take(request.key.stored())
    {
        request.progress.sleep_until(until.min(request.wait.end())).await;
    }
    until_granted(request, Rounds::new(shared, request)).await
}

/// The rounds of one waiter.
struct Rounds<'a> {
    shared: &'a Arc<Shared>,
    request: &'a Acquire,
    signature: Arc<str>,
    /// Number of rounds in a row that may have been ties, counted up to [`MAX_PAUSE_DOUBLINGS`]. For a single attempt,
    /// which is a request that does not wait (`Wait::No`), each repeated round counts. After a tie, a waiter asks the
    /// [leader](super::nodes::Nodes::leader) first.
    ties: u32,
    /// The time until which a single attempt is repeated. If the rounds have taken as long as a node's timeout, nodes
    /// are failing, and a further round would be as slow.
    ties_until: Instant,
    /// The end of the first broken-off round after the last round that the answers decided; `None` if no round was
    /// broken off after the decided round. If a round that waits for all nodes is broken off, the end of that patient
    /// round becomes the new value.
    divided_since: Option<Instant>,
}

impl<'a> Rounds<'a> {
    fn new(shared: &'a Arc<Shared>, request: &'a Acquire) -> Self {
        let ties_until = Instant::now() + shared.nodes.timeout();
        let signature = signature::of(request.label).into();
        Self { shared, request, signature, ties: 0, ties_until, divided_since: None }
    }

    /// Returns whether the request ends with this refusal, so that no further round follows.
    fn is_last(&self, refusal: &Refusal, now: Instant) -> bool {
        // A single attempt, too, is repeated if several clients may have divided the nodes: otherwise, each of these
        // clients would give up a lock that none of them holds.
        if self.request.wait == Wait::No {
            !refusal.granted_some || self.ties == MAX_REPEATS_IF_DENIED || now >= self.ties_until
        } else {
            now >= self.request.wait.end()
        }
    }
}

impl Waiter for Rounds<'_> {
    type Subscription = Watch;

    async fn ask(&mut self, watch: Option<&mut Watch>) -> Result<Answer, LockError> {
        let (shared, request) = (self.shared, self.request);
        let nodes = &shared.nodes;
        if let Some(watch) = watch {
            watch.subscribe_over(nodes.lines());
        }
        if request.auto_renew {
            nodes.can_renew().await?;
        }
        let is_patient = self
            .divided_since
            .is_some_and(|since| (since + TIMEOUTS_UNTIL_PATIENCE * nodes.timeout()).has_passed());
        let patience = if is_patient { Patience::UntilTimeout(nodes.timeout()) } else { Patience::Short };
        // A single attempt asks all nodes, because one node's refusal is no proof that the lock is held.
        let has_leader = self.ties > 0 && !is_patient && request.wait != Wait::No;
        let leader = if has_leader { nodes.leader() } else { None };
        let refusal = match Attempt::new(shared, request, &self.signature).run(patience, leader).await? {
            Round::Granted(grant) => return Ok(Answer::Granted(grant)),
            Round::Refused(refusal) => refusal,
        };
        let now = Instant::now();
        self.divided_since = match refusal.end {
            End::Decided => None,
            End::BrokenOff => self.divided_since.filter(|_| !is_patient).or(Some(now)),
            End::RefusedByLeader => self.divided_since,
        };
        let remaining = refusal.ends.map(|ends| match ends {
            Instant::FAR_FUTURE => Duration::MAX,
            ends => ends.saturating_duration_since(now),
        });
        if self.is_last(&refusal, now) {
            return Ok(Answer::Held { remaining, pause: Duration::ZERO });
        }
        if refusal.has_foreign {
            shared.foreign.remember(request.key.stored(), now, FOREIGN_USE_RETENTION);
        }
        let may_be_tie = refusal.granted_some && (!refusal.is_denied || self.ties < MAX_REPEATS_IF_DENIED);
        if may_be_tie || request.wait == Wait::No {
            let [first, longest] = TIE_PAUSE_BOUNDS;
            let pause = if self.ties == 0 && request.wait != Wait::No {
                Duration::ZERO
            } else {
                between([Duration::ZERO, longest.min(first * (1 << self.ties))])
            };
            self.ties = MAX_PAUSE_DOUBLINGS.min(self.ties + 1);
            return Ok(Answer::Undecided { pause });
        }
        self.ties = 0;
        let pause = between(nodes.protocol.pause(refusal.has_foreign));
        let spread = between([Duration::ZERO, TIE_PAUSE_BOUNDS[0]]);
        let pause = remaining.map_or(pause, |remaining| pause.min(remaining.saturating_add(spread)));
        Ok(Answer::Held { remaining, pause })
    }

    fn subscribe(&self) -> Watch {
        let nodes = &self.shared.nodes;
        Watch::begin(&nodes.inbox.hints, nodes.protocol.channel(&self.request.key).into())
    }
}

/// Sleeps for `length`. A pause of zero returns at once; a timer for zero could take up to a millisecond.
async fn pause(length: Duration) {
    if !length.is_zero() {
        tokio::time::sleep(length).await;
    }
}

/// What the nodes have said about one acquisition.
struct Votes {
    fences: Fences,
    /// The set of the nodes that granted the lock: bit `n` stands for the node with the number `n`.
    granted: u64,
    /// Each is `2 * (pttl + 2)`, plus 1 for a foreign holder.
    refusals: Vec<u64>,
    others_wait: bool,
}

impl Votes {
    fn of(nodes: usize) -> Self {
        Self { fences: Fences::of(nodes), granted: 0, refusals: Vec::new(), others_wait: false }
    }

    fn add(&mut self, node: usize, answer: Result<i64, Failure>, unanswered: &UnansweredAcquisitions) {
        match answer {
            Ok(answer) => {
                unanswered.ended_at(node);
                match u64::try_from(answer) {
                    Ok(answer) => {
                        self.granted |= 1 << node;
                        self.fences.add(answer / 2);
                        self.others_wait |= answer % 2 == 1;
                    }
                    Err(_) => self.refusals.push(answer.unsigned_abs()),
                }
            }
            Err(failure) if failure.is_definite() => unanswered.ended_at(node),
            Err(_) => {}
        }
    }
}

/// An attempt under one owner token, from before the first byte is sent until the grant is returned.
///
/// If the attempt is dropped earlier, anything that it may have left on the nodes is removed in the background.
struct Attempt<'a> {
    shared: &'a Arc<Shared>,
    request: &'a Acquire,
    signature: &'a Arc<str>,
    owner: OwnerToken,
    /// When the acquisition was sent.
    sent: Instant,
    /// When nodes refuse the acquisition: as long as a lease after it was sent at the latest, because an operator may have
    /// revoked the hold by then, and a node would take the hold without the mark.
    limit: Instant,
    unanswered: Arc<UnansweredAcquisitions>,
    /// Whether the attempt may have left something on a node.
    open: bool,
}

impl<'a> Attempt<'a> {
    fn new(shared: &'a Arc<Shared>, request: &'a Acquire, signature: &'a Arc<str>) -> Self {
        let sent = Instant::now();
        let limit = sent + shared.nodes.timeout().min(request.ttl);
        Self {
            shared,
            request,
            signature,
            owner: OwnerToken::random(),
            sent,
            limit,
            unanswered: Arc::new(UnansweredAcquisitions::of(shared.nodes.of.len(), limit)),
            open: false,
        }
    }

    fn claim(&self, fence: u64) -> Claim {
        let id = self.request.lease_id(self.owner, FencingToken::from_micros(fence));
        let claim = Claim::of(id, self.limit, &self.unanswered);
        Claim { signature: Some(Arc::clone(self.signature)), ..claim }
    }

    /// Asks all nodes, and raises the nodes' counters of fences if the nodes minted different numbers. If there is a
    /// `leader`, the leader is asked first, and the other nodes are asked unless the leader refuses within
    /// [`MIN_QUIET`].
    async fn run(mut self, patience: Patience, leader: Option<usize>) -> Result<Round, LockError> {
        let nodes = &self.shared.nodes;
        let proposal = self.claim(nodes.proposal(self.sent));
        self.open = true;
        let ask = |is_asked: &dyn Fn(usize) -> bool| {
            nodes.ask(Kind::Acquire, |node| is_asked(node).then(|| proposal.clone()))
        };
        let mut votes = Votes::of(nodes.of.len());
        let mut replies = ask(&|node| leader.is_none_or(|leader| leader == node));
        if let Some(leader) = leader {
            if let Ok(Some((node, answer))) = tokio::time::timeout(MIN_QUIET, replies.next()).await {
                votes.add(node, answer, &self.unanswered);
            }
            if replies.count.no == 0 {
                replies.extend(ask(&|node| node != leader));
            }
        }
        let mut end = if replies.count.no > 0 { End::RefusedByLeader } else { End::Decided };
        let fence = loop {
            if let Some(fence) = votes.fences.fence() {
                break Some(fence);
            }
            if replies.count.has_majority() == Decision::No {
                break None;
            }
            let next = if replies.count.is_divided() {
                let taken = Instant::now().saturating_duration_since(self.sent);
                let patience = match patience {
                    Patience::Short if !nodes.may_answer_soon(&replies) => Patience::None,
                    patience => patience,
                };
                let left = patience.breaks_off_after(taken).saturating_sub(taken);
                tokio::select! {
                    biased;
                    next = replies.next() => next,
                    () = pause(left) => {
                        end = End::BrokenOff;
                        None
                    }
                }
            } else {
                replies.next().await
            };
            let Some((node, answer)) = next else { break None };
            votes.add(node, answer, &self.unanswered);
        };
        let (granted_by, mut failures) = (replies.count.yes, mem::take(&mut replies.failures));
        drop(replies);
        let fence = match fence {
            Some(Fence::Agreed(fence)) => Some(fence),
            Some(Fence::ToRaise(fence)) => {
                self.raise(fence, votes.granted, &mut failures).await.then_some(fence)
            }
            None => None,
        };
        let valid_until = valid_until(self.sent, self.request.ttl);
        if let Some(fence) = fence {
            return Ok(Round::Granted(self.granted(fence, valid_until, votes.others_wait)));
        }
        // The nodes that granted the lock are freed before this call returns, so that this client's next round finds
        // these nodes free. Only this client waits for the answers of these nodes.
        self.lease(FencingToken::from_micros(0)).withdraw_from(votes.granted).await;
        self.open = false;
        // The failures are those of the acquisition, or of writing the fence back.
        if failures.len() > nodes.of.len() - nodes.majority() {
            return Err(out_of_reach(&nodes.of, failures));
        }
        Ok(Round::Refused(self.refusal(&votes.refusals, granted_by, end)))
    }

    /// Writes the fence back to the nodes that granted the lock; returns whether this owner still held the lock on a
    /// majority of the nodes.
    async fn raise(&self, fence: u64, granted: u64, failures: &mut Vec<(usize, Failure)>) -> bool {
        let nodes = &self.shared.nodes;
        let claim = self.claim(fence);
        let mut replies = nodes.ask(Kind::Raise, |node| (granted >> node & 1 == 1).then(|| claim.clone()));
        (0..nodes.of.len()).filter(|node| granted >> node & 1 == 0).for_each(|_| replies.count.add(None));
        poll_fn(|cx| replies.poll_majority(cx)).await;
        failures.append(&mut replies.failures);
        replies.count.has_majority() == Decision::Yes
    }

    fn granted(&mut self, fence: u64, valid_until: Instant, others_wait: bool) -> Grant {
        self.open = false;
        let token = self.shared.nodes.protocol.token(fence);
        self.shared.held.insert(self.owner, Arc::clone(self.signature));
        let mut lease = self.lease(token);
        lease.contention.others_wait = others_wait;
        Grant::new(token, Held::lease(Arc::new(lease), valid_until))
    }

    fn lease(&self, token: FencingToken) -> RacedLease {
        let answered_at = Instant::now();
        RacedLease {
            shared: Arc::clone(self.shared),
            id: self.request.lease_id(self.owner, token),
            unanswered: Arc::clone(&self.unanswered),
            contention: Contention { asked_at: self.sent, answered_at, others_wait: false },
            inquiry: Inquiry::since(answered_at),
            release_unanswered: AtomicBool::new(false),
        }
    }

    fn refusal(&self, refusals: &[u64], granted: usize, end: End) -> Refusal {
        let now = Instant::now();
        // A lease without an end has a pttl of -1.
        let expiry =
            |refusal: &u64| (refusal / 2).checked_sub(2).map(|pttl| now + Duration::from_millis(pttl));
        let mut ends: Vec<Instant> =
            refusals.iter().map(|refusal| expiry(refusal).unwrap_or(Instant::FAR_FUTURE)).collect();
        ends.sort_unstable();
        let needed = self.shared.nodes.majority().saturating_sub(granted);
        let last = needed.checked_sub(1).and_then(|last| ends.get(last)).copied();
        let endless = refusals.iter().filter(|refusal| **refusal / 2 == 1).count();
        Refusal {
            ends: last.filter(|end| *end < Instant::FAR_FUTURE || endless >= self.shared.nodes.majority()),
            end,
            granted_some: granted > 0,
            is_denied: refusals.len() >= self.shared.nodes.majority(),
            has_foreign: refusals.iter().any(|refusal| refusal % 2 == 1),
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.open {
            self.shared.nodes.withdraw_behind(&self.claim(0));
            // The acquisition is executed at its limit at the latest, and its lease ends one `ttl` later.
            let until = self.unanswered.limit() + self.request.ttl;
            let lease = self.lease(FencingToken::from_micros(0));
            self.request.cleanup.release_later(Arc::new(lease), until);
        }
    }
}
