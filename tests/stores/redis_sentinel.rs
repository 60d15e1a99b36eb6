//! `redis-sentinel:`, a primary with two replicas and three Sentinels, by users that have only the permissions the
//! documentation asks for. The Sentinels do nothing by themselves: a server that is hurt stays the primary, because a
//! case expects it back, and so that server has no replicas. With `LOCK_TEST_FAILOVERS`, a Sentinel is told now and then to
//! make a replica of the servers that no case hurts the primary. What a failover does to locks is in
//! `tests/servers/redis_sentinel`.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use lock_conformance::{CANARY, Fault, Foreign, Server, Site};
use lock_runtime::{LockErrorKind, backend::Capabilities};

use super::redis::{Node, RedisSite, Servers, Several, lock, user_of_any_prefix};
use crate::support::{
    redis_sentinel::{self, Member, RedisSet, Setup, Translated},
    repeated::Repeated,
    resp::Value,
};

pub const STORES: &[&dyn lock_conformance::Store] = &[&Store { name: "redis_sentinel" }];
pub const NEEDS: &[(&str, &str)] = &[("redis-server", "redis-server")];

inventory::submit!(super::File { is_compiled_in: cfg!(feature = "redis"), is_large: false, stores: STORES });

struct Store {
    name: &'static str,
}

/// The servers of all cases that do not hurt them, and what replaces their primary.
static SHARED: Mutex<Option<(Arc<Shared>, Option<Repeated>)>> = Mutex::new(None);

/// Time between two failovers.
const PERIOD: Duration = Duration::from_secs(10);

/// A set whose primary is replaced while no command of a case is under way.
struct Shared(Mutex<RedisSet>);

impl Shared {
    fn fail_over(&self) {
        lock(&self.0).fail_over_losing_nothing();
    }
}

impl Several for Shared {
    fn command(&self, words: &[&str]) -> Value {
        lock(&self.0).primary().server.command(words)
    }

    fn sockets(&self) -> Vec<PathBuf> {
        vec![lock(&self.0).primary().server.socket().into()]
    }
}

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
        // The connections of replicas and Sentinels would count in a limit of connections.
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

    /// `redis` has the same scripts. How connections are made and replaced differs.
    fn groups_of_another(&self) -> &'static [&'static str] {
        super::ALL_BUT_THE_CONNECTIONS
    }

    /// Each is four processes.
    fn own_servers_at_once(&self) -> usize {
        6
    }

    /// A failover takes up to two seconds, in which no lease is renewed.
    fn least_lease(&self) -> Duration {
        if super::with_failovers() { Duration::from_secs(4) } else { Duration::ZERO }
    }

    fn site(&self, server: Server) -> Box<dyn Site> {
        if server != Server::Shared {
            let mut set = start(0, server == Server::OwnWithClock);
            let Member { server, port } = set.servers.remove(0);
            let node = Node::behind_a_proxy(server);
            let at_proxy = set.sentinels.iter();
            let at_proxy =
                at_proxy.map(|one| Translated::start(one.port, port, node.proxy().address().port()));
            let at_proxy = at_proxy.collect();
            let sentinels = ports_of_sentinels(&set);
            let primary = RedisSite { node, grouped: false };
            return Box::new(SentinelSite { primary, sentinels, at_proxy, _sentinels: Some(set) });
        }
        let mut shared = lock(&SHARED);
        let (set, _) = shared.get_or_insert_with(|| {
            let set = Arc::new(Shared(Mutex::new(start(2, false))));
            let failovers = super::with_failovers().then(|| {
                let set = Arc::clone(&set);
                // The first one after a period, not before the first case.
                Repeated::start(PERIOD, move |turn| {
                    if turn > 0 {
                        set.fail_over();
                    }
                    turn > 0
                })
            });
            (set, failovers)
        });
        let sentinels = ports_of_sentinels(&lock(&set.0));
        let node = Node::of(Servers::Several(Arc::clone(set) as Arc<dyn Several>));
        let primary = RedisSite { node, grouped: false };
        Box::new(SentinelSite { primary, sentinels, at_proxy: Vec::new(), _sentinels: None })
    }

    fn bad_urls(&self) -> Vec<(String, LockErrorKind)> {
        let bad = |rest: &str| (format!("redis-sentinel:{rest}"), LockErrorKind::InvalidOptions);
        vec![
            bad(""),
            bad("//"),
            bad(&format!("//user:{CANARY}@")),
            bad(&format!("//user:{CANARY}@host")),
            bad(&format!("//user:{CANARY}@host:99999/name")),
            bad(&format!("//user:{CANARY}@host/name/0")),
            bad(&format!("//user:{CANARY}@host,host/name")),
            bad(&format!("//user:{CANARY}@host/name?db=-1")),
            bad(&format!("//host/name?sentinel_user={CANARY}")),
            bad(&format!("//host/name?sentinel_password=x&{CANARY}")),
            bad(&format!("//user:{CANARY}@host/name?unknown=1")),
            // Understood, but there is no Sentinel.
            (
                format!("redis-sentinel://user:{CANARY}@127.0.0.1:1/name?sentinel_password={CANARY}"),
                LockErrorKind::Backend,
            ),
            (format!("redis-sentinel://user:{CANARY}@host.invalid/name"), LockErrorKind::Backend),
        ]
    }

    fn finish(&self) {
        *lock(&SHARED) = None;
    }
}

