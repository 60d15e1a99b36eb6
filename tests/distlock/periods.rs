//! `--once-per`: many starts of a scheduled command, of which one runs in each period.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::process::ExitStatusExt as _,
    thread,
    time::{Duration, Instant, SystemTime},
};

use lock_conformance::{Fault, Server, Store, support::Random};
use rustix::process::Signal;

use crate::{
    command::{Named, PATIENCE, Running, end_of, new_key, new_path, run},
    every_store::{place, ttl_option},
};

pub const TESTS: &[Named] = &[
    ("a_period_is_run_once_and_skipped_then", a_period_is_run_once_and_skipped_then),
    (
        "a_start_that_is_ended_or_not_granted_leaves_the_period",
        a_start_that_is_ended_or_not_granted_leaves_the_period,
    ),
    ("a_start_that_a_lost_answer_ends_leaves_the_period", a_start_that_a_lost_answer_ends_leaves_the_period),
    ("a_period_out_of_bounds_is_refused", a_period_out_of_bounds_is_refused),
];

/// Begins in periods of a second.
const PERIOD: Duration = Duration::from_secs(1);
const WORKERS: u64 = 8;

fn unix_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

/// An option for a period of some hours, in whose first half we are for the rest of the test.
fn calm_period() -> String {
    let now = unix_time().as_secs();
    let calm = (7_200..14_400).find(|length: &u64| (length / 5..length / 2).contains(&(now % length)));
    format!("--once-per {}s", calm.unwrap())
}

fn a_period_is_run_once_and_skipped_then(store: &'static dyn Store) {
    let (_site, url, ttl) = place(store, Server::Shared);
    let (key, options) = (new_key(), format!("{} {}", calm_period(), ttl_option(ttl)));
    // The period of another `distlock`, which has started this one.
    let mut first = run(&url, &key, &options, "echo $LOCK_PERIOD; exit 3");
    let first = end_of(first.env("LOCK_PERIOD", "another"));
    assert_eq!(first.code, 3, "{}", first.err);
    let length = options.split(' ').nth(1).unwrap().trim_end_matches('s').parse::<u64>().unwrap();
    let began = unix_time().as_secs() / length * length;
    let shown = lock_runtime::__private::json::timestamp(SystemTime::UNIX_EPOCH + Duration::from_secs(began));
    assert_eq!(first.out.trim(), shown);
    let failed = end_of(&mut run(&url, &key, &options, "echo again"));
    assert_eq!((failed.code, &*failed.out), (117, ""), "{}", failed.err);
    assert!(failed.err.contains("ran already in this period"), "{}", failed.err);
    let skipped = end_of(&mut run(&url, &key, &format!("{options} --on-busy skip"), "echo again"));
    assert_eq!((skipped.code, &*skipped.out), (0, ""), "{}", skipped.err);
    assert!(skipped.err.contains("skipped") && skipped.err.contains("ran already"), "{}", skipped.err);
    // Without the option, nothing keeps the command from running, and it has no period.
    let mut without = run(&url, &key, &ttl_option(ttl), "echo period:$LOCK_PERIOD");
    let without = end_of(without.env("LOCK_PERIOD", "another"));
    assert_eq!((without.code, without.out.trim()), (0, "period:"), "{}", without.err);
}

fn a_start_that_is_ended_or_not_granted_leaves_the_period(store: &'static dyn Store) {
    let (site, url, ttl) = place(store, Server::Shared);
    let (key, options) = (new_key(), format!("{} {}", calm_period(), ttl_option(ttl)));
    let mut holder = run(&url, &key, &ttl_option(ttl), "echo held; while [ -e \"$1\" ]; do sleep 0.02; done");
    let until = new_path("held");
    File::create(&until).unwrap();
    let mut holder = Running::start(holder.arg(&until));
    crate::command::until("it is held", || !holder.out().is_empty());
    let busy = end_of(&mut run(&url, &key, &format!("{options} --wait 300ms"), "exit 0"));
    assert_eq!(busy.code, 117, "{}", busy.err);
    assert!(busy.err.contains("still held"), "the first start has left the period: {}", busy.err);
    let mut waiting = Running::start(&mut run(&url, &key, &format!("{options} --wait forever"), "exit 0"));
    crate::command::until("it waits", || site.places(&key) == 1);
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.status().signal(), Some(15), "{}", waiting.err());
    fs::remove_file(&until).unwrap();
    assert_eq!(holder.code(), 0, "{}", holder.err());
    let runs = end_of(&mut run(&url, &key, &options, "exit 4"));
    assert_eq!(runs.code, 4, "{}", runs.err);
}

