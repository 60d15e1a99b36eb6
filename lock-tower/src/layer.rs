//! The layer and its options.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Extensions, Method, Request, Response, StatusCode, Version, request::Parts};
use lock_runtime::{
    __private::{Guards, SyncFuture, class, default_label},
    Label, LockError, LockErrorKind, LockKey, LockManager,
};

use crate::{
    HoldUntil, KeyExtractor, KeyRejection, LockRejection, MissingKey, OnLost, Protocol,
    keys::{Found, Keys},
    template::KeyTemplate,
};

/// The default of [`LockLayer::max_hold`].
const MAX_HOLD: Duration = Duration::from_secs(5 * 60);

/// Runs each request under the lock named by its key.
///
/// ```
/// # #[cfg(feature = "axum")]
/// # mod example {
/// use std::time::Duration;
///
/// use axum::{Router, extract::Path, routing::post};
/// use lock_runtime::{LockError, LockManager};
/// use lock_tower::{HeldLock, LockLayer};
///
/// fn app(locks: LockManager) -> Result<Router, LockError> {
///     let lock = LockLayer::new(locks, "user:<id:u64>")?.wait(Duration::from_millis(500));
///     Ok(Router::new().route("/users/{id}/withdraw", post(withdraw).route_layer(lock)))
/// }
///
/// async fn withdraw(Path(id): Path<u64>, lock: HeldLock) -> String {
///     format!("user {id} under token {}", lock.fencing_token())
/// }
/// # }
/// ```
///
/// See the [crate documentation](crate) for where to put the layer, what a key can consist of, how long a lock is held,
/// and which response a request receives if it does not get the lock.
///
/// | option | default |
/// |---|---|
/// | [`ttl`](Self::ttl): how long a lock stays held if its holder crashes | the manager's setting (30 s by default) |
/// | [`wait`](Self::wait): how long a request waits for the lock | 0 s |
/// | [`max_hold`](Self::max_hold): the maximum time a request holds the lock | 5 min |
/// | [`hold_at_least`](Self::hold_at_least): the minimum time the lock stays held | 0 s |
/// | [`auto_renew`](Self::auto_renew): whether the lease is renewed | the manager's setting (`true` by default) |
/// | [`retry_after`](Self::retry_after): when a client should retry if the lock is held | the manager's setting (1 s by default) |
/// | [`contended_status`](Self::contended_status): the HTTP status if the lock is held | 409 |
/// | [`methods`](Self::methods): which requests are locked | all except `GET`, `HEAD`, `OPTIONS`, `TRACE` |
/// | [`missing_key`](Self::missing_key): what to do with a request that has no key | [`Reject`](MissingKey::Reject) |
/// | [`hold_until`](Self::hold_until): how long a request holds the lock | [`Auto`](HoldUntil::Auto) |
/// | [`on_lost`](Self::on_lost): whether the inner service is cancelled or runs to completion if the lock is lost | [`Cancel`](OnLost::Cancel) |
/// | [`reentrant`](Self::reentrant): whether the layer uses the lock that an outer layer with the same key already holds | `false` |
/// | [`label`](Self::label): what operators see as the purpose of the lock | the route |
/// | [`protocol`](Self::protocol): whether error responses are HTTP or gRPC | depends on the request's `content-type` |
///
/// # Cancel safety
/// Dropping the response future, or a response body that holds the lock, drops the inner future or body and then
/// releases the lock in the background. If the lock was still being acquired, the attempt is abandoned, and a lock
/// that has just been granted is released.
#[derive(Clone)]
pub struct LockLayer {
    /// The manager, with the layer's options as its defaults.
    locks: LockManager,
    pub(crate) keys: Keys,
    pub(crate) methods: Methods,
    pub(crate) wait: Duration,
    hold_at_least: Duration,
    reentrant: bool,
    label: Option<Arc<str>>,
    pub(crate) missing_key: MissingKey,
    pub(crate) hold_until: HoldUntil,
    pub(crate) on_lost: OnLost,
    pub(crate) protocol: Protocol,
    pub(crate) contended_status: StatusCode,
    on_rejection: Option<Arc<OnRejection>>,
}

type OnRejection = dyn Fn(&LockRejection) -> Response<Bytes> + Send + Sync;

/// Which requests are locked.
#[derive(Clone, Debug)]
pub(crate) enum Methods {
    /// All methods but the read-only ones.
    Writing,
    These(Arc<[Method]>),
}

impl Methods {
    pub(crate) fn contains<B>(&self, request: &Request<B>) -> bool {
        let method = request.method();
        // The handler of `GET` answers `HEAD` as well.
        let counts_as_get = *method == Method::HEAD || is_extended_connect(request);
        match self {
            Self::Writing => {
                !counts_as_get && !matches!(*method, Method::GET | Method::OPTIONS | Method::TRACE)
            }
            Self::These(methods) => {
                methods.contains(method) || (counts_as_get && methods.contains(&Method::GET))
            }
        }
    }
}

