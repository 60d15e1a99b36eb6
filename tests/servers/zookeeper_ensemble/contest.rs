//! Many clients that contend for one lock, all the time, while the servers fail.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use lock_runtime::{Lock, LockManager};
use tokio::task::JoinHandle;

use crate::support::{
    PATIENCE,
    history::{Hold, Verdict, judge},
    monotonic,
};

type History = Arc<Mutex<Vec<Hold>>>;

pub struct Contest {
    history: History,
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Contest {
    /// Two tasks of each client contend for the lock `key`; returns once they have entered often.
    pub async fn begin(clients: &[LockManager], key: &str) -> Self {
        let (history, stop) = (History::default(), Arc::new(AtomicBool::new(false)));
        let locks = clients.iter().chain(clients).map(|client| client.lock(key));
        let tasks =
            locks.map(|lock| tokio::spawn(contend(lock, Arc::clone(&history), Arc::clone(&stop)))).collect();
        let this = Self { history, stop, tasks };
        this.goes_on().await;
        this
    }

    fn history(&self) -> MutexGuard<'_, Vec<Hold>> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn entries(&self) -> usize {
        self.history().len()
    }

    /// Waits until they have entered often from now on. An election and the end of a holder's session may have to
    /// pass before that.
    pub async fn goes_on(&self) {
        let (before, end) = (self.entries(), Instant::now() + 3 * PATIENCE);
        while self.entries() < before + 50 {
            assert!(Instant::now() < end, "only {} entered", self.entries() - before);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Stops all contenders and judges their holds.
    pub async fn end(self) -> Verdict {
        self.stop.store(true, SeqCst);
        for task in self.tasks {
            task.await.expect("a contender does not panic");
        }
        judge(std::mem::take(&mut *self.history.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

async fn contend(lock: Lock, history: History, stop: Arc<AtomicBool>) {
    while !stop.load(SeqCst) {
        let asked = monotonic();
        let Ok(guard) = lock.acquire().await else { continue };
        let (token, mut believed) = (guard.fencing_token().get(), None);
        for _ in 0..3 {
            let now = monotonic();
            if !guard.is_valid() {
                break;
            }
            believed.get_or_insert(Hold { token, asked, from: now, until: now }).until = now;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        history.lock().unwrap_or_else(PoisonError::into_inner).extend(believed);
        let _ = guard.release().await;
    }
}
