//! A simulation of the quorum: the library's own code in several processes, against Redis servers of which only the
//! protocol and the data are imitated, on a network that delays, divides and loses. A seed decides everything.
//!
//! The time is simulated, so a minute takes a moment, and a run can be repeated. What runs is the real code down to the
//! driver, and the real scripts; see [`simulated`](crate::simulated) for what is not. Tokio's timers and the network
//! have a resolution of one millisecond. Processes and machines that stand still are not simulated, nor are clocks that
//! jump; `tests/servers/redlock` has those that real servers can show.
//!
//! `tests/run simulation 5000` runs five thousand seeds, `tests/run simulation seed=17` repeats one.

mod faults;
mod process;
mod server;

#[path = "../../../tests/support/history.rs"]
#[allow(dead_code, unreachable_pub, reason = "other tests use it, too")]
mod history;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fmt::Write as _,
    future::pending,
    ops::Range,
    panic::{self, AssertUnwindSafe},
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use rand::{Rng, SeedableRng, rngs::SmallRng};
use turmoil::Sim;

use self::{
    faults::Faults,
    history::Hold,
    process::{Notes, Process},
    server::{Clock, Server},
};
use crate::simulated;

/// The longest lease of all clients; a restarted node has no vote for this time and two seconds.
const MAX_TTL: Duration = Duration::from_secs(1);
/// How long a node that was started has no vote, at most: it counts its uptime in whole seconds.
const WITHOUT_VOTE: Duration = Duration::from_secs(4);
/// How long servers and the network fail.
const TROUBLE: Duration = Duration::from_secs(5);
/// Upper bound on the time until each process has a lock after that. Nodes without a vote have to get it, and the others may
/// hold it for 3 s each.
const RECOVERY: Duration = Duration::from_secs(60);
/// Upper bound on the time until all acquisitions and holds have ended after that.
const END: Duration = Duration::from_secs(10);
/// How long after their end the last releases may be under way, also one that overtook its acquisition and is repeated:
/// shorter than most leases.
const LAST_RELEASES: Duration = Duration::from_millis(400);

/// What a seed decides at the beginning.
#[derive(Debug)]
struct Plan {
    nodes: usize,
    processes: usize,
    tasks: usize,
    locks: usize,
    ttl: Duration,
    /// Whether every node persists each write.
    durable: bool,
    longest_latency: Duration,
    clocks: Vec<Clock>,
    /// Whether anything fails: if not, messages are fast, and the clocks of all nodes, too.
    faulty: bool,
}

impl Plan {
    fn of(random: &mut SmallRng) -> Self {
        let nodes = if random.random_ratio(3, 4) { 3 } else { 5 };
        let faulty = random.random_ratio(7, 8);
        let clock = |_| Clock {
            offset_us: random.random_range(-300_000..300_000),
            // Leases allow for one per cent.
            faster_ppm: if faulty { [-9_000, 0, 9_000][random.random_range(0..3)] } else { 9_000 },
        };
        let clocks = (0..nodes).map(clock).collect();
        let longest_latency =
            Duration::from_millis(if faulty { [3, 10, 40][random.random_range(0..3)] } else { 2 });
        Self {
            nodes,
            processes: random.random_range(2..=3),
            tasks: random.random_range(1..=2),
            locks: random.random_range(1..=2),
            ttl: Duration::from_millis([300, 500, 1_000][random.random_range(0..3)]),
            durable: random.random_ratio(1, 4),
            longest_latency,
            clocks,
            faulty,
        }
    }

    fn url(&self) -> String {
        let nodes: Vec<_> = (0..self.nodes).map(node_name).collect();
        let Self { durable, .. } = self;
        let max_ttl = MAX_TTL.as_millis();
        format!(
            "redlock://{}?max_ttl={max_ttl}ms&node_timeout=100ms&connect_timeout=200ms&durable={durable}",
            nodes.join(",")
        )
    }
}

fn node_name(number: usize) -> String {
    format!("node-{number}")
}

fn process_name(number: usize) -> String {
    format!("process-{number}")
}

/// The host of the library's own thread in a process.
fn background_name(number: usize) -> String {
    format!("background-{number}")
}

/// The time in the simulation.
fn now() -> Duration {
    simulated::elapsed().expect("in a simulation")
}

/// What a run shows.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    holds: BTreeMap<String, Vec<Hold>>,
    commands: Vec<u64>,
    problems: Vec<String>,
}

