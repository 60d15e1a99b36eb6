//! `distlock` in a terminal, which `script` of util-linux makes.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use lock_conformance::{Server, Store};

use crate::command::{Named, PROGRAM, Running, distlock, end_of, new_key, until};

pub const TESTS: &[Named] = &[
    ("the_command_has_the_terminal_and_gives_it_back", the_terminal_goes_and_comes),
    ("a_killed_keeper_leaves_the_terminal_to_the_shell", killed_keeper),
    ("keys_reach_the_command", keys),
    ("colours_are_for_terminals", colours),
];

/// Runs a script in a terminal, with the program as `$D`, and keys from the standard input.
fn in_terminal(url: &str, script: &str) -> Running {
    let mut command = Command::new("script");
    command.args(["-qefc", script, "/dev/null"]);
    command.env("D", PROGRAM).env("LOCK_URL", url).env("SHELL", "/bin/sh").env("K", new_key());
    Running::start(command.stdin(Stdio::piped()))
}

/// The group of a process, and the group that has its terminal.
const GROUPS: &str = "cut -d' ' -f5,8 /proc/$$/stat";

fn has_terminal(groups: &str) -> bool {
    groups.split_once(' ').is_some_and(|(own, holder)| own == holder)
}

fn the_terminal_goes_and_comes(store: &'static dyn Store) {
    let site = store.site(Server::Shared);
    let script =
        format!("{GROUPS}; $D run $K -- sh -c \"{}\"; echo $?; {GROUPS}", GROUPS.replace('$', "\\$"));
    let mut running = in_terminal(&site.url(), &script);
    let stdin = running.stdin();
    assert_eq!(running.code(), 0, "{}", running.out());
    drop(stdin);
    let out = running.out().replace('\r', "");
    let [before, within, status, after] = out.lines().collect::<Vec<_>>()[..] else { panic!("{out}") };
    assert!(has_terminal(before), "{out}");
    assert!(has_terminal(within) && within != before, "{out}");
    assert_eq!((status, after), ("0", before), "{out}");
}

fn killed_keeper(store: &'static dyn Store) {
    let site = store.site(Server::Shared);
    // The parent of the command is the keeper.
    let command = format!("sh -c \"{}; kill -KILL \\$PPID; sleep 60\"", GROUPS.replace('$', "\\$"));
    let mut running = in_terminal(&site.url(), &format!("$D run $K -- {command}; echo $?; {GROUPS}"));
    let stdin = running.stdin();
    assert_eq!(running.code(), 0, "{}", running.out());
    drop(stdin);
    let out = running.out().replace('\r', "");
    let [within, .., status, after] = out.lines().collect::<Vec<_>>()[..] else { panic!("{out}") };
    assert!(has_terminal(within), "{out}");
    assert_eq!(status, "122", "{out}");
    assert!(has_terminal(after) && within != after, "{out}");
}

fn keys(store: &'static dyn Store) {
    let site = store.site(Server::Shared);
    // The outer shell gets Ctrl-C, too, because distlock is in its group.
    // The command makes no process: a shell that has made one by `vfork` does not stop if the child was stopped first.
    let script = "trap : INT; $D run $K -- sh -c 'read line; trap \"echo interrupted; exit 9\" INT; echo read $line; while :; do :; done'; echo status $?";
    let mut running = in_terminal(&site.url(), script);
    let mut keys = running.stdin();
    keys.write_all(b"typed\n").unwrap();
    until("it reads", || running.out().contains("read typed"));
    keys.write_all(b"\x1a").unwrap();
    until("it is stopped", || running.out().contains("is stopped"));
    // Ctrl-C goes to distlock now, which passes it on.
    keys.write_all(b"\x03").unwrap();
    until("it is interrupted", || running.out().contains("status 9"));
    assert!(running.out().contains("interrupted"), "{}", running.out());
    drop(keys);
    running.status();
}

fn colours(store: &'static dyn Store) {
    let site = store.site(Server::Shared);
    let shown = |options: &str| {
        let mut running = in_terminal(&site.url(), &format!("{options}$D show $K"));
        let keys = running.stdin();
        assert_eq!(running.code(), 0, "{}", running.out());
        drop(keys);
        running.out()
    };
    assert!(shown("").contains("\x1b[1m"), "{}", shown(""));
    assert!(!shown("NO_COLOR=1 ").contains('\x1b'), "{}", shown("NO_COLOR=1 "));
    let piped = end_of(&mut distlock(&site.url(), &format!("show {}", new_key())));
    assert!(!piped.out.contains('\x1b') && piped.out.contains("is free"), "{}", piped.out);
}
