//! Three ZooKeeper servers that see each other through proxies, so that each can be cut off from the others.

#![allow(dead_code, reason = "each program that tests uses a part of it")]

use std::{
    fmt::Write as _,
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::{
    proxy::{Flow, Proxy, Upstream, Way},
    zookeeper_server::{PATIENCE, ZooKeeperServer, free_port},
};

const SIZE: usize = 3;

#[derive(Debug)]
pub struct ZooKeeperEnsemble {
    pub servers: Vec<ZooKeeperServer>,
    links: Vec<Link>,
}

/// The connection from one server to a port of another.
#[derive(Debug)]
struct Link {
    ends: [usize; 2],
    proxy: Proxy,
}

impl ZooKeeperEnsemble {
    /// Starts it, with these lines in each configuration in addition to the usual ones, and waits until all serve.
    pub fn start(settings: &str) -> Self {
        // Servers that start and elect at the same time would starve each other of CPU.
        static STARTING: Mutex<()> = Mutex::new(());
        let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let ports: Vec<[u16; 2]> = (0..SIZE).map(|_| [free_port(), free_port()]).collect();
        let mut links = Vec::new();
        let mut link = |from, to, port| {
            // A follower retries if its leader does not listen yet, but begins a new election if it is refused.
            let upstream = Upstream::Tcp(SocketAddr::from(([127, 0, 0, 1], port)));
            let proxy = Proxy::start_with_patience(upstream, Duration::from_secs(1));
            let port = proxy.address().port();
            links.push(Link { ends: [from, to], proxy });
            port
        };
        let mut servers = Vec::new();
        for from in 0..SIZE {
            let mut settings = settings.to_owned();
            for (to, ports) in ports.iter().enumerate() {
                let seen = if to == from { *ports } else { ports.map(|port| link(from, to, port)) };
                write!(settings, "\nserver.{to}=127.0.0.1:{}:{}", seen[0], seen[1]).unwrap();
            }
            servers.push(ZooKeeperServer::member(from, &settings));
        }
        let this = Self { servers, links };
        this.is_up();
        this
    }

    /// Waits until all serve, under one leader.
    fn is_up(&self) {
        let end = Instant::now() + PATIENCE;
        for server in &self.servers {
            server.is_up("");
        }
        while self.servers.iter().filter(|server| !server.is_follower()).count() != 1 {
            assert!(Instant::now() < end, "the servers do not agree on a leader after {PATIENCE:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The addresses of all servers, as written in a URL.
    pub fn addresses(&self) -> String {
        let addresses: Vec<_> = self.servers.iter().map(|server| server.address().to_string()).collect();
        addresses.join(",")
    }

    /// The number of the leader.
    pub fn leader(&self) -> usize {
        self.servers.iter().position(ZooKeeperServer::is_leader).expect("there is a leader")
    }

    /// The number of a follower.
    pub fn follower(&self) -> usize {
        (self.leader() + 1) % SIZE
    }

    /// The numbers of the other servers.
    pub fn beside(server: usize) -> [usize; 2] {
        [(server + 1) % SIZE, (server + 2) % SIZE]
    }

    /// Until the healing, nothing arrives between it and the others, and no server is notified. An exception is the
    /// election: a server that looks for a leader is also called back at the address that it states.
    pub fn isolate(&self, server: usize) {
        for link in self.links.iter().filter(|link| link.ends.contains(&server)) {
            link.proxy.set(Way::ToServer, Flow::Hold);
            link.proxy.set(Way::ToClient, Flow::Hold);
        }
    }

    /// Ends all faults, and waits until all serve.
    pub fn heal(&mut self) {
        for link in &self.links {
            link.proxy.heal();
        }
        for server in &mut self.servers {
            if !server.lives() {
                server.start_again();
            }
            server.resume();
        }
        self.is_up();
    }

    /// Waits until one of these leads, at most for `limit`.
    pub fn elected(&self, among: [usize; 2], limit: Duration) -> usize {
        let end = Instant::now() + limit;
        loop {
            if let Some(leader) = among.into_iter().find(|number| self.servers[*number].is_leader()) {
                return leader;
            }
            assert!(Instant::now() < end, "no leader after {limit:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}
