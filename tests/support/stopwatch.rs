//! A stopwatch that also measures how long the machine kept threads from running meanwhile.
//!
//! A promised limit is meant for a machine that runs a thread when it is due. On a busy machine a test measures the
//! limit and the delays of all threads involved, so it allows the delays measured within the same time.

#![allow(dead_code, reason = "each program that tests uses a part of it")]

use std::{
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

use super::monotonic;

/// Pause of the watching thread between its computations.
const STEP: Duration = Duration::from_millis(5);
/// CPU time of each computation: running threads are interrupted as well.
const WORK: Duration = Duration::from_micros(100);

/// Total delay of the watching thread, in nanoseconds.
static LATE: AtomicU64 = AtomicU64::new(0);
/// The due end of its present step, on the monotonic clock.
static DUE: AtomicU64 = AtomicU64::new(u64::MAX);

/// The delay of a thread that is due every few milliseconds, since the first call, its present delay included.
fn late() -> Duration {
    static WATCH: OnceLock<()> = OnceLock::new();
    WATCH.get_or_init(|| {
        thread::Builder::new().name("machine".into()).spawn(watch).expect("a thread can be started");
    });
    let present = monotonic().saturating_sub(DUE.load(Ordering::Relaxed));
    Duration::from_nanos(LATE.load(Ordering::Relaxed) + present)
}

fn watch() {
    loop {
        let due = monotonic() + nanos(STEP + WORK);
        DUE.store(due, Ordering::Relaxed);
        thread::sleep(STEP);
        let enough = used() + WORK;
        while used() < enough {
            std::hint::spin_loop();
        }
        LATE.fetch_add(monotonic().saturating_sub(due), Ordering::Relaxed);
    }
}

/// CPU time of this thread.
fn used() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(used.tv_sec).unwrap(), u32::try_from(used.tv_nsec).unwrap())
}

fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).expect("short")
}

/// A point in time, and the delay of the machine until then.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Moment {
    at: Instant,
    late: Duration,
}

impl Moment {
    pub fn now() -> Self {
        Self { late: late(), at: Instant::now() }
    }

    /// The time that has passed, delays included.
    pub fn elapsed(self) -> Duration {
        self.at.elapsed()
    }

    pub fn since(self, earlier: Self) -> Took {
        Took { real: self.at - earlier.at, late: self.late.saturating_sub(earlier.late) }
    }

    /// Whether it came first, though its thread may have been late to see it.
    pub fn is_before(self, other: Self) -> bool {
        self.at < other.at || self.since(other).within(Duration::ZERO)
    }

    pub fn took(self) -> Took {
        Self::now().since(self)
    }

    /// Whether no more than `limit` has passed, apart from the delays by the machine.
    pub fn within(self, limit: Duration) -> bool {
        self.took().within(limit)
    }
}

/// A measured duration.
#[derive(Clone, Copy)]
pub struct Took {
    pub real: Duration,
    /// Delay of an otherwise idle thread meanwhile.
    pub late: Duration,
}

impl Took {
    /// Whether it took no longer than `limit`, apart from the delays by the machine.
    pub fn within(self, limit: Duration) -> bool {
        self.real < limit + self.late
    }
}

/// Whether more than half of these took no longer than `limit`, apart from the delays by the machine.
pub fn most_within(took: &[Took], limit: Duration) -> bool {
    took.iter().filter(|took| took.within(limit)).count() > took.len() / 2
}

impl fmt::Debug for Took {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} on a machine that was late by {:?}", self.real, self.late)
    }
}
