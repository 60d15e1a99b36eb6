//! A Redis Cluster: primaries, each with a replica if that is asked for.

use std::{
    collections::BTreeSet,
    os::unix::net::UnixStream,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::{
    PATIENCE,
    redis_server::RedisServer,
    repeated::Repeated,
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
    /// The settings of every server.
    settings: Vec<String>,
}

impl RedisCluster {
    /// Starts a cluster whose slots are divided evenly among the primaries.
    pub fn start(setup: Setup<'_>) -> Self {
        let count = if setup.with_replicas { 2 * setup.primaries } else { setup.primaries };
        let timeout = setup.node_timeout.as_millis().to_string();
        let mut settings = [
            ["--bind", "127.0.0.1"],
            ["--cluster-enabled", "yes"],
            ["--cluster-config-file", "nodes"],
            ["--cluster-node-timeout", &timeout],
            ["--cluster-require-full-coverage", "no"],
            ["--cluster-allow-replica-migration", "no"],
            ["--repl-diskless-sync-delay", "0"],
            ["--repl-ping-replica-period", "1"],
        ]
        .concat();
        if setup.with_tls {
            settings.extend(["--tls-cluster", "yes", "--tls-replication", "yes"]);
        }
        settings.extend(setup.settings);
        let settings: Vec<_> = settings.into_iter().map(str::to_owned).collect();
        let members: Vec<_> = (0..count)
            .map(|number| {
                let (member, bus) = launch(&settings, setup.with_tls, setup.with_clock && number == 0);
                let epoch = (number + 1).to_string();
                member.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
                (member, bus)
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
        let this = Self { members, with_tls: setup.with_tls, settings };
        this.until("they know each other", |member| {
            member.reports(&["CLUSTER", "INFO"], &format!("cluster_known_nodes:{count}"))
        });
        this.replicate(&this.members[..count - setup.primaries], &this.members[setup.primaries..]);
        this.until("the cluster is up", |member| member.reports(&["CLUSTER", "INFO"], "cluster_state:ok"));
        this
    }

    /// Makes servers the replicas of primaries, each of one; waits until all servers name them to clients.
    pub fn replicate(&self, primaries: &[Member], replicas: &[Member]) {
        for (primary, replica) in primaries.iter().zip(replicas) {
            self.until("the primary is known", |_| {
                replica.command(&["CLUSTER", "REPLICATE", &primary.id]) == Value::Text("OK".into())
            });
        }
        for replica in replicas {
            self.until("the replica follows", |_| {
                replica.reports(&["INFO", "replication"], "master_link_status:up")
            });
            // A server names a replica only after it has heard how far the replica has got.
            self.until("the replica is named", |member| {
                format!("{:?}", member.command(&["CLUSTER", "SLOTS"])).contains(&replica.id)
            });
        }
    }

    /// Adds so many primaries without slots; returns the number of the first.
    pub fn join(&mut self, count: usize) -> usize {
        let first = self.members.len();
        for _ in 0..count {
            let (member, bus) = launch(&self.settings, self.with_tls, false);
            self.members[0].command(&["CLUSTER", "MEET", "127.0.0.1", &member.port.to_string(), &bus]);
            self.members.push(member);
        }
        let known = format!("cluster_known_nodes:{}", self.members.len());
        self.until("they know each other", |member| member.reports(&["CLUSTER", "INFO"], &known));
        self.until("the cluster is up", |member| member.reports(&["CLUSTER", "INFO"], "cluster_state:ok"));
        first
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

    /// A member that follows another one.
    pub fn a_replica(&self) -> Option<&Member> {
        self.members.iter().find(|member| {
            member.server().lives() && member.reports(&["INFO", "replication"], "master_link_status:up")
        })
    }

    /// The member that has this slot, as it says itself.
    pub fn owner(&self, slot: u16) -> &Member {
        let end = Instant::now() + PATIENCE;
        loop {
            let has_slot = |member: &&Member| server_of(slot, member).is_some_and(|id| id == member.id);
            if let Some(member) = self.primaries().into_iter().find(has_slot) {
                return member;
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
        if self.owner(slot).id == to.id {
            return;
        }
        let moving = self.begin_move(slot, to);
        if let [first, ..] = &moving.keys()[..] {
            moving.carry(first);
        }
        thread::sleep(pause);
        moving.end();
    }

    /// Begins to move a slot to a primary: its keys are still where they were.
    pub fn begin_move<'a>(&'a self, slot: u16, to: &'a Member) -> Move<'a> {
        let from = self.owner(slot);
        let end = Instant::now() + 2 * PATIENCE;
        while !self.agree_on(slot, from) {
            assert!(Instant::now() < end, "not all know who has the slot, and since which epoch");
            thread::sleep(Duration::from_millis(5));
        }
        let moving = Move { cluster: self, slot: slot.to_string(), from, to };
        to.command(&["CLUSTER", "SETSLOT", &moving.slot, "IMPORTING", &from.id]);
        from.command(&["CLUSTER", "SETSLOT", &moving.slot, "MIGRATING", &to.id]);
        moving
    }

    /// Whether all servers that run know who has a slot, and which epoch each of them has.
    ///
    /// If a slot is moved again before all servers know of the last move and its epoch, the new owner may take an epoch that
    /// another server has. Two servers can then believe that the other one has the slot, and none of them serves it. Servers
    /// that were asked one after the other until each agreed could have learned of different epochs meanwhile, so all are
    /// compared with one answer.
    fn agree_on(&self, slot: u16, owner: &Member) -> bool {
        let known = epochs(owner);
        let different: BTreeSet<_> = known.iter().map(|(_, epoch)| epoch).collect();
        different.len() == known.len()
            && self.members.iter().filter(|member| member.server().lives()).all(|member| {
                epochs(member) == known && server_of(slot, member).is_some_and(|id| id == owner.id)
            })
    }

    /// A primary that has not this slot.
    pub fn another(&self, slot: u16) -> &Member {
        let owner = &self.owner(slot).id;
        self.primaries().into_iter().find(|member| member.id != *owner).expect("several primaries")
    }

    /// Makes a replica the primary of its slots, which its primary agrees to; waits until all servers know.
    pub fn fail_over(&self, replica: &Member) {
        self.promote(replica, &["CLUSTER", "FAILOVER"]);
    }

    /// Makes a replica the primary of its slots, without a word to its primary; waits until all servers know.
    pub fn force(&self, replica: &Member) {
        self.promote(replica, &["CLUSTER", "FAILOVER", "FORCE"]);
    }

    fn promote(&self, replica: &Member, command: &[&str]) {
        let end = Instant::now() + PATIENCE;
        while replica.command(command) != Value::Text("OK".into()) {
            assert!(Instant::now() < end, "the replica does not know its primary");
            thread::sleep(Duration::from_millis(20));
        }
        self.promoted(replica);
    }

    /// Kills the primary of a replica, which takes its place, and brings the dead server back as a replica. Returns whether
    /// a primary had one.
    pub fn replace_a_dead_primary(&self) -> bool {
        let Some(replica) = self.a_replica() else { return false };
        let Value::Text(shown) = replica.command(&["INFO", "replication"]) else { return false };
        let port = shown.lines().find_map(|line| line.strip_prefix("master_port:")).expect("a replica");
        let primary = self.members.iter().find(|member| member.port.to_string() == port).expect("a member");
        primary.server().kill();
        self.promoted(replica);
        primary.server().bring_back();
        true
    }

    /// Waits until all servers that run take this replica for a primary.
    pub fn promoted(&self, replica: &Member) {
        self.until("the replica is a primary", |member| {
            let Value::Text(nodes) = member.command(&["CLUSTER", "NODES"]) else { return false };
            nodes.lines().any(|line| {
                line.starts_with(&replica.id) && line.contains("master") && line.split(' ').count() > 8
            })
        });
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

/// The IDs of the primaries, in their order, each with its configuration epoch, as `member` knows.
fn epochs(member: &Member) -> Vec<(String, String)> {
    let Value::Text(nodes) = member.command(&["CLUSTER", "NODES"]) else { return Vec::new() };
    let words = nodes.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let primaries = words.filter(|words| words[2].contains("master"));
    let mut epochs: Vec<_> = primaries.map(|words| (words[0].to_owned(), words[6].to_owned())).collect();
    epochs.sort();
    epochs
}

/// The ID of the server that has this slot, as `member` knows.
fn server_of(slot: u16, member: &Member) -> Option<String> {
    let Value::Text(nodes) = member.command(&["CLUSTER", "NODES"]) else { return None };
    let has_slot = |line: &&str| {
        line.split(' ').skip(8).filter(|range| !range.starts_with('[')).any(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            (first.parse().expect("a slot")..=last.parse().expect("a slot")).contains(&slot)
        })
    };
    nodes.lines().find(has_slot)?.split(' ').next().map(str::to_owned)
}

/// Starts a server; returns the port of its bus, too.
fn launch(settings: &[String], with_tls: bool, with_clock: bool) -> (Member, String) {
    let (port, bus) = (free_port(), free_port().to_string());
    let of_port = if with_tls { "--tls-port" } else { "--port" };
    let own = [of_port, &port.to_string(), "--cluster-port", &bus].map(str::to_owned);
    let server = RedisServer::start_configured("", &[&own, settings].concat(), with_clock);
    let id = server.command(&["CLUSTER", "MYID"]).text();
    (Member { server: Arc::new(Mutex::new(server)), port, id }, bus)
}

/// A move of a slot that has begun.
#[derive(Debug)]
pub struct Move<'a> {
    cluster: &'a RedisCluster,
    slot: String,
    from: &'a Member,
    to: &'a Member,
}

impl Move<'_> {
    /// The keys that were not moved yet.
    pub fn keys(&self) -> Vec<String> {
        self.from.command(&["CLUSTER", "GETKEYSINSLOT", &self.slot, "1000"]).texts()
    }

    /// Moves a key.
    pub fn carry(&self, key: &str) {
        self.from.command(&["MIGRATE", "127.0.0.1", &self.to.port.to_string(), key, "0", "1000", "REPLACE"]);
    }

    /// Moves all other keys, and ends the move.
    pub fn end(self) {
        loop {
            let keys = self.keys();
            if keys.is_empty() {
                break;
            }
            for key in &keys {
                self.carry(key);
            }
        }
        for member in [self.to, self.from].into_iter().chain(self.cluster.primaries()) {
            member.command(&["CLUSTER", "SETSLOT", &self.slot, "NODE", &self.to.id]);
        }
    }
}

/// Number of turns before a failover.
const MOVES: usize = 40;
/// Number of turns before a primary may be killed.
const KILLS: usize = 4 * MOVES;

/// Moves slots that have keys from one primary to another. The move of a slot takes `pause`, in which some of its keys are
/// here and some there. Slots stay that have a key whose name contains one of `spared`. In each fortieth turn, a replica is
/// made the primary, if there is one; in each hundred and sixtieth, `kill` is called instead.
pub fn move_slots(
    cluster: Arc<RedisCluster>,
    period: Duration,
    pause: Duration,
    spared: &'static [&'static str],
    kill: impl Fn(&RedisCluster) + Send + 'static,
) -> Repeated {
    Repeated::start(period, move |turn| {
        let primaries = cluster.primaries();
        let from = primaries[turn % primaries.len()];
        let to = primaries[(turn + 1) % primaries.len()];
        let mut is_moved = false;
        if let Value::Text(key) = from.command(&["RANDOMKEY"]) {
            let slot = cluster.slot(&key);
            let beside = from.command(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "100"]).texts();
            if !beside.iter().any(|key| spared.iter().any(|part| key.contains(part))) {
                cluster.move_slot(slot, to, pause);
                is_moved = true;
            }
        }
        if turn % KILLS == KILLS - 1 {
            kill(&cluster);
        } else if turn % MOVES == MOVES - 1
            && let Some(replica) = cluster.a_replica()
        {
            cluster.fail_over(replica);
        }
        is_moved
    })
}
