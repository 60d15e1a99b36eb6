//! The caller's runtime, which must have timers and I/O.

use std::{cell::Cell, panic, time::Duration};

use tokio::runtime::{self, Handle};

#[cfg(test)]
use crate::simulated;
use crate::{LockError, LockErrorKind};

/// The parts that a runtime may have.
#[derive(Clone, Copy, Debug)]
struct Parts {
    timers: bool,
    io: bool,
}

thread_local! {
    /// The last two runtimes that were probed on this thread, so that a runtime is not probed at each call.
    static LAST: Cell<[Option<(runtime::Id, Parts)>; 2]> = const { Cell::new([None; 2]) };
}

/// Fails if no store with a server can work on the caller's runtime.
///
/// # Errors
/// [`Unsupported`](LockErrorKind::Unsupported) outside of a tokio runtime, and in a runtime without timers or I/O.
pub(crate) fn check() -> Result<(), LockError> {
    let missing = match parts() {
        None => "there is none here; call it in a task, or within `Runtime::enter`",
        Some(Parts { timers: false, .. }) => {
            "this one has no timers; build it with `enable_time`, or with `enable_all`"
        }
        Some(Parts { io: false, .. }) => {
            "this one has no I/O; build it with `enable_io`, or with `enable_all`"
        }
        Some(Parts { timers: true, io: true }) => return Ok(()),
    };
    let message = format!("the store needs a tokio runtime with timers and I/O, and {missing}");
    Err(LockError::new(LockErrorKind::Unsupported, message))
}

/// Returns whether the caller may create a timer of tokio.
pub(crate) fn has_timers() -> bool {
    parts().is_some_and(|parts| parts.timers)
}

/// Returns the parts of the caller's runtime; `None` outside of a runtime.
fn parts() -> Option<Parts> {
    let here = Handle::try_current().ok()?.id();
    #[cfg(test)]
    if simulated::is_on() {
        return Some(Parts { timers: true, io: true });
    }
    let last = LAST.get();
    if let Some((_, parts)) = last.iter().flatten().find(|(id, _)| *id == here) {
        return Some(*parts);
    }
    let timers = has(|| drop(tokio::time::sleep(Duration::ZERO)));
    let parts = Parts { timers, io: timers && has(use_io) };
    LAST.set([Some((here, parts)), last[0]]);
    Some(parts)
}

/// Returns whether the runtime has the part that `probe` uses. Tokio has no method for this, and panics if the part is
/// missing.
fn has(probe: fn()) -> bool {
    panic::catch_unwind(probe).is_ok()
}

#[cfg(any(feature = "redis", feature = "postgres", feature = "zookeeper"))]
fn use_io() {
    let bound = std::net::UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0));
    // If no descriptor is left for the socket, the connection to the server will fail, too, and give the reason.
    if let Ok(socket) = bound
        && socket.set_nonblocking(true).is_ok()
    {
        drop(tokio::net::UdpSocket::from_std(socket));
    }
}

#[cfg(not(any(feature = "redis", feature = "postgres", feature = "zookeeper")))]
fn use_io() {}
