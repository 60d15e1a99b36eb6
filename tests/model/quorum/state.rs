//! A state: the nodes, the messages in flight and the clients' knowledge at one instant.

use std::fmt::{self, Display};

/// Upper bound on the clients of a variant.
pub(crate) const CLIENTS: usize = 3;

/// One node, its keys for this lock, and its messages from and to each client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Node {
    /// The owner in the holder's key. Each client makes one attempt, so a client is an owner.
    pub(crate) holder: Option<u8>,
    /// The token of the tenure; 0 without a holder.
    pub(crate) fence: u8,
    /// Whether the holder's key has the mark of a revocation.
    pub(crate) marked: bool,
    /// The largest token that was minted or written here.
    pub(crate) counter: u8,
    /// Ticks until the holder's key expires; counted only where leases are.
    pub(crate) px: u8,
    /// Ticks until the node votes again after a loss of its data.
    pub(crate) wait: u8,
    /// Ticks by which its clock is ahead of the others.
    pub(crate) ahead: u8,
    pub(crate) links: [Link; CLIENTS],
}

/// What one client has sent to one node, and the answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Link {
    /// Number of times the acquisition may still be executed.
    pub(crate) acquisitions: u8,
    /// The granted token; 0 without one.
    pub(crate) answer: u8,
    pub(crate) write_back: Request,
    pub(crate) extension: Request,
    /// An operator's order to mark the client's hold.
    pub(crate) mark: Request,
}

/// A request that may be executed at any time after it was sent, and again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Request {
    #[default]
    Unsent,
    Sent,
    /// Executed with success, and its sender counts it.
    Done,
}

/// The client's view of its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    Idle,
    /// The acquisition was sent.
    Asking,
    /// The write-back was sent.
    Writing,
    Holding,
    /// The release was sent. A late request may still be executed.
    Ended,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    /// The proposed token.
    pub(crate) proposal: u8,
    /// The token of the write-back or of the hold; 0 before there is one.
    pub(crate) token: u8,
    /// Whether the token was granted.
    pub(crate) granted: bool,
    /// The largest token that was granted before this client asked. Known to the model alone.
    pub(crate) floor: u8,
    /// Ticks since the first acquisition was sent; counted only where leases are.
    pub(crate) age: u8,
    /// Ticks for which the client believes that it holds; counted only where leases are.
    pub(crate) valid: u8,
    pub(crate) extensions_left: u8,
    pub(crate) extending: Option<Extending>,
    /// Whether a majority of the nodes has marked the hold. Known to the operator.
    pub(crate) revoked: bool,
    /// Whether no node has lost data since the client sent its acquisition or last extension. Known to the model alone.
    pub(crate) fresh: bool,
    /// Whether the token was granted, and confirmed since the last loss if that voids promises. Known to the model alone.
    pub(crate) known: bool,
}

/// An extension that awaits answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Extending {
    /// Ticks since it was sent; counted only where leases are.
    pub(crate) age: u8,
    /// The largest token of another client's grant before it was sent. Known to the model alone.
    pub(crate) newest: u8,
    /// Whether the hold was revoked before it was sent. Known to the model alone.
    pub(crate) revoked: bool,
}

/// Effects of a transition that must never happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(clippy::struct_excessive_bools, reason = "a step may violate several properties")]
pub(crate) struct Violations {
    /// Two grants have one token.
    pub(crate) twin: bool,
    /// A token is not larger than one that was granted before it was asked for.
    pub(crate) fell: bool,
    /// A hold was extended by a request that was sent after a newer grant.
    pub(crate) outlived: bool,
    /// A hold was extended by a request that was sent after a majority had marked it.
    pub(crate) revived: bool,
}

impl Violations {
    pub(crate) fn any(self) -> bool {
        self != Self::default()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct State {
    pub(crate) nodes: Vec<Node>,
    pub(crate) clients: Vec<Client>,
    pub(crate) faults_left: u8,
    pub(crate) revocations_left: u8,
    /// Ticks since the beginning; counted only where tokens have a time floor.
    pub(crate) now: u8,
    pub(crate) violations: Violations,
}

impl State {
    pub(crate) fn client(&self, id: u8) -> &Client {
        &self.clients[usize::from(id)]
    }

    pub(crate) fn client_mut(&mut self, id: u8) -> &mut Client {
        &mut self.clients[usize::from(id)]
    }

    pub(crate) fn links(&self, client: u8) -> impl Iterator<Item = &Link> {
        self.nodes.iter().map(move |node| &node.links[usize::from(client)])
    }

    pub(crate) fn links_mut(&mut self, client: u8) -> impl Iterator<Item = &mut Link> {
        self.nodes.iter_mut().map(move |node| &mut node.links[usize::from(client)])
    }

    /// The largest token of another client's grant that still counts as known.
    pub(crate) fn newest_but(&self, client: u8) -> u8 {
        let others = (0..).zip(&self.clients).filter(|(id, other)| *id != client && other.known);
        others.map(|(_, other)| other.token).max().unwrap_or(0)
    }

    /// Whether a node shows this client's hold with its token, so that an operator can name it.
    pub(crate) fn shows_hold_of(&self, id: u8) -> bool {
        let token = self.client(id).token;
        token > 0 && self.nodes.iter().any(|node| node.holder == Some(id) && node.fence == token)
    }

    /// Number of clients that believe they hold the lock.
    pub(crate) fn believers(&self) -> usize {
        self.clients.iter().filter(|client| client.phase == Phase::Holding && client.valid > 0).count()
    }
}

impl Node {
    pub(crate) fn link(&self, client: u8) -> &Link {
        &self.links[usize::from(client)]
    }

    pub(crate) fn link_mut(&mut self, client: u8) -> &mut Link {
        &mut self.links[usize::from(client)]
    }

    /// The order to mark a hold may come again after a restart that lost the mark.
    pub(crate) fn lose_marks(&mut self) {
        self.marked = false;
        for link in &mut self.links {
            if link.mark == Request::Done {
                link.mark = Request::Sent;
            }
        }
    }

    /// Whether the holder's key has a mark that was meant for another owner.
    pub(crate) fn is_marked_by_mistake(&self) -> bool {
        self.marked && self.holder.is_some_and(|holder| self.link(holder).mark != Request::Done)
    }
}

/// The letter of a client.
pub(crate) fn name(client: u8) -> char {
    char::from(b'A' + client)
}

impl Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.holder {
            Some(owner) => write!(f, "{}:{}", name(owner), self.fence)?,
            None => f.write_str("free")?,
        }
        if self.marked {
            f.write_str(" revoked")?;
        }
        if self.px > 0 {
            write!(f, " for {}", self.px)?;
        }
        if self.wait > 0 {
            write!(f, ", waits {}", self.wait)?;
        }
        write!(f, ", counter {}", self.counter)
    }
}

impl Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.phase)?;
        if self.token > 0 {
            write!(f, " {}", self.token)?;
        }
        if self.valid > 0 {
            write!(f, " for {}", self.valid)?;
        }
        if self.revoked {
            f.write_str(", revoked")?;
        }
        Ok(())
    }
}

/// One line of a counter-example.
impl Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, node) in self.nodes.iter().enumerate() {
            write!(f, "{}{number}[{node}]", if number > 0 { " " } else { "" })?;
        }
        for (id, client) in (0..).zip(&self.clients) {
            write!(f, "; {} {client}", name(id))?;
        }
        if self.now > 0 { write!(f, "; time {}", self.now) } else { Ok(()) }
    }
}
