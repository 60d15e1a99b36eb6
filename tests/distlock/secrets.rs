//! The password of the store is shown nowhere.

use std::fs;

use lock_conformance::{CANARY, Server, Store};
use rustix::process::Signal;

use crate::command::{Beats, Named, children_of, distlock, end_of, new_key, run};

pub const TESTS: &[Named] = &[
    ("the_url_is_neither_in_the_command_nor_in_its_keeper", environment),
    ("no_password_is_in_any_output", outputs),
    ("a_password_among_the_arguments_is_warned_of", warning),
];

fn environment(store: &'static dyn Store) {
    let site = store.site(Server::Own);
    let url = site.url_with_password(CANARY);
    let beats = Beats::new();
    let mut running = beats.begin(&url, &new_key(), "", "env; ");
    let [keeper] = children_of(running.id())[..] else { panic!("one child") };
    let [command] = children_of(keeper)[..] else { panic!("one child") };
    for id in [keeper, command] {
        for what in ["environ", "cmdline"] {
            let shown = fs::read(format!("/proc/{id}/{what}")).unwrap();
            let shown = String::from_utf8_lossy(&shown);
            assert!(!shown.contains(CANARY) && !shown.contains("LOCK_URL"), "{shown}");
        }
    }
    let environment = running.out();
    for name in ["LOCK_KEY=distlock:", "LOCK_FENCING_TOKEN="] {
        assert!(environment.lines().any(|line| line.starts_with(name)), "{environment}");
    }
    // Nothing that the keeper or distlock has open is open in the command, above the usual three.
    let open = fs::read_dir(format!("/proc/{command}/fd")).unwrap();
    let open: Vec<_> = open.map(|entry| fs::read_link(entry.unwrap().path()).unwrap_or_default()).collect();
    assert!(!open.iter().any(|to| to.to_string_lossy().starts_with("socket:")), "{open:?}");
    running.signal(Signal::TERM);
    running.status();
}

fn outputs(store: &'static dyn Store) {
    let site = store.site(Server::Own);
    let right = site.url_with_password(CANARY);
    let wrong = site.url_with_password(&format!("{CANARY}-wrong"));
    let unreachable = format!("redis://user:{CANARY}@127.0.0.1:1");
    let malformed = format!("redis://user:{CANARY}@host:99999");
    let unknown = format!("bogus://user:{CANARY}@host");
    let postgres = format!("postgres://user:{CANARY}@127.0.0.1:1/db");
    let bare = format!("user:{CANARY}@host");
    let key = new_key();
    for url in [&right, &wrong, &unreachable, &malformed, &unknown, &postgres, &bare] {
        for arguments in [
            format!("run {key} --wait 0 -- true"),
            format!("show {key}"),
            format!("show {key} --json"),
            "list".into(),
            "doctor".into(),
            format!("revoke {key} 1"),
            "--help".into(),
            "run --help".into(),
            "run".into(),
            format!("run {key} --ttl x -- true"),
            "bogus".into(),
        ] {
            let ended = end_of(distlock(url, &arguments).env("RUST_BACKTRACE", "1").env("RUST_LOG", "trace"));
            let all = ended.out + &ended.err;
            assert!(!all.contains(CANARY), "{arguments}: {all}");
        }
    }
    let ended = end_of(&mut run(&right, &key, "", "exit 0"));
    assert_eq!(ended.code, 0, "the right password is right: {}", ended.err);
}

fn warning(_store: &'static dyn Store) {
    let url = format!("redis://user:{CANARY}@127.0.0.1:1");
    let warned = end_of(&mut distlock("", &format!("show k --url {url}")));
    assert!(warned.err.contains("warning") && !warned.err.contains(CANARY), "{}", warned.err);
    let unwarned = end_of(&mut distlock(&url, "show k"));
    assert!(!unwarned.err.contains("warning"), "{}", unwarned.err);
}
