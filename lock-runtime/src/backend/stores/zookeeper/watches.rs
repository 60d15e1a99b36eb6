//! The watches of a session: how many there may be, and the wait for an event.
//!
//! After each reconnect, the driver sends the paths of all watches again. If the paths exceed 128 KiB, the driver sends
//! several messages with the same number, takes the answer to the second message for an error, and breaks the
//! connection, again and again until the session has expired.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
};

use ::zookeeper_client as zk;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Upper bound on the bytes of the paths that the session watches for one purpose. Two purposes together stay below
/// the driver's 128 KiB, with room for watches that the driver has not removed yet.
const MAX_PATH_BYTES: usize = 48 * 1024;

/// The room for the watches of a session.
#[derive(Debug)]
pub(super) struct Watches {
    /// Length of the chroot, which the driver puts before each path.
    chroot: usize,
    held: Arc<Semaphore>,
    ahead: Arc<Semaphore>,
}

/// The room that one watch takes, until this value is dropped.
pub(super) type Room = OwnedSemaphorePermit;

impl Watches {
    pub(super) fn below(chroot: &str) -> Self {
        let [held, ahead] = [(); 2].map(|()| Arc::new(Semaphore::new(MAX_PATH_BYTES)));
        Self { chroot: chroot.len(), held, ahead }
    }

    /// Returns room for a watch of a hold's node, unless holds have taken all their room.
    pub(super) fn room_for_held(&self, path: &str) -> Option<Room> {
        self.room(&self.held, path)
    }

    /// Returns room for a watch of the node ahead of a waiter, unless waiters have taken all their room.
    pub(super) fn room_for_ahead(&self, path: &str) -> Option<Room> {
        self.room(&self.ahead, path)
    }

    fn room(&self, of: &Arc<Semaphore>, path: &str) -> Option<Room> {
        let bytes = u32::try_from(self.chroot + path.len()).ok()?;
        Arc::clone(of).try_acquire_many_owned(bytes).ok()
    }
}

/// Waits for the event of a watch. Returns `None` if the driver's task is gone, in which case the driver panics.
///
/// # Cancel safety
/// Dropping the future removes the watch.
pub(super) async fn changed(watcher: zk::OneshotWatcher) -> Option<zk::WatchedEvent> {
    let mut event = pin!(watcher.changed());
    std::future::poll_fn(|context| {
        // After a panic, the driver's future is only dropped.
        match catch_unwind(AssertUnwindSafe(|| event.as_mut().poll(context))) {
            Ok(polled) => polled.map(Some),
            Err(_) => std::task::Poll::Ready(None),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paths_of_all_watches_fit_into_one_message_of_the_driver() {
        let watches = Watches::below("/chroot");
        let path = "/lock:user:42/_c_0123456789abcdef0123456789abcdef-lock-0000000000";
        let held: Vec<_> = std::iter::from_fn(|| watches.room_for_held(path)).collect();
        let ahead: Vec<_> = std::iter::from_fn(|| watches.room_for_ahead(path)).collect();
        let bytes = (held.len() + ahead.len()) * ("/chroot".len() + path.len());
        assert!((90 * 1024..=96 * 1024).contains(&bytes), "{bytes}");
        drop(held);
        assert!(watches.room_for_ahead(path).is_none());
        assert!(watches.room_for_held(path).is_some());
        assert!(watches.room_for_held(&"/".repeat(MAX_PATH_BYTES)).is_none());
    }
}
