//! One of several processes leads, and another one succeeds it when it dies: two copies of this program wait for one lock,
//! the one that leads is killed, and the other one leads. `cargo run --example leader`, with the URL of a store that
//! processes share in `LOCK_URL` (by default `redis://127.0.0.1:6379`; `memory:` is for one process). It takes a few
//! seconds.
//!
//! `cargo run --example leader -- candidate` runs a single candidate, to be started in several terminals. Ctrl-C and
//! SIGTERM stop it in an orderly way: the next candidate then leads at once.

#[path = "support/signals.rs"]
mod signals;

use std::{
    env,
    error::Error,
    process::{Stdio, id},
    time::{Duration, Instant},
};

use lock_runtime::{HeldLock, LockManager};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::sleep,
};

const KEY: &str = "example:leader";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("LOCK_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
    let locks = LockManager::connect(&url).await?;
    if !locks.capabilities().is_shared_between_processes() {
        return Err(format!("`{url}` is a store within one process: set LOCK_URL to another one").into());
    }
    if env::args().nth(1).as_deref() == Some("candidate") {
        candidate(locks).await
    } else {
        show(locks).await
    }
}

/// Leads, or waits to lead, until the program is to stop.
async fn candidate(locks: LockManager) -> Result<(), Box<dyn Error>> {
    // After a crash, the lock stays held for this long.
    let ttl = locks.capabilities().session_timeout().unwrap_or(Duration::from_secs(2));
    let lock = locks.lock(KEY).ttl(ttl);
    tokio::select! {
        led = lock.lead(work) => led?,
        () = signals::stop() => {}
        () = closed() => {}
    }
    // The lock is free when this returns, and the next candidate leads.
    locks.shutdown().await;
    Ok(())
}

/// What only one process should do. If the lock is lost, this future is dropped, and called again when this process leads
/// again.
async fn work(held: HeldLock) {
    println!("process {} leads with fencing token {}", id(), held.fencing_token());
    loop {
        // Each write sends the token along, so that the resource can reject a former leader.
        sleep(Duration::from_millis(100)).await;
    }
}

/// Completes when the other end of the standard input is closed; never in a terminal.
async fn closed() {
    let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
}

/// Starts two candidates, kills the leader, and waits for the other one.
async fn show(locks: LockManager) -> Result<(), Box<dyn Error>> {
    let (mut one, mut other) = (Candidate::start()?, Candidate::start()?);
    let (mut leader, mut next) = tokio::select! {
        line = one.leads() => { println!("{}", line?); (one, other) }
        line = other.leads() => { println!("{}", line?); (other, one) }
    };
    if locks.capabilities().shows_locks() {
        let seen = locks.leader(KEY).changed().await?;
        println!(
            "the store shows {}",
            seen.as_ref().and_then(|leader| leader.client()).unwrap_or("no leader")
        );
    }
    // The other one waits by now.
    sleep(Duration::from_secs(1)).await;
    leader.process.kill().await?;
    let killed = Instant::now();
    println!("process {} is killed", leader.pid);
    println!("{}, {:.1?} later", next.leads().await?, killed.elapsed());

    // Its input is closed, and it stops in an orderly way.
    drop(next.process.stdin.take());
    let status = next.process.wait().await?;
    println!("process {} has stopped ({status})", next.pid);
    let guard = locks.lock(KEY).try_acquire().await?.ok_or("the lock is still held")?;
    println!("the lock is free");
    guard.release().await?;
    locks.shutdown().await;
    Ok(())
}

/// A copy of this program.
struct Candidate {
    process: Child,
    pid: u32,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Candidate {
    fn start() -> Result<Self, Box<dyn Error>> {
        let mut process = Command::new(env::current_exe()?)
            .arg("candidate")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let pid = process.id().ok_or("it has ended at once")?;
        let stdout = process.stdout.take().expect("piped above");
        Ok(Self { process, pid, lines: BufReader::new(stdout).lines() })
    }

    /// Waits until it leads; returns what it prints then.
    async fn leads(&mut self) -> Result<String, Box<dyn Error>> {
        Ok(self.lines.next_line().await?.ok_or("the candidate has ended")?)
    }
}
