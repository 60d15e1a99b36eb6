//! Operators on a Redis server: what their calls need, what they cost, and what others can do to them.

use std::{collections::BTreeSet, time::Duration};

use lock_runtime::{LockErrorKind, LockManager};

use super::{LONG, permissions::published_user, url};
use crate::support::{
    proxy::{Flow, Proxy, Upstream, Way},
    redis_server::RedisServer,
    resp::Value,
    until,
};

const MS: Duration = Duration::from_millis(1);

/// The second block of the documentation's `ACL SETUSER`: the rights that only a scan needs.
const SCAN_RIGHTS: [&str; 2] = ["+scan", "+getrange"];

/// The user of the documentation that only looks at locks, word for word.
fn watching_user() -> Vec<&'static str> {
    let page = include_str!("../../../lock-runtime/src/backend/stores/redis/docs.md");
    let (_, rest) = page.split_once("ACL SETUSER watch ").expect("the page has the user");
    let user = rest.split_once("```").expect("it ends with the block").0;
    ["watch"].into_iter().chain(user.split_whitespace()).collect()
}

async fn connected(server: &RedisServer, rest: &str) -> LockManager {
    LockManager::connect(&url(server, rest)).await.unwrap()
}

/// The names of the locks that a scan finds.
async fn found(locks: &LockManager) -> BTreeSet<String> {
    let (mut found, mut scan) = (BTreeSet::new(), locks.scan(""));
    while let Some(lock) = scan.next().await {
        found.insert(lock.unwrap().key.as_str().to_owned());
    }
    found
}

#[tokio::test]
async fn a_scan_without_its_rights_names_them_and_nothing_else_needs_them() {
    for given in [&[][..], &SCAN_RIGHTS[..1], &SCAN_RIGHTS[1..], &SCAN_RIGHTS[..]] {
        let server = RedisServer::start(&[&["--user"], &published_user()[..], given].concat());
        let locks = connected(&server, "?user=locks&pass=password").await;
        let guard = locks.lock("user:42").acquire().await.unwrap();
        let token = guard.fencing_token();
        assert_eq!(locks.inspect("user:42").await.unwrap().holders[0].token(), Some(token), "{given:?}");
        let first = locks.scan("").next().await.expect("a lock or an error");
        if given.len() == SCAN_RIGHTS.len() {
            assert_eq!(first.unwrap().key.as_str(), "user:42");
        } else {
            let error = first.expect_err("a right is missing");
            assert!(error.kind() == LockErrorKind::Backend && !error.is_retryable(), "{given:?}: {error}");
            assert!(error.to_string().contains("`+scan +getrange`"), "{given:?}: {error}");
        }
        assert!(locks.revoke("user:42", token).await.unwrap(), "{given:?}");
        tokio::time::timeout(LONG, guard.lost()).await.expect("notified");
        guard.release().await.unwrap_err();
    }
}

