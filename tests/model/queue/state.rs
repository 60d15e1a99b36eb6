//! A state: the server, the network and the clients' knowledge at one instant.

use std::fmt::{self, Display};

/// The owner of a request, place or hold: a client, and one of its attempts. Models the real owner token.
///
/// Attempt 0 is the client's present one; a larger number names an ended attempt that has left something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Owner {
    pub(crate) client: u8,
    pub(crate) attempt: u8,
}

/// The holder's key: owner and fence are one value, and compared as one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Holder {
    pub(crate) owner: Owner,
    pub(crate) fence: u8,
    /// Ticks until it expires; [`NEVER`] without an end.
    pub(crate) px: u8,
    /// The number of this hold of the lock, from 1; 0 where the fence is minted with the hold, as it should be.
    pub(crate) tenure: u8,
    /// Whether an operator has revoked this hold.
    pub(crate) revoked: bool,
}

pub(crate) const NEVER: u8 = u8::MAX;

/// A place in the queue; the queue's order is the order of tickets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) owner: Owner,
    /// Ticks since its last refresh.
    pub(crate) age: u8,
}

/// The third argument of the acquire script, or the group script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Mode {
    Try,
    Join,
    Poll,
    /// In a group: takes a free lock for which no client waits; otherwise a `Join` follows, with the same owner token.
    Group,
}

/// A request to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Call {
    Acquire(Mode),
    /// Of `<owner>:<fence>`.
    Renew(u8),
    /// Ends a hold or gives up a place, by owner.
    Release,
    /// Ends the hold `<owner>:<fence>` in a group, if no client waits; otherwise a `Release` follows.
    ReleaseInGroup(u8),
    /// The acquisition of a foreign client.
    SetNx,
    /// The release of a foreign client: compare and delete, without a check of the queue.
    CompareAndDelete,
    /// The revocation of the hold `<owner>:<fence>`, by an operator.
    Revoke(u8),
    /// Broken protocols only: gives up a place, but not a hold.
    Leave,
    /// Broken protocols only: `INCR` sent alongside `SET NX`, for this tenure.
    Mint(u8),
}

/// An answer of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Reply {
    Granted(u8),
    /// With the last minted fence.
    Waiting(u8),
    Held,
    Gone,
    Renewed,
    NotYours,
    /// The limit of the request had passed; nothing was done.
    Late,
}

/// A pending request to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Request {
    pub(crate) owner: Owner,
    pub(crate) call: Call,
    /// Ticks of the client's clock since the sending; counted only while it matters.
    pub(crate) age: u8,
    /// Whether the client would still accept the answer.
    pub(crate) awaited: bool,
    /// Ticks of the server's clock until its limit passes; [`NEVER`] for a call without a limit.
    pub(crate) left: u8,
}

impl Request {
    /// Whether it can bring its owner onto the server, or extend a place or hold there.
    pub(crate) fn acquires(self) -> bool {
        matches!(self.call, Call::Acquire(_))
    }

    pub(crate) fn is_late(self) -> bool {
        self.left == 0
    }
}

/// The content of a grant message's proof: a hash over the owner token, which is secret, and these terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    pub(crate) fence: u8,
    pub(crate) px: u8,
}

/// A message in flight. It may arrive in any order, late, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Message {
    Request(Request),
    Answer {
        owner: Owner,
        reply: Reply,
        /// Ticks since the request was sent.
        age: u8,
    },
    /// A grant message as the server made it, with the proof of these terms. An attacker who subscribes keeps a
    /// copy, so under attack the message stays in flight after its delivery.
    Push {
        owner: Owner,
        fence: u8,
        px: u8,
    },
    /// Notifies the first in the queue that the lock was left free.
    Free {
        owner: Owner,
    },
}

impl Message {
    pub(crate) fn owner(self) -> Owner {
        match self {
            Self::Request(Request { owner, .. })
            | Self::Answer { owner, .. }
            | Self::Push { owner, .. }
            | Self::Free { owner } => owner,
        }
    }

    pub(crate) fn owner_mut(&mut self) -> &mut Owner {
        match self {
            Self::Request(Request { owner, .. })
            | Self::Answer { owner, .. }
            | Self::Push { owner, .. }
            | Self::Free { owner } => owner,
        }
    }
}

/// The client's view of its present attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    Idle,
    /// An acquisition was sent and is not answered.
    Asking {
        mode: Mode,
        /// Ticks since the first request of this attempt; counted only for the loose client.
        age: u8,
    },
    /// The answer was `Waiting`.
    Waiting {
        /// Ticks since the proof was sent: the youngest-sent request with this answer.
        age: u8,
        /// The last minted fence when the proof was answered.
        seen: u8,
    },
    /// Granted. The client believes that it holds while `valid` is not 0.
    Holding {
        valid: u8,
        fence: u8,
        /// Number of hand-overs of the lease inside the client.
        seq: u8,
    },
    Dead,
}

/// A process, or its part that asks the store for this lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    pub(crate) attempt: u8,
    pub(crate) attempts_left: u8,
    /// Tasks behind the holder to which the lease can be handed over.
    pub(crate) followers_left: u8,
    /// Ticks that its clock may miss.
    pub(crate) slack_left: u8,
    /// Broken protocols only: the previous holder still believes.
    pub(crate) lingers: bool,
}

