//! One session with the ensemble, shared by all locks of a store, from its making to its end.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use ::zookeeper_client as zk;
use tokio::{sync::watch, task::JoinSet};

use super::{config::Config, diagnosis, error::Failure, heartbeat::Heartbeats};
use crate::{
    LockError, LockErrorKind,
    backend::outage::Outage,
    sync::lock,
    time::{
        clock::{self, Instant},
        deadline::valid_until,
    },
};

/// What is heard of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// They answer, and what they grant may be relied on for a while.
    Answering,
    /// They do not, or have only just begun to again; the session may still live.
    Suspect,
    /// It is over. Final.
    Ended,
}

/// What is held in a session and ends with it.
pub(super) trait InSession: Send + Sync {
    /// It is not there any more.
    fn lost(&self, why: &str);

    /// Begins to watch whether it is removed by hand. To be called on the library's own runtime.
    fn watch(self: Arc<Self>);
}

/// A session; dropped, it is closed, and its nodes go with it.
pub(super) struct Session {
    client: zk::Client,
    acls: zk::Acls<'static>,
    response_timeout: Duration,
    beats: Mutex<Heartbeats>,
    /// Until when the session may be relied on; writes move it.
    valid_until: AtomicU64,
    /// How many nodes there are in it, or may be.
    nodes: AtomicUsize,
    state: watch::Sender<State>,
    /// What is held in it.
    held: Mutex<HashMap<u64, Weak<dyn InSession>>>,
    numbers: AtomicU64,
    outage: Arc<Outage>,
}

impl Session {
    /// Makes a session. To be called on the library's own runtime: the driver's tasks stay there.
    pub(super) async fn open(config: &Config, outage: &Arc<Outage>) -> Result<Arc<Self>, LockError> {
        let sent = Instant::now();
        Ok(Self::begin(connect(config).await?, sent, config, Arc::clone(outage)))
    }

    /// With a client that was asked for at `sent`.
    fn begin(client: zk::Client, sent: Instant, config: &Config, outage: Arc<Outage>) -> Arc<Self> {
        let beats = Heartbeats::new(client.session_timeout(), sent);
        tracing::debug!(servers = config.servers, timeout = ?client.session_timeout(), "session with ZooKeeper");
        let states = client.state_watcher();
        let interval = beats.interval();
        let this = Arc::new(Self {
            acls: config.acls(),
            response_timeout: config.response_timeout,
            // The leader itself made it after that, by a write.
            valid_until: AtomicU64::new(valid_until(sent, client.session_timeout()).as_nanos()),
            beats: Mutex::new(beats),
            nodes: AtomicUsize::new(0),
            state: watch::channel(State::Answering).0,
            held: Mutex::default(),
            numbers: AtomicU64::new(0),
            outage,
            client,
        });
        tokio::spawn(keep(Arc::downgrade(&this), states, interval));
        this
    }

    pub(super) fn client(&self) -> &zk::Client {
        &self.client
    }

