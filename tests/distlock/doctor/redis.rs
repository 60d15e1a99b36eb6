//! Faults of a single Redis server.

use std::time::Duration;

use lock_conformance::{
    CANARY, Store,
    support::{
        proxy::{Flow, Proxy, Upstream, Way},
        redis_cluster::{self, RedisCluster},
        redis_sentinel::{self, RedisSet, Translated},
        redis_server::RedisServer,
        resp::Value,
    },
};

use super::{diagnosis, doctor};
use crate::command::Named;

pub const TESTS: &[Named] = &[
    ("the_doctor_finds_nothing_on_a_good_redis", nothing),
    ("the_doctor_finds_a_redis_that_evicts", eviction),
    ("the_doctor_finds_a_redis_without_memory", memory),
    ("the_doctor_finds_a_redis_that_forgets", persistence),
    ("the_doctor_finds_a_replica", replica),
    ("the_doctor_finds_a_primary_that_writes_alone", replicas),
    ("the_doctor_finds_a_missing_right", rights),
    ("the_doctor_says_what_it_may_not_read", unread),
    ("the_doctor_finds_a_cluster_or_a_sentinel_under_the_wrong_scheme", topology),
    ("the_doctor_finds_a_redis_that_is_too_old", version),
    ("the_doctor_finds_a_clock_that_is_wrong", clock),
    ("the_doctor_finds_round_trips_that_are_too_long", round_trips),
    ("the_doctor_ends_like_other_commands_without_a_server", unreachable),
    ("the_doctor_ignores_what_is_known", ignored),
    ("the_doctor_shows_no_password", secrets),
];

pub fn url(scheme: &str, server: &RedisServer, rest: &str) -> String {
    format!("{scheme}+unix://{}{rest}", server.socket().display())
}

fn nothing(_: &'static dyn Store) {
    let server = RedisServer::start_durable(&["--maxmemory", "1gb", "--maxmemory-policy", "noeviction"]);
    for scheme in ["redis", "redisson"] {
        let good = diagnosis(&url(scheme, &server, ""), "");
        let [shown] = &good.expect(&[]).servers[..] else { panic!("one server: {:?}", good.servers) };
        for part in [
            "\"role\":\"primary\"",
            "\"appendonly\":\"yes\"",
            "\"appendfsync\":\"always\"",
            "\"version\":\"redis ",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains("null"), "{shown}");
    }
    let in_words = doctor(&url("redis", &server, ""), "");
    assert_eq!((in_words.code, in_words.err.as_str()), (0, ""));
    for line in [
        "tried  a lock was acquired",
        "a release by another client was refused",
        "was handed over",
        "nothing found",
    ] {
        assert!(in_words.out.contains(line), "{line}: {}", in_words.out);
    }
    let Value::Array(keys) = server.command(&["KEYS", "*doctor*"]) else { panic!("keys") };
    assert!(
        keys.iter().all(|key| format!("{key:?}").contains("fence")),
        "nothing is left but fences: {keys:?}"
    );
}

fn eviction(_: &'static dyn Store) {
    let server = RedisServer::start_durable(&["--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"]);
    for scheme in ["redis", "redisson"] {
        let found = diagnosis(&url(scheme, &server, ""), "");
        found.expect(&["danger eviction"]).say("allkeys-lru").say("`maxmemory-policy noeviction`");
    }
    // What the setting `strict` refuses is the same.
    diagnosis(&url("redis", &server, "?strict=true"), "").expect(&["danger eviction"]);
}

fn memory(_: &'static dyn Store) {
    let server = RedisServer::start_durable(&["--maxmemory-policy", "noeviction"]);
    // Far more than the clients of a moment take.
    server.command(&["SETRANGE", "ballast", "60000000", "x"]);
    let Value::Text(info) = server.command(&["INFO", "memory"]) else { panic!("INFO is a text") };
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("it is there");
    let used: u64 = used.trim().parse().unwrap();
    let limit = |percent: u64| {
        let limit = (used * 100 / percent).to_string();
        assert_eq!(server.command(&["CONFIG", "SET", "maxmemory", &limit]), Value::Text("OK".into()));
    };
    limit(80);
    diagnosis(&url("redis", &server, ""), "").expect(&[]);
    limit(94);
    diagnosis(&url("redis", &server, ""), "").expect(&["warning memory"]).say("% of its `maxmemory`");
    limit(110);
    diagnosis(&url("redis", &server, ""), "").expect(&["danger memory"]);
}

