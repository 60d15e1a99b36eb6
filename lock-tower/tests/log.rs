//! Misconfiguration is explained in the log, and not to the client. This is a program of its own: `tracing` caches
//! for each event whether it is wanted, and with a single subscriber it asks only the first thread to reach the
//! event. A concurrent test that came first would switch the event off for both.

#![cfg(feature = "axum")]

use std::{
    fmt::{Debug, Write},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, routing::post};
use lock_tower::LockLayer;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

#[allow(dead_code, reason = "used by the other tests")]
#[path = "it/support.rs"]
mod support;

use support::{DEADLINE, key, send, store};

const MS: Duration = Duration::from_millis(1);

/// Collects the events of the layer.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(Level, String)>>>);

impl Log {
    fn take(&self) -> Vec<(Level, String)> {
        std::mem::take(&mut *self.0.lock().expect("not poisoned"))
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let ours =
            metadata.target().starts_with("lock_tower") || metadata.target() == "lock_runtime::response";
        ours && *metadata.level() <= Level::DEBUG
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
                let _ = write!(self.0, "{field}={value:?} ");
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().expect("not poisoned").push((*event.metadata().level(), text.0));
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn wrong_wiring_is_explained_in_the_log_and_not_to_the_client() {
    let (memory, locks) = store();
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let lock = |template| LockLayer::new(locks.clone(), template).expect("a template").ttl(100 * MS);
    let app = Router::new()
        .route("/wrong/{id}", post(key).route_layer(lock("user:<user>")))
        .route("/right/{id}", post(key).route_layer(lock("user:<id>")))
        .nest("/{id}", Router::new().route("/twice/{id}", post(key).route_layer(lock("user:<id>"))))
        .layer(lock("all:<all>").methods([http::Method::PUT]));
    for (method, uri, level, words) in [
        (
            "POST",
            "/wrong/1",
            Level::ERROR,
            &["POST /wrong/{id}: ", "`<user>`", "it has: `id`", "post(handler).route_layer(lock)"][..],
        ),
        ("PUT", "/nothing", Level::ERROR, &["PUT /nothing: ", "`<all>`", "it has: none", "`Router::layer`"]),
        ("POST", "/1/twice/1", Level::ERROR, &["POST /{id}/twice/{id}: ", "two parameters `id`", "rename"]),
        ("POST", "/right/%ff", Level::DEBUG, &["UTF-8"]),
    ] {
        let answer = send(&app, method, uri).await;
        let written = log.take();
        let [(found, text)] = written.as_slice() else { panic!("{uri}: {written:?}") };
        assert_eq!(*found, level, "{uri}: {text}");
        for word in words {
            assert!(text.contains(word), "{uri}: {text}");
            assert!(level != Level::ERROR || !answer.body.contains(word), "{uri}: {answer:?}");
        }
    }
    memory.set_delay(10 * DEADLINE);
    assert_eq!(send(&app, "POST", "/right/canary").await.status, 503);
    let written = log.take();
    assert!(
        matches!(written.as_slice(), [(Level::WARN, text)] if text.contains("user:canary") && text.contains("set_delay")),
        "{written:?}"
    );
}
