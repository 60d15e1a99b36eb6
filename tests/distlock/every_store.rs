//! What holds on every store.

use std::{
    thread,
    time::{Duration, SystemTime},
};

use lock_conformance::{Fault, Server, Site, Store};
use rustix::process::Signal;

use crate::{
    command::{Beats, Running, STUBBORN, distlock, end_of, new_key, new_path, run},
    periods,
};

type Test = Box<dyn FnOnce() + Send>;
type OnStore = fn(&dyn Store);

/// The tests that fit a store.
pub fn trials(store: &'static dyn Store) -> Vec<(String, Test)> {
    let mut tests: Vec<(&str, OnStore)> = vec![
        ("one_runs_and_another_waits", one_runs_and_another_waits),
        ("a_killed_distlock_takes_its_command_along", a_killed_distlock_takes_its_command_along),
    ];
    tests.push(("two_periods_under_faults", periods::two_periods_on));
    let can = store.capabilities();
    if can.shows_locks() {
        tests.push(("a_holder_is_shown", a_holder_is_shown));
    }
    if can.revokes() {
        tests.push(("a_revoked_command_has_a_grace", a_revoked_command_has_a_grace));
    }
    if store.offers(Fault::Down) {
        tests.push(("an_outage_ends_the_command_in_time", an_outage_ends_the_command_in_time));
    }
    let named = |(name, test): (&str, OnStore)| {
        (format!("{}::{name}", store.name()), Box::new(move || test(store)) as Test)
    };
    tests.into_iter().map(named).collect()
}

/// A place of this store, the URL for the shortest lease that suits the tests, and that lease.
pub fn place(store: &dyn Store, server: Server) -> (Box<dyn Site>, String, Duration) {
    let ttl = store.capabilities().session_timeout().unwrap_or(Duration::from_secs(2));
    let site = store.site(server);
    let url = site.url_for_leases_of(ttl);
    if !url.contains('|') {
        return (site, url, ttl);
    }
    // Several servers, each with a URL: a single URL can name them if all have ports.
    let site = if server == Server::Shared { store.site(Server::Own) } else { site };
    let urls = site.url();
    let hosts: Vec<_> =
        urls.split('|').map(|url| url.strip_prefix("redis://").expect("with a port")).collect();
    let url = format!("redlock://{}?durable=true", hosts.join(","));
    (site, url, ttl)
}

pub fn ttl_option(ttl: Duration) -> String {
    format!("--ttl {}ms", ttl.as_millis())
}

fn one_runs_and_another_waits(store: &dyn Store) {
    let (_site, url, ttl) = place(store, Server::Shared);
    let (key, journal) = (new_key(), new_path("journal"));
    let script = "echo begin $LOCK_FENCING_TOKEN >>\"$1\"; sleep 0.3; echo end $LOCK_FENCING_TOKEN >>\"$1\"";
    let start = || Running::start(run(&url, &key, &ttl_option(ttl), script).arg(&journal));
    let (mut one, mut other) = (start(), start());
    assert_eq!((one.code(), other.code()), (0, 0), "{}{}", one.err(), other.err());
    let journal = std::fs::read_to_string(journal).unwrap();
    let lines: Vec<_> = journal.lines().map(|line| line.split_once(' ').unwrap()).collect();
    let [(_, first), .., (_, second)] = lines[..] else { panic!("{journal}") };
    assert_eq!(lines, [("begin", first), ("end", first), ("begin", second), ("end", second)], "{journal}");
    assert!(first.parse::<u64>().unwrap() < second.parse::<u64>().unwrap(), "{journal}");
    let held = end_of(&mut run(&url, &key, &ttl_option(ttl), "exit 3"));
    assert_eq!(held.code, 3, "it was released: {}", held.err);
}

fn a_killed_distlock_takes_its_command_along(store: &dyn Store) {
    let (_site, url, ttl) = place(store, Server::Shared);
    let beats = Beats::new();
    let mut running = beats.begin(&url, &new_key(), &ttl_option(ttl), STUBBORN);
    let killed = SystemTime::now();
    running.signal(Signal::KILL);
    let last = beats.last();
    // Without the keeper, it would go on without end.
    assert!(last < killed + Duration::from_millis(500), "{:?} later", last.duration_since(killed));
    running.status();
}

fn a_holder_is_shown(store: &dyn Store) {
    let (_site, url, ttl) = place(store, Server::Shared);
    // A scan of a cluster may miss a lock while its slot is moved; the slots of such names are not.
    let (key, beats) = (format!("scanned:{}", new_key()), Beats::new());
    let options = format!("--label shown {}", ttl_option(ttl));
    let mut running = beats.begin(&url, &key, &options, "echo $LOCK_FENCING_TOKEN; ");
    let token = running.out().trim().to_owned();
    let shown = end_of(&mut distlock(&url, &format!("show {key} --json")));
    assert_eq!(shown.code, 0, "{}", shown.err);
    let pid = running.id();
    for part in [&*format!("{key:?}"), &*format!("{token:?}"), r#""label":"shown""#, &*format!(":{pid}@")] {
        assert!(shown.out.contains(part), "{part} in {}", shown.out);
    }
    let listed = end_of(&mut distlock(&url, &format!("list {key}")));
    assert!(listed.out.contains(&token) && listed.out.contains("shown"), "{}{}", listed.out, listed.err);
    running.signal(Signal::TERM);
    assert_eq!(running.code(), 143);
    let shown = end_of(&mut distlock(&url, &format!("show {key}")));
    assert_eq!(shown.out, format!("{key} is free\n"), "{}", shown.err);
}

fn a_revoked_command_has_a_grace(store: &dyn Store) {
    let (_site, url, ttl) = place(store, Server::Shared);
    let (key, beats) = (new_key(), Beats::new());
    let orderly = "trap 'sleep 0.1; echo orderly >>\"$1\"; exit 0' TERM; echo $LOCK_FENCING_TOKEN; ";
    let mut running = beats.begin(&url, &key, &ttl_option(ttl), orderly);
    let token = running.out().trim().to_owned();
    let wrong = end_of(&mut distlock(&url, &format!("revoke {key} 1")));
    assert_eq!(wrong.code, 1, "{}{}", wrong.out, wrong.err);
    let revoked = end_of(&mut distlock(&url, &format!("revoke {key} {token}")));
    assert_eq!(revoked.code, 0, "{}{}", revoked.out, revoked.err);
    assert_eq!(running.code(), 118, "{}", running.err());
    assert!(beats.lines().contains(&"orderly".into()), "it had time: {}", running.err());
    let next = end_of(&mut run(&url, &key, &ttl_option(ttl), "exit 0"));
    assert_eq!(next.code, 0, "{}", next.err);
}

fn an_outage_ends_the_command_in_time(store: &dyn Store) {
    let (site, url, ttl) = place(store, Server::Own);
    let beats = Beats::new();
    let mut running = beats.begin(&url, &new_key(), &ttl_option(ttl), STUBBORN);
    // Longer than until the first renewal.
    thread::sleep(ttl / 2);
    assert!(!running.has_ended(), "{}", running.err());
    let down = SystemTime::now();
    site.hurt(Fault::Down);
    let code = running.code();
    let last = beats.last();
    // No request that was answered was sent later than `down`.
    assert!(last < down + ttl, "{:?} after the outage began", last.duration_since(down));
    assert_eq!(code, 118, "{}", running.err());
    site.heal();
}
