//! Messages to people, on the standard error.

use std::{
    fmt::Display,
    io::{Write, stderr},
    sync::mpsc,
    thread,
    time::Duration,
};

/// How long the end of the program waits for a standard error that takes no text, such as a stopped terminal.
const PATIENCE: Duration = Duration::from_secs(1);

/// Writes a line. A closed standard error is no reason to fail.
pub(crate) fn line(text: &dyn Display) {
    let _ = writeln!(stderr(), "distlock: {text}");
}

/// Writes lines on a thread of its own, so that a blocked standard error does not delay the caller, who has deadlines.
pub(crate) struct Speaker {
    lines: Option<mpsc::Sender<String>>,
    done: mpsc::Receiver<()>,
}

impl Speaker {
    pub(crate) fn start() -> Self {
        let (lines, to_write) = mpsc::channel::<String>();
        let (finish, done) = mpsc::channel();
        let write = move || {
            for text in to_write {
                line(&text);
            }
            drop(finish);
        };
        // Without a thread, nothing is said.
        let started = thread::Builder::new().name("stderr".into()).spawn(write);
        Self { lines: started.is_ok().then_some(lines), done }
    }

    pub(crate) fn say(&self, text: impl Into<String>) {
        if let Some(lines) = &self.lines {
            let _ = lines.send(text.into());
        }
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        self.lines = None;
        // The wait ends as soon as the thread has dropped its end of the channel.
        let _ = self.done.recv_timeout(PATIENCE);
    }
}
