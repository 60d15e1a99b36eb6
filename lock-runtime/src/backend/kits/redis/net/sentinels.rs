//! Redis Sentinels: which server is the primary, and when another one became the primary.
//!
//! All runtimes and callers of a store share one question to the Sentinels, which is asked on the library's own thread.
//! The answer is used until there is a sign that it is outdated: a connection to the primary failed, broke, fell
//! silent or was refused writes (see [`Place::doubt`]), or a Sentinel announced another primary.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use redis::ConnectionAddr;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::{sleep, timeout_at},
};

use super::{
    super::config::Config,
    place::Place,
    sentinel::{Event, Sentinel},
    verdict::{self, Answer, Verdict},
};
use crate::{
    LockError, LockErrorKind,
    backend::common::single_flight::{self, Attempt, SingleFlight},
    background,
    sync::lock,
    time::clock::Instant,
};

/// Time for which the answers of the remaining Sentinels are awaited once a majority has answered: after a failover, not
/// all Sentinels know the new primary at once.
const GRACE: Duration = Duration::from_millis(100);
/// Minimum time between two questions, unless a Sentinel has announced another primary in between.
const PAUSE: Duration = Duration::from_millis(200);
/// Pause between two questions without a usable answer, while no caller needs a connection.
const RETRY: Duration = Duration::from_millis(500);

/// A primary that Sentinels watch: its name, the Sentinels, and how to connect to its servers.
#[derive(Clone, Debug)]
pub(crate) struct SentinelSet {
    /// The name of the primary in the Sentinels' configuration.
    pub(crate) name: String,
    pub(crate) sentinels: Vec<Config>,
    /// The settings of the connections to the servers; the address is that of no server.
    pub(crate) servers: Config,
}

impl SentinelSet {
    /// Returns the addresses of the Sentinels and the name of the primary, as in the URL.
    pub(crate) fn address(&self) -> String {
        let sentinels: Vec<_> = self.sentinels.iter().map(Config::address).collect();
        format!("{}/{}", sentinels.join(","), self.name)
    }
}

#[derive(Debug)]
pub(super) struct Sentinels {
    name: Arc<str>,
    servers: Config,
    all: Vec<Arc<Sentinel>>,
    current: SingleFlight<Arc<Place>>,
    known: Mutex<Known>,
    /// When a Sentinel last announced another primary.
    noticed: AtomicU64,
    /// Notified when the primary may have changed.
    change: Arc<Notify>,
    is_watching: AtomicBool,
    /// Number of Sentinels whose announcements are received.
    heard: AtomicUsize,
    /// Dropped with the store, which ends the tasks that watch the Sentinels.
    closing: watch::Sender<()>,
}

/// The primary that this process last believed in.
#[derive(Debug)]
struct Known {
    place: Option<Arc<Place>>,
    epoch: u64,
    /// When the last question was sent.
    asked: Instant,
}

impl Sentinels {
    pub(super) fn new(set: SentinelSet) -> Result<Arc<Self>, LockError> {
        let sentinels = set.sentinels.into_iter().map(|config| Sentinel::new(config).map(Arc::new));
        Ok(Arc::new(Self {
            name: set.name.into(),
            servers: set.servers,
            all: sentinels.collect::<Result<_, _>>()?,
            current: SingleFlight::default(),
            known: Mutex::new(Known { place: None, epoch: 0, asked: Instant::from_nanos(0) }),
            noticed: AtomicU64::new(0),
            change: Arc::default(),
            is_watching: AtomicBool::new(false),
            heard: AtomicUsize::new(0),
            closing: watch::Sender::new(()),
        }))
    }

