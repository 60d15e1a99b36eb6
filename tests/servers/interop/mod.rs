//! Locks shared with clients of other projects, each in its own process.
//!
//! `tests/run interop` installs them and names them in the environment; without that the tests are not run.

mod journal;
mod redis;
mod redisson;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{ChildStdin, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use crate::support::processes::{self, Process};

const LONG: Duration = Duration::from_mins(1);

/// A process that reads one command a line and answers one line. Dropped, it is killed.
struct Contender {
    process: Process,
    stdin: ChildStdin,
    answers: mpsc::Receiver<String>,
}

impl Contender {
    fn start(mut command: Command) -> Self {
        let mut process = Process::start(command.stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
        let stdin = process.child().stdin.take().unwrap();
        let stdout = process.child().stdout.take().unwrap();
        let (send, answers) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let this = Self { process, stdin, answers };
        // A test program prints its name first.
        while this.answer(LONG) != "ready" {}
        this
    }

    /// Kills it; returns its process id.
    fn kill(&mut self) -> u32 {
        let child = self.process.child();
        child.kill().unwrap();
        child.wait().unwrap();
        child.id()
    }

    fn tell(&mut self, words: &str) {
        writeln!(self.stdin, "{words}").unwrap();
    }

    fn answer(&self, within: Duration) -> String {
        self.answers.recv_timeout(within).expect("it answers")
    }

    fn says(&self, words: &str) {
        assert_eq!(self.answer(LONG), words);
    }

    fn ask(&mut self, words: &str, answer: &str) {
        self.tell(words);
        self.says(answer);
    }
}

/// Returns the path installed by `tests/run interop`, or panics with the reason why there is none.
fn installed(variable: &str) -> PathBuf {
    let path =
        env::var_os(variable).unwrap_or_else(|| panic!("{variable} is not set; `tests/run interop` sets it"));
    PathBuf::from(path)
}

/// Returns the command of the program `Contender` in this file, with the jars in the folder that `variable` names.
fn java(variable: &str, file: &str) -> Command {
    let jars = format!("{}/*", installed(variable).display());
    let classes = processes::folder().join(variable);
    let compiled =
        Command::new("javac").args(["-cp", &jars, "-d"]).arg(&classes).arg(here(file)).status().unwrap();
    assert!(compiled.success(), "the contender cannot be compiled");
    let mut command = Command::new("java");
    command
        .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"])
        .arg(format!("{jars}:{}", classes.display()))
        .arg("Contender")
        .stderr(Stdio::null());
    command
}

fn here(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/interop").join(file)
}
