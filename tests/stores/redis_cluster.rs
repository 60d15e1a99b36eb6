//! `redis-cluster:`, three primaries whose slots are moved from one to the other all the time, by a user that has only the
//! permissions the documentation asks for. With `LOCK_TEST_FAILOVERS`, each has a replica, which is made the primary now and
//! then, and which takes the place of a primary that is killed less often; a case that fails meanwhile runs again. A case
//! that hurts its server has a cluster of one server, behind a proxy; what happens when one of several servers is hurt is in
//! `tests/servers/redis_cluster`.

use std::{
    sync::{Arc, Mutex, PoisonError, RwLock},
    thread,
    time::{Duration, Instant},
};

use lock_conformance::{CANARY, Fault, Foreign, Server, Site};
use lock_runtime::{LockErrorKind, backend::Capabilities};

use super::redis::{Node, RedisSite, Servers, lock, user_of_any_prefix};
use crate::support::{
    PATIENCE,
    proxy::{Proxy, Upstream},
    redis_cluster::{RedisCluster, Setup, move_slots},
    repeated::Repeated,
    resp::Value,
};

pub const STORES: &[&dyn lock_conformance::Store] = &[&Store { name: "redis_cluster" }];
pub const NEEDS: &[(&str, &str)] = &[("redis-server", "redis-server")];

inventory::submit!(super::File { is_compiled_in: cfg!(feature = "redis"), is_large: false, stores: STORES });

struct Store {
    name: &'static str,
}

/// Parts of the names of locks that a case expects to find by a scan, which may miss a lock while its slot is moved.
const SCANNED: &[&str] = &[":user:", "scanned:"];

/// When the place of the last primary that was killed had been taken; written meanwhile.
static REPLACED: RwLock<Option<Instant>> = RwLock::new(None);

/// The servers of all cases that do not hurt them, and what moves their slots.
static SHARED: Mutex<Option<(Repeated, Arc<RedisCluster>)>> = Mutex::new(None);

impl lock_conformance::Store for Store {
    fn name(&self) -> &'static str {
        self.name
    }

    fn needs(&self) -> &'static [(&'static str, &'static str)] {
        NEEDS
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new().shared_between_processes().fair().telling_of_waiters().showing_locks().revoking()
    }

    fn has_connections(&self) -> bool {
        true
    }

    fn offers(&self, fault: Fault) -> bool {
        // The connections that ask for the table of slots would count in a limit of connections.
        let is_foreign = matches!(fault, Fault::RecordsLocked | Fault::Unnotified | Fault::OneConnection);
        !(fault.is_of_a_minority() || is_foreign)
    }

    fn has_foreign_clients(&self) -> bool {
        true
    }

    fn shares_calls(&self) -> bool {
        true
    }

    fn has_passwords(&self) -> bool {
        true
    }

    fn calls_of_a_refused_attempt(&self) -> Option<u64> {
        Some(1)
    }

    fn least_lease(&self) -> Duration {
        if super::with_failovers() { Duration::from_secs(4) } else { Duration::ZERO }
    }

    fn lost_a_server_since(&self, began: Instant) -> bool {
        REPLACED.read().unwrap_or_else(PoisonError::into_inner).is_some_and(|replaced| replaced > began)
    }

    /// `redis` has the same scripts. How a lock's server is found differs.
    fn groups_of_another(&self) -> &'static [&'static str] {
        super::ALL_BUT_THE_CONNECTIONS
    }

    fn site(&self, server: Server) -> Box<dyn Site> {
        let user = user_of_any_prefix() + " " + &further_rights();
        let settings: Vec<&str> =
            ["--maxmemory-policy", "noeviction"].into_iter().chain(user.split(' ')).collect();
        if server != Server::Shared {
            let with_clock = server == Server::OwnWithClock;
            let cluster = RedisCluster::start(Setup {
                primaries: 1,
                with_clock,
                settings: &settings,
                ..Setup::default()
            });
            let (one, port) = (Arc::clone(&cluster.members[0].server), cluster.members[0].port);
            let proxy = Proxy::start(Upstream::Unix(lock(&one).socket().into()));
            let node = Node { proxy: Some(proxy), ..Node::of(Servers::One(one)) };
            return Box::new(ClusterSite { servers: RedisSite { node, grouped: false }, port });
        }
        let cluster = {
            let mut shared = lock(&SHARED);
            let (_, cluster) = shared.get_or_insert_with(|| {
                let with_replicas = super::with_failovers();
                let setup = Setup { with_replicas, settings: &settings, ..Setup::default() };
                let cluster = Arc::new(RedisCluster::start(setup));
                let (period, pause) = (Duration::from_millis(250), Duration::from_millis(20));
                (move_slots(Arc::clone(&cluster), period, pause, SCANNED, kill), cluster)
            });
            Arc::clone(cluster)
        };
        let port = cluster.members[0].port;
        let node = Node::of(Servers::Several(cluster));
        Box::new(ClusterSite { servers: RedisSite { node, grouped: false }, port })
    }

    fn bad_urls(&self) -> Vec<(String, LockErrorKind)> {
        let bad = |rest: &str| (format!("redis-cluster:{rest}"), LockErrorKind::InvalidOptions);
        vec![
            bad(""),
            bad("//"),
            bad(&format!("//user:{CANARY}@")),
            bad(&format!("//user:{CANARY}@host:99999")),
            bad(&format!("//user:{CANARY}@host/1")),
            bad(&format!("//user:{CANARY}@host,,host")),
            bad(&format!("//user:{CANARY}@host?addresses=a:1")),
            bad(&format!("//user:{CANARY}@host?unknown=1")),
            // Understood, but there is no server.
            (format!("redis-cluster://user:{CANARY}@127.0.0.1:1"), LockErrorKind::Backend),
            (format!("redis-cluster://user:{CANARY}@host.invalid"), LockErrorKind::Backend),
        ]
    }

    fn finish(&self) {
        *lock(&SHARED) = None;
    }
}

