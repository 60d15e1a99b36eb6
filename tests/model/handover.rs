//! The transition system: which steps there are, and what must hold in each state.

use std::{
    fmt::{self, Display},
    sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed},
};

use stateright::{Model, Property};

use crate::{
    state::{Call, Client, Message, Mode, Owner, Phase, Proof, Request, State, Violation, name},
    variant::{Break, Role, Variant},
};

/// At most one client believes that it holds.
pub(crate) const S1: &str = "S1: one believer";
/// The tokens that are believed rise strictly, in the order in which they are believed; nobody believes in an older
/// token than the last.
pub(crate) const S2: &str = "S2: tokens rise";
/// Claim, renewal and release touch nothing but their own owner's hold.
pub(crate) const S3: &str = "S3: only the own hold is touched";
/// After a leave or a release was executed nothing of its owner is left on the server.
pub(crate) const R1: &str = "R1: a release leaves nothing behind";
/// An owner is on the server once: as the holder or in one place.
pub(crate) const R2: &str = "R2: an owner is there once";
/// After a release no live waiter stands before a free key, unless it was left free openly and the first was told.
pub(crate) const P: &str = "P: a release wakes a waiter";
/// A release that is executed after the limits of all acquisitions of its owner leaves nothing behind, ever after.
pub(crate) const R3: &str = "R3: nothing comes back after its limit";
/// From an open release to the end of its window no call of ours takes the lock or hands it over.
pub(crate) const W: &str = "W: an open window is kept";
/// From every state, whatever is lost and whoever dies, all live waiters are served, and within a bound.
pub(crate) const L: &str = "L: every waiter is served";

pub(crate) const ALL: [&str; 9] = [S1, S2, S3, R1, R2, R3, W, P, L];

/// A client that has left so much on the server waits until some of it is gone; else its dead places have no end.
const LEFTOVERS: usize = 3;

/// One variant, and what the search has seen of it.
#[derive(Debug)]
pub(crate) struct Handover {
    pub(crate) variant: Variant,
    /// Orders of clients that cannot be told apart; the first changes nothing.
    pub(crate) renamings: Vec<Vec<u8>>,
    pub(crate) tally: Tally,
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// States whose steps were all taken.
    pub(crate) expanded: AtomicUsize,
    /// Entries on a push.
    pub(crate) by_push: AtomicUsize,
    /// Requests that were refused after their limit, and repeated.
    pub(crate) repeated: AtomicUsize,
    /// Forged messages that a client read.
    pub(crate) forged: AtomicUsize,
    /// Calls of ours that found the lock open, and left it so.
    pub(crate) found_open: AtomicUsize,
    /// Places that a waiter found gone.
    pub(crate) lost_turns: AtomicUsize,
    /// Holds taken in a group.
    pub(crate) in_groups: AtomicUsize,
    /// The longest that a live waiter waits once everybody else is gone, in ticks.
    pub(crate) longest_wait: AtomicU8,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// The client asks for the lock, with a fresh owner token.
    Start(u8, Mode),
    /// The same request again, with the same token.
    AskAgain(u8),
    Poll(u8),
    /// The attempt ends without a hold: given up, dropped, or its request timed out.
    ///
    /// Also a waiter that its process evicts because it is not polled: one compare-exchange decides between this and
    /// entering, before the leave is sent.
    GiveUp(u8),
    /// [`Break::EntersAfterEviction`].
    Evict(u8),
    Renew(u8),
    Release(u8),
    ReleaseInGroup(u8),
    ReleaseTwice(u8),
    Pass(u8),
    ReleaseAndPass(u8),
    Crash(u8),
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
    /// Makes room. What stays in flight for ever is lost, too.
    Lose(Message),
    Tick,
    TickMissedBy(u8),
}

