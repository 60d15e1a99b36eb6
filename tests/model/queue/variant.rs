//! A variant: its participants, its durations, and the rule that it breaks.

use super::state::NEVER;

/// One search: the protocol as built, or with a rule broken, and the size of the model.
#[derive(Clone, Debug)]
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    pub(crate) times: Times,
    /// At most four.
    pub(crate) clients: Vec<Role>,
    pub(crate) manner: Manner,
    /// Number of clients that may crash.
    pub(crate) crashes: u8,
    /// Number of holds that an operator may revoke.
    pub(crate) revocations: u8,
    /// A release may leave the lock free for clients that do not queue, although others queue for it.
    pub(crate) opens: bool,
    /// A client's limit may lie too early while it does not know the server's time: any request may be refused.
    pub(crate) early_limits: bool,
    /// An attacker subscribes to all channels and publishes on them, but has no permission for any key.
    pub(crate) attacked: bool,
    /// Only the mutants break rules.
    pub(crate) broken: &'static [Break],
}

impl Variant {
    pub(crate) fn new(name: &'static str, times: Times, clients: &[Role]) -> Self {
        Self {
            name,
            times,
            clients: clients.to_vec(),
            manner: Manner::AsBuilt,
            crashes: 0,
            revocations: 0,
            opens: false,
            early_limits: false,
            attacked: false,
            broken: &[],
        }
    }

    /// Searches the loosest client that the rules allow.
    pub(crate) fn loose(self) -> Self {
        Self { manner: Manner::Loose, ..self }
    }

    pub(crate) fn crashes(self, crashes: u8) -> Self {
        Self { crashes, ..self }
    }

    pub(crate) fn revocations(self, revocations: u8) -> Self {
        Self { revocations, ..self }
    }

    pub(crate) fn opens(self) -> Self {
        Self { opens: true, ..self }
    }

    pub(crate) fn early_limits(self) -> Self {
        Self { early_limits: true, ..self }
    }

    pub(crate) fn attacked(self) -> Self {
        Self { attacked: true, ..self }
    }

    pub(crate) fn breaking(self, broken: &'static [Break]) -> Self {
        Self { broken, ..self }
    }

    pub(crate) fn breaks(&self, rule: Break) -> bool {
        self.broken.contains(&rule)
    }

    /// The clients of this library; foreign ones come after them.
    pub(crate) fn own(&self) -> usize {
        self.clients.iter().filter(|role| !role.foreign).count()
    }

    pub(crate) fn role(&self, client: u8) -> &Role {
        &self.clients[usize::from(client)]
    }
}

/// Durations in ticks of the server's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) ttl: u8,
    /// Duration of an unclaimed grant.
    pub(crate) window: u8,
    /// Age from which a place is skipped.
    pub(crate) stale: u8,
    /// Interval of a waiter's polls, only for the liveness check; in the search every poll may come at any time.
    pub(crate) refresh: u8,
    /// The part of a lease that a client leaves unused.
    pub(crate) margin: u8,
    /// Time limit for executing a request that grants or joins, from its sending; [`NEVER`] without a limit.
    pub(crate) limit: u8,
    /// Time for which an open release keeps the lock free.
    pub(crate) open: u8,
}

impl Times {
    pub(crate) const fn new(ttl: u8, window: u8, stale: u8) -> Self {
        Self { ttl, window, stale, refresh: 1, margin: 0, limit: 2, open: 1 }
    }

    pub(crate) const fn margin(self, margin: u8) -> Self {
        Self { margin, ..self }
    }

    /// Requests may be executed at any time, as when the server's clock is set back.
    pub(crate) const fn unlimited(self) -> Self {
        Self { limit: NEVER, ..self }
    }
}

/// The abilities of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an ability of a client, and they can be combined freely"
)]
pub(crate) struct Role {
    /// Another library: `SET NX` with a fixed lease, compare-and-delete.
    pub(crate) foreign: bool,
    /// Number of its acquisitions; or [`Role::UNLIMITED`].
    pub(crate) attempts: u8,
    /// Upper bound on its requests and answers in flight when it sends another request. Releases are always sent.
    pub(crate) in_flight: usize,
    /// An attempt may also be one that does not wait.
    pub(crate) tries: bool,
    /// Acquisitions and releases may go in a group with those of other locks.
    pub(crate) groups: bool,
    /// Tasks behind its holder.
    pub(crate) followers: u8,
    /// Number of ticks that its clock may miss.
    pub(crate) slack: u8,
    /// A release may be sent twice.
    pub(crate) repeats: bool,
}

impl Role {
    pub(crate) const UNLIMITED: u8 = u8::MAX;
    pub(crate) const FOREIGN: Self = Self { foreign: true, ..Self::own(1, 1) };

