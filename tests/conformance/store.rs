//! The interface between the suite and a store: how the store is reached, and how it can be hurt. Nothing in here makes a
//! claim about locks.

use std::{
    env,
    path::Path,
    time::{Duration, Instant},
};

use lock_runtime::{
    LockError, LockErrorKind, LockManager,
    backend::{BoxFuture, Capabilities},
};

/// A store, as the suite sees it. A method with a default describes an ability: without it, the cases that need it are
/// left out.
pub trait Store: Send + Sync {
    /// The first part of the names of its tests.
    fn name(&self) -> &'static str;

    /// A manager of the store at `url`, connected.
    fn connect(&self, url: String) -> BoxFuture<'static, Result<LockManager, LockError>> {
        Box::pin(async move { LockManager::connect(&url).await })
    }

    /// A manager of the store at `url`, which connects when it is used first.
    ///
    /// # Errors
    /// Where the URL is wrong.
    fn connect_lazy(&self, url: &str) -> Result<LockManager, LockError> {
        LockManager::connect_lazy(url)
    }

    /// The commands or files that have to be installed, each with its Debian package.
    fn needs(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// The reason why it cannot be tested here; `None` if it can.
    fn absence(&self) -> Option<String> {
        let (missing, package) = self.needs().iter().find(|(what, _)| !is_installed(what))?;
        Some(format!("`{missing}` is missing; Debian has it in the package `{package}`"))
    }

    /// Its capabilities, known without a server; a case compares them with those that the store itself reports.
    fn capabilities(&self) -> Capabilities;

    /// Whether its [`Site`] can do this to it.
    fn offers(&self, _fault: Fault) -> bool {
        false
    }

    /// Whether clients make connections to it, at the address in its URLs, and log its outages.
    fn has_connections(&self) -> bool {
        false
    }

    /// Whether a hold ends when the server learns that the connection of its holder broke. Until the holder has learned it
    /// as well, another client may hold the lock.
    fn holds_end_with_their_connection(&self) -> bool {
        false
    }

    /// Whether its [`Site`] has a [`Foreign`] client.
    fn has_foreign_clients(&self) -> bool {
        false
    }

    /// Whether calls about many locks go together, so that what stands under one of their names could harm the others;
    /// its [`Site`] can then spoil a name.
    fn shares_calls(&self) -> bool {
        false
    }

    /// Whether its [`Site`] has a URL with a password.
    fn has_passwords(&self) -> bool {
        false
    }

    /// Number of calls of a refused attempt; `None` where calls are not counted.
    fn calls_of_a_refused_attempt(&self) -> Option<u64> {
        None
    }

    /// The longest pause between two checks of a waiter, in a store whose waiters poll. `None` if they stand in a queue,
    /// whose places [`Site::places`] counts.
    fn poll_pause(&self) -> Option<Duration> {
        None
    }

    /// The shortest lease that lasts through what happens to its servers while they are shared.
    fn least_lease(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether a server that its cases share has died since then, and another one has taken its place, for which this waits.
    /// Until then a case may see an outage, so one that failed meanwhile runs again.
    fn lost_a_server_since(&self, _began: Instant) -> bool {
        false
    }

    /// The store of one case.
    fn site(&self, server: Server) -> Box<dyn Site>;

    /// URLs of this store that are refused, with the kind of the refusal. Any password in them is [`CANARY`].
    fn bad_urls(&self) -> Vec<(String, LockErrorKind)> {
        Vec::new()
    }

    /// The groups of cases that show nothing here which another store of the same program does not show: they are about the
    /// parts of the library above the stores, or about a part that both stores have in common. They are left out where the
    /// environment variable `LOCK_TEST_BRIEF` is set.
    fn groups_of_another(&self) -> &'static [&'static str] {
        &[]
    }

    /// How many of its cases may have a server of their own at the same time. Few where such servers keep the processors
    /// busy: the cases beside them measure how long something takes.
    fn own_servers_at_once(&self) -> usize {
        usize::MAX
    }

    /// Stops the server that its cases share.
    fn finish(&self) {}
}

fn is_installed(what: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    Path::new(what).exists() || env::split_paths(&path).any(|folder| folder.join(what).is_file())
}

/// The server that a case needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// Not hurt: all such cases share one.
    Shared,
    /// It is hurt, or counts calls: the case has one of its own.
    Own,
    /// Its clock is to be moved.
    OwnWithClock,
}

/// A secret that must not be seen anywhere.
pub const CANARY: &str = "canary-of-a-password";

/// One case's store.
pub trait Site: Send + Sync {
    /// Where its clients connect.
    fn url(&self) -> String;

    /// The URL of a client that is spared the faults of the network.
    fn url_past_faults(&self) -> String {
        self.url()
    }

    /// The URL for holds that outlive a silence of about half of `lease`, where that is not chosen with each lock.
    fn url_for_leases_of(&self, _lease: Duration) -> String {
        self.url()
    }

    /// For a user of this password.
    fn url_with_password(&self, _password: &str) -> String {
        unreachable!("selected by `Store::has_passwords`")
    }

    /// The store's records under names that contain `mark`: holders, and places in queues.
    fn left(&self, mark: &str) -> Vec<String>;

    /// Number of clients in the store's queue for this lock.
    fn places(&self, _key: &str) -> usize {
        unreachable!("selected by `Store::poll_pause`")
    }

    /// Takes the lock away from its holder without a notice; returns whether there was one. The holder may lose others with
    /// it only where holds end with their connection.
    fn lose(&self, key: &str) -> bool;

