//! The example `leader`: the leading one of two processes is killed, and the other one leads.

use std::{
    env,
    process::{Command, Stdio},
};

use crate::support::redis_server::RedisServer;

/// `cargo test` builds the examples unless it is told which tests to build, as by `--test servers`.
#[test]
fn the_example_shows_a_succession() {
    let program = env::current_exe().expect("this program knows where it is");
    let folder = program.parent().and_then(|deps| deps.parent()).expect("below the target folder");
    let example = folder.join("examples/leader");
    if !example.exists() && env::var_os("LOCK_TEST_REQUIRE").is_none() {
        println!("not built: `cargo build --example leader` builds the example");
        return;
    }

    let server = RedisServer::start(&[]);
    let url = format!("redis+unix://{}", server.socket().display());
    let shown = Command::new(&example).env("LOCK_URL", url).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.status.success(), "{text}{}", String::from_utf8_lossy(&shown.stderr));
    let lines: Vec<_> = text.lines().collect();
    let pid = |line: &str| line.split(' ').nth(1).expect("a process id").parse::<u32>().expect("a number");
    let token = |line: &str| -> u64 {
        let text = line.split("fencing token ").nth(1).expect("a token");
        text.split(',').next().expect("a token").parse().expect("a number")
    };
    let terms: Vec<_> = lines.iter().filter(|line| line.contains(" leads with ")).collect();
    let [first, second] = terms[..] else { panic!("two terms: {text}") };
    assert_ne!(pid(first), pid(second), "{text}");
    assert!(token(first) < token(second), "{text}");
    assert!(lines.contains(&&*format!("process {} is killed", pid(first))), "{text}");
    assert_eq!(lines.last(), Some(&"the lock is free"), "{text}");

    let refused = Command::new(&example).env("LOCK_URL", "memory:").stdin(Stdio::null()).output().unwrap();
    assert!(!refused.status.success(), "two processes do not share `memory:`");
}
