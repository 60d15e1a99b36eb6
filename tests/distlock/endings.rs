//! Exit statuses, signals, and what the command gets.

use std::{
    fs,
    io::Write as _,
    os::unix::process::ExitStatusExt as _,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use lock_conformance::{Server, Store};
use rustix::process::Signal;

use crate::command::{Beats, Named, PROGRAM, Running, distlock, end_of, new_key, new_path, run, until};

pub const TESTS: &[Named] = &[
    ("the_status_is_that_of_the_command", statuses),
    ("own_failures_have_numbers_of_their_own", own_failures),
    ("a_held_lock_is_skipped_or_fails", held),
    ("signals_reach_the_command_and_not_distlock", signals),
    ("a_signal_ends_the_wait", a_signal_ends_the_wait),
    ("a_signal_that_is_ignored_stays_ignored", ignored_signals),
    ("the_command_has_the_standard_input", standard_input),
    ("what_the_command_leaves_behind_ends_before_the_release", leftovers),
    ("what_the_command_leaves_behind_may_finish_its_last_line", late_output),
    ("a_watch_shows_locks_come_and_go", watch),
    ("the_pages_are_written", pages),
];

fn statuses(store: &'static dyn Store) {
    let site = store.site(Server::Shared);
    let url = site.url();
    for (script, code) in [
        ("exit 0", 0),
        ("exit 1", 1),
        ("exit 255", 255),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
        ("exec /nowhere/x", 127),
    ] {
        let ended = end_of(&mut run(&url, &new_key(), "", script));
        assert_eq!(ended.code, code, "{script}: {}", ended.err);
    }
}

fn own_failures(store: &'static dyn Store) {
    let site = store.site(Server::Shared);
    let url = site.url();
    let long = "x".repeat(600);
    for (url, arguments, code, words) in [
        (&*url, "run k -- /nowhere/program", 121, "cannot be started"),
        (&url, "run k -- /etc/passwd", 121, "/etc/passwd"),
        (&url, "run k", 120, "COMMAND"),
        (&url, "run k --ttl 1 -- true", 120, "no unit"),
        (&url, "run k --ttl 1ms -- true", 120, "too short"),
        (&url, &format!("run {long} -- true"), 120, "512"),
        (&url, "run k --wait soon -- true", 120, "duration"),
        (&url, "run k --prefix a~ -- true", 120, "prefix"),
        (&url, "bogus", 120, "bogus"),
        (&url, "revoke k 1x", 120, "whole number"),
        (&url, "revoke k none", 120, "--force"),
        ("memory:", "run k -- true", 120, "no other process"),
        ("memory:", "show k", 120, "no other process"),
        ("nonsense", "show k", 120, "scheme"),
        ("redis://127.0.0.1:1", "run k --wait 0 -- true", 119, "127.0.0.1:1"),
        ("redis://127.0.0.1:1", "show k", 119, "127.0.0.1:1"),
        ("redis://127.0.0.1:1", "list", 119, "127.0.0.1:1"),
    ] {
        let ended = end_of(&mut distlock(url, arguments));
        assert_eq!(ended.code, code, "{arguments}: {}{}", ended.out, ended.err);
        assert!(ended.err.contains(words), "{arguments}: {}", ended.err);
        assert!(!ended.err.contains("panicked"), "{}", ended.err);
    }
    let ended = end_of(distlock("", "show k").env_remove("LOCK_URL"));
    assert!(ended.code == 120 && ended.err.contains("LOCK_URL"), "{}", ended.err);
}

fn held(store: &'static dyn Store) {
    let site = store.site(Server::Shared);
    let url = site.url();
    let (key, beats) = (new_key(), Beats::new());
    let mut running = beats.begin(&url, &key, "--label first", "");
    let failed = end_of(&mut run(&url, &key, "--wait 0", "touch /nowhere"));
    assert_eq!(failed.code, 117);
    for words in [&*key, "first", &*running.id().to_string()] {
        assert!(failed.err.contains(words), "{words} in {}", failed.err);
    }
    let began = Instant::now();
    let skipped = end_of(&mut run(&url, &key, "--wait 300ms --on-busy skip", "echo ran"));
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert_eq!((skipped.code, &*skipped.out), (0, ""));
    assert!(skipped.err.contains("skipped"), "{}", skipped.err);
    running.signal(Signal::INT);
    running.status();
    let elsewhere = end_of(&mut run(&url, &key, "--wait 0 --prefix elsewhere:", "exit 4"));
    assert_eq!(elsewhere.code, 4, "{}", elsewhere.err);
}

fn signals(store: &'static dyn Store) {
    let site = store.site(Server::Shared);
    let url = site.url();
    let (key, beats) = (new_key(), Beats::new());
    let all = ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "WINCH"];
    let traps = all.map(|name| format!("trap 'echo {name} >>\"$1\"' {name}; "));
    let mut running = beats.begin(&url, &key, "", &traps.concat());
    for (name, signal) in all.iter().zip([
        Signal::TERM,
        Signal::INT,
        Signal::HUP,
        Signal::QUIT,
        Signal::USR1,
        Signal::USR2,
        Signal::WINCH,
    ]) {
        running.signal(signal);
        until(name, || beats.lines().contains(&(*name).to_owned()));
        beats.goes_on();
    }
    assert!(!running.has_ended());
    let busy = end_of(&mut run(&url, &key, "--wait 0", "exit 0"));
    assert_eq!(busy.code, 117, "it is still locked");
    drop(running);

    let beats = Beats::new();
    let mut running = beats.begin(&url, &new_key(), "", "trap 'exit 5' TERM; ");
    running.signal(Signal::TERM);
    assert_eq!(running.code(), 5, "what the command makes of it");
}

