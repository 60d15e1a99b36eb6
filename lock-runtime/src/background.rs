//! The library's own thread: renewals and clean-up go on when the caller's runtime is blocked or shut down.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
};

use tokio::runtime::{Builder, Handle, Runtime};

#[cfg(test)]
use crate::simulated;
use crate::{LockError, LockErrorKind, process::Process, sync::lock};

/// The runtime of the library's own thread.
///
/// It lives as long as the process, and runs no user code except the subscribers of its log.
#[derive(Clone, Debug)]
pub(crate) struct Background(
    /// `None` if the thread could not be started when this was made.
    Option<Handle>,
);

impl Background {
    /// Starts a task, from anywhere. Without the thread, the task starts together with it.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        #[cfg(test)]
        let Some(task) = simulated::unless_killed(task) else { return };
        if let Some(handle) = &self.0 {
            handle.spawn(task);
            return;
        }
        let mut thread = lock(&THREAD);
        match thread.start() {
            Ok(handle) => drop(handle.spawn(task)),
            Err(_) => thread.waiting.push(Box::pin(task)),
        }
    }

    /// Returns whether the caller runs on the library's own thread.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(crate) fn is_here(&self) -> bool {
        let here = Handle::try_current().ok();
        here.is_some_and(|here| self.0.as_ref().is_some_and(|handle| handle.id() == here.id()))
    }
}

/// Returns the runtime of the library's own thread.
pub(crate) fn handle() -> Background {
    #[cfg(test)]
    if let Some(runtime) = simulated::background() {
        return Background(Some(runtime));
    }
    Background(lock(&THREAD).start().ok())
}

/// Starts the thread, unless it runs.
///
/// # Errors
/// [`Overloaded`](LockErrorKind::Overloaded) if the operating system refuses what it needs. The next call tries again.
pub(crate) fn check() -> Result<(), LockError> {
    #[cfg(test)]
    if simulated::is_on() {
        return Ok(());
    }
    // Without the mutex: each acquisition calls this.
    if STARTED_BY.load(Ordering::Acquire) == Process::this().id() {
        return Ok(());
    }
    lock(&THREAD).start().map(drop)
}

static THREAD: Mutex<Thread> = Mutex::new(Thread { started: None, waiting: Vec::new() });
/// The process in which the thread runs; 0 before it was started.
static STARTED_BY: AtomicU32 = AtomicU32::new(0);

struct Thread {
    started: Option<(Process, Handle)>,
    /// The tasks that came while it could not be started.
    waiting: Vec<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Thread {
    /// Returns its runtime, and starts it first if it does not run.
    fn start(&mut self) -> Result<Handle, LockError> {
        let this = Process::this();
        match &self.started {
            Some((process, handle)) if *process == this => return Ok(handle.clone()),
            // Threads are not forked: a child that connects anew needs one of its own.
            _ => {}
        }
        let handle = start()?;
        for task in self.waiting.drain(..) {
            handle.spawn(task);
        }
        self.started = Some((this, handle.clone()));
        STARTED_BY.store(this.id(), Ordering::Release);
        Ok(handle)
    }
}

fn start() -> Result<Handle, LockError> {
    // The thread comes first: a runtime that is not needed could not be dropped within the caller's.
    let (give, given) = mpsc::channel::<Runtime>();
    let run = move || {
        if let Ok(runtime) = given.recv() {
            runtime.block_on(std::future::pending::<()>());
        }
    };
    thread::Builder::new().name("lock-runtime".into()).spawn(run).map_err(|error| {
        refused(
            "thread",
            &error,
            "raise its limit of threads, such as `ulimit -u` or the `pids.max` of its cgroup",
        )
    })?;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        refused("event queue", &error, "raise its limit of open files, such as `ulimit -n`")
    })?;
    let handle = runtime.handle().clone();
    if let Err(mpsc::SendError(runtime)) = give.send(runtime) {
        runtime.shutdown_background();
    }
    Ok(handle)
}

fn refused(what: &str, error: &io::Error, remedy: &str) -> LockError {
    let message = format!(
        "no lock can be renewed, because the operating system gives this process no {what} ({error}); {remedy}"
    );
    LockError::new(LockErrorKind::Overloaded, message)
}
