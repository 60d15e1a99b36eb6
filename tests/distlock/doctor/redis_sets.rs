//! Faults of Redis Sentinels, and of a Redis Cluster.

use std::time::Duration;

use lock_conformance::{
    Store,
    support::{
        redis_cluster::{self, RedisCluster},
        redis_sentinel::{self, NAME, RedisSet},
        resp::Value,
    },
};

use super::diagnosis;
use crate::command::{Named, until};

pub const TESTS: &[Named] = &[
    ("the_doctor_finds_the_faults_of_sentinels", sentinels),
    ("the_doctor_finds_the_faults_of_a_primary_behind_sentinels", primary),
    ("the_doctor_finds_nothing_on_a_good_cluster_and_slots_without_a_server", slots),
    ("the_doctor_finds_the_faults_of_a_cluster_without_replicas", without_replicas),
    ("the_doctor_finds_a_right_that_one_server_of_a_cluster_lacks", rights_of_one),
    ("the_doctor_finds_a_primary_behind_sentinels_whose_clock_is_wrong", clock_behind_sentinels),
    ("the_doctor_finds_a_server_of_a_cluster_whose_clock_is_wrong", clock_in_a_cluster),
];

/// Servers that keep their data, and write only while a replica follows.
const GOOD: &[&str] = &["--save", "3600 1", "--min-replicas-to-write", "1"];
const COUNTED: &str = "min_slaves_good_slaves:1";
const DOWN_AFTER: Duration = Duration::from_secs(15);

fn set(servers: &[&str]) -> RedisSet {
    let set = RedisSet::start(redis_sentinel::Setup {
        replicas: 1,
        servers,
        down_after: DOWN_AFTER,
        ..redis_sentinel::Setup::default()
    });
    if servers == GOOD {
        // A primary counts its replicas once a second.
        until("the replica counts", || set.servers[0].reports(COUNTED));
    }
    set
}

fn sentinels(_: &'static dyn Store) {
    let mut set = set(GOOD);
    let url = set.url("", "");
    let good = diagnosis(&url, "");
    good.expect(&[]);
    assert_eq!(good.servers.len(), 4, "the primary and the Sentinels: {:?}", good.servers);
    let change = |set: &RedisSet, name: &str, value: &str| {
        let changed = set.sentinels[1].server.command(&["SENTINEL", "SET", NAME, name, value]);
        assert_eq!(changed, Value::Text("OK".into()));
    };
    change(&set, "quorum", "4");
    diagnosis(&url, "").expect(&["danger sentinels"]).say("`quorum` is 4");
    change(&set, "quorum", "2");
    diagnosis(&url, "--ttl 20s").expect(&["warning sentinels"]).say("`down-after-milliseconds`");
    set.sentinels[2].server.kill();
    diagnosis(&url, "").expect(&["warning unreachable"]).say("Sentinel");
    let two = redis_sentinel::url(set.sentinels[..2].iter().map(|sentinel| sentinel.port), "", "");
    diagnosis(&two, "").expect(&["warning sentinels"]).say("the URL names 2");
}

fn primary(_: &'static dyn Store) {
    let set = set(&[]);
    let url = set.url("", "");
    diagnosis(&url, "").expect(&["danger persistence", "warning replicas"]).say("its replicas forget them");
    diagnosis(&set.url("", "?min_replicas=1"), "").expect(&["danger persistence"]);
}

fn slots(_: &'static dyn Store) {
    let cluster = RedisCluster::start(redis_cluster::Setup {
        with_replicas: true,
        settings: GOOD,
        node_timeout: DOWN_AFTER,
        ..redis_cluster::Setup::default()
    });
    for primary in cluster.primaries() {
        until("the replica counts", || primary.reports(&["INFO", "replication"], COUNTED));
    }
    let url = format!("redis-cluster://127.0.0.1:{}", cluster.members[0].port);
    let good = diagnosis(&url, "");
    good.expect(&[]);
    assert_eq!(good.servers.len(), 3, "the primaries: {:?}", good.servers);
    diagnosis(&url, "--ttl 20s").expect(&["warning cluster"]).say("`cluster-node-timeout`");
    // The slot of no lock here.
    let slot = "16383";
    let owner = &cluster.members[2];
    assert_eq!(owner.command(&["CLUSTER", "DELSLOTS", slot]), Value::Text("OK".into()));
    diagnosis(&url, "").expect(&["danger cluster"]).say("1 of 16384 hash slots");
}

fn rights_of_one(_: &'static dyn Store) {
    let setup = redis_cluster::Setup { settings: &["--save", "3600 1"], ..redis_cluster::Setup::default() };
    let cluster = RedisCluster::start(setup);
    for (number, member) in cluster.members.iter().enumerate() {
        let keys = if number == 1 { "~other:*" } else { "~lock:*" };
        member.command(&["ACL", "SETUSER", "locks", "on", ">password", keys, "&lock:*", "+@all"]);
    }
    let found = diagnosis(&cluster.url("locks:password@", ""), "--ignore cluster --ignore replicas");
    found.expect(&["danger rights"]).say("~lock:*").say(&cluster.members[1].port.to_string());
}

fn without_replicas(_: &'static dyn Store) {
    let cluster = RedisCluster::start(redis_cluster::Setup {
        primaries: 2,
        settings: &["--save", "3600 1"],
        ..redis_cluster::Setup::default()
    });
    let url = format!("redis-cluster://127.0.0.1:{}", cluster.members[0].port);
    let found = diagnosis(&url, "");
    found.expect(&["warning cluster", "warning replicas"]).say("no replica").say("2 primaries");
    cluster.members[1].server().kill();
    let found = diagnosis(&url, "");
    assert!(found.found().contains(&"danger unreachable".to_owned()), "{:#?}", found.findings);
    assert_eq!(found.code, 116);
}

fn clock_behind_sentinels(_: &'static dyn Store) {
    let set = RedisSet::start(redis_sentinel::Setup {
        replicas: 1,
        servers: GOOD,
        down_after: DOWN_AFTER,
        with_clock: true,
        ..redis_sentinel::Setup::default()
    });
    until("the replica counts", || set.servers[0].reports(COUNTED));
    let url = set.url("", "");
    diagnosis(&url, "").expect(&[]);
    set.servers[0].server.clock().expect("it has one").set_back(Duration::from_secs(40));
    diagnosis(&url, "").expect(&["warning clock"]).say("s behind the clock of this machine");
}

fn clock_in_a_cluster(_: &'static dyn Store) {
    let setup = redis_cluster::Setup {
        settings: &["--save", "3600 1"],
        with_clock: true,
        ..redis_cluster::Setup::default()
    };
    let cluster = RedisCluster::start(setup);
    let url = cluster.url("", "");
    let others = "--ignore cluster --ignore replicas";
    diagnosis(&url, others).expect(&[]);
    let wrong = &cluster.members[0];
    wrong.server().clock().expect("it has one").set_forward(Duration::from_secs(40));
    let found = diagnosis(&url, others);
    found.expect(&["warning clock"]).say("s ahead of the clock of this machine").say(&wrong.port.to_string());
    assert_eq!(found.findings.len(), 1, "only of this server: {:?}", found.findings);
}
