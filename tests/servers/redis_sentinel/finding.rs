//! How the primary is found, and what is said where it is not.

use std::{
    thread,
    time::{Duration, Instant},
};

use lock_runtime::{LockErrorKind, LockManager};
use tokio::runtime;

use super::{LONG, connect, free};
use crate::support::{
    redis_sentinel::{NAME, RedisSet, Setup, Translated, url},
    redis_server::RedisServer,
    resp::Value,
    traces,
};

fn ports(set: &RedisSet) -> Vec<u16> {
    set.sentinels.iter().map(|sentinel| sentinel.port).collect()
}

/// How often each Sentinel was asked where the primary is.
fn questions(set: &RedisSet) -> Vec<u64> {
    let calls = |sentinel: &RedisServer| {
        let Value::Text(stats) = sentinel.command(&["INFO", "commandstats"]) else {
            panic!("INFO is a text")
        };
        let prefix = "cmdstat_sentinel|get-master-addr-by-name:calls=";
        let calls = stats.lines().find_map(|line| line.strip_prefix(prefix));
        calls.map_or(0, |calls| calls.split(',').next().unwrap_or_default().parse().expect("a number"))
    };
    set.sentinels.iter().map(|sentinel| calls(&sentinel.server)).collect()
}

#[tokio::test]
async fn a_minority_names_no_primary_and_a_majority_does() {
    let mut set = RedisSet::start(Setup::default());
    let before = connect(&set).await;
    let held = free(&before, "held").await;
    set.sentinels[0].server.kill();
    drop(connect(&set).await);
    set.sentinels[1].server.kill();
    let refused = LockManager::connect(&set.url("", "")).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Backend, "{refused}");
    assert!(refused.is_retryable() && refused.to_string().contains("only 1 of the 3"), "{refused}");
    set.sentinels[2].server.kill();
    let refused = LockManager::connect(&set.url("", "")).await.unwrap_err();
    assert!(refused.is_retryable() && refused.to_string().contains("none of the 3"), "{refused}");
    // What is connected goes on.
    free(&before, "other").await.release().await.unwrap();
    held.release().await.unwrap();
}

#[tokio::test]
async fn what_is_wrong_is_said_at_once_and_without_a_secret() {
    let set =
        RedisSet::start(Setup { sentinels: &["--requirepass", "canary-of-sentinels"], ..Setup::default() });
    let servers = || set.servers.iter().map(|server| server.port);
    let of_sentinels = || ports(&set).into_iter();
    for (url, word) in [
        (url(of_sentinels(), "", "x?sentinel_password=canary-of-sentinels"), "no primary named `mainx`"),
        (url(of_sentinels(), "", ""), "refused the credentials"),
        (url(of_sentinels(), "", "?sentinel_password=canary-wrong"), "`sentinel_password`"),
        (
            url(of_sentinels(), "us:canary-of-servers@", "?sentinel_password=canary-of-sentinels"),
            "user and password",
        ),
        (url(servers(), "", ""), "is no Redis Sentinel"),
        (format!("redis://127.0.0.1:{}", ports(&set)[0]), "credentials"),
    ] {
        let locks = LockManager::connect_lazy(&url).unwrap();
        let began = Instant::now();
        let refused = locks.lock("k").wait(LONG).acquire().await.unwrap_err();
        assert!(!refused.is_retryable() && began.elapsed() < LONG / 2, "{word}: {refused}");
        assert!(refused.to_string().contains(word), "{word}: {refused}");
        assert!(!format!("{refused} {refused:?}").contains("canary"), "{refused:?}");
    }
    let open = RedisSet::start(Setup { replicas: 0, ..Setup::default() });
    let refused = LockManager::connect(&format!("redis://127.0.0.1:{}", ports(&open)[0])).await.unwrap_err();
    assert!(!refused.is_retryable() && refused.to_string().contains("`redis-sentinel://"), "{refused}");
}