/// Runs the simulation of a seed on this thread, which must be a fresh one.
fn simulate(seed: u64, traced: bool) -> Outcome {
    simulated::run(seed, traced, || {
        let mut random = SmallRng::seed_from_u64(seed);
        let plan = Rc::new(Plan::of(&mut random));
        let faults = Faults::new(&plan, random);
        let mut world = World::of(seed, plan, faults);
        world.live();
        world.end()
    })
}

/// The hosts and the network of a run.
struct World<'a> {
    plan: Rc<Plan>,
    sim: Sim<'a>,
    servers: Vec<Server>,
    notes: Rc<Notes>,
    faults: Faults,
}

impl World<'_> {
    fn of(seed: u64, plan: Rc<Plan>, faults: Faults) -> Self {
        let mut sim = turmoil::Builder::new()
            .rng_seed(seed)
            .enable_random_order()
            .min_message_latency(Duration::from_millis(1))
            .max_message_latency(plan.longest_latency)
            .tick_duration(Duration::from_millis(1))
            .simulation_duration(Duration::from_secs(3600))
            .build();
        // Otherwise most messages take the shortest time, and those of one host always arrive first.
        sim.set_message_latency_curve(1.0);
        let servers: Vec<_> = plan
            .clocks
            .iter()
            .enumerate()
            .map(|(number, clock)| Server::new(number, *clock, plan.durable))
            .collect();
        for (number, server) in servers.iter().enumerate() {
            let server = server.clone();
            sim.host(node_name(number), move || server.clone().serve());
        }
        let notes = Rc::new(Notes::default());
        for number in 0..plan.processes {
            let handle = Rc::new(RefCell::new(None));
            let tell = Rc::clone(&handle);
            sim.host(background_name(number), move || process::background(Rc::clone(&tell)));
            let (plan, notes) = (Rc::clone(&plan), Rc::clone(&notes));
            sim.host(process_name(number), move || {
                Process { number, plan: Rc::clone(&plan), notes: Rc::clone(&notes) }.run(Rc::clone(&handle))
            });
        }
        Self { plan, sim, servers, notes, faults }
    }

    /// Runs through the faults, the time after them, and the end.
    fn live(&mut self) {
        self.run(TROUBLE, self.plan.faulty, |_| false);
        self.faults.end(&mut self.sim, &self.servers);
        self.notes.granted.borrow_mut().clear();
        let processes = self.plan.processes;
        if !self.run(RECOVERY, false, |notes| notes.granted.borrow().len() == processes) {
            let granted = self.notes.granted.borrow().clone();
            self.problem(format!(
                "after {RECOVERY:?} without faults only these processes had a lock: {granted:?}"
            ));
        }
        self.notes.stop.set(true);
        if !self.run(END, false, |notes| notes.tasks.get() == 0) {
            self.problem(format!("{} tasks run on", self.notes.tasks.get()));
        }
        // What a process held when it lost its power ends by itself, a little later where the clock of a node is slow.
        let lease = self.plan.ttl + self.plan.ttl / 20;
        let last_end = self.faults.last_kill.map_or(Duration::ZERO, |at| at + lease);
        self.run(LAST_RELEASES.max(last_end.saturating_sub(self.sim.elapsed())), false, |_| false);
        for (number, server) in self.servers.iter().enumerate() {
            let left = server.holders(self.sim.elapsed());
            if !left.is_empty() {
                self.problem(format!("left on node {number}: {left:?}"));
            }
        }
    }

    /// Runs until it is over, or for this time; returns whether it was over.
    fn run(&mut self, most: Duration, faulty: bool, is_over: impl Fn(&Notes) -> bool) -> bool {
        let end = self.sim.elapsed() + most;
        while self.sim.elapsed() < end && !is_over(&self.notes) {
            if faulty {
                self.faults.step(&mut self.sim, &self.servers);
            }
            if let Err(error) = self.sim.step() {
                self.problem(format!("a host failed: {error}"));
                return false;
            }
        }
        is_over(&self.notes)
    }

    fn problem(&self, what: String) {
        self.notes.problems.borrow_mut().push(what);
    }

    fn end(self) -> Outcome {
        let Self { plan, sim, servers, notes, faults } = self;
        simulated::kill(sim.elapsed(), || drop(sim));
        let (holds, mut problems) = (notes.holds.take(), notes.problems.take());
        for (lock, holds) in &holds {
            let verdict = history::judge(holds.clone());
            if !verdict.is_clean() {
                problems.push(format!("{lock}: {verdict:?}"));
            }
        }
        if !problems.is_empty() {
            problems.push(format!("{plan:?}"));
            problems.push(format!("faults: {}", faults.log));
        }
        Outcome { holds, commands: servers.iter().map(Server::commands).collect(), problems }
    }
}

