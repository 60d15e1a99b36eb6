//! A process that reaches a limit of the system, or in which something of the system does not answer. It is a separate
//! process, because the limit would be that of the other tests as well.

use std::{
    env, fs,
    future::Future,
    panic,
    path::PathBuf,
    pin::{Pin, pin},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use lock_runtime::{LockError, LockErrorKind, LockManager};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

#[cfg(feature = "postgres")]
use crate::support::postgres_server::PostgresServer;
#[cfg(feature = "zookeeper")]
use crate::support::zookeeper_server::ZooKeeperServer;
use crate::support::{
    preload::preload,
    proxy::{Proxy, Upstream},
    redis_server::RedisServer,
    stopwatch::Moment,
};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(20);
/// The stores of the other process.
const STORES: &str = "LOCK_TEST_STORES";
/// A file: no thread starts while it is there.
const NO_THREADS: &str = "LOCK_TEST_NO_THREADS";

/// A server of each store, and the URLs of their stores: of Redis by its address, and of one that is shared with others.
struct Servers {
    redis: Vec<(RedisServer, Proxy)>,
    #[cfg(feature = "postgres")]
    postgres: (PostgresServer, Proxy),
    #[cfg(feature = "zookeeper")]
    zookeeper: ZooKeeperServer,
}

impl Servers {
    fn start() -> Self {
        let redis = |_| {
            let server = RedisServer::start(&[]);
            let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
            (server, proxy)
        };
        #[cfg(feature = "postgres")]
        let postgres = {
            let server = PostgresServer::start(&[]);
            let proxy = Proxy::start(Upstream::Unix(server.socket()));
            (server, proxy)
        };
        Self {
            redis: (0..2).map(redis).collect(),
            #[cfg(feature = "postgres")]
            postgres,
            #[cfg(feature = "zookeeper")]
            zookeeper: ZooKeeperServer::start(""),
        }
    }

    /// The URLs, in which the servers have their addresses.
    fn urls(&self) -> Vec<String> {
        let address = self.redis[0].1.address();
        let mut urls = vec![format!("redis://{address}"), format!("redisson://{address}")];
        #[cfg(feature = "postgres")]
        for scheme in ["postgres", "postgres+advisory"] {
            let address = self.postgres.1.address();
            urls.push(format!("{scheme}://postgres@{address}/postgres?create_table=true&sslmode=disable"));
        }
        #[cfg(feature = "zookeeper")]
        urls.push(format!("zookeeper://{}", self.zookeeper.address()));
        urls
    }

    /// The URLs, in which the servers have names.
    fn named(&self, name: &str) -> Vec<String> {
        self.urls().iter().map(|url| url.replace("127.0.0.1", name)).collect()
    }
}

/// Runs one of the functions below in a process of its own, and returns how long that took.
fn run(function: &str, stores: &[String]) -> Duration {
    let mut process = Command::new(env::current_exe().unwrap());
    process.args(["--ignored", "--exact", "--nocapture", "--test-threads=1", &format!("limits::{function}")]);
    let file = PathBuf::from(format!("{}/no-threads-{function}", env!("CARGO_TARGET_TMPDIR")));
    process.env(STORES, stores.join(" ")).env(NO_THREADS, &file);
    preload(&mut process, "scarce", include_str!("../support/scarce.c"));
    let began = Instant::now();
    let ended = process.output().unwrap();
    let took = began.elapsed();
    let _ = fs::remove_file(file);
    let (told, errors) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{told}\n{errors}");
    took
}

/// In the other process: the stores that it is to use.
fn stores() -> Option<Vec<String>> {
    Some(env::var(STORES).ok()?.split(' ').filter(|url| !url.is_empty()).map(Into::into).collect())
}

/// Counts the panics from now on.
fn count_panics() -> &'static AtomicUsize {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let show = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        show(panic);
    }));
    &PANICS
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Asserts that the store refuses all with these words.
async fn is_refused(locks: &LockManager, kind: LockErrorKind, words: &str) {
    let check = |error: LockError| {
        assert!(error.kind() == kind && error.to_string().contains(words), "{locks:?}: {error:?}");
    };
    let lock = locks.lock("k").wait(300 * MS);
    check(lock.acquire().await.expect_err("refused"));
    check(lock.try_acquire().await.expect_err("refused"));
    check(locks.all(["k", "l"]).wait(300 * MS).acquire().await.expect_err("refused"));
}

