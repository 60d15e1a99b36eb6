//! Leading: the body of one candidate at a time, and its succession after a release, a loss, an outage and a crash.

use std::{
    future::pending,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use lock_runtime::{
    FencingToken, HeldLock, LeaderWatch, LockError, LockErrorKind, LockHolder, LockManager, current,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::timeout,
};

use super::{LONG, SLACK, ms};
use crate::{
    case::{Case, Need, case},
    fixture::Fixture,
    polling::{begun, poll_once},
    store::Fault,
    support::{stopwatch::Moment, until},
};

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        case!(a_body_runs_under_its_lock_and_its_value_is_returned),
        case!(one_candidate_leads_at_a_time),
        case!(a_leader_that_lost_its_lock_leads_again),
        case!(a_release_lets_the_next_candidate_lead_within_50_ms),
        case!(a_candidate_dropped_at_any_await_leaves_nothing),
        case!(a_leader_that_is_dropped_lets_the_next_candidate_lead),
        case!(a_shutdown_ends_a_candidacy_and_no_term),
        case!(a_watch_sees_who_leads).needs(Need::Can(|can| can.shows_locks())),
        case!(a_watch_goes_on_after_an_outage).needs(Need::Can(|can| can.shows_locks())).hurts(Fault::Down),
    ];
    cases.extend(
        [
            case!(a_killed_leader_is_succeeded_when_its_lease_ends),
            case!(a_killed_leader_and_first_candidate_are_succeeded_in_bounded_time),
            case!(a_killed_leader_is_succeeded_in_bounded_time_although_the_first_candidate_is_paused),
            case!(a_paused_leader_is_succeeded_and_becomes_a_candidate_again),
        ]
        .map(|case| case.needs(Need::Can(|can| can.is_shared_between_processes()))),
    );
    cases.extend(
        [Fault::Down, Fault::Paused, Fault::BlackHole]
            .map(|fault| case!(an_outage_ends_a_term_and_no_candidacy, fault).under(fault)),
    );
    cases
}

/// How long a lock stays held after a crash: until its lease ends. The end of a session may be noticed two ticks of the
/// server later, which are less than an eighth of the session.
pub(super) fn held_after_a_crash(fixture: &Fixture, ttl: Duration) -> Duration {
    fixture.declared().session_timeout().map_or(ttl, |session| session + session / 8)
}

/// How much later a live first candidate leads.
pub(super) const SUCCESSION: Duration = ms(500);
/// How much longer it takes if the first candidate is dead or paused.
pub(super) const DEAD_CANDIDATE: Duration = ms(3100);

/// A task that leads until it is dropped, and reports the beginning of each term.
struct Candidate {
    terms: mpsc::UnboundedReceiver<Term>,
    leading: JoinHandle<Result<(), LockError>>,
    in_term: Arc<AtomicBool>,
}

struct Term {
    token: FencingToken,
    began: Moment,
}

/// The presence of a body.
struct Present(Arc<AtomicBool>);

impl Present {
    fn enter(flag: &Arc<AtomicBool>) -> Self {
        assert!(!flag.swap(true, SeqCst), "two terms at the same time");
        Self(Arc::clone(flag))
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}

impl Candidate {
    async fn begin(locks: &LockManager, key: &str, ttl: Duration) -> Self {
        let (send, terms) = mpsc::unbounded_channel();
        let (lock, in_term) = (locks.lock(key).ttl(ttl), Arc::<AtomicBool>::default());
        let seen = Arc::clone(&in_term);
        let leading = begun(async move {
            lock.lead(|held| {
                let present = Present::enter(&seen);
                let _ = send.send(Term { token: held.fencing_token(), began: Moment::now() });
                async move {
                    let _present = present;
                    pending::<()>().await;
                }
            })
            .await
        })
        .await;
        Self { terms, leading, in_term }
    }

    /// Waits for the next term of this candidate.
    async fn leads(&mut self) -> Term {
        timeout(LONG, self.terms.recv()).await.expect("it leads").expect("it has not ended")
    }

