//! The processes that hold the locks.

use std::{
    fmt,
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    path::Path,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use lock_runtime::LockManager;
use rustix::fs::{FlockOperation, flock};

use crate::support::{Random, history::Hold, monotonic, stay::stay};

/// The role of the processes.
pub const ROLE: &str = "failovers";

/// Tasks of each process for a busy lock: its lease is also handed over inside the process.
const TASKS: usize = 2;
/// Longer than an outage, so that a lease may outlive its primary.
const TTL: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(30);

/// A write to the resource that a lock protects.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    pub token: u64,
    /// Nanoseconds on the monotonic clock, while no other write was under way.
    pub at: u64,
    pub is_accepted: bool,
}

/// What a holder saw and did.
#[derive(Debug)]
pub struct Section {
    /// The number of the lock.
    pub lock: usize,
    pub hold: Option<Hold>,
    pub writes: Vec<Write>,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{};", self.lock)?;
        if let Some(hold) = &self.hold {
            write!(f, "{hold}")?;
        }
        for Write { token, at, is_accepted } in &self.writes {
            write!(f, ";{token} {at} {is_accepted}")?;
        }
        Ok(())
    }
}

impl FromStr for Section {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let parse = || {
            let mut parts = line.split(';');
            let lock = parts.next()?.parse().ok()?;
            let hold = parts.next().filter(|hold| !hold.is_empty());
            let hold = hold.map(str::parse).transpose().ok()?;
            let writes = parts.map(|write| {
                let [token, at, is_accepted] = write.split(' ').collect::<Vec<_>>()[..] else { return None };
                Some(Write {
                    token: token.parse().ok()?,
                    at: at.parse().ok()?,
                    is_accepted: is_accepted.parse().ok()?,
                })
            });
            Some(Self { lock, hold, writes: writes.collect::<Option<_>>()? })
        };
        parse().ok_or_else(|| format!("no section: {line:?}"))
    }
}

/// A process of its own: is told a URL, a folder, the names of the locks and how many of them are busy, and answers at
/// the end what its holders saw.
#[tokio::main]
pub async fn hold_locks() {
    let mut lines = std::io::stdin().lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    let [url, folder, names, busy] = first.split(' ').collect::<Vec<_>>()[..] else { panic!("four words") };
    let busy: usize = busy.parse().unwrap();
    let locks = LockManager::connect(url).await.unwrap();
    println!("connected");
    let is_over = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for (number, name) in names.split(',').enumerate() {
        let is_busy = number < busy;
        for _ in 0..if is_busy { TASKS } else { 1 } {
            let resource = Resource::at(&Path::new(folder).join(name));
            let (locks, is_over) = (locks.clone(), Arc::clone(&is_over));
            let lock = Lock { number, name: name.to_owned(), is_busy, resource };
            tasks.push(tokio::spawn(hold_again_and_again(locks, lock, is_over)));
        }
    }
    lines.next().unwrap();
    is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        for line in task.await.unwrap() {
            println!("{line}");
        }
    }
    locks.shutdown().await;
    println!("done");
}

struct Lock {
    number: usize,
    name: String,
    /// Whether a caller always waits for the lock. Another lock is free for a while, so that a new primary that has lost a lease
    /// may have no other one of the lock, either.
    is_busy: bool,
    resource: Resource,
}

/// Returns a line for each section and each attempt that failed.
async fn hold_again_and_again(locks: LockManager, lock: Lock, is_over: Arc<AtomicBool>) -> Vec<String> {
    let Lock { number, name, is_busy, resource } = lock;
    let mut random = Random::from_seed(Random::seed() ^ number as u64);
    let mut lines = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let asked = monotonic();
        let guard = match locks.lock(&name).ttl(TTL).wait(LONG).acquire().await {
            Ok(guard) => guard,
            Err(error) => {
                lines.push(format!("failed {:?}", error.kind()));
                continue;
            }
        };
        let token = guard.fencing_token().get();
        let section = if !is_busy && random.below(3) == 0 {
            // Long enough for a failover.
            Duration::from_millis(random.below(4_000))
        } else {
            Duration::from_micros(random.below(2_000))
        };
        let mut writes = vec![resource.write(token)];
        let hold = stay(token, asked, section, || guard.is_valid()).await;
        writes.push(resource.write(token));
        lines.push(Section { lock: number, hold, writes }.to_string());
        if random.below(2) == 0 {
            drop(guard);
        } else {
            // A lease that was lost is told so; a release that fails is repeated in the background.
            let _ = guard.release().await;
        }
        if !is_busy {
            tokio::time::sleep(Duration::from_millis(random.below(3_000))).await;
        }
    }
    lines
}

/// Accepts no token after a larger one, of whichever process.
struct Resource(File);

impl Resource {
    fn at(path: &Path) -> Self {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        Self(file.unwrap())
    }

    fn write(&self, token: u64) -> Write {
        flock(&self.0, FlockOperation::LockExclusive).unwrap();
        let mut last = [0; 8];
        let is_accepted = self.0.read_at(&mut last, 0).unwrap() == 0 || token >= u64::from_ne_bytes(last);
        if is_accepted {
            self.0.write_all_at(&token.to_ne_bytes(), 0).unwrap();
        }
        let at = monotonic();
        flock(&self.0, FlockOperation::Unlock).unwrap();
        Write { token, at, is_accepted }
    }
}
