//! The current session of a store, which all callers of the store share. Once the session is unusable, the next caller
//! makes another one.

use std::{fmt, future::Future, sync::Arc};

use super::{
    outage::Outage,
    single_flight::{Attempt, SingleFlight},
};
use crate::{LockError, backend::ServerStatus, background, time::clock::Instant};

/// Makes the sessions of a store.
pub(in crate::backend) trait Sessions: fmt::Debug + Send + Sync + 'static {
    type Session: fmt::Debug + Send + Sync;

    /// Returns whether new locks can be acquired in `session`.
    fn is_usable(session: &Self::Session) -> bool;

    /// Returns an error if this process cannot have a session.
    fn check(&self) -> Result<(), LockError> {
        Ok(())
    }

    /// Makes a session.
    fn open(
        &self,
        outage: &Arc<Outage>,
    ) -> impl Future<Output = Result<Arc<Self::Session>, LockError>> + Send;
}

/// The current session of a store.
#[derive(Debug)]
pub(in crate::backend) struct Link<S: Sessions> {
    sessions: S,
    current: SingleFlight<Arc<S::Session>>,
    outage: Arc<Outage>,
}

impl<S: Sessions> Link<S> {
    pub(in crate::backend) fn new(sessions: S, outage: Outage) -> Arc<Self> {
        Arc::new(Self { sessions, current: SingleFlight::default(), outage: Arc::new(outage) })
    }

    pub(in crate::backend) fn sessions(&self) -> &S {
        &self.sessions
    }

    /// Returns what is known of the servers.
    pub(in crate::backend) fn status(&self) -> Vec<ServerStatus> {
        vec![self.outage.status()]
    }

    /// Returns the current session, or makes a session if none is usable.
    ///
    /// Sessions are made on the library's own runtime, because a session outlives its caller's runtime.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(in crate::backend) async fn session(self: &Arc<Self>) -> Result<Arc<S::Session>, LockError> {
        let begin = |attempt| {
            self.sessions.check()?;
            background::handle().spawn(Self::connect(Arc::clone(self), attempt));
            Ok(())
        };
        self.current.get(|session| S::is_usable(session), begin, "connecting was given up").await
    }

    async fn connect(self: Arc<Self>, attempt: Attempt<Arc<S::Session>>) {
        let began = Instant::now();
        let made = self.sessions.open(&self.outage).await;
        match &made {
            Ok(_) => self.outage.ends(),
            Err(error) => self.outage.begins(began, error),
        }
        self.current.finish(attempt, made);
    }
}