    /// Drops it.
    async fn stop(self) {
        self.leading.abort();
        assert!(self.leading.await.is_err_and(|error| error.is_cancelled()), "it ended by itself");
        assert!(!self.in_term.load(SeqCst), "its body is still there");
    }
}

async fn a_body_runs_under_its_lock_and_its_value_is_returned(fixture: Fixture) {
    let key = fixture.key("k");
    let lock = fixture.client().await.lock(&key);
    for _ in 0..3 {
        let led = lock.lead(|held| {
            let (fixture, key) = (&fixture, &key);
            async move {
                assert_eq!(current().expect("under the lock").fencing_token(), held.fencing_token());
                fixture.is_held(key).await;
                held
            }
        });
        let held: HeldLock = timeout(LONG, led).await.expect("it ends").unwrap();
        assert!(!held.is_valid(), "still held");
        fixture.is_free(&key).await;
    }
    fixture.clean().await;
}

async fn one_candidate_leads_at_a_time(fixture: Fixture) {
    let key = fixture.key("k");
    let flag = Arc::<AtomicBool>::default();
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let locks = fixture.client().await;
        for _ in 0..3 {
            let (lock, flag) = (locks.lock(&key), Arc::clone(&flag));
            tasks.push(tokio::spawn(async move {
                let mut tokens = Vec::new();
                for _ in 0..3 {
                    let led = lock.lead(|held| {
                        let present = Present::enter(&flag);
                        async move {
                            tokio::time::sleep(ms(3)).await;
                            drop(present);
                            held.fencing_token()
                        }
                    });
                    tokens.push(timeout(LONG, led).await.expect("it leads in its turn").unwrap());
                }
                tokens
            }));
        }
    }
    let mut tokens = Vec::new();
    for task in tasks {
        let own = task.await.unwrap();
        assert!(own.is_sorted(), "{own:?}");
        tokens.extend(own);
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 27, "two terms have one token");
    fixture.clean().await;
}

async fn a_leader_that_lost_its_lock_leads_again(fixture: Fixture) {
    let key = fixture.key("k");
    let ttl = fixture.lease(ms(1200));
    let mut candidate = Candidate::begin(&fixture.client().await, &key, ttl).await;
    let mut before = candidate.leads().await.token;
    for _ in 0..2 {
        fixture.lose(&key);
        let term = candidate.leads().await;
        assert!(term.token > before);
        before = term.token;
    }
    candidate.stop().await;
    fixture.clean().await;
}

async fn a_release_lets_the_next_candidate_lead_within_50_ms(fixture: Fixture) {
    let key = fixture.key("k");
    let clients = [fixture.client().await, fixture.client().await];
    let (send, mut terms) = mpsc::unbounded_channel();
    // Leads until the test ends the term.
    let candidate = |locks: &LockManager| {
        let (lock, send) = (locks.lock(&key), send.clone());
        tokio::spawn(async move {
            lock.lead(|_| {
                let (end, ended) = oneshot::channel();
                send.send((Moment::now(), end)).unwrap();
                async move {
                    ended.await.unwrap();
                    Moment::now()
                }
            })
            .await
            .unwrap()
        })
    };
    let mut leader = candidate(&clients[0]);
    let (_, mut end) = terms.recv().await.unwrap();
    let mut took = Vec::new();
    for number in 1..=10 {
        let next = candidate(&clients[number % 2]);
        fixture.queued(&key, 1).await;
        end.send(()).unwrap();
        let (began, end_of_next) = timeout(LONG, terms.recv()).await.expect("it leads").unwrap();
        // The body ended before, and its lock was released since.
        let ended = timeout(LONG, leader).await.expect("it ends").unwrap();
        took.push(began.since(ended));
        (leader, end) = (next, end_of_next);
    }
    end.send(()).unwrap();
    leader.await.unwrap();
    println!("{took:?}");
    // Several threads and processes take part in each, and the stopwatch knows the delays of one thread.
    let in_time = took.iter().filter(|took| took.within(ms(50))).count();
    assert!(in_time >= 8, "{in_time} of 10 within 50 ms: {took:?}");
    fixture.clean().await;
}

async fn a_candidate_dropped_at_any_await_leaves_nothing(fixture: Fixture) {
    let key = fixture.key("k");
    fixture
        .dropped_at_each_await(async |locks: LockManager| {
            locks.lock(&key).lead(async |_| tokio::task::yield_now().await).await
        })
        .await;
}

async fn a_leader_that_is_dropped_lets_the_next_candidate_lead(fixture: Fixture) {
    let key = fixture.key("k");
    let [ours, theirs] = [fixture.client().await, fixture.client().await];
    let mut first = Candidate::begin(&ours, &key, LONG).await;
    let token = first.leads().await.token;
    let mut second = Candidate::begin(&theirs, &key, LONG).await;
    fixture.queued(&key, 1).await;
    // Of the leader's client, so that it may be handed the leader's lease.
    let third = Candidate::begin(&ours, &key, LONG).await;
    third.stop().await;
    let dropped = Moment::now();
    first.stop().await;
    let term = second.leads().await;
    assert!(term.began.since(dropped).within(ms(250)), "{:?}", term.began.since(dropped));
    assert!(term.token > token);
    second.stop().await;
    fixture.is_clean_and_free(&key).await;
}

