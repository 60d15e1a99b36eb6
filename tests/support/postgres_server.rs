//! A PostgreSQL server that belongs to one test.

#![allow(dead_code, reason = "each program that tests uses a part of it")]

use std::{
    fs,
    io::ErrorKind,
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    postgres_protocol::{Rows, Session},
    preload::preload,
    processes::{self, Process},
    wall_clock::Clock,
};

/// Recovery after a crash takes a while on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// The user that has to give a password.
pub const USER: &str = "locks";
/// Raises the error of a full queue of notifications.
pub const QUEUE_IS_FULL: &str =
    "RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000'";
/// The name of the real `pg_notify` while another function has its place.
const BUILT_IN_NOTIFY: &str = "built_in_notify";
/// Changes nothing, but each session looks up the functions of its prepared statements again once a schema was changed.
const FORGET_PLANS: &str = "GRANT USAGE ON SCHEMA pg_catalog TO PUBLIC";

/// Listens on a unix socket, so there is no race for a port; a [`Proxy`](super::proxy::Proxy) gives it one.
#[derive(Debug)]
pub struct PostgresServer {
    process: Process,
    folder: PathBuf,
    clock: Option<Clock>,
    settings: Vec<String>,
    /// Of [`query`](Self::query): one for each question would cost the server a process.
    asking: Mutex<Option<Session>>,
}

impl PostgresServer {
    /// Starts one with these settings in addition to the usual ones, for example `["max_connections=20"]`.
    pub fn start(settings: &[&str]) -> Self {
        Self::start_with(settings, None)
    }

    /// Starts one whose wall clock can be moved.
    pub fn start_with_clock(settings: &[&str]) -> Self {
        Self::start_with(settings, Some(Clock::new()))
    }

    /// Starts a replica, with the same settings; `SELECT pg_promote()` makes it a primary. This server needs
    /// `wal_level=replica` and `max_wal_senders`.
    #[must_use]
    pub fn start_replica(&self) -> Self {
        let folder = new_folder();
        make_folder(&folder);
        let copied = program("pg_basebackup")
            .args(["-U", "postgres", "--checkpoint=fast", "--no-sync", "--write-recovery-conf", "-h"])
            .arg(&self.folder)
            .arg("-D")
            .arg(folder.join("data"))
            .output()
            .expect("pg_basebackup can be started");
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        let settings = self.settings.clone();
        let process = launch(&folder, &settings, None);
        Self { process, folder, clock: None, settings, asking: Mutex::default() }
    }

    fn start_with(settings: &[&str], clock: Option<Clock>) -> Self {
        let folder = new_folder();
        let copied = Command::new("cp").arg("-a").arg(template()).arg(&folder).status();
        assert!(copied.is_ok_and(|status| status.success()), "the template can be copied");
        let settings: Vec<String> = settings.iter().copied().map(str::to_owned).collect();
        let process = launch(&folder, &settings, clock.as_ref());
        Self { process, folder, clock, settings, asking: Mutex::default() }
    }

