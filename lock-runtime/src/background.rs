//! The library's own thread: renewals and clean-up go on when the caller's runtime is blocked or shut down.

use std::sync::Mutex;

use tokio::runtime::{Builder, Handle};

use crate::process::Process;
use crate::sync::lock;

/// Returns the runtime of the library's own thread.
///
/// It lives as long as the process, and runs no user code except the subscribers of its log.
pub(crate) fn handle() -> &'static Handle {
    static HANDLE: Mutex<Option<(Process, &'static Handle)>> = Mutex::new(None);
    let mut handle = lock(&HANDLE);
    match *handle {
        Some((process, handle)) if process.is_this() => handle,
        // Threads are not forked: a child that connects anew needs one of its own.
        _ => handle.insert((Process::this(), start())).1,
    }
}

fn start() -> &'static Handle {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the operating system provides an event queue for the locks' own runtime");
    let handle = Box::leak(Box::new(runtime.handle().clone()));
    std::thread::Builder::new()
        .name("lock-runtime".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .expect("the operating system provides a thread that renews locks");
    handle
}
