//! Notifications of releases, over one connection of the process.
//!
//! Notifications are only hints: any user of the database can send a false one, and one may be lost. Therefore, each
//! waiter also asks again after a pause.
//!
//! Behind a pooler that gives each transaction another session of the server, notifications do not arrive, and
//! statements cannot be prepared. Until the listener has proved that no other client uses its session, waiters poll,
//! and statements over the store's own connections are sent as text.

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use sqlx::Executor;
use tokio::{sync::Notify, time::timeout};

use super::{
    config::Config,
    listener::{self, Found, Session},
};
use crate::{
    backend::common::hints::{self, Hints},
    background,
    sync::check_or_wait,
    time::{
        backoff::between,
        clock::{self, Instant},
    },
};

/// How long releases of a lock send notifications after a waiter has asked for the lock. If less than half of this time
/// is left when a waiter asks again, the time begins anew.
pub(crate) const NOTICE_PERIOD: Duration = Duration::from_millis(1_500);
/// Bounds on the random part of the head start that this process gives other clients after a release. The other part of
/// the head start is the duration of the request that was granted the lock, so that a notified client can ask first.
pub(crate) const HEAD_START: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(16)];
/// Pause of a waiter that is notified of releases: a notification may be lost with its connection.
const PAUSE_OF_NOTIFIED: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(350)];
/// Pause of a waiter that is not notified.
const PAUSE_OF_POLLS: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(100)];
/// Number of acquisitions after which a process listens although none of its tasks has waited.
const ACQUISITIONS_BEFORE_LISTENING: u64 = 64;
/// Pause before this process tries to listen again, behind a pooler or with a server that refuses notifications.
const PAUSE_WITHOUT_NOTICES: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(60)];
/// Pause before the next attempt, after a connection was lost or could not be made.
const PAUSE: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(500)];
/// Length of silence after which the connection is checked, unless the `response_timeout` is shorter.
const SILENCE: Duration = Duration::from_secs(2);
/// How long the connection is kept without waiters.
const UNUSED: Duration = Duration::from_secs(60);

/// The payload of the notification that an operator has revoked a lock. The other payloads begin with a hash.
const REVOKED: &str = "revoked";

/// The notifications of one store.
#[derive(Debug)]
pub(crate) struct Notices {
    config: Config,
    pub(crate) channel: String,
    pub(crate) hints: Arc<Hints>,
    /// Whether a connection keeps its session from one statement to the next, as far as is known.
    keeps_sessions: Arc<AtomicBool>,
    /// Whether notifications arrive.
    arrive: AtomicBool,
    /// Whether the server refuses notifications, as far as is known.
    refuses: AtomicBool,
    /// The number of acquisitions.
    asked: AtomicU64,
    /// Whether the task that listens runs.
    runs: AtomicBool,
    /// Notified when an operator may have revoked a lock.
    pub(crate) revoked: Arc<Notify>,
    /// Notified when a task begins to wait, when the server refuses a notification, and when the store is dropped.
    wake: Arc<Notify>,
}

impl Notices {
    pub(crate) fn new(config: Config, keeps_sessions: Arc<AtomicBool>) -> Arc<Self> {
        Arc::new(Self {
            channel: config.table.channel(),
            config,
            keeps_sessions,
            hints: Arc::default(),
            arrive: AtomicBool::new(false),
            refuses: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            runs: AtomicBool::new(false),
            revoked: Arc::default(),
            wake: Arc::default(),
        })
    }

    /// Records that the server has refused a notification. From now on, waiters poll until this process can listen
    /// again.
    pub(crate) fn refused(&self, cause: &impl fmt::Display) {
        if !self.refuses.swap(true, Ordering::AcqRel) {
            tracing::warn!(
                "PostgreSQL at {} takes no notifications ({cause}): locks are released without, and waiters ask for them \
                 every 50 to 100 ms",
                self.config.address()
            );
            self.wake.notify_one();
        }
    }

    /// Counts an acquisition. A process with more than [`ACQUISITIONS_BEFORE_LISTENING`] acquisitions listens even if
    /// none of its tasks has waited, so that its statements can be prepared. A process with fewer acquisitions is
    /// spared the connection.
    pub(crate) fn asked(self: &Arc<Self>) {
        if self.asked.fetch_add(1, Ordering::Relaxed) == ACQUISITIONS_BEFORE_LISTENING {
            self.start();
        }
    }

    /// Starts the task that listens, unless that task has begun.
    fn start(self: &Arc<Self>) {
        if !self.runs.swap(true, Ordering::SeqCst) {
            background::handle().spawn(listen(Arc::downgrade(self), Arc::clone(&self.wake)));
        }
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

/// Waits for the releases of one lock; ends when dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    notices: Arc<Notices>,
    messages: hints::Watch,
}

impl Watch {
    pub(crate) fn begin(notices: &Arc<Notices>, payload: Arc<str>) -> Self {
        let messages = notices.hints.watch(payload);
        notices.start();
        notices.wake.notify_one();
        Self { notices: Arc::clone(notices), messages }
    }