/// Effects of a transition that must never happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Violation {
    /// A client believes in a token that is not larger than an earlier believed one.
    TokenFell,
    /// A request touched a hold that is not its owner's.
    TouchedAnother,
    /// A release was executed, and something of its owner is left.
    LeftBehind,
    /// A release left a free key before a live waiter, and notified none.
    WakeUpLost,
    /// A client of ours took a lock, or handed it over, while it was open for clients that do not queue.
    WindowTaken,
    /// A revoked hold was made longer.
    RevokedExtended,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct State {
    pub(crate) holder: Option<Holder>,
    pub(crate) queue: Vec<Place>,
    /// Ticks until the marker of an open release expires; 0 without one.
    pub(crate) open: u8,
    /// The last minted fence.
    pub(crate) fence: u8,
    pub(crate) clients: Vec<Client>,
    pub(crate) network: Vec<Message>,
    /// The largest believed token: fence and sequence.
    pub(crate) top: (u8, u8),
    pub(crate) crashes_left: u8,
    pub(crate) revocations_left: u8,
    /// The number of holds, and the last one whose fence is minted; counted only where the two come apart.
    pub(crate) tenures: u8,
    pub(crate) minted_tenure: u8,
    /// Owners that were released after the limits of all their acquisitions had passed; kept while such an
    /// acquisition is in flight.
    pub(crate) cleared: Vec<Owner>,
    /// Broken protocols only: owners whose token the attacker knows.
    pub(crate) leaked: Vec<Owner>,
    pub(crate) violation: Option<Violation>,
}

impl State {
    pub(crate) fn client(&self, id: u8) -> &Client {
        &self.clients[usize::from(id)]
    }

    pub(crate) fn client_mut(&mut self, id: u8) -> &mut Client {
        &mut self.clients[usize::from(id)]
    }

    /// The owner of a client's present attempt.
    pub(crate) fn owner(&self, client: u8) -> Owner {
        Owner { client, attempt: self.client(client).attempt }
    }

    /// Whether this is an attempt that has not ended.
    pub(crate) fn is_present(&self, owner: Owner) -> bool {
        let client = self.client(owner.client);
        client.attempt == owner.attempt && !matches!(client.phase, Phase::Idle | Phase::Dead)
    }

    pub(crate) fn is_held_by(&self, owner: Owner) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.owner == owner)
    }

    pub(crate) fn place_of(&self, owner: Owner) -> Option<usize> {
        self.queue.iter().position(|place| place.owner == owner)
    }

    pub(crate) fn is_on_server(&self, owner: Owner) -> bool {
        self.is_held_by(owner) || self.place_of(owner).is_some()
    }

    /// The requests in flight that could bring the owner onto the server.
    pub(crate) fn acquisitions_of(&self, owner: Owner) -> impl Iterator<Item = &Request> {
        self.network.iter().filter_map(move |message| match message {
            Message::Request(request) if request.owner == owner && request.acquires() => Some(request),
            _ => None,
        })
    }

    /// The owners of everything on the server and in flight.
    pub(crate) fn mentioned(&self) -> impl Iterator<Item = Owner> {
        let holder = self.holder.iter().map(|holder| holder.owner);
        holder
            .chain(self.queue.iter().map(|place| place.owner))
            .chain(self.network.iter().map(|message| message.owner()))
    }

    pub(crate) fn believers(&self) -> usize {
        let believers = |client: &Client| match client.phase {
            Phase::Holding { valid: 1.., .. } => 1 + usize::from(client.lingers),
            _ => 0,
        };
        self.clients.iter().map(believers).sum()
    }

    /// Records a violation; only the first counts.
    pub(crate) fn violate(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }
}

impl Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", name(self.client), self.attempt)
    }
}

/// The letter of a client.
pub(crate) fn name(client: u8) -> char {
    char::from(b'A' + client)
}

impl Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(request) => {
                write!(f, "{} {:?}", request.owner, request.call)?;
                if request.awaited {
                    write!(f, " sent {} ago", request.age)?;
                }
                if request.is_late() { f.write_str(", its limit has passed") } else { Ok(()) }
            }
            Self::Answer { owner, reply, age } => write!(f, "{owner} is answered {reply:?}, asked {age} ago"),
            Self::Push { owner, fence, px } => write!(f, "{owner} is pushed fence {fence} px {px}"),
            Self::Free { owner } => write!(f, "{owner} is notified that the lock is free"),
        }
    }
}

/// One line of a counter-example.
impl Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.holder {
            None if self.open > 0 => write!(f, "open for {}", self.open)?,
            None => f.write_str("free")?,
            Some(Holder { owner, fence, px: NEVER, .. }) => write!(f, "held by {owner}:{fence} forever")?,
            Some(Holder { owner, fence, px, .. }) => write!(f, "held by {owner}:{fence} for {px}")?,
        }
        if self.holder.as_ref().is_some_and(|holder| holder.revoked) {
            f.write_str(", revoked")?;
        }
        for place in &self.queue {
            write!(f, ", {} queued {} ago", place.owner, place.age)?;
        }
        write!(f, "; minted {}", self.fence)?;
        for (id, client) in (0..).zip(&self.clients) {
            write!(f, "; {} {:?}", name(id), client.phase)?;
        }
        Ok(())
    }
}