#[tokio::test]
async fn a_user_that_may_only_look_sees_locks_and_cannot_take_them() {
    let server = RedisServer::start(&[&["--user"], &watching_user()[..], &SCAN_RIGHTS[..]].concat());
    let ours = connected(&server, "").await;
    let guard = ours.lock("user:42").label("report").acquire().await.unwrap();
    let lock = connected(&server, "").await.lock("user:42").label("next").wait(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    until("it waits", || match server.command(&["LLEN", "lock:{lock:user:42}:~1:queue"]).int() {
        1 => Ok(()),
        number => Err(number),
    })
    .await;
    let watch = connected(&server, "?user=watch&pass=password").await;
    let state = watch.inspect("user:42").await.unwrap();
    assert_eq!(state.holders[0].label(), Some("report"));
    assert_eq!(state.waiters[0].label(), Some("next"));
    assert_eq!(found(&watch).await, BTreeSet::from(["user:42".to_owned()]));
    let value = server.command(&["GET", "lock:user:42"]);
    let token = guard.fencing_token();
    for error in [
        watch.revoke("user:42", token).await.unwrap_err(),
        watch.revoke_by_force("user:42", token).await.unwrap_err(),
        watch.lock("user:42").try_acquire().await.unwrap_err(),
    ] {
        assert!(error.kind() == LockErrorKind::Backend && !error.is_retryable(), "{error}");
    }
    assert_eq!(server.command(&["GET", "lock:user:42"]), value);
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
}

/// `SCAN` names keys that the user may not read.
#[tokio::test]
async fn a_name_that_may_not_be_read_does_not_end_a_scan() {
    let mut user = published_user();
    let names = ["~lock:a*", "~lock:{lock:a*", "~lock:~1:*"];
    let place = user.iter().position(|word| *word == "~lock:*").expect("the user has it");
    user.splice(place..=place, names);
    let server = RedisServer::start(&[&["--user"], &user[..], &SCAN_RIGHTS[..]].concat());
    let locks = connected(&server, "").await;
    let mut guards = Vec::new();
    for name in ["a1", "b1", "a2"] {
        guards.push(locks.lock(name).acquire().await.unwrap());
    }
    let narrow = connected(&server, "?user=locks&pass=password").await;
    assert_eq!(found(&narrow).await, ["a1", "a2"].map(str::to_owned).into());
}

#[tokio::test]
async fn strangers_values_are_shown_as_foreign_and_do_not_end_a_scan() {
    let server = RedisServer::start(&[]);
    let locks = connected(&server, "").await;
    let guard = locks.lock("ours").acquire().await.unwrap();
    let token = "00112233445566778899aabbccddeeff";
    for (name, value) in [
        ("spaces", "1x:a b:0123456789abcdef:00:7".to_owned()),
        ("escape", "1x:a\u{1b}[31m,1@b:0123456789abcdef:00:7".to_owned()),
        ("short", "1x:".to_owned()),
        ("later", format!("2x:a,1@b:0123456789abcdef:{token}:7")),
        ("long", "x".repeat(4 << 20)),
        ("huge", format!("1x:a,1@b:0123456789abcdef:{token}:99999999999999999999")),
    ] {
        server.command(&["SET", &format!("lock:{name}"), &value]);
    }
    let raw = r"return redis.call('SET', 'lock:\255', '1x:\254:\253')";
    server.command(&["EVAL", raw, "0"]);
    server.command(&["SET", "lock:raw", "0"]);
    server.command(&["EVAL", r"return redis.call('SET', 'lock:raw', '1x:\254:\253')", "0"]);
    server.command(&["SADD", "lock:a set", "x"]);
    server.command(&["SET", "lock:{lock:x}:~1:open", "1"]);
    server.command(&["SET", "lock:percent", &format!("1x:%1B%0A,1@b,%07:0123456789abcdef:{token}:7")]);
    let (mut names, mut scan) = (BTreeSet::new(), locks.scan(""));
    while let Some(lock) = scan.next().await {
        let lock = lock.unwrap();
        let (name, holder) = (lock.key.as_str().to_owned(), &lock.holders[0]);
        assert!(!format!("{lock:?}").contains(token), "an owner token in {lock:?}");
        let is_foreign = name != "ours" && name != "percent";
        assert_eq!(holder.is_foreign(), is_foreign, "{lock:?}");
        if name == "percent" {
            assert_eq!((holder.client(), holder.label()), (Some("__:1@b"), Some("_")));
        }
        // Both calls see the same.
        let inspected = locks.inspect(&name).await.unwrap();
        assert_eq!(inspected.holders[0].is_foreign(), is_foreign, "{inspected:?}");
        if is_foreign {
            assert_eq!(holder.remaining(), Some(Duration::MAX));
        }
        names.insert(name);
    }
    let expected = ["ours", "spaces", "escape", "short", "later", "long", "huge", "raw", "percent"];
    assert_eq!(names, expected.map(str::to_owned).into());
    assert_eq!(locks.inspect("a set").await.unwrap_err().kind(), LockErrorKind::InvalidKey);
    for name in ["short", "huge", "raw"] {
        assert!(locks.revoke_by_force(name, None).await.unwrap());
        assert!(!locks.inspect(name).await.unwrap().is_held());
    }
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_step_of_a_scan_of_a_hundred_thousand_locks_holds_up_the_server() {
    const LOCKS: usize = 100_000;
    const FILL: &str = "for i = tonumber(ARGV[1]), tonumber(ARGV[1]) + 999 do
        redis.call('SET', 'lock:user:' .. i, '1x:bank,7@host,report:0123456789abcdef:00112233445566778899aabbccddeeff:7', 'PX', '600000')
        redis.call('SET', 'other:' .. i, 'x')
    end";
    let server = RedisServer::start(&[]);
    let locks = connected(&server, "").await;
    for first in (0..LOCKS).step_by(1_000) {
        server.command(&["EVAL", FILL, "0", &first.to_string()]);
    }
    server.command(&["CONFIG", "SET", "slowlog-max-len", "10000"]);
    server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "10000"]);
    server.command(&["CONFIG", "RESETSTAT"]);
    server.command(&["SLOWLOG", "RESET"]);
    let names = found(&locks).await;
    let slow = server.command(&["SLOWLOG", "LEN"]).int();
    assert_eq!(names.len(), LOCKS);
    let steps = server.calls("scan") + server.calls("evalsha");
    println!("{slow} of {steps} steps took more than 10 ms");
    for command in ["scan", "evalsha"] {
        let stats = server.command(&["INFO", "commandstats"]).text();
        let of_command = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:")));
        let of_command = of_command.expect("it was called").split("usec_per_call=").nth(1).expect("a field");
        let micros: f64 = of_command.split(',').next().unwrap().parse().unwrap();
        println!("{command}: {micros} µs a call");
        assert!(micros < 5_000.0, "{command}: {micros} µs a call");
    }
    // The time includes that in which a busy machine did not run the server.
    assert!(slow * 100 <= i64::try_from(steps).unwrap(), "{slow} of {steps} steps took more than 10 ms");
}

