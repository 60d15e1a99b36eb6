//! At any moment at most one client believes that it holds a lock.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use lock_runtime::LockErrorKind;

use super::LONG;
use crate::{
    case::{Case, case},
    fixture::Fixture,
};

pub fn cases() -> Vec<Case> {
    vec![
        case!(the_store_can_do_what_its_module_declares),
        case!(a_held_lock_is_refused_to_everybody_else),
        case!(a_released_lock_is_free_at_once),
        case!(a_dropped_guard_frees_the_lock),
        case!(different_names_do_not_exclude_each_other),
        case!(names_that_look_alike_are_different_locks),
        case!(prefixes_separate_locks),
        case!(one_name_in_the_store_is_one_lock_under_whatever_prefix),
        case!(sections_of_many_clients_never_overlap),
    ]
}

async fn the_store_can_do_what_its_module_declares(fixture: Fixture) {
    let (declared, real) = (fixture.declared(), fixture.client().await.capabilities());
    assert_eq!(declared.is_shared_between_processes(), real.is_shared_between_processes());
    assert_eq!(declared.is_fair(), real.is_fair());
    assert_eq!(declared.tells_of_waiters(), real.tells_of_waiters());
    assert_eq!(declared.shows_locks(), real.shows_locks());
    assert_eq!(declared.revokes(), real.revokes());
    assert_eq!(declared.session_timeout(), real.session_timeout());
    assert_eq!(declared.modes(), real.modes());
    assert_eq!(declared.default_prefix(), real.default_prefix());
}

async fn a_held_lock_is_refused_to_everybody_else(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    let guard = ours.lock(&key).acquire().await.unwrap();
    assert!(guard.is_valid());
    assert_eq!(guard.key(), key.as_str());
    for other in [&ours, &theirs, &ours.clone()] {
        assert!(other.lock(&key).try_acquire().await.unwrap().is_none());
        let error = other.lock(&key).wait(std::time::Duration::ZERO).acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Contended, "{error}");
        assert_eq!(error.key().unwrap(), &key.as_str());
    }
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn a_released_lock_is_free_at_once(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    for _ in 0..20 {
        for client in [&ours, &theirs] {
            let guard = client.lock(fixture.key("k")).try_acquire().await.unwrap().expect("it is free");
            guard.release().await.unwrap();
        }
    }
    assert_eq!(fixture.left(), [""; 0], "a confirmed release leaves nothing");
}

async fn a_dropped_guard_frees_the_lock(fixture: Fixture) {
    let key = fixture.key("k");
    drop(fixture.client().await.lock(&key).acquire().await.unwrap());
    fixture.is_clean_and_free(&key).await;
}

async fn different_names_do_not_exclude_each_other(fixture: Fixture) {
    let locks = fixture.client().await;
    let first = locks.lock(fixture.key("a")).acquire().await.unwrap();
    let second = locks.lock(fixture.key("b")).try_acquire().await.unwrap().expect("another lock");
    first.release().await.unwrap();
    assert!(second.is_valid());
    second.release().await.unwrap();
}

async fn names_that_look_alike_are_different_locks(fixture: Fixture) {
    let locks = fixture.client().await;
    let mut guards = Vec::new();
    // Composed and decomposed, case, blanks, patterns, escapes, separators, and characters that can break a script.
    let names = [
        "é",
        "e\u{301}",
        "A",
        "a",
        "a ",
        " a",
        "a*",
        "a?",
        "[a]",
        "a\\",
        "a'b",
        "a\"b",
        "a/b",
        "a:b",
        "a%3Ab",
        "a}",
        "%",
        "{t}:a",
        "a{t}",
        "a~",
        "0",
        "-1",
        "nil",
        "a\u{a0}",
        "🔒",
        "$(a)",
        "a;b",
        "KEYS[1]",
        "a\u{202e}b",
        "a b",
    ];
    for name in names.iter().filter(|name| !matches!(**name, "a}")) {
        let guard = locks.lock(fixture.key(name)).try_acquire().await;
        guards.push(guard.unwrap().unwrap_or_else(|| panic!("{name:?} is taken for another name")));
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert_eq!(fixture.left(), [""; 0]);
}

async fn prefixes_separate_locks(fixture: Fixture) {
    let locks = fixture.client().await;
    let (one, two) = (locks.clone().with_prefix("one:").unwrap(), locks.clone().with_prefix("two:").unwrap());
    let again = fixture.client().await.with_prefix("one:").unwrap();
    let key = fixture.key("k");
    let first = one.lock(&key).acquire().await.unwrap();
    let second = two.lock(&key).try_acquire().await.unwrap().expect("another prefix, another lock");
    assert!(again.lock(&key).try_acquire().await.unwrap().is_none(), "the same prefix, the same lock");
    assert_eq!(first.key(), second.key(), "a prefix is not shown");
    first.release().await.unwrap();
    second.release().await.unwrap();
    fixture.clean().await;
}

async fn one_name_in_the_store_is_one_lock_under_whatever_prefix(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await.with_prefix("").unwrap());
    let key = fixture.key("k");
    let prefix = fixture.declared().default_prefix();
    let whole = format!("{prefix}{key}");
    let guard = ours.lock(&key).acquire().await.unwrap();
    assert!(theirs.lock(&whole).try_acquire().await.unwrap().is_none(), "the default prefix is `{prefix}`");
    if !prefix.is_empty() {
        assert!(
            theirs.lock(&key).try_acquire().await.unwrap().is_some(),
            "without a prefix it is another name"
        );
    }
    guard.release().await.unwrap();
    let guard = theirs.lock(&whole).acquire().await.unwrap();
    assert!(ours.lock(&key).try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn sections_of_many_clients_never_overlap(fixture: Fixture) {
    const CLIENTS: usize = 3;
    const TASKS: usize = 5;
    const SECTIONS: u64 = 20;
    let key = fixture.key("k");
    let inside = Arc::new(AtomicBool::new(false));
    let (count, last_token) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = Vec::new();
    for _ in 0..CLIENTS {
        let locks = fixture.client().await.wait(LONG);
        for _ in 0..TASKS {
            let lock = locks.lock(&key);
            let (inside, count, last_token) =
                (Arc::clone(&inside), Arc::clone(&count), Arc::clone(&last_token));
            tasks.push(tokio::spawn(async move {
                for _ in 0..SECTIONS {
                    let guard = lock.acquire().await.unwrap();
                    assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
                    let before = last_token.swap(guard.fencing_token().get(), Ordering::SeqCst);
                    assert!(before < guard.fencing_token().get(), "the token did not rise");
                    let seen = count.load(Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    count.store(seen + 1, Ordering::SeqCst);
                    inside.store(false, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(count.load(Ordering::SeqCst), (CLIENTS * TASKS) as u64 * SECTIONS, "an update was lost");
    fixture.clean().await;
}
