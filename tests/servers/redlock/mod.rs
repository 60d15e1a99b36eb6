//! Tests of the nodes of a quorum, one or a few of which behave differently from the others.

mod fences;
mod minority;
mod operators;
mod renewal;
mod rules;
mod torture;
mod waiting;

use std::time::Duration;

use lock_runtime::{LockManager, backend::Redlock};

use crate::support::{
    proxy::{Proxy, Upstream},
    redis_server::RedisServer,
    resp::Value,
    until,
};

const LONG: Duration = Duration::from_secs(20);
const MS: Duration = Duration::from_millis(1);

/// The servers of a quorum, each behind a proxy.
struct Quorum {
    nodes: Vec<Node>,
}

struct Node {
    server: RedisServer,
    proxy: Proxy,
}

impl Quorum {
    fn start(nodes: usize) -> Self {
        Self { nodes: (0..nodes).map(|_| Node::of(RedisServer::start_durable(&[]))).collect() }
    }

    /// `host:port,host:port,…`.
    fn addresses(&self) -> String {
        self.nodes.iter().map(|node| node.proxy.address().to_string()).collect::<Vec<_>>().join(",")
    }

    fn store(&self) -> Redlock {
        Redlock::connect_lazy(&format!("redlock://{}?durable=true", self.addresses())).unwrap()
    }

    /// A client that has connected to all nodes.
    async fn client(&self) -> LockManager {
        let locks = LockManager::new(self.store());
        locks.ping().await.unwrap();
        for _ in 0..3 {
            locks.lock("warm").acquire().await.unwrap().release().await.unwrap();
        }
        locks
    }

    /// The owners of `k` on all nodes, without their fences.
    fn holders(&self) -> Vec<Option<String>> {
        self.nodes.iter().map(Node::holder).collect()
    }

    /// Number of nodes on which `k` is held.
    fn held(&self) -> usize {
        self.holders().iter().flatten().count()
    }

    /// Waits until `k` is held on all nodes: an acquisition ends with a majority.
    async fn held_everywhere(&self) {
        self.held_on("all nodes have it", self.nodes.len()).await;
    }

    /// Waits until `k` is free on all nodes.
    async fn free_everywhere(&self) {
        self.held_on("it is free everywhere", 0).await;
    }

    async fn held_on(&self, what: &str, nodes: usize) {
        until(what, || if self.held() == nodes { Ok(()) } else { Err(self.holders()) }).await;
    }
}

impl Node {
    fn of(server: RedisServer) -> Self {
        let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
        Self { server, proxy }
    }

    fn holder(&self) -> Option<String> {
        match self.server.command(&["GET", "lock:k"]) {
            Value::Text(holder) => Some(holder.split(':').take(2).collect::<Vec<_>>().join(":")),
            _ => None,
        }
    }

    fn counter(&self) -> u64 {
        match self.server.command(&["GET", "lock:{lock:k}:~1:fence"]) {
            Value::Text(fence) => fence.parse().unwrap(),
            _ => 0,
        }
    }

    /// Number of scripts that the node has run.
    fn scripts(&self) -> u64 {
        self.server.calls("evalsha")
    }
}