impl Handover {
    pub(crate) fn new(variant: Variant) -> Self {
        let own = variant.own();
        let alike = variant.clients[..own].windows(2).all(|pair| pair[0] == pair[1]);
        // A counter-example is read more easily when nobody changes names in it.
        let orders = if alike && own <= 3 && variant.broken.is_empty() {
            orders(own)
        } else {
            vec![(0..).take(own).collect()]
        };
        let foreign = || (0..).take(variant.clients.len()).skip(own);
        let renamings =
            orders.into_iter().map(|order: Vec<u8>| order.into_iter().chain(foreign()).collect()).collect();
        Self { variant, renamings, tally: Tally::default() }
    }

    /// How many owners of a client are left on the server.
    fn leftovers(s: &State, client: u8) -> usize {
        let queued = s.queue.iter().filter(|place| place.owner.client == client).count();
        queued + usize::from(s.holder.as_ref().is_some_and(|holder| holder.owner.client == client))
    }

    /// The grant messages that an attacker can publish with what it has read: with a fence that was never minted, or with
    /// a longer lease than the server granted. Exact copies are deliveries of the message itself.
    fn forgeries(&self, s: &State, owner: Owner, steps: &mut Vec<Step>) {
        let listens = match s.client(owner.client).phase {
            Phase::Waiting { .. } => true,
            Phase::Asking { .. } => self.loose(),
            _ => false,
        };
        if !listens {
            return;
        }
        let published: Vec<Proof> = s
            .network
            .iter()
            .filter_map(|message| match *message {
                Message::Push { owner: other, fence, px } if other == owner => Some(Proof { fence, px }),
                _ => None,
            })
            .collect();
        let (ttl, new) = (self.variant.times.ttl, s.fence + 1);
        let longer = published.iter().map(|terms| Proof { px: ttl, ..*terms });
        let newer = published.iter().map(|terms| Proof { fence: new, ..*terms });
        for terms in longer.chain(newer).chain([Proof { fence: new, px: ttl }]) {
            let made = s.leaked.contains(&owner).then_some(terms);
            for proof in published.iter().copied().map(Some).chain([None, made]) {
                let step = Step::Forge { owner, terms, proof };
                if proof != Some(terms) || made.is_some() {
                    steps.push(step);
                }
            }
        }
    }

    fn steps_of(&self, s: &State, id: u8, steps: &mut Vec<Step>) {
        let client = s.client(id);
        let role = self.variant.role(id);
        let room = self.has_room(s, id);
        match client.phase {
            Phase::Dead => return,
            Phase::Idle => {
                if client.attempts_left > 0 && room && Self::leftovers(s, id) < LEFTOVERS {
                    steps.push(Step::Start(id, Mode::Join));
                    if role.groups {
                        steps.push(Step::Start(id, Mode::Group));
                    }
                    if role.tries {
                        steps.push(Step::Start(id, Mode::Try));
                    }
                }
                return;
            }
            Phase::Asking { .. } if role.foreign => {}
            Phase::Asking { mode, .. } => {
                if room && self.loose() && mode == Mode::Join {
                    steps.push(Step::AskAgain(id));
                }
                steps.push(Step::GiveUp(id));
            }
            Phase::Waiting { .. } => {
                if room {
                    steps.push(Step::Poll(id));
                }
                steps.push(Step::GiveUp(id));
                if self.variant.breaks(Break::EntersAfterEviction) && room {
                    steps.push(Step::Evict(id));
                }
            }
            Phase::Holding { valid, seq, .. } => {
                if room && !role.foreign && (valid > 0 || self.loose()) {
                    steps.push(Step::Renew(id));
                }
                if valid > 0 && client.followers_left > 0 && seq < role.followers {
                    steps.push(Step::Pass(id));
                    if self.variant.breaks(Break::PassAfterRelease) {
                        steps.push(Step::ReleaseAndPass(id));
                    }
                }
                if room && role.repeats {
                    steps.push(Step::ReleaseTwice(id));
                }
                if role.groups {
                    steps.push(Step::ReleaseInGroup(id));
                }
                steps.push(Step::Release(id));
            }
        }
        if s.crashes_left > 0 {
            steps.push(Step::Crash(id));
        }
        if client.slack_left > 0 {
            steps.push(Step::TickMissedBy(id));
        }
    }
}

