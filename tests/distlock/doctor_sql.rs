//! What `distlock doctor` finds at PostgreSQL and ZooKeeper: each fault alone, and nothing at a good server.

use std::{fmt::Write as _, path::Path, time::Duration};

use crate::{
    command::until,
    doctor::{Diagnosis, diagnosis, doctor},
    support::{
        pgbouncer::PgBouncer,
        postgres_protocol::Session,
        postgres_server::PostgresServer,
        zookeeper_ensemble::ZooKeeperEnsemble,
        zookeeper_protocol::{ADMIN, CREATE_AND_DELETE, Client, READ},
        zookeeper_server::{READ_ONLY_MODE, ZooKeeperServer, free_port},
    },
};

/// A test, with the store that it needs and its name.
pub type Named = (&'static str, &'static str, fn());

pub const TESTS: &[Named] = &[
    ("postgres", "a_good_server_has_no_findings", good_postgres),
    ("postgres", "a_table_that_locks_cannot_use_is_found", tables),
    ("postgres", "rights_that_are_missing_are_found", rights),
    ("postgres", "a_server_that_may_lose_commits_is_found", crashes),
    ("postgres", "sessions_that_do_not_suit_locks_are_found", sessions),
    ("postgres", "a_server_with_few_connections_left_is_found", connections),
    ("postgres", "notifications_that_do_not_arrive_are_found", notifications),
    ("postgres", "a_replica_and_its_primary_are_found", replicas),
    ("postgres", "a_clock_that_is_off_is_found", clock),
    ("postgres", "a_server_that_is_too_old_is_found", version),
    ("postgres_advisory", "a_good_server_has_no_findings", good_advisory),
    ("postgres_advisory", "each_fault_is_found", advisory),
    ("zookeeper", "a_good_server_has_no_findings", good_zookeeper),
    ("zookeeper", "a_tick_that_does_not_suit_the_session_is_found", tick),
    ("zookeeper", "a_server_that_does_not_answer_questions_is_found", whitelist),
    ("zookeeper", "permissions_that_are_missing_are_found", permissions),
    ("zookeeper", "a_member_that_is_away_is_found", members),
    ("zookeeper", "a_member_that_only_reads_is_found", reader),
];

/// A server whose data outlive a crash.
const SAFE: &[&str] = &["fsync=on", "full_page_writes=on"];
const CREATE: &str = "&create_table=true";

/// Checks that the doctor finds this at the store, and nothing else.
#[track_caller]
fn finds(url: &str, expected: &[&str]) -> Diagnosis {
    let diagnosis = diagnosis(url, "");
    diagnosis.expect(expected);
    diagnosis
}

fn postgres(scheme: &str, folder: &Path, user: &str, rest: &str) -> String {
    let host = folder.display();
    format!("{scheme}:///postgres?host={host}&user={user}&response_timeout=5s&connect_timeout=15s{rest}")
}

fn rows(server: &PostgresServer, rest: &str) -> String {
    postgres("postgres", server.folder(), "postgres", rest)
}

/// A store whose sessions last so long that no round trip on a busy machine is a finding.
fn advisory_of(folder: &Path, user: &str, rest: &str) -> String {
    postgres("postgres+advisory", folder, user, &format!("&session_timeout=20s{rest}"))
}

fn sessions_of(server: &PostgresServer, rest: &str) -> String {
    advisory_of(server.folder(), "postgres", rest)
}

/// A safe server with the table.
fn safe_server() -> PostgresServer {
    let server = PostgresServer::start(SAFE);
    finds(&rows(&server, CREATE), &[]);
    server
}

fn good_postgres() {
    let server = PostgresServer::start(SAFE);
    let servers = finds(&rows(&server, CREATE), &[]).servers.concat();
    let version = server.value("SHOW server_version").unwrap();
    let version = format!("\"version\":\"PostgreSQL {version}\"");
    for part in
        [&*version, "\"role\":\"primary\"", "\"fsync\":\"on\"", "\"table\":\"public.distributed_locks\""]
    {
        assert!(servers.contains(part), "{part} in {servers}");
    }
    let words = doctor(&rows(&server, ""), "--ttl 20s");
    assert!(words.code == 0 && words.out.ends_with("nothing found\n"), "{}{}", words.out, words.err);
}

