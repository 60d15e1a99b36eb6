//! What the store shows to operators, and how they take a lock from its holder.

use super::{Memory, RELEASE_LIMIT, now};
use crate::{
    FencingToken, LockError, LockErrorKind, LockKey,
    backend::{BoxFuture, LockState, Operate, Page, Revoke, Revoked, Scan, client_name},
    sync::Sharded,
    time::clock::Instant,
};

impl Operate for Memory {
    fn inspect<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState, LockError>> {
        Box::pin(async move {
            self.pass().await?;
            Ok(self.0.state.of(key.stored()).locks.inspect(key, &client_name(), now()))
        })
    }

    /// A page is a shard of the store, whose mutex is locked once for the names and once for each lock.
    fn scan<'a>(&'a self, scan: &'a Scan) -> BoxFuture<'a, Result<Page, LockError>> {
        Box::pin(async move {
            self.pass().await?;
            let number = scan.from.as_deref().map_or(Ok(0), str::parse::<u64>);
            let number = number
                .map_err(|_| LockError::new(LockErrorKind::InvalidOptions, "not a page of this store"))?;
            let stored: Vec<_> = self.0.state.at(number).locks.keys().map(LockKey::stored_name).collect();
            let (client, mut locks) = (client_name(), Vec::new());
            for key in stored.iter().filter_map(|stored| scan.key(stored)) {
                let lock = self.0.state.of(key.stored()).locks.inspect(&key, &client, now());
                locks.extend(Some(lock).filter(LockState::is_held));
            }
            let next = Some(number + 1).filter(|next| Sharded::<()>::numbers().contains(next));
            Ok(Page::new(locks, next.map(|next| next.to_string())))
        })
    }

    fn revoke<'a>(&'a self, revoke: &'a Revoke) -> BoxFuture<'a, Result<Revoked, LockError>> {
        Box::pin(async move {
            self.pass().await?;
            let (name, now) = (revoke.key.stored(), now());
            // No client of another library uses this store.
            let Some(fence) = revoke.token.map(FencingToken::micros) else { return Ok(Revoked::NotHeld) };
            let is_revoked = if revoke.is_forced {
                let mut state = self.0.state.of(name);
                let (was_held, next) = state.locks.revoke_by_force(name, fence, now);
                state.tell(next.as_ref(), now);
                was_held
            } else {
                self.0.state.of(name).locks.revoke(name, fence, now)
            };
            if !is_revoked {
                return Ok(Revoked::NotHeld);
            }
            self.0.revocations.notify(name);
            Ok(Revoked::Revoked)
        })
    }
}

impl Memory {
    async fn pass(&self) -> Result<(), LockError> {
        let sent = Instant::now();
        self.0.faults.pass(sent, sent + RELEASE_LIMIT).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{LockErrorKind, LockManager, backend::Memory};

    const SOON: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn a_live_holder_is_gone_soon_after_its_grant_was_revoked_and_none_is_granted_before() {
        let store = Memory::new();
        let [ours, theirs, operator] = [(); 3].map(|()| LockManager::new(store.clone()));
        let guard = ours.lock("k").label("job").acquire().await.expect("free");
        let shown = operator.inspect("k").await.expect("shown");
        assert_eq!(shown.holders[0].label(), Some("job"));
        let token = shown.holders[0].token().expect("a lease has one");
        assert_eq!(token, guard.fencing_token());
        assert!(operator.revoke("k", token).await.expect("answered"));
        tokio::time::timeout(SOON, guard.lost()).await.expect("notified");
        let error = guard.held().ensure_valid().expect_err("revoked");
        assert!(error.to_string().contains("revoked by an operator"), "{error}");
        assert!(operator.inspect("k").await.expect("shown").holders[0].is_revoked());
        let error = theirs.lock("k").wait(Duration::ZERO).acquire().await.expect_err("still held");
        assert_eq!(error.kind(), LockErrorKind::Contended);
        assert!(error.holder().is_some_and(crate::LockHolder::is_revoked), "{error:?}");
        drop(guard);
        theirs.lock("k").acquire().await.expect("free").release().await.expect("held");
        assert!(!operator.revoke("k", token).await.expect("answered"), "it is over");
    }

    #[tokio::test]
    async fn a_scan_finds_the_held_locks_under_its_prefix() {
        let locks = LockManager::new(Memory::new());
        let mut guards = Vec::new();
        for number in 0..100 {
            guards.push(locks.lock(format!("user:{number}")).acquire().await.expect("free"));
        }
        guards.push(locks.lock("order:1").acquire().await.expect("free"));
        let mut found = std::collections::BTreeSet::new();
        let mut scan = locks.scan("user:");
        while let Some(lock) = scan.next().await {
            found.insert(lock.expect("answered").key.as_str().to_owned());
        }
        assert_eq!(found, (0..100).map(|number| format!("user:{number}")).collect());
    }
}
