//! The thread that has the tokio runtime: acquires the lock, and releases it.

use std::{
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::mpsc,
    thread,
    time::Duration,
};

use lock_runtime::{HeldLock, Lock, LockError, LockErrorKind, LockManager, backend::LockState};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

/// How long the end waits for the store.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two looks at the store during the wait.
const LOOK: Duration = Duration::from_secs(1);
/// Upper bound on the time for asking who holds a lock that was not granted.
const CURIOSITY: Duration = Duration::from_secs(1);

/// What happened to the lock.
pub(super) enum Event {
    Held(HeldLock),
    /// The lock was not granted. The state has the holder, if the lock is held and the store shows the holder.
    Refused(LockError, Option<LockState>),
    /// The lock is still waited for, and the store fails for this reason, or does not fail any more.
    Waits(Option<LockError>),
    /// The lock may be lost; the guard knows more.
    Lost,
    /// The acquisition was given up, or the lock was released, perhaps without success.
    Finished(Result<(), LockError>),
}

/// The thread, as the supervisor sees it.
pub(super) struct Holder {
    events: mpsc::Receiver<Event>,
    wake: UnixStream,
    finish: Option<oneshot::Sender<()>>,
}

impl Holder {
    /// Begins to acquire the lock.
    pub(super) fn start(locks: LockManager, lock: Lock, key: &str) -> io::Result<Self> {
        let (wake, ring) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let (send, events) = mpsc::channel();
        let (finish, finished) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let key = key.to_owned();
        let work = move || {
            let bell = Bell { send, ring };
            runtime.block_on(hold(&locks, lock, &key, finished, &bell));
            // Connections may have tasks that do not end.
            runtime.shutdown_background();
        };
        thread::Builder::new().name("lock".into()).spawn(work)?;
        Ok(Self { events, wake, finish: Some(finish) })
    }

    /// Gives the acquisition up, or releases the lock.
    pub(super) fn finish(&mut self) {
        if let Some(finish) = self.finish.take() {
            let _ = finish.send(());
        }
    }

    /// Returns what has happened since the last call; `None` if the thread has ended without having finished.
    pub(super) fn happened(&mut self) -> Option<Vec<Event>> {
        // The bell is silent before the events are read, so that no event is missed.
        while self.wake.read(&mut [0; 64]).is_ok_and(|length| length > 0) {}
        let mut events = Vec::new();
        loop {
            match self.events.try_recv() {
                Ok(event) => events.push(event),
                Err(mpsc::TryRecvError::Empty) => return Some(events),
                Err(mpsc::TryRecvError::Disconnected) => return (!events.is_empty()).then_some(events),
            }
        }
    }
}

impl AsFd for Holder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// Wakes the supervisor, also when it is dropped.
struct Bell {
    send: mpsc::Sender<Event>,
    ring: UnixStream,
}

impl Bell {
    fn tell(&self, event: Event) {
        let _ = self.send.send(event);
        let _ = (&self.ring).write(b"!");
    }
}

async fn hold(locks: &LockManager, lock: Lock, key: &str, mut finish: oneshot::Receiver<()>, bell: &Bell) {
    let acquired = tokio::select! {
        biased;
        _ = &mut finish => None,
        acquired = lock.acquire() => Some(acquired),
        () = tell_of_outages(locks, bell) => None,
    };
    let guard = match acquired {
        None => {
            // A place in the queue is left in the background.
            let _ = timeout(PATIENCE, locks.shutdown()).await;
            return bell.tell(Event::Finished(Ok(())));
        }
        Some(Ok(guard)) => guard,
        Some(Err(error)) => {
            let is_held = matches!(error.kind(), LockErrorKind::Contended | LockErrorKind::Timeout);
            let state = if is_held { timeout(CURIOSITY, locks.inspect(key)).await.ok() } else { None };
            // What the acquisition may have left, such as the mark of its period, is removed in the background, which ends
            // with this process.
            let _ = timeout(PATIENCE, locks.shutdown()).await;
            return bell.tell(Event::Refused(error, state.and_then(Result::ok)));
        }
    };
    bell.tell(Event::Held(guard.held()));
    tokio::select! {
        _ = &mut finish => {}
        () = guard.lost() => {
            bell.tell(Event::Lost);
            let _ = finish.await;
        }
    }
    let released = match timeout(PATIENCE, guard.release()).await {
        Ok(released) => released,
        Err(_) => Err(LockError::new(LockErrorKind::Backend, "the store did not confirm the release")),
    };
    if released.is_err() {
        // What is left of the lock is removed in the background.
        let _ = timeout(PATIENCE, locks.shutdown()).await;
    }
    bell.tell(Event::Finished(released));
}

/// Tells when the store begins to fail, and when it answers again. Never ends.
async fn tell_of_outages(locks: &LockManager, bell: &Bell) {
    let mut was_away = false;
    loop {
        sleep(LOOK).await;
        let status = locks.status();
        let error =
            status.servers.iter().find_map(|server| server.error()).filter(|_| !status.is_reachable());
        if error.is_some() != was_away {
            was_away = error.is_some();
            bell.tell(Event::Waits(error.cloned()));
        }
    }
}
