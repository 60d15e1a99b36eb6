//! The page for operators.

use std::{
    fmt::Write,
    time::{Duration, Instant},
};

use axum::Router;
use http::StatusCode;
use lock_runtime::{LockGuard, LockManager, backend::Memory};
use lock_tower::inspect_router;

use crate::support::{Answer, send, soon, store, until};

/// Nested as a program would nest it.
fn app(locks: &LockManager) -> Router {
    Router::new().nest("/operators", inspect_router(locks.clone()))
}

async fn held(locks: &LockManager, key: &str, label: &str) -> LockGuard {
    locks.lock(key).label(label).acquire().await.expect("free")
}

async fn get(app: &Router, path: &str) -> Answer {
    soon(path, send(app, "GET", &format!("/operators{path}"))).await
}

async fn page(app: &Router, query: &str) -> String {
    let answer = get(app, query).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
    answer.body
}

async fn json(app: &Router, path: &str) -> String {
    let answer = get(app, path).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    answer.body
}

#[tokio::test]
async fn the_page_shows_holders_and_waiters() {
    let (memory, locks) = store();
    let app = app(&locks);
    assert!(page(&app, "").await.contains("No lock is held."));

    let guard = held(&locks, "user:42", "withdraw").await;
    let _other = held(&locks, "order:7", "ship").await;
    // Another client, which waits in the store.
    let waiter = LockManager::new(memory.clone()).lock("user:42").label("deposit").wait_forever();
    let waiter = tokio::spawn(async move { waiter.acquire().await.map(drop) });
    until("it waits", || memory.waiting("user:42") == 1).await;

    let list = page(&app, "").await;
    let token = guard.fencing_token().get().to_string();
    for text in ["user:42", "withdraw", "order:7", "ship", "deposit", &token, "2 locks held, 1 waiting"] {
        assert!(list.contains(text), "{text} in {list}");
    }
    let places = ["user:42</bdi>", "order:7</bdi>"].map(|key| list.find(key).expect("listed"));
    assert!(places[0] < places[1], "those with waiters come first");
    let list = page(&app, "?prefix=order%3A").await;
    assert!(list.contains("ship") && !list.contains("withdraw"), "{list}");
    let one = page(&app, "?key=user%3A42").await;
    assert!(one.contains("withdraw") && one.contains("deposit") && !one.contains("ship"), "{one}");
    assert!(page(&app, "?key=user%3A1").await.contains("The lock is free."));

    guard.release().await.expect("held");
    waiter.await.expect("no panic").expect("granted");
}