fn persistence(_: &'static dyn Store) {
    let server = RedisServer::start(&[]);
    diagnosis(&url("redis", &server, ""), "").expect(&["warning persistence"]).say("`appendonly yes`");
    diagnosis(&url("redisson", &server, ""), "").expect(&["warning persistence"]);
    // Redisson's counter of fencing tokens is forgotten, too.
    diagnosis(&url("redisson", &server, "?fenced=true"), "")
        .expect(&["danger persistence"])
        .say("begin at 1");
    server.command(&["CONFIG", "SET", "save", "3600 1"]);
    diagnosis(&url("redis", &server, ""), "").expect(&[]);
}

fn replica(_: &'static dyn Store) {
    let server = RedisServer::start_durable(&["--replicaof", "127.0.0.1", "1"]);
    for scheme in ["redis", "redisson"] {
        diagnosis(&url(scheme, &server, ""), "").expect(&["danger read-only"]).say("replica");
    }
}

fn replicas(_: &'static dyn Store) {
    let set = RedisSet::start(redis_sentinel::Setup {
        replicas: 1,
        servers: &["--save", "3600 1"],
        ..redis_sentinel::Setup::default()
    });
    let url = url("redis", &set.servers[0].server, "");
    diagnosis(&url, "").expect(&["warning replicas"]).say("`min-replicas-to-write 1`");
    diagnosis(&format!("{url}?min_replicas=1"), "").expect(&[]);
    set.servers[0].server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    diagnosis(&url, "").expect(&[]);
}

