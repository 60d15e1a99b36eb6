#![doc = include_str!("docs.md")]

mod attempt;
mod attention;
mod config;
mod connect;
mod credentials;
mod diagnosis;
mod error;
mod examine;
pub mod fence;
mod heartbeat;
mod held_node;
mod hold;
mod marks;
mod names;
mod operate;
mod queue;
mod record;
mod session;
mod sessions;
mod tls;
mod url;
mod validity;
mod watches;
mod words;

use std::{fmt, sync::Arc};

use self::{
    attempt::{Attempt, Ended},
    config::Config,
    sessions::Sessions,
};
use crate::{
    LockError,
    backend::{
        Acquire, Acquired, Backend, BoxFuture, Capabilities, Marks, Mode, Operate, ServerStatus, Wait,
        common::link::Link,
    },
};

/// A ZooKeeper ensemble as a store.
///
/// Clones share one session. The [module documentation](self) describes requirements and guarantees.
#[derive(Clone)]
pub struct ZooKeeper {
    link: Arc<Link<Sessions>>,
}

impl ZooKeeper {
    /// Connects to `zookeeper://[user:password@]host[:port],…[/chroot][?setting=value&…]`.
    ///
    /// With the feature `tls-aws-lc-rs` or `tls-ring`, also connects to `zookeeper+tls://…`.
    ///
    /// # Errors
    /// [`InvalidOptions`](crate::LockErrorKind::InvalidOptions) if the URL is invalid,
    /// [`Unsupported`](crate::LockErrorKind::Unsupported) if the URL needs a feature that is not compiled in, or if
    /// this process was forked from one that had already connected to ZooKeeper,
    /// [`Backend`](crate::LockErrorKind::Backend) if no server responds, or if the servers refuse this client.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        let zookeeper = Self::connect_lazy(url)?;
        zookeeper.ping().await?;
        Ok(zookeeper)
    }

    /// Creates the store like [`connect`](Self::connect), but connects only when the store is first used.
    ///
    /// Operations that need the session fail if the servers do not respond or refuse this client. Until the servers
    /// have granted a session timeout, [`Capabilities::session_timeout`] is the one that the URL requests (10 s by
    /// default).
    ///
    /// # Errors
    /// [`InvalidOptions`](crate::LockErrorKind::InvalidOptions) if the URL is invalid,
    /// [`Unsupported`](crate::LockErrorKind::Unsupported) if the URL needs a feature that is not compiled in.
    pub fn connect_lazy(url: &str) -> Result<Self, LockError> {
        Ok(Self { link: Sessions::link(Config::from_url(url)?) })
    }
}

impl Backend for ZooKeeper {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new()
            .named(sessions::NAME)
            .shared_between_processes()
            .fair()
            .telling_of_waiters()
            .showing_locks()
            .revoking()
            .with_session_timeout(self.link.sessions().timeout())
    }

    fn names(&self) -> Vec<String> {
        self.link.sessions().config.stores()
    }

    fn status(&self) -> Vec<ServerStatus> {
        self.link.status()
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async { self.link.session().await?.answering().await.map_err(error::Failure::into_error) })
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }

    fn marks(&self) -> Option<&dyn Marks> {
        Some(self)
    }

    fn acquire(&self, request: Acquire) -> BoxFuture<'static, Result<Acquired, LockError>> {
        match request.mode {
            Mode::Exclusive => {}
        }
        let link = Arc::clone(&self.link);
        Box::pin(async move {
            let record = record::of(request.label);
            // An ended session is replaced. A node that vanishes from a live session was removed by hand.
            for _ in 0..3 {
                let session = link.session().await?;
                match Attempt::new(&request, &record, session).run().await? {
                    Ended::With(answer) => return Ok(answer),
                    Ended::Gone if request.wait != Wait::No && request.wait.end().has_passed() => break,
                    Ended::Gone => {}
                }
            }
            Err(attempt::gone())
        })
    }
}

impl fmt::Debug for ZooKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeper")
            .field("servers", &self.link.sessions().config.servers)
            .finish_non_exhaustive()
    }
}
