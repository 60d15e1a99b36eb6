//! `zookeeper:`, a single server.

use std::{
    fmt::Write as _,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lock_runtime::{LockErrorKind, backend::Capabilities};

use crate::support::{
    proxy::{Proxy, Upstream},
    zookeeper_protocol::{Client, NO_NODE},
    zookeeper_server::{SESSION, ZooKeeperServer},
};
use lock_conformance::{CANARY, Fault, Server, Site};

pub const STORES: &[&dyn lock_conformance::Store] = &[&Store { name: "zookeeper" }];
/// The package `zookeeper` has a library and no command.
pub const NEEDS: &[(&str, &str)] =
    &[("/usr/share/java/zookeeper.jar", "zookeeper"), ("java", "default-jre-headless")];

inventory::submit!(super::File {
    is_compiled_in: cfg!(feature = "zookeeper"),
    is_large: false,
    stores: STORES
});

struct Store {
    name: &'static str,
}

/// The server of all cases that do not hurt it.
static SHARED: Mutex<Option<Arc<Mutex<ZooKeeperServer>>>> = Mutex::new(None);
/// Servers of finished cases: a virtual machine takes long to start, and no case sees the data of another.
static IDLE: Mutex<Vec<ZooKeeperServer>> = Mutex::new(Vec::new());

impl lock_conformance::Store for Store {
    fn name(&self) -> &'static str {
        self.name
    }

    fn needs(&self) -> &'static [(&'static str, &'static str)] {
        NEEDS
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new()
            .shared_between_processes()
            .fair()
            .telling_of_waiters()
            .showing_locks()
            .revoking()
            .with_session_timeout(SESSION)
    }

    /// All but the faults that lose data which a majority has on its disks, and those of another kind of server.
    fn has_connections(&self) -> bool {
        true
    }

    fn offers(&self, fault: Fault) -> bool {
        !matches!(
            fault,
            Fault::MinorityPaused
                | Fault::MinoritySlow(_)
                | Fault::DataLost
                | Fault::Restarted
                | Fault::ForgetsCaches
                | Fault::Unnotified
                | Fault::Full
                | Fault::OneConnection
                | Fault::RecordsLocked
                | Fault::ClockForward(_)
                | Fault::ClockBack(_)
        )
    }

    fn site(&self, server: Server) -> Box<dyn Site> {
        if server == Server::Shared {
            let start = || Arc::new(Mutex::new(ZooKeeperServer::start("")));
            let server = Arc::clone(lock(&SHARED).get_or_insert_with(start));
            return Box::new(ZooKeeperSite { server: Some(server), proxy: None, admin: Mutex::new(None) });
        }
        let idle = lock(&IDLE).pop();
        let server = idle.unwrap_or_else(|| ZooKeeperServer::start(""));
        let proxy = Some(Proxy::start(Upstream::Tcp(server.address())));
        Box::new(ZooKeeperSite { server: Some(Arc::new(Mutex::new(server))), proxy, admin: Mutex::new(None) })
    }

    fn bad_urls(&self) -> Vec<(String, LockErrorKind)> {
        let bad = |rest: &str| (format!("zookeeper:{rest}"), LockErrorKind::InvalidOptions);
        vec![
            bad(""),
            bad("//"),
            bad(&format!("//user:{CANARY}@")),
            bad(&format!("//user:{CANARY}@host:99999")),
            bad(&format!("//user:{CANARY}@host:port")),
            bad(&format!("//user:{CANARY}@host,,host")),
            bad(&format!("//user:{CANARY}@host/a//b")),
            bad(&format!("//user:{CANARY}@host?unknown=1")),
            bad(&format!("//user:{CANARY}@[::1")),
            // Understood, but there is no server.
            (format!("zookeeper://user:{CANARY}@127.0.0.1:1"), LockErrorKind::Backend),
            (format!("zookeeper://user:{CANARY}@host.invalid"), LockErrorKind::Backend),
        ]
    }

    fn finish(&self) {
        *lock(&SHARED) = None;
        lock(&IDLE).clear();
    }
}

