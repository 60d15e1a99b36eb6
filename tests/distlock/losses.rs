//! What ends a command whose lock is lost, whatever becomes of `distlock`.

use std::{
    thread,
    time::{Duration, SystemTime},
};

use lock_conformance::{Fault, Server, Site, Store};
use rustix::process::Signal;

use crate::{
    command::{
        Beats, Named, Running, STUBBORN, children_of, distlock, end_of, new_key, run, signal_to, until,
    },
    every_store::ttl_option,
};

pub const TESTS: &[Named] = &[
    ("a_stopped_distlock_does_not_keep_its_command_alive", a_stopped_distlock),
    ("a_stopped_keeper_does_not_keep_the_command_alive", a_stopped_keeper),
    ("a_killed_keeper_ends_the_command", a_killed_keeper),
    ("both_killed_at_once_end_the_command_itself", both_killed),
    ("a_killed_server_ends_the_command_first_with_term", a_killed_server),
    ("a_lock_that_is_another_clients_ends_the_command_at_once", a_lock_that_is_gone),
    ("a_lock_revoked_by_force_ends_the_command_at_once", revoked_by_force),
    ("what_has_left_the_group_ends_with_the_command_when_the_lock_is_lost", strays),
    ("what_has_left_the_group_of_a_revoked_command_ends_with_it", strays_of_a_revoked_command),
    ("what_has_left_the_group_ends_with_distlock", strays_of_a_killed_distlock),
    ("what_has_left_the_group_runs_on_after_the_command", daemons),
    ("an_outage_during_the_wait_is_told", an_outage_during_the_wait),
    ("a_busy_distlock_goes_on_renewing", a_long_command_is_renewed),
    ("a_stopped_command_stays_locked", a_stopped_command),
];

const TTL: Duration = Duration::from_secs(2);

struct Scene {
    site: Box<dyn Site>,
    url: String,
    key: String,
    beats: Beats,
    running: Running,
}

impl Scene {
    fn of(store: &'static dyn Store, server: Server, before: &str) -> Self {
        let (site, key, beats) = (store.site(server), new_key(), Beats::new());
        let url = site.url();
        let running = beats.begin(&url, &key, &ttl_option(TTL), before);
        Self { site, url, key, beats, running }
    }

    fn keeper(&mut self) -> u32 {
        let [keeper] = children_of(self.running.id())[..] else { panic!("one child") };
        keeper
    }

    /// Asserts that the command was not alive after `limit`.
    fn ended_by(&self, limit: SystemTime) {
        let last = self.beats.last();
        assert!(last < limit, "{:?} late: {}", last.duration_since(limit), self.running.err());
    }
}

fn a_stopped_distlock(store: &'static dyn Store) {
    let mut scene = Scene::of(store, Server::Shared, STUBBORN);
    thread::sleep(TTL / 2);
    let stopped = SystemTime::now();
    scene.running.signal(Signal::STOP);
    scene.ended_by(stopped + TTL);
    assert!(scene.beats.lines().contains(&"term".into()), "TERM came first");
    scene.running.signal(Signal::CONT);
    assert_eq!(scene.running.code(), 118, "{}", scene.running.err());
}

fn a_stopped_keeper(store: &'static dyn Store) {
    let mut scene = Scene::of(store, Server::Own, STUBBORN);
    let keeper = scene.keeper();
    let down = SystemTime::now();
    scene.site.hurt(Fault::Down);
    // Again and again, because `distlock` lets it go on.
    let end = down + TTL;
    while SystemTime::now() < end {
        if children_of(scene.running.id()).contains(&keeper) {
            signal_to(keeper, Signal::STOP);
        }
        thread::sleep(Duration::from_millis(1));
    }
    scene.ended_by(down + TTL);
    assert_eq!(scene.running.code(), 118, "{}", scene.running.err());
    scene.site.heal();
}

fn a_killed_keeper(store: &'static dyn Store) {
    let mut scene = Scene::of(store, Server::Shared, STUBBORN);
    let killed = SystemTime::now();
    signal_to(scene.keeper(), Signal::KILL);
    scene.ended_by(killed + Duration::from_millis(500));
    assert_eq!(scene.running.code(), 122, "{}", scene.running.err());
    let next = end_of(&mut run(&scene.url, &scene.key, "--wait 0", "exit 0"));
    assert_eq!(next.code, 0, "the lock was released: {}", next.err);
}

/// Only the kernel is left to end the command.
fn both_killed(store: &'static dyn Store) {
    let mut scene = Scene::of(store, Server::Shared, STUBBORN);
    let (keeper, killed) = (scene.keeper(), SystemTime::now());
    // Stopped, it does not see the end of the keeper.
    scene.running.signal(Signal::STOP);
    signal_to(keeper, Signal::KILL);
    scene.running.signal(Signal::KILL);
    scene.ended_by(killed + Duration::from_millis(500));
    scene.running.status();
}

fn a_killed_server(store: &'static dyn Store) {
    let mut scene = Scene::of(store, Server::Own, STUBBORN);
    thread::sleep(TTL / 2);
    let down = SystemTime::now();
    scene.site.hurt(Fault::Killed);
    let code = scene.running.code();
    scene.ended_by(down + TTL);
    assert_eq!(code, 118, "{}", scene.running.err());
    let lines = scene.beats.lines();
    let term = lines.iter().position(|line| line == "term").expect("TERM comes before KILL");
    assert!(lines.len() > term + 5, "there is time between the two");
    assert!(scene.running.err().contains(&scene.key), "{}", scene.running.err());
    scene.site.heal();
}

