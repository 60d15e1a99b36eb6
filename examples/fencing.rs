//! The purpose of a fencing token: a holder that was too slow does not notice it, and its write is refused.
//! `cargo run --example fencing`, or with `LOCK_URL=redis://127.0.0.1:6379` on a server. It takes two seconds.
//!
//! No lock service can stop a process that sleeps through its lease and then writes; the resource can. It remembers
//! the largest token it has seen, and refuses a smaller one in the same step in which it would write.

use std::{
    env,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use lock_runtime::{FencingToken, LockManager};
use tokio::time::sleep;

/// Stands in for a table or an object store. In SQL it is
/// `UPDATE report SET text = $1, token = $2 WHERE id = $3 AND token <= $2`, and no row means refused.
#[derive(Debug, Default)]
struct Report(Mutex<(Option<FencingToken>, String)>);

impl Report {
    fn write(&self, token: FencingToken, text: &str) -> Result<(), String> {
        let mut report = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match report.0 {
            Some(largest) if token < largest => Err(format!("token {token} is older than {largest}")),
            _ => {
                *report = (Some(token), text.into());
                Ok(())
            }
        }
    }

    fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = env::var("LOCK_URL").unwrap_or_else(|_| "memory:".into());
    let locks = LockManager::connect(&url).await?;
    let report = Report::default();

    // A does not renew, as if its process were stopped for a while just after it got the lock.
    let lock = locks.lock("report:today").ttl(Duration::from_secs(1));
    let a = lock.clone().auto_renew(false).acquire().await?;
    println!("A enters with token {}, safe for {:?}", a.fencing_token(), a.remaining());
    sleep(Duration::from_millis(1_500)).await;

    // Its lease is over, so B enters and writes.
    let b = lock.acquire().await?;
    println!("B enters with token {}", b.fencing_token());
    report.write(b.fencing_token(), "B's figures")?;
    println!("B writes");
    b.release().await?;

    // A goes on where it stopped. Had it asked, its guard would have reported the loss.
    println!("A wakes up; its guard says valid: {}", a.is_valid());
    match report.write(a.fencing_token(), "A's old figures") {
        Err(refusal) => println!("A's late write is refused: {refusal}"),
        Ok(()) => return Err("A's late write was accepted".into()),
    }
    println!("the report has {}", report.text());
    assert_eq!(report.text(), "B's figures");

    // A's lock ended before A's work did, and its release reports that.
    println!("A's release: {}", a.release().await.expect_err("lost"));
    locks.shutdown().await;
    Ok(())
}
