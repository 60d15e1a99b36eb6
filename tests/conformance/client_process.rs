//! A client in its own process, which can be killed and paused.

use std::{
    collections::HashMap,
    future::Future,
    io::BufRead,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    thread,
    time::{Duration, UNIX_EPOCH},
};

use lock_runtime::{HeldLock, LockError, LockGuard};
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{
    cases::{leader_torture, torture},
    store::Store,
    support::child::Child,
};

/// The test's handle of it.
pub struct ClientProcess(Child);

impl ClientProcess {
    pub async fn start(mut child: Child, store: &dyn Store, url: &str) -> Self {
        assert_eq!(child.ask(&format!("{} {url}", store.name())).await, "connected");
        Self(child)
    }

    /// Returns the token, or the kind of the error.
    pub async fn acquire(&mut self, key: &str, ttl: Duration, wait: Duration) -> Result<u64, String> {
        self.begin_to_acquire(key, ttl, wait);
        self.acquired().await.expect("the second process lives")
    }

    /// Runs the present period of a job and releases the lock. Returns the beginning of the period, counted from the
    /// beginning of 1970, or the kind of the error.
    pub async fn run_once(&mut self, key: &str, period: Duration) -> Result<Duration, String> {
        let answer = self.0.ask(&format!("once {key} {}", period.as_millis())).await;
        answer.parse().map(Duration::from_millis).map_err(|_| answer)
    }

    pub fn begin_to_acquire(&mut self, key: &str, ttl: Duration, wait: Duration) {
        self.0.tell(&format!("acquire {key} {} {}", ttl.as_millis(), wait.as_millis()));
    }

    /// Returns the outcome of the pending acquisition; `None` if the process was killed.
    pub async fn acquired(&mut self) -> Option<Result<u64, String>> {
        let answer = self.0.answer().await?;
        Some(answer.parse().map_err(|_| answer))
    }

    /// Like `acquire`, by `count` managers at once, each of which waits; does not wait for them.
    pub fn crowd(&mut self, key: &str, count: usize, ttl: Duration) {
        self.0.tell(&format!("crowd {key} {count} {}", ttl.as_millis()));
    }

    pub async fn is_valid(&mut self, key: &str) -> bool {
        self.0.ask(&format!("valid {key}")).await == "true"
    }

    /// Returns `ok`, or the kind of the error.
    pub async fn release(&mut self, key: &str) -> String {
        self.0.ask(&format!("release {key}")).await
    }

    /// Runs an endless body under the held lock.
    pub async fn run_body(&mut self, key: &str) {
        assert_eq!(self.0.ask(&format!("run {key}")).await, "running");
    }

    /// Returns how the body ended, and how often it was polled while the lock was not valid.
    pub async fn body(&mut self, key: &str) -> (String, u64) {
        let answer = self.0.ask(&format!("body {key}")).await;
        let (outcome, polls) = answer.split_once(' ').expect("two words");
        (outcome.into(), polls.parse().expect("a number"))
    }

    /// Begins to lead; the body never ends. Does not wait for the first term.
    pub fn lead(&mut self, key: &str, ttl: Duration) {
        self.0.tell(&format!("lead {key} {}", ttl.as_millis()));
    }

    /// Waits for the next term, and returns its token.
    pub async fn led(&mut self, key: &str) -> u64 {
        self.0.ask(&format!("led {key}")).await.parse().expect("a token")
    }

    /// Shuts the manager down; the process stays.
    pub async fn shut_down(&mut self) {
        assert_eq!(self.0.ask("shutdown").await, "ok");
    }

    pub fn pause(&self) {
        self.0.pause();
    }

    pub fn resume(&self) {
        self.0.resume();
    }

    pub fn kill(&mut self) {
        self.0.kill();
    }
}

