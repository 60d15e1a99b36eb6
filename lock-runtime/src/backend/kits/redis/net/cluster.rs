//! A Redis Cluster: which server has which hash slots, and when that changed.
//!
//! All runtimes and callers of a store share one table, which is read on the library's own thread: at first use, after a
//! server has said that a slot is elsewhere, after a sign that a server may be gone (see [`Place::doubt`]), and when it has
//! not been read for [`REFRESH`]. A caller waits for a question only if it needs a slot whose server is not known or in doubt.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{
        Arc, Mutex, OnceLock, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::ConnectionAddr;
use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};

use super::{
    super::{
        config::Config,
        slot::{SLOTS, Slot},
    },
    place::Place,
    server::Server,
    slot_table::{Address, Question, SlotTable},
};
use crate::{
    LockError,
    backend::{
        ServerStatus,
        common::{
            cold::cold,
            outage::Outage,
            single_flight::{Attempt, SingleFlight},
        },
    },
    background,
    sync::{lock, read, write},
    time::{backoff::random, clock::Instant},
};

/// Pause between two questions while a server is away that the others still name: another one may be promoted unnoticed.
const AGAIN: Duration = Duration::from_secs(1);
/// The same while none is away: an idle client has to hear of servers that join before all that it knows are gone.
const REFRESH: Duration = Duration::from_secs(30);
/// Upper bound on the time for which a caller waits for an answer while the last known server is in doubt.
const LONGEST_DOUBT: Duration = Duration::from_millis(500);
/// Minimum time between two questions.
const PAUSE: Duration = Duration::from_millis(200);
/// Pause between two questions without a usable answer, while no caller needs a connection.
const RETRY: Duration = Duration::from_millis(500);
/// Time for which a slot counts as being moved since a server said so last: longer than the renewals of most leases are
/// apart.
const IN_TRANSIT: Duration = Duration::from_secs(60);

/// How the servers of a cluster are found and connected to.
#[derive(Clone, Debug)]
pub(crate) struct ClusterSettings {
    /// The servers in the URL, one of which is enough to find all others.
    pub(crate) seeds: Vec<Config>,
    /// The settings of the connections to the servers; the address is that of no server.
    pub(crate) servers: Config,
    /// Where servers are reached that announce another address.
    pub(crate) addresses: HashMap<Address, Address>,
    /// The kind of store, and the consequences of an outage of all servers and of one, for metrics and log.
    pub(crate) store: &'static str,
    pub(crate) consequence: &'static str,
    pub(crate) consequence_of_one: &'static str,
}

/// Creates what a store keeps for each server.
type Make<N> = dyn Fn(Arc<Server>) -> N + Send + Sync;

/// The servers of a cluster. `N` is what the store keeps for each server, such as its connections.
pub(crate) struct Cluster<N> {
    settings: ClusterSettings,
    make: Box<Make<N>>,
    /// The places of the seeds, which are only asked for the table.
    seeds: Vec<Arc<Place>>,
    /// The places of the replicas in the last table: asked for a table only if no other server has one.
    replicas: Mutex<Vec<Arc<Place>>>,
    members: Mutex<HashMap<Address, Arc<Member<N>>>>,
    /// The server of each slot, if known.
    slots: RwLock<Vec<Option<Arc<Member<N>>>>>,
    /// The last table that was read.
    table: Mutex<Option<SlotTable>>,
    /// The slots whose server said that another server has them, and when.
    moved: Mutex<HashMap<Slot, Instant>>,
    /// The slots that are being moved, the number of the server to which each goes, and when that was said last.
    in_transit: Mutex<HashMap<Slot, (u64, Instant)>>,
    /// The end of the last question: when it was sent.
    asked: SingleFlight<Instant>,
    last_asked: AtomicU64,
    last_moved: AtomicU64,
    /// The outage of the servers in the URL, before one of them has named the others.
    outage: Outage,
    /// Notified when the table may be outdated.
    change: Arc<Notify>,
    is_watching: AtomicBool,
    made: AtomicU64,
    /// Dropped with the store, which ends the task that reads the table.
    closing: watch::Sender<()>,
}

/// A server of the cluster.
struct Member<N> {
    number: u64,
    place: Arc<Place>,
    server: Arc<Server>,
    node: Arc<N>,
    /// The same server for calls behind `ASKING`, over connections of their own.
    asking: OnceLock<Arc<N>>,
    /// Whether a table has named the server.
    was_named: AtomicBool,
}