struct ZooKeeperSite {
    server: Option<Arc<Mutex<ZooKeeperServer>>>,
    /// Between the clients and a server that may be hurt.
    proxy: Option<Proxy>,
    /// Made when needed, and made anew when broken.
    admin: Mutex<Option<Client>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ZooKeeperSite {
    fn server(&self) -> MutexGuard<'_, ZooKeeperServer> {
        lock(self.server.as_ref().expect("there until it is dropped"))
    }

    fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().expect("a case that hurts its server has one of its own")
    }

    /// Asks the server itself; replaces a session that has expired.
    fn admin<T>(&self, ask: impl Fn(&mut Client) -> io::Result<T>) -> T {
        let mut admin = lock(&self.admin);
        if let Some(Ok(answer)) = admin.as_mut().map(&ask) {
            return answer;
        }
        let fresh =
            admin.insert(Client::connect(self.server().address()).expect("the server can be reached"));
        ask(fresh).expect("the server answers")
    }

    fn children(&self, path: &str) -> Vec<String> {
        match self.admin(|client| client.children(path)) {
            Ok(children) => children,
            Err(NO_NODE) => Vec::new(),
            Err(code) => panic!("error {code} for {path}"),
        }
    }
}

fn url(address: SocketAddr, session: Duration) -> String {
    format!("zookeeper://{address}?session_timeout={}ms", session.as_millis())
}

/// The lock's node, as published.
fn node(key: &str) -> String {
    let mut escaped = String::new();
    for c in key.chars() {
        match c {
            '/' => escaped.push_str("%2F"),
            '%' => escaped.push_str("%25"),
            c if c > '\u{ffff}' => {
                for byte in c.to_string().bytes() {
                    write!(escaped, "%{byte:02X}").unwrap();
                }
            }
            c => escaped.push(c),
        }
    }
    format!("/lock:{escaped}")
}

impl Site for ZooKeeperSite {
    fn url(&self) -> String {
        self.url_for_leases_of(SESSION)
    }

    fn url_past_faults(&self) -> String {
        url(self.server().address(), SESSION)
    }

    fn url_for_leases_of(&self, lease: Duration) -> String {
        let address = self.proxy.as_ref().map_or_else(|| self.server().address(), Proxy::address);
        url(address, lease)
    }

    fn left(&self, mark: &str) -> Vec<String> {
        let locks = self.children("/").into_iter().filter(|name| name.contains(mark));
        locks.flat_map(|name| self.children(&format!("/{name}"))).collect()
    }

    fn places(&self, key: &str) -> usize {
        self.children(&node(key)).len().saturating_sub(1)
    }

    fn lose(&self, key: &str) -> bool {
        let mut contenders = self.children(&node(key));
        contenders.sort_by_key(|name| name.rsplit_once("lock-").map(|(_, number)| number.to_owned()));
        contenders.first().is_some_and(|holder| {
            self.admin(|client| client.delete(&format!("{}/{holder}", node(key)))).is_ok()
        })
    }

    fn hurt(&self, fault: Fault) {
        match fault {
            Fault::Killed => self.server().kill(),
            Fault::Paused => self.server().pause(),
            Fault::RestartedWithItsData => {
                let mut server = self.server();
                server.kill();
                server.bring_back();
            }
            fault => super::hurt_network(self.proxy(), fault),
        }
    }

    fn heal(&self) {
        self.proxy().heal();
        self.server().bring_back();
    }

    fn lost_an_answer(&self) -> bool {
        !self.proxy().keep_answers()
    }

    fn connections(&self) -> u64 {
        self.proxy().accepted()
    }
}

impl Drop for ZooKeeperSite {
    fn drop(&mut self) {
        if self.proxy.take().is_some()
            && let Some(server) = self.server.take().and_then(Arc::into_inner)
        {
            let mut server = server.into_inner().unwrap_or_else(PoisonError::into_inner);
            server.bring_back();
            lock(&IDLE).push(server);
        }
    }
}
