//! Work that may block, and the look-up of names, each on a thread of its own.
//!
//! Tokio's blocking threads are not used for this work, for two reasons. A runtime that is shut down waits for its
//! blocking threads, so an unresponsive name server would keep a program from ending. And tokio panics if it cannot
//! start a thread.

use std::{
    collections::HashMap,
    future::Future,
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    sync::{Arc, LazyLock, Mutex},
    thread,
};

use tokio::sync::{SetOnce, oneshot};

use crate::{process::Process, sync::lock};

/// Runs `work` on a thread of its own. The thread starts at once, not at the first poll.
///
/// # Errors
/// If no thread can be started, or `work` panics.
///
/// # Cancel safety
/// Cancel safe. The work goes on without its caller.
pub(in crate::backend) fn run<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = io::Result<T>> + Send {
    let (give, given) = oneshot::channel();
    let started = start(move || drop(give.send(work())));
    async move {
        started?;
        given.await.map_err(|_| io::Error::other("the work panicked"))
    }
}

fn start(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("lock-blocking".into()).spawn(work).map(drop)
}

/// The addresses of a name, or the reason why the look-up failed, once the look-up has ended.
type Found = Arc<SetOnce<Result<Vec<IpAddr>, (io::ErrorKind, String)>>>;

/// Look-ups, keyed by the id of the process that began them and by the name.
type LookUps = HashMap<(u32, Arc<str>), Found>;

/// The pending look-ups. All callers that look up the same name wait for the same look-up, so an unresponsive name
/// server blocks only one thread for each name.
static LOOK_UPS: LazyLock<Mutex<LookUps>> = LazyLock::new(Mutex::default);

/// Looks up the addresses of a host.
///
/// # Errors
/// The errors of the operating system.
///
/// # Cancel safety
/// Cancel safe. The look-up goes on without its caller.
pub(in crate::backend) async fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let found = join(host)?;
    match found.wait().await {
        Ok(addresses) => Ok(addresses.iter().map(|address| SocketAddr::new(*address, port)).collect()),
        Err((kind, text)) => Err(io::Error::new(*kind, text.clone())),
    }
}

fn join(host: &str) -> io::Result<Found> {
    let key = (Process::this().id(), Arc::<str>::from(host));
    let mut look_ups = lock(&LOOK_UPS);
    if let Some(found) = look_ups.get(&key) {
        return Ok(Arc::clone(found));
    }
    let found = Found::default();
    let (answer, of) = (Arc::clone(&found), key.clone());
    start(move || {
        let looked_up = (&*of.1, 0).to_socket_addrs();
        let addresses = looked_up.map(|found| found.map(|address| address.ip()).collect());
        lock(&LOOK_UPS).remove(&of);
        let _ = answer.set(addresses.map_err(|error| (error.kind(), error.to_string())));
    })?;
    look_ups.insert(key, Arc::clone(&found));
    Ok(found)
}