/// Kills a primary that has a replica, and waits until that one has taken its place.
fn kill(cluster: &RedisCluster) {
    let mut replaced = REPLACED.write().unwrap_or_else(PoisonError::into_inner);
    if cluster.replace_a_dead_primary() {
        *replaced = Some(Instant::now());
    }
}

/// What the documentation of the cluster adds to the user of `redis:`.
fn further_rights() -> String {
    let page = include_str!("../../lock-runtime/src/backend/stores/redis/cluster/docs.md");
    let (_, rest) = page.split_once("ACL SETUSER locks ").expect("the page has the rights");
    let (rights, _) = rest.split_once("```").expect("they end with the block");
    rights.split_whitespace().collect::<Vec<_>>().join(" ")
}

struct ClusterSite {
    /// All servers of the shared cluster, or the only one of a cluster that is hurt.
    servers: RedisSite,
    /// The port of a server, which a client behind the proxy cannot reach.
    port: u16,
}

impl ClusterSite {
    fn url_with(&self, credentials: &str) -> String {
        match &self.servers.node.proxy {
            Some(proxy) => {
                let at = proxy.address();
                format!("redis-cluster://{credentials}{at}?addresses={}:{}={at}", at.ip(), self.port)
            }
            None => self.url_past_faults_with(credentials),
        }
    }

    /// Waits until the server takes calls: for two seconds after its start, it does not.
    fn takes_calls(&self) {
        let end = Instant::now() + PATIENCE;
        let is_up = || matches!(self.servers.node.command(&["CLUSTER", "INFO"]), Value::Text(info) if info.contains("cluster_state:ok"));
        while !is_up() {
            assert!(Instant::now() < end, "the server takes no calls");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn url_past_faults_with(&self, credentials: &str) -> String {
        format!("redis-cluster://{credentials}127.0.0.1:{}", self.port)
    }
}

impl Site for ClusterSite {
    fn url(&self) -> String {
        self.url_with("locks:password@")
    }

    fn url_past_faults(&self) -> String {
        self.url_past_faults_with("locks:password@")
    }

    fn url_with_password(&self, password: &str) -> String {
        self.servers.node.command(&["CONFIG", "SET", "requirepass", CANARY]);
        self.url_with(&format!(":{password}@"))
    }

    fn left(&self, mark: &str) -> Vec<String> {
        self.servers.left(mark)
    }

    fn places(&self, key: &str) -> usize {
        self.servers.places(key)
    }

    fn lose(&self, key: &str) -> bool {
        self.servers.lose(key)
    }

    fn spoil(&self, key: &str) {
        self.servers.spoil(key);
    }

    fn hurt(&self, fault: Fault) {
        self.servers.hurt(fault);
        if fault == Fault::RestartedWithItsData {
            self.takes_calls();
        }
    }

    fn heal(&self) {
        self.servers.heal();
        self.takes_calls();
    }

    fn lost_an_answer(&self) -> bool {
        self.servers.lost_an_answer()
    }

    fn foreign(&self) -> Option<&dyn Foreign> {
        self.servers.foreign()
    }

    fn calls(&self) -> u64 {
        self.servers.calls()
    }

    fn connections(&self) -> u64 {
        self.servers.connections()
    }
}
