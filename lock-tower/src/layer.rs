//! The layer and its options.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Response, StatusCode, request::Parts};
use lock_runtime::{
    __private::{Guards, SyncFuture},
    LockError, LockErrorKind, LockKey, LockManager,
};

use crate::{
    HoldUntil, KeyExtractor, KeyRejection, LockRejection, MissingKey, OnLost, Protocol,
    keys::{Found, Keys},
    template::KeyTemplate,
};

/// The default of [`LockLayer::max_hold`].
const MAX_HOLD: Duration = Duration::from_secs(5 * 60);

/// Runs each request under the lock of its key.
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
/// The [crate's page](crate) says where to put it, what a key can be made of, how long a lock is held, and how a
/// request is answered without it.
///
/// | option | default |
/// |---|---|
/// | [`ttl`](Self::ttl), how long a lock outlives a crash of its holder | the manager's: 30 s |
/// | [`wait`](Self::wait), how long a request waits | 0 s |
/// | [`max_hold`](Self::max_hold), the maximum time a request holds it | 5 min |
/// | [`hold_at_least`](Self::hold_at_least), the minimum time | 0 s |
/// | [`auto_renew`](Self::auto_renew), whether the lease is renewed | the manager's: `true` |
/// | [`retry_after`](Self::retry_after), the advised pause while the lock is held | the manager's: 1 s |
/// | [`contended_status`](Self::contended_status) | 409 |
/// | [`methods`](Self::methods) | all but `GET`, `HEAD`, `OPTIONS`, `TRACE` |
/// | [`missing_key`](Self::missing_key) | [`Reject`](MissingKey::Reject) |
/// | [`hold_until`](Self::hold_until) | [`Auto`](HoldUntil::Auto) |
/// | [`on_lost`](Self::on_lost) | [`Cancel`](OnLost::Cancel) |
/// | [`reentrant`](Self::reentrant) | `false` |
/// | [`protocol`](Self::protocol) | by the request's `content-type` |
///
/// # Cancel safety
/// Dropping the response future, or a response body that holds the lock, drops the inner future or body and then
/// releases the lock in the background; a lock that was still being acquired is given back.
#[derive(Clone)]
pub struct LockLayer {
    /// The manager, with the layer's options as its defaults.
    locks: LockManager,
    pub(crate) keys: Keys,
    pub(crate) methods: Methods,
    pub(crate) wait: Duration,
    hold_at_least: Duration,
    reentrant: bool,
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
    /// All methods but those that only read.
    Writing,
    These(Arc<[Method]>),
}

impl Methods {
    pub(crate) fn contains(&self, method: &Method) -> bool {
        match self {
            Self::Writing => !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE),
            // Servers answer `HEAD` with the handler of `GET`.
            Self::These(methods) => {
                methods.contains(method) || (*method == Method::HEAD && methods.contains(&Method::GET))
            }
        }
    }
}

impl LockLayer {
    /// Creates a layer whose keys come from a template, `user:<id:u64>`; see [the crate's page](crate#keys).
    ///
    /// # Errors
    /// [`InvalidKey`](lock_runtime::LockErrorKind::InvalidKey) for an invalid template; the error says what to write.
    pub fn new(locks: LockManager, template: &str) -> Result<Self, LockError> {
        Ok(Self::with_key(locks, KeyTemplate::parse(template)?))
    }

    /// Creates a layer of several locks for each request, which are held together: all or none.
    ///
    /// There is one wait for all, and the loss of one is the loss of all. They are acquired in the order of their
    /// names, so that requests never wait for each other in a circle. Two keys that turn out to be equal are one
    /// lock. The inner service finds [`HeldLocks`](lock_runtime::HeldLocks) in the request's extensions.
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
    /// [`InvalidKey`](LockErrorKind::InvalidKey) for an invalid template, and if there is no template.
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

