//! `redis:`, one Redis server: once with its defaults, and once with all calls grouped and with a user that has only
//! the permissions the documentation asks for.

use std::{
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use lock_runtime::{
    LockError, LockErrorKind, LockManager,
    backend::{BoxFuture, Capabilities, Redis, redis::GroupCommit},
};

use crate::support::{
    proxy::{Proxy, Upstream},
    redis_cluster::RedisCluster,
    redis_server::RedisServer,
    resp::{self, Value},
};
use lock_conformance::{CANARY, Fault, Foreign, Server, Site};

pub const STORES: &[&dyn lock_conformance::Store] =
    &[&Store { name: "redis", grouped: false }, &Store { name: "redis_grouped", grouped: true }];
pub const NEEDS: &[(&str, &str)] = &[("redis-server", "redis-server")];

inventory::submit!(super::File { is_compiled_in: cfg!(feature = "redis"), is_large: false, stores: STORES });

struct Store {
    name: &'static str,
    /// Whether every call goes with a group, as under load, or hardly any; and by a user with the least permissions.
    grouped: bool,
}

/// The server of all cases that do not hurt it.
static SHARED: Mutex<Option<Arc<Mutex<RedisServer>>>> = Mutex::new(None);

impl lock_conformance::Store for Store {
    fn name(&self) -> &'static str {
        self.name
    }

    fn connect(&self, url: String) -> BoxFuture<'static, Result<LockManager, LockError>> {
        let grouped = self.grouped;
        Box::pin(async move {
            if !grouped {
                return LockManager::connect(&url).await;
            }
            let locks = grouped_at(&url)?;
            locks.ping().await?;
            Ok(locks)
        })
    }

    fn connect_lazy(&self, url: &str) -> Result<LockManager, LockError> {
        if self.grouped { grouped_at(url) } else { LockManager::connect_lazy(url) }
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
        !fault.is_of_a_minority() && !matches!(fault, Fault::RecordsLocked | Fault::Unnotified)
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
        // A group does not return the holder of a lock; the attempt then asks by itself.
        Some(if self.grouped { 2 } else { 1 })
    }

    fn groups_of_another(&self) -> &'static [&'static str] {
        if self.grouped { super::ALL_BUT_THE_SCRIPTS } else { &[] }
    }

    fn site(&self, server: Server) -> Box<dyn Site> {
        if server != Server::Shared {
            let user = user_of_any_prefix();
            let settings: Vec<&str> =
                ["--maxmemory-policy", "noeviction"].into_iter().chain(user.split(' ')).collect();
            return Box::new(RedisSite { node: Node::start(server, &settings), grouped: self.grouped });
        }
        let start = || {
            let user = user_of_any_prefix();
            Arc::new(Mutex::new(RedisServer::start(&user.split(' ').collect::<Vec<_>>())))
        };
        let server = Arc::clone(lock(&SHARED).get_or_insert_with(start));
        Box::new(RedisSite { node: Node::of(Servers::One(server)), grouped: self.grouped })
    }

    fn bad_urls(&self) -> Vec<(String, LockErrorKind)> {
        let bad = |rest: &str| (format!("redis:{rest}"), LockErrorKind::InvalidOptions);
        vec![
            bad(""),
            bad("//"),
            bad(&format!("//user:{CANARY}@")),
            bad(&format!("//user:{CANARY}@host:99999")),
            bad(&format!("//user:{CANARY}@host:port")),
            bad(&format!("//user:{CANARY}@host/not-a-number")),
            bad(&format!("//user:{CANARY}@host/-1")),
            bad(&format!("//user:{CANARY}@host?unknown=1")),
            bad(&format!("//user:{CANARY}@[::1")),
            ("redis+unix:".into(), LockErrorKind::InvalidOptions),
            (format!("redis+unix:///nowhere?password={CANARY}&unknown=1"), LockErrorKind::InvalidOptions),
            // Understood, but there is no server.
            (format!("redis://user:{CANARY}@127.0.0.1:1"), LockErrorKind::Backend),
            (format!("redis://user:{CANARY}@host.invalid"), LockErrorKind::Backend),
            ("redis+unix:///nowhere".into(), LockErrorKind::Backend),
        ]
    }

    fn finish(&self) {
        *lock(&SHARED) = None;
    }
}

/// A client all of whose calls share round trips.
fn grouped_at(url: &str) -> Result<LockManager, LockError> {
    Ok(LockManager::new(Redis::with_group_commit(url, GroupCommit::Always)?))
}

/// The published user, as a setting of a server, for locks under any prefix.
pub(super) fn user_of_any_prefix() -> String {
    published_user().replace("~lock:*", "~*").replace("&lock:*", "&*")
}