/// Returns whether the request has a `:protocol` (RFC 8441 §4, RFC 9220), as the handshake of a WebSocket, which is a
/// `GET` request in HTTP/1.1.
///
/// Such a `CONNECT` has a path, and any other has none: HTTP/2 and HTTP/3 forbid it. Servers put the protocol itself
/// into an extension whose type is their own.
fn is_extended_connect<B>(request: &Request<B>) -> bool {
    *request.method() == Method::CONNECT
        && request.version() >= Version::HTTP_2
        && request.uri().path_and_query().is_some()
}

impl LockLayer {
    /// Creates a layer whose keys come from a template such as `user:<id:u64>`.
    ///
    /// See the [crate documentation](crate#keys) for the syntax.
    ///
    /// # Errors
    /// [`InvalidKey`](lock_runtime::LockErrorKind::InvalidKey) if the template is invalid; the error says how to
    /// correct it.
    pub fn new(locks: LockManager, template: &str) -> Result<Self, LockError> {
        Ok(Self::with_key(locks, KeyTemplate::parse(template)?))
    }

    /// Creates a layer that runs each request under several locks, all held at the same time.
    ///
    /// [`wait`](Self::wait) limits the total time for acquiring the locks, and losing one lock counts as losing all.
    /// The locks are acquired in order of name, so two requests with overlapping keys cannot deadlock each other
    /// while they acquire these locks. Equal keys count as one lock. The inner service finds a
    /// [`HeldLocks`](lock_runtime::HeldLocks) in the request's extensions.
    ///
    /// ```
    /// # #[cfg(feature = "axum")]
    /// # async fn example() -> Result<(), lock_runtime::LockError> {
    /// # let locks = lock_runtime::LockManager::connect("memory:").await?;
    /// use lock_tower::LockLayer;
    ///
    /// // For `/accounts/{from}/transfer?to=7`
    /// let lock = LockLayer::all(locks, ["account:<from:u64>", "account:<query.to:u64>"])?;
    /// # let _ = lock;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidKey`](LockErrorKind::InvalidKey) if a template is invalid, or if no template is given.
    pub fn all<T: AsRef<str>>(
        locks: LockManager,
        templates: impl IntoIterator<Item = T>,
    ) -> Result<Self, LockError> {
        let templates = templates.into_iter().map(|template| KeyTemplate::parse(template.as_ref()));
        let templates: Arc<[_]> = templates.collect::<Result<_, _>>()?;
        if templates.is_empty() {
            return Err(LockError::new(LockErrorKind::InvalidKey, "a layer of several locks without a key"));
        }
        Ok(Self::with_keys(locks, Keys::Several(templates)))
    }