/// The main function of the second process.
pub fn run(role: &str, stores: &[&'static dyn Store]) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let lines = lines();
    match role {
        "client" => runtime.block_on(client(stores, lines)),
        "torture" => runtime.block_on(torture::worker(stores, lines)),
        "candidate" => runtime.block_on(leader_torture::candidate(stores, lines)),
        role => panic!("unknown role {role}"),
    }
}

/// The lines that the test sends. The process ends with the test.
fn lines() -> mpsc::UnboundedReceiver<String> {
    let (send, lines) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if send.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

/// A body under a lock, and how often it was polled while the lock was not valid.
type Running = (JoinHandle<Result<(), LockError>>, Arc<AtomicU64>);

/// The store of a line `<store> <url>`, and the URL.
pub fn store_of(stores: &[&'static dyn Store], line: &str) -> (&'static dyn Store, String) {
    let (name, url) = line.split_once(' ').expect("two words");
    let store = stores.iter().find(|store| store.name() == name).expect("a store of the suite");
    (*store, url.to_owned())
}

async fn client(stores: &[&'static dyn Store], mut lines: mpsc::UnboundedReceiver<String>) {
    let (store, url) = store_of(stores, &lines.recv().await.expect("the store comes first"));
    let locks = store.connect(url.clone()).await.expect("the store can be reached");
    println!("connected");
    let mut guards: HashMap<String, LockGuard> = HashMap::new();
    let mut bodies: HashMap<String, Running> = HashMap::new();
    let mut terms: HashMap<String, mpsc::UnboundedReceiver<u64>> = HashMap::new();
    let millis = |text: &str| Duration::from_millis(text.parse().unwrap());
    while let Some(line) = lines.recv().await {
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match words[..] {
            ["acquire", key, ttl, wait] => {
                match locks.lock(key).ttl(millis(ttl)).wait(millis(wait)).acquire().await {
                    Ok(guard) => {
                        let token = guard.fencing_token().to_string();
                        guards.insert(key.into(), guard);
                        token
                    }
                    Err(error) => format!("{:?}", error.kind()),
                }
            }
            ["once", key, period] => match locks.lock(key).once_per(millis(period)).acquire().await {
                Ok(guard) => {
                    let ran = guard.period().expect("it has one").duration_since(UNIX_EPOCH).unwrap();
                    guard.release().await.unwrap();
                    ran.as_millis().to_string()
                }
                Err(error) => format!("{:?}", error.kind()),
            },
            ["crowd", key, count, ttl] => {
                for _ in 0..count.parse().unwrap() {
                    let lock = store.connect(url.clone()).await.unwrap().lock(key).ttl(millis(ttl));
                    tokio::spawn(async move { lock.wait_forever().acquire().await.map(std::mem::forget) });
                }
                continue;
            }
            ["valid", key] => guards[key].is_valid().to_string(),
            ["release", key] => match guards.remove(key).expect("it is held").release().await {
                Ok(()) => "ok".into(),
                Err(error) => format!("{:?}", error.kind()),
            },
            ["run", key] => {
                let guard = guards.remove(key).expect("it is held");
                let late_polls = Arc::new(AtomicU64::new(0));
                let body = Body { held: guard.held(), late_polls: Arc::clone(&late_polls) };
                bodies.insert(key.into(), (tokio::spawn(guard.run(body)), late_polls));
                "running".into()
            }
            ["body", key] => {
                let (body, late_polls) = bodies.remove(key).expect("it runs");
                let outcome = match body.await.unwrap() {
                    Ok(()) => "ok".into(),
                    Err(error) => format!("{:?}", error.kind()),
                };
                format!("{outcome} {}", late_polls.load(Ordering::SeqCst))
            }
            ["lead", key, ttl] => {
                let (begun, tokens) = mpsc::unbounded_channel();
                terms.insert(key.into(), tokens);
                let lock = locks.lock(key).ttl(millis(ttl));
                tokio::spawn(async move {
                    lock.lead(|held| {
                        let _ = begun.send(held.fencing_token().get());
                        std::future::pending::<()>()
                    })
                    .await
                });
                continue;
            }
            ["led", key] => {
                let token = terms.get_mut(key).expect("it is a candidate").recv().await;
                token.expect("it has not ended").to_string()
            }
            ["shutdown"] => {
                locks.shutdown().await;
                "ok".into()
            }
            _ => panic!("not understood: {line}"),
        };
        println!("{answer}");
    }
}

/// Never ready, polled every few milliseconds; counts polls at which the lock was not valid.
struct Body {
    held: HeldLock,
    late_polls: Arc<AtomicU64>,
}

impl Future for Body {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if !self.held.is_valid() {
            self.late_polls.fetch_add(1, Ordering::SeqCst);
        }
        let waker = cx.waker().clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            waker.wake();
        });
        Poll::Pending
    }
}