    pub(super) fn acls(&self) -> zk::Acls<'static> {
        self.acls
    }

    /// As the servers granted it, which may be other than what was asked for.
    pub(super) fn timeout(&self) -> Duration {
        self.client.session_timeout()
    }

    pub(super) fn valid_until(&self) -> Instant {
        Instant::from_nanos(self.valid_until.load(Ordering::Acquire))
    }

    fn beats(&self) -> MutexGuard<'_, Heartbeats> {
        lock(&self.beats)
    }

    /// A write that was sent at `sent` has been carried out.
    pub(super) fn wrote(&self, sent: Instant) {
        let until = self.beats().valid_until(sent);
        if let Some(until) = until {
            self.valid_until.fetch_max(until.as_nanos(), Ordering::AcqRel);
        }
    }

    /// A heartbeat that was sent at `sent` was answered.
    fn heard(&self, sent: Instant, beat: Beat) {
        let interval = {
            let mut beats = self.beats();
            beats.answered(sent, Instant::now());
            beats.interval()
        };
        let proved = match beat {
            Beat::Write => {
                self.wrote(sent);
                self.valid_until()
            }
            // The write that asks for a lock would prove as much.
            Beat::Read => {
                self.beats().valid_until(sent).unwrap_or(Instant::from_nanos(0)).max(self.valid_until())
            }
        };
        // Three intervals pass until something is proved that was sent after an outage. What is granted by less would be
        // given back as worth nothing.
        let enough = proved.remaining() >= interval * 4;
        self.say(if enough { State::Answering } else { State::Suspect });
        if enough {
            self.outage.ends();
        }
    }

    /// A node begins that may be in this session, until [`node_ends`](Self::node_ends).
    pub(super) fn node_begins(&self) {
        self.nodes.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn node_ends(&self) {
        self.nodes.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn has_ended(&self) -> bool {
        *self.state.borrow() == State::Ended
    }

    /// What is heard of the servers, from now on.
    pub(super) fn states(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Completes when the servers answer; at once, where nothing else is known.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn answering(&self) -> Result<(), Failure> {
        let mut states = self.states();
        let known = states.wait_for(|state| *state != State::Suspect);
        match tokio::time::timeout(self.response_timeout, known).await {
            Ok(Ok(state)) if *state == State::Answering => Ok(()),
            Ok(_) => Err(Failure::Ended(LockError::new(LockErrorKind::Backend, SESSION_OVER))),
            Err(_) => Err(Failure::Unknown(silent())),
        }
    }

    /// A call that has been sent; within the time-out of an answer.
    ///
    /// # Cancel safety
    /// Dropped, the call is made all the same.
    pub(super) async fn answer<T>(
        &self,
        sent: impl Future<Output = Result<T, zk::Error>>,
    ) -> Result<T, zk::Error> {
        // What the driver sends while it is not connected waits there without an end.
        tokio::time::timeout(self.response_timeout, sent).await.unwrap_or(Err(zk::Error::Timeout))
    }

    /// A write that changes nothing. When it is answered, the server to which we are connected knows all that was
    /// carried out before it; after a `sync` it may know only what a leader did that was cut off and replaced.
    ///
    /// # Cancel safety
    /// Dropped, it is made all the same.
    pub(super) async fn vote(&self) -> Result<(), zk::Error> {
        let mut write = self.client.new_multi_writer();
        write.add_check_version("/", -1)?;
        voted(write.commit().await)
    }

    fn held(&self) -> MutexGuard<'_, HashMap<u64, Weak<dyn InSession>>> {
        lock(&self.held)
    }

    /// Tells this hold when the session ends; returns the number by which it is [forgotten](Self::forget).
    pub(super) fn remember(&self, node: &Arc<dyn InSession>) -> u64 {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.held().insert(number, Arc::downgrade(node));
        if self.has_ended() {
            // Ended before it could be told with the others.
            node.lost(SESSION_OVER);
        }
        number
    }

    pub(super) fn forget(&self, number: u64) {
        self.held().remove(&number);
    }

    fn say(&self, state: State) {
        self.state.send_if_modified(|now| {
            let changes = *now != state && *now != State::Ended;
            if changes {
                tracing::debug!(?state, "session with ZooKeeper");
                *now = state;
            }
            changes
        });
    }

    /// Tells everybody at once.
    fn end(&self, why: &str) {
        self.valid_until.store(0, Ordering::Release);
        self.say(State::Ended);
        let held = std::mem::take(&mut *self.held());
        for node in held.into_values().filter_map(|node| node.upgrade()) {
            node.lost(why);
        }
    }

    /// Holds that have lasted for a heartbeat are watched: somebody may delete their nodes.
    fn watch_held(&self) {
        let held: Vec<_> = self.held().values().filter_map(Weak::upgrade).collect();
        held.into_iter().for_each(InSession::watch);
    }
}

/// Before the servers are asked again after the first time; longer each time, up to eight times as long.
const PAUSE: Duration = Duration::from_millis(5);
const SESSION_OVER: &str = "the session with ZooKeeper is over";
const REFUSED: &str = "ZooKeeper refused the credentials when the connection was made again";

/// The error of those who wait for servers that went silent.
pub(super) fn silent() -> LockError {
    LockError::new(LockErrorKind::Backend, "ZooKeeper does not answer, or too late to rely on the session")
}

/// A session as the driver makes it, within the time-out for that.
async fn connect(config: &Config) -> Result<zk::Client, LockError> {
    let limit = config.connect_timeout;
    let end = Instant::now() + limit;
    let late = |_| {
        LockError::new(
            LockErrorKind::Backend,
            format!(
                "ZooKeeper at {} did not answer within {limit:?}; check addresses, ports and firewall",
                config.servers
            ),
        )
    };
    let certificates = match &config.tls {
        Some(tls) => Some(Arc::new(tokio::time::timeout(limit, tls.read()).await.map_err(late)??)),
        None => None,
    };
    let connecting = async {
        let mut attempt = 1;
        let client = loop {
            let connector = config.connector();
            let connected = match &certificates {
                Some(certificates) => certificates.connect(connector, &config.servers).await,
                None => connector.connect(&config.servers).await,
            };
            match connected {
                Err(zk::Error::NoHosts) if attempt < config.attempts() => {
                    tokio::time::sleep(PAUSE * attempt.min(8)).await;
                    attempt += 1;
                }
                connected => break connected?,
            }
        };
        match &config.chroot {
            None => Ok(client),
            Some(chroot) => enter(client, chroot, config).await,
        }
    };
    let error = match tokio::time::timeout(end.remaining(), connecting).await.map_err(late)? {
        Ok(client) => return Ok(client),
        Err(error) => error,
    };
    let reason = match error {
        zk::Error::NoHosts => diagnosis::reason(config, certificates.as_ref()).await,
        _ => None,
    };
    let error = Failure::of(error).into_error();
    let (text, lasts) = match &reason {
        Some(reason) => (&*reason.text, reason.lasts),
        None => (error.message(), !error.is_retryable()),
    };
    let message = format!("cannot connect to ZooKeeper at {}: {text}", config.servers);
    let told = LockError::new(error.kind(), message).with_source(error);
    Err(if lasts { told.into_permanent() } else { told })
}

/// Below `chroot`, which is made if it is not there.
async fn enter(client: zk::Client, chroot: &str, config: &Config) -> Result<zk::Client, zk::Error> {
    let options = zk::CreateMode::Persistent.with_acls(config.acls());
    if client.check_stat(chroot).await?.is_none() {
        client.mkdir(chroot, &options).await?;
    }
    Ok(client.chroot(chroot).expect("the path was checked with the URL"))
}

/// What a heartbeat is.
#[derive(Clone, Copy, Debug)]
enum Beat {
    /// While somebody relies on the session: only that proves something.
    Write,
    /// While nobody does: it costs the servers nothing.
    Read,
}

/// Completes when it is answered.
async fn beat(session: Arc<Session>) -> Result<Beat, zk::Error> {
    if session.nodes.load(Ordering::Relaxed) == 0 {
        return session.client.sync("/").await.map(|()| Beat::Read);
    }
    session.vote().await.map(|()| Beat::Write)
}

/// Whether what was answered shows that a majority has voted for a transaction of a session that lived.
fn voted(answer: Result<Vec<zk::MultiWriteResult>, zk::MultiWriteError>) -> Result<(), zk::Error> {
    match answer {
        // Of a session that it ends, the leader lets the check fail as well.
        Err(zk::MultiWriteError::OperationFailed { source: ended @ zk::Error::SessionExpired, .. }) => {
            Err(ended)
        }
        // That the check fails, somebody having removed the chroot or forbidden to read it, has been voted for as well.
        Ok(_) | Err(zk::MultiWriteError::OperationFailed { .. }) => Ok(()),
        Err(zk::MultiWriteError::RequestFailed { source }) => Err(source),
    }
}

/// So many heartbeats wait for their answers; behind those of a server that is silent there is nothing to learn.
const MOST_UNDER_WAY: usize = 10;

/// After so many time-outs without an answer a session is over, though the driver has not said so: it may be gone, as
/// after a panic.
const FORGOTTEN: u32 = 3;

/// Sends heartbeats and says what is heard, until the session has ended or nobody uses it any more.
async fn keep(session: Weak<Session>, mut states: zk::StateWatcher, interval: Duration) {
    let mut connected = true;
    // More than one where answers take long.
    let mut under_way = JoinSet::new();
    let mut heard_since_last = true;
    let mut heard = Instant::now();
    let mut next = Instant::now() + interval;
    loop {
        tokio::select! {
            biased;
            state = states.changed() => {
                let Some(session) = session.upgrade() else { return };
                connected = state == zk::SessionState::SyncConnected;
                match state {
                    zk::SessionState::SyncConnected => next = Instant::now(),
                    zk::SessionState::Disconnected | zk::SessionState::ConnectedReadOnly => {
                        let error = LockError::new(LockErrorKind::Backend, "the connection was lost");
                        session.outage.begins(Instant::now(), &error);
                        session.say(State::Suspect);
                        under_way = JoinSet::new();
                    }
                    zk::SessionState::AuthFailed => {
                        tracing::warn!("ZooKeeper refuses credentials that it took before; its session is given up");
                        return session.end(REFUSED);
                    }
                    _ => return session.end(SESSION_OVER),
                }
            }
            Some(answered) = under_way.join_next() => {
                let Some(session) = session.upgrade() else { return };
                let Ok((sent, answer)) = answered else { continue };
                match answer {
                    Ok(beat) => {
                        (heard_since_last, heard) = (true, Instant::now());
                        session.heard(sent, beat);
                        session.watch_held();
                    }
                    Err(error) => {
                        tracing::debug!(%error, "a heartbeat failed");
                        match Failure::of(error) {
                            Failure::Ended(_) => return session.end(SESSION_OVER),
                            Failure::Refused(_) => heard = Instant::now(),
                            Failure::Unknown(_) => {}
                        }
                    }
                }
            }
            () = clock::sleep_until(next) => {
                let sent = Instant::now();
                next = sent + interval;
                let Some(session) = session.upgrade() else { return };
                if heard + session.timeout() * FORGOTTEN <= sent {
                    tracing::warn!("the session with ZooKeeper is given up: nothing was heard of it for long");
                    return session.end(SESSION_OVER);
                }
                // Nothing for a whole interval, though there is something to answer.
                if !std::mem::take(&mut heard_since_last) && !under_way.is_empty() {
                    session.say(State::Suspect);
                }
                if connected && under_way.len() < MOST_UNDER_WAY {
                    under_way.spawn(async move { (sent, beat(session).await) });
                }
            }
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.client.session_id())
            .field("state", &*self.state.borrow())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What answers like a server until a session is made, and never again.
    fn server() -> std::net::SocketAddr {
        use std::io::{Read as _, Write as _, copy, sink};

        // The version, the time-out in ms, number and password of the session, whether it takes no writes.
        const SESSION: [u8; 37] = {
            let mut answer = [0; 37];
            (answer[6], answer[7], answer[15], answer[19]) = (1, 44, 1, 16);
            answer
        };
        // The number of its request, which is -2, and of the last change; an error.
        const PING: [u8; 16] = {
            let mut answer = [0; 16];
            (answer[0], answer[1], answer[2], answer[3]) = (255, 255, 255, 254);
            answer
        };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        std::thread::spawn(move || {
            let (mut peer, _) = listener.accept()?;
            for answer in [&SESSION[..], &PING] {
                let mut length = [0; 4];
                peer.read_exact(&mut length)?;
                copy(&mut (&peer).take(u32::from_be_bytes(length).into()), &mut sink())?;
                let length = u32::try_from(answer.len()).expect("short").to_be_bytes();
                peer.write_all(&[&length, answer].concat())?;
            }
            copy(&mut peer, &mut sink())
        });
        address
    }

    #[test]
    fn a_session_whose_driver_is_gone_ends() {
        let config = Config::from_url(&format!("zookeeper://{}", server())).expect("a URL");
        let [drivers, ours] = [(); 2].map(|()| tokio::runtime::Runtime::new().expect("a runtime"));
        let sent = Instant::now();
        let client = drivers.block_on(connect(&config)).expect("a session");
        // As after a panic.
        drivers.shutdown_background();
        ours.block_on(async {
            let session = Session::begin(client, sent, &config, Arc::new(Outage::of(config.servers.clone())));
            assert_eq!(session.timeout(), Duration::from_millis(300));
            let mut states = session.states();
            let ended = states.wait_for(|state| *state == State::Ended);
            tokio::time::timeout(Duration::from_secs(5), ended).await.expect("it ends").expect("and says so");
        });
    }

    #[test]
    fn a_check_that_fails_was_voted_for_but_not_in_a_session_that_is_being_ended() {
        let failed = |source| voted(Err(zk::MultiWriteError::OperationFailed { index: 0, source }));
        for answer in [voted(Ok(vec![])), failed(zk::Error::NoNode), failed(zk::Error::NoAuth)] {
            assert_eq!(answer, Ok(()));
        }
        assert_eq!(failed(zk::Error::SessionExpired), Err(zk::Error::SessionExpired));
        let lost = zk::MultiWriteError::RequestFailed { source: zk::Error::ConnectionLoss };
        assert_eq!(voted(Err(lost)), Err(zk::Error::ConnectionLoss));
    }
}
