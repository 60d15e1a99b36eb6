//! `redlock:`, three Redis servers of which a majority decides. Here each fault hits all of them; what a minority does is
//! tested in `tests/servers`.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use lock_conformance::{CANARY, Fault, Foreign, Server, Site};
use lock_runtime::{
    LockError, LockErrorKind, LockManager,
    backend::{BoxFuture, Capabilities, Redlock},
};

use super::redis::{Node, Servers, holder, lock};
use crate::support::{redis_server::RedisServer, resp::Value};

pub const STORES: &[&dyn lock_conformance::Store] = &[&Store { name: "redlock", nodes: 3 }];
/// Five servers for each case are more than a machine of two cores runs beside everything else.
const LARGE: &[&dyn lock_conformance::Store] = &[&Store { name: "redlock_five", nodes: 5 }];
pub const NEEDS: &[(&str, &str)] = &[("redis-server", "redis-server")];

inventory::submit!(super::File { is_compiled_in: cfg!(feature = "redis"), is_large: false, stores: STORES });
inventory::submit!(super::File { is_compiled_in: cfg!(feature = "redis"), is_large: true, stores: LARGE });

struct Store {
    name: &'static str,
    nodes: usize,
}

/// The servers of all cases that do not hurt them, by their number.
static SHARED: Mutex<Vec<Arc<Mutex<RedisServer>>>> = Mutex::new(Vec::new());

/// The URLs of a store's nodes in one text.
const BETWEEN: char = '|';

impl Store {
    fn open(urls: &str) -> Result<LockManager, LockError> {
        // The servers are new, say that they forget nothing, and do so only where a case makes them.
        Ok(LockManager::new(Redlock::new(urls.split(BETWEEN))?.durable()))
    }
}

impl lock_conformance::Store for Store {
    fn name(&self) -> &'static str {
        self.name
    }

    fn connect(&self, url: String) -> BoxFuture<'static, Result<LockManager, LockError>> {
        Box::pin(async move {
            if url.starts_with("redlock:") {
                return LockManager::connect(&url).await;
            }
            let locks = Self::open(&url)?;
            locks.ping().await?;
            Ok(locks)
        })
    }

    fn connect_lazy(&self, url: &str) -> Result<LockManager, LockError> {
        if url.starts_with("redlock:") { LockManager::connect_lazy(url) } else { Self::open(url) }
    }

    fn needs(&self) -> &'static [(&'static str, &'static str)] {
        NEEDS
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new().shared_between_processes().telling_of_waiters().showing_locks().revoking()
    }

    fn has_connections(&self) -> bool {
        true
    }

    fn offers(&self, fault: Fault) -> bool {
        !matches!(fault, Fault::RecordsLocked | Fault::Unnotified)
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

    fn poll_pause(&self) -> Option<Duration> {
        Some(Duration::from_millis(300))
    }

    fn groups_of_another(&self) -> &'static [&'static str] {
        super::ABOVE_THE_STORES
    }

    fn site(&self, server: Server) -> Box<dyn Site> {
        if server != Server::Shared {
            let settings = ["--maxmemory-policy", "noeviction"];
            let node = |_| {
                Node::behind_a_proxy(match server {
                    Server::OwnWithClock => RedisServer::start_durable_with_clock(&settings),
                    Server::Own | Server::Shared => RedisServer::start_durable(&settings),
                })
            };
            return Box::new(RedlockSite { nodes: (0..self.nodes).map(node).collect() });
        }
        let mut shared = lock(&SHARED);
        while shared.len() < self.nodes {
            shared.push(Arc::new(Mutex::new(RedisServer::start_durable(&[]))));
        }
        let nodes = shared[..self.nodes].iter().map(|server| Node::of(Servers::One(Arc::clone(server))));
        Box::new(RedlockSite { nodes: nodes.collect() })
    }

    fn bad_urls(&self) -> Vec<(String, LockErrorKind)> {
        let bad = |rest: &str| (format!("redlock:{rest}"), LockErrorKind::InvalidOptions);
        vec![
            bad(""),
            bad("//"),
            bad(&format!("//user:{CANARY}@a,b")),
            bad(&format!("//user:{CANARY}@a,b,b")),
            bad(&format!("//user:{CANARY}@a,b,c,d")),
            bad(&format!("//user:{CANARY}@a,b,c:port")),
            bad(&format!("//user:{CANARY}@a,b,c?unknown=1")),
            // Understood, but there are no servers.
            (format!("redlock://user:{CANARY}@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"), LockErrorKind::Backend),
        ]
    }

    fn finish(&self) {
        lock(&SHARED).clear();
    }
}

struct RedlockSite {
    nodes: Vec<Node>,
}

impl RedlockSite {
    fn urls(&self, url: impl Fn(&Node) -> String) -> String {
        self.nodes.iter().map(url).collect::<Vec<_>>().join(&BETWEEN.to_string())
    }

