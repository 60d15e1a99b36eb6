//! What a store knows of its servers without asking them.

use std::time::Duration;

use super::Instant;
use crate::LockError;

/// What this process knows of a server of a store; see [`LockManager::status`](crate::LockManager::status).
///
/// Nothing is sent to learn it: a server that is not used may have gone without a notice. A store has an entry for each
/// server of which a majority has to answer, or else a single entry; without an entry, it counts as always reachable.
#[derive(Clone, Debug)]
pub struct ServerStatus {
    address: String,
    reached: Option<Instant>,
    answered: Option<Instant>,
    outage: Option<(Instant, LockError)>,
}

impl ServerStatus {
    /// Describes a server at this address that has not been reached yet.
    #[must_use]
    pub fn new(address: impl Into<String>) -> Self {
        Self { address: address.into(), reached: None, answered: None, outage: None }
    }

    /// Sets since when the server has been reached without an interruption.
    #[must_use]
    pub const fn with_connection(mut self, since: Option<Instant>) -> Self {
        self.reached = since;
        self
    }

    /// Sets when the last answer of the server came.
    #[must_use]
    pub const fn with_last_answer(mut self, at: Option<Instant>) -> Self {
        self.answered = at;
        self
    }

    /// Sets since when the server has been away, and why.
    #[must_use]
    pub fn with_outage(mut self, since: Instant, error: LockError) -> Self {
        self.outage = Some((since, error));
        self
    }

    /// Returns the address, as the URL of the store states it. The servers of a session (ZooKeeper) are one entry, and so is the primary that
    /// Sentinels name.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns whether the server could be reached when it was used last. False before the first use.
    #[must_use]
    pub const fn is_reachable(&self) -> bool {
        self.reached.is_some()
    }

    /// Returns for how long the server has been reached without an interruption; `None` while it is
    /// [not reachable](Self::is_reachable).
    #[must_use]
    pub fn connected_for(&self) -> Option<Duration> {
        self.reached.map(age)
    }

    /// Returns how long ago the last answer came; `None` if none has come yet. The answer to a session's heartbeat
    /// counts, too. While a store without a session is not used, its servers have nothing to answer, so a high age alone
    /// is no failure.
    #[must_use]
    pub fn last_answer_age(&self) -> Option<Duration> {
        self.answered.map(age)
    }

    /// Returns how long the outage has lasted that the [log](crate::docs::operation#what-is-logged) has reported as a
    /// warning or an error, and not as over.
    ///
    /// During an outage, the server may be [reachable](Self::is_reachable) all the same: over connections that were made
    /// before it began to refuse new ones.
    #[must_use]
    pub fn outage_for(&self) -> Option<Duration> {
        self.outage.as_ref().map(|(since, _)| age(*since))
    }

    /// Returns the latest error of the [outage](Self::outage_for).
    #[must_use]
    pub fn error(&self) -> Option<&LockError> {
        self.outage.as_ref().map(|(_, error)| error)
    }
}

fn age(moment: Instant) -> Duration {
    Instant::now().saturating_duration_since(moment)
}
