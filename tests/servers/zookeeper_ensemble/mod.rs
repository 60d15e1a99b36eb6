//! Three ZooKeeper servers: partitions, crashes and elections between them.

mod contest;

use std::time::{Duration, Instant};

use contest::Contest;
use lock_runtime::{LockErrorKind, LockGuard, LockManager};
use tokio::{
    sync::{Mutex, MutexGuard},
    task::JoinHandle,
};

use crate::support::{
    proxy::{Proxy, Upstream},
    stopwatch::Moment,
    until,
    zookeeper_ensemble::ZooKeeperEnsemble,
    zookeeper_protocol::Client,
    zookeeper_server::{SESSION, TICK, ZooKeeperServer},
};

const LONG: Duration = Duration::from_mins(1);
/// The time that a busy machine may add to a published bound.
const MOMENT: Duration = Duration::from_millis(300);

/// An ensemble that notices within two seconds that its servers cannot reach each other.
static ENSEMBLE: Mutex<Option<ZooKeeperEnsemble>> = Mutex::const_new(None);
/// An ensemble that needs longer for that than a session lasts, as with ZooKeeper's own defaults.
static PATIENT: Mutex<Option<ZooKeeperEnsemble>> = Mutex::const_new(None);

type Shared = Mutex<Option<ZooKeeperEnsemble>>;

/// Virtual machines take long to start: the tests share theirs, one after the other.
async fn healed<'a>(shared: &'a Shared, settings: &str) -> MutexGuard<'a, Option<ZooKeeperEnsemble>> {
    let mut ensemble = shared.lock().await;
    ensemble.get_or_insert_with(|| ZooKeeperEnsemble::start(settings)).heal();
    ensemble
}

async fn connect(addresses: &str) -> LockManager {
    let url = format!("zookeeper://{addresses}/locks?session_timeout={}ms", SESSION.as_millis());
    LockManager::connect(&url).await.unwrap().wait(LONG)
}

async fn clients(ensemble: &ZooKeeperEnsemble) -> Vec<LockManager> {
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(connect(&ensemble.addresses()).await);
    }
    clients
}

/// Contends for the lock; returns its guard and the moment of the entry.
fn enter(locks: &LockManager, key: &str) -> JoinHandle<(LockGuard, Moment)> {
    let lock = locks.lock(key);
    tokio::spawn(async move { (lock.acquire().await.unwrap(), Moment::now()) })
}

/// The moment at which the holder is notified of the loss of its lock.
fn told(guard: &LockGuard) -> JoinHandle<Moment> {
    let lost = guard.lost();
    tokio::spawn(async move {
        lost.await;
        Moment::now()
    })
}

async fn queued(ensemble: &ZooKeeperEnsemble, server: usize, key: &str, count: usize) -> Client {
    let mut admin = Client::connect(ensemble.servers[server].address()).unwrap();
    until("they stand in the queue", || {
        let there = admin.children(&format!("/locks/lock:{key}")).unwrap().unwrap_or_default().len();
        if there == count { Ok(()) } else { Err(there) }
    })
    .await;
    admin
}

/// The holder of a lock at one server, and the next holder at the others.
struct Contended {
    holder: LockManager,
    guard: LockGuard,
    told: JoinHandle<Moment>,
    next: JoinHandle<(LockGuard, Moment)>,
    /// Connected to the holder's server.
    reader: Client,
}

impl Contended {
    async fn at(ensemble: &ZooKeeperEnsemble, server: usize) -> Self {
        let holder = connect(&ensemble.servers[server].address().to_string()).await;
        let [one, two] = ZooKeeperEnsemble::beside(server).map(|number| ensemble.servers[number].address());
        let other = connect(&format!("{one},{two}")).await;
        let guard = holder.lock("k").acquire().await.unwrap();
        // Heartbeats have moved the deadline by then.
        tokio::time::sleep(SESSION / 2).await;
        let (told, next) = (told(&guard), enter(&other, "k"));
        let reader = queued(ensemble, server, "k", 2).await;
        Self { holder, guard, told, next, reader }
    }
}

/// Asserts that the holder was notified before the next one entered, and that all goes on after the healing.
async fn handed_over_in_time(
    ensemble: &mut ZooKeeperEnsemble,
    holder: &LockManager,
    guard: LockGuard,
    began: Moment,
    told: Moment,
    (next, entered): (LockGuard, Moment),
) {
    println!("notified after {:?}, the next one entered after {:?}", told.since(began), entered.since(began));
    assert!(told.is_before(entered) && !guard.is_valid() && next.fencing_token() > guard.fencing_token());
    ensemble.heal();
    assert_eq!(guard.release().await.unwrap_err().kind(), LockErrorKind::Lost);
    next.release().await.unwrap();
    holder.lock("k").acquire().await.unwrap().release().await.unwrap();
    nothing_is_left(ensemble, &["k"]).await;
}

