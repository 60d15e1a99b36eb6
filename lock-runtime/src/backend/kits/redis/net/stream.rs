//! Connections over streams of our own, and when their tasks are polled.

use std::{
    future::poll_fn,
    io,
    pin::pin,
    task::{Poll, ready},
};

use redis::{
    AsyncConnectionConfig, RedisConnectionInfo, RedisError,
    aio::MultiplexedConnection,
    io::tcp::{TcpSettings, socket2::SockRef},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::JoinSet,
};

use crate::{backend::common::threads::look_up, background};

/// A connection, and the task of ours that drives it. There is no task where the driver has started its own.
pub(super) type Dialled = (MultiplexedConnection, JoinSet<()>);

/// Dials all addresses of the host, and returns the first connection made.
pub(super) async fn tcp(host: &str, port: u16, settings: &TcpSettings) -> io::Result<TcpStream> {
    let mut attempts: JoinSet<_> = look_up(host, port).await?.into_iter().map(TcpStream::connect).collect();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    while let Some(attempt) = attempts.join_next().await {
        match attempt.map_err(io::Error::other).and_then(|made| made) {
            Ok(stream) => {
                let socket = SockRef::from(&stream);
                socket.set_tcp_nodelay(settings.nodelay())?;
                if let Some(keepalive) = settings.keepalive() {
                    socket.set_tcp_keepalive(keepalive)?;
                }
                #[cfg(target_os = "linux")]
                socket.set_tcp_user_timeout(settings.user_timeout())?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Makes a connection over a stream.
pub(super) async fn over(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    redis: &RedisConnectionInfo,
    settings: &AsyncConnectionConfig,
) -> Result<Dialled, RedisError> {
    let (driver, task) = MultiplexedConnection::new_with_config(redis, stream, settings.clone()).await?;
    // Renewals are gathered already, and do not wait for the tasks of others.
    let is_for_renewals = background::handle().is_here();
    let task = async move { if is_for_renewals { task.await } else { after_others(task).await } };
    Ok((driver, [task].into_iter().collect()))
}

/// Polls the task of a connection after the tasks that are ready before it, so that all that they send goes out at once.
/// Without this, each call from 64 tasks was a call to the system, and a record of TLS, of its own: over TLS, 31,400
/// cycles a second in a Redis Cluster instead of 41,200.
async fn after_others(task: impl Future<Output = ()>) {
    let mut task = pin!(task);
    let mut is_its_turn = true;
    poll_fn(|context| {
        is_its_turn = !is_its_turn;
        if is_its_turn {
            ready!(task.as_mut().poll(context));
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::sync::lock;

    #[tokio::test]
    async fn a_connection_is_polled_after_the_tasks_that_are_ready() {
        let polled = Arc::new(Mutex::new(Vec::new()));
        let note = |what| {
            let polled = Arc::clone(&polled);
            async move { lock(&polled).push(what) }
        };
        let connection = tokio::spawn(after_others(note("connection")));
        let callers = [note("caller"), note("caller")].map(tokio::spawn);
        for task in [connection].into_iter().chain(callers) {
            task.await.expect("it ends");
        }
        assert_eq!(*lock(&polled), ["caller", "caller", "connection"]);
    }
}
