//! Which requests take a lock, and by which key.

use axum::{
    Router,
    extract::Path,
    handler::Handler,
    routing::{any, get, post},
};
use http::Method;
use lock_runtime::{LockErrorKind, LockKey, LockManager};
use lock_tower::{KeyRejection, LockLayer};
use tower::{Layer, ServiceExt};

use crate::support::{self, key, send, store};

fn layer(locks: &LockManager, template: &str) -> LockLayer {
    LockLayer::new(locks.clone(), template).expect(template)
}

/// With a failing store, 503 shows that a lock was requested, and any other status that it was not.
async fn rows(app: Router, rows: &[(&str, &str, u16)]) {
    for (method, uri, status) in rows {
        let answer = send(&app, method, uri).await;
        assert_eq!(answer.status, *status, "{method} {uri}: {answer:?}");
    }
}

#[tokio::test]
async fn documented_place_locks_what_reaches_the_handler_and_nothing_else() {
    let (memory, locks) = store();
    memory.set_failing(true);
    let app = Router::new()
        .route("/users/{id}", post(key).route_layer(layer(&locks, "user:<id>")).get(|| async { "read" }))
        .route("/all/{id}", any(key).layer(layer(&locks, "user:<id>")));
    let table = [
        ("POST", "/users/1", 503),
        ("GET", "/users/1", 200),
        ("HEAD", "/users/1", 200),
        ("PUT", "/users/1", 405),
        ("DELETE", "/users/1", 405),
        ("POST", "/users/", 404),
        ("POST", "/nothing", 404),
        ("PATCH", "/all/1", 503),
    ];
    rows(app, &table).await;
}

#[tokio::test]
async fn other_places_do_what_the_page_says() {
    let (memory, locks) = store();
    memory.set_failing(true);
    let lock = || layer(&locks, "user:<id>");
    let route = || Router::new().route("/users/{id}", post(key));

    let method_layer = Router::new().route("/users/{id}", post(key).layer(lock()));
    rows(method_layer, &[("POST", "/users/1", 503), ("PUT", "/users/1", 503), ("POST", "/nothing", 404)])
        .await;

    let route_layer = route().route_layer(lock());
    rows(route_layer, &[("POST", "/users/1", 503), ("PUT", "/users/1", 503), ("POST", "/nothing", 404)])
        .await;

    let whole_router = route().layer(lock());
    rows(whole_router, &[("POST", "/users/1", 503), ("PUT", "/users/1", 503), ("POST", "/nothing", 500)])
        .await;

    let handler = Router::new().route("/users/{id}", post(key.layer(lock())).get(|| async {}));
    rows(handler, &[("POST", "/users/1", 503), ("PUT", "/users/1", 405), ("GET", "/users/1", 200)]).await;

    let around = lock().layer(route());
    let answer = around.oneshot(support::request("POST", "/users/1")).await.expect("infallible");
    assert_eq!(answer.status(), 500);
}

#[tokio::test]
async fn reading_methods_run_without_a_lock_unless_asked_for() {
    let (memory, locks) = store();
    memory.set_failing(true);
    let app =
        |lock| Router::new().route("/{id}", any(|| async {}).layer::<_, std::convert::Infallible>(lock));
    let table = [
        ("GET", "/1", 200),
        ("HEAD", "/1", 200),
        ("OPTIONS", "/1", 200),
        ("TRACE", "/1", 200),
        ("POST", "/1", 503),
        ("PUT", "/1", 503),
        ("PATCH", "/1", 503),
        ("DELETE", "/1", 503),
        ("QUERY", "/1", 503),
    ];
    rows(app(layer(&locks, "<id>")), &table).await;
    let table = [("GET", "/1", 503), ("DELETE", "/1", 503), ("POST", "/1", 200), ("HEAD", "/1", 503)];
    rows(app(layer(&locks, "<id>").methods([Method::GET, Method::DELETE])), &table).await;
    rows(app(layer(&locks, "<id>").methods([])), &[("GET", "/1", 200), ("POST", "/1", 200)]).await;
}

