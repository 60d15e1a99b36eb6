//! What a thread does again and again while a test runs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// A step that a thread repeats until this is dropped. The drop panics if a step has.
#[derive(Debug)]
pub struct Repeated {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<usize>>,
}

impl Repeated {
    /// Calls `step` with the number of its turn, and pauses for `period`. The step returns whether it counts.
    pub fn start(period: Duration, mut step: impl FnMut(usize) -> bool + Send + 'static) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let has_ended = Arc::clone(&ended);
        let thread = thread::spawn(move || {
            let mut count = 0;
            for turn in 0.. {
                if has_ended.load(Ordering::Relaxed) {
                    break;
                }
                count += usize::from(step(turn));
                thread::park_timeout(period);
            }
            count
        });
        Self { ended, thread: Some(thread) }
    }

    /// Ends after the step under way, and returns the number of steps that count.
    pub fn end(mut self) -> usize {
        self.stop().expect("it ends once").expect("each step succeeds")
    }

    fn stop(&mut self) -> Option<thread::Result<usize>> {
        self.ended.store(true, Ordering::Relaxed);
        let thread = self.thread.take()?;
        thread.thread().unpark();
        Some(thread.join())
    }
}

impl Drop for Repeated {
    fn drop(&mut self) {
        let failed = self.stop().is_some_and(|ended| ended.is_err());
        assert!(!failed || thread::panicking(), "a step failed, and none was made after it; see above");
    }
}
