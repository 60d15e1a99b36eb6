//! A limit on log lines that come in bursts.

use std::{fmt, sync::Mutex, time::Duration};

use tracing::dispatcher;

#[cfg(test)]
use crate::simulated;
use crate::{background, process::Process, sync::lock};

/// The time that one summary covers.
const WINDOW: Duration = Duration::from_secs(1);
/// Number of lines that are written one by one before the summaries begin.
const LINES_BEFORE_SUMMARIES: u32 = 5;

/// Upper bound on the reasons that are counted at the same time. Lines for further reasons are written one by one.
const MAX_REASONS: usize = 16;

/// A counter of log lines that repeat for one reason. In a long burst, one summary a second replaces the lines.
pub(crate) struct LogLimiter(Mutex<Vec<Window>>);

struct Window {
    reason: String,
    /// The process whose background thread closes the window.
    opened_by: Process,
    written: u32,
    /// The number of lines that the next summary covers.
    more: u64,
    last: String,
}

impl LogLimiter {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Calls `write` for the first [`LINES_BEFORE_SUMMARIES`] lines of a burst with this reason.
    ///
    /// Once a second, `summary` gets the number of further lines and the last of them. The burst is over after a second
    /// without further lines.
    pub(crate) fn log(
        &'static self,
        reason: &str,
        line: &dyn fmt::Display,
        write: impl FnOnce(),
        summary: fn(u64, &str),
    ) {
        #[cfg(test)]
        if simulated::is_on() {
            // The summaries are a task of the whole process, so their counts would add up the lines of all simulations
            // that run at the same time.
            return write();
        }
        // If the mutex is locked, as it may always be in a forked child, the line is written and not counted.
        let opens = if let Ok(mut windows) = self.0.try_lock() {
            windows.retain(|window| window.opened_by.is_this());
            let is_full = windows.len() >= MAX_REASONS;
            match windows.iter_mut().find(|window| window.reason == reason) {
                Some(window) if window.written == LINES_BEFORE_SUMMARIES => {
                    window.more += 1;
                    window.last = line.to_string();
                    drop(windows);
                    tracing::debug!(reason, %line, "once more in a burst");
                    return;
                }
                Some(window) => {
                    window.written += 1;
                    false
                }
                None if is_full => false,
                None => {
                    let (reason, opened_by) = (reason.to_owned(), Process::this());
                    windows.push(Window { reason, opened_by, written: 1, more: 0, last: String::new() });
                    true
                }
            }
        } else {
            false
        };
        if opens {
            // The summaries go to the caller's subscriber, which may be set for the caller's thread only.
            let log = dispatcher::get_default(Clone::clone);
            let open = OpenWindow { limiter: self, reason: reason.to_owned() };
            background::handle().spawn(async move {
                while let Some((more, last)) = open.next_second().await {
                    dispatcher::with_default(&log, || summary(more, &last));
                }
            });
        }
        write();
    }
}

/// An open window, which closes when it is dropped, also by a panic in a subscriber.
struct OpenWindow {
    limiter: &'static LogLimiter,
    reason: String,
}

impl OpenWindow {
    /// Waits for one second. Returns the number of further lines in that second, and the last of them. If there were
    /// none, closes the window and returns `None`.
    async fn next_second(&self) -> Option<(u64, String)> {
        tokio::time::sleep(WINDOW).await;
        let mut windows = lock(&self.limiter.0);
        let window = windows.iter_mut().find(|window| window.reason == self.reason)?;
        if window.more == 0 {
            // The mutex has been locked since the check, so no line is counted in between.
            windows.retain(|window| window.reason != self.reason);
            return None;
        }
        Some((std::mem::take(&mut window.more), std::mem::take(&mut window.last)))
    }
}

impl Drop for OpenWindow {
    fn drop(&mut self) {
        lock(&self.limiter.0).retain(|window| window.reason != self.reason);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    };

    use super::*;

    #[tokio::test]
    async fn a_burst_is_a_few_lines_and_a_sum_and_the_next_one_begins_anew() {
        static LIMITER: LogLimiter = LogLimiter::new();
        static SUMS: LazyLock<Mutex<Vec<(u64, String)>>> = LazyLock::new(Mutex::default);
        static LINES: AtomicU64 = AtomicU64::new(0);
        let lines = |numbers: std::ops::Range<u32>| {
            for number in numbers {
                LIMITER.log(
                    "away",
                    &number,
                    || {
                        LINES.fetch_add(1, Ordering::Relaxed);
                    },
                    |more, last| SUMS.lock().expect("not poisoned").push((more, last.to_owned())),
                );
            }
        };
        let sums = || SUMS.lock().expect("not poisoned").clone();
        lines(0..435);
        assert_eq!(LINES.load(Ordering::Relaxed), u64::from(LINES_BEFORE_SUMMARIES));
        crate::mock::until("the sum", || !sums().is_empty()).await;
        assert_eq!(sums(), [(430, "434".to_owned())]);
        let mut written = false;
        LIMITER.log("another reason", &"x", || written = true, |_, _| {});
        assert!(written, "of its own");
        crate::mock::until("the end of the burst", || LIMITER.0.lock().expect("not poisoned").is_empty())
            .await;
        lines(0..1);
        assert_eq!(LINES.load(Ordering::Relaxed), u64::from(LINES_BEFORE_SUMMARIES) + 1);
        assert_eq!(sums().len(), 1);
    }

    #[test]
    fn simulations_count_no_lines_together() {
        static LIMITER: LogLimiter = LogLimiter::new();
        let mut written = 0;
        simulated::run(0, false, || {
            for line in 0..20 {
                LIMITER.log("away", &line, || written += 1, |_, _| {});
            }
        });
        assert_eq!(written, 20);
        assert!(lock(&LIMITER.0).is_empty());
    }
}