#[tokio::test]
async fn keys_come_from_decoded_parameters() {
    let (memory, locks) = store();
    let lock = |template| layer(&locks, template);
    let inner = Router::new()
        .route("/items/{item}", post(key).route_layer(lock("<org>/<item>")))
        .route("/twice/{org}", post(key).route_layer(lock("<org>")));
    let app = Router::new()
        .route("/users/{id}", post(key).route_layer(lock("user:<id>")))
        .route("/pair/{a}/{b}", post(key).route_layer(lock("pair:<a>:<b>")))
        .route("/files/{*rest}", post(key).route_layer(lock("file:<rest>")))
        .route("/global", post(key).route_layer(lock("nightly report")))
        .route("/wrong/{id}", post(key).route_layer(lock("user:<user>")))
        .nest("/orgs/{org}", inner);
    for (uri, expected) in [
        ("/users/42", Ok("user:42")),
        ("/users/042", Ok("user:042")),
        ("/users/4%32", Ok("user:42")),
        ("/users/a%2Fb%3A%20c", Ok("user:a%2Fb%3A%20c")),
        ("/users/a%252Fb", Ok("user:a%252Fb")),
        ("/users/gr%C3%BCn", Ok("user:grün")),
        ("/users/%00", Ok("user:%00")),
        ("/users/%7Bx%7D", Ok("user:%7Bx%7D")),
        ("/users/~1", Ok("user:%7E1")),
        ("/users/42?id=7", Ok("user:42")),
        ("/users/a+b", Ok("user:a+b")),
        ("/pair/1:2/3", Ok("pair:1%3A2:3")),
        ("/pair/1/2:3", Ok("pair:1:2%3A3")),
        ("/files/a/b%20c/d", Ok("file:a%2Fb%20c%2Fd")),
        ("/files/a%2Fb", Ok("file:a%2Fb")),
        ("/global", Ok("nightly report")),
        ("/orgs/o1/items/i1", Ok("o1/i1")),
        ("/users/%ff", Err(400)),
        ("/wrong/1", Err(500)),
        ("/orgs/o1/twice/o2", Err(500)),
        ("/orgs/o1/twice/o1", Err(500)),
    ] {
        let answer = send(&app, "POST", uri).await;
        let got = if answer.status == 200 { Ok(answer.body.as_str()) } else { Err(answer.status.as_u16()) };
        assert_eq!(got, expected, "{uri}");
        assert!(memory.is_empty(), "{uri}");
    }
    let long = send(&app, "POST", &format!("/users/{}", "x".repeat(508))).await;
    assert_eq!((long.status.as_u16(), long.problem()), (400, "invalid-key"));
    assert_eq!(send(&app, "POST", &format!("/users/{}", "x".repeat(507))).await.status, 200);
}

#[tokio::test]
async fn typed_parameter_cannot_be_written_otherwise_to_dodge_its_lock() {
    let (_memory, locks) = store();
    let app = Router::new()
        .route(
            "/users/{id}",
            post(|Path(id): Path<u64>| async move { id.to_string() })
                .route_layer(layer(&locks, "user:<id:u64>")),
        )
        .route(
            "/offset/{id}",
            post(|Path(id): Path<i64>| async move { id.to_string() })
                .route_layer(layer(&locks, "offset:<id:i64>")),
        )
        .route("/orders/{id}", post(key).route_layer(layer(&locks, "order:<id:uuid>")));

    // Paths that give the handler the same value take the same lock.
    let same = [
        (
            "user:42",
            vec![
                "/users/42",
                "/users/042",
                "/users/+42",
                "/users/%34%32",
                "/users/00000000000000000000000042",
            ],
        ),
        ("offset:-7", vec!["/offset/-7", "/offset/-007"]),
        ("offset:0", vec!["/offset/0", "/offset/-0", "/offset/+0"]),
        (
            "order:3f2504e0-4f89-11d3-9a0c-0305e82c3301",
            vec![
                "/orders/3f2504e0-4f89-11d3-9a0c-0305e82c3301",
                "/orders/3F2504E0-4F89-11D3-9A0C-0305E82C3301",
                "/orders/3f2504e04f8911d39a0c0305e82c3301",
                "/orders/urn:uuid:3f2504e0-4f89-11d3-9a0c-0305e82c3301",
                "/orders/%7B3f2504e0-4f89-11d3-9a0c-0305e82c3301%7D",
            ],
        ),
    ];
    for (name, uris) in same {
        let guard = locks.lock(name).acquire().await.expect("free");
        for uri in &uris {
            let answer = send(&app, "POST", uri).await;
            assert_eq!((answer.status.as_u16(), answer.problem()), (409, "contended"), "{uri}");
        }
        guard.release().await.expect("held");
        for uri in uris {
            assert_eq!(send(&app, "POST", uri).await.status, 200, "{uri}");
        }
    }
    for uri in
        ["/users/x", "/users/-1", "/users/4.0", "/users/18446744073709551616", "/offset/1e3", "/orders/42"]
    {
        let answer = send(&app, "POST", uri).await;
        assert_eq!((answer.status.as_u16(), answer.problem()), (400, "invalid-key"), "{uri}");
        assert!(answer.body.contains("the path parameter `id` is not a"), "{}", answer.body);
    }
}

