//! The extraction of a lock's key from a request.

use std::borrow::Cow;

use http::request::Parts;
use lock_runtime::{LockError, LockErrorKind, LockKey};

/// Finds the key of a request's lock.
///
/// Functions and closures are key extractors; [`LockLayer::with_key_fn`](crate::LockLayer::with_key_fn) takes a
/// closure without type annotations. Implement the trait for a type that has settings:
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
/// It runs for every request whose method is locked, before the store is asked, and must not block.
pub trait KeyExtractor: Send + Sync + 'static {
    /// Returns the key of this request, or `None` to let it run without a lock.
    ///
    /// # Errors
    /// If there is no key, and the request must not run without one.
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

/// Why a request has no key and is refused.
///
/// It can be made from a [`LockError`]: an invalid name is the client's fault, every other error the server's.
#[derive(Clone, Debug)]
pub struct KeyRejection {
    pub(crate) fault: Fault,
    pub(crate) text: Cow<'static, str>,
    /// For the log.
    pub(crate) source: Option<LockError>,
    /// Whether a value that the template names is absent.
    pub(crate) missing: bool,
}

/// Who has to correct the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The client, which receives the text.
    Request,
    /// The operator; the text goes into the log.
    Server,
}

impl KeyRejection {
    /// Creates a rejection that is the client's fault: 400.
    ///
    /// The client reads `text`, which should say what is missing, and contain nothing secret.
    #[must_use]
    pub fn bad_request(text: impl Into<Cow<'static, str>>) -> Self {
        Self { fault: Fault::Request, text: text.into(), source: None, missing: false }
    }

    /// Creates a rejection that is the server's fault: 500.
    ///
    /// `text` goes into the log, and the client does not see it.
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