/// The user of the documentation's `ACL SETUSER`, word for word, with the rights that a scan needs, as a setting of a
/// server.
fn published_user() -> String {
    let page = include_str!("../../lock-runtime/src/backend/stores/redis/docs.md");
    let blocks = page.split("ACL SETUSER locks ").skip(1);
    let users = blocks.map(|rest| rest.split_once("```").expect("it ends with the block").0);
    "--user locks ".to_owned() + &users.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

pub(super) struct RedisSite {
    pub(super) node: Node,
    pub(super) grouped: bool,
}

/// Where the keys are.
pub(super) enum Servers {
    /// On one server, which a case may hurt.
    One(Arc<Mutex<RedisServer>>),
    /// On one server now and on another one later.
    Several(Arc<dyn Several>),
}

/// Servers among which keys move.
pub(super) trait Several: Send + Sync {
    /// Runs a command at the server that has the key in it.
    fn command(&self, words: &[&str]) -> Value;

    /// The sockets of all servers that have keys now.
    fn sockets(&self) -> Vec<PathBuf>;
}

impl Several for RedisCluster {
    fn command(&self, words: &[&str]) -> Value {
        self.command(words)
    }

    fn sockets(&self) -> Vec<PathBuf> {
        self.primaries().iter().map(|one| one.server().socket().into()).collect()
    }
}

/// A server or several, and how the one can be hurt.
pub(super) struct Node {
    pub(super) servers: Servers,
    /// Between the clients and a server that may be hurt.
    pub(super) proxy: Option<Proxy>,
    /// The connection of an operator, while the server allows one more.
    pub(super) operator: Mutex<Option<UnixStream>>,
}

impl Node {
    /// A server of one case.
    pub(super) fn start(server: Server, settings: &[&str]) -> Self {
        Self::behind_a_proxy(match server {
            Server::OwnWithClock => RedisServer::start_with_clock(settings),
            Server::Own | Server::Shared => RedisServer::start(settings),
        })
    }

    pub(super) fn behind_a_proxy(server: RedisServer) -> Self {
        let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
        Self { proxy: Some(proxy), ..Self::of(Servers::One(Arc::new(Mutex::new(server)))) }
    }

    /// Servers that no case hurts.
    pub(super) fn of(servers: Servers) -> Self {
        Self { servers, proxy: None, operator: Mutex::default() }
    }

    /// The only server.
    pub(super) fn server(&self) -> MutexGuard<'_, RedisServer> {
        match &self.servers {
            Servers::One(server) => lock(server),
            Servers::Several(_) => unreachable!("a case that hurts its server has one of its own"),
        }
    }

    /// Runs a command at the server that has the key in it.
    pub(super) fn command(&self, words: &[&str]) -> Value {
        match &self.servers {
            Servers::One(server) => lock(server).command(words),
            Servers::Several(servers) => servers.command(words),
        }
    }

    /// The sockets of all servers with keys.
    fn sockets(&self) -> Vec<PathBuf> {
        match &self.servers {
            Servers::One(server) => vec![lock(server).socket().into()],
            Servers::Several(servers) => servers.sockets(),
        }
    }

    pub(super) fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().expect("a case that hurts its server has one of its own")
    }

    pub(super) fn url_past_faults(&self) -> String {
        format!("redis+unix://{}", self.server().socket().display())
    }

    pub(super) fn hurt(&self, fault: Fault) {
        match fault {
            Fault::Killed => self.server().kill(),
            Fault::Paused => self.server().pause(),
            Fault::DataLost => {
                self.command(&["FLUSHALL"]);
            }
            Fault::Restarted => self.server().restart(),
            Fault::ForgetsCaches => {
                self.command(&["SCRIPT", "FLUSH"]);
                self.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            }
            Fault::RestartedWithItsData => {
                let mut server = self.server();
                server.persist();
                server.restart();
            }
            Fault::ClockForward(by) => self.server().clock().expect("asked for").set_forward(by),
            Fault::ClockBack(by) => self.server().clock().expect("asked for").set_back(by),
            Fault::Full => {
                self.command(&["CONFIG", "SET", "maxmemory", "1"]);
            }
            Fault::OneConnection => {
                let operator = UnixStream::connect(self.server().socket()).expect("the server is there");
                allow(&operator, "2");
                *lock(&self.operator) = Some(operator);
            }
            fault => super::hurt_network(self.proxy(), fault),
        }
    }

    pub(super) fn heal(&self) {
        if let Some(operator) = lock(&self.operator).take() {
            allow(&operator, "10000");
        }
        self.proxy().heal();
        let mut server = self.server();
        server.bring_back();
        if let Some(clock) = server.clock() {
            clock.set_right();
        }
        drop(server);
        self.command(&["CONFIG", "SET", "maxmemory", "0"]);
    }
}

