//! The state of the row, the clients and the network, and its printed form.

use std::fmt::{self, Display};

#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) holder: Option<u8>,
    pub(crate) version: u8,
    /// Ticks until the holder's lease ends.
    pub(crate) expires: u8,
    /// Whether the row's `revoked` is the version of the last grant, so that this grant is marked.
    pub(crate) is_revoked: bool,
    /// The next holder, and the ticks until its place ends.
    pub(crate) next: Option<(u8, u8)>,
    /// The client whose transaction has checked in, and is open.
    pub(crate) open: Option<u8>,
    pub(crate) clock: u8,
    pub(crate) clients: Vec<Client>,
    /// Sorted, because the network keeps no order.
    pub(crate) network: Vec<Message>,
    /// The secrets that the reader knows, one bit for each client.
    pub(crate) known: u8,
    /// The version that the operator has named in the revocation; 0 for a version before the row's.
    pub(crate) named: Option<u8>,
    /// The largest token of a grant that was believed.
    pub(crate) top: u8,
    /// Whether a token was not larger than all before.
    pub(crate) fell: bool,
    /// Whether a statement made a revoked hold longer, or took the lock from the holder of a revoked hold.
    pub(crate) touched: bool,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    pub(crate) has_renewed: bool,
    pub(crate) has_checked_in: bool,
    /// Number of requests for the lock, and of releases, that it may send.
    pub(crate) asks_left: u8,
    pub(crate) releases_left: u8,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub(crate) enum Phase {
    Idle,
    /// It waits, perhaps with a place.
    Asking(Option<Place>),
    /// It believes in this version for `valid` ticks.
    Holding {
        version: u8,
        valid: u8,
    },
    Ended,
}

/// What a waiter knows of its place.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) holder: u8,
    pub(crate) seen: u8,
    /// Ticks for which it believes a grant.
    pub(crate) sure: u8,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Message {
    /// A statement of a client, `age` ticks after it was sent.
    Statement { client: u8, call: Call, age: u8 },
    /// The answer that tells a waiter its place, `age` ticks after the statement was sent. Other answers come at once or never.
    Placed { client: u8, place: Place, age: u8 },
    /// A notification with the secret of this client.
    Granted { secret: u8, version: u8 },
    /// The statement of the operator.
    Revoke { version: u8 },
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    Acquire,
    Renew,
    /// Ends the hold, and grants the lock to no client.
    Free,
    /// Ends the hold or the attempt, and grants the lock to the next holder.
    HandOver {
        shows_secret: bool,
    },
}

impl State {
    /// The first client holds the lock.
    pub(crate) fn new(ttl: u8, has_third: bool) -> Self {
        let client = |phase, asks_left| Client {
            phase,
            has_renewed: false,
            has_checked_in: false,
            asks_left,
            releases_left: 2,
        };
        let holder = client(Phase::Holding { version: 1, valid: ttl }, 0);
        Self {
            holder: Some(0),
            version: 1,
            expires: ttl,
            is_revoked: false,
            next: None,
            open: None,
            clock: 1,
            clients: vec![holder, client(Phase::Idle, 2), client(Phase::Idle, u8::from(has_third))],
            network: Vec::new(),
            known: 0,
            named: None,
            top: 1,
            fell: false,
            touched: false,
        }
    }

    /// Removes messages that can change nothing any more, so that fewer states differ.
    pub(crate) fn drop_what_does_nothing(&mut self) {
        let asks = |id: u8| matches!(self.clients[usize::from(id)].phase, Phase::Asking(_));
        let ended = |id: u8| self.clients[usize::from(id)].phase == Phase::Ended;
        let may_come = |id: u8| {
            asks(id)
                || self.has_sent(id, |call| call == Call::Acquire)
                || self.holder == Some(id)
                || self.next.is_some_and(|(next, _)| next == id)
        };
        let waits_for = |id: u8| {
            self.clients
                .iter()
                .any(|client| matches!(client.phase, Phase::Asking(Some(place)) if place.holder == id))
        };
        let network = self.network.iter().copied().filter(|message| match *message {
            Message::Statement { client, call: Call::Free | Call::HandOver { .. }, .. } => may_come(client),
            Message::Statement { client, call: Call::Renew, .. } => !ended(client),
            Message::Statement { call: Call::Acquire, .. } | Message::Revoke { .. } => true,
            Message::Placed { client, .. } => asks(client),
            Message::Granted { secret, .. } => {
                waits_for(secret)
                    || self.network.iter().any(
                        |message| matches!(message, Message::Placed { place, .. } if place.holder == secret),
                    )
            }
        });
        self.network = network.collect();
        self.named = self.named.map(|named| if named < self.version { 0 } else { named });
    }

    /// The holder, the version and the rest of the lease, while the lock is held.
    pub(crate) fn hold(&self) -> Option<(u8, u8, u8)> {
        let holder = self.holder.filter(|_| self.expires > 0);
        holder.map(|holder| (holder, self.version, self.expires))
    }

    pub(crate) fn client(&mut self, id: u8) -> &mut Client {
        &mut self.clients[usize::from(id)]
    }

    pub(crate) fn knows(&self, secret: u8) -> bool {
        self.known >> secret & 1 == 1
    }

    pub(crate) fn send(&mut self, message: Message) {
        self.network.push(message);
        self.network.sort_unstable();
        self.network.dedup();
    }

    pub(crate) fn has_sent(&self, by: u8, wanted: impl Fn(Call) -> bool) -> bool {
        let is_it = |message: &Message| matches!(message, Message::Statement { client, call, .. } if *client == by && wanted(*call));
        self.network.iter().any(is_it)
    }

    /// Number of clients that believe they hold the lock, or whose transaction is protected by it.
    pub(crate) fn believers(&self) -> usize {
        let believes = |(id, client): (u8, &Client)| {
            self.open == Some(id) || matches!(client.phase, Phase::Holding { valid: 1.., .. })
        };
        (0..).zip(&self.clients).filter(|client| believes(*client)).count()
    }
}

pub(crate) fn name(client: u8) -> char {
    char::from(b'A' + client)
}

/// One line of a counter-example.
impl Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.holder {
            Some(holder) => write!(f, "[{}:{} for {}", name(holder), self.version, self.expires)?,
            None => write!(f, "[free after {}", self.version)?,
        }
        if self.is_revoked {
            f.write_str(", revoked")?;
        }
        if let Some((next, until)) = self.next {
            write!(f, ", then {} for {until}", name(next))?;
        }
        if let Some(open) = self.open {
            write!(f, ", transaction of {}", name(open))?;
        }
        write!(f, "] clock {}", self.clock)?;
        for (id, client) in (0..).zip(&self.clients) {
            write!(f, "; {} {:?}", name(id), client.phase)?;
        }
        for message in &self.network {
            write!(f, "; {message:?}")?;
        }
        let known = (0..8).filter(|id| self.knows(*id)).map(name);
        write!(f, "; known {:?}", known.collect::<String>())
    }
}
