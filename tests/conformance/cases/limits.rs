//! Bounds of names, leases, URLs and waiters: each refusal has its kind and its text, without a secret, and leaves no
//! trace in the store.

use std::{error::Error, fmt::Write, future::Future, time::Duration};

use lock_runtime::{Limits, LockError, LockErrorKind, LockManager};

use super::{LONG, ms};
use crate::{
    case::{Case, Need, case},
    fixture::Fixture,
    polling::begun,
    store::CANARY,
    support::until,
};

pub fn cases() -> Vec<Case> {
    vec![
        case!(malformed_names_are_refused),
        case!(the_longest_names_work),
        case!(leases_out_of_bounds_are_refused),
        case!(the_shortest_and_the_longest_lease_work),
        case!(malformed_prefixes_are_refused),
        case!(malformed_urls_are_refused_without_showing_their_secrets),
        case!(stores_that_do_not_exist_are_told_from_those_that_are_missing),
        case!(a_wrong_password_is_refused_without_showing_it).needs(Need::Passwords),
        case!(a_right_password_is_never_shown).needs(Need::Passwords),
        case!(no_character_in_a_password_shows_a_part_of_it).needs(Need::Passwords),
        case!(more_waiters_for_a_lock_than_allowed_are_overloaded),
        case!(more_waiters_than_allowed_are_overloaded),
        case!(more_held_locks_than_allowed_are_overloaded),
        case!(the_default_limit_of_waiters_for_a_lock_is_1024),
    ]
}

/// All that an error shows: its text, its debug form, and those of its causes.
fn shown(error: &LockError) -> String {
    let mut text = format!("{error}\n{error:?}\n{error:#?}");
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, "\n{cause}\n{cause:?}");
        source = cause.source();
    }
    text
}

fn one_line(error: &LockError) {
    let text = error.to_string();
    assert!(!text.is_empty() && !text.contains('\n') && text.len() < 400, "{text:?}");
    assert!(!text.chars().any(char::is_control), "{text:?}");
}

async fn malformed_names_are_refused(fixture: Fixture) {
    let locks = fixture.client().await;
    let long = "x".repeat(513);
    let long_in_bytes = "é".repeat(257);
    let huge = "x".repeat(1 << 20);
    let names = [
        "",
        "~",
        "~x",
        "a:~",
        "a:~1:queue",
        "a\0b",
        "a\nb",
        "a\r\nGET b",
        "\t",
        "\u{7f}",
        "\u{85}",
        "{}",
        "{",
        "}",
        "a{b",
        "a}b{",
        "{a}{b}",
        "{{a}}",
        "{a}}",
        &long,
        &long_in_bytes,
        &huge,
    ];
    for name in names {
        for error in [
            locks.lock(name).acquire().await.unwrap_err(),
            locks.lock(name).try_acquire().await.unwrap_err(),
            locks.lock(name.to_owned()).wait_forever().acquire().await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), LockErrorKind::InvalidKey, "{error}");
            assert!(!error.is_retryable());
            one_line(&error);
        }
    }
    assert_eq!(fixture.left(), [""; 0]);
}

async fn the_longest_names_work(fixture: Fixture) {
    let locks = fixture.client().await;
    for filler in ["x", "é", "🔒"] {
        let mut name = fixture.key("");
        while name.len() + filler.len() <= 512 {
            name += filler;
        }
        let guard = locks.lock(&name).acquire().await.unwrap();
        fixture.is_held(&name).await;
        guard.release().await.unwrap();
        assert_eq!(fixture.left(), [""; 0]);
    }
}

async fn leases_out_of_bounds_are_refused(fixture: Fixture) {
    let locks = fixture.client().await;
    let key = fixture.key("k");
    let day = Duration::from_hours(24);
    let nano = Duration::from_nanos(1);
    for ttl in [
        Duration::ZERO,
        nano,
        ms(1),
        ms(99),
        Duration::from_nanos(99_999_999),
        day + nano,
        Duration::from_secs(1 << 40),
        Duration::MAX,
    ] {
        for lock in [locks.lock(&key).ttl(ttl), locks.clone().ttl(ttl).lock(&key)] {
            for error in [lock.acquire().await.unwrap_err(), lock.try_acquire().await.unwrap_err()] {
                assert_eq!(error.kind(), LockErrorKind::InvalidOptions, "{ttl:?}: {error}");
                assert!(!error.is_retryable());
                one_line(&error);
            }
        }
    }
    let least = fixture.lease(ms(1000));
    for lock in [
        locks.lock(&key).max_hold(ms(1000)).hold_at_least(ms(1001)),
        locks.lock(&key).ttl(least).auto_renew(false).hold_at_least(least + ms(1)),
    ] {
        let error = lock.acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::InvalidOptions, "{error}");
        assert!(error.to_string().contains("hold_at_least"), "{error}");
    }
    let error = locks.lock(&key).max_hold(Duration::ZERO).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::InvalidOptions, "{error}");
    assert_eq!(fixture.left(), [""; 0]);
}

