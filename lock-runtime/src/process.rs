//! Forked processes.
//!
//! A forked child has a copy of every manager and guard, none of the library's threads, and the sockets of its parent,
//! on which its requests would mix with the parent's. Hence the managers and guards of a store that several processes
//! share work only in the process that made them. A child of the bare system call `clone`, without the C library's
//! `fork`, is not detected.

use std::sync::LazyLock;

use crate::{LockError, LockErrorKind};

/// The process in which a manager, a guard or a thread was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    #[cfg(test)]
    pub(crate) fn with_id(id: u32) -> Self {
        Self(id)
    }

    /// Returns the process that runs this code.
    pub(crate) fn this() -> Self {
        #[cfg(test)]
        if let Some(process) = tests::PRETENDED.get() {
            return process;
        }
        Self(id())
    }

    pub(crate) fn id(self) -> u32 {
        self.0
    }

    pub(crate) fn is_this(self) -> bool {
        self == Self::this()
    }

    /// Fails in a forked child.
    pub(crate) fn check(self) -> Result<(), LockError> {
        let this = Self::this();
        if self == this {
            return Ok(());
        }
        let message = format!(
            "this manager was made in process {}, from which process {} was forked; each process has to connect for itself",
            self.0, this.0
        );
        Err(LockError::new(LockErrorKind::Unsupported, message))
    }
}

/// Returns the id of this process.
///
/// Makes no system call unless the process was forked after the first call, because each acquisition calls this
/// function several times.
fn id() -> u32 {
    static FIRST: LazyLock<(forkguard::Guard, u32)> =
        LazyLock::new(|| (forkguard::new(), std::process::id()));
    let (guard, id) = &*FIRST;
    if guard.clone().detected_fork() { std::process::id() } else { *id }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::mock::Mock;

    thread_local! {
        pub(super) static PRETENDED: Cell<Option<Process>> = const { Cell::new(None) };
    }

    /// Runs `child` as if this thread had been forked off.
    fn forked<T>(child: impl FnOnce() -> T) -> T {
        PRETENDED.set(Some(Process(0)));
        let answer = child();
        PRETENDED.set(None);
        answer
    }

    #[tokio::test]
    async fn a_forked_child_acquires_nothing_and_its_guards_are_not_valid() {
        let store = Mock::new();
        let locks = store.manager();
        let guard = locks.lock("k").acquire().await.expect("granted");
        let held = guard.held();
        let lock = locks.lock("other");
        let refused = {
            let mut acquiring = Box::pin(lock.acquire());
            std::future::poll_fn(|context| forked(|| acquiring.as_mut().poll(context))).await
        };
        let refused = refused.expect_err("the child is another process");
        assert_eq!(refused.kind(), LockErrorKind::Unsupported, "{refused}");
        assert!(refused.to_string().contains("from which process 0 was forked"), "{refused}");
        assert_eq!(store.acquires().count("other"), 0);
        let ping = {
            let mut ping = Box::pin(locks.ping());
            std::future::poll_fn(|context| forked(|| ping.as_mut().poll(context))).await
        };
        assert_eq!(ping.expect_err("not the child's store").kind(), LockErrorKind::Unsupported);

        assert!(guard.is_valid() && held.is_valid());
        let (valid, remaining, error) = forked(|| {
            (held.is_valid(), guard.remaining(), guard.ensure_valid().expect_err("not the child's"))
        });
        assert!(!valid && remaining.is_zero());
        assert!(error.kind() == LockErrorKind::Lost && error.to_string().contains("forked"), "{error}");
        assert!(guard.is_valid(), "the parent's is");
        guard.release().await.expect("released by the parent");
        assert_eq!(store.releases().count("k"), 1);
    }

    #[tokio::test]
    async fn a_guard_that_a_forked_child_drops_releases_nothing() {
        let store = Mock::new();
        let locks = store.manager();
        let [dropped, later] = [locks.lock("k").acquire().await, locks.lock("later").acquire().await];
        forked(|| drop(dropped.expect("granted")));
        drop(later.expect("granted"));
        crate::mock::until("what was dropped later is released", || store.releases().count("later") == 1)
            .await;
        assert_eq!(store.releases().count("k"), 0, "the parent holds it");
    }

    #[tokio::test]
    async fn an_acquisition_that_is_under_way_in_a_forked_child_is_refused() {
        let store = Mock::new();
        let locks = store.manager();
        store.acquires().set(crate::mock::Reply::Late(std::time::Duration::from_millis(50)));
        let lock = locks.lock("k");
        let mut acquiring = Box::pin(lock.acquire());
        let first =
            std::future::poll_fn(|context| std::task::Poll::Ready(acquiring.as_mut().poll(context))).await;
        assert!(first.is_pending());
        let refused = std::future::poll_fn(|context| forked(|| acquiring.as_mut().poll(context))).await;
        let refused = refused.expect_err("the child is another process");
        assert!(refused.to_string().contains("forked"), "{refused}");
        assert_eq!(store.acquires().count("k"), 1, "the child asks for nothing more");
    }
}
