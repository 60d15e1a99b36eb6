//! A scripted store, for the tests of the layers above the stores.

use std::{
    collections::{HashMap, VecDeque},
    future::pending,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant as StdInstant},
};

use crate::{
    FencingToken, LockError, LockErrorKind, LockKey, LockManager, OwnerToken,
    backend::{
        Acquire, Acquired, Backend, BoxFuture, Capabilities, Grant, HandOver, Held, Lease, LeaseId, Modes,
        Progress, Releasable, Released, Renew, Renewal,
    },
    sync::lock,
    time::{clock::Instant, deadline::valid_until},
};

/// How the store answers a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// As a working store does.
    Yes,
    /// Another client holds the lock, or it is no longer ours.
    No,
    Fails,
    /// With an error that no retry can fix.
    Refuses,
    /// Never.
    Silent,
    /// Reports that another client holds the lock; otherwise as `Silent`.
    Waits,
    /// A bug in the store.
    Panics,
    /// As `Yes`, after this delay; a lease counts from before it.
    Late(Duration),
}

/// A store whose answers the test chooses. It does not track holders: only a [`Reply`] refuses a caller.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mock(Arc<State>);

#[derive(Debug, Default)]
struct State {
    acquires: Replies,
    renewals: Replies,
    releases: Replies,
    contended: AtomicBool,
    /// Whether it supports no mode at all.
    is_modeless: AtomicBool,
    /// Whether it numbers its grants without room for the tokens of hand-overs.
    numbers_grants: AtomicBool,
    tokens: AtomicU64,
    /// The reporters of the acquisitions answered by [`Reply::Waits`].
    progress: Mutex<Vec<Progress>>,
}

/// The answers to one kind of call: the next of `once`, or `then` if there is none.
#[derive(Debug)]
pub(crate) struct Replies(Mutex<Calls>);

#[derive(Debug)]
struct Calls {
    once: VecDeque<Reply>,
    /// The answers about single locks, which override the others.
    about_one: HashMap<String, Reply>,
    then: Reply,
    /// The lock of each call so far.
    about: Vec<String>,
}

impl Default for Replies {
    fn default() -> Self {
        Self(Mutex::new(Calls {
            once: VecDeque::new(),
            about_one: HashMap::new(),
            then: Reply::Yes,
            about: Vec::new(),
        }))
    }
}

impl Replies {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        lock(&self.0)
    }

    pub(crate) fn set(&self, then: Reply) {
        self.lock().then = then;
    }

    pub(crate) fn once(&self, replies: impl IntoIterator<Item = Reply>) {
        self.lock().once.extend(replies);
    }

    /// Sets the answer about `key` from now on.
    pub(crate) fn set_about(&self, key: &str, then: Reply) {
        self.lock().about_one.insert(key.into(), then);
    }

    /// Returns the number of calls.
    pub(crate) fn total(&self) -> usize {
        self.lock().about.len()
    }

    /// Returns the number of calls about `key`.
    pub(crate) fn count(&self, key: &str) -> usize {
        self.lock().about.iter().filter(|called| *called == key).count()
    }

    fn next(&self, key: &str) -> Reply {
        let mut calls = self.lock();
        calls.about.push(key.into());
        if let Some(reply) = calls.about_one.get(key) {
            return *reply;
        }
        calls.once.pop_front().unwrap_or(calls.then)
    }
}

impl Mock {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn manager(&self) -> LockManager {
        LockManager::new(self.clone())
    }

    pub(crate) fn acquires(&self) -> &Replies {
        &self.0.acquires
    }

    pub(crate) fn renewals(&self) -> &Replies {
        &self.0.renewals
    }

    pub(crate) fn releases(&self) -> &Replies {
        &self.0.releases
    }

    /// Takes the progress reporters of the acquisitions answered by [`Reply::Waits`] since the last call.
    pub(crate) fn take_progress(&self) -> Vec<Progress> {
        std::mem::take(&mut lock(&self.0.progress))
    }

    /// Makes it support no mode.
    pub(crate) fn set_modeless(&self) {
        self.0.is_modeless.store(true, Ordering::Release);
    }

    /// Makes it number its grants without room for hand-overs.
    pub(crate) fn set_numbering(&self) {
        self.0.numbers_grants.store(true, Ordering::Release);
    }

    /// Sets whether other clients wait in the store.
    pub(crate) fn set_contended(&self, contended: bool) {
        self.0.contended.store(contended, Ordering::Release);
    }
}

fn failure() -> LockError {
    LockError::new(LockErrorKind::Backend, "told to fail")
}

/// Panics without the panic hook, which would print the message.
fn panic() -> ! {
    std::panic::resume_unwind(Box::new("told to panic"))
}

impl Backend for Mock {
    fn capabilities(&self) -> Capabilities {
        let store = Capabilities::new().shared_between_processes();
        if self.0.is_modeless.load(Ordering::Acquire) { store.with_modes(Modes::none()) } else { store }
    }

