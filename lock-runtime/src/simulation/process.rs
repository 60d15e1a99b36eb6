//! A process of the simulation: tasks that acquire, hold, lose, drop and release locks.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    future::pending,
    rc::Rc,
    time::Duration,
};

use tokio::{runtime::Handle, task::JoinSet, time::sleep};

use super::{Plan, history::Hold, now};
use crate::{LockErrorKind, LockManager, backend::Redlock, simulated};

/// How much later than its deadline an acquisition may return: connections, an attempt, its fence and its withdrawal have
/// limits of 100 or 200 ms each, and so have the rounds that a tie costs.
const LATE: Duration = Duration::from_millis(900);

/// What the processes did.
#[derive(Default)]
pub(super) struct Notes {
    /// The holds of each lock.
    pub(super) holds: RefCell<BTreeMap<String, Vec<Hold>>>,
    /// The processes that were granted a lock.
    pub(super) granted: RefCell<BTreeSet<usize>>,
    pub(super) problems: RefCell<Vec<String>>,
    /// Number of tasks that run.
    pub(super) tasks: Cell<usize>,
    /// Whether to begin nothing more.
    pub(super) stop: Cell<bool>,
}

/// The software of the host that stands for the library's own thread.
pub(super) async fn background(handle: Rc<RefCell<Option<Handle>>>) -> turmoil::Result {
    handle.replace(Some(Handle::current()));
    pending().await
}

pub(super) struct Process {
    pub(super) number: usize,
    pub(super) plan: Rc<Plan>,
    pub(super) notes: Rc<Notes>,
}

impl Process {
    /// The software of its host.
    pub(super) async fn run(self, background: Rc<RefCell<Option<Handle>>>) -> turmoil::Result {
        loop {
            // Its host may start later.
            if let Some(background) = background.take() {
                break simulated::set_background(&background);
            }
            sleep(Duration::from_millis(1)).await;
        }
        let store = Redlock::connect_lazy(&self.plan.url())?;
        let locks = LockManager::new(store);
        let mut tasks = JoinSet::new();
        for _ in 0..self.plan.tasks {
            let task = Task {
                number: self.number,
                plan: Rc::clone(&self.plan),
                notes: Rc::clone(&self.notes),
                locks: locks.clone(),
            };
            tasks.spawn_local(task.run());
        }
        while let Some(ended) = tasks.join_next().await {
            ended?;
        }
        // The manager goes on releasing.
        pending().await
    }
}

/// A task that runs, also until its process is killed.
struct Counted<'a>(&'a Cell<usize>);

impl<'a> Counted<'a> {
    fn new(Notes { tasks, .. }: &'a Notes) -> Self {
        tasks.update(|count| count + 1);
        Self(tasks)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.update(|count| count - 1);
    }
}

struct Task {
    number: usize,
    plan: Rc<Plan>,
    notes: Rc<Notes>,
    locks: LockManager,
}

impl Task {
    async fn run(self) {
        let _counted = Counted::new(&self.notes);
        while !self.notes.stop.get() {
            self.once().await;
            sleep(Duration::from_millis(below(30))).await;
        }
    }

    async fn once(&self) {
        let name = format!("lock-{}", below(self.plan.locks as u64));
        let wait = Duration::from_millis([0, 100, 1_000, 3_000][usize::try_from(below(4)).expect("small")]);
        let renews = below(2) == 0;
        let asked = now();
        let lock = self.locks.lock(&name).ttl(self.plan.ttl).wait(wait).auto_renew(renews);
        let acquiring = lock.acquire();
        let granted = if below(6) == 0 {
            let patience = Duration::from_millis(below(200));
            let Ok(granted) = tokio::time::timeout(patience, acquiring).await else { return };
            granted
        } else {
            acquiring.await
        };
        let from = now();
        let took = from.saturating_sub(asked);
        if took > wait + LATE {
            self.problem(&format!("an acquisition with `wait` {wait:?} took {took:?}"));
        }
        let guard = match granted {
            Ok(guard) => guard,
            Err(error) => {
                if !matches!(
                    error.kind(),
                    LockErrorKind::Contended | LockErrorKind::Timeout | LockErrorKind::Backend
                ) {
                    self.problem(&format!("{error:?}"));
                }
                return;
            }
        };
        self.notes.granted.borrow_mut().insert(self.number);
        simulated::trace(|| format!("process {}: holds {name} with {}", self.number, guard.fencing_token()));
        let hold = HoldNote { notes: &self.notes, name, token: guard.fencing_token().get(), asked, from };
        // Some hold it until it is lost.
        let length = Duration::from_millis(if below(3) == 0 { 3_000 } else { below(300) });
        tokio::select! {
            biased;
            () = guard.lost() => simulated::trace(|| format!("process {}: lost {}", self.number, hold.name)),
            () = sleep(length) => {}
        }
        drop(hold);
        if below(3) == 0 {
            drop(guard);
        } else {
            // The lock may be lost, and the nodes may be away.
            let _ = guard.release().await;
        }
    }

    fn problem(&self, what: &str) {
        self.notes.problems.borrow_mut().push(format!("{:?}: process {}: {what}", now(), self.number));
    }
}

/// Notes the hold when it ends, also when its process crashes.
struct HoldNote<'a> {
    notes: &'a Notes,
    name: String,
    token: u64,
    asked: Duration,
    from: Duration,
}

impl Drop for HoldNote<'_> {
    fn drop(&mut self) {
        // The simulation has panicked.
        let Some(until) = simulated::elapsed() else { return };
        let nanos = |moment: Duration| u64::try_from(moment.as_nanos()).expect("short");
        let hold =
            Hold { token: self.token, asked: nanos(self.asked), from: nanos(self.from), until: nanos(until) };
        self.notes.holds.borrow_mut().entry(self.name.clone()).or_default().push(hold);
    }
}

fn below(end: u64) -> u64 {
    u64::from(simulated::random().expect("in a simulation")) % end
}
