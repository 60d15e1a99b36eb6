//! A contender in another language, in a process of its own: it answers each line with a line.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

pub(crate) struct Program {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Program {
    /// Starts a script of this folder.
    pub(crate) fn start(command: &mut Command, script: &str, arguments: &[impl AsRef<OsStr>]) -> Self {
        let script = format!("{}/{script}", env!("CARGO_MANIFEST_DIR"));
        let command = command.arg(script).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (ask, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, ask, answers: BufReader::new(answers) }
    }

    /// Sends a line, and returns the numbers of the answer.
    pub(crate) fn ask(&mut self, line: &str) -> Vec<f64> {
        writeln!(self.ask, "{line}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert!(!answer.is_empty(), "the contender has ended");
        answer.split_whitespace().map(|number| number.parse().unwrap()).collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
