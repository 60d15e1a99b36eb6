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
/// The runtime lives as long as the process. It runs no user code except log subscribers.
#[derive(Clone, Debug)]
pub(crate) struct Background(
    /// `None` if the thread could not be started when this handle was made.
    Option<Handle>,
);

impl Background {
    /// Starts a task. May be called on any thread. If the library's own thread cannot be started now, the task starts
    /// as soon as the thread does.
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

/// Starts the library's own thread, unless it already runs.
///
/// # Errors
/// [`Overloaded`](LockErrorKind::Overloaded) if the operating system refuses a resource that the thread needs. The next
/// call tries again.
pub(crate) fn check() -> Result<(), LockError> {
    #[cfg(test)]
    if simulated::is_on() {
        return Ok(());
    }
    // The mutex is avoided here, because each acquisition calls this function.
    if STARTED_BY.load(Ordering::Acquire) == Process::this().id() {
        return Ok(());
    }
    lock(&THREAD).start().map(drop)
}

static THREAD: Mutex<Thread> = Mutex::new(Thread { started: None, waiting: Vec::new() });
/// The id of the process in which the thread runs; 0 until the thread is started.
static STARTED_BY: AtomicU32 = AtomicU32::new(0);

struct Thread {
    started: Option<(Process, Handle)>,
    /// The tasks that were spawned while the thread could not be started.
    waiting: Vec<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Thread {
    /// Returns the runtime of the thread. Starts the thread first if it does not run in this process.
    fn start(&mut self) -> Result<Handle, LockError> {
        let this = Process::this();
        match &self.started {
            Some((process, handle)) if *process == this => return Ok(handle.clone()),
            // A forked child has no copy of the thread: a child that connects anew needs a thread of its own.
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
    // The thread is started before the runtime is made. Otherwise, if the thread could not be started, the runtime
    // would have to be dropped inside the caller's runtime, which panics.
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
