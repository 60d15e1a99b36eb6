//! A Redis server that belongs to one test.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{
    PATIENCE,
    processes::{self, Process},
    resp::{self, Value},
    wall_clock::Clock,
};

/// The log is rewritten before it is large: a file system in memory may be small.
const DURABLE: &[&str] =
    &["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-min-size", "4mb"];

/// The file of the configuration, in the server's folder.
const CONFIG: &str = "config";

/// Listens on a unix socket, so there is no race for a port; a [`Proxy`](super::proxy::Proxy) gives it one.
#[derive(Debug)]
pub struct RedisServer {
    process: Process,
    folder: PathBuf,
    socket: PathBuf,
    settings: Vec<String>,
    clock: Option<Clock>,
    /// Whether its data outlasts it.
    keeps_data: bool,
}

impl RedisServer {
    /// Starts one with these settings in addition to the usual ones, for example `["--requirepass", "secret"]`.
    pub fn start(settings: &[&str]) -> Self {
        Self::start_with(&processes::folder_of_data(), settings, None)
    }

    /// Starts one that writes everything to the disk before it answers. All the same it loses its data when it ends, as if
    /// its disk had been lost, until it is told to [`persist`](Self::persist) them.
    pub fn start_durable(settings: &[&str]) -> Self {
        Self::start_with(&processes::folder_in_memory(), &[DURABLE, settings].concat(), None)
    }

    /// Starts a [durable](Self::start_durable) one whose wall clock can be moved.
    pub fn start_durable_with_clock(settings: &[&str]) -> Self {
        Self::start_with(&processes::folder_in_memory(), &[DURABLE, settings].concat(), Some(Clock::new()))
    }

    /// Starts one whose wall clock can be moved.
    pub fn start_with_clock(settings: &[&str]) -> Self {
        Self::start_with(&processes::folder_of_data(), settings, Some(Clock::new()))
    }

    /// Starts one with the text of a configuration, which the server may rewrite, and settings that come after it.
    pub fn start_configured(config: &str, settings: &[String], with_clock: bool) -> Self {
        let settings: Vec<_> = settings.iter().map(String::as_str).collect();
        Self::start_in(&processes::folder_of_data(), config, &settings, with_clock.then(Clock::new))
    }

    fn start_with(folder: &Path, settings: &[&str], clock: Option<Clock>) -> Self {
        Self::start_in(folder, "", settings, clock)
    }

    fn start_in(folder: &Path, config: &str, settings: &[&str], clock: Option<Clock>) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let folder = folder.join(format!("redis-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir_all(&folder).expect("a temporary folder can be made");
        // A Sentinel does not start without a configuration.
        fs::write(folder.join(CONFIG), config).expect("the temporary folder is writable");
        let socket = folder.join("s");
        let settings: Vec<String> = settings.iter().copied().map(str::to_owned).collect();
        let process = launch(&folder, &socket, &settings, clock.as_ref());
        Self { process, folder, socket, settings, clock, keeps_data: false }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Runs one command on its own connection.
    pub fn command(&self, words: &[&str]) -> Value {
        resp::command(&self.socket, words).expect("the server answers")
    }

    /// Number of times that this command, in lower case, was called since the start, also by scripts.
    pub fn calls(&self, command: &str) -> u64 {
        let Value::Text(stats) = self.command(&["INFO", "commandstats"]) else { panic!("INFO is a text") };
        let prefix = format!("cmdstat_{command}:calls=");
        let calls = stats.lines().find_map(|line| line.strip_prefix(&prefix));
        calls.map_or(0, |calls| calls.split(',').next().unwrap_or_default().parse().expect("a number"))
    }

    /// Whether it runs, or is paused.
    pub fn lives(&mut self) -> bool {
        self.process.lives()
    }

    pub fn pause(&self) {
        self.process.pause();
    }

    /// Ends a pause, or starts it again after it was killed.
    pub fn bring_back(&mut self) {
        if self.process.lives() {
            self.process.resume();
        } else {
            self.launch();
        }
    }

    fn launch(&mut self) {
        if !self.keeps_data {
            let _ = fs::remove_dir_all(self.folder.join("appendonlydir"));
        }
        self.process = launch(&self.folder, &self.socket, &self.settings, self.clock.as_ref());
    }

    /// `None` unless it was [started with one](Self::start_with_clock).
    pub fn clock(&self) -> Option<&Clock> {
        self.clock.as_ref()
    }

    /// SIGKILL: data that is not on disk is lost.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again in the same place.
    pub fn restart(&mut self) {
        self.process.kill();
        self.launch();
    }

    /// From now on everything is on disk before it is answered, and a restart loses nothing.
    pub fn persist(&mut self) {
        self.keeps_data = true;
        for (setting, value) in [("appendfsync", "always"), ("appendonly", "yes")] {
            self.settings.extend([format!("--{setting}"), value.to_owned()]);
            assert_eq!(self.command(&["CONFIG", "SET", setting, value]), Value::Text("OK".into()));
        }
        let end = Instant::now() + PATIENCE;
        loop {
            let Value::Text(info) = self.command(&["INFO", "persistence"]) else { panic!("INFO is a text") };
            if ["aof_enabled:1", "aof_rewrite_scheduled:0", "aof_rewrite_in_progress:0"]
                .iter()
                .all(|line| info.contains(line))
            {
                return;
            }
            assert!(Instant::now() < end, "the log is not written: {info}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.process.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The program of the servers: the installed one, unless `LOCK_TEST_REDIS_SERVER` names another.
fn program() -> OsString {
    env::var_os("LOCK_TEST_REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

fn launch(folder: &Path, socket: &Path, settings: &[String], clock: Option<&Clock>) -> Process {
    let log = fs::File::create(folder.join("log")).expect("the temporary folder is writable");
    // Left by a killed server.
    let _ = fs::remove_file(socket);
    let mut command = Command::new(program());
    command
        .arg(folder.join(CONFIG))
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
        .arg(socket)
        .arg("--dir")
        .arg(folder)
        .args(settings)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(Stdio::null());
    if let Some(clock) = clock {
        clock.give_to(&mut command);
    }
    let process = Process::start(&mut command).expect("the server can be started");
    let end = Instant::now() + PATIENCE;
    // Any answer will do: a server that asks for a password is up.
    while !matches!(resp::command(socket, &["PING"]), Ok(Value::Text(_) | Value::Error(_))) {
        let log = || fs::read_to_string(folder.join("log")).unwrap_or_default();
        assert!(Instant::now() < end, "the server does not answer; its log:\n{}", log());
        thread::sleep(Duration::from_millis(2));
    }
    process
}
