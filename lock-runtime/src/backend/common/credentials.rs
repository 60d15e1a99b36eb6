//! Credentials that a program provides anew for each connection.

use std::{error::Error, fmt, future::Future, sync::Arc, time::Duration};

use tokio::time::timeout;

use crate::{LockError, backend::BoxFuture};

/// The user name and password for a new connection to a store, from a program whose credentials change while it runs.
///
/// A store that was created by the function `with_credentials` of its type asks the program for credentials before each
/// new connection, on the caller's runtime or on the library's own thread. The user and the password in the store's URL
/// are not used. The program has to answer within the store's setting `connect_timeout`. If a token that
/// serves as the password takes longer to get, the program should fetch this token in advance and keep it. See
/// [*Credentials that change*](crate::docs::operation#credentials-that-change).
///
/// The password does not appear in `Debug` output.
#[derive(Clone)]
pub struct Credentials {
    pub(in crate::backend) user: String,
    pub(in crate::backend) password: String,
}

impl Credentials {
    /// Creates credentials. In Redis, a password without a user name logs in as the user `default`.
    #[must_use]
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: user.into(), password: password.into() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

type Provide = dyn Fn() -> BoxFuture<'static, Result<Credentials, LockError>> + Send + Sync;

/// The program's function that returns its current credentials.
#[derive(Clone)]
pub(in crate::backend) struct Provider(Arc<Provide>);

impl Provider {
    pub(in crate::backend) fn new<F, E>(provide: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        Self(Arc::new(move || {
            let provided = provide();
            Box::pin(async {
                provided.await.map_err(|error| {
                    let message = "the program provided no credentials for a new connection to its store";
                    // A box of an error is not itself an `Error`, so it could not be a source.
                    let source: Arc<dyn Error + Send + Sync> = Arc::from(error.into());
                    LockError::backend(message).with_source(source)
                })
            })
        }))
    }

    /// Asks the program for its credentials, and waits for at most `limit`.
    ///
    /// # Cancel safety
    /// Cancel safe, if the program's function is cancel safe.
    pub(in crate::backend) async fn ask(&self, limit: Duration) -> Result<Credentials, LockError> {
        timeout(limit, (self.0)()).await.unwrap_or_else(|_| {
            let message = format!(
                "the program provided no credentials for a new connection to its store within {limit:?} \
                 (`connect_timeout`)"
            );
            Err(LockError::backend(message))
        })
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Provider")
    }
}
