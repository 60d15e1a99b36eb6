//! Runs the conformance suite on `Files`: `cargo test --test writing_a_store`.

#[allow(unreachable_pub, reason = "in a library they are public")]
mod files;

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use files::Files;
use lock_conformance::{Fault, Server, Site, Store};
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
            let locks = TestedFiles.connect_lazy(&url)?;
            locks.ping().await?;
            Ok(locks)
        })
    }

    fn connect_lazy(&self, url: &str) -> Result<LockManager, LockError> {
        let files = Files::at(url).map_err(|error| {
            LockError::new(LockErrorKind::InvalidOptions, "not a path").with_source(error)
        })?;
        Ok(LockManager::new(files))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new().shared_between_processes()
    }

    fn offers(&self, fault: Fault) -> bool {
        fault == Fault::Down
    }

    fn poll_pause(&self) -> Option<Duration> {
        Some(files::POLL)
    }

    fn site(&self, _server: Server) -> Box<dyn Site> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let case = NUMBER.fetch_add(1, Ordering::Relaxed);
        Box::new(FilesSite::new(root().join(case.to_string())))
    }

    fn finish(&self) {
        let _ = fs::remove_dir_all(root());
    }
}

/// Returns the directory that contains the directories of all test cases.
fn root() -> PathBuf {
    std::env::temp_dir().join(format!("files-{}", std::process::id()))
}

/// The store of one test case: a link to a directory. Changing the link takes the directory away in one step.
struct FilesSite {
    link: PathBuf,
    folder: PathBuf,
}

impl FilesSite {
    fn new(link: PathBuf) -> Self {
        let folder = link.with_extension("folder");
        fs::create_dir_all(&folder).expect("the temporary folder is writable");
        let site = Self { link, folder };
        site.lead_to(&site.folder);
        site
    }

    fn lead_to(&self, target: &Path) {
        let new = self.link.with_extension("new");
        symlink(target, &new).expect("the temporary folder is writable");
        fs::rename(new, &self.link).expect("the temporary folder is writable");
    }
}

impl Site for FilesSite {
    fn url(&self) -> String {
        self.link.display().to_string()
    }

    fn left(&self, mark: &str) -> Vec<String> {
        let mut left = Vec::new();
        for_each_line(&self.folder, &mut |_, line| {
            if line.contains(mark) && is_held(line) {
                left.push(line.to_owned());
            }
        });
        left
    }

    /// Takes the lock away from its holder: writes zeros instead of the owner token.
    fn lose(&self, key: &str) -> bool {
        let mut is_lost = false;
        for_each_line(&self.folder, &mut |path, line| {
            if line.trim_end().ends_with(&format!("lock:{key}")) && is_held(line) {
                let owner = line.split(' ').nth(1).expect("the second word");
                is_lost = fs::write(path, line.replace(owner, &"0".repeat(32))).is_ok();
            }
        });
        is_lost
    }

    /// Makes every call fail by pointing the link at a device instead of a directory.
    fn hurt(&self, _fault: Fault) {
        self.lead_to(Path::new("/dev/null"));
    }

    fn heal(&self) {
        self.lead_to(&self.folder);
    }
}

/// Returns whether the line belongs to a lock that is held.
fn is_held(line: &str) -> bool {
    let now = files::uptime().expect("Linux");
    let words: Vec<&str> = line.split(' ').collect();
    u128::from_str_radix(words[1], 16).is_ok_and(|owner| owner != 0)
        && words[3].parse::<u64>().is_ok_and(|end| end > now)
}

/// Calls `work` with the path and the line of each lock's file.
///
/// It holds the operating system's lock on each file during the call, as another client would: a request in flight
/// changes the file either before or after the call, never during it.
fn for_each_line(folder: &Path, work: &mut dyn FnMut(&Path, &str)) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            for_each_line(&path, work);
        } else if let Ok(file) = fs::File::open(&path) {
            file.lock().expect("a local file");
            let line = fs::read_to_string(&path).expect("it was opened");
            if line.ends_with('\n') {
                work(&path, &line);
            }
        }
    }
}
