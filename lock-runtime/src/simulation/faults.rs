//! What goes wrong: one fault after the other, of links, nodes and processes.

use std::{fmt::Write as _, time::Duration};

use rand::{Rng, rngs::SmallRng};
use turmoil::Sim;

use super::{Plan, WITHOUT_VOTE, background_name, node_name, process_name, server::Server};
use crate::simulated;

/// A fault, and how it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// What a process and a node send each other is lost.
    Divide(usize, usize),
    /// What a process sends to a node is lost, or the other way round.
    LoseOneWay {
        process: usize,
        node: usize,
        answers: bool,
    },
    /// What a process and a node send each other arrives later, all together.
    Delay(usize, usize),
    /// A node is lost to all.
    CutOff(usize),
    /// A node stands still.
    Pause(usize),
    Restart {
        node: usize,
        with_data: bool,
    },
    /// The machine of a process loses its power.
    Kill(usize),
}

impl Fault {
    /// The processes and nodes that take part: of those no other fault may.
    fn touches(self, other: Self) -> bool {
        let parts = |fault| match fault {
            Self::Divide(process, node)
            | Self::Delay(process, node)
            | Self::LoseOneWay { process, node, .. } => (Some(process), Some(node)),
            Self::CutOff(node) | Self::Pause(node) | Self::Restart { node, .. } => (None, Some(node)),
            Self::Kill(process) => (Some(process), None),
        };
        let ((process, node), (other_process, other_node)) = (parts(self), parts(other));
        let same = |a: Option<usize>, b: Option<usize>| a.is_none() || b.is_none() || a == b;
        same(process, other_process) && same(node, other_node)
    }
}

pub(super) struct Faults {
    nodes: usize,
    processes: usize,
    durable: bool,
    random: SmallRng,
    next: Duration,
    under_way: Vec<(Duration, Fault)>,
    /// When nodes lost their data.
    forgot: Vec<Duration>,
    /// When a process last lost its power.
    pub(super) last_kill: Option<Duration>,
    pub(super) log: String,
}

impl Faults {
    pub(super) fn new(plan: &Plan, random: SmallRng) -> Self {
        Self {
            nodes: plan.nodes,
            processes: plan.processes,
            durable: plan.durable,
            random,
            next: Duration::from_millis(200),
            under_way: Vec::new(),
            forgot: Vec::new(),
            last_kill: None,
            log: String::new(),
        }
    }

    /// Begins and ends what is due.
    pub(super) fn step(&mut self, sim: &mut Sim<'_>, servers: &[Server]) {
        let now = sim.elapsed();
        let ended: Vec<_> = self.under_way.extract_if(.., |(end, _)| *end <= now).collect();
        for (_, fault) in ended {
            self.heal(fault, sim, servers);
        }
        if now < self.next {
            return;
        }
        self.next = now + Duration::from_millis(self.random.random_range(10..400));
        let fault = self.choose(now);
        if self.under_way.iter().any(|(_, other)| other.touches(fault)) {
            return;
        }
        let end = now + Duration::from_millis(self.random.random_range(5..700));
        _ = write!(self.log, "{now:?}-{end:?} {fault:?}; ");
        self.begin(fault, end, sim, servers);
        self.under_way.push((end, fault));
    }

    /// Ends everything.
    pub(super) fn end(&mut self, sim: &mut Sim<'_>, servers: &[Server]) {
        for (_, fault) in std::mem::take(&mut self.under_way) {
            self.heal(fault, sim, servers);
        }
    }

    fn choose(&mut self, now: Duration) -> Fault {
        let random = &mut self.random;
        let (process, node) = (random.random_range(0..self.processes), random.random_range(0..self.nodes));
        match random.random_range(0..10) {
            0 | 1 => Fault::Divide(process, node),
            2 => Fault::LoseOneWay { process, node, answers: random.random() },
            3 | 4 => Fault::Delay(process, node),
            5 => Fault::CutOff(node),
            6 => Fault::Pause(node),
            7 => Fault::Restart { node, with_data: true },
            8 => {
                self.forgot.retain(|at| now < *at + WITHOUT_VOTE);
                // A minority may forget at the same time.
                let with_data = self.durable || self.forgot.len() >= (self.nodes - 1) / 2;
                Fault::Restart { node, with_data }
            }
            _ => Fault::Kill(process),
        }
    }

    fn begin(&mut self, fault: Fault, end: Duration, sim: &mut Sim<'_>, servers: &[Server]) {
        // First the links: a machine that loses its power sends nothing more, whatever its destructors do.
        self.switch_links(fault, true, sim);
        match fault {
            Fault::Pause(node) => servers[node].pause(end),
            Fault::Restart { node, with_data } => {
                if !with_data {
                    self.forgot.push(end);
                }
                sim.crash(node_name(node));
            }
            Fault::Kill(process) => {
                self.last_kill = Some(sim.elapsed());
                simulated::kill(sim.elapsed(), || {
                    for host in hosts(process) {
                        sim.crash(host);
                    }
                });
            }
            _ => {}
        }
    }

    fn heal(&mut self, fault: Fault, sim: &mut Sim<'_>, servers: &[Server]) {
        self.switch_links(fault, false, sim);
        match fault {
            Fault::Restart { node, with_data } => {
                servers[node].restart(with_data, sim.elapsed());
                sim.bounce(node_name(node));
            }
            Fault::Kill(process) => {
                for host in hosts(process) {
                    sim.bounce(host);
                }
            }
            _ => {}
        }
    }

    /// Begins or ends the faults of the network.
    fn switch_links(&self, fault: Fault, fails: bool, sim: &Sim<'_>) {
        for (host, node) in self.links(fault) {
            match (fault, fails) {
                (Fault::LoseOneWay { answers: true, .. }, true) => sim.partition_oneway(node, host),
                (Fault::LoseOneWay { answers: true, .. }, false) => sim.repair_oneway(node, host),
                (Fault::LoseOneWay { .. }, true) => sim.partition_oneway(host, node),
                (Fault::LoseOneWay { .. }, false) => sim.repair_oneway(host, node),
                (Fault::Delay(..), true) => sim.hold(host, node),
                (Fault::Delay(..), false) => sim.release(host, node),
                (_, true) => sim.partition(host, node),
                (_, false) => sim.repair(host, node),
            }
        }
    }

    /// The pairs of hosts and nodes between which the network fails.
    fn links(&self, fault: Fault) -> Vec<(String, String)> {
        let (processes, nodes) = match fault {
            Fault::Divide(process, node)
            | Fault::Delay(process, node)
            | Fault::LoseOneWay { process, node, .. } => (process..process + 1, node..node + 1),
            Fault::CutOff(node) => (0..self.processes, node..node + 1),
            Fault::Kill(process) => (process..process + 1, 0..self.nodes),
            Fault::Pause(_) | Fault::Restart { .. } => return Vec::new(),
        };
        let of = |host: String| nodes.clone().map(move |node| (host.clone(), node_name(node)));
        processes.flat_map(hosts).flat_map(of).collect()
    }
}

/// The two hosts of a process: the one in the background is the first that ends, and the first that starts.
fn hosts(process: usize) -> [String; 2] {
    [background_name(process), process_name(process)]
}
