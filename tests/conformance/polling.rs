//! Futures that are polled a number of times, and then dropped or left to a task.

use std::{
    future::Future,
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

/// Polls once.
pub async fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    let mut future = future;
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// A future that was polled once, so that its immediate work is done, and goes on in a task.
pub async fn begun<F>(future: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let mut future = Box::pin(future);
    // With a fresh budget: a task that never waits is made to yield, and then nothing would have been done.
    tokio::task::yield_now().await;
    match poll_once(future.as_mut()).await {
        Poll::Ready(output) => tokio::spawn(async { output }),
        Poll::Pending => tokio::spawn(future),
    }
}

/// More polls by [`drop_after`] than any future needs that does not wait for another one.
pub const MANY_POLLS: usize = 120;

/// Polls `future` at most `polls` times, woken or after a moment, and drops it; returns an output that comes earlier.
pub async fn drop_after<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    const MOMENT: Duration = Duration::from_millis(3);
    let mut future = pin!(future);
    for _ in 0..polls {
        let mut woken = pin!(tokio::time::sleep(MOMENT));
        let mut polled = false;
        let output = std::future::poll_fn(|cx| {
            if polled {
                // Woken by the future or by the timer.
                return Poll::Ready(None);
            }
            polled = true;
            match future.as_mut().poll(cx) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending => woken.as_mut().poll(cx).map(|()| None),
            }
        })
        .await;
        if output.is_some() {
            return output;
        }
    }
    None
}