async fn a_shutdown_ends_a_candidacy_and_no_term(fixture: Fixture) {
    let key = fixture.key("k");
    let ttl = fixture.lease(ms(1200));
    let [ours, theirs] = [fixture.client().await, fixture.client().await];
    let lock = ours.lock(&key).ttl(ttl);
    let (began, (end, ended)) = (Arc::new(AtomicBool::new(false)), oneshot::channel());
    let mut ended = Some(ended);
    let seen = Arc::clone(&began);
    let leading = tokio::spawn(async move {
        lock.lead(|held| {
            seen.store(true, SeqCst);
            let ended = ended.take().expect("one term");
            async move {
                ended.await.unwrap();
                held.is_valid()
            }
        })
        .await
    });
    until("it leads", || if began.load(SeqCst) { Ok(()) } else { Err("not yet") }).await;
    let waiting = Candidate::begin(&theirs, &key, ttl).await;
    fixture.queued(&key, 1).await;
    for locks in [theirs, ours] {
        let began = Moment::now();
        locks.shutdown().await;
        assert!(began.within(SLACK), "it waits for a term: {:?}", began.took());
    }
    fixture.has_places(&key, 0);
    let error = waiting.leading.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::ShutDown, "{error}");
    // The lease is still renewed.
    tokio::time::sleep(ttl * 2).await;
    fixture.is_held(&key).await;
    end.send(()).unwrap();
    assert!(timeout(LONG, leading).await.expect("it ends").unwrap().unwrap(), "the lock was lost");
    fixture.clean().await;
}

/// Waits until the watch sees this term; the lock may be seen to be free before.
async fn sees(watch: &mut LeaderWatch, token: FencingToken) {
    let began = Moment::now();
    loop {
        match timeout(LONG, watch.changed()).await.expect("a change").unwrap() {
            Some(leader) => {
                assert_eq!(leader.token(), Some(token));
                assert_eq!(watch.current(), Some(&leader));
                break;
            }
            None => assert!(watch.current().is_none()),
        }
    }
    assert!(began.within(ms(1250) + SLACK), "{:?}", began.took());
}

async fn a_watch_sees_who_leads(fixture: Fixture) {
    let key = fixture.key("k");
    let ttl = fixture.lease(ms(1200));
    let mut watch = fixture.client().await.leader(&key);
    assert_eq!(watch.changed().await.unwrap(), None);
    let mut first = Candidate::begin(&fixture.client().await, &key, ttl).await;
    sees(&mut watch, first.leads().await.token).await;
    // A renewal is no change.
    assert!(timeout(ttl, watch.changed()).await.is_err(), "{watch:?}");
    let mut second = Candidate::begin(&fixture.client().await, &key, ttl).await;
    fixture.queued(&key, 1).await;
    first.stop().await;
    sees(&mut watch, second.leads().await.token).await;
    second.stop().await;
    assert_eq!(timeout(LONG, watch.changed()).await.expect("a change").unwrap(), None);
    fixture.clean().await;
}

async fn a_watch_goes_on_after_an_outage(fixture: Fixture) {
    let key = fixture.key("k");
    let (ours, theirs) = (fixture.client().await, fixture.client_past_faults().await);
    let mut watch = ours.leader(&key);
    let mut leader = Candidate::begin(&theirs, &key, LONG).await;
    let token = leader.leads().await.token;
    sees(&mut watch, token).await;
    fixture.hurt(Fault::Down);
    let error = timeout(LONG, watch.changed()).await.expect("an error").unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    assert_eq!(watch.current().and_then(LockHolder::token), Some(token), "it keeps what it has seen");
    fixture.heal();
    leader.leading.abort();
    let end = Moment::now();
    // The connection may need a moment.
    loop {
        match timeout(LONG, watch.changed()).await.expect("an answer") {
            Ok(next) => {
                assert_ne!(next.and_then(|leader| leader.token()), Some(token));
                break;
            }
            Err(error) => assert!(error.is_retryable() && end.within(LONG), "{error}"),
        }
    }
}

async fn an_outage_ends_a_term_and_no_candidacy(fixture: Fixture, fault: Fault) {
    let key = fixture.key("k");
    let ttl = fixture.lease(ms(1200));
    let mut leader = Candidate::begin(&fixture.client().await, &key, ttl).await;
    let token = leader.leads().await.token;
    let locks = fixture.client().await;
    fixture.hurt(fault);
    // This candidate begins during the outage.
    let mut other = Candidate::begin(&locks, &key, ttl).await;
    until("the term is over", || if leader.in_term.load(SeqCst) { Err("it leads") } else { Ok(()) }).await;
    tokio::time::sleep(ttl / 2).await;
    assert!(!leader.leading.is_finished() && !other.leading.is_finished(), "an outage ended it");
    fixture.heal();
    let (first, next, last) = tokio::select! {
        term = leader.leads() => (term, other, leader),
        term = other.leads() => (term, leader, other),
    };
    assert!(first.token > token);
    last.stop().await;
    let mut next = next;
    let term = next.leads().await;
    assert!(term.token > first.token);
    next.stop().await;
    fixture.is_clean_and_free(&key).await;
}

