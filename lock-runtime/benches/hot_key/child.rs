//! One process of a round.

use std::{
    env,
    fs::File,
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::contenders::Lock;

/// Takes part in a round and prints switches, overlaps, and the entries of each of its tasks.
#[tokio::main]
pub(crate) async fn child(arguments: &[String]) {
    let [url, contender, process, processes, tasks, ms, section] = arguments else {
        panic!("arguments of a child")
    };
    let number = |text: &String| text.parse::<u64>().unwrap();
    let (process, tasks, section) = (number(process), number(tasks), Duration::from_micros(number(section)));
    let lock = Lock::open(contender, url, process, number(processes)).await;
    let counts = Arc::new(Counts::default());
    let shared = Arc::new(if processes == "1" {
        Place::Memory { last: AtomicU64::new(NO_TASK), inside: AtomicU64::new(NO_TASK) }
    } else {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        Place::File(options.open(place(url)).unwrap())
    });
    // All processes are up by then.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let end = Instant::now() + Duration::from_millis(number(ms));
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let (lock, counts, place) = (lock.clone(), Arc::clone(&counts), Arc::clone(&shared));
            let me = process * 1_000_000 + task + 1;
            tokio::spawn(async move {
                let mut entries = 0;
                while Instant::now() < end {
                    let Some(held) = lock.acquire(end).await else { break };
                    if Instant::now() >= end {
                        lock.release(held).await;
                        break;
                    }
                    // The cost of the check is part of the section, except for its last step.
                    let until = Instant::now() + section;
                    if place.come(me) != me {
                        counts.switches.fetch_add(1, Ordering::Relaxed);
                    }
                    if !section.is_zero() {
                        while Instant::now() < until {
                            std::hint::spin_loop();
                        }
                        counts.overlaps.fetch_add(u64::from(!place.leave(me)), Ordering::Relaxed);
                    }
                    entries += 1;
                    lock.release(held).await;
                }
                entries
            })
        })
        .collect();
    let mut entries: Vec<u64> = Vec::new();
    for task in running {
        entries.push(task.await.unwrap());
    }
    let counts = [counts.switches.load(Ordering::Relaxed), counts.overlaps.load(Ordering::Relaxed)];
    let line: Vec<String> = counts.iter().chain(&entries).map(ToString::to_string).collect();
    println!("{}", line.join(" "));
}

/// The file of `Place::File` for the processes that reach their server by `url`.
pub(crate) fn place(url: &str) -> PathBuf {
    env::temp_dir().join(format!("hot-key-{}", url.rsplit(':').next().unwrap()))
}

/// The counters of a child.
#[derive(Default)]
struct Counts {
    switches: AtomicU64,
    overlaps: AtomicU64,
}

/// The last task that entered, and the task inside: in memory for one process, in a file for several.
///
/// Of two tasks inside at the same time, the first finds the other's mark, or none, when it leaves.
enum Place {
    Memory { last: AtomicU64, inside: AtomicU64 },
    File(File),
}

const NO_TASK: u64 = 0;

impl Place {
    /// Returns the task that entered before.
    fn come(&self, me: u64) -> u64 {
        match self {
            Self::Memory { last, inside } => {
                inside.store(me, Ordering::SeqCst);
                last.swap(me, Ordering::SeqCst)
            }
            Self::File(file) => {
                let mut last = [0; 8];
                let _ = file.read_at(&mut last, 0);
                file.write_all_at(&[me.to_ne_bytes(), me.to_ne_bytes()].concat(), 0).unwrap();
                u64::from_ne_bytes(last)
            }
        }
    }

    /// Whether no other task has entered since.
    fn leave(&self, me: u64) -> bool {
        match self {
            Self::Memory { inside, .. } => inside.swap(NO_TASK, Ordering::SeqCst) == me,
            Self::File(file) => {
                let mut inside = [0; 8];
                let _ = file.read_at(&mut inside, 8);
                file.write_all_at(&NO_TASK.to_ne_bytes(), 8).unwrap();
                u64::from_ne_bytes(inside) == me
            }
        }
    }
}
