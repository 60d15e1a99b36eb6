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

/// The way from one server to a port of another.
#[derive(Debug)]
struct Link {
    ends: [usize; 2],
    proxy: Proxy,
}

impl ZooKeeperEnsemble {
    /// Starts it, with these lines in each configuration beside the usual ones, and waits until all serve.
    pub fn start(settings: &str) -> Self {
        // Many that start and elect at once would keep each other from the processor.
        static STARTING: Mutex<()> = Mutex::new(());
        let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let ports: Vec<[u16; 2]> = (0..SIZE).map(|_| [free_port(), free_port()]).collect();
        let mut links = Vec::new();
        let mut link = |from, to, port| {
            // A follower asks again where its leader does not listen yet, but begins a new election where it is sent away.
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

    /// The addresses of all, as they stand in a URL.
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

    /// The others.
    pub fn beside(server: usize) -> [usize; 2] {
        [(server + 1) % SIZE, (server + 2) % SIZE]
    }

    /// Nothing arrives any more between it and the others until the healing, and nobody is told. Only what a server says
    /// when it looks for a leader may: it is also called back at the address that it says it has.
    pub fn isolate(&self, server: usize) {
        for link in self.links.iter().filter(|link| link.ends.contains(&server)) {
            link.proxy.set(Way::ToServer, Flow::Hold);
            link.proxy.set(Way::ToClient, Flow::Hold);
        }
    }

    /// Ends all that was done to it, and waits until all serve.
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

    /// Waits until one of these leads, at most for so long.
    pub fn elected(&self, among: [usize; 2], limit: Duration) -> usize {
        let end = Instant::now() + limit;
        loop {
            if let Some(leader) = among.into_iter().find(|number| self.servers[*number].is_leader()) {
                return leader;
            }
            assert!(Instant::now() < end, "nobody leads after {limit:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}