#[tokio::test]
async fn programs_read_it_as_json() {
    let (_memory, locks) = store();
    let app = app(&locks);
    assert_eq!(json(&app, "/locks.json").await, r#"{"complete":true,"locks":[]}"#);
    let guard = held(&locks, "shop/1:a b", "ship").await;
    let one = json(&app, "/locks/shop/1:a%20b").await;
    assert!(one.starts_with(r#"{"key":"shop/1:a b","mode":"exclusive","holders":[{"client":""#), "{one}");
    assert!(one.contains(r#""label":"ship","since":"20"#), "{one}");
    assert!(one.contains(&format!(r#""token":"{}""#, guard.fencing_token().get())), "{one}");
    let all = json(&app, "/locks.json?prefix=shop/").await;
    assert!(all.starts_with(r#"{"complete":true,"locks":[{"key":"shop/1:a b","#), "{all}");
    assert_eq!(json(&app, "/locks.json?prefix=x").await, r#"{"complete":true,"locks":[]}"#);
    let free = r#"{"key":"other","mode":null,"holders":[],"waiters":[]}"#;
    assert_eq!(json(&app, "/locks/other").await, free);
}

/// A browser must not take what a holder states, or what a link says, for a part of the page.
#[tokio::test]
async fn texts_of_others_are_no_markup() {
    const SCRIPT: &str = "<script>alert('x')</script>";
    const QUOTES: &str = "\" onfocus=\"alert(1)\" x='";
    let (memory, locks) = store();
    let app = app(&locks);
    let mut guards = vec![held(&locks, SCRIPT, QUOTES).await, held(&locks, QUOTES, SCRIPT).await];
    let waiter = LockManager::new(memory.clone()).lock(SCRIPT).label("<img src=x>").wait_forever();
    let waiter = tokio::spawn(async move { waiter.acquire().await.map(drop) });
    until("it waits", || memory.waiting(SCRIPT) == 1).await;
    let query = |text: &str| percent(text);
    for path in [
        String::new(),
        format!("?prefix={}", query(SCRIPT)),
        format!("?prefix={}", query(QUOTES)),
        format!("?key={}", query(SCRIPT)),
        format!("?key={}", query(QUOTES)),
        // Not a lock's name, so the page shows the error.
        format!("?key={}", query("~<script>")),
    ] {
        let html = get(&app, &path).await.body;
        for markup in ["<script", "<img", "\" onfocus", "' x", "x='"] {
            assert!(!html.contains(markup), "{path}: {markup} in {html}");
        }
    }
    memory.set_failing(true);
    assert!(!get(&app, &format!("?key={}", query(SCRIPT))).await.body.contains("<script"));
    memory.set_failing(false);
    guards.clear();
    waiter.await.expect("no panic").expect("granted");
}

fn percent(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        write!(encoded, "%{byte:02X}").expect("a text takes everything");
    }
    encoded
}

#[tokio::test]
async fn a_browser_may_neither_run_nor_load_nor_keep_anything() {
    let (_memory, locks) = store();
    let app = app(&locks);
    for path in ["", "/locks.json", "/locks/k", "?key=~", "/locks/~", "/locks/%FF"] {
        let answer = get(&app, path).await;
        let policy = answer.header("content-security-policy").expect(path);
        for part in ["default-src 'none'", "base-uri 'none'", "frame-ancestors 'none'"] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("script-src"), "{path}: {policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
    }
    let html = page(&app, "").await;
    for loaded in ["src=", "http://", "https://", "url(", "@import", "method"] {
        assert!(!html.contains(loaded), "{loaded}");
    }
}

#[tokio::test]
async fn it_may_be_nested_below_a_parameter() {
    let (_memory, locks) = store();
    let app = Router::new().nest("/{tenant}", inspect_router(locks.clone()));
    let _guard = held(&locks, "k", "").await;
    let answer = soon("a lock", send(&app, "GET", "/acme/locks/k")).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    assert!(answer.body.starts_with(r#"{"key":"k","mode":"exclusive""#), "{answer:?}");
}

#[tokio::test]
async fn it_only_reads() {
    let (_memory, locks) = store();
    let app = app(&locks);
    let guard = held(&locks, "k", "").await;
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        for path in ["/operators", "/operators/locks.json", "/operators/locks/k"] {
            assert_eq!(
                send(&app, method, path).await.status,
                StatusCode::METHOD_NOT_ALLOWED,
                "{method} {path}"
            );
        }
    }
    assert!(guard.is_valid());
}

#[tokio::test]
async fn a_list_is_bounded_and_says_so() {
    let (_memory, locks) = store();
    let app = app(&locks);
    let mut guards = Vec::new();
    for number in 0..1_000 {
        guards.push(held(&locks, &format!("user:{number}"), "").await);
    }
    assert!(json(&app, "/locks.json").await.starts_with(r#"{"complete":true"#));
    guards.push(held(&locks, "user:1000", "").await);
    let all = json(&app, "/locks.json").await;
    assert!(all.starts_with(r#"{"complete":false"#));
    assert_eq!(all.matches(r#"{"key":"#).count(), 1_000);
    let html = page(&app, "").await;
    assert!(html.contains("a list has at most 1,000 locks") && html.matches("<tr>").count() == 1_001);
}

#[tokio::test]
async fn failures_are_explained() {
    let (memory, locks) = store();
    let app = app(&locks);
    for path in ["?key=~", "/locks/~", "?key=a%0Ab"] {
        let answer = get(&app, path).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path}");
        assert!(answer.body.contains("reserved") || answer.body.contains("control"), "{answer:?}");
    }
    memory.set_failing(true);
    for path in ["", "?key=k", "/locks.json", "/locks/k"] {
        assert_eq!(get(&app, path).await.status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
    }
    memory.set_failing(false);
    memory.set_delay(Duration::from_secs(60));
    let answer = get(&app, "/locks/k").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.body.starts_with(r#"{"error":""#), "{answer:?}");
}

/// Reloads do not add up to a load on a slow store.
#[tokio::test]
async fn one_list_at_a_time_is_made() {
    let memory = Memory::new();
    let app = app(&LockManager::new(memory.clone()));
    // A list is several questions. Two of them at the same time would take no longer than one.
    memory.set_delay(Duration::from_millis(20));
    // The shortest of three, because a busy machine may delay each of them.
    let mut alone = Duration::MAX;
    for _ in 0..3 {
        let began = Instant::now();
        assert_eq!(get(&app, "/locks.json").await.status, StatusCode::OK);
        alone = alone.min(began.elapsed());
    }
    let began = Instant::now();
    let (one, other) = tokio::join!(get(&app, "/locks.json"), get(&app, "/locks.json"));
    assert_eq!([one.status, other.status], [StatusCode::OK; 2]);
    assert!(began.elapsed() > alone * 3 / 2, "{:?} instead of twice {alone:?}", began.elapsed());
}
