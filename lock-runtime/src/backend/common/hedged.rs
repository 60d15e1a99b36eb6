//! Hedged attempts to connect: while one attempt is pending, further attempts begin, and the first result counts.

use std::{
    future::{Future, poll_fn},
    task::Poll,
    time::Duration,
};

/// Begins up to eight attempts, a quarter of a second apart, and returns the output of the first attempt that
/// completes.
///
/// A request that was sent while the server was unreachable may never be answered, but a later attempt succeeds once
/// the server is back. Use this function only on the library's own runtime, which makes few connections to a store: on
/// the runtimes of callers, which may make many connections, an overloaded server would get very many attempts.
pub(in crate::backend) async fn hedged<F: Future>(begin: impl Fn() -> F) -> F::Output {
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
