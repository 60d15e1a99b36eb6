//! The processes started by the tests, all of which end with the test process, even when it is killed.
//!
//! A small shell reads the started processes from a pipe. When the pipe closes, however this process ended, the
//! shell kills the remaining ones and removes the temporary folder.

use std::{
    env, fs,
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use rustix::fs::statvfs;

const SCRIPT: &str = r#"
trap '' HUP INT TERM
pids=
while read -r what pid; do
    case $what in
        started) pids="$pids $pid" ;;
        reaped) rest=; for p in $pids; do [ "$p" = "$pid" ] || rest="$rest $p"; done; pids=$rest ;;
    esac
done
[ -z "$pids" ] || kill -9 $pids 2>/dev/null
rm -rf "$1" "$2"
"#;

struct Guardian {
    shell: Child,
    pipe: Option<ChildStdin>,
    folder: PathBuf,
    /// In memory, where the system has a file system there.
    folder_in_memory: PathBuf,
}

fn guardian() -> MutexGuard<'static, Guardian> {
    static GUARDIAN: OnceLock<Mutex<Guardian>> = OnceLock::new();
    let guardian = GUARDIAN.get_or_init(|| {
        let mut folder = env::temp_dir();
        // A unix socket's path has room for about a hundred bytes.
        if folder.as_os_str().len() > 40 {
            folder = "/tmp".into();
        }
        folder.push(format!("lock-suite-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder can be made");
        let folder_in_memory = Path::new("/dev/shm").join(folder.file_name().expect("it was just pushed"));
        let folder_in_memory =
            if fs::create_dir_all(&folder_in_memory).is_ok() { folder_in_memory } else { folder.clone() };
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "guardian"])
            .args([&folder, &folder_in_memory])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("there is a shell");
        let pipe = shell.stdin.take();
        Mutex::new(Guardian { shell, pipe, folder, folder_in_memory })
    });
    guardian.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The folder of this process for temporary files; removed with the process.
pub fn folder() -> PathBuf {
    guardian().folder.clone()
}

/// The same, in memory where the system has a file system there: for servers that write each request to the disk.
pub fn folder_in_memory() -> PathBuf {
    guardian().folder_in_memory.clone()
}

/// The folder for the data of a server that is not large: in memory if there is room for many of them, because a busy disk
/// would keep a server from answering for a second.
pub fn folder_of_data() -> PathBuf {
    const ROOM: u64 = 2 << 30;
    static IS_ROOMY: OnceLock<bool> = OnceLock::new();
    let in_memory = folder_in_memory();
    let is_roomy = || statvfs(&in_memory).is_ok_and(|there| there.f_bavail * there.f_frsize >= ROOM);
    if *IS_ROOMY.get_or_init(is_roomy) { in_memory } else { folder() }
}

fn tell(what: &str, pid: u32) {
    if let Some(pipe) = &mut guardian().pipe {
        let _ = writeln!(pipe, "{what} {pid}");
    }
}

/// Ends the remaining processes. To be called once, at the end of `main`.
pub fn finish() {
    let mut guardian = guardian();
    guardian.pipe = None;
    let _ = guardian.shell.wait();
}

/// A process started by a test. Dropped, it is killed.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    pub fn start(command: &mut Command) -> std::io::Result<Self> {
        let child = command.spawn()?;
        tell("started", child.id());
        Ok(Self(child))
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).expect("the process can be signalled");
    }

    /// SIGSTOP: the process stands still, and its connections stay open.
    pub fn pause(&self) {
        self.signal(rustix::process::Signal::STOP);
        // On a busy machine its threads notice one after the other.
        let tasks = format!("/proc/{}/task", self.0.id());
        let runs = |task: &fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            !stat.rsplit(')').next().is_none_or(|rest| rest.is_empty() || rest.starts_with(" T"))
        };
        let run = || fs::read_dir(&tasks).is_ok_and(|tasks| tasks.flatten().any(|task| runs(&task)));
        let end = Instant::now() + Duration::from_secs(5);
        while run() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    /// Whether it is still running.
    pub fn lives(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        tell("reaped", self.0.id());
    }
}
