//! All operations at once, from a seed: many tasks, several processes, random faults, and a judge of the history.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use lock_runtime::LockManager;
use tokio::sync::mpsc;

use super::{LONG, ms};
use crate::{
    case::{Case, Need, case},
    client_process::store_of,
    fixture::Fixture,
    store::{Fault, Store},
    support::{
        Random,
        child::Child,
        history::{Hold, Verdict, judge},
        monotonic, repeat,
        stay::stay,
    },
};

pub fn cases() -> Vec<Case> {
    vec![
        case!(holds_of_one_process_are_disjoint_and_in_order_under_faults)
            .hurts(Fault::Down)
            .limit(limit())
            .busy(),
        case!(holds_of_several_processes_are_disjoint_and_in_order_under_faults)
            .hurts(Fault::Down)
            .needs(Need::Can(|can| can.is_shared_between_processes()))
            .limit(limit())
            .busy(),
    ]
}

/// Duration of the faults; longer where each costs more, because a session has to be resumed.
pub(super) fn length(fixture: &Fixture) -> Duration {
    shortest() + fixture.declared().session_timeout().map_or(Duration::ZERO, |timeout| timeout * 4)
}

pub(super) fn limit() -> Duration {
    shortest() + Duration::from_mins(2)
}

fn shortest() -> Duration {
    let seconds = std::env::var("LOCK_TEST_TORTURE")
        .map_or(5, |text| text.parse().expect("LOCK_TEST_TORTURE: seconds"));
    Duration::from_secs(seconds)
}

async fn holds_of_one_process_are_disjoint_and_in_order_under_faults(fixture: Fixture) {
    let (seed, length) = (Random::seed(), length(&fixture));
    let key = fixture.key("k");
    let clients = [fixture.client().await, fixture.client().await, fixture.client().await];
    repeat(5, async || {
        let hurting = hurt_for(&fixture, Random::from_seed(seed), length, &[]);
        survive(&clients, &key, length, seed, hurting).await
    })
    .await;
    fixture.is_clean_and_free(&key).await;
}

/// Uses one lock in every possible way, in twelve tasks of these clients, while `hurting` goes on, and judges the
/// history.
///
/// # Errors
/// A text, if too few holds came about to show anything.
///
/// # Panics
/// If holds overlapped, or their tokens did not rise.
pub async fn survive(
    clients: &[LockManager],
    key: &str,
    length: Duration,
    seed: u64,
    hurting: impl Future<Output = ()>,
) -> Result<(), String> {
    let mut tasks = Vec::new();
    for (client, locks) in (0..).zip(clients) {
        for task in 0..4 {
            tasks.push(tokio::spawn(torture(locks.clone(), key.into(), seed + client * 16 + task, length)));
        }
    }
    hurting.await;
    let mut history = Vec::new();
    for task in tasks {
        history.extend(task.await.unwrap());
    }
    pass(seed, history)
}

async fn holds_of_several_processes_are_disjoint_and_in_order_under_faults(fixture: Fixture) {
    let (seed, length) = (Random::seed(), length(&fixture));
    let key = fixture.key("k");
    repeat(5, async || hold_in_processes(&fixture, &key, seed, length).await).await;
    fixture.is_clean_and_free(&key).await;
}

/// Uses one lock in every possible way, in twelve tasks of three processes, and judges the history as [`survive`] does.
async fn hold_in_processes(fixture: &Fixture, key: &str, seed: u64, length: Duration) -> Result<(), String> {
    let mut children: Vec<_> = (0..3).map(|_| Child::start("torture")).collect();
    for (number, child) in children.iter_mut().enumerate() {
        let seed = seed + 16 * number as u64;
        assert_eq!(
            child
                .ask(&format!(
                    "{key} {seed} {} {} {}",
                    length.as_millis(),
                    fixture.store().name(),
                    fixture.url()
                ))
                .await,
            "begun"
        );
    }
    hurt_for(fixture, Random::from_seed(seed), length, &children).await;
    let mut history = Vec::new();
    for child in &mut children {
        loop {
            match child.answer().await.expect("the process lives").as_str() {
                "done" => break,
                hold => history.push(hold.parse().unwrap()),
            }
        }
    }
    pass(seed, history)
}

fn pass(seed: u64, history: Vec<Hold>) -> Result<(), String> {
    let verdict: Verdict = judge(history);
    println!("seed {seed}: {verdict:?}");
    assert!(verdict.is_clean(), "{verdict:?}; again with LOCK_TEST_SEED={seed}");
    // On a busy machine, the faults leave time for few holds.
    let is_enough = verdict.holds as u64 > 4 * shortest().as_secs();
    if is_enough { Ok(()) } else { Err(format!("{verdict:?}, seed {seed}")) }
}

