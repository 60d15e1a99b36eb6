//! Fenced transactions: writes to ZooKeeper that are applied only if a lock is still held.
//!
//! If your data is in the same ensemble as the lock, you do not need to compare fencing tokens. Instead, each
//! transaction begins with a check that the holder's node still exists. However late such a transaction arrives,
//! the servers apply all of it if the lock is still held, and none of it otherwise.

use ::zookeeper_client as zk;

use super::hold::Contender;
use crate::{HeldLock, LockError, LockErrorKind};

/// Begins a transaction on a client of your own. The transaction is applied only if the given lock is still held.
///
/// The client is a [`Client`](zk::Client) from version 0.11 of the crate `zookeeper-client`; your program connects it
/// itself. Add writes to the transaction and commit it. The commit fails with
/// [`CheckFailed`](zk::CheckWriteError::CheckFailed) if the lock is no longer held, or if the client has no
/// permission to read the holder's node. If the store's URL contains a user, the client must log in as the same user.
///
/// # Errors
/// [`Unsupported`](LockErrorKind::Unsupported) if the lock is not held in ZooKeeper,
/// [`InvalidOptions`](LockErrorKind::InvalidOptions) if the lock's node is outside the client's chroot.
///
/// # Example
/// ```no_run
/// use lock_runtime::{LockManager, backend::zookeeper::fence};
///
/// # async fn example(client: zookeeper_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let locks = LockManager::connect("zookeeper://127.0.0.1:2181/locks").await?;
/// let guard = locks.lock("user:42").acquire().await?;
/// let mut write = fence::begin(&client, &guard.held())?;
/// write.add_set_data("/balance/42", b"70", None)?;
/// write.commit().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
pub fn begin<'c>(client: &'c zk::Client, held: &HeldLock) -> Result<zk::CheckWriter<'c>, LockError> {
    let Some(path) = held.in_store::<Contender>().and_then(Contender::absolute_path) else {
        return Err(LockError::new(
            LockErrorKind::Unsupported,
            "the lock is not held in ZooKeeper; hand its fencing token to the resource",
        )
        .with_key(held.key()));
    };
    let below = match client.path() {
        "/" => Some(&*path),
        chroot => path.strip_prefix(chroot).filter(|rest| rest.starts_with('/')),
    };
    let Some(below) = below else {
        return Err(LockError::new(
            LockErrorKind::InvalidOptions,
            format!("the client cannot reach the lock's node below its chroot `{}`", client.path()),
        )
        .with_key(held.key()));
    };
    client.new_check_writer(below, None).map_err(|error| {
        LockError::backend("ZooKeeper's driver refuses the path of the lock").with_source(error)
    })
}