async fn the_shortest_and_the_longest_lease_work(fixture: Fixture) {
    let locks = fixture.client().await;
    let key = fixture.key("k");
    let day = Duration::from_hours(24);
    for ttl in [fixture.lease(ms(100)), day] {
        let guard =
            locks.lock(&key).ttl(ttl).wait(Duration::MAX).max_hold(Duration::MAX).acquire().await.unwrap();
        assert!(
            guard.remaining() <= ttl && guard.remaining() > fixture.lease(ttl) / 4,
            "{:?} of {ttl:?}",
            guard.remaining()
        );
        guard.release().await.unwrap();
        fixture.clean().await;
    }
}

async fn malformed_prefixes_are_refused(fixture: Fixture) {
    let locks = fixture.client().await;
    for prefix in ["~", "a~", "a\nb", "{", "{}", "{a}{b}", &"x".repeat(129)] {
        let error = locks.clone().with_prefix(prefix).unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::InvalidOptions, "{error}");
        one_line(&error);
    }
    for prefix in ["", "app:", "{app}:", &"x".repeat(128)] {
        let locks = locks.clone().with_prefix(prefix).unwrap();
        locks.lock(fixture.key("k")).acquire().await.unwrap().release().await.unwrap();
    }
    fixture.clean().await;
}

async fn malformed_urls_are_refused_without_showing_their_secrets(fixture: Fixture) {
    for (url, kind) in fixture.bad_urls() {
        let error =
            tokio::time::timeout(LONG, fixture.connect(url.clone())).await.expect("an answer").unwrap_err();
        assert_eq!(error.kind(), kind, "{url}: {error}");
        assert!(!shown(&error).contains(CANARY), "{url}: {}", shown(&error));
        one_line(&error);
    }
}

async fn stores_that_do_not_exist_are_told_from_those_that_are_missing(fixture: Fixture) {
    drop(fixture);
    for (url, kind) in [
        ("", LockErrorKind::InvalidOptions),
        ("memory", LockErrorKind::InvalidOptions),
        (":", LockErrorKind::InvalidOptions),
        ("localhost:6379", LockErrorKind::InvalidOptions),
        ("http://user:canary-of-a-password@host", LockErrorKind::InvalidOptions),
        ("canary-of-a-password", LockErrorKind::InvalidOptions),
        ("\u{1b}[31m:x", LockErrorKind::InvalidOptions),
        ("mysql://user:canary-of-a-password@host", LockErrorKind::Unsupported),
    ] {
        let error = LockManager::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{url}: {error}");
        assert!(!error.is_retryable());
        assert!(!shown(&error).contains(CANARY), "{}", shown(&error));
        one_line(&error);
    }
}

async fn a_wrong_password_is_refused_without_showing_it(fixture: Fixture) {
    let wrong = "another-canary";
    let url = fixture.url_with_password(wrong);
    let error = fixture.connect(url).await.unwrap_err();
    // Asking again does not help, but the operator of the server can.
    assert!(
        matches!(error.kind(), LockErrorKind::Backend | LockErrorKind::InvalidOptions),
        "{:?}: {error}",
        error.kind()
    );
    let shown = shown(&error);
    assert!(!shown.contains(wrong) && !shown.contains(CANARY), "{shown}");
    one_line(&error);
}

async fn a_right_password_is_never_shown(fixture: Fixture) {
    // A busy machine may need longer than one timeout to connect.
    let locks = fixture.store().connect_lazy(&fixture.url_with_password(CANARY)).unwrap();
    let lock = locks.lock(fixture.key("k")).wait(LONG);
    let guard = lock.acquire().await.unwrap();
    let busy = lock.clone().wait(Duration::ZERO).acquire().await.unwrap_err();
    let all = format!("{locks:?} {locks:#?} {lock:?} {guard:?} {:?} {}", guard.held(), shown(&busy));
    assert!(!all.contains(CANARY), "{all}");
    guard.release().await.unwrap();
}

