//! A tower layer that runs each request under a distributed lock of its own key, for axum, tonic and what else speaks
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
//!     // Hand the token over with each write: what a replaced holder writes can be refused.
//!     format!("user {id} under token {}", lock.fencing_token())
//! }
//! # let _ = app;
//! # Ok(())
//! # }
//! ```
//!
//! # Which requests
//!
//! **Those that only read run without a lock**: `GET`, `HEAD`, `OPTIONS` and `TRACE`. Where they are to be locked, as
//! server-sent events, which are asked for with `GET`, name the methods: [`methods`](LockLayer::methods).
//!
//! # Where to put it
//!
//! On the route, behind its method: `post(handler).route_layer(lock)`. There it runs for requests that reach the
//! handler and for nothing else.
//!
//! | place | also runs on |
//! |---|---|
//! | `post(handler).route_layer(lock)` | – |
//! | `post(handler).layer(lock)`, `Router::route_layer` | wrong methods (405) |
//! | `Router::layer` | wrong methods (405) and unknown paths (404), which have no parameters: 500 |
//! | around the `Router` | everything, before the route is known: 500 |
//!
//! In tonic it stands around the server, `Server::builder().layer(lock)`, or around one service,
//! `lock.named_layer(service)`.
//!
//! `any(handler)` answers every method by itself and takes `.layer(lock)`. A route that is added after the layer is
//! not covered by it.
//!
//! **Authorise before locking.** A client that may send a locked request can keep others waiting, so what checks
//! the caller stands outside of the lock: in axum, in a `layer` that is added after this one.
//!
//! **In one `ServiceBuilder`**, what is added first stands outside. Layers that make the answers of their own in the body of
//! what they wrap (tower-http's `CorsLayer`, `TimeoutLayer`, `ValidateRequestHeaderLayer::bearer`) go there as they are. One
//! that answers with axum's own `Response` (`AsyncRequireAuthorizationLayer`, `option_layer`) wants that inside too: put
//! `.map_response(|response: http::Response<_>| response.map(axum::body::Body::new))` between it and the lock. CORS stands on
//! the `Router`: a preflight is an `OPTIONS`, which a route of `post` does not have.
//!
//! **Timeouts and panic catchers inside.** What answers in the handler's stead (`TimeoutLayer`, `CatchPanicLayer`)
//! stands inside of the lock: in axum, in a layer that is added before this one. Outside of it, it drops the request, and
//! the lock is released in the background, perhaps after the client has its answer and has sent the next request.
//!
//! # Keys
//!
//! A template is text with placeholders, `order:<header.x-tenant>/<id:u64>`. Their values come decoded, and are
//! percent-encoded in the key where they could be mistaken for the template's own text: no two lists of values give
//! one key.
//!
//! | placeholder | value |
//! |---|---|
//! | `<id>` | the route parameter of this name (feature `axum`) |
//! | `<header.x-tenant>` | a header; in gRPC, metadata |
//! | `<query.name>` | a value of the query, decoded as forms are |
//! | `<rpc.service>`, `<rpc.method>` | `package.Service` and `Method` of the path of a gRPC request |
//!
//! A header or query value that is missing or given twice is the client's fault (400), a route parameter the wiring's
//! (500, and the log says what to write); [`missing_key`](LockLayer::missing_key) lets requests without a value run
//! without a lock.
//!
//! Write the type where the handler parses the value. `/users/042` and `/users/+42` are both the number 42 to a
//! handler that takes a `u64`, but three different texts: with `<id>` a client could choose which lock it takes, with
//! `<id:u64>` it cannot. There are `u64` and `i64`, which also fit the smaller types, and `uuid`; a value that is
//! none is the client's fault (400).
//!
//! Keys from elsewhere, such as the caller's session, come from a closure: see [`LockLayer::with_key_fn`]. The fields of a
//! gRPC message are not there yet when the layer runs: annotate the method of the service that takes the message.
//!
//! # While the lock is held
//!
//! The lock is held while the inner service works on the request. A response of known size (text, JSON, nothing) is
//! then complete: the lock is released, and only after that does the response leave, so that the client's next
//! request never meets its own lock. A response that is produced while it is sent (a stream, server-sent events)
//! keeps the lock until it ends; its last frame leaves after the release. A proxied body with a `content-length` is
//! of known size. An upgraded connection, like a WebSocket, is not covered. Every gRPC response is a stream, whose end
//! is its trailers. [`hold_until`](LockLayer::hold_until) chooses otherwise.
//!
//! The end of a stream is a small packet that leaves a little after its last data, and some systems hold it back for
//! 40 ms unless the server sets `TCP_NODELAY`. That concerns each gRPC answer, too. Tonic's `serve` sets it; elsewhere
//! say so:
//!
//! * axum: `axum::serve(listener.tap_io(|stream| drop(stream.set_nodelay(true))), app)`, with `axum::serve::ListenerExt`;
//! * tonic: `serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)))`.
//!
//! If the lock is lost before the response leaves, the inner future is dropped and the answer is 503, also where it is
//! ready and only the release shows that the store had given the lock away; a streamed response breaks off with an
//! error. In both cases a part of the work may have been done. What the handler spawned goes on. With
//! [`on_lost`](LockLayer::on_lost) the work is finished first, and then answered in the same way.
//! [`HeldLock`] in the request's extensions has the fencing token, and tells how long the lock may be relied
//! on.
//!
//! A client that disconnects ends the request and with it the lock. Servers notice this late or never when the
//! request's body was not read or another request is waiting behind it on the connection. So a hold is not renewed
//! beyond [`max_hold`](LockLayer::max_hold), 5 minutes unless set: the request ends then as one that lost its lock, and the
//! lock is released. Where the server does not come back to the request even then, as when it waits for a client that
//! does not read, a lock that is a lease (Redis) is freed by the end of that: one [`ttl`](LockLayer::ttl) later at most.
//!
//! # Slow senders
//!
//! The layer takes the lock when a request's head is there. The handler reads the body, under the lock: a client that
//! sends its head and holds back its body, or sends it byte by byte, keeps all others waiting until `max_hold`. On a
//! route that takes a body from clients that are not trusted, read it outside of the lock, bounded in size and time:
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
//!     // What is added last stands outside.
//!     let withdraw = post(withdraw).route_layer(lock).route_layer(from_fn(read_first));
//!     Ok(Router::new().route("/users/{id}/withdraw", withdraw))
//! }
//! # async fn withdraw(order: String) -> String { order }
//! # }
//! ```
//!
//! A proxy that buffers requests, such as nginx unless told otherwise, does the same for HTTP/1.1. The message of a unary
//! gRPC request is its body as well; there, lock in the method by the attribute, which runs when the message was read.
//!
//! # Answers
//!
//! Without the lock the inner service is not called. The answer is an `application/problem+json` (RFC 9457) whose
//! `type` is `https://docs.rs/lock-tower/#` and the word of the first column. Nothing in it names the key or repeats
//! what the store said; both are in the log (`tracing`): what the client got wrong and locks that are held at DEBUG, the
//! rest at WARN or ERROR. A gRPC request is known by its `content-type` and answered
//! with a status in headers alone, whose details have a `RetryInfo` where a time is known.
//!
//! | type | HTTP | gRPC | when |
//! |---|---|---|---|
//! | <span id="contended">`contended`</span> | 409, `Retry-After` | `ABORTED` | another request holds the lock |
//! | <span id="unavailable">`unavailable`</span> | 503, `Retry-After` | `UNAVAILABLE` | the store does not answer, a limit on waiters or locks is reached, or the manager is shut down |
//! | <span id="lost">`lost`</span> | 503, `Retry-After` | `ABORTED` | the lock was lost while the request was worked on |
//! | <span id="invalid-key">`invalid-key`</span> | 400 | `INVALID_ARGUMENT` | the request gives no valid key |
//! | <span id="failed">`failed`</span> | 500 | `INTERNAL` | the layer is wired or configured wrongly, or the store refuses us for good, as with a wrong password; the log says how |
//!
//! `Retry-After` is 1 s unless [`LockLayer::retry_after`] or the manager says otherwise, in whole seconds rounded up and
//! never 0: the rest of a lease that is renewed says nothing about when the lock is free. Of a holder in this process that
//! does not renew, it is what its lease has left.
//!
//! [`on_rejection`](LockLayer::on_rejection) and [`protocol`](LockLayer::protocol) change answers. With the features
//! `axum` and `tonic` of `lock-runtime`, the errors of annotated handlers and methods are answered alike.
//!
//! # Waiting
//!
//! A busy lock is answered at once: the default of [`wait`](LockLayer::wait) is zero, whatever the manager's is. A
//! request that waits keeps its connection and what the inner service had reserved for it, such as a place in a
//! `ConcurrencyLimit`, so that many waiters for one key can stop requests for all others. Where a short wait is worth
//! it, set one, and put the limit inside of the lock's own route. Requests above the manager's
//! [limits](lock_runtime::Limits) on waiters, 1,024 for a key unless set, are refused at once (`unavailable`).
//!
//! A waiting request leaves the queue when its client disconnects. One of gRPC waits no longer than its `grpc-timeout`,
//! and is answered with `DEADLINE_EXCEEDED` where that ended the wait.
//!
//! # Shutting down
//!
//! Let the server finish what it has begun (axum's `with_graceful_shutdown`, tonic's `serve_with_shutdown`), and then
//! await [`LockManager::shutdown`](lock_runtime::LockManager::shutdown): what is released in the background needs the
//! process for a moment longer. Whatever a killed process held stays locked until its lease or its session ends: for the
//! [`ttl`](LockLayer::ttl) at most, 30 s unless it or the manager's is set. A stream without an end keeps a graceful shutdown
//! waiting: end it yourself, or with [`max_hold`](LockLayer::max_hold).
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

/// The examples of the workspace's README, so that they stay true.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../README.md")]
struct Readme;
