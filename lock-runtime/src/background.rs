//! The library's own thread: renewals and clean-up go on when the caller's runtime is blocked or shut down.

use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle};

/// The runtime of that thread. It lives as long as the process and runs no code of the user's.
pub(crate) fn handle() -> &'static Handle {
    static HANDLE: OnceLock<Handle> = OnceLock::new();
    HANDLE.get_or_init(|| {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("the operating system provides an event queue for the locks' own runtime");
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name("lock-runtime".into())
            .spawn(move || runtime.block_on(std::future::pending::<()>()))
            .expect("the operating system provides a thread that renews locks");
        handle
    })
}
