//! What a store knows of a lock's holder and of the waiters, for operators.

use std::time::{Duration, SystemTime};

use crate::FencingToken;

/// A holder of a lock, as the store knows it; see [`LockManager::inspect`](crate::LockManager::inspect).
///
/// Everything in here is what the holder's client has stated, so it is a hint for operators and no proof.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockHolder {
    client: Option<String>,
    label: Option<String>,
    since: Option<SystemTime>,
    remaining: Option<Duration>,
    token: Option<FencingToken>,
    foreign: bool,
    revoked: bool,
}

impl LockHolder {
    /// Describes a holder of which nothing is known.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            client: None,
            label: None,
            since: None,
            remaining: None,
            token: None,
            foreign: false,
            revoked: false,
        }
    }

    /// Sets the process, as `<program>:<pid>@<host>`.
    #[must_use]
    pub fn with_client(mut self, client: impl Into<String>) -> Self {
        self.client = Some(client.into()).filter(|client| !client.is_empty());
        self
    }

    /// Sets the label; an empty text is none.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into()).filter(|label| !label.is_empty());
        self
    }

    /// Sets the time at which the store granted the lock, by the store's clock.
    #[must_use]
    pub const fn with_since(mut self, since: Option<SystemTime>) -> Self {
        self.since = since;
        self
    }

    /// Sets the remaining time of the lease; [`Duration::MAX`] if the lock never becomes free by itself.
    #[must_use]
    pub const fn with_remaining(mut self, remaining: Option<Duration>) -> Self {
        self.remaining = remaining;
        self
    }

    /// Sets the fencing token of the grant.
    #[must_use]
    pub const fn with_token(mut self, token: FencingToken) -> Self {
        self.token = Some(token);
        self
    }

    /// Marks the holder as a client of another library.
    #[must_use]
    pub const fn foreign(mut self) -> Self {
        self.foreign = true;
        self
    }

    /// Marks the grant as [revoked](crate::LockManager::revoke): the holder keeps the lock until it has released it, or
    /// until its deadline has passed.
    #[must_use]
    pub const fn revoked(mut self) -> Self {
        self.revoked = true;
        self
    }

    /// Returns the process that holds the lock, as `<program>:<pid>@<host>`, if the store knows it.
    #[must_use]
    pub fn client(&self) -> Option<&str> {
        self.client.as_deref()
    }

    /// Returns the [label](crate::Lock::label) of the acquisition that the store granted, if it has one. If the lock
    /// was handed over within the process since then, the current holder may have another label.
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    /// Returns when the store granted the lock, by the store's clock, if that is known. Hand-overs within the process
    /// do not change this time.
    #[must_use]
    pub const fn since(&self) -> Option<SystemTime> {
        self.since
    }

    /// Returns the remaining time of the holder's lease if it is not renewed again; [`Duration::MAX`] if the lock never
    /// becomes free by itself. `None` for a session lock, which lasts as long as the holder's session.
    #[must_use]
    pub const fn remaining(&self) -> Option<Duration> {
        self.remaining
    }

    /// Returns the first fencing token of the grant, which [`LockManager::revoke`](crate::LockManager::revoke) takes;
    /// `None` if the holder has none, as a client of another library, or if the store does not show it yet, right after
    /// the grant.
    #[must_use]
    pub const fn token(&self) -> Option<FencingToken> {
        self.token
    }

    /// Returns whether the holder is a client of another library.
    #[must_use]
    pub const fn is_foreign(&self) -> bool {
        self.foreign
    }

    /// Returns whether the grant is [revoked](crate::LockManager::revoke), and the holder has not released the lock yet.
    #[must_use]
    pub const fn is_revoked(&self) -> bool {
        self.revoked
    }
}

/// A client that waits for a lock, as the store knows it; see [`LockManager::inspect`](crate::LockManager::inspect).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockWaiter {
    client: Option<String>,
    label: Option<String>,
}

impl LockWaiter {
    /// Describes a waiter of which nothing is known.
    #[must_use]
    pub const fn new() -> Self {
        Self { client: None, label: None }
    }

    /// Sets the process, as `<program>:<pid>@<host>`.
    #[must_use]
    pub fn with_client(mut self, client: impl Into<String>) -> Self {
        self.client = Some(client.into()).filter(|client| !client.is_empty());
        self
    }

    /// Sets the label; an empty text is none.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into()).filter(|label| !label.is_empty());
        self
    }

    /// Returns the process that waits, as `<program>:<pid>@<host>`, if the store knows it. It waits once, however many
    /// of its tasks wait.
    #[must_use]
    pub fn client(&self) -> Option<&str> {
        self.client.as_deref()
    }

    /// Returns the [label](crate::Lock::label) of the acquisition that waits, if the store knows it.
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }
}
