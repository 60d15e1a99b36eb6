//! Extracts a lock's key from a request.

use std::borrow::Cow;

use http::{Request, request::Parts};
use lock_runtime::{LockError, LockErrorKind, LockKey};

/// Determines the key of a request's lock.
///
/// Functions and closures implement this trait; [`LockLayer::with_key_fn`](crate::LockLayer::with_key_fn) accepts a
/// closure without type annotations. Implement the trait for your own type if the extractor has settings:
///
/// ```
/// use http::request::Parts;
/// use lock_runtime::{LockKey, LockManager, lock_key};
/// use lock_tower::{KeyExtractor, KeyRejection, LockLayer};
///
/// struct ByHeader(&'static str);
///
/// impl KeyExtractor for ByHeader {
///     fn extract(&self, parts: &mut Parts) -> Result<Option<LockKey>, KeyRejection> {
///         let value = parts.headers.get(self.0).and_then(|value| value.to_str().ok());
///         let value = value.ok_or_else(|| KeyRejection::bad_request(format!("no header `{}`", self.0)))?;
///         Ok(Some(lock_key!("tenant:<value>")?))
///     }
/// }
///
/// # async fn example() -> Result<(), lock_runtime::LockError> {
/// # let locks = LockManager::connect("memory:").await?;
/// let lock = LockLayer::with_key(locks, ByHeader("x-tenant"));
/// # let _ = lock;
/// # Ok(())
/// # }
/// ```
///
/// The extractor runs for every request whose HTTP method is [subject to locking](crate::LockLayer::methods), before
/// the layer contacts the store. It must not block the thread.
pub trait KeyExtractor: Send + Sync + 'static {
    /// Returns the key of this request, or `None` to let it run without a lock.
    ///
    /// # Errors
    /// Returns a [`KeyRejection`] if the request has no key but must not run without a lock.
    fn extract(&self, parts: &mut Parts) -> Result<Option<LockKey>, KeyRejection>;
}

impl<F> KeyExtractor for F
where
    F: Fn(&mut Parts) -> Result<Option<LockKey>, KeyRejection> + Send + Sync + 'static,
{
    fn extract(&self, parts: &mut Parts) -> Result<Option<LockKey>, KeyRejection> {
        self(parts)
    }
}

/// The error that a [`KeyExtractor`] returns for a request that is refused because no key could be determined.
///
/// A [`LockError`] can be converted into a `KeyRejection`, for example with `?`. An error of kind
/// [`InvalidKey`](LockErrorKind::InvalidKey) becomes a [client error](Self::bad_request). Every other error
/// becomes a [server error](Self::internal).
#[derive(Clone, Debug)]
pub struct KeyRejection {
    pub(crate) fault: Fault,
    pub(crate) text: Cow<'static, str>,
    /// For the log.
    pub(crate) source: Option<LockError>,
    /// Whether a value that the template names is absent.
    pub(crate) missing: bool,
}

/// Tells who has to correct the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The client, which receives the text.
    Request,
    /// The operator, who finds the text in the log.
    Server,
}

impl KeyRejection {
    /// Creates a rejection for a client error: the response is 400.
    ///
    /// The client receives `text`, which should say what is missing and must not contain anything secret.
    #[must_use]
    pub fn bad_request(text: impl Into<Cow<'static, str>>) -> Self {
        Self { fault: Fault::Request, text: text.into(), source: None, missing: false }
    }

    /// Creates a rejection for a server error: the response is 500.
    ///
    /// `text` is logged but not sent to the client.
    #[must_use]
    pub fn internal(text: impl Into<Cow<'static, str>>) -> Self {
        Self { fault: Fault::Server, text: text.into(), source: None, missing: false }
    }

    pub(crate) fn with_source(mut self, source: LockError) -> Self {
        self.source = Some(source);
        self
    }

    pub(crate) fn missing(mut self) -> Self {
        self.missing = true;
        self
    }

    /// Adds the route to a text for the log.
    pub(crate) fn at<B>(mut self, request: &Request<B>) -> Self {
        if self.fault == Fault::Server {
            self.text = format!("{} {}: {}", request.method(), route(request), self.text).into();
        }
        self
    }
}

/// Returns the route as it was written, or the path if no route is known.
fn route<B>(request: &Request<B>) -> &str {
    #[cfg(feature = "axum")]
    if let Some(route) = request.extensions().get::<axum::extract::MatchedPath>() {
        return route.as_str();
    }
    request.uri().path()
}

impl From<LockError> for KeyRejection {
    fn from(error: LockError) -> Self {
        if error.kind() == LockErrorKind::InvalidKey {
            Self::bad_request("the lock key in this request is empty, too long or not allowed")
        } else {
            Self::internal("no key")
        }
        .with_source(error)
    }
}