impl Model for Handover {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let client = |role: &Role| Client {
            phase: Phase::Idle,
            attempt: 0,
            attempts_left: role.attempts,
            followers_left: role.followers,
            slack_left: role.slack,
            lingers: false,
        };
        vec![State {
            holder: None,
            queue: Vec::new(),
            open: 0,
            fence: 0,
            clients: self.variant.clients.iter().map(client).collect(),
            network: Vec::new(),
            top: (0, 0),
            crashes_left: self.variant.crashes,
            tenures: 0,
            minted_tenure: 0,
            cleared: Vec::new(),
            leaked: Vec::new(),
            violation: None,
        }]
    }

    fn actions(&self, s: &State, steps: &mut Vec<Step>) {
        self.tally.expanded.fetch_add(1, Relaxed);
        if s.violation.is_some() || s.believers() > 1 {
            return;
        }
        for id in (0..).take(s.clients.len()) {
            self.steps_of(s, id, steps);
        }
        let mut last = None;
        for message in &s.network {
            if last.replace(*message) == Some(*message) {
                continue; // in flight twice
            }
            match message {
                Message::Request(request) => {
                    steps.push(Step::Execute(*message));
                    if self.variant.early_limits && request.acquires() && request.awaited {
                        steps.push(Step::Refuse(*request));
                    }
                    if self.variant.opens
                        && request.call == Call::Release
                        && s.is_held_by(request.owner)
                        && !s.queue.is_empty()
                    {
                        steps.push(Step::ExecuteOpenly(*message));
                    }
                }
                // In the letter box until the answer to `join` is there.
                Message::Push { owner, .. } | Message::Free { owner }
                    if !self.loose() && matches!(s.client(owner.client).phase, Phase::Asking { .. }) => {}
                Message::Answer { .. } | Message::Push { .. } | Message::Free { .. } => {
                    steps.push(Step::Receive(*message));
                }
            }
            if !matches!(message, Message::Push { .. } | Message::Free { .. })
                && !self.has_room(s, message.owner().client)
            {
                steps.push(Step::Lose(*message));
            }
        }
        if self.variant.attacked {
            for id in (0..).take(self.variant.own()) {
                self.forgeries(s, s.owner(id), steps);
            }
        }
        steps.push(Step::Tick);
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut s = last.clone();
        match step {
            Step::Start(id, mode) => {
                if !self.start(&mut s, id, mode) {
                    return None;
                }
                let left = &mut s.client_mut(id).attempts_left;
                if *left != Role::UNLIMITED {
                    *left -= 1;
                }
            }
            Step::AskAgain(id) => self.send(&mut s, id, Call::Acquire(Mode::Join)),
            Step::Poll(id) => self.poll(&mut s, id),
            Step::GiveUp(id) | Step::Release(id) => self.end(&mut s, id),
            Step::Evict(id) => self.evict(&mut s, id),
            Step::Renew(id) => {
                let Phase::Holding { fence, .. } = s.client(id).phase else { return None };
                self.send(&mut s, id, Call::Renew(fence));
            }
            Step::ReleaseInGroup(id) => self.end_in_group(&mut s, id),
            Step::ReleaseTwice(id) => {
                self.send(&mut s, id, Call::Release);
                self.end(&mut s, id);
            }
            Step::Pass(id) => self.pass(&mut s, id),
            Step::ReleaseAndPass(id) => {
                self.send(&mut s, id, Call::Release);
                self.pass(&mut s, id);
            }
            Step::Crash(id) => {
                s.crashes_left -= 1;
                *s.client_mut(id) = Client {
                    phase: Phase::Dead,
                    attempt: 0,
                    attempts_left: 0,
                    followers_left: 0,
                    slack_left: 0,
                    lingers: false,
                };
            }
            Step::Execute(message) => {
                take(&mut s, message);
                if let Message::Request(request) = message {
                    self.execute(&mut s, request);
                }
            }
            Step::Refuse(request) => {
                take(&mut s, Message::Request(request));
                self.execute(&mut s, Request { left: 0, ..request });
            }
            Step::ExecuteOpenly(message) => {
                take(&mut s, message);
                self.release_openly(&mut s, message.owner());
            }
            Step::Receive(message) => {
                if !(self.variant.attacked && matches!(message, Message::Push { .. })) {
                    take(&mut s, message);
                }
                self.receive(&mut s, message);
            }
            Step::Forge { owner, terms, proof } => {
                self.tally.forged.fetch_add(1, Relaxed);
                self.judge(&mut s, owner, terms, proof);
            }
            Step::Lose(message) => take(&mut s, message),
            Step::Tick => self.tick(&mut s, None),
            Step::TickMissedBy(id) => self.tick(&mut s, Some(id)),
        }
        Some(self.canonical(s))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(S1, |_, s: &State| s.believers() <= 1),
            Property::always(S2, |model: &Self, s: &State| {
                let current = |client: &Client| match client.phase {
                    Phase::Holding { valid: 1.., fence, seq } => model.token(fence, seq) == s.top,
                    _ => true,
                };
                s.violation != Some(Violation::TokenFell)
                    && s.clients[..model.variant.own()].iter().all(current)
            }),
            Property::always(S3, |_, s: &State| s.violation != Some(Violation::TouchedAnother)),
            Property::always(R1, |_, s: &State| s.violation != Some(Violation::LeftBehind)),
            Property::always(R2, |_, s: &State| {
                let mut owners: Vec<_> = s.queue.iter().map(|place| place.owner).collect();
                owners.extend(s.holder.as_ref().map(|holder| holder.owner));
                owners.sort_unstable();
                owners.windows(2).all(|pair| pair[0] != pair[1])
            }),
            Property::always(R3, |_, s: &State| s.cleared.iter().all(|owner| !s.is_on_server(*owner))),
            Property::always(W, |_, s: &State| s.violation != Some(Violation::WindowTaken)),
            Property::always(P, |_, s: &State| s.violation != Some(Violation::WakeUpLost)),
            Property::always(L, |model: &Self, s: &State| {
                model.longest_wait(s).is_some_and(|wait| {
                    model.tally.longest_wait.fetch_max(wait, Relaxed);
                    wait <= model.wait_bound()
                })
            }),
        ]
    }
}

