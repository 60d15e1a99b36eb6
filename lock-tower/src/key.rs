//! What a request's lock is named by.

use std::borrow::Cow;

use http::request::Parts;
use lock_runtime::{LockError, LockErrorKind, LockKey};

/// Finds the key of a request's lock.
///
/// Functions and closures are key extractors; [`LockLayer::with_key_fn`](crate::LockLayer::with_key_fn) takes a closure as
/// it is usually written. A type of one's own is one where it has settings:
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
/// It runs for every request whose method is locked, before anything is asked of the store, and must not block.
pub trait KeyExtractor: Send + Sync + 'static {
    /// The key of this request; `None` lets it run without a lock.
    ///
    /// # Errors
    /// When there is none, and the request must not run either.
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
/// It is made of a [`LockError`] as well: a name that is not allowed is the client's fault.
#[derive(Clone, Debug)]
pub struct KeyRejection {
    pub(crate) fault: Fault,
    pub(crate) text: Cow<'static, str>,
    /// For the log.
    pub(crate) source: Option<LockError>,
    /// A value that a template names is not there at all.
    pub(crate) missing: bool,
}

/// Who has to do something about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The client; it is told the text.
    Request,
    /// The operator's; the text goes into the log.
    Server,
}

impl KeyRejection {
    /// The client's fault: 400. The client reads `text`, so it should say what is missing and nothing that is secret.
    #[must_use]
    pub fn bad_request(text: impl Into<Cow<'static, str>>) -> Self {
        Self { fault: Fault::Request, text: text.into(), source: None, missing: false }
    }

    /// The server's fault: 500. `text` goes into the log, and the client does not see it.
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
            Self::bad_request("what names the lock in this request is empty, too long or not allowed")
        } else {
            Self::internal("no key")
        }
        .with_source(error)
    }
}
