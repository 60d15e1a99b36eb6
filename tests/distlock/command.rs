//! The command `distlock`, started by a test.

use std::{
    fmt::Write as _,
    fs::{self, File},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant, SystemTime},
};

use lock_conformance::{
    Store,
    support::processes::{self, Process},
};
use rustix::process::{Pid, Signal, kill_process};

/// A test of one store, with its name.
pub type Named = (&'static str, fn(&'static dyn Store));

/// Time limit for anything that a test waits for; far longer than it takes.
pub const PATIENCE: Duration = Duration::from_secs(45);

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_distlock-under-test");

/// A new name in the temporary folder of this process.
pub fn new_path(what: &str) -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let folder = processes::folder().join("distlock");
    fs::create_dir_all(&folder).unwrap();
    folder.join(format!("{what}-{}", NUMBER.fetch_add(1, Ordering::Relaxed)))
}

/// A key that no other test has.
pub fn new_key() -> String {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    format!("distlock:{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Waits until a condition is met.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "{what}: not after {PATIENCE:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the command with these arguments, separated by blanks, on this store.
pub fn distlock(url: &str, arguments: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env("LOCK_URL", url).args(arguments.split(' ')).stdin(Stdio::null());
    command
}

/// `distlock run` of a script.
pub fn run(url: &str, key: &str, options: &str, script: &str) -> Command {
    let options = if options.is_empty() { String::new() } else { format!(" {options}") };
    let mut command = distlock(url, &format!("run {key}{options} --"));
    command.args(["sh", "-c", script, "script"]);
    command
}

/// A process whose output goes to files.
pub struct Running {
    process: Process,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let (out, err) = (new_path("out"), new_path("err"));
        command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
        Self { process: Process::start(command).unwrap(), out, err }
    }

    pub fn id(&mut self) -> u32 {
        self.process.child().id()
    }

    pub fn stdin(&mut self) -> std::process::ChildStdin {
        self.process.child().stdin.take().unwrap()
    }

    pub fn out(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.out).unwrap()).into_owned()
    }

    pub fn err(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.err).unwrap()).into_owned()
    }

    pub fn signal(&mut self, signal: Signal) {
        signal_to(self.id(), signal);
    }

    pub fn has_ended(&mut self) -> bool {
        !self.process.lives()
    }

    /// Waits for its end.
    pub fn status(&mut self) -> ExitStatus {
        let mut text = String::new();
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.child().try_wait().unwrap() {
                return status;
            }
            if Instant::now() > end {
                let _ = write!(text, "{}\n{}", self.out(), self.err());
                panic!("it does not end: {text}");
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits for its end; returns its exit status.
    pub fn code(&mut self) -> i32 {
        let status = self.status();
        status.code().unwrap_or_else(|| panic!("ended by {:?}: {}", status.signal(), self.err()))
    }
}

pub fn signal_to(id: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(id).unwrap()).unwrap(), signal).unwrap();
}

/// The result of a command that ends by itself.
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub err: String,
}

pub fn end_of(command: &mut Command) -> Ended {
    let mut running = Running::start(command);
    let code = running.code();
    Ended { code, out: running.out(), err: running.err() }
}

/// The children of a process, by `/proc`.
pub fn children_of(id: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    list.split_whitespace().map(|id| id.parse().unwrap()).collect()
}

/// A file to which the command writes lines, each with the time: as long as the command runs, it writes.
pub struct Beats(PathBuf);

/// Begins with a TERM that is written down, and does not end the script.
pub const STUBBORN: &str = "trap 'echo term >>\"$1\"' TERM; ";

impl Beats {
    pub fn new() -> Self {
        let path = new_path("beats");
        File::create(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Lets a command beat, after it has done what `before` says.
    pub fn begin(&self, url: &str, key: &str, options: &str, before: &str) -> Running {
        let script = format!("{before}while [ -e \"$1\" ]; do date +%s%N >>\"$1\"; sleep 0.02; done");
        let mut command = run(url, key, options, &script);
        let running = Running::start(command.arg(&self.0));
        self.goes_on();
        running
    }

    pub fn lines(&self) -> Vec<String> {
        fs::read_to_string(&self.0).unwrap().lines().map(str::to_owned).collect()
    }

    /// Waits for another beat.
    pub fn goes_on(&self) {
        let before = self.lines().len();
        until("the command beats", || self.lines().len() > before + 1);
    }

    /// The last beat, once there is none for a while.
    pub fn last(&self) -> SystemTime {
        let end = Instant::now() + PATIENCE / 4;
        loop {
            let before = self.lines().len();
            thread::sleep(Duration::from_millis(300));
            let lines = self.lines();
            if lines.len() == before {
                let times = lines.iter().filter_map(|line| line.parse().ok());
                return SystemTime::UNIX_EPOCH + Duration::from_nanos(times.max().expect("it has beaten"));
            }
            assert!(Instant::now() < end, "the command goes on");
        }
    }
}