async fn no_character_in_a_password_shows_a_part_of_it(fixture: Fixture) {
    // Each is refused by the server, or because the URL cannot be meant; a number before it looks like a port.
    for character in "#?/@:%&=+[]\\ ;,!$'()*<>\"|^`{}~".chars() {
        for written in [character.to_string(), format!("%{:02X}", u32::from(character))] {
            let url = fixture.url_with_password(&format!("12{written}{CANARY}"));
            let error = fixture.connect(url.clone()).await.expect_err(&url);
            assert!(!shown(&error).contains(CANARY), "{url}: {}", shown(&error));
            one_line(&error);
            let lazily = fixture.store().connect_lazy(&url).map(|locks| format!("{locks:?}"));
            assert!(!format!("{lazily:?}").contains(CANARY), "{url}: {lazily:?}");
        }
    }
}

fn limits(change: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = Limits::default();
    change(&mut limits);
    limits
}

fn overloaded(error: &LockError) {
    assert_eq!(error.kind(), LockErrorKind::Overloaded, "{error}");
    assert!(error.is_retryable());
    one_line(error);
}

async fn more_waiters_for_a_lock_than_allowed_are_overloaded(fixture: Fixture) {
    let locks = fixture.client().await.with_limits(limits(|limits| limits.waiters_per_key = 3)).wait(LONG);
    let key = fixture.key("k");
    let guard = locks.lock(&key).acquire().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..3 {
        let lock = locks.lock(&key);
        waiters.push(begun(async move { lock.acquire().await.unwrap().release().await }).await);
    }
    overloaded(&locks.lock(&key).acquire().await.unwrap_err());
    // Another lock is another queue, and an attempt does not wait.
    locks.lock(fixture.key("other")).acquire().await.unwrap().release().await.unwrap();
    assert!(locks.lock(&key).try_acquire().await.unwrap().is_none());
    waiters.pop().unwrap().abort();
    let lock = locks.lock(&key);
    until("there is room for one", || {
        let lock = lock.clone();
        let mut waiter = Box::pin(async move { lock.acquire().await });
        let polled = waiter.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
        if polled.is_pending() { Ok(()) } else { Err(polled.map_ok(drop)) }
    })
    .await;
    guard.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
    fixture.clean().await;
}

async fn more_waiters_than_allowed_are_overloaded(fixture: Fixture) {
    let locks = fixture.client().await.with_limits(limits(|limits| limits.waiters = 2)).wait(LONG);
    let (a, b) = (fixture.key("a"), fixture.key("b"));
    let guards = [locks.lock(&a).acquire().await.unwrap(), locks.lock(&b).acquire().await.unwrap()];
    let mut waiters = Vec::new();
    for key in [&a, &b] {
        let lock = locks.lock(key);
        waiters.push(begun(async move { lock.acquire().await.unwrap().release().await }).await);
    }
    for key in [&a, &b] {
        overloaded(&locks.lock(key).acquire().await.unwrap_err());
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
    fixture.clean().await;
}

async fn more_held_locks_than_allowed_are_overloaded(fixture: Fixture) {
    let locks = fixture.client().await.with_limits(limits(|limits| limits.held = 2));
    let first = locks.lock(fixture.key("a")).acquire().await.unwrap();
    let second = locks.lock(fixture.key("b")).acquire().await.unwrap();
    for error in [
        locks.lock(fixture.key("c")).acquire().await.unwrap_err(),
        locks.lock(fixture.key("c")).try_acquire().await.unwrap_err(),
    ] {
        overloaded(&error);
    }
    first.release().await.unwrap();
    let third = locks.lock(fixture.key("c")).acquire().await.unwrap();
    second.release().await.unwrap();
    third.release().await.unwrap();
    fixture.clean().await;
}

async fn the_default_limit_of_waiters_for_a_lock_is_1024(fixture: Fixture) {
    let locks = fixture.client().await.wait(LONG);
    let key = fixture.key("k");
    let guard = locks.lock(&key).acquire().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..1024 {
        let lock = locks.lock(&key);
        waiters.push(begun(async move { lock.acquire().await.unwrap().release().await }).await);
    }
    overloaded(&locks.lock(&key).acquire().await.unwrap_err());
    guard.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
    fixture.clean().await;
}