/// One fault after the other, each for a moment, and a pause of a process now and then.
pub(super) async fn hurt_for(fixture: &Fixture, mut random: Random, length: Duration, children: &[Child]) {
    let faults = [
        Fault::Down,
        Fault::Paused,
        Fault::BlackHole,
        Fault::AnswersHeld,
        Fault::RequestsHeld,
        Fault::Slow(ms(40)),
        Fault::Cut,
        Fault::Reset,
        Fault::AnswerLost(2),
        Fault::CutInRequest(100),
        Fault::ForgetsCaches,
    ];
    let may_be = |fault: &Fault| fixture.offers(*fault) && fixture.spares_holds(*fault);
    let faults: Vec<Fault> = faults.into_iter().filter(may_be).collect();
    let end = Instant::now() + length;
    while Instant::now() < end {
        tokio::time::sleep(ms(20 + random.below(150))).await;
        let paused = (!children.is_empty() && random.below(3) == 0)
            .then(|| &children[usize::try_from(random.below(children.len() as u64)).unwrap()]);
        if let Some(child) = paused {
            child.pause();
        }
        fixture.hurt(faults[usize::try_from(random.below(faults.len() as u64)).unwrap()]);
        tokio::time::sleep(ms(10 + random.below(200))).await;
        fixture.heal();
        if let Some(child) = paused {
            // Now and then beyond the lease.
            tokio::time::sleep(ms(random.below(700))).await;
            child.resume();
        }
    }
}

/// The main function of a participating process: it gets a key, seed, length, store and URL, and answers with its holds.
pub async fn worker(stores: &[&'static dyn Store], mut lines: mpsc::UnboundedReceiver<String>) {
    let line = lines.recv().await.expect("a line with the task");
    let words: Vec<&str> = line.splitn(4, ' ').collect();
    let [key, seed, millis, store] = words[..] else { panic!("not understood: {line}") };
    let (store, url) = store_of(stores, store);
    let locks = store.connect(url).await.expect("the store can be reached");
    println!("begun");
    let seed: u64 = seed.parse().unwrap();
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            tokio::spawn(torture(locks.clone(), key.into(), seed + task, ms(millis.parse().unwrap())))
        })
        .collect();
    for task in tasks {
        for hold in task.await.unwrap() {
            println!("{hold}");
        }
    }
    locks.shutdown().await;
    println!("done");
    // Until the test ends it.
    lines.recv().await;
}

/// Acquires and releases the lock in every possible way, and records when it believed to hold it.
async fn torture(locks: LockManager, key: String, seed: u64, length: Duration) -> Vec<Hold> {
    let least = locks.capabilities().session_timeout().unwrap_or(ms(300));
    let mut random = Random::from_seed(seed);
    let history = Arc::new(Mutex::new(Vec::new()));
    let end = Instant::now() + length;
    while Instant::now() < end {
        let lock = locks
            .lock(&key)
            .ttl(least + ms(random.below(3) * 150))
            .auto_renew(random.below(5) != 0)
            .max_hold(if random.below(8) == 0 { ms(100) } else { LONG })
            .wait(ms([0, 20, 300, 2000][usize::try_from(random.below(4)).unwrap()]));
        let asked = monotonic();
        let acquire = lock.acquire();
        let guard = if random.below(6) == 0 {
            // Given up, perhaps at the very moment of the grant.
            match tokio::time::timeout(ms(random.below(30)), acquire).await {
                Ok(guard) => guard,
                Err(_) => continue,
            }
        } else {
            acquire.await
        };
        let Ok(guard) = guard else {
            tokio::time::sleep(ms(1 + random.below(10))).await;
            continue;
        };
        let token = guard.fencing_token().get();
        // Most sections are short; some are longer than the lease.
        let section = match random.below(12) {
            0 => ms(100 + random.below(500)),
            1..4 => ms(random.below(15)),
            _ => Duration::from_micros(100 + random.below(400)),
        };
        let held = guard.held();
        let body = {
            let history = Arc::clone(&history);
            async move {
                let believed = stay(token, asked, section, || held.is_valid()).await;
                history.lock().unwrap().extend(believed);
            }
        };
        match random.below(4) {
            0 => {
                body.await;
                drop(guard);
            }
            1 => {
                let _ = guard.run(body).await;
            }
            _ => {
                body.await;
                let _ = guard.release().await;
            }
        }
    }
    Arc::into_inner(history).expect("all bodies have ended").into_inner().unwrap()
}