    fn majority(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    fn each(&self, hurt: impl Fn(&Node)) {
        self.nodes.iter().for_each(hurt);
    }
}

impl Site for RedlockSite {
    fn url(&self) -> String {
        self.urls(|node| match &node.proxy {
            Some(proxy) => format!("redis://{}", proxy.address()),
            None => node.url_past_faults(),
        })
    }

    fn url_past_faults(&self) -> String {
        self.urls(Node::url_past_faults)
    }

    fn url_with_password(&self, password: &str) -> String {
        self.each(|node| {
            node.command(&["CONFIG", "SET", "requirepass", CANARY]);
        });
        self.urls(|node| format!("redis://:{password}@{}", node.proxy().address()))
    }

    fn left(&self, mark: &str) -> Vec<String> {
        let pattern = format!("*{mark}*");
        let began = Instant::now();
        loop {
            let mut left = BTreeMap::<String, usize>::new();
            for key in self.nodes.iter().flat_map(|node| node.command(&["KEYS", &pattern]).texts()) {
                // The counters of fences stay for a day.
                if !key.ends_with(":~1:fence") {
                    *left.entry(key).or_default() += 1;
                }
            }
            // The last nodes are released a moment after a majority.
            let is_minority = left.values().all(|nodes| *nodes < self.majority());
            if left.is_empty() || !is_minority || began.elapsed() > Duration::from_secs(1) {
                return left.into_keys().collect();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn lose(&self, key: &str) -> bool {
        self.nodes.iter().filter(|node| node.command(&["DEL", &holder(key)]).int() == 1).count() > 0
    }

    fn spoil(&self, key: &str) {
        self.each(|node| {
            node.command(&["DEL", &holder(key)]);
            node.command(&["LPUSH", &holder(key), "no lock"]);
        });
    }

    fn hurt(&self, fault: Fault) {
        let minority = &self.nodes[self.majority()..];
        match fault {
            Fault::MinorityPaused => minority.iter().for_each(|node| node.hurt(Fault::Paused)),
            Fault::MinoritySlow(delay) => minority.iter().for_each(|node| node.hurt(Fault::Slow(delay))),
            fault => self.each(|node| node.hurt(fault)),
        }
    }

    fn heal(&self) {
        self.each(Node::heal);
    }

    fn lost_an_answer(&self) -> bool {
        // Each node is asked once to keep what it has not lost.
        self.nodes.iter().filter(|node| !node.proxy().keep_answers()).count() > 0
    }

    fn foreign(&self) -> Option<&dyn Foreign> {
        Some(self)
    }

    fn connections(&self) -> u64 {
        self.nodes.iter().map(|node| node.proxy().accepted()).sum()
    }
}

/// The recipe of other clients: `SET key token NX PX ttl` and compare-and-delete, on all nodes.
impl Foreign for RedlockSite {
    fn take(&self, key: &str, ttl: Duration) -> Option<String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let owner = format!("foreign-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let ttl = ttl.as_millis().to_string();
        let set = |node: &&Node| {
            node.command(&["SET", &holder(key), &owner, "NX", "PX", &ttl]) == Value::Text("OK".into())
        };
        if self.nodes.iter().filter(set).count() >= self.majority() {
            return Some(owner);
        }
        self.free(key, &owner);
        None
    }

    fn free(&self, key: &str, owner: &str) -> bool {
        const COMPARE_AND_DELETE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
        let free =
            |node: &&Node| node.command(&["EVAL", COMPARE_AND_DELETE, "1", &holder(key), owner]).int() == 1;
        self.nodes.iter().filter(free).count() >= self.majority()
    }

    fn holder(&self, key: &str) -> Option<(String, Duration)> {
        let mut owners = Vec::new();
        for node in &self.nodes {
            if let Value::Text(text) = node.command(&["GET", &holder(key)]) {
                // Behind the owner of this library is what may differ between nodes.
                let owner = match text.strip_prefix("r1x:").and_then(|rest| rest.split(':').next()) {
                    Some(token) => format!("r1x:{token}"),
                    None => text,
                };
                let left = node.command(&["PTTL", &holder(key)]).int();
                // It may have been released meanwhile.
                owners.extend(u64::try_from(left).ok().map(|left| (owner, Duration::from_millis(left))));
            }
        }
        let count = |owner: &str| owners.iter().filter(|(other, _)| other == owner).count();
        owners.iter().find(|(owner, _)| count(owner) >= self.majority()).cloned()
    }

    fn take_for_ever(&self, key: &str) -> String {
        let owner = "for-ever";
        self.each(|node| {
            assert_eq!(node.command(&["SET", &holder(key), owner, "NX"]), Value::Text("OK".into()));
        });
        owner.into()
    }

    fn misuse(&self, key: &str) {
        self.each(|node| assert_eq!(node.command(&["LPUSH", &holder(key), "no lock"]).int(), 1));
    }

    fn clear(&self, key: &str) {
        self.each(|node| assert_eq!(node.command(&["DEL", &holder(key)]).int(), 1));
    }
}
