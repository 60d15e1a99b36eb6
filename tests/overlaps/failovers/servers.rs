//! The servers whose primaries are replaced.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::support::{
    PATIENCE, monotonic,
    redis_cluster::{self, RedisCluster},
    redis_sentinel::{self, RedisSet},
    resp::Value,
};

/// How a primary is replaced.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Way {
    /// By `SENTINEL FAILOVER` or `CLUSTER FAILOVER`.
    Commanded,
    /// While it goes on answering its clients, and learns late that it was replaced.
    Unaware,
    /// After its death, before which replicas had fallen behind by [`LAG`]. Then it comes back, empty, as a replica.
    Killed,
}

impl Way {
    pub const ALL: [Self; 3] = [Self::Commanded, Self::Unaware, Self::Killed];
}

/// Time before its death for which a primary has not reached the replicas that lag: what it did meanwhile is lost if one of
/// these is promoted. Shorter than the time after which the others would take them for dead.
const LAG: Duration = Duration::from_millis(500);

/// A failover, with times on the monotonic clock.
#[derive(Debug)]
pub struct Failover {
    pub way: Way,
    /// Whether the new primary may have been without leases that counted.
    pub may_lose: bool,
    pub began: u64,
    /// When the old primary was a replica that had the data of the new one.
    pub settled: u64,
    /// The primary that was replaced, and the number of all primaries.
    of: (usize, usize),
}

impl Failover {
    /// The number of the primary, which is also that of a lock on it.
    pub fn primary(&self) -> usize {
        self.of.0
    }

    /// Whether the lock with this number was on the server that was replaced.
    pub fn concerns(&self, lock: usize) -> bool {
        lock % self.of.1 == self.of.0
    }
}

/// Servers, and the number of replicas that must have a lease before it counts.
pub struct Servers {
    topology: Topology,
    min_replicas: usize,
}

enum Topology {
    Set(RedisSet),
    Cluster(RedisCluster),
}

impl Servers {
    pub fn set(setup: redis_sentinel::Setup<'_>, min_replicas: usize) -> Self {
        Self { topology: Topology::Set(RedisSet::start(setup)), min_replicas }
    }

    pub fn cluster(setup: redis_cluster::Setup<'_>, min_replicas: usize) -> Self {
        Self { topology: Topology::Cluster(RedisCluster::start(setup)), min_replicas }
    }

    pub fn url(&self) -> String {
        let rest = format!("?min_replicas={}", self.min_replicas);
        match &self.topology {
            Topology::Set(set) => set.url("", &rest),
            Topology::Cluster(cluster) => cluster.url("", &rest),
        }
    }

    pub fn primaries(&self) -> usize {
        match &self.topology {
            Topology::Set(_) => 1,
            Topology::Cluster(cluster) => cluster.members.len() / 2,
        }
    }

    /// Names of locks, which are on one primary after the other.
    pub fn names(&self, count: usize) -> Vec<String> {
        let mut candidates = (0..).map(|number| format!("k{number}"));
        let is_at = |name: &str, primary: usize| match &self.topology {
            Topology::Set(_) => true,
            Topology::Cluster(cluster) => {
                cluster.owner(cluster.slot(&format!("lock:{name}"))).id == cluster.members[primary].id
            }
        };
        let next =
            |number| candidates.find(|name| is_at(name, number % self.primaries())).expect("some name");
        (0..count).map(next).collect()
    }

    /// The keys of all primaries, and whether each expires.
    pub fn keys(&self) -> Vec<(String, bool)> {
        let of = |command: &dyn Fn(&[&str]) -> Value| {
            let keys = command(&["KEYS", "*"]).texts().into_iter();
            let expires = |key: &str| command(&["PTTL", key]).int() != -1;
            keys.map(|key| (key.clone(), expires(&key))).collect::<Vec<_>>()
        };
        match &self.topology {
            Topology::Set(set) => of(&|words| set.primary().server.command(words)),
            Topology::Cluster(cluster) => {
                cluster.primaries().into_iter().flat_map(|one| of(&|words| one.command(words))).collect()
            }
        }
    }

