//! A Redis primary and its replicas, and the Redis Sentinels that watch them.

use std::{
    fmt::{Display, Write as _},
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    PATIENCE,
    redis_server::RedisServer,
    resp::{self, Value},
    zookeeper_server::free_port,
};

/// The name of the primary in the Sentinels' configuration.
pub const NAME: &str = "main";
const SENTINELS: usize = 3;
/// Periods of a Sentinel, in ms. While the primary is away, a Sentinel asks each replica once a second, and promotes only one
/// whose last answer is younger than five `ping-period`s. If these were a second together, an answer that is a little late
/// would abort the failover, and the next one would begin ten seconds later.
const BRISK: &[&str] = &[
    "tilt-trigger",
    "60000",
    "info-period",
    "500",
    "ping-period",
    "400",
    "ask-period",
    "200",
    "publish-period",
    "300",
    "min-link-reconnect-period",
    "500",
];

/// A server that listens on a port of this machine, too: the others know it by that port.
#[derive(Debug)]
pub struct Member {
    pub server: RedisServer,
    pub port: u16,
}

/// How a set is started.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    pub replicas: usize,
    /// Settings of every server.
    pub servers: &'a [&'a str],
    /// Settings of every Sentinel.
    pub sentinels: &'a [&'a str],
    /// Time without an answer after which a Sentinel takes the primary for dead.
    pub down_after: Duration,
    /// Whether the wall clock of the primary can be moved.
    pub with_clock: bool,
    /// Whether the ports are for TLS, whose files are among the settings.
    pub with_tls: bool,
}

impl Default for Setup<'_> {
    /// Two replicas; the Sentinels do nothing by themselves.
    fn default() -> Self {
        let an_hour = Duration::from_hours(1);
        Self {
            replicas: 2,
            servers: &[],
            sentinels: &[],
            down_after: an_hour,
            with_clock: false,
            with_tls: false,
        }
    }
}

/// A set of servers; the first was the primary at the start.
#[derive(Debug)]
pub struct RedisSet {
    pub servers: Vec<Member>,
    pub sentinels: Vec<Member>,
}

impl RedisSet {
    /// Starts a set, whose replicas have the data of the primary.
    pub fn start(setup: Setup<'_>) -> Self {
        let ports: Vec<u16> = (0..=setup.replicas).map(|_| free_port()).collect();
        let servers = ports.iter().enumerate().map(|(number, port)| {
            let config =
                if number == 0 { String::new() } else { format!("replicaof 127.0.0.1 {}\n", ports[0]) };
            let mut settings = settings(*port, setup.with_tls);
            settings.extend(
                ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"].map(str::to_owned),
            );
            settings.extend(setup.servers.iter().copied().map(str::to_owned));
            let with_clock = setup.with_clock && number == 0;
            Member { server: RedisServer::start_configured(&config, &settings, with_clock), port: *port }
        });
        let servers: Vec<_> = servers.collect();
        let end = Instant::now() + PATIENCE;
        for replica in &servers[1..] {
            while !replica.reports("master_link_status:up") {
                assert!(Instant::now() < end, "the replica does not follow");
                thread::sleep(Duration::from_millis(5));
            }
        }
        let of_sentinels: Vec<u16> = (0..SENTINELS).map(|_| free_port()).collect();
        let sentinels = of_sentinels.iter().enumerate().map(|(number, port)| {
            let config = sentinel_config(number, &of_sentinels, &ports, &setup);
            let mut settings = settings(*port, setup.with_tls);
            settings.extend(setup.sentinels.iter().copied().map(str::to_owned));
            settings.push("--sentinel".into());
            let server = RedisServer::start_configured(&config, &settings, false);
            // On a busy machine, a Sentinel that was kept waiting would do nothing for half a minute.
            server.command(&[&["SENTINEL", "DEBUG"], BRISK].concat());
            Member { server, port: *port }
        });
        Self { sentinels: sentinels.collect(), servers }
    }

    /// The URL of the set, with this text before its hosts and this one behind its name.
    pub fn url(&self, credentials: &str, rest: &str) -> String {
        url(self.sentinels.iter().map(|sentinel| sentinel.port), credentials, rest)
    }

    pub fn primary(&self) -> &Member {
        &self.servers[self.primary_number()]
    }