    /// Creates a layer whose keys come from a closure: from the caller's session, a claim of its token, or an
    /// extension that another layer inserted. `None` lets the request run without a lock.
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
    /// A closure needs type annotations here, `|parts: &mut Parts| -> Result<_, KeyRejection>`; with
    /// [`with_key_fn`](Self::with_key_fn) it needs none.
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
            missing_key: MissingKey::default(),
            hold_until: HoldUntil::default(),
            on_lost: OnLost::default(),
            protocol: Protocol::default(),
            contended_status: StatusCode::CONFLICT,
            on_rejection: None,
        }
    }

    /// Sets how long the lease lasts unless it is renewed, by default as set in the manager. See [`LockManager::ttl`].
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.locks = self.locks.ttl(ttl);
        self
    }

    /// Sets how long a request waits for its lock; zero by default, whatever the manager's is.
    ///
    /// The `grpc-timeout` of a client can shorten the wait. See [the crate's page](crate#waiting) for the costs of
    /// waiting.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Sets the maximum time that a request holds its lock, however often it is renewed; 5 minutes by default,
    /// whatever the manager's is. After it, the request ends as one that lost its lock.
    ///
    /// It ends holds that nothing else ends: those for a client that disappeared unnoticed, reads its answer too
    /// slowly, or [sends its request too slowly](crate#slow-senders).
    #[must_use]
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.locks = self.locks.max_hold(max_hold);
        self
    }

    /// Sets the minimum time that the lock stays held, even if the request is answered earlier. None by default.
    ///
    /// This is for requests that a client sends twice: the answer does not wait for it, and the next request for the
    /// key finds the lock held. It must not exceed [`max_hold`](Self::max_hold). See
    /// [`Lock::hold_at_least`](lock_runtime::Lock::hold_at_least).
    #[must_use]
    pub fn hold_at_least(mut self, hold_at_least: Duration) -> Self {
        self.hold_at_least = hold_at_least;
        self
    }

    /// Sets whether a request that already runs under the lock, by an outer layer of the same key, shares that hold;
    /// off by default.
    ///
    /// If off, such a request would wait for itself, and is refused (500, and the log says so). Only an inner layer
    /// needs this option. See [`Lock::reentrant`](lock_runtime::Lock::reentrant).
    #[must_use]
    pub fn reentrant(mut self, reentrant: bool) -> Self {
        self.reentrant = reentrant;
        self
    }

    /// Sets the pause advised to a client that finds the lock held, in `Retry-After` or `RetryInfo`, by default as
    /// set in the manager. See [`LockManager::retry_after`].
    #[must_use]
    pub fn retry_after(mut self, retry_after: Duration) -> Self {
        self.locks = self.locks.retry_after(retry_after);
        self
    }

    /// Sets whether the lease is renewed while the request is processed, by default as set in the manager. Without
    /// renewal the lock is lost after `ttl`.
    #[must_use]
    pub fn auto_renew(mut self, auto_renew: bool) -> Self {
        self.locks = self.locks.auto_renew(auto_renew);
        self
    }

    /// Sets the methods whose requests are locked; by default all but `GET`, `HEAD`, `OPTIONS` and `TRACE`. Other
    /// requests run without a lock. `GET` includes `HEAD`, which axum answers with the same handler.
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

    /// Sets the treatment of a request that lacks a value named by the template; it is rejected by default.
    ///
    /// A closure decides this itself: it returns `None` for a request that is to run without a lock.
    #[must_use]
    pub fn missing_key(mut self, missing_key: MissingKey) -> Self {
        self.missing_key = missing_key;
        self
    }

    /// Sets until when a request holds its lock; [`Auto`](HoldUntil::Auto) by default.
    #[must_use]
    pub fn hold_until(mut self, hold_until: HoldUntil) -> Self {
        self.hold_until = hold_until;
        self
    }

    /// Sets what happens to work whose lock is lost; [`Cancel`](OnLost::Cancel) by default.
    #[must_use]
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.on_lost = on_lost;
        self
    }

    /// Sets the protocol in which refusals are answered; by default it depends on the request's `content-type`.
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// Sets the HTTP status of the answer if another request holds the lock; 409 by default.
    #[must_use]
    pub fn contended_status(mut self, status: StatusCode) -> Self {
        self.contended_status = status;
        self
    }

    /// Answers refused requests with the result of `answer`; with [`LockRejection::response`] by default.
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
    pub(crate) fn acquire(&self, keys: Found, wait: Duration) -> SyncFuture<Result<Guards, LockError>> {
        match keys {
            Found::One(key) => {
                let lock = self.locks.lock(key).wait(wait).hold_at_least(self.hold_at_least);
                let lock = lock.reentrant(self.reentrant);
                SyncFuture::new(Box::pin(async move { lock.acquire().await.map(Guards::from) }))
            }
            Found::Several(keys) => {
                let locks = self.locks.all(keys).wait(wait).hold_at_least(self.hold_at_least);
                let locks = locks.reentrant(self.reentrant);
                SyncFuture::new(Box::pin(async move { locks.acquire().await.map(Guards::from) }))
            }
        }
    }

    /// Logs a rejection and makes the answer.
    pub(crate) fn answer(&self, rejection: &LockRejection) -> Response<Bytes> {
        rejection.log();
        self.on_rejection.as_ref().map_or_else(|| rejection.response(), |answer| answer(rejection))
    }
}

impl fmt::Debug for LockLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockLayer")
            .field("locks", &self.locks)
            .field("methods", &self.methods)
            .field("wait", &self.wait)
            .field("hold_at_least", &self.hold_at_least)
            .field("reentrant", &self.reentrant)
            .field("missing_key", &self.missing_key)
            .field("hold_until", &self.hold_until)
            .field("on_lost", &self.on_lost)
            .field("protocol", &self.protocol)
            .field("contended_status", &self.contended_status)
            .finish_non_exhaustive()
    }
}