    fn acquire(&self, request: Acquire) -> BoxFuture<'static, Result<Acquired, LockError>> {
        let state = Arc::clone(&self.0);
        Box::pin(async move {
            let sent = Instant::now();
            match state.acquires.next(request.key.as_str()) {
                Reply::Yes => {}
                Reply::No => return Ok(Acquired::busy(None)),
                Reply::Fails => return Err(failure()),
                Reply::Refuses => return Err(failure().into_permanent()),
                Reply::Silent => pending().await,
                Reply::Waits => {
                    request.progress.contended();
                    lock(&state.progress).push(request.progress.clone());
                    pending::<()>().await;
                }
                Reply::Panics => panic(),
                Reply::Late(delay) => tokio::time::sleep(delay).await,
            }
            let number = 1 + state.tokens.fetch_add(1, Ordering::Relaxed);
            let is_numbered = state.numbers_grants.load(Ordering::Acquire);
            let token = if is_numbered {
                FencingToken::from_number(number)
            } else {
                FencingToken::from_micros(number)
            };
            let id = request.lease_id(OwnerToken::random(), token);
            let lease = Arc::new(MockLease { state, id });
            let held = Held::lease(lease, valid_until(sent, request.ttl));
            Ok(Acquired::Granted(Grant::new(token, held)))
        })
    }

    fn renewal(&self) -> Option<&dyn Renew> {
        Some(self)
    }
}

impl Renew for Mock {
    fn renew<'a>(&'a self, due: &'a [LeaseId]) -> BoxFuture<'a, Vec<Renewal>> {
        Box::pin(async move {
            let sent = Instant::now();
            let mut answers = Vec::new();
            for id in due {
                answers.push(match self.0.renewals.next(id.key.as_str()) {
                    Reply::Yes => Renewal::Renewed(valid_until(sent, id.ttl)),
                    Reply::No => Renewal::NotHeld,
                    Reply::Fails | Reply::Refuses => Renewal::Unknown(failure()),
                    Reply::Silent | Reply::Waits => pending().await,
                    Reply::Panics => panic(),
                    Reply::Late(delay) => {
                        tokio::time::sleep(delay).await;
                        Renewal::Renewed(valid_until(sent, id.ttl))
                    }
                });
            }
            answers
        })
    }
}

#[derive(Debug)]
struct MockLease {
    state: Arc<State>,
    id: LeaseId,
}

impl Releasable for MockLease {
    fn key(&self) -> &LockKey {
        &self.id.key
    }

    fn release(&self) -> BoxFuture<'_, Result<Released, LockError>> {
        Box::pin(async move {
            match self.state.releases.next(self.id.key.as_str()) {
                Reply::Yes => Ok(Released::Released),
                Reply::No => Ok(Released::NotHeld),
                Reply::Fails | Reply::Refuses => Err(failure()),
                Reply::Silent | Reply::Waits => pending().await,
                Reply::Panics => panic(),
                Reply::Late(delay) => {
                    tokio::time::sleep(delay).await;
                    Ok(Released::Released)
                }
            }
        })
    }
}

impl Lease for MockLease {
    fn id(&self) -> &LeaseId {
        &self.id
    }

    fn may_hand_over(&self) -> HandOver {
        let contended = self.state.contended.load(Ordering::Acquire);
        if contended { HandOver::contended() } else { HandOver::uncontended() }
    }

    fn wanted(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            while !self.state.contended.load(Ordering::Acquire) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
    }
}

/// A subscriber that keeps all texts of this thread, and what happens to spans.
#[derive(Clone)]
pub(crate) struct Log {
    events: Arc<Mutex<String>>,
    spans: Arc<Mutex<String>>,
}

/// Another subscriber, for as long as the program runs. While there is only one, `tracing` asks that of the current thread
/// alone whether it wants an event: a test on another thread, which has none, would turn the event off for all.
static OTHER: LazyLock<tracing::Dispatch> =
    LazyLock::new(|| tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default()));

impl Default for Log {
    fn default() -> Self {
        LazyLock::force(&OTHER);
        Self { events: Arc::default(), spans: Arc::default() }
    }
}

/// Writes each field in a line of its own.
struct Text<'a>(&'a mut String);

impl tracing::field::Visit for Text<'_> {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        use std::fmt::Write;
        let _ = match field.name() {
            name if name.starts_with("lock.") => writeln!(self.0, "{name}={value:?}"),
            _ => writeln!(self.0, "{value:?}"),
        };
    }
}

impl Log {
    pub(crate) fn texts(&self) -> String {
        lock(&self.events).clone()
    }

    pub(crate) fn spans(&self) -> String {
        lock(&self.spans).clone()
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        let mut spans = lock(&self.spans);
        spans.push_str(span.metadata().name());
        spans.push('\n');
        span.record(&mut Text(&mut spans));
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        values.record(&mut Text(&mut lock(&self.spans)));
    }
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut Text(&mut lock(&self.events)));
    }
    fn enter(&self, _: &tracing::span::Id) {
        lock(&self.spans).push('(');
    }
    fn exit(&self, _: &tracing::span::Id) {
        lock(&self.spans).push(')');
    }
}

/// Waits until `condition` is met, for at most 10 s, which is far longer than it takes.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = StdInstant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(StdInstant::now() < end, "{what}: not within 10 s");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