/// Allows this number of connections, including the operator's.
fn allow(operator: &UnixStream, connections: &str) {
    let answer = resp::command_over(operator, &["CONFIG", "SET", "maxclients", connections]);
    assert_eq!(answer.expect("the server answers"), Value::Text("OK".into()));
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The names in the store, as published.
pub(super) fn holder(key: &str) -> String {
    format!("lock:{key}")
}

fn queue(key: &str) -> String {
    // A name with a hash tag of its own keeps it.
    if key.contains('{') { format!("lock:{key}:~1:queue") } else { format!("lock:{{lock:{key}}}:~1:queue") }
}

impl Site for RedisSite {
    fn url(&self) -> String {
        match (&self.node.proxy, self.grouped) {
            (Some(proxy), false) => format!("redis://{}", proxy.address()),
            (Some(proxy), true) => format!("redis://locks:password@{}", proxy.address()),
            (None, _) => self.url_past_faults(),
        }
    }

    fn url_past_faults(&self) -> String {
        let socket = self.node.url_past_faults();
        if self.grouped { socket + "?user=locks&pass=password" } else { socket }
    }

    fn url_with_password(&self, password: &str) -> String {
        self.node.command(&["CONFIG", "SET", "requirepass", CANARY]);
        format!("redis://:{password}@{}", self.node.proxy().address())
    }

    fn left(&self, mark: &str) -> Vec<String> {
        let mut left = Vec::new();
        for socket in self.node.sockets() {
            let mut cursor = "0".to_owned();
            loop {
                let pattern = format!("*{mark}*");
                let scan = ["SCAN", &cursor, "MATCH", &pattern, "COUNT", "1000"];
                let Ok(Value::Array(page)) = resp::command(&socket, &scan) else {
                    panic!("SCAN answers with an array")
                };
                let [Value::Text(next), keys] = &page[..] else { panic!("a cursor and keys, not {page:?}") };
                left.extend(keys.clone().texts());
                if next == "0" {
                    break;
                }
                cursor.clone_from(next);
            }
        }
        left
    }

    fn places(&self, key: &str) -> usize {
        usize::try_from(self.node.command(&["LLEN", &queue(key)]).int()).unwrap()
    }

    fn lose(&self, key: &str) -> bool {
        self.node.command(&["DEL", &holder(key)]).int() == 1
    }

    fn spoil(&self, key: &str) {
        self.node.command(&["DEL", &holder(key)]);
        self.node.command(&["LPUSH", &holder(key), "no lock"]);
    }

    fn hurt(&self, fault: Fault) {
        self.node.hurt(fault);
    }

    fn heal(&self) {
        self.node.heal();
    }

    fn lost_an_answer(&self) -> bool {
        !self.node.proxy().keep_answers()
    }

    fn foreign(&self) -> Option<&dyn Foreign> {
        Some(self)
    }

    fn calls(&self) -> u64 {
        let Value::Text(stats) = self.node.command(&["INFO", "commandstats"]) else {
            panic!("INFO is a text")
        };
        // Every call about locks is a script; commands inside scripts are counted separately.
        stats
            .lines()
            .filter_map(|line| line.strip_prefix("cmdstat_evalsha:calls="))
            .filter_map(|line| line.split(',').next()?.parse::<u64>().ok())
            .sum()
    }

    fn connections(&self) -> u64 {
        self.node.proxy().accepted()
    }
}

/// The usual recipe of other clients: `SET key token NX PX ttl`, and compare-and-delete.
impl Foreign for RedisSite {
    fn take(&self, key: &str, ttl: Duration) -> Option<String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let owner = format!("foreign-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let ttl = ttl.as_millis().to_string();
        match self.node.command(&["SET", &holder(key), &owner, "NX", "PX", &ttl]) {
            Value::Nil => None,
            Value::Text(ok) if ok == "OK" => Some(owner),
            other => panic!("SET answered {other:?}"),
        }
    }

    fn free(&self, key: &str, owner: &str) -> bool {
        const COMPARE_AND_DELETE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
        self.node.command(&["EVAL", COMPARE_AND_DELETE, "1", &holder(key), owner]).int() == 1
    }

    fn holder(&self, key: &str) -> Option<(String, Duration)> {
        let Value::Text(owner) = self.node.command(&["GET", &holder(key)]) else { return None };
        let left = self.node.command(&["PTTL", &holder(key)]).int();
        Some((owner, Duration::from_millis(u64::try_from(left).expect("a holder's key has an end"))))
    }

    fn take_for_ever(&self, key: &str) -> String {
        let owner = "for-ever";
        assert_eq!(self.node.command(&["SET", &holder(key), owner, "NX"]), Value::Text("OK".into()));
        owner.into()
    }

    fn misuse(&self, key: &str) {
        assert_eq!(self.node.command(&["LPUSH", &holder(key), "no lock"]).int(), 1);
    }

    fn clear(&self, key: &str) {
        assert_eq!(self.node.command(&["DEL", &holder(key)]).int(), 1);
    }
}
