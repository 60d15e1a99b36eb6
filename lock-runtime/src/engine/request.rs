//! A caller's request for a lock, as it is passed from the lock down to the store.

use crate::{
    LockError, LockErrorKind,
    backend::{Capabilities, LockId, Wait},
    engine::terms::Terms,
    metrics::{Meter, Metrics},
    options::LockOptions,
};

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) lock: LockId,
    pub(crate) options: LockOptions,
    pub(crate) wait: Wait,
}

impl Request {
    /// Returns the terms that a lease has to meet to serve this request.
    pub(crate) fn terms(&self) -> Terms {
        Terms { ttl: self.options.ttl, auto_renew: self.options.auto_renew }
    }

    /// Returns the metrics of this request's lock.
    pub(crate) fn meter(&self, metrics: &Metrics) -> Meter {
        metrics.meter(self.lock.key.class(), self.lock.mode.name())
    }

    /// Fails, before the store is asked, if the request is invalid or exceeds the store's capabilities.
    pub(crate) fn check(&self, store: Capabilities) -> Result<(), LockError> {
        self.check_mode(store)?;
        self.options.check(store)
    }

    /// Fails if the store does not support the mode of the lock.
    pub(crate) fn check_mode(&self, store: Capabilities) -> Result<(), LockError> {
        let LockId { key, mode } = &self.lock;
        if store.modes().allows(*mode) {
            return Ok(());
        }
        let message = format!("this store has no locks of the mode {mode:?}");
        Err(LockError::new(LockErrorKind::Unsupported, message).with_key(key))
    }
}
