//! The question whether other clients wait for a held lock, which a store asks its server while a holder awaits the
//! answer.

use std::{
    future::{Future, pending},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::{
    caller,
    time::clock::{self, Instant},
};

/// Pause between two questions about one lock.
pub(in crate::backend) const PAUSE: Duration = Duration::from_millis(500);

/// When the last question about one hold was asked.
///
/// The hold has this time, not the future that asks: otherwise, a holder that creates a future again and again would
/// ask each time.
#[derive(Debug)]
pub(in crate::backend) struct Inquiry {
    asked_at: AtomicU64,
}

impl Inquiry {
    /// The first question is asked one pause after `granted_at` at the earliest: until then, the server may still have
    /// records of the time in which this holder waited itself.
    pub(in crate::backend) fn since(granted_at: Instant) -> Self {
        Self { asked_at: AtomicU64::new(granted_at.as_nanos()) }
    }

    /// Completes when the last question is at least `pause` old, and records that the caller asks now. Never completes
    /// on a runtime on which no store with a server works.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(in crate::backend) async fn due(&self, pause: Duration) {
        if caller::check().is_err() {
            pending::<()>().await;
        }
        loop {
            let last = self.asked_at.load(Ordering::Relaxed);
            clock::sleep_until(Instant::from_nanos(last) + pause).await;
            let now = Instant::now().as_nanos();
            if self.asked_at.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }

    /// Asks until the answer is yes. A question without an answer counts as a no.
    ///
    /// # Cancel safety
    /// As cancel safe as the questions.
    pub(in crate::backend) async fn until_yes<F: Future<Output = Option<bool>>>(&self, ask: impl Fn() -> F) {
        loop {
            self.due(PAUSE).await;
            if ask().await == Some(true) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[tokio::test]
    async fn however_many_futures_await_it_a_question_is_asked_once_in_a_pause() {
        let (inquiry, asked) = (Inquiry::since(Instant::now()), AtomicU32::new(0));
        let began = Instant::now();
        let answer = || {
            let number = asked.fetch_add(1, Ordering::SeqCst);
            async move { Some(number >= 1) }
        };
        // Futures that are dropped at once ask nothing.
        for _ in 0..100 {
            tokio::select! {
                biased;
                () = inquiry.until_yes(answer) => unreachable!("the first answer comes after a pause"),
                () = std::future::ready(()) => {}
            }
        }
        tokio::join!(inquiry.until_yes(answer), inquiry.until_yes(answer));
        assert_eq!(asked.load(Ordering::SeqCst), 3);
        assert!(Instant::now() >= began + PAUSE * 3);
    }
}
