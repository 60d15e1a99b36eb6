//! A second process: the test binary itself, started again, which answers one line for each line it receives.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use tokio::sync::mpsc;

use super::{processes::Process, wall_clock::Clock};

/// Set in a second process; names its role.
pub const ROLE: &str = "LOCK_TEST_ROLE";

/// A second process. Dropped, it is killed.
#[derive(Debug)]
pub struct Child {
    process: Process,
    stdin: std::process::ChildStdin,
    answers: mpsc::UnboundedReceiver<String>,
}

impl Child {
    /// Starts this very program in this role.
    pub fn start(role: &str) -> Self {
        Self::start_with(role, |_| {})
    }

    /// Starts this program in this role, with this clock.
    pub fn start_with_clock(role: &str, clock: &Clock) -> Self {
        Self::start_with(role, |command| clock.give_to(command))
    }

    fn start_with(role: &str, prepare: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(env::current_exe().expect("the program knows where it is"));
        command.env(ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped());
        prepare(&mut command);
        let mut process = Process::start(&mut command).expect("this program can be started again");
        let stdin = process.child().stdin.take().expect("asked for");
        let stdout = process.child().stdout.take().expect("asked for");
        let (send, answers) = mpsc::unbounded_channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let Ok(line) = line else { return };
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Self { process, stdin, answers }
    }

    /// Sends a line without waiting for the answer.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").expect("the second process listens");
    }

    /// Returns the next answer; `None` if the process ended or was killed.
    pub async fn answer(&mut self) -> Option<String> {
        tokio::time::timeout(Duration::from_secs(30), self.answers.recv())
            .await
            .expect("the second process answers within 30 s")
    }

    /// Sends a line, and waits for the answer.
    pub async fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.answer().await.expect("the second process lives")
    }

    /// Returns the answers that have arrived, without waiting for any.
    pub fn arrived(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.answers.try_recv().ok()).collect()
    }

    /// SIGSTOP.
    pub fn pause(&self) {
        self.process.pause();
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.process.resume();
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
    }
}
