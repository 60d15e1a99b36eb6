//! An attacker with permission to publish and subscribe on the channels of locks, but with none for any key.

use std::{
    io::Write,
    os::unix::net::UnixStream,
    thread,
    time::{Duration, Instant},
};

use lock_runtime::{LockGuard, LockManager};
use tokio::task::JoinHandle;

use super::{LONG, overheard::Overheard, url};
use crate::support::{redis_server::RedisServer, resp::Value, traces::has_owner_token, until};

const MS: Duration = Duration::from_millis(1);

fn server() -> RedisServer {
    let rights = "on >secret resetkeys allchannels -@all +publish +psubscribe +auth";
    RedisServer::start(&["--user", "evil"].into_iter().chain(rights.split(' ')).collect::<Vec<_>>())
}

fn publish(server: &RedisServer, channel: &str, message: &str) {
    server.command(&["PUBLISH", channel, message]);
}

/// Number and channel of each waiter for a lock.
fn places(server: &RedisServer, key: &str) -> Vec<(String, String)> {
    let name = |what| format!("lock:{{lock:{key}}}:~1:{what}");
    let entries = server.command(&["LRANGE", &name("queue"), "0", "-1"]).texts();
    entries
        .into_iter()
        .map(|entry| {
            // An entry contains its place until that is refreshed for the first time.
            let place = match entry.split_once(' ') {
                Some((_, place)) => place.to_owned(),
                None => server.command(&["HGET", &name("places"), &entry]).text(),
            };
            let [_, _, number, channel] = place.split(' ').collect::<Vec<_>>()[..] else { panic!("{place}") };
            (number.to_owned(), channel.to_owned())
        })
        .collect()
}

