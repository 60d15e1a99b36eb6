//! The error type of this crate.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use crate::{LockHolder, LockKey, finding::FindingCode};

/// The kind of a [`LockError`]; the error's message has the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockErrorKind {
    /// Another caller, in this or another process, holds the lock, and the call does not wait.
    Contended,
    /// Another caller still held the lock at the end of the wait, or the future of the acquisition was [not polled in
    /// time](crate::docs::safety#unpolled-futures).
    Timeout,
    /// Another start of the job, or an earlier one of this caller, has the period: it runs, has run, or has marked the period
    /// and waits for the lock; see [`once_per`](crate::Lock::once_per).
    AlreadyRun,
    /// The lock was lost: it was held, and no longer is.
    Lost,
    /// The store cannot be reached, did not respond in time, or failed.
    Backend,
    /// The code that requests the lock is already running under this lock, so it would wait for itself; see
    /// [`reentrant`](crate::Lock::reentrant).
    WouldDeadlock,
    /// The current code does not run under the lock, although it is required to; see
    /// [`ensure_locked`](crate::ensure_locked).
    NotHeld,
    /// The name of the lock is not allowed; see [`LockKey`].
    InvalidKey,
    /// An option or a URL is invalid.
    InvalidOptions,
    /// The store, or this build of the crate, does not support what was requested, or the current tokio runtime does not
    /// have what the store needs: timers and I/O.
    Unsupported,
    /// A limit on waiters or held locks is reached (see [`Limits`](crate::Limits)), or the server's limit on connections,
    /// or the operating system's on threads or descriptors, so that the lock could not be renewed.
    Overloaded,
    /// The manager was shut down.
    ShutDown,
    /// A `#[distributed_lock]` has no `manager` argument, and no default manager is set; see
    /// [`set_global`](crate::set_global).
    NoManager,
}

/// Why a lock could not be acquired, was lost, or could not be released.
///
/// The message is one line for a human reader: what happened, to which lock or setting, and what to do. It never
/// contains a password or an [owner token](crate::OwnerToken). The errors of the store's client library are available
/// through [`source`](Error::source), except those whose text is already part of the message.
///
/// # What clients see
/// The message is meant for the log: it names the lock, and may name the address of the store. The responses that this
/// crate and lock-tower make contain neither. But an error type that is made from the text of any error shows it to
/// clients, as `?` does in a resolver of the GraphQL servers async-graphql and juniper. Choose a text by
/// [`kind`](Self::kind) there; `#[distributed_lock]` has the option
/// [`or_else`](https://docs.rs/lock-macros/latest/lock_macros/attr.distributed_lock.html#or_else) for that.
///
/// # In axum handlers
/// A handler that returns a `LockError` needs the feature `axum` of this crate, as in
/// `lock-runtime = { version = "0.1", features = ["axum"] }`. Without it, rustc reports one of these:
///
/// ```text
/// error[E0277]: the trait bound `fn() -> impl Future<Output = Result<(), LockError>> {report}: Handler<_, _>` is not satisfied
/// error[E0277]: the trait bound `LockError: IntoResponse` is not satisfied
/// ```
#[derive(Clone)]
pub struct LockError(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: LockErrorKind,
    key: Option<LockKey>,
    message: String,
    retry_after: Option<Duration>,
    /// The retry delay that a response suggests to a client.
    advice: Option<Duration>,
    permanent: bool,
    holder: Option<Arc<LockHolder>>,
    fault: Option<FindingCode>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl LockError {
    /// Creates an error of this kind. This is for implementations of [`Backend`](crate::backend::Backend).
    #[must_use]
    pub fn new(kind: LockErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            key: None,
            message: message.into(),
            retry_after: None,
            advice: None,
            permanent: false,
            holder: None,
            fault: None,
            source: None,
        }))
    }

    /// Creates an error of the kind [`Backend`](LockErrorKind::Backend).
    pub(crate) fn backend(message: impl Into<String>) -> Self {
        Self::new(LockErrorKind::Backend, message)
    }

    /// Adds the lock that the error is about.
    #[must_use]
    pub fn with_key(mut self, key: &LockKey) -> Self {
        self.0.key = Some(key.clone());
        self
    }

    /// Sets the time after which the lock may be free, or `None` if that is not known; see
    /// [`retry_after`](Self::retry_after).
    #[must_use]
    pub fn with_retry_after(mut self, retry_after: Option<Duration>) -> Self {
        self.0.retry_after = retry_after;
        self
    }

    /// Sets the retry delay that a response suggests to a client.
    pub(crate) fn advising(mut self, advice: Duration) -> Self {
        self.0.advice = Some(advice);
        self
    }

    /// Adds the holder of the lock, if it is known.
    pub(crate) fn with_holder(mut self, holder: Option<Arc<LockHolder>>) -> Self {
        self.0.holder = holder;
        self
    }

    pub(crate) fn advice(&self) -> Option<Duration> {
        self.0.advice
    }

    /// Marks the error as permanent: every retry fails until the program, its settings or those of the store are
    /// changed.
    ///
    /// Waiting acquisitions therefore fail at once, and the error is not [retryable](Self::is_retryable).
    #[must_use]
    pub fn into_permanent(mut self) -> Self {
        self.0.permanent = true;
        self
    }

    /// Marks the error as one that may pass by itself, for example because credentials are about to change.
    #[cfg(feature = "redis")]
    pub(crate) fn into_passing(mut self) -> Self {
        self.0.permanent = false;
        self
    }

    /// Adds the cause of the error. The text of the cause must not contain a secret.
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// Names the fault of the store's configuration that is the reason.
    #[must_use]
    pub fn with_fault(mut self, fault: impl Into<Option<FindingCode>>) -> Self {
        self.0.fault = fault.into();
        self
    }

    /// Replaces the message with a more detailed one.
    #[cfg(feature = "redis")]
    pub(crate) fn saying(mut self, message: String) -> Self {
        self.0.message = message;
        self
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> LockErrorKind {
        self.0.kind
    }

    /// Returns the lock that the error is about, if there is one.
    #[must_use]
    pub fn key(&self) -> Option<&LockKey> {
        self.0.key.as_ref()
    }

    /// Returns whether the same call may succeed later without a change to the program.
    ///
    /// This does not mean that it is safe to repeat the work. After [`Lost`](LockErrorKind::Lost), the lock can be
    /// acquired again, but part of the work may have been done, possibly while the next holder was already working.
    /// Repeat the work only if doing it twice does no harm, or if its writes are protected by the fencing token.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self.kind() {
            _ if self.0.permanent => false,
            LockErrorKind::Contended
            | LockErrorKind::Timeout
            | LockErrorKind::AlreadyRun
            | LockErrorKind::Lost
            | LockErrorKind::Backend
            | LockErrorKind::Overloaded => true,
            LockErrorKind::WouldDeadlock
            | LockErrorKind::NotHeld
            | LockErrorKind::InvalidKey
            | LockErrorKind::InvalidOptions
            | LockErrorKind::Unsupported
            | LockErrorKind::ShutDown
            | LockErrorKind::NoManager => false,
        }
    }

    /// Returns the time after which the lock may be free: the remaining time of the holder's lease, if it is known; after
    /// [`AlreadyRun`](LockErrorKind::AlreadyRun), the time until starts count for the next period.
    ///
    /// The holder may keep the lock longer by renewing its lease, or release it sooner. HTTP and gRPC responses
    /// therefore usually suggest a different delay: the one set with
    /// [`LockManager::retry_after`](crate::LockManager::retry_after).
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Returns the holder of the lock after [`Contended`](LockErrorKind::Contended) or
    /// [`Timeout`](LockErrorKind::Timeout), if the answer of the store stated it, or if the holder is in this process.
    /// Otherwise, ask with [`inspect`](crate::LockManager::inspect).
    ///
    /// This is for the log. The responses that this crate and lock-tower make do not contain the holder.
    #[must_use]
    pub fn holder(&self) -> Option<&LockHolder> {
        self.0.holder.as_deref()
    }

    /// Returns whether the error was [marked as permanent](Self::into_permanent), for example because of a wrong
    /// password.
    ///
    /// To decide whether to retry, use [`is_retryable`](Self::is_retryable), which also takes the kind into account.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.0.permanent
    }

    /// Returns the fault of the store's configuration that is the reason, if it is known, as an
    /// [examination](crate::LockManager::examine) calls it.
    #[must_use]
    pub fn fault(&self) -> Option<FindingCode> {
        self.0.fault
    }

    /// Returns the cause, even if its text is part of the message.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(crate) fn cause(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }

    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = &self.0.key {
            write!(f, "lock `{key}`: ")?;
        }
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("LockError");
        shown.field("kind", &self.0.kind);
        if let Some(key) = &self.0.key {
            shown.field("key", &key.as_str());
        }
        shown.field("message", &self.0.message);
        if self.0.permanent {
            shown.field("permanent", &true);
        }
        if let Some(retry_after) = self.0.retry_after {
            shown.field("retry_after", &retry_after);
        }
        if let Some(source) = &self.0.source {
            shown.field("source", source);
        }
        shown.finish()
    }
}