    /// Replaces a primary, and waits until all servers have the data of their primary again.
    pub fn replace(&mut self, way: Way, turn: usize) -> Failover {
        // Each primary in each way before long.
        let of = ((turn + turn / Way::ALL.len()) % self.primaries(), self.primaries());
        let (began, may_lose) = match &mut self.topology {
            Topology::Set(set) => replace_in_set(set, way, self.min_replicas),
            Topology::Cluster(cluster) => replace_in_cluster(cluster, way, of.0, self.min_replicas),
        };
        Failover { way, may_lose, began, settled: monotonic(), of }
    }
}

/// Returns when the failover began, and whether the new primary may have been without leases that counted.
fn replace_in_set(set: &mut RedisSet, way: Way, min_replicas: usize) -> (u64, bool) {
    let replicas = set.servers.len() - 1;
    let mut may_lose = min_replicas < replicas;
    let old = set.primary_number();
    let mut began = monotonic();
    let new = match way {
        Way::Commanded => set.fail_over(),
        Way::Unaware => {
            // The Sentinels take it for dead. The library sends no PING.
            set.servers[old].server.command(&["ACL", "SETUSER", "default", "-ping"]);
            let new = set.another_primary_than(old);
            set.servers[old].server.command(&["ACL", "SETUSER", "default", "+ping"]);
            new
        }
        Way::Killed => {
            // As many replicas follow as must have a lease, or none, so that no lease counts.
            let following = if min_replicas < replicas { min_replicas } else { 0 };
            let behind: Vec<_> = (0..=replicas).filter(|number| *number != old).skip(following).collect();
            for number in &behind {
                set.servers[*number].server.pause();
            }
            // The others connect again at once.
            set.servers[old].server.command(&["CLIENT", "KILL", "TYPE", "replica"]);
            thread::sleep(LAG);
            began = monotonic();
            set.servers[old].server.kill();
            for number in &behind {
                set.servers[*number].server.bring_back();
            }
            let new = set.another_primary_than(old);
            set.servers[old].server.bring_back();
            may_lose &= behind.contains(&new);
            new
        }
    };
    let primary = format!("master_port:{}\r\n", set.servers[new].port);
    let replicas = set.servers.iter().enumerate().filter(|(number, _)| *number != new);
    for (_, replica) in replicas {
        comes_true(|| replica.reports(&primary) && replica.reports("master_link_status:up"));
    }
    (began, may_lose)
}

/// The same. Each primary has one replica.
fn replace_in_cluster(cluster: &RedisCluster, way: Way, number: usize, min_replicas: usize) -> (u64, bool) {
    // Each primary and its replica have numbers that far apart.
    let pair = [number, number + cluster.members.len() / 2].map(|number| &cluster.members[number]);
    let is_primary = |number: usize| pair[number].reports(&["INFO", "replication"], "role:master");
    let [old, new] = if is_primary(0) { pair } else { [pair[1], pair[0]] };
    let mut began = monotonic();
    match way {
        Way::Commanded => cluster.fail_over(new),
        Way::Unaware => cluster.force(new),
        Way::Killed => {
            new.server().pause();
            old.command(&["CLIENT", "KILL", "TYPE", "replica"]);
            thread::sleep(LAG);
            began = monotonic();
            old.server().kill();
            new.server().bring_back();
            cluster.promoted(new);
            old.server().bring_back();
        }
    }
    comes_true(|| old.reports(&["INFO", "replication"], "master_link_status:up"));
    // By command, the old primary hands everything over.
    (began, min_replicas == 0 && way != Way::Commanded)
}

fn comes_true(condition: impl Fn() -> bool) {
    let end = Instant::now() + 2 * PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "the old primary does not follow the new one");
        thread::sleep(Duration::from_millis(5));
    }
}
