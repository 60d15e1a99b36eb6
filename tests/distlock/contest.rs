//! Many runs for one lock: never two commands at a time, whatever becomes of `distlock`.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use lock_conformance::{Server, Store, support::Random};
use rustix::process::Signal;

use crate::{
    command::{Named, Running, children_of, new_key, new_path, run, signal_to, until},
    every_store::{place, ttl_option},
};

pub const TESTS: &[Named] = &[("twenty_runs_never_write_at_the_same_time", twenty_runs)];

const AT_ONCE: usize = 10;

/// Writes its fencing token three times, each time after a look at the largest token so far, as a resource does that
/// refuses smaller ones.
const SCRIPT: &str = r#"
write() {
    flock "$1.resource" sh -c '
        [ "$LOCK_FENCING_TOKEN" -ge "$(cat "$1.resource")" ] || { echo "$LOCK_FENCING_TOKEN" >>"$1.refused"; exit 0; }
        echo "$LOCK_FENCING_TOKEN" >"$1.resource"
        echo "$2 $LOCK_FENCING_TOKEN" >>"$1"
    ' write "$1" "$2"
}
write "$1" begin; echo "$LOCK_FENCING_TOKEN"; sleep $2; write "$1" middle; sleep $2; write "$1" end
"#;

/// What happens to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    No,
    Killed,
    /// Only `distlock` is stopped, until after the end of its lease.
    Stopped,
    /// Its keeper as well, so that its command goes on beside the next holder.
    BothStopped,
}

#[derive(Debug, Default)]
struct Sum {
    runs: usize,
    complete: usize,
    killed: usize,
    stopped: usize,
    both_stopped: usize,
    refused: usize,
}

fn twenty_runs(store: &'static dyn Store) {
    let sum = contest(store, 20, |_| Fault::No);
    assert_eq!((sum.complete, sum.refused), (20, 0), "{sum:?}");
}

/// For `tests/run all`: `cargo test --test distlock -- --ignored`.
pub fn a_thousand_runs(stores: &[&'static dyn Store]) {
    let present: Vec<_> = stores.iter().filter(|store| store.absence().is_none()).collect();
    for store in &present {
        let sum = contest(**store, 1000_usize.div_ceil(present.len()), |random| match random.below(100) {
            0..20 => Fault::Killed,
            20..22 => Fault::Stopped,
            22..24 => Fault::BothStopped,
            _ => Fault::No,
        });
        println!("{}: {sum:?}", store.name());
    }
}

fn contest(store: &'static dyn Store, runs: usize, fault: impl Fn(&mut Random) -> Fault + Sync) -> Sum {
    let (_site, url, ttl) = place(store, Server::Shared);
    let (key, journal) = (new_key(), new_path("journal"));
    File::create(&journal).unwrap();
    fs::write(beside(&journal, "resource"), "0\n").unwrap();
    let seed = Random::seed();
    println!("LOCK_TEST_SEED={seed}");
    let options = format!("--wait forever {}", ttl_option(ttl));
    let one = |random: &mut Random| {
        let fault = fault(random);
        let is_stopped = matches!(fault, Fault::Stopped | Fault::BothStopped);
        // A stopped one is to have something to write when its lease is over.
        let pause = if is_stopped { ttl.mul_f64(0.7) } else { Duration::from_millis(10) };
        let mut command = run(&url, &key, &options, SCRIPT);
        let mut running = Running::start(command.arg(&journal).arg(pause.as_secs_f64().to_string()));
        if fault == Fault::Killed {
            thread::sleep(Duration::from_millis(random.below(300)));
            running.signal(Signal::KILL);
            running.status();
        } else if is_stopped {
            until("it writes", || !running.out().is_empty());
            let keeper = children_of(running.id()).into_iter().next();
            let keeper = keeper.filter(|_| fault == Fault::BothStopped);
            running.signal(Signal::STOP);
            if let Some(keeper) = keeper {
                signal_to(keeper, Signal::STOP);
            }
            thread::sleep(ttl * 2);
            running.signal(Signal::CONT);
            if let Some(keeper) = keeper {
                signal_to(keeper, Signal::CONT);
            }
            running.status();
        } else {
            assert_eq!(running.code(), 0, "{}", running.err());
        }
        (fault, running.out().trim().to_owned())
    };
    let ended: Vec<_> = thread::scope(|scope| {
        let work = |worker: usize| {
            let one = &one;
            scope.spawn(move || {
                let mut random = Random::from_seed(seed.wrapping_add(worker as u64));
                (worker..runs).step_by(AT_ONCE).map(|_| one(&mut random)).collect::<Vec<_>>()
            })
        };
        let workers: Vec<_> = (0..AT_ONCE).map(work).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let count = |fault| ended.iter().filter(|(other, _)| *other == fault).count();
    let refused = fs::read_to_string(beside(&journal, "refused")).unwrap_or_default();
    let late: BTreeSet<_> = ended
        .iter()
        .filter(|(fault, _)| *fault == Fault::BothStopped)
        .map(|(_, token)| token.as_str())
        .collect();
    assert!(refused.lines().all(|token| late.contains(token)), "{late:?} and not {refused}");
    let complete = check(&journal, &late);
    assert!(complete >= count(Fault::No), "{complete} of {}", count(Fault::No));
    Sum {
        runs: ended.len(),
        complete,
        killed: count(Fault::Killed),
        stopped: count(Fault::Stopped),
        both_stopped: late.len(),
        refused: refused.lines().count(),
    }
}

/// The path that the script makes of the journal's.
fn beside(journal: &Path, what: &str) -> PathBuf {
    let mut path = journal.as_os_str().to_owned();
    path.push(".");
    path.push(what);
    path.into()
}

/// Asserts that no command wrote between the first and the last line of another; returns how many have written all lines.
fn check(journal: &Path, late: &BTreeSet<&str>) -> usize {
    let text = fs::read_to_string(journal).unwrap();
    let lines: Vec<_> = text.lines().map(|line| line.split_once(' ').unwrap()).collect();
    let mut last = (0, 3);
    let mut complete = 0;
    for (part, token) in lines {
        let number: u64 = token.parse().unwrap();
        let part = ["begin", "middle", "end"].iter().position(|known| *known == part).unwrap();
        let is_next = (number == last.0 && part == last.1 + 1) || (number > last.0 && part == 0);
        assert!(is_next || late.contains(token), "part {part} of {token} after {last:?}:\n{text}");
        last = (number, part);
        complete += usize::from(part == 2);
    }
    complete
}