impl Error for LockError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let mut source: Option<&(dyn Error + 'static)> = self.0.source.as_deref().map(|source| source as _);
        // A driver's error may repeat the text of its source, and this message may repeat that of the driver's error.
        while let Some(error) = source {
            let (text, next) = (error.to_string(), error.source());
            let is_repeated = next.is_some_and(|next| next.to_string() == text);
            if !is_repeated && !self.0.message.contains(&text) {
                break;
            }
            source = next;
        }
        source
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_one_line_and_names_the_lock() {
        let error = LockError::new(LockErrorKind::Timeout, "it was still held after 5s")
            .with_key(&LockKey::new("user:42").expect("valid"))
            .with_retry_after(Some(Duration::from_secs(2)));
        assert_eq!(error.to_string(), "lock `user:42`: it was still held after 5s");
        assert!(error.is_retryable() && !error.clone().into_permanent().is_retryable());
        assert_eq!(error.retry_after(), Some(Duration::from_secs(2)));
    }

    #[test]
    fn no_line_of_a_chain_is_told_twice() {
        #[derive(Debug)]
        struct Said(&'static str, Option<Box<Said>>);
        impl fmt::Display for Said {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.0)
            }
        }
        impl Error for Said {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                self.1.as_deref().map(|source| source as _)
            }
        }
        let driver = || Said("reset", Some(Box::new(Said("reset", Some(Box::new(Said("code 104", None)))))));
        let chain = |error: LockError| {
            let mut lines = Vec::new();
            let mut next = error.source();
            while let Some(source) = next {
                lines.push(source.to_string());
                next = source.source();
            }
            lines
        };
        let error = |text: &str| LockError::new(LockErrorKind::Backend, text).with_source(driver());
        assert_eq!(chain(error("the connection failed")), ["reset", "code 104"]);
        assert_eq!(chain(error("the connection failed: reset")), ["code 104"]);
        assert_eq!(chain(error("the connection failed: reset (code 104)")), [""; 0]);
    }
}
