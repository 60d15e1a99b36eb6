//! A tower layer for axum, tonic and any other service built on the `http` crate: it runs each request under a
//! distributed lock whose key is taken from the request.
//!
//! With the user's ID in the key, for example, two requests for the same user do not run at the same time, no matter
//! how many machines serve them. Requests for different users do not wait for each other.
//!
//! ```
//! use axum::{Router, extract::Path, routing::post};
//! use lock_runtime::LockManager;
//! use lock_tower::{HeldLock, LockLayer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = LockManager::connect("memory:").await?;
//! let lock = LockLayer::new(locks, "user:<id:u64>")?;
//! let app: Router = Router::new().route("/users/{id}/withdraw", post(withdraw).route_layer(lock));
//!
//! async fn withdraw(Path(id): Path<u64>, lock: HeldLock) -> String {
//!     // Send the token with each write, so that late writes from an earlier holder can be refused.
//!     format!("user {id} under token {}", lock.fencing_token())
//! }
//! # let _ = app;
//! # Ok(())
//! # }
//! ```
//!
//! # Which requests are locked
//!
//! **Read-only requests (`GET`, `HEAD`, `OPTIONS` and `TRACE`) run without a lock.** To lock them too, use
//! [`LockLayer::methods`] to list every method whose requests are to be locked; the list replaces the default.
//! Server-sent events or a WebSocket, for example, are requested with `GET`, so they run without a lock unless you list
//! `GET`. The handshake of a WebSocket over HTTP/2, a `CONNECT` request with a `:protocol`, counts as `GET` too.
//!
//! A browser's `EventSource` gives up for good after any response but 200. If its stream is locked, answer contention
//! with a stream that ends at once and tells it when to try again:
//!
//! ```
//! use http::{HeaderValue, Method, Response, header::CONTENT_TYPE};
//! use lock_runtime::{LockError, LockErrorKind, LockManager};
//! use lock_tower::LockLayer;
//!
//! fn one_stream_per_user(locks: LockManager) -> Result<LockLayer, LockError> {
//!     let lock = LockLayer::new(locks, "news:<header.x-user>")?.methods([Method::GET]);
//!     Ok(lock.on_rejection(|rejection| match rejection.kind() {
//!         LockErrorKind::Contended | LockErrorKind::Timeout => {
//!             let mut response = Response::new("retry: 1000\n\n".into());
//!             let event_stream = HeaderValue::from_static("text/event-stream");
//!             response.headers_mut().insert(CONTENT_TYPE, event_stream);
//!             response
//!         }
//!         _ => rejection.response(),
//!     }))
//! }
//! ```
//!
//! # Where to put the layer
//!
//! In axum, add the layer to the route's method router: `post(handler).route_layer(lock)`. It then runs only for
//! requests that reach the handler. In other places, it also runs for requests that do not reach the handler:
//!
//! | place | other requests for which the layer runs |
//! |---|---|
//! | `post(handler).route_layer(lock)` | none |
//! | `post(handler).layer(lock)`, `Router::route_layer` | requests with a method that the route does not accept, which then get 405 |
//! | `Router::layer` | requests with a method that the route does not accept (405) or an unknown path. If the template has a route parameter, an unknown path gets 500 instead of 404, because no route has provided the parameter |
//! | around the `Router` | all requests. If the template has a route parameter, each of them gets 500, because the layer runs before routing |
//!
//! `any(handler)` has no routes for single methods, so its `route_layer` panics: use `any(handler).layer(lock)`. A
//! layer that is added to a `Router` does not cover routes that are added to the `Router` afterwards.
//!
//! In tonic, put the layer around the whole server with `Server::builder().layer(lock)`, or around one service with
//! `lock.named_layer(service)`, a method of `tonic::service::LayerExt`. Around the whole server, a key from metadata
//! refuses every request without it, health checks (`grpc.health.v1.Health`) included. With
//! [`missing_key(MissingKey::Skip)`](LockLayer::missing_key) they run, but so does any other request that leaves the
//! metadata out; a lock around one service does not concern them.
//!
//! **Authorise before locking.** Any client whose requests reach the lock can keep other clients from getting it, so
//! put authorisation outside the lock: in axum, add the authorisation layer after this layer.
//!
//! **Put timeouts and panic handlers inside the lock.** Some layers, such as `TimeoutLayer` and `CatchPanicLayer`, can
//! cut off a running handler and send their own response. In axum, add such layers before this layer. If one of them is
//! outside the lock, it drops the request together with its lock. The lock is then released in the background, perhaps
//! only after the client has received the response and sent its next request.
//!
//! **Put layers that commit or save inside the lock.** A layer that commits a transaction, or saves a session, does so
//! after the handler has returned. If it is outside the lock, it does so after the release, and the next request works
//! on what was there before. In axum, add such layers before this layer. If the key comes from what such a layer has
//! loaded, it has to be outside the lock: then commit or save in the handler (with tower-sessions, by
//! `session.save().await`), or take the key from the request itself, as with `<header.cookie>`.
//!
//! **Mind the order of layers.** In axum, the layer added last is the outermost. Within a `ServiceBuilder`, it is the
//! layer added first.
//!
//! **Mind the response body.** The lock layer changes its type to [`ResponseBody`]. Layers that accept any body type
//! can be combined with the lock layer directly. Among these are tower-http's `CorsLayer`, `TimeoutLayer` and
//! `ValidateRequestHeaderLayer::bearer`: for their own responses, they only need a body type that implements
//! `Default`, as `ResponseBody` does. Some other layers require the service inside them to return axum's `Response`. So
//! does tower-http's `AsyncRequireAuthorizationLayer` if its `AsyncAuthorizeRequest` uses axum's response body. Combine
//! such a layer and the lock in one `ServiceBuilder`, with axum's `ResponseAxumBodyLayer` between the two.
//!
//! **An optional lock** is `axum_extra::middleware::option_layer(lock)` with an `Option<LockLayer>`. In tower's
//! `option_layer`, both services must return the same response, so the lock has to return axum's there:
//!
//! ```
//! # #[cfg(feature = "axum")]
//! # fn app(lock: Option<lock_tower::LockLayer>) -> axum::Router {
//! use axum::{Router, middleware::ResponseAxumBodyLayer, routing::post};
//! use tower::util::option_layer;
//!
//! let lock = option_layer(lock.map(|lock| (ResponseAxumBodyLayer, lock)));
//! Router::new().route("/users/{id}/withdraw", post(withdraw).route_layer(lock))
//! # }
//! # async fn withdraw() {}
//! ```
//!
//! Put the CORS layer on the `Router`: a preflight is an `OPTIONS` request, which a `post` route does not accept.
//!
//! # Keys
//!
//! The key of a request is built from a template, that is, text with placeholders, such as
//! `order:<header.x-tenant>/<id:u64>`. Route and query parameters are URL-decoded first. Characters in a value that
//! could be mistaken for the template's own text are then percent-encoded, so values with different text never produce
//! the same key.
//!
//! | placeholder | value |
//! |---|---|
//! | `<id>` | the route parameter of this name (feature `axum`) |
//! | `<header.x-tenant>` | a header; in gRPC, metadata. Several `cookie` fields, as browsers send them over HTTP/2, are one, joined by `; ` (RFC 9113 §8.2.3) |
//! | `<query.name>` | a query parameter, decoded as `application/x-www-form-urlencoded` |
//! | `<rpc.service>`, `<rpc.method>` | `package.Service` and `Method` in the path of a gRPC request |
//!
//! A header or query parameter that is missing or given twice is a client error (400), except `cookie`. If a route parameter is
//! missing, or occurs twice because nested routers use the same name, the layer is misconfigured (500; the log says how
//! to fix it). With the option [`missing_key`](LockLayer::missing_key), requests that lack a value can run without a
//! lock.
//!
//! If the handler parses the value, give its type in the placeholder, as in `<id:u64>`. To a handler that takes a
//! `u64`, `/users/42`, `/users/042` and `/users/+42` are the same user, but as strings they differ. With `<id>`, a
//! client could therefore choose among several locks for the same user; with `<id:u64>`, it cannot. The supported types
//! are `u64`, `i64` and `uuid`. For smaller integers, use `u64` or `i64`. A value that cannot be parsed as the given
//! type is a client error (400).
//!
//! Text has no such type: `/users/alice`, `/users/Alice` and `/users/alice%20` are three locks, as are `café` with one
//! character for `é` and with two (Unicode's NFC and NFD), or an `Idempotency-Key` with and without quotes. If the
//! handler takes them for the same, bring them into one form in a closure:
//!
//! ```
//! use lock_runtime::{LockManager, lock_key};
//! use lock_tower::{KeyRejection, LockLayer};
//!
//! fn one_per_user(locks: LockManager) -> LockLayer {
//!     LockLayer::with_key_fn(locks, |parts| {
//!         let user = parts.headers.get("x-user").and_then(|value| value.to_str().ok());
//!         let user = user.ok_or_else(|| KeyRejection::bad_request("no `x-user`"))?.trim().to_lowercase();
//!         Ok(Some(lock_key!("user:<user>")?))
//!     })
//! }
//! ```
//!
//! To take the key from elsewhere, such as the caller's session, use a closure: see [`LockLayer::with_key_fn`]. The
//! fields of a gRPC message are not yet known when the layer runs. To use them in a key, put lock-runtime's
//! `#[distributed_lock]` on a method that takes the message.
//!
//! # While the lock is held
//!
//! The lock is held while the inner service handles the request. What happens next depends on the response:
//!
//! * A response of known size (text, JSON, an empty body) is taken to be complete when the inner service returns it.
//!   The lock is released, and only then is the response sent, so that a client's next request does not find the lock
//!   still held by its previous one. A proxied body with a `content-length` also has a known size, so the lock is
//!   released before the body has been forwarded.
//! * A response that is produced while it is being sent (a stream, server-sent events) keeps the lock until it ends.
//!   Frames are passed on as they arrive; only the end of the stream (the last frame, the trailers or the end-of-stream
//!   signal) is sent after the release. Every gRPC response that contains a message is such a stream, and ends with its
//!   trailers.
//! * An upgraded connection, such as a WebSocket, is not covered by the lock.
//!
//! To change when the lock is released, use [`hold_until`](LockLayer::hold_until).
//!
//! Because the layer sends the end of a stream (in gRPC, the trailers) only after the release, the end is usually sent
//! as a separate small packet. Nagle's algorithm can delay such a packet by about 40 ms unless the server sets
//! `TCP_NODELAY`. Tonic's `serve` sets it. With `axum::serve` and with tonic's `serve_with_incoming`, set it yourself:
//!
//! * axum: `axum::serve(listener.tap_io(|stream| drop(stream.set_nodelay(true))), app)`, with
//!   `axum::serve::ListenerExt`;
//! * tonic: `serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)))`.
//!
//! ## If the lock is lost
//!
//! If the lock is lost before the response is sent, the client gets 500 (in gRPC, `ABORTED`), and the inner future is
//! dropped if it is still running. The client gets the same response if the handler has already finished and the loss
//! is discovered only when the lock is released. (A function with `#[distributed_lock]` returns its result in this
//! case.) A response that is already being streamed is aborted with an error.
//!
//! In all these cases, part of the work may have been done, and tasks that the handler spawned continue. With
//! [`on_lost`](LockLayer::on_lost), you can let the work finish first, but the client still gets 500 or an aborted
//! stream. The one exception: if the inner service's future resolves to `Err`, that error is passed on unchanged. The
//! [`HeldLock`] in the request's extensions (with several locks, a [`HeldLocks`]) provides the fencing token, and
//! tells you how much longer the lock can be relied on.
//!
//! ## If the client disconnects
//!
//! When the server notices that the client has disconnected, it drops the request, and the lock is released. Servers
//! may notice a disconnection late, or not at all, if they have not read the whole request body, or if another
//! request on the same connection is waiting behind this one.
//!
//! The work may then stand half-done, for example between a debit and a credit, when the next request enters. Work that
//! must not stop there runs in a task of its own, together with its lock:
//!
//! ```
//! # #[cfg(feature = "axum")]
//! # mod example {
//! use axum::{
//!     Router,
//!     extract::Request,
//!     http::StatusCode,
//!     middleware::{Next, from_fn},
//!     response::Response,
//!     routing::post,
//! };
//! use lock_runtime::{LockError, LockManager};
//! use lock_tower::LockLayer;
//!
//! /// Finishes the request even if its client leaves.
//! async fn finish(request: Request, next: Next) -> Result<Response, StatusCode> {
//!     tokio::spawn(next.run(request)).await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
//! }
//!
//! fn app(locks: LockManager) -> Result<Router, LockError> {
//!     let lock = LockLayer::new(locks, "account:<id:u64>")?;
//!     // The layer added last is the outermost.
//!     let transfer = post(transfer).route_layer(lock).route_layer(from_fn(finish));
//!     Ok(Router::new().route("/accounts/{id}/transfer", transfer))
//! }
//! # async fn transfer() {}
//! # }
//! ```
//!
//! A request that [waits](#waiting) for its lock goes on waiting, too. A server that shuts down does not wait for those
//! tasks whose clients have left: spawn them on a `tokio_util::task::TaskTracker`, and await it before
//! [`LockManager::shutdown`](lock_runtime::LockManager::shutdown). A response that is streamed still ends with its
//! client.
//!
//! If the server does not notice that a client is gone, [`max_hold`](LockLayer::max_hold) limits how long the request
//! holds its lock. The default is 5 minutes. When that time is up, the request ends as if it had lost its lock, and the
//! lock is released. This works only while the server keeps polling the response future or body. If the server stops
//! polling, for example because the client does not read the response, the lock becomes free a little later: a
//! [lease](lock_runtime::docs::glossary#locks) is no longer renewed and expires within one [`ttl`](LockLayer::ttl), and a
//! session lock is released in the background.
//!
//! # Slow senders
//!
//! The layer acquires the lock as soon as a request's head has arrived, and the handler then reads the body under the
//! lock. A client that sends the head but holds back the body, or sends it byte by byte, can therefore keep the lock
//! until `max_hold` is reached. On a route that takes a body from untrusted clients, read the body outside the lock,
//! with limits on size and time:
//!
//! ```
//! # #[cfg(feature = "axum")]
//! # mod example {
//! use std::time::Duration;
//!
//! use axum::{
//!     Router,
//!     body::to_bytes,
//!     extract::Request,
//!     http::StatusCode,
//!     middleware::{Next, from_fn},
//!     response::{IntoResponse, Response},
//!     routing::post,
//! };
//! use lock_runtime::{LockError, LockManager};
//! use lock_tower::LockLayer;
//!
//! async fn read_first(request: Request, next: Next) -> Response {
//!     let (head, body) = request.into_parts();
//!     match tokio::time::timeout(Duration::from_secs(10), to_bytes(body, 64 * 1024)).await {
//!         Ok(Ok(body)) => next.run(Request::from_parts(head, body.into())).await,
//!         Ok(Err(_)) => StatusCode::PAYLOAD_TOO_LARGE.into_response(),
//!         Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
//!     }
//! }
//!
//! fn app(locks: LockManager) -> Result<Router, LockError> {
//!     let lock = LockLayer::new(locks, "user:<id:u64>")?;
//!     // The layer added last is the outermost.
//!     let withdraw = post(withdraw).route_layer(lock).route_layer(from_fn(read_first));
//!     Ok(Router::new().route("/users/{id}/withdraw", withdraw))
//! }
//! # async fn withdraw(order: String) -> String { order }
//! # }
//! ```
//!
//! A proxy that buffers whole requests before it forwards them, as nginx's `proxy_pass` does by default, also protects
//! the lock. In unary gRPC requests, the message is sent as the request body, so a slow sender can keep the lock in the
//! same way. For such requests, use `#[distributed_lock]` on the service method instead of this layer, because the
//! method runs after the message has been read.
//!
//! # Error responses
//!
//! If the lock cannot be acquired, the inner service is not called. The response is an `application/problem+json`
//! document (RFC 9457). Its `type` is `https://docs.rs/lock-tower/#` followed by the word in the first column of the
//! table below. The document contains neither the key nor the store's error. They are logged with `tracing` instead:
//! at DEBUG for contention and client errors, and at WARN or ERROR for all other failures.
//!
//! A gRPC request is recognised by its `content-type` and gets a Trailers-Only response. For `contended`, the response
//! includes a `RetryInfo` with the time to wait before a retry.
//!
//! | type | HTTP | gRPC | when |
//! |---|---|---|---|
//! | <span id="contended">`contended`</span> | 409, `Retry-After` | `ABORTED` | another caller holds the lock (kind `Contended`), or still held it at the end of the wait (kind `Timeout`) |
//! | <span id="already-run">`already-run`</span> | 409, `Retry-After` | `ABORTED` | the work was done in this period (kind `AlreadyRun`, of a handler whose lock has `once_per`); `Retry-After` is the time until the next period |
//! | <span id="unavailable">`unavailable`</span> | 503, `Retry-After` | `UNAVAILABLE` | the store does not respond, a limit on waiters or locks is reached, or the manager is shut down |
//! | <span id="lost">`lost`</span> | 500 | `ABORTED` | the lock was lost before the response was sent; part of the work may have been done, so the response does not ask for a retry, and has no status after which proxies repeat a request by themselves |
//! | <span id="invalid-key">`invalid-key`</span> | 400 | `INVALID_ARGUMENT` | the request has no valid key, for example because a header is missing or a value is too long |
//! | <span id="failed">`failed`</span> | 500 | `INTERNAL` | the layer is misconfigured, or the store refuses this process for a reason that a retry will not fix, such as a wrong password; the log says why |
//!
//! `Retry-After` is 1 s by default. For `contended`, you can set a different time with [`LockLayer::retry_after`] or in
//! the manager; in the header, this time is rounded up to whole seconds and is never 0. If the holder is in this
//! process and does not renew its lease, `Retry-After` is the time remaining on that lease, instead of the time that
//! you set. In all other cases, `Retry-After` does not depend on the remaining time: a lease that is being renewed says
//! nothing about when its lock will become free.
//!
//! Use [`on_rejection`](LockLayer::on_rejection) and [`protocol`](LockLayer::protocol) to customise these responses.
//! With lock-runtime's `axum` and `tonic` features, a [`LockError`](lock_runtime::LockError) returned by a handler or
//! service method, such as one annotated with `#[distributed_lock]`, becomes the same kind of response.
//!
//! # Waiting
//!
//! By default, a request is refused at once if its lock is held: [`wait`](LockLayer::wait) is zero, regardless of the
//! manager's setting. If a short wait is worthwhile, set one, but bear in mind what a waiting request ties up: its
//! connection, and a permit from each `ConcurrencyLimit` around the layer. Many requests that wait for one key can
//! therefore block requests for all other keys.
//!
//! For this reason, put a concurrency limit inside the lock. In axum, add it to the route in a separate `layer` call,
//! before adding the lock: a request then takes its permit only once it holds the lock. This does not help in tonic,
//! or if both layers are in the same `ServiceBuilder`: `ConcurrencyLimit` takes its permit in `poll_ready`, which the
//! lock layer forwards, so a request takes the permit before it waits for the lock. In these cases, apply the limit
//! to the locked service only, so that other services are not affected.
//!
//! Requests that exceed the manager's [limits](lock_runtime::Limits) on waiting (by default, 1,024 waiting requests per
//! key) are refused at once (`unavailable`). A waiting request leaves the queue when the server drops it because its
//! client has disconnected. A gRPC request waits no longer than its `grpc-timeout`, and gets `DEADLINE_EXCEEDED` if the
//! timeout ended the wait.
//!
//! # Shutting down
//!
//! At Ctrl-C and at SIGTERM (see [operation](lock_runtime::docs::operation#stopping)), let the server finish its requests
//! (axum's `with_graceful_shutdown`, tonic's `serve_with_shutdown`), and then await
//! [`LockManager::shutdown`](lock_runtime::LockManager::shutdown). This keeps the process alive while locks are still
//! being released in the background. An endless stream keeps a graceful shutdown waiting: end the stream
//! yourself, or let [`max_hold`](LockLayer::max_hold) end it.
//!
//! The locks of a killed process stay held until their leases expire, within one [`ttl`](LockLayer::ttl) (30 s by
//! default), or until the store ends the session of the process: see [what frees a lock after a
//! crash](lock_runtime::docs::stores#how-their-locks-behave).
//!
//! # Features
//!
//! * `axum` (enabled by default): keys from route parameters, and [`HeldLock`] and [`HeldLocks`] as extractors for
//!   handlers.
//! * `inspect`: the function `inspect_router` returns a page for operators that shows who holds which lock, and who waits.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod body;
mod future;
mod hold_until;
#[cfg(feature = "inspect")]
mod inspect;
mod key;
mod keys;
mod layer;
mod missing_key;
mod protocol;
mod rejection;
mod service;
mod template;

pub use body::{ResponseBody, ResponseBodyError};
pub use future::ResponseFuture;
pub use hold_until::HoldUntil;
#[cfg(feature = "inspect")]
#[cfg_attr(docsrs, doc(cfg(feature = "inspect")))]
pub use inspect::inspect_router;
pub use key::{KeyExtractor, KeyRejection};
pub use layer::LockLayer;
pub use lock_runtime::{HeldLock, HeldLocks, OnLost};
pub use missing_key::MissingKey;
pub use protocol::Protocol;
pub use rejection::LockRejection;
pub use service::LockService;

/// Tests the examples in the workspace's README.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../README.md")]
struct Readme;
