//! However a lock is lost: the annotated body is gone before the body of another holder begins.
//!
//! Gone means dropped, with all that its destructors do. A body that never reaches an `.await` cannot be dropped;
//! and when the store has given a lock away on its own, the only promise is that the body ends soon.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use lock_runtime::{LockError, LockErrorKind, LockManager, distributed_lock};
use tokio::task::JoinHandle;

use super::{LONG, SLACK, ms, outage::OUTAGES};
use crate::{
    case::{Case, Need, case},
    fixture::Fixture,
    store::Fault,
    support::{stopwatch::Moment, until},
};

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        case!(a_body_is_gone_before_another_enters_when_max_hold_is_over),
        case!(a_body_is_gone_before_another_enters_when_its_lease_is_over),
        case!(a_body_is_gone_before_another_enters_when_another_of_its_locks_is_lost)
            .needs(Need::HoldsOutliveConnections),
        case!(a_body_ends_at_the_next_renewal_when_the_store_gave_its_lock_away),
    ];
    cases.extend(OUTAGES.map(|fault| {
        let case =
            case!(a_body_is_gone_before_another_enters_when_its_lease_cannot_be_renewed, fault).under(fault);
        if fault.breaks_connections() { case.needs(Need::HoldsOutliveConnections) } else { case }
    }));
    cases
}

/// A hundredth of it, and another one for the drift, is the time that a body has to go.
const LEASE: Duration = ms(12_000);

/// Whether the holder's body is still running.
#[derive(Clone, Debug, Default)]
struct Stage(Arc<AtomicBool>);

impl Stage {
    fn enter(&self) -> Inside {
        self.0.store(true, SeqCst);
        Inside(self.clone())
    }

    fn is_taken(&self) -> bool {
        self.0.load(SeqCst)
    }
}

struct Inside(Stage);

impl Drop for Inside {
    fn drop(&mut self) {
        // Far longer than another holder needs to enter, were it let in as soon as the body begins to go.
        thread::sleep(ms(30));
        self.0.0.store(false, SeqCst);
    }
}

#[distributed_lock(key = "<mark>:k", manager = locks)]
async fn under_one(locks: &LockManager, mark: &str, stage: &Stage) -> Result<(), LockError> {
    let _inside = stage.enter();
    pending().await
}

#[distributed_lock(keys = ["<mark>:a", "<mark>:b"], manager = locks)]
async fn under_two(locks: &LockManager, mark: &str, stage: &Stage) -> Result<(), LockError> {
    let _inside = stage.enter();
    pending().await
}

/// Returns whether the holder's body was still there.
#[distributed_lock(key = "<mark>:<name>", manager = locks, wait = "30s")]
async fn enters(locks: &LockManager, mark: &str, name: &str, stage: &Stage) -> Result<bool, LockError> {
    Ok(stage.is_taken())
}

#[derive(Clone, Copy)]
enum Under {
    One,
    Two,
}

/// A body that is to lose its lock, and others that wait for it.
struct Scene {
    holder: JoinHandle<Result<(), LockError>>,
    others: Vec<JoinHandle<bool>>,
}

impl Scene {
    /// `wanted` are the names that the others wait for. Three wait for each: one whom no fault keeps from the
    /// server, one of another client, and one of the holder's client.
    async fn set(fixture: &Fixture, locks: &LockManager, under: Under, wanted: &[&'static str]) -> Self {
        let clients = [fixture.client_past_faults().await, fixture.client().await, locks.clone()];
        let stage = Stage::default();
        let holder = tokio::spawn({
            let (locks, mark, stage) = (locks.clone(), fixture.mark().to_owned(), stage.clone());
            async move {
                match under {
                    Under::One => under_one(&locks, &mark, &stage).await,
                    Under::Two => under_two(&locks, &mark, &stage).await,
                }
            }
        });
        until("the body has begun", || if stage.is_taken() { Ok(()) } else { Err(()) }).await;
        let mut others = Vec::new();
        for name in wanted {
            for locks in &clients {
                let (locks, mark, stage) = (locks.clone(), fixture.mark().to_owned(), stage.clone());
                others.push(tokio::spawn(enters_at_last(locks, mark, name, stage)));
            }
            // The waiter of the holder's client is in the queue of the process.
            fixture.queued(&fixture.key(name), 2).await;
        }
        Self { holder, others }
    }

    async fn ends(self, fixture: &Fixture) {
        for other in self.others {
            assert!(!other.await.unwrap(), "another entered before the body was gone");
        }
        let error = self.holder.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Lost, "{error}");
        fixture.clean().await;
    }
}

async fn enters_at_last(locks: LockManager, mark: String, name: &'static str, stage: Stage) -> bool {
    loop {
        match enters(&locks, &mark, name, &stage).await {
            Ok(beside) => return beside,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        tokio::time::sleep(ms(1)).await;
    }
}

/// Both kinds of bodies, with waiters for all their locks.
async fn both(fixture: &Fixture, locks: &LockManager) -> [Scene; 2] {
    [
        Scene::set(fixture, locks, Under::One, &["k"]).await,
        Scene::set(fixture, locks, Under::Two, &["a", "b"]).await,
    ]
}

async fn a_body_is_gone_before_another_enters_when_max_hold_is_over(fixture: Fixture) {
    let locks = fixture.client().await.ttl(LONG).max_hold(ms(3000));
    for scene in both(&fixture, &locks).await {
        scene.ends(&fixture).await;
    }
}

async fn a_body_is_gone_before_another_enters_when_its_lease_is_over(fixture: Fixture) {
    let locks = fixture.client().await.ttl(LEASE).auto_renew(false);
    for scene in both(&fixture, &locks).await {
        scene.ends(&fixture).await;
    }
}

async fn a_body_is_gone_before_another_enters_when_its_lease_cannot_be_renewed(
    fixture: Fixture,
    fault: Fault,
) {
    let ttl = fixture.lease(LEASE);
    let scenes = both(&fixture, &fixture.client().await.ttl(ttl)).await;
    fixture.hurt(fault);
    // The lease is over then, whenever last renewed. Waiters kept from the server enter after the healing.
    tokio::time::sleep(ttl).await;
    fixture.heal();
    for scene in scenes {
        scene.ends(&fixture).await;
    }
}

async fn a_body_is_gone_before_another_enters_when_another_of_its_locks_is_lost(fixture: Fixture) {
    let locks = fixture.client().await.ttl(fixture.lease(LEASE));
    for (lost, other) in [("a", "b"), ("b", "a")] {
        let scene = Scene::set(&fixture, &locks, Under::Two, &[other]).await;
        fixture.lose(&fixture.key(lost));
        scene.ends(&fixture).await;
    }
}

async fn a_body_ends_at_the_next_renewal_when_the_store_gave_its_lock_away(fixture: Fixture) {
    let ttl = fixture.lease(LEASE);
    let (ours, theirs) = (fixture.client().await.ttl(ttl), fixture.client().await);
    for (under, lost) in [(Under::One, "k"), (Under::Two, "b")] {
        let scene = Scene::set(&fixture, &ours, under, &[]).await;
        let lost = fixture.key(lost);
        fixture.lose(&lost);
        let began = Moment::now();
        let next = theirs.lock(&lost).try_acquire().await.unwrap().expect("the store forgot it");
        let error = scene.holder.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Lost, "{error}");
        assert!(began.within(ttl / 3 + SLACK), "only after {:?}", began.took());
        assert!(next.is_valid(), "the one that is lost took it along");
        next.release().await.unwrap();
        fixture.clean().await;
    }
}
