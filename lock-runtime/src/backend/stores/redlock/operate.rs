//! What the store shows to operators, and how they take a lock from its holder.

use super::Redlock;
use crate::{
    LockError, LockKey,
    backend::{
        BoxFuture, Examination, Examined, LockState, Operate, Page, Revoke, Revoked, Scan, kits::unqueued,
    },
};

impl Operate for Redlock {
    fn inspect<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState, LockError>> {
        Box::pin(unqueued::inspect(&self.shared, key))
    }

    fn scan<'a>(&'a self, scan: &'a Scan) -> BoxFuture<'a, Result<Page, LockError>> {
        Box::pin(unqueued::scan(&self.shared, scan))
    }

    fn examine<'a>(&'a self, examination: &'a Examination) -> BoxFuture<'a, Result<Examined, LockError>> {
        Box::pin(unqueued::examine(&self.shared, examination))
    }

    fn revoke<'a>(&'a self, revoke: &'a Revoke) -> BoxFuture<'a, Result<Revoked, LockError>> {
        Box::pin(unqueued::revoke(&self.shared, revoke))
    }
}
