//! A process that forks while it uses the library. It is a separate process: from the other tests' threads the child
//! would inherit half-done work.

use std::{
    env, fs,
    future::poll_fn,
    os::unix::process::CommandExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    process::Command,
    task::Poll,
    time::{Duration, Instant},
};

use fork::{Fork, fork, waitpid_nohang};
use lock_runtime::{LockError, LockErrorKind, LockGuard, LockManager};
use tokio::{
    runtime::{self, Runtime},
    time::timeout,
};

#[cfg(feature = "postgres")]
use crate::support::postgres_server::PostgresServer;
#[cfg(feature = "redis")]
use crate::support::redis_server::RedisServer;
#[cfg(feature = "zookeeper")]
use crate::support::zookeeper_server::ZooKeeperServer;

const LONG: Duration = Duration::from_secs(20);
/// The address of the store; set in a process that forks.
const STORE: &str = "LOCK_TEST_STORE";

#[cfg(feature = "redis")]
#[test]
fn a_child_of_a_process_that_locks_on_redis_has_none_of_its_locks() {
    let server = RedisServer::start(&[]);
    fork_on(&format!("redis+unix://{}", server.socket().display()));
}

#[cfg(feature = "postgres")]
#[test]
fn a_child_of_a_process_that_locks_on_postgres_has_none_of_its_locks() {
    let server = PostgresServer::start(&[]);
    for scheme in ["postgres", "postgres+advisory"] {
        let folder = server.folder().display();
        fork_on(&format!("{scheme}:///postgres?host={folder}&user=postgres&create_table=true"));
    }
}

#[cfg(feature = "zookeeper")]
#[test]
fn a_child_of_a_process_that_locks_on_zookeeper_has_none_of_its_locks() {
    let server = ZooKeeperServer::start("");
    fork_on(&format!("zookeeper://{}", server.address()));
}

fn fork_on(store: &str) {
    let mut family = Command::new(env::current_exe().unwrap());
    family.args(["--ignored", "--exact", "--test-threads=1", "forked::a_family"]).env(STORE, store);
    let family = family.output().unwrap();
    assert!(
        family.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&family.stdout),
        String::from_utf8_lossy(&family.stderr)
    );
}

/// Not a test: the process that forks, for the others.
#[test]
#[ignore = "started by the other tests"]
fn a_family() {
    let Ok(store) = env::var(STORE) else { return };
    let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (locks, guard, others) = runtime.block_on(async {
        let locks = LockManager::connect(&store).await.unwrap();
        let guard = locks.lock("k").acquire().await.unwrap();
        (locks, guard, LockManager::connect(&store).await.unwrap())
    });
    let lock = others.lock("k").wait(LONG);
    let mut waiting = Box::pin(lock.acquire());
    let begun = poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context)));
    assert!(runtime.block_on(begun).is_pending());

    let told = PathBuf::from(format!("{}/forked-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id()));
    let child = match fork().unwrap() {
        Fork::Parent(child) => child,
        Fork::Child => {
            let seen = catch_unwind(AssertUnwindSafe(|| {
                let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let under_way = runtime.block_on(async { timeout(LONG, waiting).await });
                in_child(&runtime, &store, &locks, &guard, under_way.expect("refused at once"))
            }));
            let seen = seen.unwrap_or_else(|panic| match panic.downcast::<String>() {
                Ok(message) => *message,
                Err(_) => "it panicked".into(),
            });
            fs::write(told, seen).unwrap();
            // Nothing is dropped, and the test program does not go on twice.
            panic!("{}", Command::new("true").exec());
        }
    };
    let end = Instant::now() + LONG;
    while waitpid_nohang(child).unwrap().is_none() {
        assert!(Instant::now() < end, "the child hangs");
        std::thread::sleep(Duration::from_millis(10));
    }
    let seen = fs::read_to_string(&told).unwrap();
    fs::remove_file(told).unwrap();
    assert_eq!(seen, "as it should be");

    // All these are still the parent's.
    assert!(guard.is_valid());
    runtime.block_on(async {
        guard.release().await.unwrap();
        waiting.await.unwrap().release().await.unwrap();
        locks.shutdown().await;
    });
}

fn in_child(
    runtime: &Runtime,
    store: &str,
    locks: &LockManager,
    guard: &LockGuard,
    under_way: Result<LockGuard, LockError>,
) -> String {
    let is_refused = |answer: Result<LockGuard, LockError>| {
        let error = answer.expect_err("the manager is the parent's");
        assert_eq!(error.kind(), LockErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("each process has to connect for itself"), "{error}");
    };
    is_refused(under_way);
    is_refused(runtime.block_on(locks.lock("other").acquire()));
    let lost = guard.ensure_valid().expect_err("the guard is the parent's");
    assert!(!guard.is_valid() && guard.remaining().is_zero());
    assert!(lost.kind() == LockErrorKind::Lost && lost.to_string().contains("forked"), "{lost}");
    runtime.block_on(async {
        timeout(LONG, locks.shutdown()).await.expect("nothing for the child to wait for");
        let own = LockManager::connect(store).await;
        if store.starts_with("zookeeper:") {
            let error = own.expect_err("the driver's thread was not forked");
            assert_eq!(error.kind(), LockErrorKind::Unsupported, "{error}");
            return;
        }
        let own = own.expect("the child connects anew");
        assert!(own.lock("k").try_acquire().await.expect("answered").is_none(), "the parent holds it");
        let guard = own.lock("other").acquire().await.expect("free");
        guard.release().await.expect("held");
    });
    "as it should be".into()
}