fn a_signal_ends_the_wait(store: &'static dyn Store) {
    let site = store.site(Server::Shared);
    let url = site.url();
    let (key, beats) = (new_key(), Beats::new());
    let mut running = beats.begin(&url, &key, "", "");
    let mut waiting = Running::start(&mut run(&url, &key, "--wait forever", "echo ran"));
    until("it waits", || site.places(&key) == 1);
    waiting.signal(Signal::USR1);
    thread::sleep(Duration::from_millis(50));
    assert!(!waiting.has_ended());
    waiting.signal(Signal::TERM);
    let end = waiting.status();
    assert_eq!((end.signal(), waiting.out()), (Some(15), String::new()), "{}", waiting.err());
    until("it has left the queue", || site.places(&key) == 0);
    let loops =
        "for i in 1 2; do \"$0\" run \"$1\" --wait forever -- echo ran; done; echo the script goes on";
    let mut command = std::process::Command::new("bash");
    command.args(["-c", loops, PROGRAM, &key]).env("LOCK_URL", &url);
    let mut script = Running::start(&mut command);
    until("it waits", || site.places(&key) == 1);
    // As Ctrl-C does, with which a terminal reaches both.
    let [waiting] = crate::command::children_of(script.id())[..] else { panic!("one child") };
    script.signal(Signal::INT);
    crate::command::signal_to(waiting, Signal::INT);
    assert_eq!((script.status().signal(), script.out()), (Some(2), String::new()), "{}", script.err());
    running.signal(Signal::TERM);
    running.status();
}

fn ignored_signals(store: &'static dyn Store) {
    let site = store.site(Server::Shared);
    let beats = Beats::new();
    let script = "trap '' HUP; exec \"$0\" run \"$1\" -- sh -c 'while [ -e \"$0\" ]; do date +%s%N >>\"$0\"; sleep 0.02; done' \"$2\"";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, PROGRAM, &new_key()]).arg(beats.path()).env("LOCK_URL", site.url());
    let mut running = Running::start(&mut command);
    beats.goes_on();
    running.signal(Signal::HUP);
    thread::sleep(Duration::from_millis(100));
    beats.goes_on();
    let [keeper] = crate::command::children_of(running.id())[..] else { panic!("one child") };
    let [shell] = crate::command::children_of(keeper)[..] else { panic!("one child") };
    crate::command::signal_to(shell, Signal::HUP);
    thread::sleep(Duration::from_millis(50));
    beats.goes_on();
    running.signal(Signal::TERM);
    assert_eq!(running.code(), 143);
}

