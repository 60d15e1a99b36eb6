//! A Redis Cluster: primaries, each with a replica if that is asked for.

use std::{
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    PATIENCE,
    redis_server::RedisServer,
    resp::{self, Value},
    zookeeper_server::free_port,
};

pub const SLOTS: u16 = 16_384;

/// How a cluster is started.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    pub primaries: usize,
    /// Whether each primary has a replica.
    pub with_replicas: bool,
    /// Settings of every server.
    pub settings: &'a [&'a str],
    /// Time without an answer after which the others take a server for dead.
    pub node_timeout: Duration,
    /// Whether the wall clock of the first server can be moved.
    pub with_clock: bool,
    /// Whether the ports are for TLS, whose files are among the settings.
    pub with_tls: bool,
}

impl Default for Setup<'_> {
    /// Three primaries without replicas.
    fn default() -> Self {
        Self {
            primaries: 3,
            with_replicas: false,
            settings: &[],
            node_timeout: Duration::from_secs(1),
            with_clock: false,
            with_tls: false,
        }
    }
}

/// A server of the cluster.
#[derive(Debug)]
pub struct Member {
    pub server: Arc<Mutex<RedisServer>>,
    pub port: u16,
    pub id: String,
}

impl Member {
    pub fn server(&self) -> MutexGuard<'_, RedisServer> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn command(&self, words: &[&str]) -> Value {
        self.server().command(words)
    }

    /// Runs a command behind `ASKING`, on one connection.
    fn asked(&self, words: &[&str]) -> Value {
        let stream = UnixStream::connect(self.server().socket()).expect("the server is there");
        resp::command_over(&stream, &["ASKING"]).expect("the server answers");
        resp::command_over(&stream, words).expect("the server answers")
    }

    /// Whether this information has this text.
    pub fn reports(&self, what: &[&str], text: &str) -> bool {
        matches!(self.command(what), Value::Text(info) if info.contains(text))
    }
}

/// Servers that know each other; the primaries come first, then their replicas in the same order.
#[derive(Debug)]
pub struct RedisCluster {
    pub members: Vec<Member>,
    with_tls: bool,
}

impl RedisCluster {
    /// Starts a cluster whose slots are divided evenly among the primaries.
    pub fn start(setup: Setup<'_>) -> Self {
        let count = if setup.with_replicas { 2 * setup.primaries } else { setup.primaries };
        let timeout = setup.node_timeout.as_millis().to_string();
        let members: Vec<_> = (0..count)
            .map(|number| {
                let (port, bus) = (free_port(), free_port());
                let of_port = if setup.with_tls { "--tls-port" } else { "--port" };
                let (port_text, bus) = (port.to_string(), bus.to_string());
                let mut settings: Vec<String> = [
                    [of_port, &port_text],
                    ["--cluster-port", &bus],
                    ["--bind", "127.0.0.1"],
                    ["--cluster-enabled", "yes"],
                    ["--cluster-config-file", "nodes"],
                    ["--cluster-node-timeout", &timeout],
                    ["--cluster-require-full-coverage", "no"],
                    ["--cluster-allow-replica-migration", "no"],
                    ["--repl-diskless-sync-delay", "0"],
                    ["--repl-ping-replica-period", "1"],
                ]
                .concat()
                .into_iter()
                .map(str::to_owned)
                .collect();
                if setup.with_tls {
                    settings.extend(["--tls-cluster", "yes", "--tls-replication", "yes"].map(str::to_owned));
                }
                settings.extend(setup.settings.iter().copied().map(str::to_owned));
                let server = RedisServer::start_configured("", &settings, setup.with_clock && number == 0);
                let id = server.command(&["CLUSTER", "MYID"]).text();
                let epoch = (number + 1).to_string();
                server.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
                (Member { server: Arc::new(Mutex::new(server)), port, id }, bus)
            })
            .collect();
        let each = SLOTS / u16::try_from(setup.primaries).expect("few");
        for (number, (primary, _)) in members[..setup.primaries].iter().enumerate() {
            let first = each * u16::try_from(number).expect("few");
            let last = if number + 1 == setup.primaries { SLOTS - 1 } else { first + each - 1 };
            let range = [first, last].map(|slot| slot.to_string());
            primary.command(&["CLUSTER", "ADDSLOTSRANGE", &range[0], &range[1]]);
        }
        for (member, bus) in &members[1..] {
            members[0].0.command(&["CLUSTER", "MEET", "127.0.0.1", &member.port.to_string(), bus]);
        }
        let members = members.into_iter().map(|(member, _)| member).collect();
        let this = Self { members, with_tls: setup.with_tls };
        this.until("they know each other", |member| {
            member.reports(&["CLUSTER", "INFO"], &format!("cluster_known_nodes:{count}"))
        });
        for (primary, replica) in this.members.iter().zip(&this.members[setup.primaries..]) {
            this.until("the primary is known", |_| {
                replica.command(&["CLUSTER", "REPLICATE", &primary.id]) == Value::Text("OK".into())
            });
        }
        for replica in &this.members[setup.primaries..] {
            this.until("the replica follows", |_| {
                replica.reports(&["INFO", "replication"], "master_link_status:up")
            });
        }
        this.until("the cluster is up", |member| member.reports(&["CLUSTER", "INFO"], "cluster_state:ok"));
        this
    }