async fn nothing_is_left(ensemble: &ZooKeeperEnsemble, keys: &[&str]) {
    for key in keys {
        queued(ensemble, 0, key, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ensemble_goes_on_when_its_leader_is_killed() {
    let mut ensemble = healed(&ENSEMBLE, "").await;
    let ensemble = ensemble.as_mut().unwrap();
    let clients = clients(ensemble).await;
    let kept = clients[0].lock("kept").acquire().await.unwrap();
    let contest = Contest::begin(&clients, "killed").await;
    for round in 0..2 {
        let leader = ensemble.leader();
        let killed = Instant::now();
        ensemble.servers[leader].kill();
        contest.goes_on().await;
        println!("round {round}: 50 entries {:?} after the leader was killed", killed.elapsed());
        ensemble.heal();
    }
    let verdict = contest.end().await;
    println!("{verdict:?}");
    assert!(verdict.is_clean(), "{verdict:?}");
    // A session usually survives an election; on a busy machine it may not.
    if kept.is_valid() {
        kept.release().await.unwrap();
    } else {
        assert_eq!(kept.release().await.unwrap_err().kind(), LockErrorKind::Lost);
    }
    nothing_is_left(ensemble, &["kept", "killed"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_paused_or_started_again_one_after_the_other_let_nobody_in_twice() {
    let mut ensemble = healed(&ENSEMBLE, "").await;
    let ensemble = ensemble.as_mut().unwrap();
    let clients = clients(ensemble).await;
    let contest = Contest::begin(&clients, "rolling").await;
    let follower = ensemble.follower();
    ensemble.servers[follower].pause();
    tokio::time::sleep(SESSION / 2).await;
    contest.goes_on().await;
    ensemble.heal();
    contest.goes_on().await;
    // Long enough for another server to lead.
    let leader = ensemble.leader();
    ensemble.servers[leader].pause();
    ensemble.elected(ZooKeeperEnsemble::beside(leader), LONG);
    contest.goes_on().await;
    ensemble.heal();
    contest.goes_on().await;
    for number in 0..3 {
        ensemble.servers[number].kill();
        tokio::time::sleep(TICK).await;
        ensemble.heal();
        contest.goes_on().await;
    }
    let verdict = contest.end().await;
    println!("{verdict:?}");
    assert!(verdict.is_clean(), "{verdict:?}");
    nothing_is_left(ensemble, &["rolling"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_outlast_a_restart_of_all_servers() {
    let mut ensemble = healed(&ENSEMBLE, "").await;
    let ensemble = ensemble.as_mut().unwrap();
    let clients = clients(ensemble).await;
    let contest = Contest::begin(&clients, "restarted").await;
    let guard = clients[0].lock("held").acquire().await.unwrap();
    let waiter = enter(&clients[1], "held");
    queued(ensemble, 0, "held", 2).await;
    let (token, told) = (guard.fencing_token(), told(&guard));
    ensemble.servers.iter_mut().for_each(ZooKeeperServer::kill);
    ensemble.heal();
    contest.goes_on().await;
    // The servers may be back in time or not.
    if guard.is_valid() {
        told.abort();
        assert!(!waiter.is_finished());
        guard.release().await.unwrap();
        assert!(waiter.await.unwrap().0.fencing_token() > token);
    } else {
        let told = told.await.unwrap();
        let (next, entered) = waiter.await.unwrap();
        assert!(told.is_before(entered), "notified {:?} after the next one entered", told.since(entered));
        assert!(next.fencing_token() > token);
        assert_eq!(guard.release().await.unwrap_err().kind(), LockErrorKind::Lost);
    }
    let verdict = contest.end().await;
    println!("{verdict:?}");
    assert!(verdict.is_clean(), "{verdict:?}");
    nothing_is_left(ensemble, &["held", "restarted"]).await;
}

/// A server reports the sessions it has heard from to the leader with a delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_free_within_a_session_and_two_ticks_after_a_client_of_a_follower_was_killed() {
    let mut ensemble = healed(&ENSEMBLE, "").await;
    let ensemble = ensemble.as_mut().unwrap();
    let follower = ensemble.follower();
    let other = connect(&ensemble.addresses()).await;
    let proxy = Proxy::start(Upstream::Tcp(ensemble.servers[follower].address()));
    let killed = connect(&proxy.address().to_string()).await;
    let guard = killed.lock("k").acquire().await.unwrap();
    let next = enter(&other, "k");
    tokio::time::sleep(SESSION / 2).await;
    proxy.refuse();
    proxy.cut();
    let began = Moment::now();
    let (next, entered) = next.await.unwrap();
    println!("free after {:?}", entered.since(began));
    assert!(entered.since(began).within(SESSION + 2 * TICK + MOMENT), "{:?}", entered.since(began));
    assert!(!guard.is_valid() && next.fencing_token() > guard.fencing_token());
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_down_or_mute_keep_nobody_from_connecting() {
    let mut ensemble = healed(&ENSEMBLE, "").await;
    let ensemble = ensemble.as_mut().unwrap();
    let mute = Proxy::start(Upstream::Tcp(ensemble.servers[0].address()));
    mute.black_hole();
    let addresses = format!("127.0.0.1:1,{},{}", mute.address(), ensemble.servers[1].address());
    // The driver chooses a random order.
    for _ in 0..4 {
        let locks = connect(&addresses).await;
        locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_holder_at_a_follower_that_is_cut_off_is_told_before_the_next_one_holds() {
    let mut ensemble = healed(&PATIENT, "syncLimit=60").await;
    let ensemble = ensemble.as_mut().unwrap();
    let follower = ensemble.follower();
    let Contended { holder, guard, told, next, mut reader } = Contended::at(ensemble, follower).await;
    let began = Moment::now();
    ensemble.isolate(follower);
    let told = told.await.unwrap();
    assert_eq!(reader.children("/locks/lock:k").unwrap().unwrap().len(), 2, "the follower still answers");
    let (next, entered) = next.await.unwrap();
    handed_over_in_time(ensemble, &holder, guard, began, told, (next, entered)).await;
}

/// Its followers vanish with their machines and start again elsewhere, without its notice: it goes on leading, and
/// answers requests for which it need not ask them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_holder_at_a_leader_that_was_replaced_is_told_before_the_next_one_holds() {
    let mut ensemble = healed(&PATIENT, "syncLimit=60").await;
    let ensemble = ensemble.as_mut().unwrap();
    for _ in 0..3 {
        if !hand_over_from_a_replaced_leader(ensemble).await {
            return;
        }
        println!("the old leader has noticed, which proves nothing: trying again");
    }
    panic!("the old leader has noticed each time");
}

/// Returns whether the old leader has noticed, as it would after a while.
async fn hand_over_from_a_replaced_leader(ensemble: &mut ZooKeeperEnsemble) -> bool {
    let old = ensemble.leader();
    let others = ZooKeeperEnsemble::beside(old);
    let Contended { holder, guard, told, next, .. } = Contended::at(ensemble, old).await;
    let began = Moment::now();
    ensemble.isolate(old);
    for number in others {
        ensemble.servers[number].kill();
        ensemble.servers[number].start_again();
    }
    ensemble.elected(others, LONG);
    println!("another server leads after {:?}", began.elapsed());
    let (next, entered) = next.await.unwrap();
    let noticed = !ensemble.servers[old].is_leader();
    let told = tokio::time::timeout(SESSION, told).await.expect("the holder is notified").unwrap();
    handed_over_in_time(ensemble, &holder, guard, began, told, (next, entered)).await;
    noticed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_nobody_follows_keeps_no_hold_alive() {
    let mut ensemble = healed(&PATIENT, "syncLimit=60").await;
    let ensemble = ensemble.as_mut().unwrap();
    let leader = ensemble.leader();
    let locks = connect(&ensemble.servers[leader].address().to_string()).await;
    let guard = locks.lock("k").acquire().await.unwrap();
    tokio::time::sleep(SESSION / 2).await;
    assert!(guard.is_valid());
    // The leader still answers for a while. If the others were only cut off, they would elect another one, whose
    // time of the session begins when they last heard from this one.
    for follower in ZooKeeperEnsemble::beside(leader) {
        ensemble.servers[follower].pause();
    }
    let paused = Instant::now();
    // By the deadline that the guard publishes: the moment at which a thread sees its end depends on the machine.
    while guard.is_valid() {
        let (since, left) = (paused.elapsed(), guard.remaining());
        assert!(since + left < SESSION, "relied on for {left:?}, {since:?} after the last vote");
        tokio::time::sleep(TICK / 10).await;
    }
    println!("lost after {:?}", paused.elapsed());
    assert!(ensemble.servers[leader].is_leader(), "it has noticed too early");
    ensemble.heal();
}
