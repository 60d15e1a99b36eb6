//! Annotated functions under random faults, from a seed: no body runs without its lock.

use std::{
    future::{Future, poll_fn},
    panic::resume_unwind,
    pin::pin,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use lock_runtime::{HeldLock, LockError, LockErrorKind, LockManager, distributed_lock};

use super::{
    LONG, ms,
    torture::{hurt_for, length, limit},
};
use crate::{
    case::{Case, case},
    fixture::Fixture,
    store::Fault,
    support::{
        Random,
        history::{Hold, judge},
        monotonic,
    },
};

pub fn cases() -> Vec<Case> {
    vec![case!(no_body_runs_without_its_lock_nor_beside_another).hurts(Fault::Down).limit(limit()).busy()]
}

/// Number of locks, each wanted by several tasks of each client.
const LANES: u64 = 3;

/// The plan of one call.
#[derive(Clone, Copy, Debug)]
struct Plan {
    ttl: Duration,
    wait: Duration,
    max_hold: Duration,
    section: Duration,
    panics: bool,
}

/// The record of one call.
#[derive(Debug, Default)]
struct Witness {
    asked: u64,
    /// Steps of the body's own code.
    steps: AtomicUsize,
    ended: AtomicBool,
    held: OnceLock<HeldLock>,
    believed: Mutex<Option<Hold>>,
}

impl Witness {
    /// Takes one step of the body's own code; returns whether the lock is still held.
    fn step(&self) -> bool {
        self.steps.fetch_add(1, SeqCst);
        let held = self.held.get().expect("set by the body");
        // The clock is read before the check: a lock valid after this moment was valid at it.
        let now = monotonic();
        if !held.is_valid() {
            return false;
        }
        let token = held.fencing_token().get();
        let mut believed = self.believed.lock().unwrap();
        believed.get_or_insert(Hold { token, asked: self.asked, from: now, until: now }).until = now;
        true
    }

    async fn body(&self, plan: Plan, held: HeldLock) {
        self.held.set(held).expect("the body is begun once");
        let leave = Instant::now() + plan.section;
        loop {
            self.step();
            if plan.panics {
                // Like a panic, without its message.
                resume_unwind(Box::new("on purpose"));
            }
            if Instant::now() >= leave {
                break;
            }
            if plan.section > ms(1) {
                tokio::time::sleep(ms(1)).await;
            } else {
                tokio::task::yield_now().await;
            }
        }
        self.ended.store(true, SeqCst);
    }

    /// Whether the body's lock is known to be lost.
    fn is_lost(&self) -> bool {
        self.held.get().is_some_and(|held| !held.is_valid())
    }
}

#[distributed_lock(
    key = "<mark>:<lane>", manager = locks, ttl = plan.ttl, wait = plan.wait, max_hold = plan.max_hold, guard = held
)]
async fn renewed(
    locks: &LockManager,
    mark: &str,
    lane: u64,
    plan: Plan,
    witness: &Witness,
) -> Result<(), LockError> {
    witness.body(plan, held).await;
    Ok(())
}

#[distributed_lock(
    key = "<mark>:<lane>", manager = locks, ttl = plan.ttl, wait = plan.wait, auto_renew = false, guard = held
)]
async fn leased(
    locks: &LockManager,
    mark: &str,
    lane: u64,
    plan: Plan,
    witness: &Witness,
) -> Result<(), LockError> {
    witness.body(plan, held).await;
    Ok(())
}

/// `true` when the body ran or nothing was to be done.
#[distributed_lock(
    key = "<mark>:<lane>", manager = locks, ttl = plan.ttl, wait = plan.wait, max_hold = plan.max_hold, guard = held,
    on_contention = skip
)]
async fn skipped(
    locks: &LockManager,
    mark: &str,
    lane: u64,
    plan: Plan,
    witness: &Witness,
) -> Result<Option<()>, LockError> {
    witness.body(plan, held).await;
    Ok(Some(()))
}

async fn no_body_runs_without_its_lock_nor_beside_another(fixture: Fixture) {
    let seed = Random::seed();
    println!("seed {seed}");
    let length = length(&fixture);
    let mut tasks = Vec::new();
    for client in 0..3 {
        let locks = fixture.client().await;
        for task in 0..6 {
            let random = Random::from_seed(seed + client * 16 + task);
            let calls = calls(locks.clone(), fixture.mark().to_owned(), task % LANES, random, length);
            tasks.push((task % LANES, tokio::spawn(calls)));
        }
    }
    hurt_for(&fixture, Random::from_seed(seed), length, &[]).await;
    let mut total = Seen::default();
    let mut histories: [Vec<Hold>; 3] = Default::default();
    for (lane, task) in tasks {
        let mut more = task.await.unwrap();
        histories[usize::try_from(lane).unwrap()].append(&mut more.history);
        total.add(more);
    }
    let mut bodies = 0;
    for history in histories {
        let verdict = judge(history);
        assert!(verdict.is_clean(), "{verdict:?}; again with LOCK_TEST_SEED={seed}");
        bodies += verdict.holds;
    }
    println!("seed {seed}: {bodies} bodies, {total:?}");
    assert!(total.wrong.is_empty(), "{:?}; again with LOCK_TEST_SEED={seed}", total.wrong);
    for (what, count) in [
        ("bodies", bodies),
        ("refusals", total.refused),
        ("losses", total.lost),
        ("panics", total.panicked),
        ("calls that were given up", total.given_up),
    ] {
        assert!(count > 0, "no {what}, which shows nothing: {total:?}; seed {seed}");
    }
    fixture.clean().await;
}