fn ports_of_sentinels(set: &RedisSet) -> Vec<u16> {
    set.sentinels.iter().map(|one| one.port).collect()
}

fn start(replicas: usize, with_clock: bool) -> RedisSet {
    let user = user_of_any_prefix();
    let servers: Vec<&str> = ["--maxmemory-policy", "noeviction", "--min-replicas-to-write", "0"]
        .into_iter()
        .chain(user.split(' '))
        .collect();
    let of_sentinels = user_of_sentinels();
    let sentinels: Vec<&str> = of_sentinels.split(' ').collect();
    RedisSet::start(Setup {
        replicas,
        servers: &servers,
        sentinels: &sentinels,
        with_clock,
        ..Setup::default()
    })
}

/// The user of the documentation's `ACL SETUSER` for the Sentinels, word for word, as a setting of a Sentinel.
fn user_of_sentinels() -> String {
    let page = include_str!("../../lock-runtime/src/backend/stores/redis/sentinel/docs.md");
    let (_, rest) = page.split_once("ACL SETUSER ").expect("the page has the user");
    let (user, _) = rest.split_once("```").expect("it ends with the block");
    "--user ".to_owned() + &user.split_whitespace().collect::<Vec<_>>().join(" ")
}

struct SentinelSite {
    /// The primary, which has a proxy where it is hurt.
    primary: RedisSite,
    /// The ports of the Sentinels.
    sentinels: Vec<u16>,
    /// The Sentinels, which name the proxy.
    at_proxy: Vec<Translated>,
    /// The Sentinels of a primary that is hurt.
    _sentinels: Option<RedisSet>,
}

impl SentinelSite {
    fn url_with(&self, credentials: &str) -> String {
        let rest = "?sentinel_user=watcher&sentinel_password=password";
        if self.at_proxy.is_empty() {
            return self.url_past_faults_with(credentials);
        }
        redis_sentinel::url(self.at_proxy.iter().map(Translated::port), credentials, rest)
    }

    fn url_past_faults_with(&self, credentials: &str) -> String {
        // Long enough for a single attempt, or a release, that meets a failover.
        let limit = if super::with_failovers() { "&response_timeout=3s" } else { "" };
        let rest = format!("?sentinel_user=watcher&sentinel_password=password{limit}");
        redis_sentinel::url(self.sentinels.iter().copied(), credentials, &rest)
    }
}

impl Site for SentinelSite {
    fn url(&self) -> String {
        self.url_with("locks:password@")
    }

    fn url_past_faults(&self) -> String {
        self.url_past_faults_with("locks:password@")
    }

    fn url_with_password(&self, password: &str) -> String {
        self.primary.node.command(&["CONFIG", "SET", "requirepass", CANARY]);
        self.url_with(&format!(":{password}@"))
    }

    fn left(&self, mark: &str) -> Vec<String> {
        self.primary.left(mark)
    }

    fn places(&self, key: &str) -> usize {
        self.primary.places(key)
    }

    fn lose(&self, key: &str) -> bool {
        self.primary.lose(key)
    }

    fn spoil(&self, key: &str) {
        self.primary.spoil(key);
    }

    fn hurt(&self, fault: Fault) {
        self.primary.hurt(fault);
    }

    fn heal(&self) {
        self.primary.heal();
    }

    fn lost_an_answer(&self) -> bool {
        self.primary.lost_an_answer()
    }

    fn foreign(&self) -> Option<&dyn Foreign> {
        self.primary.foreign()
    }

    fn calls(&self) -> u64 {
        self.primary.calls()
    }

    fn connections(&self) -> u64 {
        self.primary.connections()
    }
}
