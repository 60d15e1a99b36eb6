//! When a server stops.

use std::io;

/// Completes at Ctrl-C, and at SIGTERM, by which Kubernetes, Docker and systemd stop a program. Without it, that signal
/// ends the program at once, and its locks stay held for up to their `ttl`.
pub(crate) async fn stop() {
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated() => {}
    }
}

#[cfg(unix)]
async fn terminated() -> io::Result<()> {
    let kind = tokio::signal::unix::SignalKind::terminate();
    tokio::signal::unix::signal(kind)?.recv().await;
    Ok(())
}

#[cfg(not(unix))]
async fn terminated() -> io::Result<()> {
    std::future::pending().await
}
