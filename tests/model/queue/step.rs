//! The steps of the clients, the server, the network, the clocks and the attacker, and their printed form.

use std::fmt::{self, Display};

use super::state::{Message, Mode, Owner, Proof, Request, name};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// The client asks for the lock, with a fresh owner token.
    Start(u8, Mode),
    /// Repeats the request, with the same token.
    AskAgain(u8),
    Poll(u8),
    /// The attempt ends without a hold: given up, dropped, or its request timed out.
    ///
    /// Includes an unpolled waiter that its process evicts: one compare-exchange decides between this and entering,
    /// before the leave is sent.
    GiveUp(u8),
    /// [`EntersAfterEviction`](super::variant::Break::EntersAfterEviction).
    Evict(u8),
    Renew(u8),
    Release(u8),
    ReleaseInGroup(u8),
    ReleaseTwice(u8),
    Pass(u8),
    ReleaseAndPass(u8),
    Crash(u8),
    /// An operator who has seen this hold sends its revocation.
    Revoke(Owner, u8),
    Execute(Message),
    /// The server refuses a request whose limit lies too early.
    Refuse(Request),
    /// The server executes a release and leaves the lock free.
    ExecuteOpenly(Message),
    Receive(Message),
    /// The attacker publishes a grant message, with a proof that it has read or can make.
    Forge {
        owner: Owner,
        terms: Proof,
        proof: Option<Proof>,
    },
    /// Makes room. A message that stays in flight forever is lost, too.
    Lose(Message),
    Tick,
    TickMissedBy(u8),
}

/// One line of a counter-example.
impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(id, mode) => write!(f, "{} sends {mode:?}, with a fresh owner token", name(*id)),
            Self::AskAgain(id) => write!(f, "{} sends Join again", name(*id)),
            Self::Poll(id) => write!(f, "{} sends Poll", name(*id)),
            Self::GiveUp(id) => write!(f, "{} gives up and sends its leave", name(*id)),
            Self::Evict(id) => {
                write!(f, "the process of {} sends its leave, and {} does not know", name(*id), name(*id))
            }
            Self::Renew(id) => write!(f, "{} sends a renewal", name(*id)),
            Self::Release(id) => write!(f, "{} ends its hold and sends the release", name(*id)),
            Self::ReleaseInGroup(id) => {
                write!(f, "{} ends its hold and sends the release in a group", name(*id))
            }
            Self::ReleaseTwice(id) => write!(f, "{} ends its hold and sends the release twice", name(*id)),
            Self::Pass(id) => write!(f, "{} hands the lease over inside the process", name(*id)),
            Self::ReleaseAndPass(id) => write!(f, "{} releases, and hands the lease over", name(*id)),
            Self::Crash(id) => write!(f, "{} crashes", name(*id)),
            Self::Revoke(owner, fence) => write!(f, "an operator revokes the hold of {owner}:{fence}"),
            Self::Execute(message) => write!(f, "the server executes: {message}"),
            Self::Refuse(request) => write!(f, "the server refuses: {}", Message::Request(*request)),
            Self::ExecuteOpenly(message) => {
                write!(f, "the server executes, leaving the lock free: {message}")
            }
            Self::Receive(message) => write!(f, "it arrives: {message}"),
            Self::Forge { owner, terms, proof } => {
                write!(f, "the attacker sends {owner} fence {} px {}, ", terms.fence, terms.px)?;
                match proof {
                    Some(Proof { fence, px }) => write!(f, "with a proof of fence {fence} px {px}"),
                    None => f.write_str("without a proof"),
                }
            }
            Self::Lose(message) => write!(f, "lost: {message}"),
            Self::Tick => f.write_str("tick"),
            Self::TickMissedBy(id) => write!(f, "tick, which the clock of {} misses", name(*id)),
        }
    }
}
