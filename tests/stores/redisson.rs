//! `redisson:`, one Redis server shared with clients that do as Redisson does: once with its plain lock, by a user that
//! has only the permissions the documentation asks for, and once with its fenced lock.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use lock_conformance::{CANARY, Fault, Foreign, Server, Site};
use lock_runtime::{LockErrorKind, backend::Capabilities};

use super::redis::{Node, Servers, lock};
use crate::support::{java::Java, redis_server::RedisServer};

pub const STORES: &[&dyn lock_conformance::Store] =
    &[&Store { name: "redisson", fenced: false }, &Store { name: "redisson_fenced", fenced: true }];
pub const NEEDS: &[(&str, &str)] = &[("redis-server", "redis-server")];

inventory::submit!(super::File { is_compiled_in: cfg!(feature = "redis"), is_large: false, stores: STORES });

struct Store {
    name: &'static str,
    fenced: bool,
}

/// The server of all cases that do not hurt it.
static SHARED: Mutex<Option<Arc<Mutex<RedisServer>>>> = Mutex::new(None);

impl lock_conformance::Store for Store {
    fn name(&self) -> &'static str {
        self.name
    }

    fn needs(&self) -> &'static [(&'static str, &'static str)] {
        NEEDS
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new()
            .shared_between_processes()
            .telling_of_waiters()
            .with_default_prefix("")
            .showing_locks()
    }

    fn has_connections(&self) -> bool {
        true
    }

    fn offers(&self, fault: Fault) -> bool {
        // Redisson's counter is lost with the other data, and then begins anew.
        let is_loss = matches!(fault, Fault::DataLost | Fault::Restarted);
        let is_foreign = matches!(fault, Fault::RecordsLocked | Fault::Unnotified);
        !(fault.is_of_a_minority() || is_foreign || self.fenced && is_loss)
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

    fn poll_pause(&self) -> Option<Duration> {
        Some(Duration::from_millis(350))
    }

    /// `redlock` has the same rounds and connections.
    fn groups_of_another(&self) -> &'static [&'static str] {
        super::ALL_BUT_THE_SCRIPTS
    }

    fn site(&self, server: Server) -> Box<dyn Site> {
        let user = published_user();
        let settings: Vec<&str> =
            ["--maxmemory-policy", "noeviction"].into_iter().chain(user.split(' ')).collect();
        if server != Server::Shared {
            return Box::new(RedissonSite { node: Node::start(server, &settings), fenced: self.fenced });
        }
        let start = || Arc::new(Mutex::new(RedisServer::start(&settings)));
        let server = Arc::clone(lock(&SHARED).get_or_insert_with(start));
        Box::new(RedissonSite { node: Node::of(Servers::One(server)), fenced: self.fenced })
    }

    fn bad_urls(&self) -> Vec<(String, LockErrorKind)> {
        let bad = |rest: &str| (format!("redisson:{rest}"), LockErrorKind::InvalidOptions);
        vec![
            bad(""),
            bad("//"),
            bad(&format!("//user:{CANARY}@")),
            bad(&format!("//user:{CANARY}@host:99999")),
            bad(&format!("//user:{CANARY}@host/-1")),
            bad(&format!("//user:{CANARY}@host?fenced=maybe")),
            bad(&format!("//user:{CANARY}@host?unknown=1")),
            ("redisson+unix:".into(), LockErrorKind::InvalidOptions),
            // Understood, but there is no server.
            (format!("redisson://user:{CANARY}@127.0.0.1:1"), LockErrorKind::Backend),
            (format!("redisson://user:{CANARY}@host.invalid"), LockErrorKind::Backend),
            ("redisson+unix:///nowhere".into(), LockErrorKind::Backend),
        ]
    }

    fn finish(&self) {
        *lock(&SHARED) = None;
    }
}