async fn a_killed_leader_is_succeeded_when_its_lease_ends(fixture: Fixture) {
    let key = fixture.key("k");
    let ttl = fixture.lease(ms(1000));
    let mut leader = fixture.client_process().await;
    leader.lead(&key, ttl);
    let token = leader.led(&key).await;
    let mut next = Candidate::begin(&fixture.client().await, &key, ttl).await;
    fixture.queued(&key, 1).await;
    // Beyond the first lease.
    tokio::time::sleep(ttl).await;
    assert!(poll_once(pin!(next.terms.recv())).await.is_pending(), "two leaders");
    leader.kill();
    let killed = Moment::now();
    let term = next.leads().await;
    let took = term.began.since(killed);
    println!("succeeded after {took:?}");
    assert!(took.within(held_after_a_crash(&fixture, ttl) + SUCCESSION), "only after {took:?}");
    assert!(term.token.get() > token);
    next.stop().await;
    fixture.clean().await;
}

async fn a_killed_leader_and_first_candidate_are_succeeded_in_bounded_time(fixture: Fixture) {
    let key = fixture.key("k");
    let ttl = fixture.lease(ms(1000));
    let [mut leader, mut first] = [fixture.client_process().await, fixture.client_process().await];
    leader.lead(&key, ttl);
    let token = leader.led(&key).await;
    first.lead(&key, ttl);
    fixture.queued(&key, 1).await;
    let mut second = Candidate::begin(&fixture.client().await, &key, ttl).await;
    fixture.queued(&key, 2).await;
    first.kill();
    leader.kill();
    let killed = Moment::now();
    let term = second.leads().await;
    let took = term.began.since(killed);
    println!("succeeded after {took:?}");
    let limit = held_after_a_crash(&fixture, ttl) + SUCCESSION + DEAD_CANDIDATE;
    assert!(took.within(limit), "only after {took:?}");
    assert!(term.token.get() > token);
    second.stop().await;
    fixture.is_clean_and_free(&key).await;
}

async fn a_killed_leader_is_succeeded_in_bounded_time_although_the_first_candidate_is_paused(
    fixture: Fixture,
) {
    let key = fixture.key("k");
    let ttl = fixture.lease(ms(1000));
    let [mut leader, mut first] = [fixture.client_process().await, fixture.client_process().await];
    leader.lead(&key, ttl);
    let token = leader.led(&key).await;
    first.lead(&key, ttl);
    fixture.queued(&key, 1).await;
    let mut second = Candidate::begin(&fixture.client().await, &key, ttl).await;
    fixture.queued(&key, 2).await;
    first.pause();
    leader.kill();
    let killed = Moment::now();
    let term = second.leads().await;
    let took = term.began.since(killed);
    println!("succeeded after {took:?}");
    let limit = held_after_a_crash(&fixture, ttl) + SUCCESSION + DEAD_CANDIDATE;
    assert!(took.within(limit), "only after {took:?}");
    assert!(term.token.get() > token);
    first.resume();
    // It must not believe in a grant that has expired.
    tokio::time::sleep(ms(300)).await;
    assert!(second.in_term.load(SeqCst), "it took the lock along");
    second.stop().await;
    assert!(first.led(&key).await > term.token.get(), "it led at the same time");
    first.kill();
}

async fn a_paused_leader_is_succeeded_and_becomes_a_candidate_again(fixture: Fixture) {
    let key = fixture.key("k");
    let ttl = fixture.lease(ms(1000));
    let mut leader = fixture.client_process().await;
    leader.lead(&key, ttl);
    let token = leader.led(&key).await;
    let mut next = Candidate::begin(&fixture.client().await, &key, ttl).await;
    fixture.queued(&key, 1).await;
    leader.pause();
    let paused = Moment::now();
    let term = next.leads().await;
    let took = term.began.since(paused);
    println!("succeeded after {took:?}");
    assert!(took.within(held_after_a_crash(&fixture, ttl) + SUCCESSION), "only after {took:?}");
    assert!(term.token.get() > token);
    leader.resume();
    tokio::time::sleep(ms(300)).await;
    assert!(next.in_term.load(SeqCst), "the former leader took the lock along");
    fixture.is_held(&key).await;
    next.stop().await;
    assert!(leader.led(&key).await > term.token.get(), "it led at the same time");
    leader.kill();
}