#[tokio::test]
async fn a_forged_notice_of_a_revocation_does_no_harm() {
    let server = RedisServer::start(&[]);
    let locks = connected(&server, "").await;
    let guard = locks.lock("k").ttl(LONG * 3).acquire().await.unwrap();
    let holder = server.command(&["GET", "lock:k"]).text();
    let inbox = format!("lock:~1:inbox:{}", holder.split(':').nth(2).unwrap());
    let renewals = || server.calls("pexpire");
    let before = renewals();
    let began = std::time::Instant::now();
    while began.elapsed() < 500 * MS {
        for message in ["revoked 7 lock:k", "revoked 7 lock:other", "revoked x lock:k", "revoked"] {
            assert_eq!(server.command(&["PUBLISH", &inbox, message]).int(), 1, "it listens");
        }
    }
    until("it was checked", || if renewals() > before { Ok(()) } else { Err(()) }).await;
    assert!(guard.is_valid());
    // Notices that follow each other at once are handled together.
    assert!(renewals() - before <= 12, "{}", renewals() - before);
    assert!(!locks.inspect("k").await.unwrap().holders[0].is_revoked());
    guard.release().await.unwrap();
}

/// The proxy delays the request of the operator until the lock has its next holder.
#[tokio::test]
async fn a_revocation_that_is_executed_late_spares_the_next_holder() {
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
    let locks = connected(&server, "").await;
    let operator = LockManager::connect(&format!("redis://{}", proxy.address())).await.unwrap();
    for is_forced in [false, true] {
        let guard = locks.lock("k").acquire().await.unwrap();
        // The script is known to the server by then.
        assert!(!operator.revoke("free", guard.fencing_token()).await.unwrap());
        proxy.set(Way::ToServer, Flow::Delay(500 * MS));
        let (operator, token) = (operator.clone(), guard.fencing_token());
        let before = server.calls("evalsha");
        let late = tokio::spawn(async move {
            if is_forced {
                operator.revoke_by_force("k", token).await
            } else {
                operator.revoke("k", token).await
            }
        });
        tokio::time::sleep(100 * MS).await;
        guard.release().await.unwrap();
        let next = locks.lock("k").acquire().await.unwrap();
        assert_eq!(server.calls("evalsha"), before + 2, "not executed yet");
        assert!(!late.await.unwrap().unwrap());
        assert!(!locks.inspect("k").await.unwrap().holders[0].is_revoked());
        assert!(next.is_valid());
        next.release().await.unwrap();
        proxy.set(Way::ToServer, Flow::Pass);
    }
}

