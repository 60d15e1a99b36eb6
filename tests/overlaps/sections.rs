//! Sections of 100 µs, in four processes of eight tasks each: a hundred thousand entries and no overlap, and the same
//! check on a lock that does not exclude.

use std::{
    fs::{self, File, OpenOptions},
    hint,
    io::BufRead,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use libtest_mimic::{Failed, Trial};
use lock_runtime::{FencingToken, LockManager};

use crate::support::{child::Child, processes, redis_server::RedisServer};

/// The role of the processes.
pub const ROLE: &str = "sections";
const PROCESSES: usize = 4;
const TASKS: usize = 8;
/// Entries of each task in a round; few enough that a second process answers soon.
const ENTRIES: usize = 400;
/// More than a hundred thousand entries in all.
const ROUNDS: usize = 8;
const SECTION: Duration = Duration::from_micros(100);

pub fn trials() -> Vec<Trial> {
    let test =
        |name: &str, runner: fn() -> Result<(), Failed>| Trial::test(name, runner).with_ignored_flag(true);
    vec![
        test("long::a_hundred_thousand_short_sections_do_not_overlap", || {
            let sum = run(ROUNDS, |_| "lock:".to_owned());
            assert!(sum.entries > 100_000, "{sum:?}");
            assert_eq!((sum.overlaps, sum.falling_tokens), (0, 0), "{sum:?}");
            Ok(())
        }),
        // Each process has its own names, so that only its own tasks exclude each other.
        test("long::the_check_sees_a_lock_that_does_not_exclude", || {
            let sum = run(1, |process| format!("of-{process}:"));
            assert!(sum.overlaps > sum.entries / 10, "{sum:?}");
            Ok(())
        }),
    ]
}

#[derive(Debug, Default)]
struct Sum {
    entries: usize,
    overlaps: usize,
    /// Entries whose token was not larger than that of the entry before.
    falling_tokens: usize,
}

#[tokio::main(flavor = "current_thread")]
async fn run(rounds: usize, prefix: impl Fn(usize) -> String) -> Sum {
    let server = RedisServer::start(&[]);
    let url = format!("redis+unix://{}", server.socket().display());
    let folder = processes::folder().join(format!("sections-{}", prefix(0)));
    fs::create_dir_all(&folder).unwrap();
    let mut children: Vec<_> = (0..PROCESSES).map(|_| Child::start(ROLE)).collect();
    for (process, child) in children.iter_mut().enumerate() {
        child.tell(&format!("{url} {} {}", folder.display(), prefix(process)));
        assert_eq!(child.answer().await.unwrap(), "connected");
    }
    let (began, mut sum) = (Instant::now(), Sum::default());
    for _ in 0..rounds {
        for child in &mut children {
            child.tell("round");
        }
        for child in &mut children {
            let answer = child.answer().await.expect("the second process lives");
            let numbers: Vec<usize> = answer.split(' ').map(|number| number.parse().unwrap()).collect();
            sum.entries += numbers[0];
            sum.overlaps += numbers[1];
            sum.falling_tokens += numbers[2];
        }
    }
    println!("{sum:?} in {:?}", began.elapsed());
    sum
}

/// A second process: answers each line with the sums of its tasks for a round.
#[tokio::main]
pub async fn enter_sections() {
    let mut lines = std::io::stdin().lock().lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    let [url, folder, prefix] = first.split(' ').collect::<Vec<_>>()[..] else { panic!("three words") };
    let locks =
        LockManager::connect(url).await.unwrap().with_prefix(prefix).unwrap().wait(Duration::from_mins(1));
    let place = Arc::new(Place::in_folder(Path::new(folder)));
    println!("connected");
    for _ in lines {
        let tasks: Vec<_> =
            (0..TASKS).map(|_| tokio::spawn(task(locks.clone(), Arc::clone(&place)))).collect();
        let mut sum = Sum::default();
        for task in tasks {
            let one = task.await.unwrap();
            sum.entries += one.entries;
            sum.overlaps += one.overlaps;
            sum.falling_tokens += one.falling_tokens;
        }
        println!("{} {} {}", sum.entries, sum.overlaps, sum.falling_tokens);
    }
}

async fn task(locks: LockManager, place: Arc<Place>) -> Sum {
    let mut sum = Sum::default();
    for _ in 0..ENTRIES {
        let guard = locks.lock("section").acquire().await.unwrap();
        let (alone, rises) = place.enter(guard.fencing_token());
        sum.entries += 1;
        sum.overlaps += usize::from(!alone);
        sum.falling_tokens += usize::from(!rises);
        guard.release().await.unwrap();
    }
    sum
}

/// A place for one task at a time.
struct Place {
    /// Exists while a task is there.
    mark: PathBuf,
    last_token: File,
}

impl Place {
    fn in_folder(folder: &Path) -> Self {
        let last_token = folder.join("last");
        let last_token =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(last_token).unwrap();
        Self { mark: folder.join("mark"), last_token }
    }

    /// Stays for a section; returns whether no other task was there, and whether the token is larger than the last.
    fn enter(&self, token: FencingToken) -> (bool, bool) {
        let until = Instant::now() + SECTION;
        let alone = OpenOptions::new().write(true).create_new(true).open(&self.mark).is_ok();
        let mut last = [0; 8];
        let rises =
            self.last_token.read_at(&mut last, 0).unwrap() == 0 || token.get() > u64::from_ne_bytes(last);
        self.last_token.write_all_at(&token.get().to_ne_bytes(), 0).unwrap();
        while Instant::now() < until {
            hint::spin_loop();
        }
        if alone {
            fs::remove_file(&self.mark).unwrap();
        }
        (alone, rises)
    }
}
