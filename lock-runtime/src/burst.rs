//! Lines of the log that come in a burst.

use std::{fmt, sync::Mutex, time::Duration};

use tracing::dispatcher;

use crate::{background, process::Process};

/// The time that one summary tells of.
const WINDOW: Duration = Duration::from_secs(1);
/// Lines that are written one by one before the summaries begin.
const AT_FIRST: u32 = 5;

/// Counts what is logged again and again for one reason, so that one line a second tells it.
pub(crate) struct Burst(Mutex<Window>);

struct Window {
    /// The process that ends it.
    opened_by: Option<Process>,
    told: u32,
    more: u64,
    last: String,
}

impl Window {
    const CLOSED: Self = Self { opened_by: None, told: 0, more: 0, last: String::new() };
}

impl Burst {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Window::CLOSED))
    }

    /// Calls `tell` for the first few lines of a burst. Of the others, `summary` gets the number and the last one, once a
    /// second. The burst is over after a second without others.
    pub(crate) fn log(&'static self, line: &dyn fmt::Display, tell: impl FnOnce(), summary: fn(u64, &str)) {
        // Told one by one where the count is not at hand, as in the child of a process that was forked in between.
        let opens = if let Ok(mut window) = self.0.try_lock() {
            if window.opened_by.is_some_and(|process| !process.is_this()) {
                *window = Window::CLOSED;
            }
            if window.told == AT_FIRST {
                window.more += 1;
                window.last = line.to_string();
                return;
            }
            window.told += 1;
            window.opened_by.replace(Process::this()).is_none()
        } else {
            false
        };
        tell();
        if opens {
            // To the log of the caller, which may be one for its thread only.
            let log = dispatcher::get_default(Clone::clone);
            background::handle().spawn(async move {
                while let Some((more, last)) = self.next_second().await {
                    dispatcher::with_default(&log, || summary(more, &last));
                }
            });
        }
    }

    /// What came in a second beyond the first lines; closes the window where nothing did.
    async fn next_second(&self) -> Option<(u64, String)> {
        tokio::time::sleep(WINDOW).await;
        let mut window = self.0.lock().ok()?;
        if window.more == 0 {
            *window = Window::CLOSED;
            return None;
        }
        Some((std::mem::take(&mut window.more), std::mem::take(&mut window.last)))
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
        static BURST: Burst = Burst::new();
        static SUMS: LazyLock<Mutex<Vec<(u64, String)>>> = LazyLock::new(Mutex::default);
        static LINES: AtomicU64 = AtomicU64::new(0);
        let lines = |numbers: std::ops::Range<u32>| {
            for number in numbers {
                BURST.log(
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
        assert_eq!(LINES.load(Ordering::Relaxed), u64::from(AT_FIRST));
        crate::mock::until("the sum", || !sums().is_empty()).await;
        assert_eq!(sums(), [(430, "434".to_owned())]);
        crate::mock::until("the end of the burst", || {
            BURST.0.lock().expect("not poisoned").opened_by.is_none()
        })
        .await;
        lines(0..1);
        assert_eq!(LINES.load(Ordering::Relaxed), u64::from(AT_FIRST) + 1);
        assert_eq!(sums().len(), 1);
    }
}