async fn waiter(locks: &LockManager, server: &RedisServer, key: &'static str) -> JoinHandle<LockGuard> {
    let lock = locks.lock(key).wait(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    until("it waits", || if places(server, key).is_empty() { Err(()) } else { Ok(()) }).await;
    waiter
}

/// Hands a lock of `ours` over to `theirs`; returns the hold, the lock's name and the overheard grant.
async fn handed_over(
    ours: &LockManager,
    theirs: &LockManager,
    server: &RedisServer,
    overheard: &Overheard,
) -> (LockGuard, &'static str, Vec<String>) {
    // A hold in which a period of ten seconds ends is not handed over; its release leaves the lock open.
    for key in ["account:8", "account:9"] {
        let guard = ours.lock(key).acquire().await.unwrap();
        let waiting = waiter(theirs, server, key).await;
        let (number, _) = places(server, key).remove(0);
        guard.release().await.unwrap();
        let guard = waiting.await.unwrap();
        match overheard.grant(&number).await {
            Some(heard) => return (guard, key, heard),
            None => guard.release().await.unwrap(),
        }
    }
    panic!("both were left open");
}

#[tokio::test]
async fn a_grant_that_the_server_did_not_make_makes_no_second_holder() {
    let server = server();
    let overheard = Overheard::on(&server).await;
    let [ours, theirs] = [
        LockManager::connect(&url(&server, "")).await.unwrap(),
        LockManager::connect(&url(&server, "")).await.unwrap(),
    ];
    // A genuine grant of another lock, for another waiter of the same process.
    let (guard, _, heard) = handed_over(&ours, &theirs, &server, &overheard).await;
    guard.release().await.unwrap();

    let guard = ours.lock("account:7").acquire().await.unwrap();
    let waiting = waiter(&theirs, &server, "account:7").await;
    let (number, channel) = places(&server, "account:7").remove(0);
    let far = "4000000000000000";
    let forged = "00112233445566778899aabbccddeeff00112233";
    for proof in [&*heard[1], forged, "", "0"] {
        for fence in [&*heard[2], far] {
            for px in ["1000", "30000", "86400000"] {
                publish(&server, &channel, &format!("granted {number} {proof} {fence} {px} 0"));
            }
        }
    }
    // Without a proof.
    publish(&server, &channel, &format!("granted {number} {far} 86400000 0"));
    publish(&server, &channel, &format!("free {number} 1"));
    publish(&server, &channel, &format!("free {number} 86400000"));
    tokio::time::sleep(500 * MS).await;
    assert!(guard.is_valid());
    assert!(!waiting.is_finished(), "a second holder next to the first");

    guard.release().await.unwrap();
    let guard = waiting.await.unwrap();
    assert!(guard.remaining() < Duration::from_secs(31), "{:?}", guard.remaining());
    guard.release().await.unwrap();

    // Overheard grants of the same lock are useless too: the proof covers the fence, the length and the receiver.
    let (guard, key, heard) = handed_over(&ours, &theirs, &server, &overheard).await;
    let next = waiter(&ours, &server, key).await;
    let (number, channel) = places(&server, key).remove(0);
    let [_, proof, fence, px, foreign] = &heard[..] else { panic!("{heard:?}") };
    for (fence, px) in [(fence.as_str(), px.as_str()), (far, px), (fence, "30000"), (far, "30000")] {
        publish(&server, &channel, &format!("granted {number} {proof} {fence} {px} {foreign}"));
    }
    tokio::time::sleep(500 * MS).await;
    assert!(guard.is_valid());
    assert!(!next.is_finished(), "a second holder next to the first");
    let last = guard.fencing_token();
    guard.release().await.unwrap();
    let guard = next.await.unwrap();
    assert!(guard.fencing_token() > last);
    assert!(guard.fencing_token().get() < 1 << 62, "{}", guard.fencing_token());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn nothing_that_is_published_is_a_secret() {
    let server = server();
    let overheard = Overheard::on(&server).await;
    let ours = LockManager::connect(&url(&server, "")).await.unwrap();
    let theirs = LockManager::connect(&url(&server, "")).await.unwrap();
    let mut owners = Vec::new();
    for opens in [false, true] {
        let guard = ours.lock("account:7").ttl(LONG).acquire().await.unwrap();
        let waiting = waiter(&theirs, &server, "account:7").await;
        let entries = server.command(&["LRANGE", "lock:{lock:account:7}:~1:queue", "0", "-1"]).texts();
        owners.extend(entries.iter().filter_map(|entry| entry.split(' ').next()).map(str::to_owned));
        let Value::Text(holder) = server.command(&["GET", "lock:account:7"]) else { panic!("it is held") };
        owners.push(holder.rsplit_once(':').expect("owner and fence").0.to_owned());
        if opens {
            // For the server seconds ago: a period has ended during this hold, so its release leaves the lock open.
            let (owner, fence) = holder.rsplit_once(':').unwrap();
            let fence = fence.parse::<u64>().unwrap() - 11_000_000;
            server.command(&["SET", "lock:account:7", &format!("{owner}:{fence}"), "KEEPTTL"]);
        }
        // Given up in the background: with a changed fence no other call recognises the hold as ours.
        drop(guard);
        waiting.await.unwrap().release().await.unwrap();
    }
    for word in ["granted", "free", "contended"] {
        until("it is overheard", || match overheard.messages(word) {
            messages if messages.is_empty() => Err(format!("no `{word}` in {}", overheard.text())),
            _ => Ok(()),
        })
        .await;
    }
    let secrets: Vec<&str> = owners.iter().filter_map(|owner| owner.rsplit(':').next()).collect();
    assert!(secrets.len() >= 4 && secrets.iter().all(|secret| secret.len() == 32), "{secrets:?}");
    let text = overheard.text();
    assert!(secrets.iter().all(|secret| !text.contains(secret)), "an owner token in {text}");
}

#[tokio::test]
async fn a_flood_of_messages_neither_lets_a_waiter_in_nor_keeps_it_out() {
    let server = server();
    let locks = LockManager::connect(&url(&server, "")).await.unwrap();
    let other = LockManager::connect(&url(&server, "")).await.unwrap();
    let guard = other.lock("account:7").acquire().await.unwrap();
    let waiting = waiter(&locks, &server, "account:7").await;
    let (number, channel) = places(&server, "account:7").remove(0);
    let polls = |server: &RedisServer| {
        let Value::Text(stats) = server.command(&["INFO", "commandstats"]) else { panic!("a text") };
        let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap_or_default();
        line.split(['=', ',']).nth(1).and_then(|calls| calls.parse::<u64>().ok()).unwrap_or_default()
    };
    let mut flood = UnixStream::connect(server.socket()).unwrap();
    let mut answers = flood.try_clone().unwrap();
    thread::spawn(move || std::io::copy(&mut answers, &mut std::io::sink()));
    for (word, rest, pause) in [
        ("granted", "00112233445566778899aabbccddeeff00112233 8 1000 0", 50),
        ("free", "0", 10),
        ("free", "86400000", 10),
    ] {
        let message = format!("{word} {number} {rest}");
        let mut messages = Vec::new();
        for _ in 0..100 {
            write!(messages, "*3\r\n").unwrap();
            for part in ["PUBLISH", &channel, &message] {
                write!(messages, "${}\r\n{part}\r\n", part.len()).unwrap();
            }
        }
        let (before, began) = (polls(&server), Instant::now());
        while began.elapsed() < 600 * MS {
            flood.write_all(&messages).unwrap();
            tokio::task::yield_now().await;
        }
        let polls = polls(&server) - before;
        let lasted = u64::try_from(began.elapsed().as_millis()).unwrap();
        println!("{polls} polls in {lasted} ms of `{word}`");
        assert!(polls <= lasted / pause + 5, "{polls} polls in {lasted} ms of `{word}`");
        assert!(polls >= 2, "{polls} polls in {lasted} ms of `{word}`: too few");
        assert!(!waiting.is_finished(), "a second holder next to the first");
    }
    guard.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
}

/// The answer to a command of this user, whose arguments contain no quotes.
fn as_reader(server: &RedisServer, command: &[&str]) -> String {
    let quoted: Vec<_> = command.iter().map(|part| format!("\"{part}\"")).collect();
    let mut stream = UnixStream::connect(server.socket()).unwrap();
    write!(stream, "AUTH reader secret\r\n{}\r\nQUIT\r\n", quoted.join(" ")).unwrap();
    std::io::read_to_string(stream).unwrap()
}

/// The proof of a grant is made of the owner token, which stands in the queue.
#[tokio::test]
async fn who_may_read_a_queue_and_publish_can_let_a_waiter_in_and_who_may_only_read_cannot() {
    let rights = "on >secret ~lock:* allchannels -@all +get +lrange +publish +auth +quit";
    let server =
        RedisServer::start(&["--user", "reader"].into_iter().chain(rights.split(' ')).collect::<Vec<_>>());
    let ours = LockManager::connect(&url(&server, "")).await.unwrap();
    let theirs = LockManager::connect(&url(&server, "")).await.unwrap();
    for (key, may_publish) in [("account:7", true), ("account:8", false)] {
        if !may_publish {
            server.command(&["ACL", "SETUSER", "reader", "resetchannels"]);
        }
        let guard = ours.lock(key).ttl(LONG).acquire().await.unwrap();
        let waiting = waiter(&theirs, &server, key).await;
        let read = as_reader(&server, &["LRANGE", &format!("lock:{{lock:{key}}}:~1:queue"), "0", "-1"]);
        let entry = read.lines().find(|line| line.starts_with("1x:")).unwrap_or_else(|| panic!("{read}"));
        let [owner, _, _, number, channel] = entry.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{entry}")
        };
        let fence = guard.fencing_token().micros() + 1;
        let terms = format!("{fence} 2000 0");
        let proved = format!("{}{terms}", &owner[owner.len() - 32..]);
        let proof = server.command(&["EVAL", "return redis.sha1hex(ARGV[1])", "0", &proved]).text();
        let answer = as_reader(&server, &["PUBLISH", channel, &format!("granted {number} {proof} {terms}")]);
        assert_eq!(answer.contains("NOPERM"), !may_publish, "{answer}");
        tokio::time::sleep(300 * MS).await;
        assert!(guard.is_valid());
        assert_eq!(waiting.is_finished(), may_publish, "as the page says");
        guard.release().await.unwrap();
        drop(waiting.await.unwrap());
    }
}

/// The scripts of the pages "Inspecting a stuck lock".
#[tokio::test]
async fn what_an_operator_looks_at_shows_no_owner_token() {
    let server = server();
    let ours = LockManager::connect(&url(&server, "")).await.unwrap();
    let guard = ours.lock("user:42").ttl(LONG).acquire().await.unwrap();
    let theirs = LockManager::connect(&url(&server, "")).await.unwrap();
    let waiting = waiter(&theirs, &server, "user:42").await;
    let redis = include_str!("../../../lock-runtime/src/backend/stores/redis/docs.md");
    let redlock = include_str!("../../../lock-runtime/src/backend/stores/redlock/docs.md");
    let scripts =
        |page: &'static str| page.split("EVAL \"").skip(1).map(|rest| rest.split_once('"').unwrap().0);
    let [holder, queue] = scripts(redis).collect::<Vec<_>>()[..] else { panic!("two scripts") };
    let pid = format!(",{}@", std::process::id());
    let shown = server.command(&["EVAL", holder, "1", "lock:user:42"]).text();
    assert!(shown.contains(&pid) && shown.ends_with(&guard.fencing_token().micros().to_string()), "{shown}");
    assert!(!has_owner_token(&shown), "{shown}");
    let shown = server.command(&["EVAL", queue, "1", "lock:{lock:user:42}:~1:queue"]).texts().join(" ");
    assert!(shown.contains(&pid) && !has_owner_token(&shown), "{shown}");
    let owner = "00112233445566778899aabbccddeeff";
    server.command(&[
        "SET",
        "lock:other",
        &format!("r1x:{owner}:1700000000000000:1700000000000001:program,7@host"),
    ]);
    let script = scripts(redlock).next().unwrap();
    let shown = server.command(&["EVAL", script, "1", "lock:other"]).text();
    assert!(
        shown.starts_with("r1x:") && shown.ends_with(":1700000000000000:1700000000000001:program,7@host"),
        "{shown}"
    );
    assert!(!has_owner_token(&shown), "{shown}");
    guard.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
}
