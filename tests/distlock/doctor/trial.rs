//! The trial of a lock, on servers that break it.

use std::{thread, time::Duration};

use lock_conformance::{
    Store,
    support::{
        proxy::{Flow, Proxy, Upstream, Way},
        redis_server::RedisServer,
    },
};

use super::redis::url;
use crate::command::{Named, Running, distlock};

pub const TESTS: &[Named] = &[
    ("the_doctor_finds_a_store_that_forgets_locks", forgets),
    ("the_doctor_does_not_call_a_late_renewal_a_broken_exclusion", late),
];

fn forgets(_: &'static dyn Store) {
    let server = RedisServer::start_durable(&[]);
    let mut running = Running::start(&mut distlock(&url("redis", &server, ""), "doctor --json"));
    while !running.has_ended() {
        server.command(&["FLUSHALL"]);
        thread::sleep(Duration::from_millis(20));
    }
    let (code, out) = (running.code(), running.out());
    assert!(out.contains("\"finding\":\"exclusion\",\"severity\":\"danger\""), "{out}{}", running.err());
    assert_eq!(code, 116);
}

fn late(_: &'static dyn Store) {
    let server = RedisServer::start_durable(&[]);
    let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
    let address = format!("redis://{}", proxy.address());
    let mut running = Running::start(&mut distlock(&address, "doctor --json"));
    // Once the lock is held, renewals are not answered any more until the lease has ended.
    crate::command::until("the lock is held", || {
        let keys = server.command(&["KEYS", "lock:distlock-doctor:*"]).texts();
        !keys.is_empty() || running.has_ended()
    });
    thread::sleep(Duration::from_millis(100));
    proxy.set(Way::ToClient, Flow::Hold);
    thread::sleep(Duration::from_secs(5));
    proxy.heal();
    let (code, out) = (running.code(), running.out());
    assert!(!out.contains("\"exclusion\""), "{out}{}", running.err());
    assert!(out.contains("\"slow\"") || out.contains("\"unreachable\""), "{out}{}", running.err());
    assert_eq!(code, 116);
}