    /// Returns the name of the primary in the Sentinels' configuration.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn all(&self) -> &[Arc<Sentinel>] {
        &self.all
    }

    /// Returns the place of the primary; asks the Sentinels if it is not known, or in doubt.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn primary(self: &Arc<Self>) -> Result<Arc<Place>, LockError> {
        let begin = |attempt| {
            background::handle().spawn(Arc::clone(self).find(attempt));
            Ok(())
        };
        let given_up = "the question to the Redis Sentinels was given up";
        self.current.get(|place| !place.is_doubted(), begin, given_up).await
    }

    async fn find(self: Arc<Self>, attempt: Attempt<Arc<Place>>) {
        let last = lock(&self.known).asked;
        if self.noticed.load(Ordering::Acquire) <= last.as_nanos() {
            sleep((last + PAUSE).saturating_duration_since(Instant::now())).await;
        }
        let sent = Instant::now();
        lock(&self.known).asked = sent;
        let (answers, failure) = self.ask(sent).await;
        let (found, left) = match self.judge(sent, &answers, failure) {
            Ok((place, left)) => {
                self.watch();
                (Ok(place), left)
            }
            Err(error) => (Err(error), None),
        };
        let to = found.as_ref().ok().map(|place| place.config().address());
        self.current.finish(attempt, found);
        if let Some(left) = left {
            left.leave();
            // The log comes last, because its subscriber may panic.
            let from = left.config().address();
            tracing::info!(name = &*self.name, from, to, "another Redis server is the primary");
        }
    }

    /// Asks all Sentinels. Returns their answers, and the failure of one that did not answer: a failure that lasts until
    /// the configuration is fixed, if all that failed have such a failure.
    async fn ask(&self, sent: Instant) -> (Vec<Answer>, Option<LockError>) {
        let count = self.all.len();
        let mut questions = JoinSet::new();
        for (number, sentinel) in self.all.iter().enumerate() {
            let (sentinel, name) = (Arc::clone(sentinel), Arc::clone(&self.name));
            questions.spawn(async move { (number, sentinel.ask(&name).await) });
        }
        let mut answers = vec![Answer::Missing; count];
        let mut failure: Option<LockError> = None;
        let mut end = tokio::time::Instant::now() + self.servers.connect_timeout;
        while let Ok(Some(answered)) = timeout_at(end, questions.join_next()).await {
            match answered {
                Ok((number, Ok(answer))) => answers[number] = answer,
                Ok((_, Err(error))) => {
                    if failure.as_ref().is_none_or(|known| !known.is_retryable()) {
                        failure = Some(error);
                    }
                }
                Err(_) => {}
            }
            if answers.iter().filter_map(Answer::primary).count() >= verdict::majority(count) {
                end = end.min(tokio::time::Instant::now() + GRACE);
            }
        }
        if !questions.is_empty() && failure.as_ref().is_none_or(|known| !known.is_retryable()) {
            let limit = Instant::now().saturating_duration_since(sent);
            failure = Some(LockError::backend(format!("no answer within {limit:?}")));
        }
        (answers, failure)
    }

    /// Returns the place of the primary that the answers name, and the place that is left for it, if any.
    fn judge(
        &self,
        sent: Instant,
        answers: &[Answer],
        failure: Option<LockError>,
    ) -> Result<(Arc<Place>, Option<Arc<Place>>), LockError> {
        let mut known = lock(&self.known);
        let named = match verdict::judge(answers, known.epoch) {
            Verdict::Primary(named) => named,
            // Sentinels that are set up anew may not know the name for a moment.
            Verdict::UnknownName if known.place.is_some() => return Err(self.unknown_name()),
            Verdict::UnknownName => return Err(self.unknown_name().into_permanent()),
            Verdict::NoMajority { named } => return Err(self.no_majority(named, failure)),
            Verdict::Outdated => {
                return Err(LockError::backend(format!(
                    "the Redis Sentinels that answer have not learned of the last failover of `{}` yet",
                    self.name
                )));
            }
        };
        known.epoch = named.epoch;
        let (host, port) = &named.address;
        let is_same = |place: &&Arc<Place>| place.config().host_and_port() == Some((host.as_str(), *port));
        // An announcement may have come after the question was answered.
        let noticed = Instant::from_nanos(self.noticed.load(Ordering::Acquire));
        if let Some(place) = known.place.as_ref().filter(is_same) {
            place.confirm(sent);
            place.doubt(noticed);
            return Ok((Arc::clone(place), None));
        }
        let address = ConnectionAddr::Tcp(host.clone(), *port);
        let config = Config { info: self.servers.info.clone().set_addr(address), ..self.servers.clone() };
        let place = Place::new(config, sent)?;
        place.doubt(noticed);
        let left = known.place.replace(Arc::clone(&place));
        Ok((place, left))
    }

    fn unknown_name(&self) -> LockError {
        LockError::backend(format!(
            "the Redis Sentinels watch no primary named `{}`; check the name after the `/` in the URL, which is the one in \
             `sentinel monitor <name> …`",
            self.name
        ))
    }

    fn no_majority(&self, named: usize, failure: Option<LockError>) -> LockError {
        let count = self.all.len();
        let why = failure.as_ref().map_or_else(String::new, |failure| format!(": {}", failure.message()));
        let message = if named == 0 && count == 1 {
            format!("the Redis Sentinel does not answer{why}")
        } else if named == 0 {
            format!("none of the {count} Redis Sentinels answers{why}")
        } else {
            format!(
                "only {named} of the {count} Redis Sentinels in the URL answer, and a minority may not know the primary{why}"
            )
        };
        match failure {
            Some(failure) if !failure.is_retryable() && named == 0 => failure.saying(message),
            Some(failure) => LockError::backend(message).with_source(failure),
            None => LockError::new(LockErrorKind::Backend, message),
        }
    }

    /// Starts the tasks that watch the Sentinels, unless they run. They are started once the Sentinels have answered: before,
    /// nothing is known that could change.
    fn watch(self: &Arc<Self>) {
        if self.is_watching.swap(true, Ordering::AcqRel) {
            return;
        }
        for sentinel in &self.all {
            let (sentinel, name) = (Arc::clone(sentinel), Arc::clone(&self.name));
            let (this, mut closing) = (Arc::downgrade(self), self.closing.subscribe());
            background::handle().spawn(async move {
                let report = |event| {
                    if let Some(this) = this.upgrade() {
                        this.on(event);
                    }
                };
                tokio::select! {
                    () = sentinel.watch(&name, &report) => {}
                    _ = closing.changed() => {}
                }
            });
        }
        // The store is not kept alive between two questions.
        let (this, mut closing) = (Arc::downgrade(self), self.closing.subscribe());
        let change = Arc::clone(&self.change);
        background::handle().spawn(async move {
            loop {
                tokio::select! {
                    () = change.notified() => {}
                    _ = closing.changed() => return,
                }
                // The connections to a primary that was replaced are given up even if no caller needs a new connection.
                while let Some(sentinels) = this.upgrade().filter(|this| this.is_in_doubt()) {
                    let answer = sentinels.primary().await;
                    drop(sentinels);
                    sleep(if answer.is_ok() { single_flight::PAUSE } else { RETRY }).await;
                }
            }
        });
    }

    fn is_in_doubt(&self) -> bool {
        lock(&self.known).place.as_ref().is_some_and(|place| place.is_doubted())
    }

    fn on(&self, event: Event) {
        let needed = verdict::majority(self.all.len());
        match event {
            Event::Heard => {
                self.heard.fetch_add(1, Ordering::AcqRel);
            }
            Event::Unheard => {
                if self.heard.fetch_sub(1, Ordering::AcqRel) == needed {
                    // Another primary could be announced unheard. The open connections are kept.
                    if let Some(place) = &lock(&self.known).place {
                        place.doubt(Instant::now());
                    }
                    tracing::warn!(
                        name = &*self.name,
                        "only {} of the {} Redis Sentinels in the URL can be reached: no new connection is made until a \
                         majority can",
                        needed - 1,
                        self.all.len()
                    );
                }
            }
            Event::Missed(when) => self.doubt(when),
            Event::Announced => {
                let now = Instant::now();
                self.noticed.fetch_max(now.as_nanos(), Ordering::AcqRel);
                self.doubt(now);
            }
        }
    }

    /// Has the Sentinels asked again, unless they were asked after `when`.
    fn doubt(&self, when: Instant) {
        if let Some(place) = &lock(&self.known).place {
            place.doubt(when);
        }
        self.change.notify_one();
    }
}
