//! The stores under the layer: how each is reached, and what is left in it.

use std::sync::atomic::{AtomicUsize, Ordering};

use lock_runtime::backend::Memory;

use crate::support::redis_server::RedisServer;

/// A store that nobody else uses; dropped, its server is stopped.
pub struct Store {
    pub name: &'static str,
    pub url: String,
    left: Box<dyn Fn() -> Vec<String>>,
}

impl Store {
    /// What is kept of locks: holders, and places in queues.
    pub fn left(&self) -> Result<(), Vec<String>> {
        let left = (self.left)();
        if left.is_empty() { Ok(()) } else { Err(left) }
    }
}

/// All of them, each to be started when it is its turn.
pub const ALL: &[fn() -> Store] = &[
    memory,
    || redis("redis", ""),
    || redis("redis_grouped", "?group_commit=always"),
    #[cfg(feature = "zookeeper")]
    zookeeper,
];

fn memory() -> Store {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let name = format!("layer{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let store = Memory::named(&name);
    let left = move || (0..store.len()).map(|number| format!("lock {number}")).collect();
    Store { name: "memory", url: format!("memory:{name}"), left: Box::new(left) }
}

fn redis(name: &'static str, settings: &str) -> Store {
    let server = RedisServer::start(&[]);
    let url = format!("redis+unix://{}{settings}", server.socket().display());
    let left = move || {
        let keys = server.command(&["KEYS", "*"]).texts();
        // One for all locks, and kept for ever.
        keys.into_iter().filter(|key| key != "lock:~1:fence").collect()
    };
    Store { name, url, left: Box::new(left) }
}

#[cfg(feature = "zookeeper")]
fn zookeeper() -> Store {
    use crate::support::{
        zk::Client,
        zookeeper_server::{SESSION, ZooKeeperServer},
    };
    let server = ZooKeeperServer::start("");
    let url = format!("zookeeper://{}?session_timeout={}ms", server.address(), SESSION.as_millis());
    let left = move || {
        let mut client = Client::connect(server.address()).unwrap();
        let names = client.children("/").unwrap().unwrap();
        let locks = names.into_iter().filter(|name| name.starts_with("lock:"));
        // A lock's own node may vanish at any time once it is empty.
        locks.flat_map(|name| client.children(&format!("/{name}")).unwrap().unwrap_or_default()).collect()
    };
    Store { name: "zookeeper", url, left: Box::new(left) }
}
