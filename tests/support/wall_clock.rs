//! The wall clock of another process, which a test can move.

use std::{
    fs,
    os::unix::fs::FileExt,
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use super::{preload::preload, processes};

/// The clock of the processes it was [given to](Self::give_to). It shows the right time until it is moved.
#[derive(Debug)]
pub struct Clock {
    file: PathBuf,
}

impl Clock {
    pub fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let file = processes::folder().join(format!("clock-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        fs::write(&file, 0_i64.to_ne_bytes()).expect("the temporary folder is writable");
        Self { file }
    }

    /// Gives this clock to the process that the command starts.
    pub fn give_to(&self, command: &mut Command) {
        preload(command, "wall_clock", include_str!("wall_clock.c"));
        command.env("LOCK_TEST_CLOCK", &self.file);
    }

    /// From now on it is ahead of the right time by this.
    pub fn set_forward(&self, by: Duration) {
        self.move_by(i64::try_from(by.as_millis()).expect("not for ages"));
    }

    /// From now on it is behind the right time by this.
    pub fn set_back(&self, by: Duration) {
        self.move_by(-i64::try_from(by.as_millis()).expect("not for ages"));
    }

    pub fn set_right(&self) {
        self.move_by(0);
    }

    fn move_by(&self, millis: i64) {
        // In place, and never truncated: the process has the file mapped, and dies of a missing byte.
        let file = fs::File::options().write(true).open(&self.file).expect("made before");
        file.write_all_at(&millis.to_ne_bytes(), 0).expect("the temporary folder is writable");
    }
}
