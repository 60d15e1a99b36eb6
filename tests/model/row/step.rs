//! The steps between two states.

use std::fmt::{self, Display};

use super::state::{Call, Message, name};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    Ask(u8),
    Renew(u8),
    CheckIn(u8),
    /// An operator sends the revocation of this version.
    Revoke(u8),
    EndTransaction,
    Release(u8, Call),
    Execute(Message),
    /// The same, and the answer is lost.
    ExecuteUnanswered(Message),
    Arrive(Message),
    /// The notification arrives at this client.
    Notify {
        client: u8,
        secret: u8,
        version: u8,
    },
    Forge {
        client: u8,
        secret: u8,
        version: u8,
    },
    Tick,
}

impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ask(client) => write!(f, "{} asks", name(client)),
            Self::Renew(client) => write!(f, "{} renews", name(client)),
            Self::CheckIn(client) => write!(f, "a transaction checks in with {}", name(client)),
            Self::Revoke(version) => write!(f, "an operator revokes version {version}"),
            Self::EndTransaction => f.write_str("the transaction ends"),
            Self::Release(client, call) => write!(f, "{} ends its hold or attempt: {call:?}", name(client)),
            Self::Execute(message) => write!(f, "the server executes {message:?}"),
            Self::ExecuteUnanswered(message) => write!(f, "the server executes {message:?} unanswered"),
            Self::Arrive(message) => write!(f, "{message:?} arrives"),
            Self::Notify { client, secret, version } => {
                write!(f, "{} is notified of version {version} by {}", name(client), name(secret))
            }
            Self::Forge { client, secret, version } => {
                write!(f, "the reader notifies {} of version {version} by {}", name(client), name(secret))
            }
            Self::Tick => f.write_str("a tick passes"),
        }
    }
}