    /// The folder of its socket.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn socket(&self) -> PathBuf {
        socket(&self.folder)
    }

    /// What it has logged since it was started last.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).expect("it logs into a file")
    }

    pub fn session(&self) -> Session {
        Session::connect(&self.socket()).expect("the server answers")
    }

    /// Executes statements, in a session that lasts as long as the server.
    pub fn query(&self, text: &str) -> Rows {
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = match asking.as_mut().map(|session| session.query(text)) {
            Some(Err(error)) if error.kind() != ErrorKind::Other => None,
            answer => answer,
        };
        let answer = answer.unwrap_or_else(|| asking.insert(self.session()).query(text));
        answer.unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// The value in the first row and column.
    pub fn value(&self, text: &str) -> Option<String> {
        self.query(text).into_iter().next()?.into_iter().next()?
    }

    /// `None` unless it was [started with one](Self::start_with_clock).
    pub fn clock(&self) -> Option<&Clock> {
        self.clock.as_ref()
    }

    /// Ends the sessions of all other clients, as an operator does with `pg_terminate_backend`. None of them does anything in
    /// between, such as taking the lock of a session that has ended.
    pub fn terminate_clients(&self) {
        let rows = self.query(
            "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
        );
        let pids: Vec<i32> =
            rows.into_iter().flatten().flatten().map(|pid| pid.parse().expect("an ID")).collect();
        for signal in [Signal::STOP, Signal::TERM, Signal::CONT] {
            for client in pids.iter().filter_map(|&pid| Pid::from_raw(pid)) {
                let _ = kill_process(client, signal);
            }
        }
    }

    /// SIGSTOP for all of its processes.
    pub fn pause(&mut self) {
        self.process.pause();
        self.signal_children(Signal::STOP);
    }

    /// Ends a pause, or starts it again after it was killed.
    pub fn bring_back(&mut self) {
        if self.process.lives() {
            self.signal_children(Signal::CONT);
            self.process.resume();
        } else {
            self.process = launch(&self.folder, &self.settings, self.clock.as_ref());
        }
    }

    /// SIGKILL for all of its processes.
    pub fn kill(&mut self) {
        kill(&mut self.process, &self.folder);
    }

    /// Kills it, and starts it again with its data.
    pub fn restart(&mut self) {
        self.kill();
        self.bring_back();
    }

    /// From now on, no file can grow, and no page of this table has room for another row.
    pub fn fill(&self, table: &str) {
        let mut session = self.session();
        // Earlier cases may have left pages with room, which other sessions know of. Afterwards, only the last page is tried.
        session.query(&format!("VACUUM FULL {table}")).expect("the table can be written anew");
        fs::write(disk_full(&self.folder), "").expect("the temporary folder is writable");
        let filler = |number: u32| {
            format!(
                "INSERT INTO {table} (name, version, expires_at) VALUES ('filler {number}', 0, '-infinity')"
            )
        };
        let mut fillers = (0..10_000).map(filler);
        // Old versions of rows leave a page when it is read, no statement can see them, and less than what `fillfactor`
        // reserves is free: an update sees to that. In one of the rounds, all old versions have left.
        for _ in 0..20 {
            for sql in
                ["UPDATE {table} SET holder = '' WHERE name = 'filler 0'", "SELECT count(*) FROM {table}"]
            {
                session.query(&sql.replace("{table}", table)).expect("rows have room to change");
            }
            let refusal = fillers.find_map(|filler| session.query(&filler).err()).expect("it is full");
            assert!(refusal.to_string().contains("No space left on device"), "{refusal}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Files can grow again.
    pub fn make_room(&self) {
        let _ = fs::remove_file(disk_full(&self.folder));
    }

    /// From now on, each `pg_notify` is refused as with a full queue.
    pub fn refuse_notifications(&self) {
        self.replace_notify(&format!("{QUEUE_IS_FULL};"));
    }

    /// Puts a function with this body in the place of `pg_notify`, until [`accept_notifications`](Self::accept_notifications).
    ///
    /// The function is a new one: the server runs a built-in function by its number, whatever `CREATE OR REPLACE FUNCTION`
    /// has written into the catalog.
    pub fn replace_notify(&self, body: &str) {
        self.query(&format!(
            "ALTER FUNCTION pg_catalog.pg_notify(text, text) RENAME TO {BUILT_IN_NOTIFY}; \
             CREATE FUNCTION pg_catalog.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN {body} END $$; \
             {FORGET_PLANS}"
        ));
    }

    /// Ends [`replace_notify`](Self::replace_notify), if it was called.
    pub fn accept_notifications(&self) {
        let built_in = format!("pg_catalog.{BUILT_IN_NOTIFY}(text, text)");
        if self.value(&format!("SELECT to_regprocedure('{built_in}')")).is_some() {
            self.query(&format!(
                "DROP FUNCTION pg_catalog.pg_notify(text, text); ALTER FUNCTION {built_in} RENAME TO pg_notify; \
                 {FORGET_PLANS}"
            ));
        }
    }

    fn signal_children(&mut self, signal: Signal) {
        for child in children(&mut self.process) {
            let _ = kill_process(child, signal);
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn kill(process: &mut Process, folder: &Path) {
    let children = children(process);
    process.kill();
    for child in children {
        let _ = kill_process(child, Signal::KILL);
    }
    remove_segment(folder);
}

/// Removes the segment of shared memory that a killed server leaves. The system has a few thousand in all.
fn remove_segment(folder: &Path) {
    let state = fs::read_to_string(folder.join("data/postmaster.pid")).unwrap_or_default();
    // The seventh line has its key and its number.
    if let Some(number) = state.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
        let _ = Command::new("ipcrm").args(["-m", number]).stderr(Stdio::null()).status();
    }
}

/// Each has a session and a group of its own, so they are found by their parent.
fn children(process: &mut Process) -> Vec<Pid> {
    let parent = process.child().id().to_string();
    let stats = fs::read_dir("/proc").expect("there is a list of processes").flatten();
    stats
        .filter_map(|entry| {
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let (_, rest) = stat.rsplit_once(')')?;
            let is_child = rest.split_whitespace().nth(1) == Some(&parent);
            let pid = entry.file_name().to_str()?.parse().ok()?;
            is_child.then(|| Pid::from_raw(pid)).flatten()
        })
        .collect()
}

/// While this file exists, the disk is full.
fn disk_full(folder: &Path) -> PathBuf {
    folder.join("full")
}

fn socket(folder: &Path) -> PathBuf {
    folder.join(".s.PGSQL.5432")
}

/// The newest version on this machine.
fn bin() -> &'static Path {
    static BIN: OnceLock<PathBuf> = OnceLock::new();
    BIN.get_or_init(|| {
        let of =
            |version: &fs::DirEntry| version.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let versions = fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL is installed").flatten();
        let newest = versions.max_by_key(|version| of(version)).expect("PostgreSQL is installed");
        newest.path().join("bin")
    })
}

/// A program of PostgreSQL, which refuses to run as root.
fn program(name: &str) -> Command {
    let mut command = Command::new(bin().join(name));
    as_other_user(&mut command).stdin(Stdio::null()).env_remove("PGDATA");
    command
}

/// Lets a program run as the user that the package made, if this process runs as root.
pub fn as_other_user(command: &mut Command) -> &mut Command {
    if let Some((user, group)) = other_user() {
        command.uid(user).gid(group);
    }
    command
}

/// The user that the package made, if this process runs as root.
pub fn other_user() -> Option<(u32, u32)> {
    if !rustix::process::getuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("there are users");
    let line = users.lines().find(|line| line.starts_with("postgres:")).expect("the package made its user");
    let number = |at| line.split(':').nth(at).and_then(|number| number.parse().ok()).expect("a number");
    Some((number(2), number(3)))
}

/// The folder of a new server; it does not exist yet.
fn new_folder() -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    processes::folder_of_data().join(format!("postgres-{}", NUMBER.fetch_add(1, Ordering::Relaxed)))
}

/// Makes a folder that belongs to the user of PostgreSQL's programs.
fn make_folder(folder: &Path) {
    fs::create_dir_all(folder).expect("the temporary folder is writable");
    if let Some((user, group)) = other_user() {
        chown(folder, Some(user), Some(group)).expect("root may do that");
    }
}

/// Data of a new server, with the user [`USER`], to be copied.
fn template() -> &'static Path {
    static TEMPLATE: OnceLock<PathBuf> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let folder = processes::folder_of_data().join("postgres-template");
        make_folder(&folder);
        let made = program("initdb")
            .args([
                "-U",
                "postgres",
                "-A",
                "trust",
                "--no-sync",
                "--no-locale",
                "-E",
                "UTF8",
                "--wal-segsize=1",
                "-D",
            ])
            .arg(folder.join("data"))
            .output()
            .expect("initdb can be started");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let access =
            format!("local all {USER} scram-sha-256\nlocal all all trust\nlocal replication all trust\n");
        fs::write(folder.join("data/pg_hba.conf"), access).expect("the folder takes files");
        let mut process = launch(&folder, &[], None);
        // Less to copy.
        let unused = "ALTER DATABASE template0 IS_TEMPLATE false";
        for sql in [&format!("CREATE ROLE {USER} LOGIN"), unused, "DROP DATABASE template0", "CHECKPOINT"] {
            let mut session = Session::connect(&socket(&folder)).expect("the server answers");
            session.query(sql).expect(sql);
        }
        // A clean shutdown, so that copies need no recovery.
        let pid = Pid::from_child(process.child());
        kill_process(pid, Signal::INT).expect("it runs");
        let _ = process.child().wait();
        folder
    })
}