fn standard_input(store: &'static dyn Store) {
    let site = store.site(Server::Shared);
    let mut running =
        Running::start(run(&site.url(), &new_key(), "", "cat; echo done").stdin(Stdio::piped()));
    let mut stdin = running.stdin();
    stdin.write_all(b"given\n").unwrap();
    until("it is read", || running.out() == "given\n");
    drop(stdin);
    assert_eq!((running.code(), &*running.out()), (0, "given\ndone\n"), "no copy is left open");
}

fn leftovers(store: &'static dyn Store) {
    let site = store.site(Server::Shared);
    let url = site.url();
    let (key, beats) = (new_key(), Beats::new());
    let script = "(trap 'echo term >>\"$1\"; exit' TERM; while [ -e \"$1\" ]; do date +%s%N >>\"$1\"; sleep 0.02; done) & sleep 0.1; exit 6";
    let mut running = Running::start(run(&url, &key, "", script).arg(beats.path()));
    thread::sleep(Duration::from_millis(600));
    let busy = end_of(&mut run(&url, &key, "--wait 0", "exit 0"));
    assert_eq!(busy.code, 117, "the lock is held for what is left");
    assert_eq!(running.code(), 6, "{}", running.err());
    let lines = beats.lines();
    assert_eq!(lines.last().map(String::as_str), Some("term"), "{}", running.err());
    thread::sleep(Duration::from_millis(100));
    assert_eq!(beats.lines(), lines, "nothing is left when distlock has ended");
}

fn late_output(store: &'static dyn Store) {
    let site = store.site(Server::Shared);
    let began = Instant::now();
    let ended = end_of(&mut run(&site.url(), &new_key(), "", "(sleep 0.3; echo last line) & exit 0"));
    assert_eq!((ended.code, &*ended.out), (0, "last line\n"));
    assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
}

fn watch(store: &'static dyn Store) {
    let site = store.site(Server::Shared);
    let (url, key) = (site.url(), new_key());
    let mut watching = Running::start(&mut distlock(&url, &format!("watch {key} --every 100ms --json")));
    let line = |part: &str, watching: &Running| {
        until(part, || watching.out().lines().any(|line| line.contains(part)));
    };
    line(r#""locks":[]"#, &watching);
    let mut running = Running::start(&mut run(&url, &key, "--label watched", "sleep 0.3"));
    line(r#""label":"watched""#, &watching);
    assert_eq!(running.code(), 0);
    until("it is gone", || watching.out().ends_with("\"locks\":[]}\n"));
    watching.signal(Signal::TERM);
    watching.status();
    // Without a reader, it ends.
    let script =
        format!("timeout 10 {PROGRAM} watch {key} --every 100ms --json | head -1; echo ${{PIPESTATUS[0]}}");
    let ended = end_of(std::process::Command::new("bash").args(["-c", &script]).env("LOCK_URL", &url));
    assert!(ended.out.ends_with("\n0\n"), "{} {}", ended.out, ended.err);
}

fn pages(_store: &'static dyn Store) {
    let man = end_of(&mut distlock("", "man"));
    assert_eq!(man.code, 0);
    for part in [".TH", "LOCK_FENCING_TOKEN", "118", "on\\-busy"] {
        assert!(man.out.contains(part), "{part} in {}", man.out);
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = end_of(&mut distlock("", &format!("completion {shell}")));
        assert!(script.code == 0 && script.out.contains("on-busy"), "{shell}");
    }
    let help = end_of(&mut distlock("", "--help"));
    assert!(help.code == 0 && help.out.contains("118  `run`: the lock was lost"), "{}", help.out);
    // A reader that has seen enough.
    let path = new_path("out");
    let script = format!("{PROGRAM} man | head -1 >{}; echo ${{PIPESTATUS[0]}}", path.display());
    let ended = end_of(std::process::Command::new("bash").args(["-c", &script]));
    assert_eq!(ended.out, "0\n", "{}", ended.err);
    assert_eq!(fs::read_to_string(path).unwrap().lines().count(), 1);
}