    pub(crate) const fn own(attempts: u8, in_flight: usize) -> Self {
        Self {
            foreign: false,
            attempts,
            in_flight,
            tries: false,
            groups: false,
            followers: 0,
            slack: 0,
            repeats: false,
        }
    }

    pub(crate) const fn tries(self) -> Self {
        Self { tries: true, ..self }
    }

    pub(crate) const fn groups(self) -> Self {
        Self { groups: true, ..self }
    }

    pub(crate) const fn followers(self, followers: u8) -> Self {
        Self { followers, ..self }
    }

    pub(crate) const fn slack(self, slack: u8) -> Self {
        Self { slack, ..self }
    }

    pub(crate) const fn repeats(self) -> Self {
        Self { repeats: true, ..self }
    }
}

/// The strictness of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Like `attempt.rs`, `hold.rs` and `renewal.rs`, which are stricter than the rules:
    /// * `join` and `try` are sent once; unanswered, they end the attempt,
    /// * one request at a time is awaited; the answer to one that timed out is lost,
    /// * a push is read only behind the answer to `join`,
    /// * an expired deadline does not come back,
    /// * after `Gone` nothing is sent.
    AsBuilt,
    /// As loose as the rules allow: `join` is repeated with the same token, every answer counts however late, a push
    /// is believed before the first answer (dated by the first request), an answer to a renewal revives a hold.
    ///
    /// This shows the demands on the scripts and the comparisons, and that the client's strictness is a second wall.
    Loose,
}

/// A broken rule: the behaviour of a plausible wrong protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// The deadline of a pushed grant counts from the arrival of the push.
    DatedByArrival,
    /// … from the last poll, answered or not.
    DatedByLastPoll,
    /// … from the arrival of the answer `Waiting`.
    DatedByAnswer,
    /// A push is believed whatever fence was seen since its minting.
    StalePushCounts,
    /// A poll makes the place anew if it is gone.
    PollQueuesAgain,
    /// A release deletes any holder.
    ReleaseUncompared,
    /// A release deletes the holder without a check of the queue.
    ReleaseBlind,
    /// A client that gives up leaves the queue, but not a lock that was granted meanwhile.
    LeaveWithoutRelease,
    /// A repeated `join` takes another place.
    JoinTwice,
    /// A grant by hand-over lasts the longer, the older its place is.
    GrantGrowsWithAge,
    /// A grant by hand-over lasts a whole ttl.
    GrantForTtl,
    /// A grant by hand-over has no end.
    GrantForEver,
    /// A poll refreshes the place and does not check whether the lock is free.
    PollLooksAway,
    /// The fence is counted next to `SET NX`, not with it.
    MintBesideSet,
    /// A renewal extends any holder.
    RenewUncompared,
    /// A renewal compares the owner and not the fence.
    RenewWithoutFence,
    /// A lease that is handed over takes the fence one higher, which the store may mint too.
    PassUnreserved,
    /// A lease is handed over although its release was sent.
    PassAfterRelease,
    /// A lease is handed over before the last holder sees that its turn is over.
    PassBeforeEnd,
    /// A release that leaves the lock free notifies no waiter.
    OpenInSilence,
    /// A waiter that is notified of a free lock takes it for its own, without asking.
    FreeIsAGrant,
    /// A grant message is believed whatever its proof.
    PushWithoutProof,
    /// A grant message carries the secret with which the next one is proved.
    SecretOnTheWire,
    /// The proof of a grant message covers the owner, and not the fence and the length.
    ProofWithoutTerms,
    /// The message that a lock was left free carries the secret.
    SecretInFree,
    /// A request is executed however late.
    LateGranted,
    /// A release counts as the end of its owner although an acquisition may still be executed.
    FinalBeforeTheLimit,
    /// A call of our clients takes the lock although it was left open.
    WindowIgnored,
    /// A waiter is evicted, its leave is sent, and it may still enter.
    EntersAfterEviction,
    /// A group takes the last fence, and does not mint one.
    GroupTakesLastFence,
    /// A group deletes the holder without a check of the queue.
    GroupReleasesBlind,
    /// A group deletes any holder.
    GroupReleasesUncompared,
    /// A revocation frees the lock, although its holder may still believe that it holds it.
    RevocationFrees,
    /// A revocation reaches any holder.
    RevokesUncompared,
    /// A renewal does not look whether the hold was revoked.
    RenewsRevoked,
    /// A poll claims a grant that was revoked before it was claimed.
    ClaimsRevoked,
    /// A release does not recognise its hold once it is revoked.
    ReleaseMissesRevoked,
}