/// Each answer of the store is lost once, among them that about the mark.
fn a_start_that_a_lost_answer_ends_leaves_the_period(store: &'static dyn Store) {
    let (site, url, ttl) = place(store, Server::Own);
    let options = format!("{} {}", calm_period(), ttl_option(ttl));
    let mut ended = 0;
    for number in 1.. {
        let key = new_key();
        site.hurt(Fault::AnswerLost(number));
        let first = end_of(&mut run(&url, &key, &format!("{options} --wait 0"), "exit 0"));
        let was_lost = site.lost_an_answer();
        site.heal();
        let again = end_of(&mut run(&url, &key, &options, "exit 0"));
        match first.code {
            0 => assert_eq!(again.code, 117, "answer {number}: {}", again.err),
            code => {
                assert_eq!(code, 119, "answer {number}: {}", first.err);
                assert_eq!(again.code, 0, "answer {number} was lost, and then: {}", again.err);
                ended += 1;
            }
        }
        if !was_lost {
            break;
        }
        assert!(number < 100, "there is always an answer");
    }
    assert!(ended > 0, "no lost answer ended a start");
}

fn a_period_out_of_bounds_is_refused(store: &'static dyn Store) {
    let (_site, url, _) = place(store, Server::Shared);
    for (period, word) in [("999ms", "31 days"), ("745h", "31 days"), ("1d", "not a duration")] {
        let refused = end_of(&mut run(&url, &new_key(), &format!("--once-per {period}"), "exit 0"));
        assert_eq!(refused.code, 120, "{}", refused.err);
        assert!(refused.err.contains(word), "{}", refused.err);
    }
}

/// What became of the starts of a store.
#[derive(Debug, Default)]
struct Sum {
    starts: usize,
    killed: usize,
    failed: usize,
    periods: usize,
    run: usize,
}

/// A few periods on one store, in each test run.
pub fn two_periods_on(store: &dyn Store) {
    let sum = periods(store, 2);
    println!("{}: {sum:?}", store.name());
}

