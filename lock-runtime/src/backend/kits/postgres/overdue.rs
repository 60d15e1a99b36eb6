//! Statements that were not answered in time.
//!
//! While a session of the server waits for the lock of a row or for a replica, the session does not notice that its
//! client has gone. If this library closed the connection of an overdue statement and opened another connection,
//! sessions would pile up until the server accepts no more connections. Therefore, the connection of an overdue
//! statement stays in use until the server has ended the statement.
//!
//! A connection may also have gone mute, so that its answer never comes. Therefore, the server is asked over another
//! connection whether it still executes an overdue statement. A statement is never cancelled: a cancelled commit that
//! waits for a replica would become visible and notify the next holder, although the replica may lack it.

use std::sync::Arc;

use sqlx::ConnectOptions;
use tokio::{
    sync::{Mutex, oneshot},
    time::timeout,
};

use super::{config::Config, error, listener::value, slot::Checkout, statement::MARK};
use crate::{
    background,
    time::clock::{self, Instant},
};

/// The overdue statements of one store.
pub(super) struct Overdue {
    config: Config,
    /// When the server was last asked whether it executes an overdue statement, and the answer.
    last: Mutex<Option<(Instant, bool)>>,
    /// Each overdue statement has a clone of this value.
    statements: Arc<()>,
}

impl Overdue {
    pub(super) fn of(config: &Config) -> Arc<Self> {
        Arc::new(Self { config: config.clone(), last: Mutex::default(), statements: Arc::default() })
    }

    /// Returns whether a statement may still be executed although its caller has given it up.
    pub(super) fn is_any(&self) -> bool {
        Arc::strong_count(&self.statements) > 1
    }

    /// Keeps the connection of an overdue statement in use until the connection answers again or is broken, or until
    /// the server, asked over another connection, executes no overdue statement or cannot be reached.
    pub(super) fn keep(self: &Arc<Self>, checkout: Checkout) {
        tokio::spawn(Arc::clone(self).wait(checkout, Arc::clone(&self.statements)));
    }

    async fn wait(self: Arc<Self>, mut checkout: Checkout, _statement: Arc<()>) {
        let late = Instant::now();
        // The idle connections may be mute, too.
        let mut aside = checkout.set_idle_aside();
        let not_executed = async {
            while self.is_executed(late).await {
                aside.restore();
                clock::sleep_until(Instant::now() + self.config.response_timeout).await;
            }
        };
        let has_ended = tokio::select! {
            biased;
            has_ended = checkout.ended() => has_ended,
            () = not_executed => false,
        };
        if has_ended {
            aside.restore();
            checkout.give_back();
        } else {
            checkout.give_up();
        }
    }

    /// Returns whether the server may still be executing an overdue statement. An earlier answer counts if its question
    /// was put at `late` or later, and less than half of the response timeout ago. The question also finds overdue
    /// statements that other clients of this library have sent as the same database user.
    async fn is_executed(self: &Arc<Self>, late: Instant) -> bool {
        let (answer, answered) = oneshot::channel();
        let this = Arc::clone(self);
        // The question is put on the library's own thread, once for the statements of all runtimes.
        background::handle().spawn(async move {
            let mut last = this.last.lock().await;
            let is_recent =
                |at: &Instant| *at >= late && !(*at + this.config.response_timeout / 2).has_passed();
            let is_executed = match &*last {
                Some((at, is_executed)) if is_recent(at) => *is_executed,
                _ => {
                    let at = Instant::now();
                    let is_executed = this.ask().await;
                    *last = Some((at, is_executed));
                    is_executed
                }
            };
            let _ = answer.send(is_executed);
        });
        answered.await.unwrap_or_default()
    }

    /// Asks over a new connection. The answer counts as yes if the server has no room for the connection, or makes it
    /// and then does not answer in time. If the connection or the question fails for another reason, the answer counts
    /// as no: then no connections pile up at the server.
    async fn ask(&self) -> bool {
        let limit = self.config.response_timeout;
        let Ok(options) = self.config.current().await else { return false };
        let mut connection = match timeout(limit, options.connect()).await {
            Ok(Ok(connection)) => connection,
            // too_many_connections
            Ok(Err(error)) => return error::has_code(&error, &["53300"]),
            Err(_) => return false,
        };
        let query = format!(
            "SELECT count(*) > 0 FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid() \
             AND query LIKE '{MARK}%' AND clock_timestamp() - query_start > interval '{} ms'",
            (limit / 2).as_millis()
        );
        // If all sessions of a pooler are waiting, the pooler still accepts connections, but answers no queries.
        timeout(limit, value(&mut connection, &query)).await.unwrap_or(Ok(true)).unwrap_or_default()
    }
}
