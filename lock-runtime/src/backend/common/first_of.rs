//! Several attempts to connect, of which the first to succeed or fail counts.

use std::{
    future::{Future, poll_fn},
    task::Poll,
    time::Duration,
};

/// Returns the output of the first of several attempts, of which one begins every quarter of a second.
///
/// A request that was sent while the server was unreachable may never be answered; the next attempt shows that the
/// server is back. To be used only on the library's own runtime, so that a struggling server gets few attempts from
/// each process.
pub(in crate::backend) async fn first_of<F: Future>(begin: impl Fn() -> F) -> F::Output {
    const PAUSE: Duration = Duration::from_millis(250);
    const ATTEMPTS: usize = 8;
    let mut attempts = vec![Box::pin(begin())];
    loop {
        let may_be_more = attempts.len() < ATTEMPTS;
        let first = poll_fn(|context| {
            let ready = attempts.iter_mut().find_map(|attempt| match attempt.as_mut().poll(context) {
                Poll::Ready(output) => Some(output),
                Poll::Pending => None,
            });
            ready.map_or(Poll::Pending, Poll::Ready)
        });
        tokio::select! {
            biased;
            output = first => return output,
            () = tokio::time::sleep(PAUSE), if may_be_more => {}
        }
        attempts.push(Box::pin(begin()));
    }
}