fn a_lock_that_is_gone(store: &'static dyn Store) {
    let mut scene = Scene::of(store, Server::Shared, STUBBORN);
    assert!(scene.site.lose(&scene.key));
    assert_eq!(scene.running.code(), 118, "{}", scene.running.err());
    let lines = scene.beats.lines();
    assert!(!lines.contains(&"term".into()), "no grace: another client may have the lock");
}

fn revoked_by_force(store: &'static dyn Store) {
    let mut scene = Scene::of(store, Server::Shared, &format!("{STUBBORN}echo $LOCK_FENCING_TOKEN; "));
    let token = scene.running.out().trim().to_owned();
    let revoked = SystemTime::now();
    let freed = end_of(&mut distlock(&scene.url, &format!("revoke {} {token} --force --json", scene.key)));
    assert_eq!(freed.out, format!("{{\"key\":{:?},\"token\":{token:?},\"revoked\":true}}\n", scene.key));
    assert_eq!(scene.running.code(), 118, "{}", scene.running.err());
    scene.ended_by(revoked + TTL);
    assert!(!scene.beats.lines().contains(&"term".into()));
}

/// Starts two processes that beat outside of the group.
const STRAYS: &str = r#"
    beat='while [ -e "$0" ]; do date +%s%N >>"$0"; sleep 0.02; done'
    setsid sh -c "$beat" "$1" & timeout 100 sh -c "$beat" "$1" &
"#;

fn strays(store: &'static dyn Store) {
    let mut scene = Scene::of(store, Server::Shared, STRAYS);
    assert!(scene.site.lose(&scene.key));
    assert_eq!(scene.running.code(), 118, "{}", scene.running.err());
    let ended = SystemTime::now();
    scene.ended_by(ended);
}

/// The command obeys TERM, and is gone long before the deadline.
fn strays_of_a_revoked_command(store: &'static dyn Store) {
    let mut scene = Scene::of(store, Server::Shared, &format!("{STRAYS} echo $LOCK_FENCING_TOKEN; "));
    let token = scene.running.out().trim().to_owned();
    let revoked = end_of(&mut distlock(&scene.url, &format!("revoke {} {token}", scene.key)));
    assert_eq!(revoked.code, 0, "{}", revoked.err);
    assert_eq!(scene.running.code(), 118, "{}", scene.running.err());
    let ended = SystemTime::now();
    scene.ended_by(ended);
}

fn strays_of_a_killed_distlock(store: &'static dyn Store) {
    let mut scene = Scene::of(store, Server::Shared, STRAYS);
    let killed = SystemTime::now();
    scene.running.signal(Signal::KILL);
    scene.ended_by(killed + Duration::from_millis(500));
    scene.running.status();
    let mut scene = Scene::of(store, Server::Shared, STRAYS);
    let killed = SystemTime::now();
    signal_to(scene.keeper(), Signal::KILL);
    scene.ended_by(killed + Duration::from_millis(500));
    assert_eq!(scene.running.code(), 122, "{}", scene.running.err());
}

/// Such as a service that the command has started.
fn daemons(store: &'static dyn Store) {
    let (site, beats) = (store.site(Server::Shared), Beats::new());
    let script = format!("{STRAYS} exit 4");
    let ended = end_of(run(&site.url(), &new_key(), "", &script).arg(beats.path()));
    assert_eq!(ended.code, 4, "{}", ended.err);
    beats.goes_on();
    std::fs::remove_file(beats.path()).unwrap();
}

fn an_outage_during_the_wait(store: &'static dyn Store) {
    let site = store.site(Server::Own);
    let (url, key, beats) = (site.url(), new_key(), Beats::new());
    let mut running = beats.begin(&url, &key, &ttl_option(TTL), "");
    let mut waiting = Running::start(&mut run(&url, &key, "--wait forever", "echo entered"));
    until("it waits", || site.places(&key) == 1);
    site.hurt(Fault::Down);
    until("the outage is told", || waiting.err().contains("store fails"));
    assert!(waiting.err().contains(&key), "{}", waiting.err());
    running.status();
    site.heal();
    assert_eq!((waiting.code(), &*waiting.out()), (0, "entered\n"), "{}", waiting.err());
}

fn a_long_command_is_renewed(store: &'static dyn Store) {
    let site = store.site(Server::Shared);
    let url = site.url();
    let (key, ttl) = (new_key(), Duration::from_millis(500));
    let mut running = Running::start(&mut run(&url, &key, &ttl_option(ttl), "sleep 1.6; exit 9"));
    thread::sleep(Duration::from_millis(300));
    let busy = end_of(&mut run(&url, &key, "--wait 1s", "exit 0"));
    assert_eq!(busy.code, 117, "{}", busy.err);
    assert_eq!(running.code(), 9, "{}", running.err());
}

fn a_stopped_command(store: &'static dyn Store) {
    let mut scene = Scene::of(store, Server::Shared, "");
    scene.running.signal(Signal::TSTP);
    scene.beats.last();
    thread::sleep(TTL);
    let busy = end_of(&mut run(&scene.url, &scene.key, "--wait 0", "exit 0"));
    assert_eq!(busy.code, 117, "it stays locked: {}", busy.err);
    assert!(scene.running.err().contains("is stopped"), "{}", scene.running.err());
    scene.running.signal(Signal::CONT);
    scene.beats.goes_on();
    scene.running.signal(Signal::TSTP);
    scene.beats.last();
    scene.running.signal(Signal::TERM);
    assert_eq!(scene.running.code(), 143, "TERM ends it although it is stopped: {}", scene.running.err());
}