/// The user of the page of a store, with the right to see the settings.
pub fn published(page: &'static str) -> Vec<&'static str> {
    let (_, rest) = page.split_once("ACL SETUSER ").expect("the page has the user");
    let user = rest.split_once("```").expect("it ends with the block").0.split_whitespace();
    user.chain(["+config|get"]).collect()
}

pub fn start_with_user(user: &[&str]) -> RedisServer {
    RedisServer::start_durable(&[&["--user"], user].concat())
}

fn rights(_: &'static dyn Store) {
    let page = include_str!("../../../lock-runtime/src/backend/stores/redis/docs.md");
    for (right, without, remedy) in [
        ("+hset", "-hset", "+hset"),
        ("+time", "-time", "+time"),
        ("+publish", "-publish", "+publish"),
        ("&lock:*", "&other:*", "&lock:*"),
        ("~lock:*", "~other:*", "~lock:*"),
        ("+evalsha", "-evalsha", "evalsha"),
        ("+script|load", "-script", "script|load"),
        ("+subscribe", "-subscribe", "subscribe"),
    ] {
        let mut user = published(page);
        *user.iter_mut().find(|word| **word == right).expect(right) = without;
        let server = start_with_user(&user);
        let found = diagnosis(&url("redis", &server, "?user=locks&pass=password"), "");
        found.expect(&["danger rights"]).say(remedy);
    }
    let page = include_str!("../../../lock-runtime/src/backend/stores/redisson/docs.md");
    for (right, without) in [("+time", "-time"), ("+hexists", "-hexists"), ("+script|load", "-script")] {
        let mut user = published(page);
        *user.iter_mut().find(|word| **word == right).expect(right) = without;
        // The page's user has the prefix `user:`.
        let server = start_with_user(&user);
        let found = diagnosis(&url("redisson", &server, "?user=locks&pass=password"), "--prefix user:");
        found.expect(&["danger rights"]);
    }
}

fn unread(_: &'static dyn Store) {
    let page = include_str!("../../../lock-runtime/src/backend/stores/redis/docs.md");
    let user: Vec<_> = published(page).into_iter().filter(|right| *right != "+config|get").collect();
    let server = start_with_user(&user);
    let found = diagnosis(&url("redis", &server, "?user=locks&pass=password"), "");
    found.expect(&["warning unread"]).say("+config|get");
    let user: Vec<_> = published(page).into_iter().filter(|right| *right != "+info").collect();
    let server = start_with_user(&user);
    let found = diagnosis(&url("redis", &server, "?user=locks&pass=password"), "");
    found.expect(&["warning unread"]).say("+info");
}

fn topology(_: &'static dyn Store) {
    let cluster =
        RedisCluster::start(redis_cluster::Setup { primaries: 1, ..redis_cluster::Setup::default() });
    let url_of = |port: u16| format!("redis://127.0.0.1:{port}");
    diagnosis(&url_of(cluster.members[0].port), "").expect(&["danger topology"]).say("redis-cluster://");
    let set = RedisSet::start(redis_sentinel::Setup { replicas: 0, ..redis_sentinel::Setup::default() });
    diagnosis(&url_of(set.sentinels[0].port), "").expect(&["danger topology"]).say("redis-sentinel://");
}

fn version(_: &'static dyn Store) {
    let set = RedisSet::start(redis_sentinel::Setup { replicas: 0, ..redis_sentinel::Setup::default() });
    let Value::Text(info) = set.servers[0].server.command(&["INFO", "server"]) else {
        panic!("INFO is a text")
    };
    let version =
        info.lines().find_map(|line| line.strip_prefix("redis_version:")).expect("it is there").trim();
    let old = format!("5.0.{:0<1$}", 9, version.len() - 4);
    let translated = Translated::start(set.servers[0].port, version, &old);
    let found = diagnosis(&format!("redis://127.0.0.1:{}", translated.port()), "");
    found.expect(&["danger version"]).say(&old).say("6.2 or later");
}

fn clock(_: &'static dyn Store) {
    let server = RedisServer::start_durable_with_clock(&[]);
    let clock = server.clock().expect("it has one");
    diagnosis(&url("redis", &server, ""), "").expect(&[]);
    clock.set_forward(Duration::from_secs(40));
    diagnosis(&url("redis", &server, ""), "")
        .expect(&["warning clock"])
        .say("s ahead of the clock of this machine");
    clock.set_back(Duration::from_secs(40));
    diagnosis(&url("redisson", &server, ""), "")
        .expect(&["warning clock"])
        .say("s behind the clock of this machine");
}

fn round_trips(_: &'static dyn Store) {
    let server = RedisServer::start_durable(&[]);
    let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
    let url = format!("redis://{}", proxy.address());
    proxy.set(Way::ToClient, Flow::Delay(Duration::from_millis(300)));
    let found = diagnosis(&url, "--ttl 1s");
    assert!(found.found().contains(&"danger round-trips".to_owned()), "{:?}", found.findings);
    // The trial may fail as well, but a slow store is no store without exclusion.
    assert!(!found.found().contains(&"danger exclusion".to_owned()), "{:?}", found.findings);
    assert_eq!(found.code, 116);
    found.say("a `ttl` of at least");
    // As in a distant region.
    proxy.set(Way::ToClient, Flow::Delay(Duration::from_millis(50)));
    diagnosis(&url, "--ttl 30s").expect(&[]);
}

fn unreachable(_: &'static dyn Store) {
    let away = doctor("redis://127.0.0.1:1", "");
    assert_eq!((away.code, away.out.as_str()), (119, ""));
    assert!(away.err.contains("cannot connect to Redis at 127.0.0.1:1"), "{}", away.err);
    let server = RedisServer::start_durable(&["--requirepass", "secret"]);
    assert_eq!(doctor(&url("redis", &server, ""), "").code, 119);
    assert_eq!(doctor("memory:", "").code, 120);
}

fn ignored(_: &'static dyn Store) {
    let server = RedisServer::start(&["--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"]);
    let url = url("redis", &server, "");
    diagnosis(&url, "").expect(&["danger eviction", "warning persistence"]);
    diagnosis(&url, "--ignore eviction").expect(&["warning persistence"]);
    diagnosis(&url, "--ignore eviction --ignore persistence").expect(&[]);
    let unknown = doctor(&url, "--ignore evictions");
    assert!(unknown.code == 120 && unknown.err.contains("persistence"), "{}", unknown.err);
}

fn secrets(_: &'static dyn Store) {
    let server = RedisServer::start(&[
        "--requirepass",
        CANARY,
        "--maxmemory",
        "1gb",
        "--maxmemory-policy",
        "allkeys-lru",
    ]);
    let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
    for arguments in ["", "--json"] {
        for password in [CANARY.to_owned(), format!("{CANARY}-wrong")] {
            let ended = doctor(&format!("redis://:{password}@{}", proxy.address()), arguments);
            assert_eq!(ended.code, if password == CANARY { 116 } else { 119 }, "{}", ended.err);
            assert!(!(ended.out + &ended.err).contains(CANARY), "{arguments}");
        }
    }
}
