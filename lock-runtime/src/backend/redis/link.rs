//! Which connection a caller uses: one for each runtime, replaced when it is of no more use.

use std::{
    collections::HashMap,
    future::{Future, poll_fn},
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use tokio::{runtime, sync::watch};

use super::{
    config::Config,
    connection::{self, Connection},
    error::Failure,
    fitness,
    inbox::Inbox,
    names, scripts,
    server::{PAUSE, Server},
};
use crate::{
    LockError, LockErrorKind, LockKey,
    backend::{Acquire, Wait},
    background,
    sync::lock,
    time::{
        backoff::backoff,
        clock::{self, Instant},
    },
};

/// So many calls in a row without an answer, and the connection is replaced.
const SILENCE_LIMIT: u32 = 2;
/// The same for the library's own runtime: a renewal has no time to find out twice.
const SILENCE_LIMIT_OF_RENEWALS: u32 = 1;

/// The connections of one store.
#[derive(Debug)]
pub(super) struct Links {
    server: Server,
    by_runtime: Mutex<HashMap<runtime::Id, Arc<Link>>>,
    /// Set once a server was found fit for locks: what it is called, where it says that.
    fit: OnceLock<Option<Box<str>>>,
}

impl Links {
    pub(super) fn new(config: Config) -> Result<Self, LockError> {
        Ok(Self { server: Server::new(config)?, by_runtime: Mutex::default(), fit: OnceLock::new() })
    }

    pub(super) fn config(&self) -> &Config {
        self.server.config()
    }

    pub(super) fn inbox(&self) -> &Arc<Inbox> {
        self.server.inbox()
    }

    pub(super) fn process(&self) -> &str {
        self.server.process()
    }

    /// What the server that answered first is called from its start to its end.
    pub(super) fn run_id(&self) -> Option<&str> {
        self.fit.get()?.as_deref()
    }

    /// Looks at the first server that answers: whether it keeps what it is told, and whether the user may use it for locks.
    async fn examine(&self, connection: &Connection) -> Result<(), LockError> {
        if self.fit.get().is_some() {
            return Ok(());
        }
        // Also shows whether the user may run them.
        for script in scripts::all() {
            connection.call::<redis::Value>(&script.load()).await.map_err(Failure::into_error)?;
        }
        let run_id = match connection.call::<String>(&redis::cmd("INFO")).await {
            Ok(info) => {
                self.check_memory(&info)?;
                fitness::run_id(&info).map(Box::from)
            }
            // The user may not ask.
            Err(Failure::Refused(error)) => {
                tracing::debug!(%error, "the server's eviction policy is not checked");
                None
            }
            Err(failure) => return Err(failure.into_error()),
        };
        let _ = self.fit.set(run_id);
        Ok(())
    }

    fn check_memory(&self, info: &str) -> Result<(), LockError> {
        match fitness::danger(info, &self.config().address()) {
            Some(danger) if self.config().strict => {
                Err(LockError::new(LockErrorKind::Backend, format!("{danger} (refused because of `strict`)")))
            }
            Some(danger) => {
                tracing::warn!("{danger}");
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The connection of the caller's runtime, made if there is none.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn here(self: &Arc<Self>) -> Result<Arc<Connection>, Failure> {
        let link = self.link();
        if let Some(connection) = link.usable() {
            if !connection.is_idle() {
                return Ok(connection);
            }
            // What the server closed meanwhile is not known to a runtime that did not run.
            connection::catch_up().await;
            if connection.is_usable() {
                return Ok(connection);
            }
        }
        let mut connecting = Link::connecting(&link, self);
        let made = connecting.wait_for(Option::is_some).await.map(|made| made.clone());
        match made {
            Ok(Some(Ok(connection))) => Ok(connection),
            Ok(Some(Err(error))) => Err(Failure::Refused(error)),
            Ok(None) | Err(_) => Err(Failure::Refused(LockError::new(
                LockErrorKind::Backend,
                "the runtime was shut down while it connected to Redis",
            ))),
        }
    }

    /// As [`here`](Self::here); a server that cannot be reached is tried again while the caller waits for its lock.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn within(self: &Arc<Self>, request: &Acquire) -> Result<Arc<Connection>, Failure> {
        let mut failures = 0;
        loop {
            let answer = self.here().await;
            let (Err(Failure::Refused(error)), Wait::Until(_) | Wait::Forever) = (&answer, request.wait)
            else {
                return answer;
            };
            let end = request.wait.end();
            if !error.is_retryable() || end.has_passed() {
                return answer;
            }
            request.progress.failed(error);
            // No longer than 160 ms: it costs the server nothing, and the caller waits for it.
            clock::sleep_until(end.min(Instant::now() + backoff(failures))).await;
            failures = 3.min(failures + 1);
        }
    }

    /// Which key beside the holder's has a wrong type: the script's error does not name it, and then it is not the lock's
    /// name that is wrong. None where it cannot be found out.
    pub(super) async fn of_wrong_type(self: &Arc<Self>, key: &LockKey) -> Option<LockError> {
        let connection = self.here().await.ok()?;
        for (command, name, argument, what) in [
            ("GET", key.stored().to_owned(), None, None),
            ("LINDEX", names::beside(key, "queue").to_string(), Some("0"), Some("the list of its waiters")),
            ("HGET", names::beside(key, "places").to_string(), Some("0"), Some("the hash of their places")),
            ("GET", names::fence(key.prefix()).to_string(), None, Some("the counter of fencing tokens")),
        ] {
            let mut look = redis::cmd(command);
            look.arg(&name).arg(argument);
            if let Err(Failure::Refused(error)) = connection.call::<redis::Value>(&look).await
                && error.kind() == LockErrorKind::InvalidKey
            {
                let message =
                    format!("the key `{name}` should be {}, and is of another type; delete it", what?);
                return Some(
                    LockError::new(LockErrorKind::Backend, message).into_permanent().with_source(error),
                );
            }
        }
        None
    }

    fn link(&self) -> Arc<Link> {
        let here = runtime::Handle::current().id();
        let mut links = lock(&self.by_runtime);
        if let Some(link) = links.get(&here) {
            return Arc::clone(link);
        }
        links.retain(|_, link| link.is_of_use());
        Arc::clone(links.entry(here).or_default())
    }
}

/// The present connection of one runtime.
#[derive(Debug, Default)]
struct Link {
    state: Mutex<State>,
    runtime_is_gone: AtomicBool,
}

type Made = Option<Result<Arc<Connection>, LockError>>;

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    /// All who need the connection wait for the same one.
    Connecting(watch::Receiver<Made>),
    Open(Arc<Connection>),
    /// Until this moment nobody tries again.
    Failed(Instant, LockError),
}

impl Link {
    /// Whether it has to be remembered: its runtime may be gone where it has no connection and makes none.
    fn is_of_use(&self) -> bool {
        let has_failed = matches!(&*lock(&self.state), State::Failed(until, _) if until.has_passed());
        !has_failed && !self.runtime_is_gone.load(Ordering::Acquire)
    }

    fn usable(&self) -> Option<Arc<Connection>> {
        match &*lock(&self.state) {
            State::Open(connection) if connection.is_usable() => Some(Arc::clone(connection)),
            _ => None,
        }
    }

    /// What will come of the connecting that is under way, or begins.
    ///
    /// It is done by a task of its own: a caller that is dropped, or not polled while it is in the middle, would keep
    /// everybody else of its runtime from the store.
    fn connecting(this: &Arc<Self>, links: &Arc<Links>) -> watch::Receiver<Made> {
        let mut state = lock(&this.state);
        match &*state {
            // The sender lives until there is a result, or until its runtime is gone.
            State::Connecting(made) if made.has_changed().is_ok() => return made.clone(),
            State::Open(connection) if connection.is_usable() => {
                return watch::channel(Some(Ok(Arc::clone(connection)))).1;
            }
            State::Failed(until, error) if !until.has_passed() => {
                return watch::channel(Some(Err(error.clone()))).1;
            }
            State::Idle | State::Connecting(_) | State::Open(_) | State::Failed(..) => {}
        }
        let (tell, made) = watch::channel(None);
        *state = State::Connecting(made.clone());
        tokio::spawn(Self::connect(Arc::clone(this), Arc::clone(links), tell));
        made
    }

    async fn connect(this: Arc<Self>, links: Arc<Links>, tell: watch::Sender<Made>) {
        // Dropped unfinished with the task, should the runtime go.
        let mut sentinel = Sentinel { link: Arc::downgrade(&this), connection: Weak::new(), finished: false };
        let began = Instant::now();
        let ours = runtime::Handle::current().id() == background::handle().id();
        let (end, made) = if ours {
            first_of(|| Connection::open(&links.server, SILENCE_LIMIT_OF_RENEWALS)).await
        } else {
            Connection::open(&links.server, SILENCE_LIMIT).await
        };
        let made = match made {
            Ok(connection) => links.examine(&connection).await.map(|()| connection),
            Err(error) => Err(error),
        };
        match &made {
            Ok(_) => links.server.outage().ends(),
            Err(error) => links.server.outage().begins(began, error),
        }
        drop(links);
        *lock(&this.state) = match &made {
            Ok(connection) => State::Open(Arc::clone(connection)),
            Err(error) => State::Failed(Instant::now() + PAUSE, error.clone()),
        };
        if let Ok(connection) = &made {
            sentinel.connection = Arc::downgrade(connection);
        }
        tell.send_replace(Some(made));
        drop((this, tell));
        end.await;
        sentinel.finished = true;
    }
}

/// The first of several attempts, of which one begins every quarter of a second.
///
/// What an attempt sent while the server could not be reached may never be answered; the next one shows that it is back.
/// Only for the library's own runtime, so that a server in trouble does not see more of each process.
async fn first_of<F: Future>(begin: impl Fn() -> F) -> F::Output {
    const PAUSE: Duration = Duration::from_millis(250);
    const ATTEMPTS: usize = 8;
    let mut attempts = vec![Box::pin(begin())];
    loop {
        let may_be_more = attempts.len() < ATTEMPTS;
        let first = poll_fn(|context| {
            let ready = attempts.iter_mut().find_map(|attempt| match attempt.as_mut().poll(context) {
                Poll::Ready(output) => Some(output),
                Poll::Pending => None,
            });
            ready.map_or(Poll::Pending, Poll::Ready)
        });
        tokio::select! {
            biased;
            output = first => return output,
            () = tokio::time::sleep(PAUSE), if may_be_more => {}
        }
        attempts.push(Box::pin(begin()));
    }
}

/// Notices that a runtime was shut down: nobody drives its connection any more, and the driver does not say so.
struct Sentinel {
    link: Weak<Link>,
    connection: Weak<Connection>,
    finished: bool,
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        if let Some(link) = self.link.upgrade() {
            link.runtime_is_gone.store(true, Ordering::Release);
        }
        if let Some(connection) = self.connection.upgrade() {
            connection.is_gone_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_that_ended_while_the_server_was_away_are_forgotten() {
        let config = Config::from_url("redis+unix:///nowhere").expect("valid");
        let links = Arc::new(Links::new(config).expect("valid"));
        for _ in 0..100 {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(links.here()).expect_err("nobody is there");
        }
        std::thread::sleep(PAUSE);
        let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(links.here()).expect_err("nobody is there");
        assert_eq!(lock(&links.by_runtime).len(), 1);
    }
}