    /// Returns whether notifications arrive.
    pub(crate) fn is_notified(&self) -> bool {
        self.notices.arrive.load(Ordering::Acquire)
    }

    /// Returns the bounds of the pause until a waiter asks again by itself.
    pub(crate) fn pause(&self) -> [Duration; 2] {
        if self.is_notified() { PAUSE_OF_NOTIFIED } else { PAUSE_OF_POLLS }
    }

    /// Returns the text of the last notification, if it was the notification of a grant.
    pub(crate) fn grant(&self) -> Option<Arc<str>> {
        self.messages.text()
    }
}

impl AsRef<hints::Watch> for Watch {
    fn as_ref(&self) -> &hints::Watch {
        &self.messages
    }
}

/// Why a connection no longer listens.
enum End {
    /// The connection was lost, or not made.
    Lost,
    /// The connection is behind a pooler.
    Pooled,
    /// The server refuses to notify.
    Refused,
    /// No task has waited during the last [`UNUSED`].
    Unused,
}

/// Listens until the store is dropped.
async fn listen(store: Weak<Notices>, wake: Arc<Notify>) {
    let mut told = false;
    loop {
        let Some(notices) = store.upgrade() else { return };
        let end = listen_once(&notices, &store, &wake).await;
        // Notifications of releases may have been lost, so all waiters ask.
        notices.arrive.store(false, Ordering::Release);
        notices.hints.notify_all();
        drop(notices);
        let pause = match end {
            None => return,
            Some(End::Lost) => PAUSE,
            Some(End::Pooled) => {
                if !told {
                    tracing::info!(
                        "notifications do not arrive, as behind a pooler of transactions: waiters ask for a lock every \
                         50 to 100 ms"
                    );
                    told = true;
                }
                PAUSE_WITHOUT_NOTICES
            }
            Some(End::Refused) => PAUSE_WITHOUT_NOTICES,
            Some(End::Unused) => {
                let used = || store.upgrade().is_none_or(|notices| notices.hints.is_watched()).then_some(());
                while check_or_wait(&wake, used).await.is_none() {}
                [Duration::ZERO; 2]
            }
        };
        let _ = timeout(between(pause), async {
            while store.strong_count() > 0 {
                wake.notified().await;
            }
        })
        .await;
    }
}

/// Listens over one connection; returns why it ended, or `None` if the store is to be dropped.
async fn listen_once(notices: &Arc<Notices>, store: &Weak<Notices>, wake: &Notify) -> Option<End> {
    let config = &notices.config;
    let limit = (config.connect_timeout + config.response_timeout) * 2;
    let mut listener = match timeout(limit, listener::connect(&notices.channel, config, Session::New)).await {
        Ok(Ok(Found::Notified(listener))) => listener,
        Ok(Ok(Found::Unnotified(_, cause))) => {
            notices.refused(&cause);
            return Some(End::Refused);
        }
        Ok(Ok(Found::Pooled)) => {
            notices.keeps_sessions.store(false, Ordering::Release);
            return Some(End::Pooled);
        }
        Ok(Err(_)) | Err(_) => return Some(End::Lost),
    };
    notices.keeps_sessions.store(true, Ordering::Release);
    notices.refuses.store(false, Ordering::Release);
    notices.arrive.store(true, Ordering::Release);
    notices.hints.notify_all();
    let (silence, response_timeout) = (SILENCE.min(config.response_timeout), config.response_timeout);
    let mut used = Instant::now();
    loop {
        if notices.hints.is_watched() {
            used = Instant::now();
        } else if (used + UNUSED).has_passed() {
            return Some(End::Unused);
        }
        if notices.refuses.load(Ordering::Acquire) {
            return Some(End::Refused);
        }
        // Only this task still has the store.
        if store.strong_count() <= 1 {
            return None;
        }
        tokio::select! {
            biased;
            message = listener.try_recv() => match message {
                Ok(Some(message)) if message.channel() == notices.channel => {
                    match message.payload().split_once(' ') {
                        None if message.payload() == REVOKED => notices.revoked.notify_one(),
                        Some((lock, grant)) => notices.hints.notify_with_text(lock, grant),
                        None => notices.hints.notify(message.payload()),
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return Some(End::Lost),
            },
            () = wake.notified() => {}
            () = clock::sleep_until(Instant::now() + silence) => {
                let checked = timeout(response_timeout, listener.execute("SELECT 1")).await;
                if !matches!(checked, Ok(Ok(_))) {
                    return Some(End::Lost);
                }
            }
        }
    }
}
