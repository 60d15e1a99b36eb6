//! Makes the sessions with the server.

use std::sync::Arc;

use sqlx::{Acquire as _, Row, postgres::PgListener};
use tokio::time::timeout;

use super::{config::Config, keeper::Keeper, names::KIND_OF_MARKS, session::Session, shared::Shared};
use crate::{
    LockError, LockErrorKind,
    backend::{
        FindingCode,
        common::{
            hedged::hedged,
            link::{self, Link},
            outage::Outage,
            server_clock::ServerClock,
        },
        kits::postgres::{
            error,
            listener::{self, Found},
            statement::{Arg, Form, micros},
        },
    },
    time::{backoff::random, clock::Instant},
};

/// The name of this kind of store, for metrics and traces.
pub(super) const NAME: &str = "postgres+advisory";

/// Creates the link, which holds the current session of a store. At first, the link has no session.
pub(super) fn link(config: Config) -> Arc<Link<Arc<Shared>>> {
    let address = config.of_server.address().clone();
    Link::new(Shared::new(config), Outage::of(NAME, "PostgreSQL", address, "no lock is granted"))
}

impl Shared {
    pub(super) fn names(&self) -> Vec<String> {
        // Two tables of one database share the advisory locks.
        let identity = self.fitness.identity().and_then(|identity| {
            let (of_database, _) = identity.rsplit_once('/')?;
            Some(format!("postgres+advisory:{of_database}"))
        });
        [self.config.name()].into_iter().chain(identity).collect()
    }

    /// Connects, and prepares the session; returns its connection, its process with the number of its mark, and the
    /// moment from which its deadline counts.
    async fn connect(&self) -> Result<(PgListener, (i32, i64), Instant), LockError> {
        let Self { config: Config { of_server, session_timeout }, statements, fitness, notices, .. } = self;
        let listener = listener::connect(&notices.channel, of_server, listener::Session::Own).await;
        let listener = listener.map_err(|error| error::cannot_connect(error, of_server))?;
        let mut listener = match listener {
            Found::Notified(listener) => listener,
            Found::Unnotified(listener, cause) => {
                notices.refused(&cause);
                listener
            }
            Found::Pooled => return Err(error::pooled(of_server)),
        };
        let explain = |error| error::explain(error, of_server);
        let connection = listener.acquire().await.map_err(explain)?;
        fitness.check(connection, of_server, &ServerClock::default(), false).await?;
        let sent = Instant::now();
        let form = Form::Text { lock_timeout: of_server.lock_timeout() };
        // Not negative, because `pg_locks` shows the number without its sign.
        let mark = i64::from(random() >> 1);
        let args = [micros(*session_timeout), Arg::Number(KIND_OF_MARKS), Arg::Number(mark)];
        let rows = statements.begin.fetch(connection, &args, form).await;
        let rows = rows.map_err(|error| {
            // undefined_object
            if error::has_code(&error, &["42704"]) {
                let message = format!(
                    "PostgreSQL at {} is too old for `postgres+advisory:`, which needs version 14; use `postgres:`",
                    of_server.address()
                );
                return LockError::new(LockErrorKind::Unsupported, message).with_fault(FindingCode::Version);
            }
            explain(error)
        })?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound).map_err(explain)?;
        if !row.try_get::<bool, _>("is_marked").map_err(explain)? {
            return Err(error::backend("another session has the mark that was chosen for this session"));
        }
        let pid = row.try_get("pid").map_err(explain)?;
        Ok((listener, (pid, mark), sent))
    }
}

impl link::Sessions for Arc<Shared> {
    type Session = Session;

    fn is_usable(session: &Session) -> bool {
        !session.lifetime.has_ended() && !session.is_suspect()
    }

    async fn open(&self, outage: &Arc<Outage>) -> Result<Arc<Session>, LockError> {
        let of_server = &self.config.of_server;
        // Two connections are made, one after the other: the second becomes the session's connection, and the first
        // serves to prove that no pooler gives the session to other clients.
        let limit = of_server.connect_timeout * 2;
        let connecting = || async {
            let connected = timeout(limit, self.connect()).await;
            connected.unwrap_or_else(|_| Err(error::out_of_reach(limit, of_server)))
        };
        let (listener, (pid, mark), sent) = hedged(connecting).await?;
        let (session, requests) = Session::new(Arc::clone(self), (pid, mark), sent);
        tracing::debug!(pid, "session with PostgreSQL");
        tokio::spawn(Keeper::new(&session, listener, requests, Arc::clone(outage)).keep());
        Ok(session)
    }
}
