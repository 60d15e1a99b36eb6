//! The library's own thread: renewals and clean-up go on when the caller's runtime is blocked or shut down.

use std::{future::Future, sync::Mutex};

use tokio::runtime::{Builder, Handle};

#[cfg(test)]
use crate::simulated;
use crate::{process::Process, sync::lock};

/// The runtime of the library's own thread.
///
/// It lives as long as the process, and runs no user code except the subscribers of its log.
#[derive(Clone, Debug)]
pub(crate) struct Background(Handle);

impl Background {
    /// Starts a task, from anywhere.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        #[cfg(test)]
        let Some(task) = simulated::unless_killed(task) else { return };
        self.0.spawn(task);
    }

    /// Returns whether the caller runs on the library's own thread.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(crate) fn is_here(&self) -> bool {
        Handle::current().id() == self.0.id()
    }
}

/// Returns the runtime of the library's own thread.
pub(crate) fn handle() -> Background {
    static HANDLE: Mutex<Option<(Process, Background)>> = Mutex::new(None);
    #[cfg(test)]
    if let Some(runtime) = simulated::background() {
        return Background(runtime);
    }
    let mut handle = lock(&HANDLE);
    match &*handle {
        Some((process, background)) if process.is_this() => background.clone(),
        // Threads are not forked: a child that connects anew needs one of its own.
        _ => handle.insert((Process::this(), start())).1.clone(),
    }
}

fn start() -> Background {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the operating system provides an event queue for the locks' own runtime");
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("lock-runtime".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .expect("the operating system provides a thread that renews locks");
    Background(handle)
}