fn launch(folder: &Path, settings: &[String], clock: Option<&Clock>) -> Process {
    // Servers that start at the same time would starve each other, and the running tests, of CPU.
    static STARTING: Mutex<()> = Mutex::new(());
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    let end = Instant::now() + PATIENCE;
    loop {
        remove_segment(folder);
        let _ = fs::remove_file(folder.join("data/postmaster.pid"));
        let log = fs::File::create(folder.join("log")).expect("the temporary folder is writable");
        let mut command = program("postgres");
        command.arg("-D").arg(folder.join("data")).arg("-k").arg(folder);
        // Crashes of the machine are not part of the tests.
        for setting in [
            "listen_addresses=",
            "fsync=off",
            "full_page_writes=off",
            "max_connections=400",
            // Small: there are many servers.
            "shared_buffers=8MB",
            "autovacuum=off",
            // Not in a place that a killed server would leave full.
            "dynamic_shared_memory_type=mmap",
            "wal_level=minimal",
            "max_wal_senders=0",
            "max_logical_replication_workers=0",
        ] {
            command.args(["-c", setting]);
        }
        for setting in settings {
            command.args(["-c", setting]);
        }
        preload(&mut command, "no_session", include_str!("no_session.c"));
        preload(&mut command, "disk_full", include_str!("disk_full.c"));
        command.env("LOCK_TEST_DISK_FULL", disk_full(folder));
        command.stdout(Stdio::null()).stderr(log);
        if let Some(clock) = clock {
            clock.give_to(&mut command);
        }
        let mut process = Process::start(&mut command).expect("postgres can be started");
        while process.lives() {
            // A question that comes too early would cost the server a process.
            let state = fs::read_to_string(folder.join("data/postmaster.pid")).unwrap_or_default();
            let may_answer =
                state.lines().last().is_some_and(|line| matches!(line.trim(), "ready" | "standby"));
            if may_answer && Session::connect(&socket(folder)).is_ok() {
                return process;
            }
            let log = || fs::read_to_string(folder.join("log")).unwrap_or_default();
            assert!(Instant::now() < end, "postgres does not answer; its log:\n{}", log());
            thread::sleep(Duration::from_millis(5));
        }
        // Processes of a server that was killed may still be ending.
        let log = || fs::read_to_string(folder.join("log")).unwrap_or_default();
        assert!(Instant::now() < end, "postgres does not start; its log:\n{}", log());
        thread::sleep(Duration::from_millis(20));
    }
}
