//! Many runs for one lock: never two commands at a time, whatever becomes of `distlock`.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use lock_conformance::{Fault as StoreFault, Server, Store, support::Random};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    command::{Named, Running, children_of, new_key, new_path, run, until},
    every_store::{place, ttl_option},
};

pub const TESTS: &[Named] = &[("twenty_runs_never_write_at_the_same_time", twenty_runs)];

const AT_ONCE: usize = 10;

/// Writes its fencing token three times, each time after a look at the largest token so far, as a resource does that
/// refuses smaller ones. It may be killed anywhere, and leaves that token or the one before.
const SCRIPT: &str = r#"
write() {
    flock "$1.flock" sh -c '
        [ "$LOCK_FENCING_TOKEN" -ge "$(cat "$1.resource")" ] || { echo "$LOCK_FENCING_TOKEN" >>"$1.refused"; exit 0; }
        echo "$LOCK_FENCING_TOKEN" >"$1.new" && mv "$1.new" "$1.resource"
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
    outages: usize,
    /// Runs without a fault of their own that an outage has ended.
    ended_by_outages: usize,
}

fn twenty_runs(store: &'static dyn Store) {
    let sum = contest(store, 20, false, |_| Fault::No);
    assert_eq!((sum.complete, sum.refused), (20, 0), "{sum:?}");
}

/// For `tests/run all`: `cargo test --test distlock -- --ignored`.
pub fn a_thousand_runs(stores: &[&'static dyn Store]) {
    let present: Vec<_> = stores.iter().filter(|store| store.absence().is_none()).collect();
    let mut ended_by_outages = 0;
    for store in &present {
        for has_outages in [false, true] {
            let runs = 1000_usize.div_ceil(2 * present.len());
            let sum = contest(**store, runs, has_outages, |random| match random.below(100) {
                0..20 => Fault::Killed,
                20..22 => Fault::Stopped,
                22..24 => Fault::BothStopped,
                _ => Fault::No,
            });
            println!("{}: {sum:?}", store.name());
            assert!(!has_outages || sum.outages > 2, "{sum:?}");
            ended_by_outages += sum.ended_by_outages;
        }
    }
    assert!(ended_by_outages > 0, "no outage has met a command");
}

/// With outages, the store is away again and again for longer than a lease lasts.
fn contest(
    store: &'static dyn Store,
    runs: usize,
    has_outages: bool,
    fault: impl Fn(&mut Random) -> Fault + Sync,
) -> Sum {
    let (site, url, ttl) = place(store, if has_outages { Server::Own } else { Server::Shared });
    let (key, journal) = (new_key(), new_path("journal"));
    File::create(&journal).unwrap();
    fs::write(beside(&journal, "resource"), "0\n").unwrap();
    let seed = Random::seed();
    println!("LOCK_TEST_SEED={seed}");
    let options = format!("--wait forever {}", ttl_option(ttl));
    let ended_by_outages = AtomicUsize::new(0);
    let one = |random: &mut Random| {
        let fault = fault(random);
        let is_stopped = matches!(fault, Fault::Stopped | Fault::BothStopped);
        // A stopped one is to have something to write when its lease is over, and some are to meet an outage.
        let is_long = is_stopped || (has_outages && random.below(8) == 0);
        let pause = if is_long { ttl.mul_f64(0.7) } else { Duration::from_millis(10) };
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
            let distlock = running.id();
            // An outage may have ended it.
            let signal = |signal| {
                for process in [Some(distlock), keeper].into_iter().flatten().filter_map(pid) {
                    let _ = kill_process(process, signal);
                }
            };
            signal(Signal::STOP);
            thread::sleep(ttl * 2);
            signal(Signal::CONT);
            running.status();
        } else {
            let code = running.code();
            assert!(code == 0 || (has_outages && matches!(code, 118 | 119)), "{code}: {}", running.err());
            ended_by_outages.fetch_add(usize::from(code != 0), Ordering::Relaxed);
        }
        (fault, running.out().trim().to_owned())
    };
    let (mut outages, is_over) = (0, AtomicBool::new(false));
    let ended: Vec<_> = thread::scope(|scope| {
        let away = has_outages.then(|| {
            scope.spawn(|| {
                let mut random = Random::from_seed(seed);
                let mut count = 0;
                // Where a hold ends with its connection, the server would free it as soon as a fault closes the connection.
                let closes = store.holds_end_with_their_connection();
                let fault = if closes { StoreFault::Paused } else { StoreFault::Down };
                while !is_over.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(500 + random.below(3_000)));
                    site.hurt(fault);
                    thread::sleep(ttl + Duration::from_millis(random.below(1_000)));
                    site.heal();
                    count += 1;
                }
                count
            })
        });
        let work = |worker: usize| {
            let one = &one;
            scope.spawn(move || {
                let mut random = Random::from_seed(seed.wrapping_add(worker as u64));
                (worker..runs).step_by(AT_ONCE).map(|_| one(&mut random)).collect::<Vec<_>>()
            })
        };
        let workers: Vec<_> = (0..AT_ONCE).map(work).collect();
        let ended = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
        is_over.store(true, Ordering::Relaxed);
        outages = away.map_or(0, |away| away.join().unwrap());
        ended
    });
    let ended_by_outages = ended_by_outages.into_inner();
    let count = |fault| ended.iter().filter(|(other, _)| *other == fault).count();
    let refused = fs::read_to_string(beside(&journal, "refused")).unwrap_or_default();
    let late: BTreeSet<_> = ended
        .iter()
        .filter(|(fault, _)| *fault == Fault::BothStopped)
        .map(|(_, token)| token.as_str())
        .collect();
    assert!(refused.lines().all(|token| late.contains(token)), "{late:?} and not {refused}");
    let complete = check(&journal, &late);
    let unhurt = count(Fault::No) - ended_by_outages;
    assert!(complete >= unhurt, "{complete} of {unhurt}");
    Sum {
        runs: ended.len(),
        complete,
        killed: count(Fault::Killed),
        stopped: count(Fault::Stopped),
        both_stopped: late.len(),
        refused: refused.lines().count(),
        outages,
        ended_by_outages,
    }
}

fn pid(id: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(id).ok()?)
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
