//! The steps of the clients, the nodes and the clocks, and their printed form.

use std::fmt::{self, Display};

use super::state::name;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// The client sends the acquisition to all nodes, with a proposed token.
    Ask {
        client: u8,
        proposal: u8,
    },
    /// A node executes an acquisition, and the answer arrives.
    Acquire {
        client: u8,
        node: usize,
    },
    /// A node executes an acquisition again, and the answer is late or lost.
    AcquireUnanswered {
        client: u8,
        node: usize,
    },
    /// The client decides on the answers of these nodes, one bit each; the others are late or lost.
    Decide {
        client: u8,
        nodes: u8,
    },
    /// A node executes a write-back, and the answer arrives.
    WriteBack {
        client: u8,
        node: usize,
    },
    /// The client sends an extension to all nodes.
    SendExtension(u8),
    /// A node executes an extension, and the answer arrives.
    Extend {
        client: u8,
        node: usize,
    },
    /// An operator sends the order to mark the client's hold to all nodes.
    Revoke(u8),
    /// A node executes the order to mark the client's hold, and the answer arrives.
    Mark {
        client: u8,
        node: usize,
    },
    /// The client ends its attempt or its hold, and sends the release.
    Release(u8),
    /// The holder's key expires, or a release is executed.
    Remove(usize),
    /// The node restarts without data.
    LoseData(usize),
    /// The node's clock jumps, and the holder's key expires.
    Jump(usize),
    /// The node restarts with older data, from before the mark.
    LoseMark(usize),
    Tick,
}

/// One line of a counter-example.
impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ask { client, proposal: 0 } => write!(f, "{} sends its acquisition", name(client)),
            Self::Ask { client, proposal } => {
                write!(f, "{} sends its acquisition, and proposes {proposal}", name(client))
            }
            Self::Acquire { client, node } => {
                write!(f, "node {node} executes the acquisition of {}", name(client))
            }
            Self::AcquireUnanswered { client, node } => {
                write!(f, "node {node} executes the acquisition of {} unanswered", name(client))
            }
            Self::Decide { client, nodes } => {
                let nodes = (0..8).filter(|node| nodes >> node & 1 == 1);
                let nodes: Vec<_> = nodes.map(|node: u8| node.to_string()).collect();
                write!(f, "{} decides on the answers of the nodes {}", name(client), nodes.join(", "))
            }
            Self::WriteBack { client, node } => {
                write!(f, "node {node} executes the write-back of {}", name(client))
            }
            Self::SendExtension(client) => write!(f, "{} sends an extension", name(client)),
            Self::Extend { client, node } => {
                write!(f, "node {node} executes the extension of {}", name(client))
            }
            Self::Revoke(client) => write!(f, "an operator revokes the hold of {}", name(client)),
            Self::Mark { client, node } => write!(f, "node {node} marks the hold of {}", name(client)),
            Self::Release(client) => write!(f, "{} ends its attempt and sends the release", name(client)),
            Self::Remove(node) => write!(f, "node {node} removes its holder"),
            Self::LoseData(node) => write!(f, "node {node} restarts without data"),
            Self::Jump(node) => write!(f, "the clock of node {node} jumps"),
            Self::LoseMark(node) => write!(f, "node {node} restarts with older data, without the mark"),
            Self::Tick => f.write_str("a tick passes"),
        }
    }
}
