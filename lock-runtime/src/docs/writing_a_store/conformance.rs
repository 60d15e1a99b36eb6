//! Runs the conformance suite on `Files`: `cargo test --test writing_a_store`.

#[allow(unreachable_pub, reason = "in a library they are public")]
mod files;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use files::Files;
use lock_conformance::{Server, Site, Store};
use lock_runtime::{
    LockError, LockErrorKind, LockManager,
    backend::{BoxFuture, Capabilities},
};

fn main() -> ExitCode {
    lock_conformance::run(&[&TestedFiles])
}

struct TestedFiles;

impl Store for TestedFiles {
    fn name(&self) -> &'static str {
        "files"
    }

    /// Opens the store at `url`, which is the path that [`FilesSite::url`] returned.
    fn connect(&self, url: String) -> BoxFuture<'static, Result<LockManager, LockError>> {
        Box::pin(async move {
            let files = Files::open(url).map_err(|error| {
                LockError::new(LockErrorKind::Backend, "no such folder").with_source(error)
            })?;
            Ok(LockManager::new(files))
        })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new().shared_between_processes()
    }

    fn poll_pause(&self) -> Option<Duration> {
        Some(files::POLL)
    }

    fn site(&self, _server: Server) -> Box<dyn Site> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let case = NUMBER.fetch_add(1, Ordering::Relaxed);
        Box::new(FilesSite(root().join(case.to_string())))
    }

    fn finish(&self) {
        let _ = fs::remove_dir_all(root());
    }
}

/// Returns the folder that contains the folders of all test cases.
fn root() -> PathBuf {
    std::env::temp_dir().join(format!("files-{}", std::process::id()))
}

/// The folder of one test case.
struct FilesSite(PathBuf);

impl Site for FilesSite {
    fn url(&self) -> String {
        self.0.display().to_string()
    }

    fn left(&self, mark: &str) -> Vec<String> {
        lines(&self.0)
            .into_iter()
            .map(|(_, line)| line)
            .filter(|line| line.contains(mark) && is_held(line))
            .collect()
    }

    /// Takes the lock away from its holder: writes zeros in place of the owner token.
    fn lose(&self, key: &str) -> bool {
        let ours = |line: &str| line.trim_end().ends_with(&format!("lock:{key}")) && is_held(line);
        let Some((path, line)) = lines(&self.0).into_iter().find(|(_, line)| ours(line)) else {
            return false;
        };
        let owner = line.split(' ').nth(1).expect("the second word");
        fs::write(path, line.replace(owner, &"0".repeat(32))).is_ok()
    }
}

/// Returns whether the line belongs to a lock that is held.
fn is_held(line: &str) -> bool {
    let now = files::uptime().expect("Linux");
    let words: Vec<&str> = line.split(' ').collect();
    u128::from_str_radix(words[1], 16).is_ok_and(|owner| owner != 0)
        && words[3].parse::<u64>().is_ok_and(|end| end > now)
}

/// Returns the files of all locks, with their lines.
fn lines(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(lines(&path));
        } else if let Ok(line) = fs::read_to_string(&path)
            && line.ends_with('\n')
        {
            all.push((path, line));
        }
    }
    all
}