impl<N: Send + Sync + 'static> Cluster<N> {
    pub(crate) fn new(
        settings: ClusterSettings,
        make: impl Fn(Arc<Server>) -> N + Send + Sync + 'static,
    ) -> Result<Arc<Self>, LockError> {
        let seeds = settings.seeds.iter().map(|seed| Place::new(seed.clone(), Instant::now()));
        let address = settings.seeds.iter().map(Config::address).collect::<Vec<_>>().join(",");
        Ok(Arc::new(Self {
            outage: Outage::of(settings.store, "Redis", address, settings.consequence),
            seeds: seeds.collect::<Result<_, _>>()?,
            settings,
            make: Box::new(make),
            replicas: Mutex::default(),
            members: Mutex::default(),
            slots: RwLock::new(vec![None; SLOTS]),
            table: Mutex::default(),
            moved: Mutex::default(),
            in_transit: Mutex::default(),
            asked: SingleFlight::default(),
            last_asked: AtomicU64::new(0),
            last_moved: AtomicU64::new(0),
            change: Arc::default(),
            is_watching: AtomicBool::new(false),
            made: AtomicU64::new(1),
            closing: watch::Sender::new(()),
        }))
    }

    /// Returns the settings of the connections to the servers.
    pub(crate) fn config(&self) -> &Config {
        &self.settings.servers
    }

    /// Returns the server of a slot; reads the table first if the server is not known, or in doubt and not
    /// `is_connected`: one connection that broke stops no caller that has another one.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn server(
        self: &Arc<Self>,
        slot: Slot,
        is_connected: impl FnOnce(&N) -> bool,
    ) -> Result<Arc<N>, LockError> {
        let found = self.at(slot);
        if let Some(member) = &found
            && (!member.place.is_doubted() || is_connected(&member.node))
        {
            return Ok(Arc::clone(&member.node));
        }
        cold(self.server_after_question(slot, found)).await
    }

    async fn server_after_question(
        self: &Arc<Self>,
        slot: Slot,
        doubted: Option<Arc<Member<N>>>,
    ) -> Result<Arc<N>, LockError> {
        let asked = if let Some(member) = &doubted {
            // The last known server is tried if the others do not tell of another one in time.
            let asked = self.ask_since(member.place.doubted_at());
            timeout(LONGEST_DOUBT, asked).await.unwrap_or(Ok(()))
        } else {
            self.ask_since(Instant::now().saturating_sub(PAUSE)).await
        };
        match (self.at(slot), asked) {
            (Some(member), _) => Ok(Arc::clone(&member.node)),
            (None, Err(error)) => Err(error),
            (None, Ok(())) => Err(LockError::backend(format!(
                "no server of the Redis Cluster has the hash slot {} of the lock; is the cluster set up, and does `redis-cli \
                 --cluster check` find all slots covered?",
                slot.number()
            ))),
        }
    }

    /// Returns all servers that have slots, in the order of their numbers; reads the table first if none is known.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn servers(self: &Arc<Self>) -> Result<Vec<(u64, Arc<N>)>, LockError> {
        if lock(&self.members).is_empty() {
            self.ask_since(Instant::from_nanos(0)).await?;
        }
        Ok(self.known().iter().map(|member| (member.number, Arc::clone(&member.node))).collect())
    }

    /// Returns a number that the slots of one server have in common; 0 if the server is not known. A slot that is being
    /// moved has a number of its own, because some of its calls go to another server.
    pub(crate) fn lane(&self, slot: Slot) -> u64 {
        let said = lock(&self.in_transit).get(&slot).map(|(_, said)| *said);
        if said.is_some_and(|said| !(said + IN_TRANSIT).has_passed()) {
            return 1 << 32 | slot.number() as u64;
        }
        self.at(slot).map_or(0, |member| member.number)
    }

    /// Returns what is known of the servers; of those in the URL as a whole, before one of them has named the others.
    pub(crate) fn status(&self) -> Vec<ServerStatus> {
        if lock(&self.table).is_none() {
            return vec![self.outage.status()];
        }
        self.known().iter().map(|member| member.server.status()).collect()
    }

    /// Returns the addresses of the servers, as far as they are known.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.known().iter().map(|member| member.place.config().store().0).collect()
    }

    /// Returns the known servers, in the order of their numbers.
    fn known(&self) -> Vec<Arc<Member<N>>> {
        let mut members: Vec<_> = lock(&self.members).values().map(Arc::clone).collect();
        members.sort_by_key(|member| member.number);
        members
    }

    /// Records that a server has said that another server has a slot.
    pub(crate) fn moved(&self, slot: Slot, to: &Address) -> Result<(), LockError> {
        let now = Instant::now();
        let last = {
            // While this is locked, no server leaves.
            let mut moved = lock(&self.moved);
            let member = self.member(to)?;
            moved.insert(slot, now);
            write(&self.slots)[slot.number()].replace(member)
        };
        // The last handle to a server is not dropped under the lock.
        drop(last);
        // Other slots have moved, too, as a rule.
        self.is_outdated(now);
        Ok(())
    }

    /// Records that a server has said that the cluster takes no calls for now.
    pub(crate) fn is_down(&self) {
        self.is_outdated(Instant::now());
    }

    /// Returns the server at this address, to which a slot is being moved, for one call behind `ASKING`.
    pub(crate) fn asking(&self, slot: Slot, to: &Address) -> Result<Arc<N>, LockError> {
        let member = {
            let mut in_transit = lock(&self.in_transit);
            let member = self.member(to)?;
            in_transit.insert(slot, (member.number, Instant::now()));
            member
        };
        let make = || Arc::new((self.make)(member.server.asking(Arc::clone(&member.place))));
        Ok(Arc::clone(member.asking.get_or_init(make)))
    }

    fn is_outdated(&self, since: Instant) {
        self.last_moved.fetch_max(since.as_nanos(), Ordering::AcqRel);
        self.change.notify_one();
    }

    fn at(&self, slot: Slot) -> Option<Arc<Member<N>>> {
        read(&self.slots)[slot.number()].clone()
    }

    /// Returns the server that announces this address.
    fn member(&self, announced: &Address) -> Result<Arc<Member<N>>, LockError> {
        let mut members = lock(&self.members);
        if let Some(member) = members.get(announced) {
            return Ok(Arc::clone(member));
        }
        let change = Some(Arc::clone(&self.change));
        let place = Place::watched(self.config_at(announced), Instant::now(), change)?;
        let server =
            Server::member(Arc::clone(&place), self.settings.store, self.settings.consequence_of_one);
        let member = Arc::new(Member {
            number: self.made.fetch_add(1, Ordering::Relaxed),
            place,
            node: Arc::new((self.make)(Arc::clone(&server))),
            server,
            asking: OnceLock::new(),
            was_named: AtomicBool::new(false),
        });
        members.insert(announced.clone(), Arc::clone(&member));
        Ok(member)
    }

    /// Returns the settings of the connections to the server that announces this address.
    fn config_at(&self, announced: &Address) -> Config {
        let (host, port) = self.settings.addresses.get(announced).unwrap_or(announced).clone();
        let servers = &self.settings.servers;
        let info = servers.info.clone().set_addr(ConnectionAddr::Tcp(host, port));
        Config { info, ..servers.clone() }
    }

    /// Reads the table, unless the last question was sent after `since`.
    async fn ask_since(self: &Arc<Self>, since: Instant) -> Result<(), LockError> {
        let begin = |attempt| {
            background::handle().spawn(Arc::clone(self).find(attempt));
            Ok(())
        };
        let given_up = "the question for the servers of the Redis Cluster was given up";
        self.asked.get(|asked| *asked > since, begin, given_up).await.map(drop)
    }

    async fn find(self: Arc<Self>, attempt: Attempt<Instant>) {
        let last = Instant::from_nanos(self.last_asked.load(Ordering::Acquire));
        sleep((last + PAUSE).saturating_duration_since(Instant::now())).await;
        let sent = Instant::now();
        self.last_asked.store(sent.as_nanos(), Ordering::Release);
        let is_first = lock(&self.table).is_none();
        let found = self.ask().await.map(|table| self.install(table, sent));
        let (ended, left) = match found {
            Ok(left) => {
                self.watch();
                if is_first {
                    self.outage.ends();
                }
                (Ok(sent), left)
            }
            Err(error) => {
                // Later, each server tells its own outages.
                if is_first {
                    self.outage.begins(sent, &error);
                }
                (Err(error), Vec::new())
            }
        };
        self.asked.finish(attempt, ended);
        for member in left {
            member.place.leave();
            member.server.outage().server_left();
            // The log comes last, because its subscriber may panic.
            tracing::info!(
                server = member.place.config().address(),
                "the Redis server has no hash slots any more"
            );
        }
    }

    /// Asks some servers for the table, and returns the newest one.
    async fn ask(&self) -> Result<SlotTable, LockError> {
        let question = Question {
            known: lock(&self.table).clone(),
            seeds: self.seeds.iter().map(|seed| seed.config().address()).collect(),
            limit: self.settings.servers.connect_timeout,
        };
        let found = question.ask(self.candidates()).await;
        let Err(error) = found else { return found };
        let replicas = lock(&self.replicas).clone();
        question.ask(replicas).await.map_err(|_| error)
    }

    /// Returns the servers that may be asked for the table, in the order in which they are asked: the known ones, from a
    /// random one on, those in doubt last; then those in the URL.
    fn candidates(&self) -> Vec<Arc<Place>> {
        let members = lock(&self.members);
        let mut places: Vec<_> = members.values().map(|member| Arc::clone(&member.place)).collect();
        drop(members);
        if !places.is_empty() {
            let first = random() as usize % places.len();
            places.rotate_left(first);
        }
        places.sort_by_key(|place| place.is_doubted());
        places.extend(self.seeds.iter().map(Arc::clone));
        let mut seen = HashSet::new();
        places.retain(|place| seen.insert(place.config().address()));
        places
    }

    /// Makes a table, which was asked for at `sent`, the current one. Returns the servers that have no slots any more.
    fn install(&self, table: SlotTable, sent: Instant) -> Vec<Arc<Member<N>>> {
        let mut named = HashSet::new();
        let mut slots = vec![None; SLOTS];
        let last = lock(&self.table).replace(table.clone());
        drop(last);
        self.install_replicas(&table.at_replicas);
        for (range, address) in table.ranges {
            let member = match self.member(&address) {
                Ok(member) => member,
                Err(error) => {
                    tracing::warn!(host = address.0, port = address.1, %error, "a Redis server is not used");
                    continue;
                }
            };
            member.place.confirm(sent);
            member.was_named.store(true, Ordering::Relaxed);
            named.insert(address);
            for slot in range {
                slots[usize::from(slot)] = Some(Arc::clone(&member));
            }
        }
        // The old table is dropped after the lock.
        let mut moved = lock(&self.moved);
        // What a server said after the question is newer than the answer.
        moved.retain(|_, when| *when > sent);
        let mut in_use = HashSet::new();
        {
            let mut current = write(&self.slots);
            for slot in moved.keys() {
                slots[slot.number()].clone_from(&current[slot.number()]);
                in_use.extend(slots[slot.number()].as_ref().map(|member| member.number));
            }
            std::mem::swap(&mut *current, &mut slots);
        }
        // A server to which the first slot is being moved is in no table yet.
        let mut in_transit = lock(&self.in_transit);
        in_transit.retain(|_, (_, said)| !(*said + IN_TRANSIT).has_passed());
        let importing: HashSet<u64> = in_transit.values().map(|(to, _)| *to).collect();
        for member in self.known() {
            if importing.contains(&member.number) && !member.was_named.load(Ordering::Relaxed) {
                member.place.confirm(sent);
                in_use.insert(member.number);
            }
        }
        let is_left = |address: &Address, member: &Arc<Member<N>>| {
            !named.contains(address) && !in_use.contains(&member.number)
        };
        let left =
            lock(&self.members).extract_if(|address, member| is_left(address, member)).collect::<Vec<_>>();
        left.into_iter().map(|(_, member)| member).collect()
    }

    fn install_replicas(&self, named: &HashSet<Address>) {
        let last = lock(&self.replicas).clone();
        let place = |announced| {
            let config = self.config_at(announced);
            let known = last.iter().find(|place| place.config().address() == config.address());
            known.map(Arc::clone).or_else(|| Place::new(config, Instant::now()).ok())
        };
        *lock(&self.replicas) = named.iter().filter_map(place).collect();
    }

    /// Starts the task that reads the table when it may be outdated, unless the task runs.
    fn watch(self: &Arc<Self>) {
        if self.is_watching.swap(true, Ordering::AcqRel) {
            return;
        }
        // The store is not kept alive between two questions.
        let (this, mut closing) = (Arc::downgrade(self), self.closing.subscribe());
        let change = Arc::clone(&self.change);
        background::handle().spawn(async move {
            loop {
                let is_one_away = this.upgrade().is_some_and(|cluster| cluster.has_one_away());
                tokio::select! {
                    () = change.notified() => {}
                    () = sleep(if is_one_away { AGAIN } else { REFRESH }) => {
                        if let Some(cluster) = this.upgrade() {
                            cluster.ask_since(Instant::now()).await.ok();
                        }
                    }
                    _ = closing.changed() => return,
                }
                while let Some(cluster) = this.upgrade()
                    && let Some(since) = cluster.outdated_since()
                {
                    let asked = cluster.ask_since(since).await;
                    drop(cluster);
                    sleep(if asked.is_ok() { PAUSE } else { RETRY }).await;
                }
            }
        });
    }

    /// Returns whether a server cannot be reached.
    fn has_one_away(&self) -> bool {
        self.known().iter().any(|member| member.server.outage().is_away())
    }

    /// Returns since when the table may be outdated, if it may.
    fn outdated_since(&self) -> Option<Instant> {
        let asked = Instant::from_nanos(self.last_asked.load(Ordering::Acquire));
        let moved = Instant::from_nanos(self.last_moved.load(Ordering::Acquire));
        let members = lock(&self.members);
        let doubted = members.values().filter(|member| member.place.is_doubted());
        let since = doubted.map(|member| member.place.doubted_at()).max();
        since.into_iter().chain((moved > asked).then_some(moved)).max()
    }
}

impl<N> fmt::Debug for Cluster<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("servers", &lock(&self.members).len()).finish_non_exhaustive()
    }
}
