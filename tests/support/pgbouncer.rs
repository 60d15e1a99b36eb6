//! A PgBouncer in front of a PostgreSQL server.

#![allow(dead_code, reason = "each program that tests uses a part of it")]

use std::{
    fs,
    os::unix::{fs::chown, net::UnixStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{
    PATIENCE,
    postgres_server::{PostgresServer, as_other_user, other_user},
    processes::{self, Process},
};

/// Its path on Debian.
const PROGRAM: &str = "/usr/sbin/pgbouncer";

#[derive(Debug)]
pub struct PgBouncer {
    process: Process,
    folder: PathBuf,
}

impl PgBouncer {
    /// Starts one with this `pool_mode`.
    pub fn start(server: &PostgresServer, mode: &str) -> Self {
        Self::start_with_pool(server, mode, 30)
    }

    /// Starts one with at most this many connections to the server.
    pub fn start_with_pool(server: &PostgresServer, mode: &str, size: u32) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let folder =
            processes::folder().join(format!("pgbouncer-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir_all(&folder).expect("a temporary folder can be made");
        let config = format!(
            "[databases]\npostgres = host={} port=5432 user=postgres\n[pgbouncer]\nlisten_addr =\nlisten_port = 5432\n\
             unix_socket_dir = {}\nauth_type = any\npool_mode = {mode}\nmax_client_conn = 1000\ndefault_pool_size = {size}\n\
             server_login_retry = 0.05\nserver_check_delay = 0\n",
            server.folder().display(),
            folder.display(),
        );
        fs::write(folder.join("ini"), config).expect("the folder takes files");
        if let Some((user, group)) = other_user() {
            chown(&folder, Some(user), Some(group)).expect("root may do that");
        }
        let log = fs::File::create(folder.join("log")).expect("the folder takes files");
        let mut command = Command::new(PROGRAM);
        as_other_user(&mut command)
            .arg(folder.join("ini"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let process = Process::start(&mut command).expect("pgbouncer can be started");
        let bouncer = Self { process, folder };
        let end = Instant::now() + PATIENCE;
        while UnixStream::connect(bouncer.socket()).is_err() {
            let log = || fs::read_to_string(bouncer.folder.join("log")).unwrap_or_default();
            assert!(Instant::now() < end, "pgbouncer does not listen; its log:\n{}", log());
            thread::sleep(Duration::from_millis(2));
        }
        bouncer
    }

    /// The folder of its socket.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join(".s.PGSQL.5432")
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        self.process.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