async fn works(locks: &LockManager) {
    let guard = locks.lock("k").wait(LONG).acquire().await.expect("it works again");
    assert!(guard.is_valid());
    guard.release().await.expect("held");
}

fn every_store(stores: &[String]) -> Vec<LockManager> {
    let lazy = |url: &String| LockManager::connect_lazy(url).expect("a URL");
    stores.iter().map(lazy).chain([LockManager::connect_lazy("memory:limits").unwrap()]).collect()
}

#[test]
fn without_a_thread_nothing_is_acquired_and_nothing_panics() {
    let servers = Servers::start();
    run("a_process_without_threads", &[servers.urls(), servers.named("localhost")].concat());
}

#[test]
#[ignore = "started by the other tests"]
fn a_process_without_threads() {
    let (Some(stores), Ok(no_threads)) = (stores(), env::var(NO_THREADS)) else { return };
    let panics = count_panics();
    runtime().block_on(async {
        fs::write(&no_threads, "").unwrap();
        let early = every_store(&stores);
        for locks in &early {
            is_refused(locks, LockErrorKind::Overloaded, "no thread").await;
            let error = locks.ping().await.expect_err("refused");
            assert_eq!(error.kind(), LockErrorKind::Overloaded, "{error}");
        }
        fs::remove_file(&no_threads).unwrap();
        for locks in &early {
            works(locks).await;
        }
        // Later, only a name cannot be looked up.
        fs::write(&no_threads, "").unwrap();
        for locks in &early {
            works(locks).await;
        }
        for url in &stores {
            match LockManager::connect(url).await {
                Ok(locks) => works(&locks).await,
                Err(error) => {
                    assert!(url.contains("localhost"), "{url}: {error}");
                    assert!(error.kind() == LockErrorKind::Backend && error.is_retryable(), "{error:?}");
                    assert!(error.to_string().contains("temporarily unavailable"), "{error}");
                }
            }
        }
        fs::remove_file(&no_threads).unwrap();
        for url in &stores {
            works(&LockManager::connect(url).await.expect("there are threads")).await;
        }
    });
    assert_eq!(panics.load(Ordering::SeqCst), 0, "panics");
}

#[test]
fn without_a_descriptor_nothing_is_acquired_and_nothing_panics() {
    let servers = Servers::start();
    run("a_process_without_descriptors", &servers.urls());
}

#[test]
#[ignore = "started by the other tests"]
fn a_process_without_descriptors() {
    let Some(stores) = stores() else { return };
    let panics = count_panics();
    let usual = getrlimit(Resource::Nofile);
    let set = |current: Option<u64>| setrlimit(Resource::Nofile, Rlimit { current, ..usual }).unwrap();
    runtime().block_on(async {
        set(Some(0));
        let early = every_store(&stores);
        for locks in &early {
            is_refused(locks, LockErrorKind::Overloaded, "Too many open files").await;
        }
        set(usual.current);
        for locks in &early {
            works(locks).await;
        }
        // Later, only a connection cannot be made.
        set(Some(0));
        for locks in every_store(&stores) {
            match locks.lock("k").wait(300 * MS).acquire().await {
                Ok(guard) => guard.release().await.unwrap(),
                Err(error) => assert_eq!(error.kind(), LockErrorKind::Backend, "{error:?}"),
            }
        }
        set(usual.current);
        for locks in every_store(&stores) {
            works(&locks).await;
        }
    });
    assert_eq!(panics.load(Ordering::SeqCst), 0, "panics");
}

#[test]
fn without_timers_or_io_a_store_with_a_server_is_refused_and_says_what_to_enable() {
    let servers = Servers::start();
    run("a_process_with_bare_runtimes", &servers.urls());
}