/// Runs one seed after the other on fresh threads, on all processors.
fn simulate_all(seeds: Range<u64>) -> BTreeMap<u64, Outcome> {
    let next = AtomicU64::new(seeds.start);
    let is_one = seeds.end - seeds.start == 1;
    let workers = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        let work = || {
            let mut outcomes = BTreeMap::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds.end {
                    return outcomes;
                }
                outcomes.insert(seed, on_a_fresh_thread(seed, is_one));
            }
        };
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("panics are caught")).collect()
    })
}

fn on_a_fresh_thread(seed: u64, traced: bool) -> Outcome {
    let run = move || panic::catch_unwind(AssertUnwindSafe(|| simulate(seed, traced)));
    thread::spawn(run)
        .join()
        .expect("panics are caught")
        .unwrap_or_else(|_| Outcome { problems: vec!["it panicked".into()], ..Outcome::default() })
}

/// The seeds to run: `LOCK_TEST_SIMULATION` is a number of seeds, or `seed=17`; fifty unless it is set.
fn seeds() -> Range<u64> {
    let chosen = std::env::var("LOCK_TEST_SIMULATION").unwrap_or_else(|_| "50".into());
    match chosen.strip_prefix("seed=").unwrap_or(&chosen).parse::<u64>() {
        Ok(seed) if chosen.starts_with("seed=") => seed..seed + 1,
        Ok(count) => 0..count,
        Err(error) => panic!("LOCK_TEST_SIMULATION={chosen}: {error}; write a number of seeds, or `seed=17`"),
    }
}

#[test]
fn a_quorum_keeps_its_promises_whatever_fails() {
    let outcomes = simulate_all(seeds());
    let mut report = String::new();
    for (seed, outcome) in outcomes.iter().filter(|(_, outcome)| !outcome.problems.is_empty()).take(5) {
        writeln!(report, "seed {seed}; repeat it with `tests/run simulation seed={seed}`").expect("a String");
        for problem in &outcome.problems {
            writeln!(report, "  {problem}").expect("a String");
        }
    }
    let failed = outcomes.values().filter(|outcome| !outcome.problems.is_empty()).count();
    let holds: usize = outcomes.values().flat_map(|outcome| outcome.holds.values()).map(Vec::len).sum();
    println!("{} seeds, {holds} holds, {failed} failed", outcomes.len());
    assert!(failed == 0, "{failed} of {} seeds failed:\n{report}", outcomes.len());
    // A single one, which is repeated, may have few.
    let are_many = outcomes.len() == 1 || holds > 10 * outcomes.len();
    assert!(are_many, "{holds} holds in {} runs show nothing", outcomes.len());
}

#[test]
fn a_seed_repeats_its_run() {
    for seed in 0..5 {
        let [first, second] = [(); 2].map(|()| on_a_fresh_thread(seed, false));
        assert_eq!(first, second, "seed {seed}");
    }
}

/// Notes the time at which it is dropped.
struct NotesItsEnd(Rc<Cell<Duration>>);

impl Drop for NotesItsEnd {
    fn drop(&mut self) {
        self.0.set(now());
    }
}

/// How much time of the machine passes meanwhile depends on its load.
#[test]
fn a_process_is_killed_at_the_time_of_the_simulation_however_slow_the_machine_is() {
    let (killed, noted) = simulated::run(0, false, || {
        let noted = Rc::new(Cell::new(Duration::ZERO));
        let mut sim = turmoil::Builder::new().tick_duration(Duration::from_millis(1)).build();
        let end = Rc::clone(&noted);
        sim.host("process", move || {
            let end = NotesItsEnd(Rc::clone(&end));
            async move {
                let _end = end;
                pending().await
            }
        });
        for _ in 0..3 {
            sim.step().expect("the host goes on");
        }
        thread::sleep(Duration::from_millis(50));
        simulated::kill(sim.elapsed(), || sim.crash("process"));
        (sim.elapsed(), noted.get())
    });
    assert_eq!(noted, killed);
}