/// By force without a token, only the holder that was seen is meant. The proxy delays each of the two requests.
#[tokio::test]
async fn a_foreign_holder_that_came_after_the_one_that_was_seen_is_spared() {
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
    let operator = LockManager::connect(&format!("redis://{}", proxy.address())).await.unwrap();
    assert!(!operator.revoke_by_force("k", None).await.unwrap(), "the server knows the script by now");
    server.command(&["SET", "lock:k", "first", "PX", "60000"]);
    let before = server.calls("evalsha");
    proxy.set(Way::ToServer, Flow::Delay(500 * MS));
    let late = tokio::spawn(async move { operator.revoke_by_force("k", None).await });
    until("the first was seen", || if server.calls("evalsha") > before { Ok(()) } else { Err(()) }).await;
    server.command(&["SET", "lock:k", "second", "PX", "60000"]);
    assert!(!late.await.unwrap().unwrap());
    assert_eq!(server.command(&["GET", "lock:k"]).text(), "second");
}

/// A waiter whose message was lost finds its grant when it polls. A revocation may have come first.
#[tokio::test]
async fn a_grant_that_was_revoked_before_its_waiter_knew_of_it_is_not_revived() {
    let server = RedisServer::start(&[]);
    let (ours, theirs) = (connected(&server, "").await, connected(&server, "").await);
    let guard = ours.lock("k").acquire().await.unwrap();
    let lock = theirs.lock("k").wait(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    let queue = "lock:{lock:k}:~1:queue";
    until("it waits", || match server.command(&["LLEN", queue]).int() {
        1 => Ok(()),
        number => Err(number),
    })
    .await;
    // As the release, the lost message and the revocation leave the lock.
    let entry = server.command(&["LINDEX", queue, "0"]).text();
    let owner = entry.split(' ').next().unwrap();
    let fence = guard.fencing_token().micros() + 1;
    let swap =
        "redis.call('DEL', KEYS[2], KEYS[3]) return redis.call('SET', KEYS[1], ARGV[1], 'PX', '60000')";
    let value = format!("{owner}:{fence}!");
    server.command(&["EVAL", swap, "3", "lock:k", queue, "lock:{lock:k}:~1:places", &value]);
    let next = tokio::time::timeout(LONG, waiter).await.expect("it asks again").unwrap();
    assert!(next.fencing_token().micros() > fence, "it has the grant that was revoked");
    assert!(next.is_valid());
    next.release().await.unwrap();
    guard.release().await.unwrap_err();
}

/// Without a hand-over, the waiter would find the free lock when it polls, and its lease would not be that of a grant
/// that waits to be claimed.
#[tokio::test]
async fn force_serves_the_first_waiter_in_the_same_step() {
    let server = RedisServer::start(&[]);
    let (ours, theirs) = (connected(&server, "").await, connected(&server, "").await);
    let guard = ours.lock("k").acquire().await.unwrap();
    let lock = theirs.lock("k").wait(LONG).label("next");
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    until("it waits", || match server.command(&["LLEN", "lock:{lock:k}:~1:queue"]).int() {
        1 => Ok(()),
        number => Err(number),
    })
    .await;
    assert!(ours.revoke_by_force("k", guard.fencing_token()).await.unwrap());
    let state = ours.inspect("k").await.unwrap();
    assert_eq!(state.holders[0].label(), Some("next"), "{state:?}");
    waiter.await.unwrap().release().await.unwrap();
    tokio::time::timeout(LONG, guard.lost()).await.expect("notified");
}

#[tokio::test]
async fn a_lock_can_be_revoked_while_the_server_is_out_of_memory() {
    let server = RedisServer::start(&["--maxmemory-policy", "noeviction"]);
    let locks = connected(&server, "").await;
    let lock = locks.lock("k").ttl(LONG * 3);
    for is_forced in [false, true] {
        let guard = lock.acquire().await.unwrap();
        let token = guard.fencing_token();
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        let revoked =
            if is_forced { locks.revoke_by_force("k", token).await } else { locks.revoke("k", token).await };
        assert!(revoked.unwrap());
        tokio::time::timeout(LONG, guard.lost()).await.expect("notified");
        drop(guard);
        until("it is free", || match server.command(&["EXISTS", "lock:k"]) {
            Value::Int(0) => Ok(()),
            exists => Err(exists),
        })
        .await;
        server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    }
}