    /// The number of the server that all Sentinels which answer take for the primary; waits until they agree.
    pub fn primary_number(&self) -> usize {
        let end = Instant::now() + PATIENCE;
        loop {
            let named: Vec<_> = self.sentinels.iter().filter_map(Member::names_primary).collect();
            if let [first, ..] = named[..]
                && named.iter().all(|other| *other == first)
                && let Some(number) = self.servers.iter().position(|server| server.port == first)
            {
                return number;
            }
            assert!(Instant::now() < end, "the Sentinels do not agree: {named:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Has a Sentinel make a replica the primary; returns the number of the new primary once all Sentinels name it.
    pub fn fail_over(&self) -> usize {
        let old = self.primary_number();
        self.command_failover();
        self.another_primary_than(old)
    }

    /// A Sentinel refuses while it knows no replica well enough, or has just led a failover.
    fn command_failover(&self) {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.sentinels[0].server.command(&["SENTINEL", "FAILOVER", NAME]) {
                Value::Text(_) => return,
                refused => assert!(Instant::now() < end, "{refused:?}"),
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The same without the loss of a write, as the page of the topologies says: the old primary keeps the writes of its
    /// clients waiting until it is a replica and refuses them.
    pub fn fail_over_losing_nothing(&self) -> usize {
        let number = self.primary_number();
        let old = &self.servers[number];
        let end = Instant::now() + PATIENCE;
        old.server.command(&["CLIENT", "PAUSE", "30000", "WRITE"]);
        let offset = || old.replicated("master_repl_offset:");
        let others = || self.servers.iter().filter(|one| one.port != old.port);
        while !others().all(|one| one.replicated("slave_repl_offset:") == offset()) {
            assert!(Instant::now() < end, "the replicas do not follow");
            thread::sleep(Duration::from_millis(1));
        }
        self.command_failover();
        let new = loop {
            if let Some(new) = others().find(|one| one.reports("role:master")) {
                break new;
            }
            assert!(Instant::now() < end, "no replica is promoted");
            thread::sleep(Duration::from_millis(5));
        };
        // The Sentinels cannot: their messages to the old primary wait with the writes.
        old.server.command(&["REPLICAOF", "127.0.0.1", &new.port.to_string()]);
        old.server.command(&["CLIENT", "UNPAUSE"]);
        self.another_primary_than(number)
    }

    /// Waits until another server is the primary; returns its number.
    pub fn another_primary_than(&self, old: usize) -> usize {
        let end = Instant::now() + 2 * PATIENCE;
        loop {
            let new = self.primary_number();
            if new != old && self.servers[new].reports("role:master") {
                return new;
            }
            assert!(Instant::now() < end, "no failover");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The keys on the primary.
    pub fn keys(&self) -> Vec<String> {
        self.primary().server.command(&["KEYS", "*"]).texts()
    }
}

impl Member {
    /// Whether the server answers, and `INFO replication` has this text. A Sentinel breaks the connections to a server when
    /// it makes a replica of it.
    pub fn reports(&self, text: &str) -> bool {
        let answer = resp::command(self.server.socket(), &["INFO", "replication"]);
        matches!(answer, Ok(Value::Text(info)) if info.contains(text))
    }

    /// What `INFO replication` has behind this text.
    fn replicated(&self, text: &str) -> Option<String> {
        let info = self.server.command(&["INFO", "replication"]).text();
        info.lines().find_map(|line| line.strip_prefix(text)).map(str::to_owned)
    }

    /// The port of the primary, as this Sentinel has it; `None` if the Sentinel does not run.
    fn names_primary(&self) -> Option<u16> {
        let asked = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME];
        let answer = resp::command(self.server.socket(), &asked).ok()?;
        Some(answer.texts()[1].parse().expect("a port"))
    }
}

/// The URL of a set whose Sentinels have these ports.
pub fn url(sentinels: impl Iterator<Item = u16>, credentials: &str, rest: &str) -> String {
    let hosts: Vec<_> = sentinels.map(|port| format!("127.0.0.1:{port}")).collect();
    format!("redis-sentinel://{credentials}{}/{NAME}{rest}", hosts.join(","))
}

fn settings(port: u16, with_tls: bool) -> Vec<String> {
    let of_port = if with_tls { "--tls-port" } else { "--port" };
    vec![of_port.into(), port.to_string(), "--bind".into(), "127.0.0.1".into()]
}

/// The configuration of a Sentinel that knows the others and the replicas, so that none of them has to be found first.
fn sentinel_config(number: usize, sentinels: &[u16], servers: &[u16], setup: &Setup<'_>) -> String {
    let id = |number: usize| format!("{:040x}", number + 1);
    let mut config = format!(
        "sentinel myid {}\nsentinel monitor {NAME} 127.0.0.1 {} 2\nsentinel down-after-milliseconds {NAME} {}\n\
         sentinel failover-timeout {NAME} 5000\nsentinel parallel-syncs {NAME} 2\n",
        id(number),
        servers[0],
        setup.down_after.as_millis()
    );
    for replica in &servers[1..] {
        let _ = writeln!(config, "sentinel known-replica {NAME} 127.0.0.1 {replica}");
    }
    for (other, port) in sentinels.iter().enumerate().filter(|(other, _)| *other != number) {
        let _ = writeln!(config, "sentinel known-sentinel {NAME} 127.0.0.1 {port} {}", id(other));
    }
    config
}

/// Another address of a server, at which it says another text in one place. A Sentinel so names another port of the primary,
/// as behind a NAT.
#[derive(Debug)]
pub struct Translated {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
}

impl Translated {
    /// The server at `port`, which says `said` where the server itself says `meant`, a text of the same length.
    pub fn start(port: u16, meant: impl Display, said: impl Display) -> Self {
        let (meant, said) = (format!("{meant}\r\n"), format!("{said}\r\n"));
        assert_eq!(meant.len(), said.len());
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let ended = Arc::new(AtomicBool::new(false));
        let has_ended = Arc::clone(&ended);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if has_ended.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let (mut from_client, mut to_server) =
                    (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from_client, &mut to_server);
                    let _ = to_server.shutdown(std::net::Shutdown::Both);
                });
                let (meant, said) = (meant.clone(), said.clone());
                thread::spawn(move || translate(server, client, &meant, &said));
            }
        });
        Self { address, ended }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for Translated {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

/// Copies lines, and replaces a line that is `meant`. Both have the same length, which the line before says.
fn translate(from: TcpStream, mut to: TcpStream, meant: &str, said: &str) {
    let (mut from, mut line) = (BufReader::new(from), Vec::new());
    while matches!(from.read_until(b'\n', &mut line), Ok(1..)) {
        let translated = if line == meant.as_bytes() { said.as_bytes() } else { &line };
        if to.write_all(translated).is_err() {
            break;
        }
        line.clear();
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}
