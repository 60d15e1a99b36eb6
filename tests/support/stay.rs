//! A stay of a holder in its section, as the holder sees it.

use std::time::{Duration, Instant};

use super::{history::Hold, monotonic};

/// Stays for this section, or until the lock is held no more; `None` if the lock was not held.
///
/// The clock is read before each check: a lock held after this moment was held at it.
pub async fn stay(token: u64, asked: u64, section: Duration, is_held: impl Fn() -> bool) -> Option<Hold> {
    let leave = Instant::now() + section;
    let mut believed = None;
    loop {
        let now = monotonic();
        if !is_held() {
            break;
        }
        believed.get_or_insert(Hold { token, asked, from: now, until: now }).until = now;
        if Instant::now() >= leave {
            break;
        }
        if section > Duration::from_millis(1) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
    believed
}
