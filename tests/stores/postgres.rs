//! `postgres:`, a table of a PostgreSQL database: directly, and behind a pooler that gives each transaction another
//! connection; and `postgres+advisory:`, its advisory locks.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lock_runtime::{LockErrorKind, backend::Capabilities};

use crate::support::{
    pgbouncer::PgBouncer,
    postgres_protocol::Session,
    postgres_server::{PostgresServer, USER},
    proxy::{Proxy, Upstream},
};
use lock_conformance::{CANARY, Fault, Server, Site};

pub const STORES: &[&dyn lock_conformance::Store] = &[
    &Store { name: "postgres", kind: Kind::Rows { pooled: false } },
    &Store { name: "postgres_advisory", kind: Kind::Advisory },
];
const LARGE: &[&dyn lock_conformance::Store] =
    &[&Store { name: "postgres_pooled", kind: Kind::Rows { pooled: true } }];
/// The package `postgresql` has its server outside of the path.
pub const NEEDS: &[(&str, &str)] =
    &[("/usr/lib/postgresql", "postgresql"), ("/usr/sbin/pgbouncer", "pgbouncer")];

inventory::submit!(super::File {
    is_compiled_in: cfg!(feature = "postgres"),
    is_large: false,
    stores: STORES
});
// A pooler for each case, and as many servers as each of the other stores has: together, they keep two processors from the
// cases that measure how long something takes.
inventory::submit!(super::File { is_compiled_in: cfg!(feature = "postgres"), is_large: true, stores: LARGE });

struct Store {
    name: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rows { pooled: bool },
    Advisory,
}

/// The session timeout of advisory locks.
const SESSION: Duration = Duration::from_secs(2);

/// The server of all cases that do not hurt it.
static SHARED: Mutex<Option<Arc<Mutex<PostgresServer>>>> = Mutex::new(None);
/// The pooler in front of it.
static SHARED_POOLER: Mutex<Option<Arc<PgBouncer>>> = Mutex::new(None);
/// Servers of finished cases: a copy of the data takes long, and no case sees the locks of another.
static IDLE: Mutex<Vec<PostgresServer>> = Mutex::new(Vec::new());

impl lock_conformance::Store for Store {
    fn name(&self) -> &'static str {
        self.name
    }

    fn needs(&self) -> &'static [(&'static str, &'static str)] {
        NEEDS
    }

    fn capabilities(&self) -> Capabilities {
        let capabilities =
            Capabilities::new().shared_between_processes().telling_of_waiters().with_default_prefix("");
        match self.kind {
            Kind::Rows { .. } => capabilities.showing_locks().revoking(),
            Kind::Advisory => capabilities.showing_locks().revoking().with_session_timeout(SESSION),
        }
    }

    fn has_connections(&self) -> bool {
        true
    }

    fn offers(&self, fault: Fault) -> bool {
        // Advisory locks are no data.
        !fault.is_of_a_minority() && (self.kind != Kind::Advisory || fault != Fault::DataLost)
    }

    fn holds_end_with_their_connection(&self) -> bool {
        self.kind == Kind::Advisory
    }

    fn has_passwords(&self) -> bool {
        // The pooler has users of its own.
        self.kind != Kind::Rows { pooled: true }
    }

    fn poll_pause(&self) -> Option<Duration> {
        Some(Duration::from_millis(350))
    }

    fn groups_of_another(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Rows { .. } => &[],
            Kind::Advisory => super::ABOVE_THE_STORES,
        }
    }

    fn site(&self, server: Server) -> Box<dyn Site> {
        let pooler_of = |server: &PostgresServer| Arc::new(PgBouncer::start(server, "transaction"));
        let is_behind = self.kind == Kind::Rows { pooled: true };
        let (server, pooler, proxy) = match server {
            Server::Shared => {
                let start = || Arc::new(Mutex::new(PostgresServer::start(&[])));
                let server = Arc::clone(lock(&SHARED).get_or_insert_with(start));
                let start = || pooler_of(&lock(&server));
                let pooler = is_behind.then(|| Arc::clone(lock(&SHARED_POOLER).get_or_insert_with(start)));
                (server, pooler, None)
            }
            Server::Own | Server::OwnWithClock => {
                let idle = if server == Server::Own { lock(&IDLE).pop() } else { None };
                let start = || match server {
                    Server::OwnWithClock => PostgresServer::start_with_clock(&[]),
                    Server::Own | Server::Shared => PostgresServer::start(&[]),
                };
                let server = idle.unwrap_or_else(start);
                let pooler = is_behind.then(|| pooler_of(&server));
                let socket = pooler.as_ref().map_or_else(|| server.socket(), |pooler| pooler.socket());
                let proxy = Proxy::start(Upstream::Unix(socket));
                (Arc::new(Mutex::new(server)), pooler, Some(proxy))
            }
        };
        Box::new(PostgresSite {
            kind: self.kind,
            server: Some(server),
            pooler,
            proxy,
            locking: Mutex::default(),
        })
    }

    fn bad_urls(&self) -> Vec<(String, LockErrorKind)> {
        let scheme = self.kind.scheme();
        let bad = |rest: &str| (format!("{scheme}:{rest}"), LockErrorKind::InvalidOptions);
        vec![
            bad(""),
            bad(&format!("//user:{CANARY}@host:99999")),
            bad(&format!("//user:{CANARY}@host:port")),
            bad(&format!("//user:{CANARY}@host,host/db")),
            bad(&format!("//user:{CANARY}@host/db?unknown=1")),
            bad(&format!("//user:{CANARY}@host/db?table=a%20b")),
            bad(&format!("//user:{CANARY}@[::1")),
            // Understood, but there is no server.
            (format!("{scheme}://user:{CANARY}@127.0.0.1:1"), LockErrorKind::Backend),
            (
                format!("{}://user:{CANARY}@host.invalid/db", scheme.replace("postgres", "postgresql")),
                LockErrorKind::Backend,
            ),
        ]
    }

    /// Each connection costs the server a process, and when a fault ends, many begin and end.
    fn own_servers_at_once(&self) -> usize {
        4
    }

    fn finish(&self) {
        *lock(&SHARED_POOLER) = None;
        *lock(&SHARED) = None;
        lock(&IDLE).clear();
    }
}

