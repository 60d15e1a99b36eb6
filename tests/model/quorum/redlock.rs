//! The transition system: which steps are possible in each state, and what they do.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use stateright::{Model, Property};

use super::{
    properties,
    state::{Client, Link, Node, Phase, Request, State, Violations},
    step::Step,
    variant::{Fault, Form, Variant},
};
use crate::search::{self, Searched};

/// Tokens that a node can mint in one tick of its clock: more than any search here mints in all.
const TICK: u8 = 16;

/// One variant, and the statistics of its search.
#[derive(Debug)]
pub(crate) struct Redlock {
    pub(crate) variant: Variant,
    /// Nodes that are alike may change places.
    pub(crate) sorts_nodes: bool,
    pub(crate) tally: Tally,
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// States whose steps were all taken.
    expanded: AtomicUsize,
    /// Grants after one round trip.
    pub(crate) at_once: AtomicUsize,
    /// Grants after a write-back.
    pub(crate) written_back: AtomicUsize,
    /// The most grants on one path.
    pub(crate) most_grants: AtomicUsize,
    pub(crate) extended: AtomicUsize,
    /// Tenures that an extension began.
    rejoined: AtomicUsize,
    /// Holds that were revoked while their client believed in them.
    pub(crate) revoked: AtomicUsize,
    /// Extensions of a revoked hold that a mark has refused.
    refused: AtomicUsize,
    /// Faults of nodes.
    faults: AtomicUsize,
}

impl Redlock {
    pub(crate) fn new(variant: Variant) -> Self {
        Self { variant, sorts_nodes: true, tally: Tally::default() }
    }

    /// A model whose nodes keep their places if its counter-example is to be read.
    pub(crate) fn of_a_mutant(variant: Variant) -> Self {
        Self { sorts_nodes: !search::traces(), ..Self::new(variant) }
    }

    /// The tokens below which a clock stands after this number of ticks.
    pub(crate) fn ticks(&self, ticks: u8) -> u8 {
        if self.variant.floor.is_some() { ticks * TICK } else { 0 }
    }

    /// The time of a node, as a lower bound on its tokens.
    fn time(&self, s: &State, node: usize) -> u8 {
        self.ticks(s.now + s.nodes[node].ahead)
    }

    /// The tokens that a client may propose now.
    fn proposals(&self, s: &State) -> impl Iterator<Item = u8> {
        let unit = if self.variant.floor.is_some() { TICK } else { 1 };
        let now = s.now;
        self.variant.proposals.iter().map(move |proposal| (now + proposal) * unit)
    }

    fn steps_of(&self, s: &State, id: u8, steps: &mut Vec<Step>) {
        let client = s.client(id);
        for (node, column) in s.nodes.iter().enumerate() {
            let link = column.link(id);
            if link.acquisitions > 0 {
                steps.push(Step::Acquire { client: id, node });
                // An answer that is lost makes a difference only to a client that has an older one.
                if link.answer > 0 {
                    steps.push(Step::AcquireUnanswered { client: id, node });
                }
            }
            if link.write_back != Request::Unsent {
                steps.push(Step::WriteBack { client: id, node });
            }
            if link.extension != Request::Unsent {
                steps.push(Step::Extend { client: id, node });
            }
            if link.mark == Request::Sent {
                steps.push(Step::Mark { client: id, node });
            }
        }
        match client.phase {
            Phase::Idle => {
                // All clients are alike, so they ask in the order of their names.
                if id == 0 || s.client(id - 1).phase != Phase::Idle {
                    steps.extend(self.proposals(s).map(|proposal| Step::Ask { client: id, proposal }));
                }
                return;
            }
            Phase::Ended => return,
            Phase::Asking => {
                let answered = |node: usize| s.nodes[node].link(id).answer > 0;
                for nodes in 1u8..1 << s.nodes.len() {
                    let mut chosen = (0..s.nodes.len()).filter(|node| nodes >> node & 1 == 1);
                    let count = nodes.count_ones() as usize;
                    if count >= self.quorum(count) && chosen.all(answered) {
                        steps.push(Step::Decide { client: id, nodes });
                    }
                }
            }
            Phase::Writing => {}
            Phase::Holding => {
                if client.extensions_left > 0 {
                    steps.push(Step::SendExtension(id));
                }
            }
        }
        // Without leases a holder may vanish at any moment, and a client may stop at any moment.
        if self.variant.lease.is_some() {
            steps.push(Step::Release(id));
        }
    }

