//! The beginnings and ends of all sections under one lock, as the processes that contend for it write them down.

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use super::Contender;
use crate::support::monotonic;

/// A file with a line for each event: the process, `in` or `out`, and nanoseconds on the monotonic clock.
pub(super) struct Journal(PathBuf);

/// What a journal shows.
#[derive(Debug)]
pub(super) struct Entries {
    pub(super) count: usize,
    pub(super) processes: usize,
    /// The longest time without an event.
    pub(super) longest_pause: Duration,
}

impl Journal {
    pub(super) fn new(path: PathBuf) -> Self {
        fs::write(&path, "").unwrap();
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the process, whether a section begins, and the time of each event, in order.
    pub(super) fn events(&self) -> Vec<(u32, bool, Duration)> {
        let text = fs::read_to_string(&self.0).unwrap();
        let event = |line: &str| {
            let [process, event, time] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line:?}") };
            (process.parse().unwrap(), event == "in", Duration::from_nanos(time.parse().unwrap()))
        };
        text.lines().map(event).collect()
    }

    /// Asserts that no section began within another, except one whose process was killed.
    pub(super) fn check(&self, killed: &[u32]) -> Entries {
        let events = self.events();
        let (mut inside, mut count) = (None, 0);
        for (process, begins, _) in &events {
            if *begins {
                let alive = inside.filter(|before| !killed.contains(before));
                assert_eq!(alive, None, "{process} enters while another is inside");
                (inside, count) = (Some(*process), count + 1);
            } else {
                assert_eq!(inside, Some(*process), "it leaves without being inside");
                inside = None;
            }
        }
        let processes = events.iter().map(|(process, ..)| process).collect::<BTreeSet<_>>().len();
        let pauses = events.windows(2).map(|pair| pair[1].2.saturating_sub(pair[0].2));
        Entries { count, processes, longest_pause: pauses.max().unwrap_or_default() }
    }

    /// Kills one process after the other, each two seconds after the one before and wherever it is. Another one takes its
    /// place. `start` begins the process with a number.
    pub(super) fn while_one_is_killed_after_the_other(
        &self,
        contenders: usize,
        length: Duration,
        start: impl Fn(usize) -> Contender,
    ) -> Entries {
        let begin = |number| {
            let mut contender = start(number);
            contender.tell("0.001 3600");
            contender
        };
        let mut alive: Vec<_> = (0..contenders).map(begin).collect();
        let (since, mut killed) = (Instant::now(), Vec::new());
        for victim in (0..contenders).cycle() {
            if since.elapsed() >= length {
                break;
            }
            thread::sleep(Duration::from_secs(2));
            killed.push(alive[victim].kill());
            alive[victim] = begin(victim);
        }
        killed.extend(alive.iter_mut().map(Contender::kill));
        self.check(&killed)
    }
}

/// Writes an event of this process down.
pub(super) fn note(journal: impl AsRef<Path>, event: &str) {
    let line = format!("{} {event} {}\n", std::process::id(), monotonic());
    let mut journal = fs::File::options().append(true).open(journal).unwrap();
    journal.write_all(line.as_bytes()).unwrap();
}