impl Kind {
    fn scheme(self) -> &'static str {
        match self {
            Self::Rows { .. } => "postgres",
            Self::Advisory => "postgres+advisory",
        }
    }

    /// The end of each URL.
    fn settings(self, lease: Duration) -> String {
        let common = "create_table=true&sslmode=disable";
        match self {
            Self::Rows { .. } => common.into(),
            Self::Advisory => format!("{common}&session_timeout={}ms", lease.as_millis()),
        }
    }
}

struct PostgresSite {
    kind: Kind,
    server: Option<Arc<Mutex<PostgresServer>>>,
    /// Between the clients, or the proxy, and the server.
    pooler: Option<Arc<PgBouncer>>,
    /// Between the clients and a server that may be hurt.
    proxy: Option<Proxy>,
    /// Of a client that has locked the table.
    locking: Mutex<Option<Session>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A text as a literal of SQL.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

impl PostgresSite {
    fn server(&self) -> MutexGuard<'_, PostgresServer> {
        lock(self.server.as_ref().expect("there until it is dropped"))
    }

    fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().expect("a case that hurts its server has one of its own")
    }

    /// The processes of the server that have the advisory lock of this name.
    fn holders(&self, name: &str) -> Vec<String> {
        let lock = sqlx::postgres::PgAdvisoryLock::new(name);
        let number = lock.key().as_bigint().expect("a lock of a name has one number");
        let text = format!(
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted \
             AND (classid::bigint << 32) + objid::bigint = {number}"
        );
        self.server().query(&text).into_iter().flatten().flatten().collect()
    }

    /// The table is created by the first client.
    fn forget(&self) {
        let table = "to_regclass('distributed_locks') IS NOT NULL";
        if self.server().value(&format!("SELECT {table}")).as_deref() == Some("t") {
            self.server().query("DELETE FROM distributed_locks");
        }
    }
}

impl Site for PostgresSite {
    fn url(&self) -> String {
        self.url_for_leases_of(SESSION)
    }

    fn url_for_leases_of(&self, lease: Duration) -> String {
        match &self.proxy {
            Some(proxy) => {
                let (scheme, settings) = (self.kind.scheme(), self.kind.settings(lease));
                format!("{scheme}://postgres@{}/postgres?{settings}", proxy.address())
            }
            None => self.url_past_faults(),
        }
    }

    fn url_past_faults(&self) -> String {
        let of_server = || self.server().folder().display().to_string();
        let folder =
            self.pooler.as_ref().map_or_else(of_server, |pooler| pooler.folder().display().to_string());
        let (scheme, settings) = (self.kind.scheme(), self.kind.settings(SESSION));
        format!("{scheme}:///postgres?host={folder}&user=postgres&{settings}")
    }

