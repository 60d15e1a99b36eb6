//! The permissions (ACL) that the user of a store needs, and the error when one is missing.

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockErrorKind, LockManager};

use super::{LONG, url};
use crate::support::{redis_server::RedisServer, resp::Value, until};

/// The user of the documentation's `ACL SETUSER`, word for word.
pub(super) fn published_user() -> Vec<&'static str> {
    let page = include_str!("../../../lock-runtime/src/backend/stores/redis/docs.md");
    let (_, rest) = page.split_once("ACL SETUSER ").expect("the page has the user");
    rest.split_once("```").expect("it ends with the block").0.split_whitespace().collect()
}

#[tokio::test]
async fn the_published_user_can_do_what_locks_need_and_nothing_else() {
    let server = RedisServer::start(&[&["--user"], &published_user()[..]].concat());
    let url = url(&server, "?user=locks&pass=password");
    let (ours, theirs) =
        (LockManager::connect(&url).await.unwrap(), LockManager::connect(&url).await.unwrap());
    // Held past its first lease, wanted by another client, handed over, given up.
    let lock = ours.lock("user:42").ttl(Duration::from_millis(1500));
    let guard = lock.acquire().await.unwrap();
    let waiter = {
        let lock = theirs.lock("user:42").wait(LONG);
        tokio::spawn(async move { lock.acquire().await })
    };
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(guard.is_valid());
    assert!(theirs.lock("user:42").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap().unwrap();
    let given_up = ours.lock("user:42").wait(Duration::from_millis(200)).acquire().await.unwrap_err();
    assert_eq!(given_up.kind(), LockErrorKind::Timeout);
    guard.release().await.unwrap();
    // Many concurrent calls go in groups.
    let many: Vec<_> = (0..50)
        .map(|number| {
            let lock = ours.lock(format!("user:{number}")).wait(LONG);
            tokio::spawn(async move { lock.acquire().await.unwrap().release().await })
        })
        .collect();
    for one in many {
        one.await.unwrap().unwrap();
    }
    ours.shutdown().await;
    theirs.shutdown().await;
    until("nothing but the fence is left", || match server.command(&["KEYS", "*"]) {
        Value::Array(keys) if keys.len() == 1 => Ok(()),
        keys => Err(keys),
    })
    .await;
    for forbidden in [
        &["SET", "user:42", "x"][..],
        &["GET", "other:1"],
        &["FLUSHALL"],
        &["KEYS", "*"],
        &["CONFIG", "GET", "*"],
        &["PUBLISH", "news", "x"],
    ] {
        let answer = server.command(&[&["ACL", "DRYRUN", "locks"], forbidden].concat());
        assert!(!format!("{answer:?}").contains("OK"), "{forbidden:?} is allowed");
    }
}

#[tokio::test]
async fn a_user_that_may_not_do_what_locks_need_is_told_so_before_anything_is_written() {
    for (right, without, named) in [
        ("+publish", "-publish", "PUBLISH"),
        ("&lock:*", "&other:*", "the channels under the prefix `lock:`"),
        ("+rpush", "-rpush", "RPUSH"),
    ] {
        let mut user = published_user();
        *user.iter_mut().find(|word| **word == right).expect(right) = without;
        let server = RedisServer::start(&[&["--user"], &user[..]].concat());
        let locks = LockManager::connect(&url(&server, "?user=locks&pass=password")).await.unwrap();
        for wait in [Duration::ZERO, LONG] {
            let began = Instant::now();
            let refused = locks.lock("user:42").wait(wait).acquire().await.expect_err(without);
            assert_eq!(refused.kind(), LockErrorKind::Backend);
            assert!(!refused.is_retryable() && began.elapsed() < LONG / 4, "it stays refused: {refused}");
            let text = refused.to_string();
            assert!(text.contains("ACL") && !text.contains("password"), "{text}");
            assert!(text.contains(named), "{text}");
        }
        assert!(matches!(server.command(&["KEYS", "*"]), Value::Array(keys) if keys.is_empty()));
    }
}

/// The words of the published user that a first acquisition needs.
pub fn needed_at_once(user: &[&'static str]) -> Vec<&'static str> {
    let is_needed = |word: &&str| word.starts_with(['+', '~', '&']) && !NEEDED_LATER.contains(word);
    user.iter().copied().filter(is_needed).collect()
}

/// Those that a first acquisition does not need.
const NEEDED_LATER: [&str; 3] = ["+@connection", "+info", "+eval"];

/// Checks that an error says what is wrong with the user from whom this word is missing.
pub fn names_the_right(error: &LockError, missing: &str) {
    let (text, command) = (error.to_string(), &missing[1..]);
    // As a word of the ACL, in our words, or in the server's own, which does not name a key.
    let named = match missing.split_at(1).0 {
        "~" => vec!["one of the keys".to_owned()],
        _ => vec![missing.to_owned(), command.to_uppercase(), format!("'{command}'")],
    };
    assert!(!error.is_retryable(), "{missing}: {text}");
    let is_named = named.iter().any(|name| text.contains(name));
    assert!(text.contains("ACL") && is_named && !text.contains("password"), "{missing}: {text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_permission_that_is_missing_is_named() {
    for missing in needed_at_once(&published_user()) {
        let mut user = published_user();
        user.retain(|word| *word != missing);
        let server = RedisServer::start(&[&["--user"], &user[..]].concat());
        let began = Instant::now();
        let locks = LockManager::connect_lazy(&url(&server, "?user=locks&pass=password")).unwrap();
        let error = locks.lock("user:42").wait(LONG).acquire().await.expect_err(missing);
        assert!(began.elapsed() < LONG / 4, "{missing}: {error}");
        names_the_right(&error, missing);
        assert!(matches!(server.command(&["KEYS", "*"]), Value::Array(keys) if keys.is_empty()), "{missing}");
    }
}

#[tokio::test]
async fn a_permission_that_no_first_acquisition_needs_is_named_when_it_is_needed() {
    for missing in NEEDED_LATER {
        let mut user = published_user();
        user.retain(|word| *word != missing);
        let server = RedisServer::start(&[&["--user"], &user[..]].concat());
        let connect = |rest| {
            LockManager::connect_lazy(&url(&server, &format!("?user=locks&pass=password{rest}"))).unwrap()
        };
        let locks = connect("");
        locks.lock("user:42").acquire().await.unwrap().release().await.unwrap();
        let error = match missing {
            "+@connection" => locks.ping().await.unwrap_err(),
            "+info" => connect("&strict=true").lock("user:42").acquire().await.unwrap_err(),
            _ => {
                server.command(&["SCRIPT", "FLUSH"]);
                locks.lock("user:42").acquire().await.unwrap_err()
            }
        };
        names_the_right(&error, if missing == "+@connection" { "+ping" } else { missing });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_forbidden_while_it_is_held_ends_no_other_lease() {
    let names = |without: usize| -> Vec<String> {
        let allowed = (0..20).filter(move |number| *number != without);
        allowed
            .flat_map(|number| [format!("~lock:a{number}"), format!("~lock:{{lock:a{number}}}:*")])
            .collect()
    };
    let user = narrow_user("narrow", &["~lock:a*", "~lock:{lock:a*", "~lock:~1:*", "&lock:~1:*"]);
    let server = RedisServer::start(&user.iter().map(String::as_str).collect::<Vec<_>>());
    let locks = LockManager::connect(&url(&server, "?user=narrow&pass=password")).await.unwrap();
    let mut guards = Vec::new();
    for number in 0..20 {
        guards.push(
            locks.lock(format!("a{number}")).ttl(Duration::from_millis(1_500)).acquire().await.unwrap(),
        );
    }
    let rules = ["ACL", "SETUSER", "narrow", "resetkeys", "~lock:~1:*"].map(str::to_owned);
    let rules: Vec<String> = rules.into_iter().chain(names(7)).collect();
    server.command(&rules.iter().map(String::as_str).collect::<Vec<_>>());
    tokio::time::sleep(Duration::from_secs(3)).await;
    for (number, guard) in guards.iter().enumerate() {
        assert_eq!(guard.is_valid(), number != 7, "{number}");
    }
}

/// A user with these names and channels, and with the commands that locks need.
fn narrow_user(name: &str, allowed: &[&str]) -> Vec<String> {
    let mut user = vec!["--user", name, "on", ">password"];
    user.extend(allowed);
    user.extend(published_user().into_iter().filter(|word| word.starts_with(['+', '-'])));
    user.into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_name_that_is_forbidden_fails_no_other_of_its_round_trip() {
    let allowed = ["~lock:a*", "~lock:{lock:a*", "~lock:~1:*", "&lock:~1:*"];
    let user = narrow_user("narrow", &allowed);
    let server = RedisServer::start(&user.iter().map(String::as_str).collect::<Vec<_>>());
    let locks = LockManager::connect(&url(&server, "?user=narrow&pass=password")).await.unwrap();
    for round in 0..10 {
        let calls: Vec<_> = (0..20)
            .map(|number| {
                let name = if number == 10 { "b".to_owned() } else { format!("a{round}-{number}") };
                let lock = locks.lock(name);
                tokio::spawn(async move { lock.try_acquire().await })
            })
            .collect();
        for (number, tried) in calls.into_iter().enumerate() {
            let tried = tried.await.unwrap();
            if number == 10 {
                assert_eq!(tried.unwrap_err().kind(), LockErrorKind::Backend);
            } else {
                assert!(tried.unwrap().is_some(), "{number} of round {round}");
            }
        }
    }
}

#[tokio::test]
async fn a_right_that_is_taken_away_under_one_prefix_ends_no_lease_under_another() {
    let user = narrow_user("two", &["~a:*", "~b:*", "&a:*", "&b:*"]);
    let server = RedisServer::start(&user.iter().map(String::as_str).collect::<Vec<_>>());
    let locks = LockManager::connect(&url(&server, "?user=two&pass=password")).await.unwrap();
    let ttl = Duration::from_secs(2);
    let (a, b) = (locks.clone().with_prefix("a:").unwrap(), locks.with_prefix("b:").unwrap());
    let kept = a.lock("x").ttl(ttl).acquire().await.unwrap();
    let lost = b.lock("x").ttl(ttl).acquire().await.unwrap();
    server.command(&["ACL", "SETUSER", "two", "resetkeys", "~a:*"]);
    tokio::time::sleep(2 * ttl).await;
    assert!(kept.is_valid());
    assert!(!lost.is_valid());
}

#[tokio::test]
async fn a_user_of_no_more_names_than_locks_need_is_enough() {
    let allowed =
        ["~lock:user:*", "~lock:{lock:user:*", "~lock:~1:fence", "~lock:~1:queues", "&lock:~1:inbox:*"];
    let user = narrow_user("least", &allowed);
    let server = RedisServer::start(&user.iter().map(String::as_str).collect::<Vec<_>>());
    let locks = LockManager::connect(&url(&server, "?user=least&pass=password")).await.unwrap();
    let guard = locks.lock("user:42").acquire().await.unwrap();
    let waiter = {
        let other = LockManager::connect(&url(&server, "?user=least&pass=password")).await.unwrap();
        tokio::spawn(async move { other.lock("user:42").wait(LONG).acquire().await.unwrap().release().await })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_refused_renewal_is_the_reason_of_the_loss() {
    let server = RedisServer::start(&[&["--user"], &published_user()[..]].concat());
    let locks = LockManager::connect(&url(&server, "?user=locks&pass=password")).await.unwrap();
    let guard = locks.lock("k").ttl(Duration::from_millis(1500)).acquire().await.unwrap();
    server.command(&["ACL", "SETUSER", "locks", "-evalsha", "-eval"]);
    let error = guard.run(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Lost);
    let text = error.to_string();
    assert!(text.contains("its renewals failed: ") && text.contains("permi"), "{text}");
}