    /// Creates a layer whose keys come from a closure.
    ///
    /// The closure can take the key from the caller's session, from a claim in its access token, or from an extension
    /// that another layer has inserted. If it returns `None`, the request runs without a lock. A layer that provides the
    /// session is outside the lock, so it [saves the session too late](crate#where-to-put-the-layer): save it in the
    /// handler.
    ///
    /// ```
    /// use lock_runtime::lock_key;
    /// use lock_tower::{KeyRejection, LockLayer};
    ///
    /// # async fn example() -> Result<(), lock_runtime::LockError> {
    /// # let locks = lock_runtime::LockManager::connect("memory:").await?;
    /// let lock = LockLayer::with_key_fn(locks, |parts| {
    ///     let tenant = parts.headers.get("x-tenant").and_then(|value| value.to_str().ok());
    ///     let tenant = tenant.ok_or_else(|| KeyRejection::bad_request("no `x-tenant`"))?;
    ///     // The same lock as in a function with `#[distributed_lock(key = "tenant:<tenant>")]`.
    ///     Ok(Some(lock_key!("tenant:<tenant>")?))
    /// });
    /// # let _ = lock;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_key_fn(
        locks: LockManager,
        key: impl Fn(&mut Parts) -> Result<Option<LockKey>, KeyRejection> + Send + Sync + 'static,
    ) -> Self {
        Self::with_key(locks, key)
    }

    /// Creates a layer whose keys come from a [`KeyExtractor`].
    ///
    /// A closure passed to this function needs type annotations, such as
    /// `|parts: &mut Parts| -> Result<_, KeyRejection>`. A closure passed to [`with_key_fn`](Self::with_key_fn) does
    /// not.
    #[must_use]
    pub fn with_key(locks: LockManager, key: impl KeyExtractor) -> Self {
        Self::with_keys(locks, Keys::One(Arc::new(key)))
    }

    fn with_keys(locks: LockManager, keys: Keys) -> Self {
        Self {
            locks: locks.max_hold(MAX_HOLD),
            keys,
            methods: Methods::Writing,
            wait: Duration::ZERO,
            hold_at_least: Duration::ZERO,
            reentrant: false,
            label: None,
            missing_key: MissingKey::default(),
            hold_until: HoldUntil::default(),
            on_lost: OnLost::default(),
            protocol: Protocol::default(),
            contended_status: StatusCode::CONFLICT,
            on_rejection: None,
        }
    }

    /// Sets how long the [lease](lock_runtime::docs::glossary) lasts if it is not renewed. The default is the manager's
    /// setting. See [`LockManager::ttl`].
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.locks = self.locks.ttl(ttl);
        self
    }

    /// Sets how long a request waits for its lock; zero by default, regardless of the manager's setting.
    ///
    /// A client's `grpc-timeout` can shorten the wait. See the [crate documentation](crate#waiting) for what a waiting
    /// request ties up.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Sets the maximum time that a request holds its lock, however often the lease is renewed; 5 minutes by default,
    /// regardless of the manager's setting. When this time is up, the request ends as if it had lost its lock.
    ///
    /// Nothing else in the layer limits how long a lock is held if the client has disappeared unnoticed, reads the
    /// response too slowly, or [sends the request too slowly](crate#slow-senders).
    #[must_use]
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.locks = self.locks.max_hold(max_hold);
        self
    }

    /// Sets the minimum time that the lock stays held, even if the response is sent earlier. By default, there is no
    /// minimum.
    ///
    /// Use this to guard against duplicate requests: the response is sent without waiting for the minimum time to pass,
    /// but a second request for the same key still finds the lock held. The minimum must not exceed
    /// [`max_hold`](Self::max_hold). See [`Lock::hold_at_least`](lock_runtime::Lock::hold_at_least).
    #[must_use]
    pub fn hold_at_least(mut self, hold_at_least: Duration) -> Self {
        self.hold_at_least = hold_at_least;
        self
    }

    /// Sets whether this layer uses the lock that an outer layer with the same key has already acquired for the
    /// request; `false` by default.
    ///
    /// With `false`, a request whose lock is already held by an outer layer is refused (500; the log gives the reason),
    /// because it would wait for a lock that it holds itself. Set this option on the inner layer; the outer layer does
    /// not need it. See [`Lock::reentrant`](lock_runtime::Lock::reentrant).
    #[must_use]
    pub fn reentrant(mut self, reentrant: bool) -> Self {
        self.reentrant = reentrant;
        self
    }

    /// Sets a label, by which operators recognise for what a lock is held; see
    /// [`Lock::label`](lock_runtime::Lock::label). A label has at most 63 bytes and no control characters; otherwise, every
    /// request is refused (500; the log gives the reason). An empty text means no label.
    ///
    /// By default, the label is the route as the program has written it, such as `/users/{id}/withdraw`, of which the last
    /// 63 bytes are kept. If the layer is not on a route of axum, for example around a gRPC server, the label is the
    /// [class](lock_runtime::LockKey::with_class) of the key: the template, such as `<rpc.service>/<rpc.method>`. A
    /// default label never contains what a client has sent, because anyone who may read the store can read the label.
    #[must_use]
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Sets the time after which a client should retry if the lock is held, as sent in `Retry-After` or `RetryInfo`.
    /// The default is the manager's setting. See [`LockManager::retry_after`].
    #[must_use]
    pub fn retry_after(mut self, retry_after: Duration) -> Self {
        self.locks = self.locks.retry_after(retry_after);
        self
    }

    /// Sets whether the lease is renewed while the request is processed. Without renewal, a request that holds the lock
    /// for longer than [`ttl`](Self::ttl) loses it. The default is the manager's setting.
    #[must_use]
    pub fn auto_renew(mut self, auto_renew: bool) -> Self {
        self.locks = self.locks.auto_renew(auto_renew);
        self
    }

    /// Sets the HTTP methods whose requests are locked; by default, all except `GET`, `HEAD`, `OPTIONS` and `TRACE`.
    ///
    /// The list replaces the default: requests with any other method run without a lock. `GET` includes `HEAD`, because
    /// axum calls the same handler for both, and the handshake of a WebSocket over HTTP/2, which is a `CONNECT` request
    /// with a `:protocol` (RFC 8441), because it is a `GET` request in HTTP/1.1.
    ///
    /// ```
    /// # async fn example() -> Result<(), lock_runtime::LockError> {
    /// # let locks = lock_runtime::LockManager::connect("memory:").await?;
    /// use http::Method;
    /// use lock_tower::LockLayer;
    ///
    /// let lock = LockLayer::new(locks, "report:<id>")?.methods([Method::GET, Method::POST]);
    /// # let _ = lock;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = Methods::These(methods.into_iter().collect());
        self
    }

    /// Sets what to do with a request that lacks a value used in the template; by default, it is refused.
    ///
    /// This option does not affect a closure, which decides for itself: it returns `None` for a request that is to run
    /// without a lock.
    #[must_use]
    pub fn missing_key(mut self, missing_key: MissingKey) -> Self {
        self.missing_key = missing_key;
        self
    }

    /// Sets how long a request holds its lock; [`Auto`](HoldUntil::Auto) by default.
    #[must_use]
    pub fn hold_until(mut self, hold_until: HoldUntil) -> Self {
        self.hold_until = hold_until;
        self
    }

    /// Sets whether the inner service is cancelled or runs to completion if the lock is lost;
    /// [`Cancel`](OnLost::Cancel) by default.
    ///
    /// Either way, the client gets 500 (in gRPC, `ABORTED`), even if the inner service's response had an error
    /// status. If the response is already being streamed, the stream ends with an error. The one exception: if the
    /// inner service's future resolves to `Err`, that error is passed on unchanged.
    #[must_use]
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.on_lost = on_lost;
        self
    }

    /// Sets the protocol of the responses to refused requests; by default, it depends on the request's `content-type`.
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// Sets the HTTP status of the response if another request holds the lock; 409 by default.
    #[must_use]
    pub fn contended_status(mut self, status: StatusCode) -> Self {
        self.contended_status = status;
        self
    }

    /// Sets the function that creates the response to a request that is refused or whose lock was lost. The default is
    /// [`LockRejection::response`]. The layer sends the returned response unchanged, including its status (200 for the
    /// text in this example).
    ///
    /// ```
    /// # async fn example() -> Result<(), lock_runtime::LockError> {
    /// # let locks = lock_runtime::LockManager::connect("memory:").await?;
    /// use http::Response;
    /// use lock_runtime::LockErrorKind;
    /// use lock_tower::LockLayer;
    ///
    /// let lock = LockLayer::new(locks, "user:<id>")?.on_rejection(|rejection| match rejection.kind() {
    ///     LockErrorKind::Contended => Response::new("one at a time, please".into()),
    ///     _ => rejection.response(),
    /// });
    /// # let _ = lock;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn on_rejection(
        mut self,
        answer: impl Fn(&LockRejection) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.on_rejection = Some(Arc::new(answer));
        self
    }

    /// Acquires the locks of a request.
    pub(crate) fn acquire(
        &self,
        keys: Found,
        wait: Duration,
        extensions: &Extensions,
    ) -> SyncFuture<Result<Guards, LockError>> {
        let default;
        let label = if let Some(label) = &self.label {
            label
        } else {
            default = label_of(extensions, &keys);
            default.as_str()
        };
        match keys {
            Found::One(key) => {
                let lock = self.locks.lock(key).wait(wait).hold_at_least(self.hold_at_least);
                let lock = lock.reentrant(self.reentrant).label(label);
                SyncFuture::new(Box::pin(async move { lock.acquire().await.map(Guards::from) }))
            }
            Found::Several(keys) => {
                let locks = self.locks.all(keys).wait(wait).hold_at_least(self.hold_at_least);
                let locks = locks.reentrant(self.reentrant).label(label);
                SyncFuture::new(Box::pin(async move { locks.acquire().await.map(Guards::from) }))
            }
        }
    }

    /// Logs a rejection and creates the response.
    pub(crate) fn answer(&self, rejection: &LockRejection) -> Response<Bytes> {
        rejection.log();
        self.on_rejection.as_ref().map_or_else(|| rejection.response(), |answer| answer(rejection))
    }
}

/// Returns the label of a request whose layer has none: the route, or else the class of the (first) key. The program has
/// written both; the path of the request, which a client has sent, must not get into the store.
fn label_of(extensions: &Extensions, keys: &Found) -> Label {
    #[cfg(feature = "axum")]
    if let Some(route) = extensions.get::<axum::extract::MatchedPath>() {
        return default_label(route.as_str());
    }
    #[cfg(not(feature = "axum"))]
    let _ = extensions;
    let key = match keys {
        Found::One(key) => Some(key),
        Found::Several(keys) => keys.first(),
    };
    let class = key.map(LockKey::class).filter(|class| *class != class::OTHER);
    default_label(class.unwrap_or_default())
}

impl fmt::Debug for LockLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockLayer")
            .field("locks", &self.locks)
            .field("methods", &self.methods)
            .field("wait", &self.wait)
            .field("hold_at_least", &self.hold_at_least)
            .field("reentrant", &self.reentrant)
            .field("label", &self.label)
            .field("missing_key", &self.missing_key)
            .field("hold_until", &self.hold_until)
            .field("on_lost", &self.on_lost)
            .field("protocol", &self.protocol)
            .field("contended_status", &self.contended_status)
            .finish_non_exhaustive()
    }
}
