//! Faults of the nodes of a quorum.

use std::{thread, time::Duration};

use lock_conformance::{
    Store,
    support::{
        proxy::{Proxy, Upstream},
        redis_server::RedisServer,
    },
};

use super::{
    diagnosis,
    redis::{published, start_with_user},
};
use crate::command::Named;

pub const TESTS: &[Named] = &[
    ("the_doctor_finds_nothing_on_a_good_quorum_and_a_node_that_is_away", away),
    ("the_doctor_finds_nodes_that_are_not_durable", durable),
    ("the_doctor_finds_nodes_without_a_vote", votes),
    ("the_doctor_finds_a_node_without_a_vote", a_vote),
    ("the_doctor_finds_a_right_that_one_node_lacks", rights),
    ("the_doctor_finds_two_addresses_of_one_node", same_server),
    ("the_doctor_finds_a_single_node_that_evicts", eviction),
    ("the_doctor_finds_a_single_node_whose_clock_is_wrong", clock),
];

/// Servers, each at a port.
struct Nodes(Vec<(RedisServer, Proxy)>);

impl Nodes {
    fn start(servers: Vec<RedisServer>) -> Self {
        Self(
            servers
                .into_iter()
                .map(|server| {
                    let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
                    (server, proxy)
                })
                .collect(),
        )
    }

    fn durable() -> Self {
        Self::start((0..3).map(|_| RedisServer::start_durable(&[])).collect())
    }

    fn url(&self, settings: &str) -> String {
        let hosts: Vec<_> = self.0.iter().map(|(_, proxy)| proxy.address().to_string()).collect();
        format!("redlock://{}{settings}", hosts.join(","))
    }
}

fn away(_: &'static dyn Store) {
    let mut nodes = Nodes::durable();
    let url = nodes.url("?durable=true");
    let good = diagnosis(&url, "");
    good.expect(&[]);
    assert_eq!(good.servers.len(), 3, "{:?}", good.servers);
    nodes.0[1].0.kill();
    let found = diagnosis(&url, "");
    found.expect(&["warning unreachable"]).say(&nodes.0[1].1.address().to_string());
    nodes.0[2].0.kill();
    diagnosis(&url, "").expect(&["danger unreachable"]);
    nodes.0[0].0.kill();
    let nowhere = diagnosis(&url, "");
    assert_eq!((nowhere.code, nowhere.findings.len()), (119, 0), "{:?}", nowhere.findings);
    for ttl in ["99ms", "25h"] {
        let refused = diagnosis(&url, &format!("--ttl {ttl}"));
        assert!(refused.code == 120 && refused.err.contains("24h"), "{} {}", refused.code, refused.err);
    }
}

fn durable(_: &'static dyn Store) {
    let nodes = Nodes::start((0..3).map(|_| RedisServer::start(&[])).collect());
    diagnosis(&nodes.url("?durable=true"), "").expect(&["danger durable"]).say("`appendonly no`");
    let nodes = Nodes::durable();
    nodes.0[2].0.command(&["CONFIG", "SET", "appendfsync", "everysec"]);
    let found = diagnosis(&nodes.url("?durable=true"), "");
    found.expect(&["danger durable"]).say("`appendfsync everysec`");
}

fn votes(_: &'static dyn Store) {
    // They were started a moment ago, and may have forgotten locks.
    let nodes = Nodes::durable();
    diagnosis(&nodes.url(""), "").expect(&["danger no-vote"]).say("votes in");
}

fn a_vote(_: &'static dyn Store) {
    let mut nodes = Nodes::durable();
    let url = nodes.url("?max_ttl=10s");
    // Longer than `max_ttl` and the margin of two seconds.
    thread::sleep(Duration::from_secs(14));
    nodes.0[1].0.restart();
    let found = diagnosis(&url, "");
    found
        .expect(&["warning no-vote"])
        .say("may have forgotten locks")
        .say(&nodes.0[1].1.address().to_string());
}

fn rights(_: &'static dyn Store) {
    let page = include_str!("../../../lock-runtime/src/backend/stores/redlock/docs.md");
    let may = published(page);
    for (right, without, remedy) in [
        ("+pexpire", "-pexpire", "+pexpire"),
        ("+time", "-time", "+time"),
        ("+subscribe", "-subscribe", "+subscribe"),
        ("~lock:*", "~other:*", "~lock:*"),
        ("&lock:*", "&other:*", "&lock:*"),
    ] {
        let lacking: Vec<_> = may.iter().map(|word| if *word == right { without } else { word }).collect();
        let nodes = Nodes::start([&may, &lacking, &may].map(|user| start_with_user(user)).into());
        let url = nodes.url("?durable=true").replace("//", "//locks:password@");
        let found = diagnosis(&url, "");
        found.expect(&["danger rights"]).say(remedy).say(&nodes.0[1].1.address().to_string());
    }
}

fn same_server(_: &'static dyn Store) {
    let nodes = Nodes::durable();
    let again = Proxy::start(Upstream::Unix(nodes.0[0].0.socket().into()));
    let hosts = [&nodes.0[0].1, &nodes.0[1].1, &again].map(|proxy| proxy.address().to_string());
    let found = diagnosis(&format!("redlock://{}?durable=true", hosts.join(",")), "");
    found.expect(&["danger same-server"]).say("a server of its own");
}

fn eviction(_: &'static dyn Store) {
    let nodes = Nodes::durable();
    for (name, value) in [("maxmemory", "1gb"), ("maxmemory-policy", "volatile-ttl")] {
        nodes.0[1].0.command(&["CONFIG", "SET", name, value]);
    }
    let found = diagnosis(&nodes.url("?durable=true"), "");
    found.expect(&["danger eviction"]).say(&nodes.0[1].1.address().to_string());
    assert_eq!(found.findings.len(), 1, "only of this node: {:?}", found.findings);
}

fn clock(_: &'static dyn Store) {
    let [first, last] = [(); 2].map(|()| RedisServer::start_durable(&[]));
    let nodes = Nodes::start(vec![first, RedisServer::start_durable_with_clock(&[]), last]);
    let url = nodes.url("?durable=true");
    diagnosis(&url, "").expect(&[]);
    nodes.0[1].0.clock().expect("it has one").set_forward(Duration::from_secs(40));
    let found = diagnosis(&url, "");
    found
        .expect(&["warning clock"])
        .say("s ahead of the clock of this machine")
        .say(&nodes.0[1].1.address().to_string());
    assert_eq!(found.findings.len(), 1, "only of this node: {:?}", found.findings);
}