fn take(s: &mut State, message: Message) {
    let at = s.network.iter().position(|other| *other == message).expect("a step names what is in flight");
    s.network.remove(at);
}

/// All orders of the first `n` clients, the usual one first.
fn orders(n: usize) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new()];
    for _ in 0..n {
        let longer = |order: &Vec<u8>| {
            let missing = (0..).take(n).filter(|id| !order.contains(id));
            missing.map(|id| order.iter().copied().chain([id]).collect()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
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
            Self::Pass(id) => write!(f, "{} passes the lease on inside the process", name(*id)),
            Self::ReleaseAndPass(id) => write!(f, "{} sends the release, and passes the lease on", name(*id)),
            Self::Crash(id) => write!(f, "{} crashes", name(*id)),
            Self::Execute(message) => write!(f, "the server executes: {message}"),
            Self::Refuse(request) => write!(f, "the server refuses: {}", Message::Request(*request)),
            Self::ExecuteOpenly(message) => {
                write!(f, "the server executes, leaving the lock free: {message}")
            }
            Self::Receive(message) => write!(f, "it arrives: {message}"),
            Self::Forge { owner, terms, proof } => {
                write!(f, "the attacker tells {owner} fence {} px {}, ", terms.fence, terms.px)?;
                match proof {
                    Some(Proof { fence, px }) => write!(f, "with a proof of fence {fence} px {px}"),
                    None => f.write_str("without a proof"),
                }
            }
            Self::Lose(message) => write!(f, "it is lost: {message}"),
            Self::Tick => f.write_str("tick"),
            Self::TickMissedBy(id) => write!(f, "tick, which the clock of {} misses", name(*id)),
        }
    }
}