/// The user of the documentation's `ACL SETUSER`, word for word, as a setting of a server, for locks of any name, with what
/// an operator needs in addition.
fn published_user() -> String {
    let page = include_str!("../../lock-runtime/src/backend/stores/redisson/docs.md");
    let (_, rest) = page.split_once("ACL SETUSER ").expect("the page has the user");
    let (user, _) = rest.split_once("```").expect("it ends with the block");
    let user = user.replace("~user:*", "~*").replace("{user:*", "*");
    "--user ".to_owned() + &user.split_whitespace().chain(OPERATOR).collect::<Vec<_>>().join(" ")
}

/// As the documentation says.
const OPERATOR: [&str; 3] = ["+hlen", "+hgetall", "+scan"];

struct RedissonSite {
    node: Node,
    fenced: bool,
}

impl RedissonSite {
    fn java<T>(&self, ask: impl FnOnce(&Java<'_>) -> T) -> T {
        ask(&Java::new(&self.node.server()))
    }
}

impl Site for RedissonSite {
    fn url(&self) -> String {
        let fenced = self.fenced;
        match &self.node.proxy {
            Some(proxy) if fenced => format!("redisson://{}?fenced=true", proxy.address()),
            Some(proxy) => format!("redisson://locks:password@{}", proxy.address()),
            None => self.url_past_faults(),
        }
    }

    fn url_past_faults(&self) -> String {
        let socket = self.node.server().socket().display().to_string();
        let settings = if self.fenced { "fenced=true" } else { "user=locks&pass=password" };
        format!("redisson+unix://{socket}?{settings}")
    }

    fn url_with_password(&self, password: &str) -> String {
        self.node.command(&["CONFIG", "SET", "requirepass", CANARY]);
        format!("redisson://:{password}@{}", self.node.proxy().address())
    }

    fn left(&self, mark: &str) -> Vec<String> {
        let mut left = self.node.command(&["KEYS", &format!("*{mark}*")]).texts();
        // The counters of fences stay: two days, and Redisson's forever.
        left.retain(|key| !key.ends_with(":~1:fence") && !key.starts_with("redisson_lock_token:"));
        left
    }

    fn lose(&self, key: &str) -> bool {
        self.node.command(&["DEL", key]).int() == 1
    }

    fn spoil(&self, key: &str) {
        self.node.command(&["DEL", key]);
        self.node.command(&["LPUSH", key, "no lock"]);
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
        self.node.server().calls("evalsha")
    }

    fn connections(&self) -> u64 {
        self.node.proxy().accepted()
    }
}

/// A Java client's threads, each of which holds its lock once.
impl Foreign for RedissonSite {
    fn take(&self, key: &str, ttl: Duration) -> Option<String> {
        static THREAD: AtomicU64 = AtomicU64::new(1);
        let thread = THREAD.fetch_add(1, Ordering::Relaxed);
        self.java(|java| {
            let owner = Java::owner(thread);
            java.acquire(key, ttl, &owner).is_ok().then_some(owner)
        })
    }

    fn free(&self, key: &str, owner: &str) -> bool {
        self.java(|java| java.release(key, owner).is_some())
    }

    fn holder(&self, key: &str) -> Option<(String, Duration)> {
        let mut fields = self.node.command(&["HKEYS", key]).texts();
        // What a client of this library says of itself.
        fields.retain(|field| field != "~1:grant");
        let [owner] = &fields[..] else { return None };
        let left = self.node.command(&["PTTL", key]).int();
        Some((owner.clone(), Duration::from_millis(u64::try_from(left).expect("a hold has an end"))))
    }

    fn take_for_ever(&self, key: &str) -> String {
        let owner = Java::owner(0);
        assert_eq!(self.node.command(&["HSET", key, &owner, "1"]).int(), 1);
        owner
    }

    fn misuse(&self, key: &str) {
        assert_eq!(self.node.command(&["LPUSH", key, "no lock"]).int(), 1);
    }

    fn clear(&self, key: &str) {
        assert_eq!(self.node.command(&["DEL", key]).int(), 1);
        // As `forceUnlock` does.
        self.java(|java| java.announce(key));
    }
}
