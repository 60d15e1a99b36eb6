//! The holders of one store in this process that are notified of revocations.

use std::sync::Mutex;

use crate::{backend::RevocationNotifier, sync::lock};

/// The notifiers of all managers that use a store.
#[derive(Debug, Default)]
pub(in crate::backend) struct Revocations(Mutex<Vec<RevocationNotifier>>);

impl Revocations {
    /// Adds a notifier, and drops those of managers that no longer exist.
    pub(in crate::backend) fn add(&self, notifier: RevocationNotifier) {
        let mut notifiers = lock(&self.0);
        notifiers.retain(RevocationNotifier::is_used);
        notifiers.push(notifier);
    }

    /// Lets the holder of the lock with this stored name, if it is in this process, renew its lease early.
    pub(in crate::backend) fn notify(&self, stored: &str) {
        lock(&self.0).retain(|notifier| notifier.notify(stored));
    }
}