    /// Returns the node's answer.
    fn execute_acquisition(&self, s: &mut State, id: u8, node: usize) -> Option<u8> {
        let (proposal, time) = (s.client(id).proposal, self.time(s, node));
        let node = &mut s.nodes[node];
        node.link_mut(id).acquisitions -= 1;
        self.acquire(node, id, proposal, time)
    }

    fn execute_write_back(&self, s: &mut State, id: u8, node: usize) {
        let (writes, token) = (s.client(id).phase == Phase::Writing, s.client(id).token);
        let node = &mut s.nodes[node];
        if self.write_back(node, id, token) && writes {
            node.link_mut(id).write_back = Request::Done;
            self.count_write_backs(s, id);
        }
    }

    fn execute_extension(&self, s: &mut State, id: u8, node: usize) {
        let (awaits, token) = (s.client(id).extending.is_some(), s.client(id).token);
        let node = &mut s.nodes[node];
        let joins = node.holder.is_none();
        let is_refused = node.holder == Some(id) && node.marked;
        let done = self.extend(node, id, token);
        self.tally.rejoined.fetch_add(usize::from(joins && done), Relaxed);
        if done && awaits {
            node.link_mut(id).extension = Request::Done;
            self.count_extensions(s, id);
        }
        if is_refused && s.client(id).extending.is_some_and(|extending| extending.revoked) {
            self.tally.refused.fetch_add(1, Relaxed);
        }
    }

    fn execute_mark(&self, s: &mut State, id: u8, node: usize) {
        let token = s.client(id).token;
        let node = &mut s.nodes[node];
        if self.revoke(node, id, token) {
            node.link_mut(id).mark = Request::Done;
            self.count_marks(s, id);
        }
    }

    fn fault(&self, s: &mut State, node: usize) {
        self.tally.faults.fetch_add(1, Relaxed);
        s.faults_left -= 1;
        if self.variant.fault != Fault::Jump {
            s.nodes[node].lose_marks();
            s.nodes[node].wait = self.variant.wait;
        }
        match self.variant.fault {
            Fault::Jump => self.remove_holder(&mut s.nodes[node]),
            Fault::OlderData => {}
            Fault::Loss => {
                self.remove_holder(&mut s.nodes[node]);
                s.nodes[node].counter = 0;
                if self.variant.healing {
                    s.clients.iter_mut().for_each(|client| (client.fresh, client.known) = (false, false));
                }
            }
        }
    }

    fn tick(&self, s: &mut State) {
        for node in &mut s.nodes {
            node.wait = node.wait.saturating_sub(1);
            if node.px > 0 {
                node.px -= 1;
                if node.px == 0 {
                    self.remove_holder(node);
                }
            }
        }
        if self.variant.lease.is_some() {
            (0..self.variant.clients).for_each(|id| self.tick_of_client(s, id));
        }
        if self.variant.floor.is_some() {
            s.now += 1;
        }
    }

    fn time_goes_on(&self, s: &State) -> bool {
        match self.variant.floor {
            Some(floor) => s.now < floor.ticks,
            None => self.variant.lease.is_some(),
        }
    }
}