#[tokio::test]
async fn the_published_user_of_the_sentinels_may_do_what_is_needed_and_each_right_is() {
    let page = include_str!("../../../lock-runtime/src/backend/stores/redis/sentinel/docs.md");
    let (_, rest) = page.split_once("ACL SETUSER ").expect("the page has the user");
    let user: Vec<_> = rest.split_once("```").expect("it ends with the block").0.split_whitespace().collect();
    let rest = "?sentinel_user=watcher&sentinel_password=password";
    let set = RedisSet::start(Setup { sentinels: &[&["--user"], &user[..]].concat(), ..Setup::default() });
    let locks = LockManager::connect(&set.url("", rest)).await.unwrap();
    let old = set.primary_number();
    assert_ne!(set.fail_over(), old);
    // What was taken on the old primary in between is lost.
    while free(&locks, "k").await.release().await.is_err() {}
    for forbidden in [&["SENTINEL", "FAILOVER", NAME][..], &["SENTINEL", "REMOVE", NAME], &["INFO"]] {
        let answer = set.sentinels[0].server.command(&[&["ACL", "DRYRUN", "watcher"], forbidden].concat());
        assert!(!format!("{answer:?}").contains("OK"), "{forbidden:?} is allowed");
    }
    for missing in ["+sentinel|master", "+sentinel|get-master-addr-by-name"] {
        let mut user = user.clone();
        user.retain(|word| *word != missing);
        let settings = [&["--user"], &user[..]].concat();
        let set = RedisSet::start(Setup { replicas: 0, sentinels: &settings, ..Setup::default() });
        let refused = LockManager::connect(&set.url("", rest)).await.unwrap_err();
        assert!(!refused.is_retryable() && refused.to_string().contains("ACL"), "{missing}: {refused}");
    }
    // Without the announcements, a failover is noticed when the old primary refuses writes.
    for missing in ["+subscribe", "&+switch-master", "+@connection"] {
        let mut user = user.clone();
        user.retain(|word| *word != missing);
        let settings = [&["--user"], &user[..]].concat();
        let set = RedisSet::start(Setup { replicas: 1, sentinels: &settings, ..Setup::default() });
        let locks = LockManager::connect(&set.url("", rest)).await.unwrap();
        free(&locks, "k").await.release().await.unwrap();
        let new = set.fail_over();
        // What was taken on the old primary in between is lost.
        while set.servers[new].server.calls("evalsha") == 0 {
            let _ = free(&locks, "k").await.release().await;
        }
    }
}

#[test]
fn all_runtimes_and_callers_share_one_question() {
    const RUNTIMES: usize = 8;
    let set = RedisSet::start(Setup { replicas: 1, ..Setup::default() });
    let before = questions(&set);
    let locks = LockManager::connect_lazy(&set.url("", "")).unwrap();
    let callers: Vec<_> = (0..RUNTIMES)
        .map(|number| {
            let locks = locks.clone();
            thread::spawn(move || {
                let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let calls = (0..8).map(|call| {
                        let lock = locks.lock(format!("k{number}:{call}")).wait(LONG);
                        tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() })
                    });
                    for call in calls.collect::<Vec<_>>() {
                        call.await.unwrap();
                    }
                    tokio::time::sleep(Duration::from_millis(500)).await;
                });
            })
        })
        .collect();
    for caller in callers {
        caller.join().unwrap();
    }
    for (before, after) in before.iter().zip(questions(&set)) {
        // The first, and one for what was announced before the subscriptions began. A hook of the fixture asks none.
        assert!(after - before <= 3, "{} questions", after - before);
    }
}

#[tokio::test]
async fn a_primary_without_replicas_in_duty_is_warned_of_and_refused_where_that_is_asked_for() {
    crate::watch_traces();
    let set = RedisSet::start(Setup { replicas: 1, ..Setup::default() });
    let locks = connect(&set).await;
    free(&locks, "k").await.release().await.unwrap();
    let address = format!("127.0.0.1:{}", set.servers[0].port);
    let warnings: Vec<_> = traces::warnings_of(&address)
        .into_iter()
        .filter(|line| line.contains("min-replicas-to-write"))
        .collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let refused = LockManager::connect(&set.url("", "?strict=true")).await.unwrap_err();
    assert!(refused.to_string().contains("min-replicas-to-write 1"), "{refused}");
    for server in &set.servers {
        server.server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    }
    LockManager::connect(&set.url("", "?strict=true")).await.unwrap();
}

#[tokio::test]
async fn a_set_is_one_store_by_whatever_sentinels() {
    let set = RedisSet::start(Setup { replicas: 0, ..Setup::default() });
    let ours = LockManager::connect(&set.url("", "?db=3")).await.unwrap();
    let one = url(ports(&set).into_iter().take(1), "", "?db=3");
    let direct = format!("redis://127.0.0.1:{}/3", set.servers[0].port);
    let other = url(ports(&set).into_iter(), "", "?db=4");
    let section = async {
        for same in [one, direct] {
            let locks = LockManager::connect(&same).await.unwrap();
            let error = locks.lock("k").wait(LONG).acquire().await.unwrap_err();
            assert_eq!(error.kind(), LockErrorKind::WouldDeadlock, "{error}");
        }
        let locks = LockManager::connect(&other).await.unwrap();
        free(&locks, "k").await.release().await.unwrap();
    };
    free(&ours, "k").await.run(section).await.unwrap();
}

/// Behind a NAT, the address that the Sentinels name leads nowhere: the error has the address.
#[tokio::test]
async fn an_address_that_cannot_be_reached_is_in_the_error() {
    let set = RedisSet::start(Setup { replicas: 0, ..Setup::default() });
    let nowhere = crate::support::zookeeper_server::free_port();
    let behind: Vec<_> =
        ports(&set).into_iter().map(|port| Translated::start(port, set.servers[0].port, nowhere)).collect();
    let refused = LockManager::connect(&url(behind.iter().map(Translated::port), "", "")).await.unwrap_err();
    let text = refused.to_string();
    assert!(refused.is_retryable() && text.contains(&format!("127.0.0.1:{nowhere}")), "{text}");
}
