//! A tower layer for axum, tonic and any other service built on the `http` crate: it runs each request under a
//! distributed lock whose key is taken from the request.
//!
//! Two requests for the same user, order or account do not run at the same time, no matter how many machines serve
//! them. Requests for different users, orders or accounts do not affect each other.
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
//!     // Send the token with each write, so that late writes of an earlier holder can be refused.
//!     format!("user {id} under token {}", lock.fencing_token())
//! }
//! # let _ = app;
//! # Ok(())
//! # }
//! ```
//!
//! # Which requests
//!
//! **Read-only requests (`GET`, `HEAD`, `OPTIONS` and `TRACE`) run without a lock.** To lock them too, list their
//! methods with [`LockLayer::methods`]. Server-sent events, for example, are requested with `GET`.
//!
//! # Where to put it
//!
//! In axum, add the layer to the method of the route: `post(handler).route_layer(lock)`. There it runs only for
//! requests that reach the handler. In other places it also runs for requests that do not reach it:
//!
//! | place | other requests for which the layer runs |
//! |---|---|
//! | `post(handler).route_layer(lock)` | none |
//! | `post(handler).layer(lock)`, `Router::route_layer` | those with a wrong method, which then get 405 |
//! | `Router::layer` | those with a wrong method (405) or an unknown path. If the template has a route parameter, an unknown path gets 500 in place of 404, because no route has provided the parameter |
//! | around the `Router` | all. If the template has a route parameter, each of them gets 500, because the layer runs before routing |
//!
//! `any(handler)` has no routes for single methods, so its `route_layer` panics: use `any(handler).layer(lock)`. A
//! layer of a `Router` does not cover routes that are added after it.
//!
//! In tonic, put the layer around the server, `Server::builder().layer(lock)`, or around one service,
//! `lock.named_layer(service)`.
//!
//! **Authorise before locking.** A client that is allowed to send locked requests can keep other clients waiting, so
//! authorisation belongs outside the lock: in axum, add its layer after this one.
//!
//! **Put layers that respond in place of the handler inside the lock**, for example `TimeoutLayer` and
//! `CatchPanicLayer`: in axum, add them before this one. If such a layer is outside, it drops the request together with
//! its lock. The lock is then released in the background, perhaps only after the client has received the response and
//! sent its next request.
//!
//! **In one `ServiceBuilder`**, the layer added first is the outermost. Layers that generate responses with the body
//! type of the inner service (tower-http's `CorsLayer`, `TimeoutLayer`, `ValidateRequestHeaderLayer::bearer`) can be
//! combined with this one directly. A layer that generates axum's `Response` (`AsyncRequireAuthorizationLayer`,
//! `option_layer`) requires the service inside it to return that type too: put
//! `.map_response(|response: http::Response<_>| response.map(axum::body::Body::new))` between that layer and the lock.
//!
//! CORS belongs on the `Router`: a preflight is an `OPTIONS` request, which a `post` route does not accept.
//!
//! # Keys
//!
//! A template is text with placeholders, such as `order:<header.x-tenant>/<id:u64>`. Route and query parameters are
//! URL-decoded first. In the key, characters that could be mistaken for the template's own text are then
//! percent-encoded, so different values never produce the same key.
//!
//! | placeholder | value |
//! |---|---|
//! | `<id>` | the route parameter of this name (feature `axum`) |
//! | `<header.x-tenant>` | a header; in gRPC, metadata |
//! | `<query.name>` | a query parameter, decoded as `application/x-www-form-urlencoded` |
//! | `<rpc.service>`, `<rpc.method>` | `package.Service` and `Method` in the path of a gRPC request |
//!
//! A header or query parameter that is missing or given twice is a client error (400). A route parameter that is
//! missing or given twice means that the layer is set up incorrectly (500; the log says how to fix it). The
//! option [`missing_key`](LockLayer::missing_key) can let requests that lack a value run without a lock.
//!
//! Write the type if the handler parses the value. To a handler that takes a `u64`, `/users/42`, `/users/042` and
//! `/users/+42` are the same user, but as texts they are different. With `<id>`, a client could therefore choose among
//! several locks for the same user; with `<id:u64>`, it cannot. The types are `u64`, `i64` (both also for smaller
//! integers) and `uuid`. A value that does not have this type is a client error (400).
//!
//! A key from elsewhere, such as the caller's session, comes from a closure: see [`LockLayer::with_key_fn`]. The fields
//! of a gRPC message are not yet known when the layer runs: put the attribute `#[distributed_lock]` of lock-runtime on
//! the service method that takes the message.
//!
//! # While the lock is held
//!
//! The lock is held while the inner service handles the request. What happens next depends on the response:
//!
//! * A response of known size (text, JSON, an empty body) is complete when the inner service returns it. The lock is
//!   released, and only then is the response sent, so a client's next request never collides with the lock of its
//!   previous one. A proxied body with a `content-length` also counts as known size, so its lock is released before the
//!   body has been forwarded.
//! * A response that is produced while it is being sent (a stream, server-sent events) keeps the lock until it ends.
//!   Its last frame is sent after the release. Every gRPC response is such a stream, which ends with its trailers.
//! * An upgraded connection, such as a WebSocket, is not covered by the lock.
//!
//! [`hold_until`](LockLayer::hold_until) changes when the lock is released.
//!
//! The end of a stream, and of every gRPC response, is a small packet that is sent shortly after the last data. Some
//! systems delay such a packet by 40 ms unless the server sets `TCP_NODELAY`. Tonic's `serve` sets it. With other
//! servers, set it yourself:
//!
//! * axum: `axum::serve(listener.tap_io(|stream| drop(stream.set_nodelay(true))), app)`, with
//!   `axum::serve::ListenerExt`;
//! * tonic: `serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)))`.
//!
//! ## If the lock is lost
//!
//! If the lock is lost before the response is sent, the client gets 503, and the inner future is dropped if it is
//! still running. The client also gets 503 if the handler has already finished and the loss is discovered only when
//! the lock is released. (`#[distributed_lock]` returns the result in this case.) A streamed response is aborted with
//! an error.
//!
//! Either way, part of the work may have been done, and tasks that the handler spawned continue. With
//! [`on_lost`](LockLayer::on_lost), the work can be finished first, but the response is still 503. The [`HeldLock`] in
//! the request's extensions provides the fencing token, and tells for how much longer the lock can be relied on.
//!
//! ## If the client disconnects
//!
//! When the server notices that the client has disconnected, it drops the request, and the lock is released. Servers
//! notice this late or never if they have not read the whole request body, or if another request is waiting behind this
//! one on the connection.
//!
//! The time that a request can hold its lock is therefore limited to [`max_hold`](LockLayer::max_hold), 5 minutes by
//! default: the request then ends as if it had lost its lock, and the lock is released. This requires that the server
//! still polls the request. If it does not, for example because the client does not read the response, the lock becomes
//! free a little later: with Redis and `memory:`, the [lease](lock_runtime::docs::glossary) is no longer renewed and
//! expires within one [`ttl`](LockLayer::ttl); a ZooKeeper lock is released in the background.
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
//! A proxy that buffers requests, as nginx does by default, has the same effect for HTTP/1.1. The message of a unary
//! gRPC request is a body, too: there, put `#[distributed_lock]` on the service method in place of this layer, because
//! the method runs after the message has been read.
//!
//! # Error responses
//!
//! If the lock cannot be acquired, the inner service is not called. The response is an `application/problem+json`
//! document (RFC 9457). Its `type` is `https://docs.rs/lock-tower/#` followed by the word in the first column of the
//! table below. The document contains neither the key nor the store's error. Both are logged with `tracing`: contention
//! and client errors at DEBUG, everything else at WARN or ERROR.
//!
//! A gRPC request is recognised by its `content-type` and gets a Trailers-Only response. For `contended`, it includes a
//! `RetryInfo` with the time to wait before a retry.
//!
//! | type | HTTP | gRPC | when |
//! |---|---|---|---|
//! | <span id="contended">`contended`</span> | 409, `Retry-After` | `ABORTED` | another request holds the lock |
//! | <span id="unavailable">`unavailable`</span> | 503, `Retry-After` | `UNAVAILABLE` | the store does not respond, a limit on waiters or locks is reached, or the manager is shut down |
//! | <span id="lost">`lost`</span> | 503, `Retry-After` | `ABORTED` | the lock was lost before the response was sent |
//! | <span id="invalid-key">`invalid-key`</span> | 400 | `INVALID_ARGUMENT` | the request has no valid key, for example because a header is missing or a value is too long |
//! | <span id="failed">`failed`</span> | 500 | `INTERNAL` | the layer is set up incorrectly, or the store permanently rejects this server, for example because of a wrong password; the log says why |
//!
//! `Retry-After` is 1 s by default. For `contended`, set another time with [`LockLayer::retry_after`] or in the
//! manager; the header rounds it up to whole seconds, and is never 0. This time is not the remaining time of the
//! lease, because that says nothing about when a lock that is being renewed will become free. The exception is a
//! holder in this process that does not renew its lease: then `Retry-After` is the remaining time of that lease.
//!
//! Use [`on_rejection`](LockLayer::on_rejection) and [`protocol`](LockLayer::protocol) to customise these responses.
//! With the features `axum` and `tonic` of lock-runtime, a [`LockError`](lock_runtime::LockError) that a handler or
//! method returns, for example one with `#[distributed_lock]`, becomes the same kind of response.
//!
//! # Waiting
//!
//! By default, a request is refused at once if its lock is held: [`wait`](LockLayer::wait) is zero, whatever the
//! manager's value is. If a short wait is worthwhile, set one, but mind what a waiting request keeps occupied: its
//! connection, and its permit of each `ConcurrencyLimit` around the layer. Many waiters for one key can therefore
//! block requests for all other keys.
//!
//! So put a concurrency limit inside the lock. In axum, add it to the route in a separate `layer` call, before adding
//! the lock: a request then takes its permit only once it holds the lock. In tonic, or if both layers are in one
//! `ServiceBuilder`, a request takes the permit before it waits for the lock, even if the limit is inside. There,
//! apply the limit to the locked service only, so that other services are not affected.
//!
//! Requests that exceed the manager's [limits](lock_runtime::Limits) on waiters (1,024 per key by default) are
//! refused at once (`unavailable`). A waiting request leaves the queue when its client disconnects. A gRPC request
//! waits no longer than its `grpc-timeout`, and gets `DEADLINE_EXCEEDED` if that ended the wait.
//!
//! # Shutting down
//!
//! Let the server finish its requests (axum's `with_graceful_shutdown`, tonic's `serve_with_shutdown`), and then await
//! [`LockManager::shutdown`](lock_runtime::LockManager::shutdown): locks that are being released in the background need
//! the process to stay alive a moment longer. An endless stream keeps a graceful shutdown waiting: end it yourself, or
//! let [`max_hold`](LockLayer::max_hold) end it.
//!
//! The locks of a killed process stay held until their leases expire or, in ZooKeeper, until the session of the process
//! expires. That takes about one [`ttl`](LockLayer::ttl) at most, which is 30 s by default.
//!
//! # Features
//!
//! * `axum` (default): keys from route parameters, and [`HeldLock`] and [`HeldLocks`] as extractors for handlers.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod body;
mod future;
mod hold_until;
mod key;
mod keys;
mod layer;
mod missing_key;
mod protocol;
mod rejection;
mod service;
mod template;

pub use body::ResponseBody;
pub use future::ResponseFuture;
pub use hold_until::HoldUntil;
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
