//! A lock that is held in a session.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::{sync::SetOnce, time::timeout};

use super::{
    names::Name,
    session::{End, Free, Session},
};
use crate::{
    LockError, LockKey,
    backend::{
        self, BoxFuture, LossNotifier, Releasable, Released, common::inquiry::Inquiry, kits::postgres::error,
    },
    time::clock::Instant,
};

/// A lock that is held in a session; given back in the background when dropped.
#[derive(Debug)]
pub(super) struct Hold {
    session: Arc<Session>,
    key: LockKey,
    name: Name,
    /// Whether the keeper was asked to give the lock back.
    asked: AtomicBool,
    end: Arc<SetOnce<End>>,
    /// Whether the caller knows that its release was not confirmed.
    told: AtomicBool,
    inquiry: Inquiry,
}

impl Hold {
    pub(super) fn new(session: &Arc<Session>, key: LockKey, name: Name) -> Arc<Self> {
        Arc::new(Self {
            session: Arc::clone(session),
            key,
            name,
            asked: AtomicBool::new(false),
            end: Arc::default(),
            told: AtomicBool::new(false),
            inquiry: Inquiry::since(Instant::now()),
        })
    }

    fn give_back(&self) {
        if !self.asked.swap(true, Ordering::SeqCst) {
            self.session.free(Free { name: self.name.clone(), end: Arc::clone(&self.end) });
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl Releasable for Hold {
    fn key(&self) -> &LockKey {
        &self.key
    }

    fn release(&self) -> BoxFuture<'_, Result<Released, LockError>> {
        Box::pin(async move {
            self.give_back();
            let limit = self.session.shared.config.of_server.response_timeout;
            match timeout(limit, self.end.wait()).await {
                Ok(End::Released) => Ok(Released::Released),
                Ok(End::Broken) if !self.told.swap(true, Ordering::SeqCst) => Err(error::backend(
                    "the session with PostgreSQL ended during the release; the lock ended with it",
                )),
                Ok(End::NotHeld | End::Broken) => Ok(Released::NotHeld),
                // The session may end between the sending of a request and its receipt, which leaves no answer.
                Err(_) if self.session.lifetime.has_ended() => Ok(Released::NotHeld),
                Err(_) => Err(self.session.silent()),
            }
        })
    }
}

impl backend::Session for Hold {
    fn valid_until(&self) -> Instant {
        let over = self.asked.load(Ordering::Acquire);
        if over { Instant::from_nanos(0) } else { self.session.lifetime.valid_until() }
    }

    fn on_loss(self: Arc<Self>, notifier: LossNotifier) {
        self.session.lifetime.register(self.name.number, (), notifier);
    }

    fn wanted(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.inquiry.until_yes(|| self.session.is_wanted(&self.name)))
    }
}