/// For `tests/run all`: `cargo test --test distlock -- --ignored`.
pub fn twenty_periods(stores: &[&'static dyn Store]) {
    let mut total = 0;
    for store in stores.iter().filter(|store| store.absence().is_none()) {
        let sum = periods(*store, 20);
        println!("{}: {sum:?}", store.name());
        // Killed starts, and pauses of the server, may cost some.
        assert!(sum.run * 4 > sum.periods, "{}: {sum:?}", store.name());
        total += sum.periods;
    }
    assert!(total > 0, "no store");
}

/// One start of the command.
struct Start {
    began: Duration,
    ended: Duration,
    /// Whether it was killed, has failed, or was so slow that it may have given its mark up.
    is_faulty: bool,
}

/// Eight workers start a command in periods of a second, while an eighth of the starts is killed and the server is paused
/// for up to 0.7 s. No period is run twice, and each is run, unless a start in it was killed, has failed or was very slow.
fn periods(store: &dyn Store, count: u32) -> Sum {
    let (site, url, ttl) = place(store, Server::Own);
    let (key, journal) = (new_key(), new_path("periods"));
    File::create(&journal).unwrap();
    let seed = Random::seed();
    println!("{}: LOCK_TEST_SEED={seed}", store.name());
    let options = format!("--once-per 1s --wait 2s {}", ttl_option(ttl));
    let end = Instant::now() + PERIOD * count + Duration::from_millis(500);
    let one = |random: &mut Random| {
        let began = unix_time();
        let mut command = run(&url, &key, &options, "echo $LOCK_PERIOD >>\"$1\"");
        let mut running = Running::start(command.arg(&journal));
        let is_killed = random.below(8) == 0;
        if is_killed {
            thread::sleep(Duration::from_millis(random.below(60)));
            running.signal(Signal::KILL);
            running.status();
        }
        let code = if is_killed { -1 } else { running.code() };
        let has_failed = !is_killed && !matches!(code, 0 | 117);
        // A start that was busy has found a mark, or another command.
        let is_busy = running.err().contains("still held");
        // A mark whose answer takes more than half of the period is not relied on: its start then runs a later period.
        let is_slow = unix_time().saturating_sub(began) > PERIOD / 2;
        let is_faulty = is_killed || has_failed || is_busy || is_slow;
        (Start { began, ended: unix_time(), is_faulty }, is_killed, has_failed)
    };
    let starts: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let one = &one;
                scope.spawn(move || {
                    let mut random = Random::from_seed(seed.wrapping_add(worker));
                    let mut starts = Vec::new();
                    while Instant::now() < end {
                        starts.push(one(&mut random));
                        thread::sleep(Duration::from_millis(random.below(300)));
                    }
                    starts
                })
            })
            .collect();
        if store.offers(Fault::Paused) {
            let mut random = Random::from_seed(seed.wrapping_add(WORKERS));
            while Instant::now() < end {
                thread::sleep(Duration::from_millis(500 + random.below(2_500)));
                site.hurt(Fault::Paused);
                thread::sleep(Duration::from_millis(random.below(700)));
                site.heal();
            }
        }
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    // The server is healed by now.
    let runs_again = |_| {
        thread::sleep(PERIOD / 3);
        let ended = end_of(run(&url, &key, &options, "echo $LOCK_PERIOD >>\"$1\"").arg(&journal));
        ended.code == 0
    };
    assert!((0..10).any(runs_again), "{}: nothing is run any more", store.name());
    let text = fs::read_to_string(&journal).unwrap();
    let mut runs = BTreeMap::<&str, u32>::new();
    for period in text.lines() {
        *runs.entry(period).or_default() += 1;
    }
    assert!(runs.values().all(|runs| *runs == 1), "a period was run twice: {runs:?}");
    let mut sum = Sum { starts: starts.len(), run: runs.len(), ..Sum::default() };
    let mut skipped = BTreeMap::<_, Duration>::new();
    for (start, is_killed, has_failed) in &starts {
        sum.killed += usize::from(*is_killed);
        sum.failed += usize::from(*has_failed);
        // A start that surely counted for this period: it ended before the period's last tenth began.
        let number = start.began.as_millis() / 1_000;
        if !start.is_faulty && start.ended.as_millis() < number * 1_000 + 900 {
            skipped.entry(number).and_modify(|ended| *ended = start.ended.min(*ended)).or_insert(start.ended);
        }
    }
    sum.periods = skipped.len();
    for (number, first) in skipped {
        let begins = Duration::from_millis(u64::try_from(number * 1_000).unwrap());
        let shown = lock_runtime::__private::json::timestamp(SystemTime::UNIX_EPOCH + begins);
        // The first one that was skipped has met the mark of a start that was killed, or has failed. A start in the last tenth
        // before the period counts for it.
        let from = begins.saturating_sub(PERIOD / 10);
        let may_have_marked = |start: &Start| start.began < first && start.ended > from;
        let is_excused = starts.iter().any(|(start, ..)| start.is_faulty && may_have_marked(start));
        assert!(runs.contains_key(&*shown) || is_excused, "no start has run {shown}: {text}");
    }
    assert!(end.elapsed() < PATIENCE);
    sum
}