fn tables() {
    let server = PostgresServer::start(SAFE);
    finds(&rows(&server, ""), &["danger table"]).say("CREATE TABLE");
    finds(&rows(&server, CREATE), &[]);
    server.query("CREATE TABLE other (name text)");
    finds(&rows(&server, "&table=other"), &["danger table"]);
    server.query(
        "CREATE SCHEMA app; CREATE TABLE app.distributed_locks (LIKE distributed_locks INCLUDING ALL)",
    );
    finds(&rows(&server, ""), &["warning tables"]).say("table=public.distributed_locks");
    finds(&rows(&server, "&table=public.distributed_locks"), &[]);
    finds(&rows(&server, "&table=app.distributed_locks"), &[]);
}

fn rights() {
    let server = safe_server();
    server.query("CREATE ROLE app LOGIN");
    let url = postgres("postgres", server.folder(), "app", "");
    finds(&url, &["danger rights"]).say("GRANT SELECT");
    for (grant, expected) in [("SELECT, INSERT, UPDATE", &["danger rights"][..]), ("DELETE", &[])] {
        server.query(&format!("GRANT {grant} ON distributed_locks TO app"));
        finds(&url, expected);
    }
    server.query("ALTER TABLE distributed_locks ENABLE ROW LEVEL SECURITY");
    finds(&url, &["danger rights"]).say("row security");
    server.query("ALTER TABLE distributed_locks DISABLE ROW LEVEL SECURITY");
    server.query("REVOKE SELECT ON pg_stat_activity FROM PUBLIC");
    finds(&url, &["warning polling", "warning unread"]).say("pg_stat_activity");
}

fn crashes() {
    let server = safe_server();
    let without = "&options=-c%20synchronous_commit%3Doff";
    finds(&rows(&server, without), &["danger fsync"]).say("ALTER ROLE");
    server.query("ALTER TABLE distributed_locks SET UNLOGGED");
    finds(&rows(&server, ""), &["danger fsync"]).say("SET LOGGED");
    let server = PostgresServer::start(&["full_page_writes=on"]);
    finds(&rows(&server, CREATE), &["danger fsync"]).say("`fsync = on`");
    // Advisory locks end with the server.
    finds(&sessions_of(&server, ""), &[]);
    finds(&rows(&server, "&strict=true"), &["danger fsync"]);
    let server = PostgresServer::start(&["fsync=on"]);
    finds(&rows(&server, CREATE), &["warning fsync"]).say("full_page_writes is off");
}

fn sessions() {
    let server = safe_server();
    let read_only = "&options=-c%20default_transaction_read_only%3Don";
    finds(&rows(&server, read_only), &["danger read-only"]);
    // Renewals are 10 s apart.
    let idle = |limit: &str| rows(&server, &format!("&options=-c%20idle_session_timeout%3D{limit}"));
    finds(&idle("9s"), &["warning session-limits"]);
    finds(&idle("11s"), &[]);
}

fn connections() {
    // The superuser may use them all.
    let settings = ["max_connections=50", "superuser_reserved_connections=30"];
    let server = PostgresServer::start(&[SAFE, &settings].concat());
    finds(&rows(&server, CREATE), &[]);
    let _held: Vec<_> = (0..18).map(|_| Session::connect(&server.socket()).unwrap()).collect();
    finds(&rows(&server, ""), &["warning session-limits"]).say("of 20 connections to the server");
}

fn notifications() {
    let server = safe_server();
    let bouncer = PgBouncer::start(&server, "transaction");
    finds(&postgres("postgres", bouncer.folder(), "postgres", ""), &["warning polling"]).say("pooler");
    server.refuse_notifications();
    finds(&rows(&server, ""), &["warning polling"]).say("too many notifications");
}

fn replicas() {
    let settings = ["wal_level=replica", "max_wal_senders=4"];
    let server = PostgresServer::start(&[SAFE, &settings].concat());
    finds(&rows(&server, CREATE), &[]);
    let replica = server.start_replica();
    let follows = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
    until("the replica follows", || server.value(follows).as_deref() == Some("1"));
    finds(&rows(&replica, ""), &["danger read-only"]);
    finds(&rows(&server, ""), &["warning replicas"]);
    server.query("CREATE ROLE app LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON distributed_locks TO app");
    finds(&postgres("postgres", server.folder(), "app", ""), &["warning replicas"]);
    server.query("ALTER SYSTEM SET synchronous_standby_names = '*'");
    server.query("SELECT pg_reload_conf()");
    until("commits wait", || server.value("SHOW synchronous_standby_names").as_deref() == Some("*"));
    finds(&rows(&server, ""), &[]);
}