    fn url_with_password(&self, password: &str) -> String {
        self.server().query(&format!(
            "ALTER ROLE {USER} PASSWORD '{CANARY}'; GRANT CREATE ON SCHEMA public TO {USER}; GRANT ALL ON ALL TABLES IN SCHEMA public TO {USER}"
        ));
        let address = self.proxy().address();
        let (scheme, settings) = (self.kind.scheme(), self.kind.settings(SESSION));
        format!("{scheme}://{USER}:{password}@{address}/postgres?{settings}")
    }

    fn left(&self, mark: &str) -> Vec<String> {
        let mark = quoted(&format!("%{mark}%"));
        if self.kind == Kind::Advisory {
            let text = format!("SELECT name FROM distributed_locks WHERE name LIKE {mark}");
            let rows = self.server().query(&text);
            let names = rows.into_iter().flatten().flatten();
            let locks = names.filter_map(|row| Some(row.split_once('\t')?.1.to_owned()));
            return locks.flat_map(|name| self.holders(&name)).collect();
        }
        let text = format!(
            "SELECT name || ' of ' || owner FROM distributed_locks WHERE name LIKE {mark} AND owner IS NOT NULL AND \
             expires_at > clock_timestamp()"
        );
        let rows = self.server().query(&text);
        rows.into_iter().flatten().flatten().collect()
    }

    fn lose(&self, key: &str) -> bool {
        if self.kind == Kind::Advisory {
            let holders = self.holders(key);
            for pid in &holders {
                // Waits for its end.
                self.server().query(&format!("SELECT pg_terminate_backend({pid}, 10000)"));
            }
            return !holders.is_empty();
        }
        let key = quoted(key);
        let text = format!(
            "UPDATE distributed_locks SET owner = NULL WHERE name = {key} AND owner IS NOT NULL RETURNING name"
        );
        !self.server().query(&text).is_empty()
    }

    fn hurt(&self, fault: Fault) {
        match fault {
            Fault::Killed => {
                self.forget();
                self.server().kill();
            }
            Fault::Paused => self.server().pause(),
            Fault::DataLost => self.forget(),
            Fault::Restarted => {
                self.forget();
                self.server().restart();
            }
            Fault::RestartedWithItsData => self.server().restart(),
            Fault::ForgetsCaches => self.server().terminate_clients(),
            Fault::Full => self.server().fill("distributed_locks"),
            Fault::Unnotified => self.server().refuse_notifications(),
            Fault::OneConnection => {
                self.server().query(&format!("ALTER ROLE {USER} CONNECTION LIMIT 1"));
            }
            Fault::RecordsLocked => {
                let mut session = self.server().session();
                session.query("BEGIN; LOCK TABLE distributed_locks").expect("it can be locked");
                *lock(&self.locking) = Some(session);
            }
            Fault::ClockForward(by) => self.server().clock().expect("asked for").set_forward(by),
            Fault::ClockBack(by) => self.server().clock().expect("asked for").set_back(by),
            fault => super::hurt_network(self.proxy(), fault),
        }
    }

    fn heal(&self) {
        if let Some(mut session) = lock(&self.locking).take() {
            session.query("ROLLBACK").expect("it is unlocked");
        }
        self.proxy().heal();
        let mut server = self.server();
        server.make_room();
        server.bring_back();
        server.accept_notifications();
        server.query(&format!("ALTER ROLE {USER} CONNECTION LIMIT -1"));
        if let Some(clock) = server.clock() {
            clock.set_right();
        }
    }

    fn lost_an_answer(&self) -> bool {
        !self.proxy().keep_answers()
    }

    fn connections(&self) -> u64 {
        self.proxy().accepted()
    }
}

impl Drop for PostgresSite {
    fn drop(&mut self) {
        self.pooler = None;
        if self.proxy.take().is_some()
            && let Some(server) = self.server.take().and_then(Arc::into_inner)
        {
            let mut server = server.into_inner().unwrap_or_else(PoisonError::into_inner);
            if server.clock().is_none() {
                server.make_room();
                server.bring_back();
                server.accept_notifications();
                // What it granted to clients of the finished case, and their sessions.
                server.terminate_clients();
                lock(&IDLE).push(server);
            }
        }
    }
}
