//! Tests of one Redis server that is shared with clients that do as Redisson does, and so not cases of the conformance
//! suite.

mod operators;

use std::time::{Duration, Instant};

use lock_runtime::{LockErrorKind, LockManager};

use crate::{
    redis::overheard::Overheard,
    support::{
        java::Java,
        proxy::{Flow, Proxy, Upstream, Way},
        redis_server::RedisServer,
        resp::Value,
        stopwatch::{Moment, most_within},
        until,
    },
};

const LONG: Duration = Duration::from_secs(20);
const MS: Duration = Duration::from_millis(1);
/// The longest pause after which a waiter looks although no release was announced, and the time to do so.
const LOOKS: Duration = Duration::from_millis(350 + 250);

async fn client(server: &RedisServer, rest: &str) -> LockManager {
    LockManager::connect(&format!("redisson+unix://{}{rest}", server.socket().display())).await.unwrap()
}

/// The owners in a lock's hash, each with its number of holds.
fn holds(server: &RedisServer, lock: &str) -> Vec<(String, String)> {
    let all = server.command(&["HGETALL", lock]).texts();
    let fields = all.chunks(2).filter(|pair| pair[0] != "~1:grant");
    fields.map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

/// Waits until the only field of `x` has this number.
async fn counts(server: &RedisServer, holds_of_x: &str) {
    until("the hold count is recorded", || match &holds(server, "x")[..] {
        [(_, count)] if count == holds_of_x => Ok(()),
        other => Err(other.to_vec()),
    })
    .await;
}

/// What stands on the server is what Redisson would have written.
#[tokio::test]
async fn a_hold_and_its_release_look_like_redisson_s() {
    let server = RedisServer::start(&[]);
    let locks = client(&server, "").await;
    let heard = Overheard::on(&server).await;
    let mut owners = Vec::new();
    for name in ["x", "{t}:x", "user:{42}"] {
        let guard = locks.lock(name).ttl(LONG).acquire().await.unwrap();
        assert_eq!(server.command(&["TYPE", name]), Value::Text("hash".into()));
        let [(owner, count)] = &holds(&server, name)[..] else { panic!("one owner") };
        let (client, thread) = owner.split_once(':').unwrap();
        assert_eq!(client.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{owner}");
        assert!(thread.parse::<i64>().is_ok_and(|id| id >= 0), "{owner}");
        assert_eq!(count, "1");
        let left = server.command(&["PTTL", name]).int();
        assert!((19_000..=20_000).contains(&left), "{left} ms left");
        owners.push(owner.clone());
        guard.release().await.unwrap();
        assert_eq!(server.command(&["EXISTS", name]).int(), 0);
        let message = format!("{}\r\n$1\r\n0\r\n", Java::channel(name));
        until("the release is announced", || match heard.text() {
            text if text.contains(&message) => Ok(()),
            text => Err(text),
        })
        .await;
    }
    let clients: Vec<_> = owners.iter().map(|owner| owner.split_once(':').unwrap().0).collect();
    assert!(clients.iter().all(|client| *client == clients[0]), "{clients:?}");
    owners.sort_unstable();
    owners.dedup();
    assert_eq!(owners.len(), 3, "each acquisition has an id of its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_and_ours_exclude_and_wake_each_other() {
    let server = RedisServer::start(&[]);
    let locks = client(&server, "").await;
    let (java, heard) = (Java::new(&server), Overheard::on(&server).await);
    let owner = Java::owner(1);
    let mut woken_after = Vec::new();
    for _ in 0..9 {
        java.acquire("x", LONG, &owner).unwrap();
        assert!(locks.lock("x").try_acquire().await.unwrap().is_none());
        let lock = locks.lock("x").ttl(LONG).wait(LONG);
        let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
        until("it subscribes", || match server.command(&["PUBSUB", "NUMSUB", &Java::channel("x")]) {
            Value::Array(of) if of[1] == Value::Int(1) => Ok(()),
            other => Err(other),
        })
        .await;
        assert!(!waiter.is_finished());
        assert_eq!(java.release("x", &owner), Some(true));
        let released = Moment::now();
        let guard = waiter.await.unwrap();
        woken_after.push(released.took());
        // It is told how long to sleep at most, and may release nothing.
        let left = java.acquire("x", LONG, &owner).unwrap_err();
        assert!((19_000..=20_000).contains(&left), "{left} ms left");
        assert_eq!(java.release("x", &owner), None);
        let before = heard.text().len();
        guard.release().await.unwrap();
        until("it is told", || if heard.text().len() > before { Ok(()) } else { Err(before) }).await;
    }
    println!("woken after {woken_after:?}");
    // Behind the pause of a waiter that is not told.
    assert!(most_within(&woken_after, 50 * MS), "{woken_after:?}");
}

/// The number itself is written: it is right after calls that come twice or late, and Java sees the truth.
#[tokio::test]
async fn the_hold_count_is_the_depth_of_the_scope() {
    let server = RedisServer::start(&[]);
    let locks = client(&server, "").await;
    let guard = locks.lock("x").ttl(LONG).acquire().await.unwrap();
    let section = guard.run(async {
        counts(&server, "1").await;
        let again = locks.lock("x").reentrant(true);
        for _ in 0..3 {
            let inner = again.acquire().await.unwrap();
            counts(&server, "2").await;
            let inmost = again.acquire().await.unwrap();
            counts(&server, "3").await;
            drop(inner);
            counts(&server, "2").await;
            inmost.release().await.unwrap();
            counts(&server, "1").await;
        }
        again.acquire().await.unwrap()
    });
    let inner = section.await.unwrap();
    assert_eq!(server.command(&["EXISTS", "x"]).int(), 0);
    // It outlasts the hold, and Java's is not touched.
    let java = Java::new(&server);
    java.acquire("x", LONG, &Java::owner(1)).unwrap();
    drop(inner);
    tokio::time::sleep(200 * MS).await;
    assert_eq!(holds(&server, "x"), [(Java::owner(1), "1".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_ends_without_a_message_is_noticed() {
    let server = RedisServer::start(&[]);
    let locks = client(&server, "").await;
    let java = Java::new(&server);
    for deleted in [true, false] {
        // The client of a thread that died; or an operator deletes the lock.
        java.acquire("x", if deleted { LONG } else { 1_000 * MS }, &Java::owner(1)).unwrap();
        let lock = locks.lock("x").wait(LONG);
        let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
        tokio::time::sleep(500 * MS).await;
        if deleted {
            server.command(&["DEL", "x"]);
        } else {
            tokio::time::sleep(500 * MS).await;
        }
        let ended = Moment::now();
        waiter.await.unwrap().release().await.unwrap();
        assert!(ended.within(LOOKS), "{:?}", ended.took());
    }
    // An old client's request was sent again: it counts two holds, of which it knows one.
    java.acquire("x", 800 * MS, &Java::owner(1)).unwrap();
    java.acquire("x", 800 * MS, &Java::owner(1)).unwrap();
    assert_eq!(java.release("x", &Java::owner(1)), Some(false));
    server.command(&["PEXPIRE", "x", "800"]);
    let asked = Moment::now();
    locks.lock("x").wait(LONG).acquire().await.unwrap().release().await.unwrap();
    assert!(asked.within(800 * MS + LOOKS), "{:?}", asked.took());
}

/// The release in between notified no waiter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_asks_again_as_soon_as_it_has_subscribed() {
    let server = RedisServer::start(&[]);
    let locks = client(&server, "").await;
    let java = Java::new(&server);
    java.acquire("x", LONG, &Java::owner(1)).unwrap();
    let mut pauses = Vec::new();
    // The machine may be busy now and then.
    for _ in 0..9 {
        let before = server.calls("evalsha");
        let lock = locks.lock("x").wait(150 * MS);
        let began = Moment::now();
        let waiter = tokio::spawn(async move { lock.acquire().await.map(drop) });
        until("it has asked twice", || match server.calls("evalsha") - before {
            2.. => Ok(()),
            calls => Err(calls),
        })
        .await;
        pauses.push(began.took());
        assert_eq!(waiter.await.unwrap().unwrap_err().kind(), LockErrorKind::Timeout);
    }
    assert!(pauses.iter().any(|pause| pause.within(100 * MS)), "{pauses:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_while_the_subscription_was_gone_is_noticed() {
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
    let locks = LockManager::connect(&format!("redisson://{}", proxy.address())).await.unwrap();
    let java = Java::new(&server);
    for _ in 0..3 {
        java.acquire("x", LONG, &Java::owner(1)).unwrap();
        let lock = locks.lock("x").wait(LONG);
        let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
        tokio::time::sleep(100 * MS).await;
        proxy.reset();
        java.release("x", &Java::owner(1));
        let released = Moment::now();
        waiter.await.unwrap().release().await.unwrap();
        assert!(released.within(LOOKS + 500 * MS), "{:?}", released.took());
    }
}

/// Java's clients send nothing but `0` and `1`. What others send wakes waiters at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_any_kind_let_no_waiter_in() {
    let server = RedisServer::start(&[]);
    let (ours, theirs) = (client(&server, "").await, client(&server, "").await);
    let guard = ours.lock("x").ttl(LONG).acquire().await.unwrap();
    let lock = theirs.lock("x").wait(1_500 * MS);
    let waiter = tokio::spawn(async move { lock.acquire().await.map(drop) });
    let channel = Java::channel("x");
    for message in ["0", "1", "7", "-1", "", "hello", "1:abc", "\0\u{ff}"].iter().cycle().take(400) {
        server.command(&["PUBLISH", &channel, message]);
    }
    assert_eq!(waiter.await.unwrap().unwrap_err().kind(), LockErrorKind::Timeout);
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

/// One order for both: the counter of `RFencedLock`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fenced_grants_are_numbered_by_redisson_s_counter() {
    let server = RedisServer::start(&[]);
    let locks = client(&server, "?fenced=true").await;
    let java = Java::new(&server);
    let mut last = 0;
    for _ in 0..20 {
        let next = java.acquire_fenced("x", LONG, &Java::owner(1)).unwrap();
        assert_eq!(next, last + 1);
        java.release("x", &Java::owner(1));
        // One holds it, and others of the process wait behind it.
        let tasks: Vec<_> = (0..3)
            .map(|_| {
                let lock = locks.lock("x").wait(LONG);
                tokio::spawn(async move {
                    let guard = lock.acquire().await.unwrap();
                    let token = guard.fencing_token().get();
                    guard.release().await.unwrap();
                    token
                })
            })
            .collect();
        let mut tokens = Vec::new();
        for task in tasks {
            tokens.push(task.await.unwrap());
        }
        tokens.sort_unstable();
        assert_eq!(tokens, [next + 1, next + 2, next + 3]);
        last = next + 3;
    }
    let guard = locks.lock("x").acquire().await.unwrap();
    let again = locks.lock("x").reentrant(true);
    let token = guard.fencing_token();
    let inner = guard.run(async { again.acquire().await.unwrap().fencing_token() }).await.unwrap();
    assert_eq!(inner, token);
    assert_eq!(server.command(&["GET", "redisson_lock_token:{x}"]).text(), token.to_string());
}

/// With the addition for `fenced=true`. Of plain locks, the conformance suite shows it.
#[tokio::test]
async fn the_published_user_can_do_what_fenced_locks_need() {
    let page = include_str!("../../lock-runtime/src/backend/stores/redisson/docs.md");
    let (user, _) = page.split_once("ACL SETUSER ").unwrap().1.split_once("```").unwrap();
    let user = format!("--user {} ~redisson_lock_token:{{user:* +incr", user.trim());
    for addition in ["`~redisson_lock_token:{user:*`", "`+incr`"] {
        assert!(page.contains(addition), "{addition}");
    }
    let server = RedisServer::start(&user.split(' ').collect::<Vec<_>>());
    let locks = client(&server, "?user=locks&pass=password&fenced=true").await;
    let guard = locks.lock("user:42").ttl(300 * MS).acquire().await.unwrap();
    tokio::time::sleep(700 * MS).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    let error = locks.lock("order:42").acquire().await.unwrap_err();
    assert!(error.to_string().contains("ACL"), "{error}");
}

#[tokio::test]
async fn a_lock_of_the_plain_recipe_under_the_name_is_an_error_that_says_so() {
    let server = RedisServer::start(&[]);
    let locks = client(&server, "").await;
    server.command(&["SET", "x", "token", "NX", "PX", "20000"]);
    let error = locks.lock("x").wait(LONG).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::InvalidKey);
    assert!(!error.is_retryable(), "{error}");
    assert_eq!(server.command(&["GET", "x"]).text(), "token");
}

/// Java may not sleep for longer than it was told: a release that is late is announced all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_is_given_up_and_granted_late_is_released_with_a_message() {
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
    let locks = LockManager::connect(&format!("redisson://{}", proxy.address())).await.unwrap();
    locks.lock("warm").acquire().await.unwrap().release().await.unwrap();
    let (java, heard) = (Java::new(&server), Overheard::on(&server).await);
    proxy.set(Way::ToClient, Flow::Hold);
    let lock = locks.lock("x").ttl(LONG);
    let attempt = tokio::spawn(async move { lock.acquire().await.map(drop) });
    until("it is granted", || match server.command(&["EXISTS", "x"]) {
        Value::Int(1) => Ok(()),
        other => Err(other),
    })
    .await;
    java.acquire("x", LONG, &Java::owner(1)).unwrap_err();
    attempt.abort();
    proxy.heal();
    until("it is free", || java.acquire("x", LONG, &Java::owner(1))).await;
    let message = format!("{}\r\n$1\r\n0\r\n", Java::channel("x"));
    until("the release is announced", || match heard.text() {
        text if text.contains(&message) => Ok(()),
        text => Err(text),
    })
    .await;
}

/// An operator or another client may have set Redisson's counter, for example to a token of another store. Above 2^53, a
/// script's numbers no longer tell neighbours apart.
#[tokio::test]
async fn a_counter_whose_numbers_are_not_exact_grants_nothing() {
    const LAST: u64 = (1 << 52) - 1;
    let server = RedisServer::start(&[]);
    let locks = client(&server, "?fenced=true").await;
    let too_large =
        [LAST, LAST + 1, 3_677_432_469_113_288_704, i64::MAX.cast_unsigned()].map(|n| n.to_string());
    for counter in too_large.into_iter().chain(["-7".into(), "hello".into(), "99999999999999999999".into()]) {
        server.command(&["SET", "redisson_lock_token:{x}", &counter]);
        for wait in [Duration::ZERO, LONG] {
            let error =
                locks.lock("x").wait(wait).acquire().await.map(|guard| guard.fencing_token()).unwrap_err();
            assert_eq!(error.kind(), LockErrorKind::Backend, "{counter}: {error}");
            assert!(!error.is_retryable(), "{counter}: {error}");
            assert!(error.to_string().contains("`redisson_lock_token:{x}`"), "{counter}: {error}");
            assert_eq!(server.command(&["EXISTS", "x"]).int(), 0, "{counter}");
        }
    }
    server.command(&["SET", "redisson_lock_token:{x}", &(LAST - 3).to_string()]);
    for token in LAST - 2..=LAST {
        let guard = locks.lock("x").acquire().await.unwrap();
        assert_eq!(guard.fencing_token().get(), token);
        guard.release().await.unwrap();
    }
    locks.lock("x").acquire().await.map(drop).unwrap_err();
}

/// No caller is asked to wait for what only an operator can change, and no hold stays behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_permission_that_is_missing_is_an_error_that_says_so() {
    let page = include_str!("../../lock-runtime/src/backend/stores/redisson/docs.md");
    let (user, _) = page.split_once("ACL SETUSER ").unwrap().1.split_once("```").unwrap();
    let user: Vec<&str> = ["--user"].into_iter().chain(user.split_whitespace()).collect();
    for missing in user.iter().filter(|word| word.starts_with('+')) {
        let rest: Vec<&str> = user.iter().copied().filter(|word| word != missing).collect();
        let server = RedisServer::start(&rest);
        let url = format!("redisson+unix://{}?user=locks&pass=password", server.socket().display());
        let locks = LockManager::connect_lazy(&url).unwrap();
        let began = Instant::now();
        let cycle = async { locks.lock("user:42").ttl(300 * MS).acquire().await?.release().await };
        match cycle.await {
            // The count of waiters, and the text of a script, can be done without; a waiter looks from time to time, and
            // only one that is refused reads the rest of a lease.
            Ok(()) => assert!(
                [
                    "+@connection",
                    "+hexists",
                    "+hdel",
                    "+info",
                    "+subscribe",
                    "+unsubscribe",
                    "+pubsub|numsub",
                    "+eval",
                    "+pttl",
                    "+get"
                ]
                .contains(missing),
                "{missing} is not needed"
            ),
            Err(error) => {
                let may_be_repeated = error.to_string().contains("the release was not confirmed");
                assert!(
                    error.is_retryable() == may_be_repeated && began.elapsed() < LONG / 4,
                    "{missing}: {error}"
                );
                assert!(error.to_string().contains("ACL"), "{missing}: {error}");
            }
        }
        until("no hold is left", || match server.command(&["EXISTS", "user:42"]) {
            Value::Int(0) => Ok(()),
            other => Err((*missing, other)),
        })
        .await;
    }
}

#[tokio::test]
async fn a_hash_without_an_expiry_is_named_as_the_cause() {
    let server = RedisServer::start(&[]);
    let locks = client(&server, "").await;
    server.command(&["HSET", "x", "00000000-0000-0000-0000-000000000000:1", "1"]);
    for expires in [false, true] {
        for wait in [Duration::ZERO, 300 * MS] {
            let error = locks.lock("x").wait(wait).acquire().await.unwrap_err();
            let text = error.to_string();
            assert_eq!(text.contains("set no expiry: it will not end by itself"), !expires, "{text}");
        }
        server.command(&["PEXPIRE", "x", "60000"]);
    }
}