fn clock() {
    let server = PostgresServer::start_with_clock(SAFE);
    finds(&rows(&server, CREATE), &[]);
    let clock = server.clock().unwrap();
    for (set, word) in [
        (Box::new(|| clock.set_forward(Duration::from_secs(40))) as Box<dyn Fn()>, "ahead of"),
        (Box::new(|| clock.set_back(Duration::from_secs(40))), "behind"),
    ] {
        set();
        finds(&rows(&server, ""), &["warning clock"]).say(word);
    }
}

/// Puts a function in front of `current_setting`; returns the end of a URL whose sessions find it first.
fn replace_setting(server: &PostgresServer, schema: &str, settings: &[(&str, &str)]) -> String {
    let cases: Vec<_> =
        settings.iter().map(|(name, value)| format!("WHEN '{name}' THEN '{value}'")).collect();
    let cases = cases.join(" ");
    server.query(&format!(
        "CREATE SCHEMA {schema}; CREATE FUNCTION {schema}.current_setting(text) RETURNS text LANGUAGE sql AS \
         $$ SELECT CASE $1 {cases} ELSE pg_catalog.current_setting($1) END $$"
    ));
    format!("&options=-c%20search_path%3D{schema},pg_catalog,public")
}

fn version() {
    let server = safe_server();
    let eleven = replace_setting(&server, "eleven", &[("server_version_num", "110022")]);
    finds(&rows(&server, &eleven), &["danger version"]);
    let twelve = replace_setting(&server, "twelve", &[("server_version_num", "120000")]);
    finds(&rows(&server, &twelve), &[]);
    finds(&sessions_of(&server, &twelve), &["danger version"]);
}

fn good_advisory() {
    let server = PostgresServer::start(SAFE);
    let servers = finds(&sessions_of(&server, CREATE), &[]).servers.concat();
    assert!(servers.contains("\"session_timeout\":\"20s\""), "{servers}");
    // Longer than the usual `ttl`.
    finds(&sessions_of(&server, "&session_timeout=40s"), &[]);
}

fn advisory() {
    let server = PostgresServer::start_with_clock(SAFE);
    finds(&sessions_of(&server, ""), &["danger table"]);
    finds(&sessions_of(&server, CREATE), &[]);
    server.query("CREATE ROLE app LOGIN");
    let url = advisory_of(server.folder(), "app", "");
    finds(&url, &["danger rights"]);
    let read_only = "&options=-c%20default_transaction_read_only%3Don";
    finds(&sessions_of(&server, read_only), &["danger read-only"]);
    let bouncer = PgBouncer::start(&server, "transaction");
    finds(&advisory_of(bouncer.folder(), "postgres", ""), &["danger topology"]).say("pooler");
    let keepalive =
        [("tcp_keepalives_idle", "16"), ("tcp_keepalives_interval", "1"), ("tcp_keepalives_count", "3")];
    let impatient = replace_setting(&server, "impatient", &keepalive);
    finds(&sessions_of(&server, &impatient), &["danger session-limits"]);
    finds(&sessions_of(&server, &format!("{impatient}&session_timeout=19s")), &[]);
    server.query(
        "CREATE SCHEMA app; CREATE TABLE app.distributed_locks (LIKE distributed_locks INCLUDING ALL)",
    );
    finds(&sessions_of(&server, ""), &["warning tables"]);
    server.query("DROP SCHEMA app CASCADE");
    server.refuse_notifications();
    finds(&sessions_of(&server, ""), &["warning polling"]);
    server.accept_notifications();
    server.clock().unwrap().set_forward(Duration::from_secs(40));
    finds(&sessions_of(&server, ""), &["warning clock"]);
}

/// A store whose sessions last so long that no round trip on a busy machine is a finding.
fn zookeeper(addresses: &str, rest: &str) -> String {
    format!("zookeeper://{addresses}{rest}?session_timeout=20s&response_timeout=5s&connect_timeout=20s")
}

fn of(server: &ZooKeeperServer) -> String {
    zookeeper(&server.address().to_string(), "")
}