    /// Waits until this holds for each member that runs.
    pub fn until(&self, what: &str, holds: impl Fn(&Member) -> bool) {
        let end = Instant::now() + 2 * PATIENCE;
        for member in &self.members {
            while member.server().lives() && !holds(member) {
                assert!(Instant::now() < end, "not yet: {what}");
                thread::sleep(Duration::from_millis(5));
            }
        }
    }

    /// The URL of the cluster, with this text before its hosts and this one behind them.
    pub fn url(&self, credentials: &str, rest: &str) -> String {
        let scheme = if self.with_tls { "redis-cluster+tls" } else { "redis-cluster" };
        let hosts: Vec<_> = self.members.iter().map(|member| format!("127.0.0.1:{}", member.port)).collect();
        format!("{scheme}://{credentials}{}{rest}", hosts.join(","))
    }

    /// The members that are primaries now.
    pub fn primaries(&self) -> Vec<&Member> {
        let is_primary = |member: &&Member| {
            member.server().lives() && member.reports(&["INFO", "replication"], "role:master")
        };
        self.members.iter().filter(is_primary).collect()
    }

    /// The member that has this slot, as it says itself.
    pub fn owner(&self, slot: u16) -> &Member {
        let end = Instant::now() + PATIENCE;
        loop {
            for member in self.primaries() {
                let Value::Text(nodes) = member.command(&["CLUSTER", "NODES"]) else { panic!("a text") };
                let own = nodes.lines().find(|line| line.contains("myself")).expect("it knows itself");
                let mut ranges = own.split(' ').skip(8).filter(|range| !range.starts_with('['));
                if ranges.any(|range| {
                    let (first, last) = range.split_once('-').unwrap_or((range, range));
                    (first.parse().unwrap()..=last.parse().unwrap()).contains(&slot)
                }) {
                    return member;
                }
            }
            assert!(Instant::now() < end, "no server has the slot {slot}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The slot of a name.
    pub fn slot(&self, name: &str) -> u16 {
        let slot = self.primaries()[0].command(&["CLUSTER", "KEYSLOT", name]).int();
        u16::try_from(slot).expect("a slot")
    }

    /// Moves a slot to a primary, with its keys, as `redis-cli --cluster reshard` does. `pause` is made while some keys are
    /// here and some there.
    pub fn move_slot(&self, slot: u16, to: &Member, pause: Duration) {
        let from = self.owner(slot);
        if from.id == to.id {
            return;
        }
        let text = slot.to_string();
        to.command(&["CLUSTER", "SETSLOT", &text, "IMPORTING", &from.id]);
        from.command(&["CLUSTER", "SETSLOT", &text, "MIGRATING", &to.id]);
        let mut is_first = true;
        loop {
            let keys = from.command(&["CLUSTER", "GETKEYSINSLOT", &text, "1"]).texts();
            let Some(key) = keys.first() else { break };
            from.command(&["MIGRATE", "127.0.0.1", &to.port.to_string(), key, "0", "1000", "REPLACE"]);
            if std::mem::take(&mut is_first) {
                thread::sleep(pause);
            }
        }
        if is_first {
            thread::sleep(pause);
        }
        for member in [to, from].into_iter().chain(self.primaries()) {
            member.command(&["CLUSTER", "SETSLOT", &text, "NODE", &to.id]);
        }
    }

    /// Runs a command that names a key, at the server that has the key.
    pub fn command(&self, words: &[&str]) -> Value {
        let end = Instant::now() + PATIENCE;
        let mut at = self.primaries()[0];
        let mut is_asked = false;
        loop {
            let answer = if is_asked { at.asked(words) } else { at.command(words) };
            let Value::Error(error) = &answer else { return answer };
            let to = |port: &str| {
                let port: u16 = port.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
                self.members.iter().find(|member| member.port == port).expect("a member")
            };
            match error.split(' ').collect::<Vec<_>>()[..] {
                ["MOVED", _, address] => (at, is_asked) = (to(address), false),
                ["ASK", _, address] => (at, is_asked) = (to(address), true),
                ["TRYAGAIN" | "CLUSTERDOWN", ..] => thread::sleep(Duration::from_millis(5)),
                _ => return answer,
            }
            assert!(Instant::now() < end, "{words:?}: {answer:?}");
        }
    }
}

/// Moves slots that have keys from one primary to another until it is dropped.
#[derive(Debug)]
pub struct Mover {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<usize>>,
}

impl Mover {
    /// Moves a slot in each of these periods; for `pause`, some of its keys are here and some there.
    pub fn start(cluster: Arc<RedisCluster>, period: Duration, pause: Duration) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let has_ended = Arc::clone(&ended);
        let thread = thread::spawn(move || {
            let mut moved = 0;
            for turn in 0.. {
                if has_ended.load(Ordering::Relaxed) {
                    break;
                }
                let primaries = cluster.primaries();
                let from = primaries[turn % primaries.len()];
                let to = primaries[(turn + 1) % primaries.len()];
                if let Value::Text(key) = from.command(&["RANDOMKEY"]) {
                    cluster.move_slot(cluster.slot(&key), to, pause);
                    moved += 1;
                }
                thread::sleep(period);
            }
            moved
        });
        Self { ended, thread: Some(thread) }
    }

    /// Ends the moves, and returns their number.
    pub fn end(mut self) -> usize {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.take().expect("it ends once").join().expect("slots can be moved")
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