#[derive(Debug, Default)]
struct Seen {
    history: Vec<Hold>,
    refused: usize,
    lost: usize,
    panicked: usize,
    given_up: usize,
    /// Violations.
    wrong: Vec<String>,
}

impl Seen {
    fn add(&mut self, other: Self) {
        self.refused += other.refused;
        self.lost += other.lost;
        self.panicked += other.panicked;
        self.given_up += other.given_up;
        self.wrong.extend(other.wrong);
    }
}

/// Polls `call`, and counts the polls that ran the body although its lock was known to be lost before.
async fn watched<F: Future>(call: F, witness: &Witness, overrun: &AtomicUsize) -> F::Output {
    let mut call = pin!(call);
    poll_fn(|cx| {
        let (lost, steps) = (witness.is_lost(), witness.steps.load(SeqCst));
        let poll = call.as_mut().poll(cx);
        if lost && witness.steps.load(SeqCst) > steps {
            overrun.fetch_add(1, SeqCst);
        }
        poll
    })
    .await
}

async fn calls(locks: LockManager, mark: String, lane: u64, mut random: Random, length: Duration) -> Seen {
    let mut seen = Seen::default();
    let least = locks.capabilities().session_timeout().unwrap_or(ms(300));
    let end = Instant::now() + length;
    while Instant::now() < end {
        let plan = Plan {
            ttl: least + ms(random.below(3) * 150),
            wait: ms([0, 20, 300, 2000][usize::try_from(random.below(4)).unwrap()]),
            max_hold: if random.below(2) == 0 { ms(100) } else { LONG },
            // Most sections are short; some are longer than the lease.
            section: match random.below(6) {
                0 => ms(100 + random.below(900)),
                1..3 => ms(random.below(15)),
                _ => Duration::from_micros(100 + random.below(400)),
            },
            panics: random.below(10) == 0,
        };
        let (kind, patience) = (random.below(4), (random.below(5) == 0).then(|| ms(random.below(40))));
        let witness = Arc::new(Witness { asked: monotonic(), ..Witness::default() });
        let overrun = Arc::new(AtomicUsize::new(0));
        let call = tokio::spawn({
            let (locks, mark, witness, overrun) =
                (locks.clone(), mark.clone(), witness.clone(), overrun.clone());
            async move {
                let call = async {
                    match kind {
                        0 | 1 => leased(&locks, &mark, lane, plan, &witness).await.map(Some),
                        2 => renewed(&locks, &mark, lane, plan, &witness).await.map(Some),
                        _ => skipped(&locks, &mark, lane, plan, &witness).await,
                    }
                };
                let call = watched(call, &witness, &overrun);
                match patience {
                    Some(patience) => tokio::time::timeout(patience, call).await.ok(),
                    None => Some(call.await),
                }
            }
        });
        let ended = call.await;
        let (begun, finished) = (witness.held.get().is_some(), witness.ended.load(SeqCst));
        let is_right = match &ended {
            Err(panic) => {
                seen.panicked += 1;
                panic.is_panic() && begun && plan.panics
            }
            Ok(None) => {
                seen.given_up += 1;
                true
            }
            Ok(Some(Ok(Some(())))) => begun && finished,
            Ok(Some(Err(error))) if error.kind() == LockErrorKind::Lost => {
                seen.lost += 1;
                true
            }
            Ok(Some(Ok(None) | Err(_))) => {
                seen.refused += 1;
                !begun
            }
        };
        if !is_right {
            seen.wrong.push(format!("{ended:?} of {plan:?}, begun: {begun}, finished: {finished}"));
        }
        if overrun.load(SeqCst) > 0 {
            seen.wrong.push(format!("{plan:?} ran on after its lock was lost"));
        }
        if begun && witness.held.get().is_some_and(HeldLock::is_valid) {
            seen.wrong.push(format!("the hold of {plan:?} outlived its call"));
        }
        seen.history.extend(witness.believed.lock().unwrap().take());
        if !begun {
            tokio::time::sleep(ms(1 + random.below(10))).await;
        }
    }
    seen
}