impl Model for Redlock {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let client = Client {
            phase: Phase::Idle,
            proposal: 0,
            token: 0,
            granted: false,
            floor: 0,
            age: 0,
            valid: 0,
            extensions_left: 0,
            extending: None,
            revoked: false,
            fresh: false,
            known: false,
        };
        let ahead = self.variant.floor.map_or(0, |floor| floor.ahead);
        let node = |number: usize, counters: &[u8]| Node {
            holder: None,
            fence: 0,
            marked: false,
            counter: counters.get(number).copied().unwrap_or(0),
            px: 0,
            wait: 0,
            ahead: if number == 0 { ahead } else { 0 },
            links: <[Link; _]>::default(),
        };
        let state = |counters: &&[u8]| State {
            nodes: (0..self.variant.nodes).map(|number| node(number, counters)).collect(),
            clients: vec![client.clone(); usize::from(self.variant.clients)],
            faults_left: self.variant.faults,
            revocations_left: self.variant.revocations,
            now: 0,
            violations: Violations::default(),
        };
        self.variant.counters.iter().map(state).map(|s| self.canonical(s)).collect()
    }

    fn actions(&self, s: &State, steps: &mut Vec<Step>) {
        self.tally.expanded.fetch_add(1, Relaxed);
        if s.violations.any() || s.believers() > 1 {
            return;
        }
        for id in 0..self.variant.clients {
            self.steps_of(s, id, steps);
        }
        for (number, node) in s.nodes.iter().enumerate() {
            if let Some(holder) = node.holder
                && (self.variant.lease.is_none() || s.client(holder).phase == Phase::Ended)
            {
                steps.push(Step::Remove(number));
            }
            if s.faults_left > 0 {
                match self.variant.fault {
                    Fault::Loss => steps.push(Step::LoseData(number)),
                    Fault::Jump if node.holder.is_some() => steps.push(Step::Jump(number)),
                    Fault::OlderData if node.marked => steps.push(Step::LoseMark(number)),
                    Fault::Jump | Fault::OlderData => {}
                }
            }
        }
        if s.revocations_left > 0 {
            steps.extend((0..self.variant.clients).filter(|id| s.shows_hold_of(*id)).map(Step::Revoke));
        }
        if self.time_goes_on(s) {
            steps.push(Step::Tick);
        }
    }

    fn next_state(&self, s: &State, step: Step) -> Option<State> {
        let mut s = s.clone();
        match step {
            Step::Ask { client, proposal } => self.ask(&mut s, client, proposal),
            Step::Acquire { client, node } => {
                if let Some(token) = self.execute_acquisition(&mut s, client, node)
                    && s.client(client).phase == Phase::Asking
                {
                    s.nodes[node].link_mut(client).answer = token;
                }
            }
            Step::AcquireUnanswered { client, node } => {
                self.execute_acquisition(&mut s, client, node);
            }
            Step::Decide { client, nodes } => self.decide(&mut s, client, nodes),
            Step::WriteBack { client, node } => self.execute_write_back(&mut s, client, node),
            Step::SendExtension(client) => Self::send_extension(&mut s, client),
            Step::Extend { client, node } => self.execute_extension(&mut s, client, node),
            Step::Release(client) => s.client_mut(client).phase = Phase::Ended,
            Step::Revoke(client) => {
                s.revocations_left -= 1;
                s.links_mut(client)
                    .filter(|link| link.mark == Request::Unsent)
                    .for_each(|link| link.mark = Request::Sent);
            }
            Step::Mark { client, node } => self.execute_mark(&mut s, client, node),
            Step::Remove(node) => self.remove_holder(&mut s.nodes[node]),
            Step::LoseData(node) | Step::Jump(node) | Step::LoseMark(node) => self.fault(&mut s, node),
            Step::Tick => self.tick(&mut s),
        }
        Some(self.canonical(s))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

impl Searched for Redlock {
    fn expanded(&self) -> usize {
        self.tally.expanded.load(Relaxed)
    }

    fn figures(&self) -> String {
        let tally = &self.tally;
        let [at_once, written_back, extended] =
            [&tally.at_once, &tally.written_back, &tally.extended].map(|count| count.load(Relaxed));
        format!("grants: {at_once} at once, {written_back} after a write-back; {extended} extended")
    }

    fn must_occur(&self) -> Vec<(&'static str, usize)> {
        let (variant, tally) = (&self.variant, &self.tally);
        let all_granted = usize::from(tally.most_grants.load(Relaxed) == usize::from(variant.clients));
        let count = |count: &AtomicUsize| count.load(Relaxed);
        [
            (true, "path on which every client is granted", all_granted),
            (variant.form == Form::OneRound, "grant at once", count(&tally.at_once)),
            (true, "grant after a write-back", count(&tally.written_back)),
            (variant.extensions > 0, "extension", count(&tally.extended)),
            (variant.extensions > 0, "node that an extension re-joined", count(&tally.rejoined)),
            (variant.revocations > 0, "revocation of a believed hold", count(&tally.revoked)),
            (
                variant.revocations > 0 && variant.extensions > 0,
                "extension that a mark refused",
                count(&tally.refused),
            ),
            (variant.faults > 0, "fault", count(&tally.faults)),
        ]
        .into_iter()
        .filter(|(must, _, _)| *must)
        .map(|(_, what, count)| (what, count))
        .collect()
    }
}