#[tokio::test]
async fn a_bad_template_is_an_error_when_the_layer_is_built() {
    let (_memory, locks) = store();
    let error = LockLayer::new(locks, "user:{id}").expect_err("braces");
    assert_eq!(error.kind(), LockErrorKind::InvalidKey);
    assert_eq!(
        error.to_string(),
        "lock key template \"user:{id}\": `{id}` in the lock key is not a placeholder: write `<id>`"
    );
}

#[tokio::test]
async fn a_closure_chooses_the_key_or_none() {
    let (memory, locks) = store();
    let by_header = |parts: &mut http::request::Parts| -> Result<Option<LockKey>, KeyRejection> {
        match parts.headers.get("x-tenant").map(|value| value.to_str()) {
            None => Ok(None),
            Some(Ok("")) => Err(KeyRejection::bad_request("no \"tenant\"")),
            Some(Ok("secret")) => Err(KeyRejection::internal("the secret tenant has no lock")),
            Some(Ok(tenant)) => Ok(Some(LockKey::new(tenant)?)),
            Some(Err(_)) => Err(KeyRejection::bad_request("not ASCII")),
        }
    };
    let app = Router::new()
        .route("/locked", post(key))
        .route("/free", post(|| async { "free" }))
        .route_layer(LockLayer::with_key(locks.clone(), by_header));
    let go = async |uri: &str, tenant: Option<&str>| {
        let mut request = support::request("POST", uri);
        if let Some(tenant) = tenant {
            request.headers_mut().insert("x-tenant", tenant.parse().expect("a header"));
        }
        let response = app.clone().oneshot(request).await.expect("infallible");
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.expect("a body");
        (status, String::from_utf8(body.to_vec()).expect("UTF-8"))
    };
    assert_eq!(go("/locked", Some("acme")).await, (200, "acme".into()));
    memory.set_failing(true);
    assert_eq!(go("/free", None).await, (200, "free".into()));
    let (status, body) = go("/free", Some("")).await;
    assert_eq!(status, 400);
    assert!(body.ends_with(r#""status":400,"detail":"no \"tenant\""}"#), "{body}");
    let (status, body) = go("/free", Some("secret")).await;
    assert_eq!(status, 500);
    assert!(!body.contains("secret"), "{body}");
    let (status, body) = go("/free", Some("~mine")).await;
    assert_eq!(status, 400);
    assert!(!body.contains("mine"), "{body}");
}

#[tokio::test]
async fn get_is_not_locked_on_a_shared_path() {
    let (memory, locks) = store();
    memory.set_failing(true);
    let app = Router::new()
        .route("/{id}", get(|| async { "read" }).post(|| async {}).route_layer(layer(&locks, "<id>")));
    rows(app, &[("GET", "/1", 200), ("POST", "/1", 503), ("PUT", "/1", 405)]).await;
}