fn good_zookeeper() {
    let server = ZooKeeperServer::start("");
    let servers = finds(&of(&server), &[]).servers.concat();
    for part in ["\"version\":\"ZooKeeper 3.", "\"role\":\"standalone\"", "\"tickTime\":\"250\""] {
        assert!(servers.contains(part), "{part} in {servers}");
    }
}

fn tick() {
    let server = ZooKeeperServer::start("tickTime=8000\n");
    finds(&of(&server), &["danger tick"]).say("less than 3 ticks of 8s");
    let server = ZooKeeperServer::start("minSessionTimeout=25000\n");
    finds(&of(&server), &["warning tick"]).say("25s instead of 20s");
    let server = ZooKeeperServer::start("tickTime=10000\nminSessionTimeout=25000\n");
    finds(&of(&server), &["danger tick", "warning tick"]);
}

fn whitelist() {
    // The default.
    let server = ZooKeeperServer::start("4lw.commands.whitelist=srvr\n");
    finds(&of(&server), &["warning unread"]).say("conf, mntr").say("4lw.commands.whitelist");
}

fn permissions() {
    const ALL: i32 = 31;
    let server = ZooKeeperServer::start("");
    let mut admin = Client::connect(server.address()).unwrap();
    let create = CREATE_AND_DELETE & 4;
    let delete = CREATE_AND_DELETE & 8;
    for (chroot, place) in [("/", ""), ("/locks", "/locks")] {
        if !place.is_empty() {
            admin.create(place, b"", 0).unwrap().unwrap();
        }
        let url = zookeeper(&server.address().to_string(), place);
        for (lacks, expected, word) in [
            (create, "danger rights", "`c` (create)"),
            (delete, "warning rights", "`d` (delete)"),
            (READ, "warning rights", "`r` (read)"),
        ] {
            admin.set_rights(chroot, (ALL & !lacks) | ADMIN).unwrap().unwrap();
            finds(&url, &[expected]).say(word).say(&format!("`{chroot}`"));
        }
        admin.set_rights(chroot, ALL).unwrap().unwrap();
        finds(&url, &[]);
        let left = admin.children(chroot).unwrap().unwrap();
        assert!(!left.iter().any(|node| node.contains("examined")), "{left:?}");
    }
}

fn members() {
    let mut ensemble = ZooKeeperEnsemble::start("");
    let all = zookeeper(&ensemble.addresses(), "");
    let servers = finds(&all, &[]).servers.concat();
    for role in ["\"role\":\"leader\"", "\"role\":\"follower\""] {
        assert!(servers.contains(role), "{role} in {servers}");
    }
    let (leader, follower) = (ensemble.leader(), ensemble.follower());
    let of_leader = of(&ensemble.servers[leader]);
    finds(&of_leader, &[]);
    ensemble.servers[follower].kill();
    let away = ensemble.servers[follower].address().to_string();
    finds(&all, &["warning ensemble"]).say(&format!("\"server\":\"{away}\""));
    let in_step = || ensemble.servers[leader].number("zk_synced_followers");
    until("the leader misses it", || in_step() == 1);
    finds(&of_leader, &["warning ensemble"]).say("2 of the 3");
}

/// A member that never sees the two others of its ensemble.
fn lonely(settings: &str) -> ZooKeeperServer {
    let mut settings = settings.to_owned();
    for number in 0..3 {
        let [one, other] = [free_port(), free_port()];
        writeln!(settings, "server.{number}=127.0.0.1:{one}:{other}").unwrap();
    }
    ZooKeeperServer::member(0, &settings)
}

fn reader() {
    let server = ZooKeeperServer::start("");
    for (settings, said, expected) in [
        ("", "not currently serving", &["warning ensemble"][..]),
        (READ_ONLY_MODE, "Mode: read-only", &["warning read-only"]),
        // The session would last for another time there.
        (
            &format!("{READ_ONLY_MODE}minSessionTimeout=25000\n"),
            "Mode: read-only",
            &["danger tick", "warning read-only"],
        ),
    ] {
        let lonely = lonely(settings);
        until(said, || lonely.ask("srvr").is_ok_and(|answer| answer.contains(said)));
        finds(&zookeeper(&format!("{},{}", server.address(), lonely.address()), ""), expected);
    }
}