    /// Puts something that the store cannot read as a lock in the place of this one, whether it is held or not.
    fn spoil(&self, _key: &str) {
        unreachable!("selected by `Store::shares_calls`")
    }

    /// Does this to the store.
    fn hurt(&self, _fault: Fault) {
        unreachable!("selected by `Store::offers`")
    }

    /// Ends what lasts of the faults.
    fn heal(&self) {}

    /// Whether the fault [`Fault::AnswerLost`] has happened; cancels it if not.
    fn lost_an_answer(&self) -> bool {
        unreachable!("selected by `Store::offers`")
    }

    /// A client of another library.
    fn foreign(&self) -> Option<&dyn Foreign> {
        None
    }

    /// Number of calls about locks that the server has answered.
    fn calls(&self) -> u64 {
        unreachable!("selected by `Need::CountedCalls`")
    }

    /// Number of connections requested so far.
    fn connections(&self) -> u64 {
        unreachable!("selected by `Store::offers`")
    }
}

/// A client of the store that is not this library.
pub trait Foreign {
    /// Makes one attempt; returns the owner's identity if it succeeded.
    fn take(&self, key: &str, ttl: Duration) -> Option<String>;

    /// Releases the hold of `owner`; returns whether it was held.
    fn free(&self, key: &str, owner: &str) -> bool;

    /// The holder of the lock and its remaining time, as such a client sees it.
    fn holder(&self, key: &str) -> Option<(String, Duration)>;

    /// Takes the lock without a lease that ends.
    fn take_for_ever(&self, key: &str) -> String;

    /// Stores something under the lock's name that is not a lock.
    fn misuse(&self, key: &str);

    /// Removes everything under the lock's name.
    fn clear(&self, key: &str);
}

/// Faults of a store. Those that last end with [`Site::heal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No server: connections are refused, calls fail at once.
    Down,
    /// The server is killed, and started again with the healing, without its data.
    Killed,
    /// The server is suspended; nothing is answered.
    Paused,
    /// Bytes vanish both ways, and connections of that time stay mute forever.
    BlackHole,
    /// Requests are carried out, but their answers arrive only after the healing.
    AnswersHeld,
    /// Requests arrive, and are carried out, only after the healing.
    RequestsHeld,
    /// Each answer takes this much longer.
    Slow(Duration),
    /// Of several servers of which a majority decides, all others are suspended.
    MinorityPaused,
    /// Of several servers of which a majority decides, the answers of all others take this much longer.
    MinoritySlow(Duration),
    /// Connections are closed, once.
    Cut,
    /// Connections are reset, once.
    Reset,
    /// The nth answer from now is lost, and its connection with it.
    AnswerLost(u32),
    /// The nth byte to the server is the last one that arrives on its connection.
    CutInRequest(u32),
    /// Everything is forgotten, once.
    DataLost,
    /// The server is killed and started again, without its data.
    Restarted,
    /// The server is killed and started again, with all its data from disk.
    RestartedWithItsData,
    /// The server forgets what it may forget, once: scripts, subscriptions.
    ForgetsCaches,
    /// The server has no room for anything new.
    Full,
    /// The server refuses every notification, as if the queue of them were full, and does all else.
    Unnotified,
    /// The server allows the user of [`Site::url_with_password`] one connection.
    OneConnection,
    /// Another client of the server has locked all records of locks, for as long as it lasts.
    RecordsLocked,
    /// The server's wall clock is ahead by this.
    ClockForward(Duration),
    /// The server's wall clock is behind by this.
    ClockBack(Duration),
}

impl Fault {
    /// Whether it hits a minority of several servers.
    #[must_use]
    pub fn is_of_a_minority(self) -> bool {
        matches!(self, Self::MinorityPaused | Self::MinoritySlow(_))
    }

    /// Whether it closes or resets connections, so that the server learns of it.
    #[must_use]
    pub fn breaks_connections(self) -> bool {
        match self {
            Self::Down
            | Self::Killed
            | Self::Cut
            | Self::Reset
            | Self::AnswerLost(_)
            | Self::CutInRequest(_)
            | Self::Restarted
            | Self::ForgetsCaches
            | Self::RestartedWithItsData => true,
            Self::Paused
            | Self::BlackHole
            | Self::AnswersHeld
            | Self::RequestsHeld
            | Self::Slow(_)
            | Self::MinorityPaused
            | Self::MinoritySlow(_)
            | Self::DataLost
            | Self::Full
            | Self::Unnotified
            | Self::OneConnection
            | Self::RecordsLocked
            | Self::ClockForward(_)
            | Self::ClockBack(_) => false,
        }
    }

    /// As in the names of the cases.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Killed => "killed",
            Self::Paused => "paused",
            Self::BlackHole => "black_hole",
            Self::AnswersHeld => "answers_held",
            Self::RequestsHeld => "requests_held",
            Self::Slow(_) => "slow",
            Self::MinorityPaused => "minority_paused",
            Self::MinoritySlow(_) => "minority_slow",
            Self::Cut => "cut",
            Self::Reset => "reset",
            Self::AnswerLost(_) => "answer_lost",
            Self::CutInRequest(_) => "cut_in_request",
            Self::DataLost => "data_lost",
            Self::Restarted => "restarted",
            Self::ForgetsCaches => "forgets_caches",
            Self::RestartedWithItsData => "restarted_with_its_data",
            Self::Full => "full",
            Self::Unnotified => "unnotified",
            Self::OneConnection => "one_connection",
            Self::RecordsLocked => "records_locked",
            Self::ClockForward(_) => "clock_forward",
            Self::ClockBack(_) => "clock_back",
        }
    }
}