#[test]
#[ignore = "started by the other tests"]
fn a_process_with_bare_runtimes() {
    let Some(stores) = stores() else { return };
    let panics = count_panics();
    let memory = LockManager::connect_lazy("memory:bare").unwrap();
    let in_memory = async {
        let guard = memory.lock("k").acquire().await.unwrap();
        let other = memory.clone();
        let waited = other.lock("k").wait(50 * MS).acquire().await.unwrap_err();
        assert_eq!(waited.kind(), LockErrorKind::Timeout, "{waited}");
        drop(guard);
        works(&memory).await;
        let guard = memory.lock("k").max_hold(100 * MS).acquire().await.unwrap();
        assert_eq!(guard.run(std::future::pending::<()>()).await.unwrap_err().kind(), LockErrorKind::Lost);
        memory.shutdown().await;
    };
    let full = runtime();
    // (the executor, the number of its probes that panic, the words)
    let bare = Builder::new_current_thread().build().unwrap();
    let timed = Builder::new_current_thread().enable_time().build().unwrap();
    let executors: [(&str, usize, &Run<'_>); 3] = [
        ("there is none here", 0, &|work| block_on(work)),
        ("enable_time", 1, &|work| bare.block_on(work)),
        ("enable_io", 1, &|work| timed.block_on(work)),
    ];
    for (words, probes, run) in executors {
        let before = panics.load(Ordering::SeqCst);
        for url in &stores {
            let locks = LockManager::connect_lazy(url).unwrap();
            run(pin!(async {
                let error = LockManager::connect(url).await.unwrap_err();
                assert!(error.kind() == LockErrorKind::Unsupported && !error.is_retryable(), "{error}");
                is_refused(&locks, LockErrorKind::Unsupported, words).await;
            }));
            // A guard from elsewhere is released in the background.
            let guard = full.block_on(async { locks.lock("k").wait(LONG).acquire().await.unwrap() });
            run(pin!(async {
                let error = guard.release().await.unwrap_err();
                assert!(
                    error.kind() == LockErrorKind::Unsupported && error.to_string().contains(words),
                    "{error}"
                );
            }));
            full.block_on(works(&locks));
        }
        assert!(panics.load(Ordering::SeqCst) - before <= probes, "probed more than once");
    }
    block_on(pin!(in_memory));
}

/// Runs a future to its end.
type Run<'a> = dyn Fn(Pin<&mut dyn Future<Output = ()>>) + 'a;

/// An executor without anything of tokio.
fn block_on<T>(mut work: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match work.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn a_name_server_without_an_answer_keeps_no_program_from_ending() {
    let servers = Servers::start();
    let [one, two] = [0, 1].map(|node| servers.redis[node].1.address());
    let mut urls = servers.named("node.hangs.test");
    urls.push(format!("redlock://{one},{two},node.hangs.test?max_ttl=2s"));
    // The look-up takes a minute.
    let took = run("a_process_whose_name_server_hangs", &urls);
    assert!(took < LONG * 2, "{took:?}");
}

#[test]
#[ignore = "started by the other tests"]
fn a_process_whose_name_server_hangs() {
    let Some(stores) = stores() else { return };
    for url in &stores {
        let runtime = runtime();
        runtime.block_on(async {
            let locks = LockManager::connect_lazy(url).unwrap().ttl(1500 * MS);
            if url.starts_with("redlock:") {
                works(&locks).await;
                drop(locks.lock("dropped").acquire().await.unwrap());
            } else {
                let error = locks.ping().await.expect_err("no answer");
                assert!(error.kind() == LockErrorKind::Backend, "{url}: {error}");
            }
            let began = Moment::now();
            locks.shutdown().await;
            assert!(began.within(3000 * MS), "{url}: {:?}", began.took());
        });
        let began = Moment::now();
        drop(runtime);
        assert!(began.within(1000 * MS), "{url}: the runtime ended after {:?}", began.took());
    }
}
