//! What a manager knows of its store and its locks without asking the store.

use super::LockManager;
use crate::backend::ServerStatus;

/// What this process knows of a store and of its own locks; the result of [`LockManager::status`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ManagerStatus {
    /// The servers of the store: one, or one for each node of a Redlock or each primary of a Redis Cluster; none for a store
    /// inside this process.
    pub servers: Vec<ServerStatus>,
    /// The locks that this manager and its clones hold: the guards that were neither released nor dropped, and the locks
    /// that are kept for [`hold_at_least`](crate::Lock::hold_at_least) after their guards have left. (The metric `lock_held`
    /// counts only the guards.)
    pub held: usize,
    /// The acquisitions that wait for a lock or for the store's answer.
    pub waiting: usize,
    /// The releases that have failed so far and are repeated: the store may still keep these locks.
    pub in_doubt: usize,
}

impl ManagerStatus {
    /// Returns whether a majority of the servers could be [reached](ServerStatus::is_reachable) when they were used
    /// last. Locks of a Redlock need a majority. In a Redis Cluster, each lock needs the primary of its slot alone, so
    /// locks of some names may fail although this returns true. True for a store inside this process; for any other, false
    /// before the first use.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        let reachable = self.servers.iter().filter(|server| server.is_reachable()).count();
        self.servers.is_empty() || reachable > self.servers.len() / 2
    }
}

impl LockManager {
    /// Returns what this process knows of the store and of its own locks, for a health check or a page for operators.
    ///
    /// Nothing is sent, so the call is cheap and returns at once, also during an outage. An unused store may have gone
    /// without a notice; [`ping`](Self::ping) asks it. The counts are those of this manager, its clones and the managers
    /// made from it by [`with_prefix`](Self::with_prefix), and are read one after the other.
    ///
    /// # Example
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lock_runtime::LockError> {
    /// # let locks = lock_runtime::LockManager::connect("memory:").await?;
    /// let guard = locks.lock("report").acquire().await?;
    /// let status = locks.status();
    /// assert!(status.is_reachable());
    /// assert_eq!((status.held, status.waiting, status.in_doubt), (1, 0, 0));
    /// for server in &status.servers {
    ///     println!("{} answered {:?} ago", server.address(), server.last_answer_age());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn status(&self) -> ManagerStatus {
        let engine = &self.engine;
        ManagerStatus {
            servers: engine.backend.status(),
            held: engine.held(),
            waiting: engine.unanswered.count(),
            in_doubt: engine.releaser.in_doubt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        LockError,
        backend::Instant,
        mock::{Mock, Reply, until},
    };

    #[test]
    fn a_majority_of_the_servers_is_enough_and_needed() {
        let up = || ServerStatus::new("up").with_connection(Some(Instant::now()));
        let down = || ServerStatus::new("down").with_outage(Instant::now(), LockError::backend("gone"));
        for (servers, is_reachable) in [
            (vec![], true),
            (vec![up()], true),
            (vec![down()], false),
            (vec![ServerStatus::new("unused")], false),
            (vec![up(), up(), down()], true),
            (vec![up(), down(), down()], false),
            (vec![up(), up(), down(), down()], false),
        ] {
            let status = ManagerStatus { servers, held: 0, waiting: 0, in_doubt: 0 };
            assert_eq!(status.is_reachable(), is_reachable, "{status:?}");
        }
    }

    fn counts(locks: &LockManager) -> [usize; 3] {
        let ManagerStatus { held, waiting, in_doubt, .. } = locks.status();
        [held, waiting, in_doubt]
    }

    #[tokio::test]
    async fn locks_waiters_and_doubts_are_counted() {
        let store = Mock::new();
        let locks = store.manager().wait(Duration::from_secs(60));
        assert_eq!(counts(&locks), [0, 0, 0]);
        let guard = locks.lock("k").acquire().await.expect("granted");
        let others = locks.all(["a", "b"]).acquire().await.expect("granted");
        assert_eq!(counts(&locks), [3, 0, 0]);
        drop(others);
        until("the guards have left", || counts(&locks)[0] == 1).await;

        let one = locks.lock("k");
        let waiting = tokio::spawn(async move { one.acquire().await });
        let several = locks.all(["j", "k"]);
        let waiting_for_two = tokio::spawn(async move { several.acquire().await });
        until("two wait, one of them with a lock", || counts(&locks) == [2, 2, 0]).await;
        guard.release().await.expect("held");
        let guard = waiting.await.expect("no panic").expect("handed over");
        assert_eq!(counts(&locks), [2, 1, 0]);
        drop(guard);
        let both = waiting_for_two.await.expect("no panic").expect("handed over");
        assert_eq!(counts(&locks), [2, 0, 0]);

        store.releases().set(Reply::Fails);
        drop(both);
        until("the releases are in doubt", || counts(&locks) == [0, 0, 2]).await;
        store.releases().set(Reply::Yes);
        until("the releases are done", || counts(&locks) == [0, 0, 0]).await;
    }
}
