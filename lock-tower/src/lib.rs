//! A tower layer that runs each request under a distributed lock on its own key, for axum, tonic and other services of
//! `http`.
//!
//! Two requests for the same user, order or account do not run at the same time, on however many machines; requests
//! for different ones do not notice each other.
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
//!     // Send the token with each write, so that the writes of a replaced holder can be refused.
//!     format!("user {id} under token {}", lock.fencing_token())
//! }
//! # let _ = app;
//! # Ok(())
//! # }
//! ```
//!
//! # Which requests
//!
//! **Requests that only read run without a lock**: `GET`, `HEAD`, `OPTIONS` and `TRACE`. To lock them, for example for
//! server-sent events, which are requested with `GET`, name the methods: [`methods`](LockLayer::methods).
//!
//! # Where to put it
//!
//! On the route, after its method: `post(handler).route_layer(lock)`. There it runs only for requests that reach the
//! handler.
//!
//! | place | also runs on |
//! |---|---|
//! | `post(handler).route_layer(lock)` | – |
//! | `post(handler).layer(lock)`, `Router::route_layer` | wrong methods (405) |
//! | `Router::layer` | wrong methods (405) and unknown paths (404), which have no parameters: 500 |
//! | around the `Router` | everything, before the route is known: 500 |
//!
//! In tonic, put it around the server, `Server::builder().layer(lock)`, or around one service,
//! `lock.named_layer(service)`.
//!
//! `any(handler)` answers every method itself and takes `.layer(lock)`. A route added after the layer is not covered.
//!
//! **Authorise before locking.** A client that may send a locked request can keep others waiting, so authorisation
//! belongs outside the lock: in axum, in a `layer` added after this one.
//!
//! **In one `ServiceBuilder`**, the layer added first is the outermost. Layers whose own answers have the body type
//! of the service they wrap (tower-http's `CorsLayer`, `TimeoutLayer`, `ValidateRequestHeaderLayer::bearer`) fit as
//! they are. A layer that answers with axum's own `Response` (`AsyncRequireAuthorizationLayer`, `option_layer`) needs
//! that type inside as well: put `.map_response(|response: http::Response<_>| response.map(axum::body::Body::new))`
//! between it and the lock. CORS belongs on the `Router`: a preflight is an `OPTIONS` request, which a `post` route
//! does not accept.
//!
//! **Timeouts and panic catchers inside.** Layers that answer in the handler's stead (`TimeoutLayer`,
//! `CatchPanicLayer`) belong inside the lock: in axum, in a layer added before this one. Outside, they drop the
//! request, and the lock is released in the background, perhaps after the client has received its answer and sent the
//! next request.
//!
//! # Keys
//!
//! A template is text with placeholders, `order:<header.x-tenant>/<id:u64>`. Their values are decoded, then
//! percent-encoded in the key where they could be mistaken for the template's own text: no two lists of values give
//! the same key.
//!
//! | placeholder | value |
//! |---|---|
//! | `<id>` | the route parameter of this name (feature `axum`) |
//! | `<header.x-tenant>` | a header; in gRPC, metadata |
//! | `<query.name>` | a value of the query, decoded as forms are |
//! | `<rpc.service>`, `<rpc.method>` | `package.Service` and `Method` of the path of a gRPC request |
//!
//! A header or query value that is missing or given twice is the client's fault (400). A route parameter that is
//! missing or given twice is a fault of the wiring (500, and the log says what to write).
//! [`missing_key`](LockLayer::missing_key) lets requests that lack a value run without a lock.
//!
//! Write the type if the handler parses the value. `/users/042` and `/users/+42` are both the number 42 to a handler
//! that takes a `u64`, but three different texts: with `<id>` a client could choose which lock it takes, with
//! `<id:u64>` it cannot. The types are `u64` and `i64`, which also fit the smaller ones, and `uuid`; a value of
//! another type is the client's fault (400).
//!
//! Other keys, such as the caller's session, come from a closure: see [`LockLayer::with_key_fn`]. The fields of a gRPC
//! message are not yet known when the layer runs: annotate the service method that takes the message.
//!
//! # While the lock is held
//!
//! The lock is held while the inner service works on the request. A response of known size (text, JSON, nothing) is
//! then complete: the lock is released, and only after that does the response leave, so that the client's next
//! request never meets its own lock. A response that is produced while it is sent (a stream, server-sent events)
//! keeps the lock until it ends; its last frame leaves after the release. A proxied body with a `content-length` is
//! of known size. An upgraded connection, such as a WebSocket, is not covered. Every gRPC response is a stream, which
//! ends with its trailers. [`hold_until`](LockLayer::hold_until) changes when the lock is released.
//!
//! The end of a stream is a small packet that leaves shortly after the last data, and some systems delay it by 40 ms
//! unless the server sets `TCP_NODELAY`. This affects every gRPC answer, too. Tonic's `serve` sets it; elsewhere, set
//! it yourself:
//!
//! * axum: `axum::serve(listener.tap_io(|stream| drop(stream.set_nodelay(true))), app)`, with `axum::serve::ListenerExt`;
//! * tonic: `serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)))`.
//!
//! If the lock is lost before the response leaves, the inner future is dropped and the response is 503, even if the
//! handler had finished and the loss is only discovered on release. A streamed response breaks off with an error. In
//! both cases, part of the work may have been done, and tasks that the handler spawned go on. With
//! [`on_lost`](LockLayer::on_lost) the work can be finished first; the answer is the same. [`HeldLock`] in the
//! request's extensions has the fencing token, and the time for which the lock may be relied on.
//!
//! A client that disconnects ends the request and with it the lock. Servers notice this late or never if the
//! request's body was not read, or if another request waits behind it on the connection. So a hold is not renewed
//! beyond [`max_hold`](LockLayer::max_hold), 5 minutes unless set: the request then ends as one that lost its lock,
//! and the lock is released. If the server does not poll the request even then, for example because it waits for a
//! client that does not read, a lock that is a lease (Redis) ends by itself: one [`ttl`](LockLayer::ttl) later at
//! most.
//!
//! # Slow senders
//!
//! The layer acquires the lock once a request's head has arrived. The handler reads the body under the lock: a client
//! that sends the head and holds back the body, or sends it byte by byte, keeps all others waiting until `max_hold`.
//! On a route that takes a body from untrusted clients, read it outside the lock, bounded in size and time:
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
//! gRPC request is a body, too: there, lock in the method, with the attribute, which runs after the message was read.
//!
//! # Answers
//!
//! Without the lock the inner service is not called. The answer is an `application/problem+json` (RFC 9457) whose
//! `type` is `https://docs.rs/lock-tower/#` followed by the word in the first column. It neither names the key nor
//! repeats the store's error; both are in the log (`tracing`): contended locks and errors of the client at DEBUG, all
//! others at WARN or ERROR. A gRPC request is recognised by its `content-type` and answered with a Trailers-Only
//! status, with `RetryInfo` if a time is known.
//!
//! | type | HTTP | gRPC | when |
//! |---|---|---|---|
//! | <span id="contended">`contended`</span> | 409, `Retry-After` | `ABORTED` | another request holds the lock |
//! | <span id="unavailable">`unavailable`</span> | 503, `Retry-After` | `UNAVAILABLE` | the store does not answer, a limit on waiters or locks is reached, or the manager is shut down |
//! | <span id="lost">`lost`</span> | 503, `Retry-After` | `ABORTED` | the lock was lost while the request was processed |
//! | <span id="invalid-key">`invalid-key`</span> | 400 | `INVALID_ARGUMENT` | the request gives no valid key |
//! | <span id="failed">`failed`</span> | 500 | `INTERNAL` | the layer is wired or configured wrongly, or the store refuses us permanently, for example for a wrong password; the log says why |
//!
//! `Retry-After` is 1 s unless [`LockLayer::retry_after`] or the manager sets another time; it is rounded up to whole
//! seconds, and never 0. It is not the rest of the lease, which does not show when a renewed lock will be free. Only
//! if the holder is in this process and does not renew is it the rest of its lease.
//!
//! [`on_rejection`](LockLayer::on_rejection) and [`protocol`](LockLayer::protocol) change answers. With the features
//! `axum` and `tonic` of `lock-runtime`, the errors of annotated handlers and methods are answered in the same way.
//!
//! # Waiting
//!
//! A request for a busy lock is refused at once: the default of [`wait`](LockLayer::wait) is zero, whatever the
//! manager's is. A waiting request keeps its connection and its reservations in the inner service, such as a permit
//! of a `ConcurrencyLimit`, so many waiters for one key can stop the requests for all others. If a short wait is
//! worth it, set one, and put the limit inside the locked route. Requests above the manager's
//! [limits](lock_runtime::Limits) on waiters, 1,024 for a key unless set, are refused at once (`unavailable`).
//!
//! A waiting request leaves the queue when its client disconnects. A gRPC request waits no longer than its
//! `grpc-timeout`, and is answered with `DEADLINE_EXCEEDED` if that ended the wait.
//!
//! # Shutting down
//!
//! Let the server finish its requests (axum's `with_graceful_shutdown`, tonic's `serve_with_shutdown`), and then
//! await [`LockManager::shutdown`](lock_runtime::LockManager::shutdown): releases in the background need the process
//! for a moment longer. The locks of a killed process stay held until its leases or its session end: for the
//! [`ttl`](LockLayer::ttl) at most, 30 s unless it or the manager's is set. An endless stream keeps a graceful
//! shutdown waiting: end it yourself, or with [`max_hold`](LockLayer::max_hold).
//!
//! # Features
//!
//! * `axum` (default): keys from route parameters, and [`HeldLock`] as an argument of handlers.

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
