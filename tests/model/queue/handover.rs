//! The transition system: which steps are possible in each state, and what they do.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use stateright::{Model, Property};

use super::{
    client::is_revocation,
    properties,
    state::{Call, Client, Message, Mode, NEVER, Owner, Phase, Proof, Request, State},
    step::Step,
    variant::{Break, Role, Variant},
};
use crate::search::Searched;

/// A client that has left this many owners on the server waits; otherwise its dead places have no end.
const LEFTOVERS: usize = 3;

/// One variant, and the statistics of its search.
#[derive(Debug)]
pub(crate) struct Handover {
    pub(crate) variant: Variant,
    /// Orders of indistinguishable clients; the first changes nothing.
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
    /// Calls of our clients that found the lock open, and left it so.
    pub(crate) found_open: AtomicUsize,
    /// Places that a waiter found removed.
    pub(crate) lost_turns: AtomicUsize,
    /// Holds taken in a group.
    pub(crate) in_groups: AtomicUsize,
    /// Holds that were revoked while their client believed in them.
    pub(crate) revoked: AtomicUsize,
    /// The longest wait of a live waiter once all other clients are gone, in ticks.
    pub(crate) longest_wait: AtomicU8,
}

impl Handover {
    pub(crate) fn new(variant: Variant) -> Self {
        let own = variant.own();
        let alike = variant.clients[..own].windows(2).all(|pair| pair[0] == pair[1]);
        // A counter-example is easier to read when no client changes its name in it.
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

    /// Number of a client's owners that are left on the server.
    fn leftovers(s: &State, client: u8) -> usize {
        let queued = s.queue.iter().filter(|place| place.owner.client == client).count();
        queued + usize::from(s.holder.as_ref().is_some_and(|holder| holder.owner.client == client))
    }

    /// The grant messages that an attacker can publish from the messages it has read: with a fence that was never
    /// minted, or with a longer lease than the server granted. Exact copies are deliveries of the message itself.
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
            revocations_left: self.variant.revocations,
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
                // In the inbox until the answer to `join` arrives.
                Message::Push { owner, .. } | Message::Free { owner }
                    if !self.loose() && matches!(s.client(owner.client).phase, Phase::Asking { .. }) => {}
                Message::Answer { .. } | Message::Push { .. } | Message::Free { .. } => {
                    steps.push(Step::Receive(*message));
                }
            }
            if is_revocation(*message)
                || (!matches!(message, Message::Push { .. } | Message::Free { .. })
                    && !self.has_room(s, message.owner().client))
            {
                steps.push(Step::Lose(*message));
            }
        }
        if s.revocations_left > 0
            && let Some(holder) = s.holder.as_ref().filter(|holder| !self.is_foreign(holder.owner.client))
        {
            steps.push(Step::Revoke(holder.owner, holder.fence));
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
            Step::Revoke(owner, fence) => {
                s.revocations_left -= 1;
                s.network.push(Message::Request(self.request(owner, Call::Revoke(fence))));
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
        properties::all()
    }
}

impl Searched for Handover {
    fn expanded(&self) -> usize {
        self.tally.expanded.load(Relaxed)
    }

    fn figures(&self) -> String {
        format!(
            "{} entries on a push, longest wait {} of {}",
            self.tally.by_push.load(Relaxed),
            self.tally.longest_wait.load(Relaxed),
            self.wait_bound(),
        )
    }

    fn must_occur(&self) -> Vec<(&'static str, usize)> {
        let (variant, tally) = (&self.variant, &self.tally);
        [
            (true, "entry on a push", &tally.by_push),
            (variant.clients.iter().any(|role| role.groups), "entry with a group", &tally.in_groups),
            (variant.times.limit != NEVER, "repetition of a late request", &tally.repeated),
            (variant.opens, "call that found the lock open", &tally.found_open),
            (variant.attacked, "forged message", &tally.forged),
            (variant.revocations > 0, "revocation of a believed hold", &tally.revoked),
        ]
        .into_iter()
        .filter(|(must, _, _)| *must)
        .map(|(_, what, count)| (what, count.load(Relaxed)))
        .collect()
    }
}

fn take(s: &mut State, message: Message) {
    let at = s.network.iter().position(|other| *other == message).expect("a step names a message in flight");
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
