//! The wall clock of another process, which a test can move.

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::processes;

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
        command.env("LD_PRELOAD", shim()).env("LOCK_TEST_CLOCK", &self.file);
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

/// The preloaded library; built once.
fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| {
        let source = processes::folder().join("wall_clock.c");
        fs::write(&source, include_str!("wall_clock.c")).expect("the temporary folder is writable");
        let library = processes::folder().join("clock.so");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library)
            .arg(&source)
            .output()
            .expect("there is a C compiler, which linking Rust needs as well");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        library
    })
}
