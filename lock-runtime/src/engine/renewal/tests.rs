use std::{sync::Mutex, time::Instant as StdInstant};

use super::*;
use crate::{
    FencingToken, LockErrorKind, LockGuard, MultiGuard,
    backend::{BoxFuture, Held, LockId, Mode, Releasable, Released, Session},
    engine::{
        Engine,
        hold::Turn,
        terms::{Origin, Terms},
    },
    mock::{Mock, Reply, until},
    time::deadline::margin,
};

const MS: Duration = Duration::from_millis(1);

/// A session lock whose deadline the test moves.
#[derive(Debug)]
struct InSession {
    key: crate::LockKey,
    valid_until: AtomicU64,
    loss: Mutex<Option<LossNotifier>>,
    releases: AtomicU64,
}

impl Releasable for InSession {
    fn key(&self) -> &crate::LockKey {
        &self.key
    }

    fn release(&self) -> BoxFuture<'_, Result<Released, crate::LockError>> {
        self.releases.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(Released::Released) })
    }
}

impl Session for InSession {
    fn valid_until(&self) -> Instant {
        Instant::from_nanos(self.valid_until.load(Ordering::SeqCst))
    }

    fn on_loss(self: Arc<Self>, loss: LossNotifier) {
        *self.loss.lock().expect("no panic") = Some(loss);
    }
}

fn in_session(engine: &Arc<impl LossHandler>, max_hold: Duration) -> (Arc<InSession>, Arc<Hold>) {
    let session = Arc::new(InSession {
        key: crate::LockKey::new("k").expect("valid"),
        valid_until: AtomicU64::new((Instant::now() + 300 * MS).as_nanos()),
        loss: Mutex::default(),
        releases: AtomicU64::new(0),
    });
    let held = Held::Session { session: Arc::<InSession>::clone(&session), since: Instant::now() };
    let lock = LockId { key: session.key.clone(), mode: Mode::Exclusive };
    let terms = Terms { ttl: Duration::from_secs(30), auto_renew: true };
    let kept = Hold::new(held, lock, terms, Instant::now(), max_hold, Origin::default());
    Renewals::add(engine, &kept, Instant::now());
    (session, kept)
}

#[tokio::test]
async fn a_hold_of_a_session_lasts_while_its_deadline_moves_and_is_released_when_it_does_not() {
    let store = Mock::new();
    let locks = store.manager();
    let (session, hold) = in_session(locks.engine(), Duration::MAX);
    for _ in 0..8 {
        tokio::time::sleep(60 * MS).await;
        session.valid_until.store((Instant::now() + 300 * MS).as_nanos(), Ordering::SeqCst);
        assert!(hold.is_valid(Instant::now()));
    }
    assert_eq!(session.releases.load(Ordering::SeqCst), 0);
    until("it is released", || session.releases.load(Ordering::SeqCst) == 1).await;
    assert!(!hold.is_valid(Instant::now()) && hold.is_closed());
    assert_eq!(store.renewals().count("k"), 0);
}

#[tokio::test]
async fn a_hold_of_a_session_ends_when_the_store_tells_and_at_the_end_of_its_turn() {
    let store = Mock::new();
    let locks = store.manager();
    let (told, hold) = in_session(locks.engine(), Duration::MAX);
    let loss = told.loss.lock().expect("no panic").take().expect("taken when it was kept");
    loss.notify("notified");
    assert!(!hold.is_valid(Instant::now()));
    until("it is released", || told.releases.load(Ordering::SeqCst) == 1).await;
    let (capped, hold) = in_session(locks.engine(), 50 * MS);
    until("it is released", || capped.releases.load(Ordering::SeqCst) == 1).await;
    // As with a lease, the holder has time to stop before the store can give the lock to another client.
    assert!(Instant::now() >= hold.turn_ends() + margin(hold.terms.ttl));
    assert!(!hold.is_valid(Instant::now()));
}

#[tokio::test]
async fn the_loss_of_one_hold_of_a_session_leaves_the_others_to_their_guard() {
    let store = Mock::new();
    let locks = store.manager();
    let engine = locks.engine();
    let (lost, one) = in_session(engine, Duration::MAX);
    let (other, two) = in_session(engine, Duration::MAX);
    for session in [&lost, &other] {
        session.valid_until.store((Instant::now() + 60_000 * MS).as_nanos(), Ordering::SeqCst);
    }
    let guards = [one, two].map(|hold| {
        let turn = Turn::first(hold, FencingToken::from_micros(7));
        LockGuard::new(turn, engine.permit().expect("room"), Instant::now())
    });
    let guard = MultiGuard::new(guards.into(), &locks.lock("k").options).expect("held");
    let [_, ended] = guard.locks() else { unreachable!("two") };
    lost.loss.lock().expect("no panic").take().expect("kept").notify("notified");
    assert!(!ended.is_valid());
    until("it is released", || lost.releases.load(Ordering::SeqCst) == 1).await;
    assert_eq!(other.releases.load(Ordering::SeqCst), 0, "free while the guard is there");
    drop(guard);
    until("it is released", || other.releases.load(Ordering::SeqCst) == 1).await;
    assert_eq!(engine.renewals.len(), 0);
}

#[tokio::test]
async fn a_time_that_ends_between_two_looks_is_looked_at_at_once() {
    let store = Mock::new();
    let locks = store.manager();
    let guard = locks.lock("k").acquire().await.expect("granted");
    let (renewals, turn) = (&locks.engine().renewals, Arc::clone(guard.turn()));
    // The hold loses its entry, as if the job had checked the hold and not put it back yet.
    renewals.schedule(&turn.hold).take(&turn.hold);
    assert!(!locks.engine().end_retention(&turn.hold));
    turn.retain_until(Instant::now() + 50 * MS);
    drop(guard);
    std::thread::sleep(100 * MS);
    renewals.put(&turn.hold);
    until("it is released", || store.releases().count("k") == 1).await;
}

#[tokio::test]
async fn renewals_that_are_never_answered_lose_the_lock_once_and_by_the_deadline() {
    let store = Mock::new();
    let locks = store.manager();
    store.renewals().set(Reply::Silent);
    let ttl = 1500 * MS;
    let began = StdInstant::now();
    let guard = locks.lock("k").ttl(ttl).acquire().await.expect("granted");
    let deadline = began.elapsed() + guard.remaining();
    guard.lost().await;
    // On a busy machine, the notification may come late, but the deadline decides whether a hold is valid.
    assert!(began.elapsed() >= deadline && began.elapsed() < ttl * 2, "{:?}", began.elapsed());
    assert!(store.renewals().count("k") > 1, "tried again while it lasted");
    until("it is not kept any more", || locks.engine().renewals.len() == 0).await;
    assert!(!guard.turn().hold.lose(crate::engine::loss::Cause::GivenAway), "lost before");
    let tried = store.renewals().count("k");
    store.renewals().set(Reply::Yes);
    tokio::time::sleep(ttl / 3).await;
    assert_eq!(store.renewals().count("k"), tried, "a lost lock is renewed");
    assert!(!guard.is_valid());
    assert_eq!(guard.release().await.expect_err("lost").kind(), LockErrorKind::Lost);
}

#[tokio::test]
async fn renewals_that_fail_for_a_while_are_made_up_for() {
    let store = Mock::new();
    let locks = store.manager();
    let ttl = 900 * MS;
    store.renewals().once([Reply::Fails, Reply::Silent, Reply::Fails]);
    let guard = locks.lock("k").ttl(ttl).acquire().await.expect("granted");
    let began = StdInstant::now();
    while began.elapsed() < ttl * 2 {
        assert!(guard.is_valid(), "lost after {:?}", began.elapsed());
        tokio::time::sleep(5 * MS).await;
    }
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_renewal_that_hangs_delays_no_other() {
    let store = Mock::new();
    let locks = store.manager();
    store.renewals().once([Reply::Silent; 2]);
    // Leases of two lengths are renewed in two calls. The call that is due first hangs.
    let hanging = locks.lock("hanging").ttl(400 * MS).acquire().await.expect("granted");
    let others: Vec<_> = ["a", "b", "c"].map(|name| locks.lock(name).ttl(600 * MS)).into();
    let mut guards = Vec::new();
    for lock in &others {
        guards.push(lock.acquire().await.expect("granted"));
    }
    let began = StdInstant::now();
    while began.elapsed() < 1200 * MS {
        assert!(guards.iter().all(LockGuard::is_valid), "lost after {:?}", began.elapsed());
        tokio::time::sleep(5 * MS).await;
    }
    drop(hanging);
}

#[tokio::test]
async fn a_renewal_that_panics_is_tried_again() {
    let store = Mock::new();
    let locks = store.manager();
    let ttl = 600 * MS;
    store.renewals().once([Reply::Panics]);
    let guard = locks.lock("k").ttl(ttl).acquire().await.expect("granted");
    tokio::time::sleep(ttl * 2).await;
    assert!(guard.is_valid());
    store.renewals().set(Reply::Panics);
    guard.lost().await;
    // After the loss, the next caller gets the lock.
    drop(locks.lock("k").ttl(ttl).acquire().await.expect("granted"));
    until("it is not kept any more", || locks.engine().renewals.len() == 0).await;
}

#[tokio::test]
async fn a_hold_that_is_almost_lost_does_not_cut_off_the_renewal_of_another() {
    let store = Mock::new();
    let locks = store.manager();
    let ttl = 4000 * MS;
    store.acquires().once([Reply::Late(3400 * MS)]);
    let dying = locks.lock("dying").ttl(ttl).acquire().await.expect("granted");
    let healthy = locks.lock("healthy").ttl(ttl).acquire().await.expect("granted");
    assert!(dying.remaining() < 600 * MS);
    store.renewals().set(Reply::Late(300 * MS));
    let before = healthy.turn().hold.deadline();
    // Both leases are due at the same time.
    let now = Instant::now();
    for guard in [&dying, &healthy] {
        let hold = &guard.turn().hold;
        locks.engine().renewals.schedule(hold).take(hold);
        hold.scheduled.renew_at.store(now.as_nanos(), Ordering::SeqCst);
    }
    check_due(locks.engine(), vec![Arc::clone(&dying.turn().hold), Arc::clone(&healthy.turn().hold)], now);
    until("it is renewed", || healthy.turn().hold.deadline() > before).await;
    // The first attempt has the time limit of a healthy lease; a second attempt would come after a third of the lease.
    assert!(Instant::now() < now + ttl / 4);
    assert_eq!(store.renewals().count("healthy"), 1);
}

#[tokio::test]
async fn very_many_are_renewed_in_parts_that_do_not_wait_for_each_other() {
    let store = Mock::new();
    let locks = store.manager();
    let mut guards = Vec::new();
    for number in 0..=MAX_LEASES_PER_CALL {
        guards.push(locks.lock(number.to_string()).acquire().await.expect("granted"));
    }
    let holds: Vec<_> = guards.iter().map(|guard| Arc::clone(&guard.turn().hold)).collect();
    let [first, .., last] = &holds[..] else { unreachable!("more than two") };
    let before = [first.deadline(), last.deadline()];
    store.renewals().once([Reply::Silent]);
    // All leases are due at the same time.
    let now = Instant::now();
    for hold in &holds {
        locks.engine().renewals.schedule(hold).take(hold);
        hold.scheduled.renew_at.store(now.as_nanos(), Ordering::SeqCst);
    }
    check_due(locks.engine(), holds.clone(), now);
    until("the last is renewed", || last.deadline() > before[1]).await;
    assert_eq!(first.deadline(), before[0], "its part is not answered yet");
    assert_eq!(store.renewals().count("0"), 1);
}

#[tokio::test]
async fn the_answer_that_it_is_not_ours_is_final() {
    let store = Mock::new();
    let locks = store.manager();
    store.renewals().once([Reply::No]);
    let ttl = 600 * MS;
    let began = StdInstant::now();
    let guard = locks.lock("k").ttl(ttl).acquire().await.expect("granted");
    guard.lost().await;
    // The loss is noticed at the first renewal, not at the deadline.
    assert!(began.elapsed() < ttl * 2 / 3, "{:?}", began.elapsed());
    tokio::time::sleep(ttl / 2).await;
    assert_eq!(store.renewals().count("k"), 1, "asked again");
    assert!(!guard.is_valid());
}

#[tokio::test]
async fn locks_that_come_and_go_do_not_wake_the_thread_each_time() {
    let store = Mock::new();
    let locks = store.manager();
    let mut plans = Vec::new();
    for _ in 0..3 {
        locks.lock("k").acquire().await.expect("granted").release().await.expect("held");
        // If the new hold has woken the job, the job plans its next check in this time.
        tokio::time::sleep(20 * MS).await;
        plans.push(locks.engine().renewals.check_at());
    }
    assert!(plans[0] < Instant::FAR_FUTURE && plans.iter().all(|plan| *plan == plans[0]), "{plans:?}");
}

#[tokio::test]
async fn what_was_released_is_not_renewed_and_what_is_renewed_keeps_its_rhythm() {
    let store = Mock::new();
    let locks = store.manager();
    let ttl = 300 * MS;
    let released = locks.lock("released").ttl(ttl).acquire().await.expect("granted");
    let kept = locks.lock("kept").ttl(ttl).acquire().await.expect("granted");
    released.release().await.expect("held");
    tokio::time::sleep(ttl * 4).await;
    assert_eq!(store.renewals().count("released"), 0);
    // Each renewal comes after a third of the remaining time: twelve in four lengths, fewer on a busy machine, never
    // many more.
    let renewals = store.renewals().count("kept");
    assert!((5..=16).contains(&renewals), "{renewals}");
    kept.release().await.expect("held");
    assert_eq!(locks.engine().renewals.len(), 0);
}

#[tokio::test]
async fn without_renewal_or_beyond_max_hold_nothing_is_sent() {
    let store = Mock::new();
    let locks = store.manager().ttl(300 * MS);
    let once = locks.lock("once").auto_renew(false).acquire().await.expect("granted");
    let capped = locks.lock("capped").max_hold(50 * MS).acquire().await.expect("granted");
    once.lost().await;
    capped.lost().await;
    until("nothing is kept any more", || locks.engine().renewals.len() == 0).await;
    assert_eq!((store.renewals().count("once"), store.renewals().count("capped")), (0, 0));
}

#[tokio::test]
async fn a_turn_that_is_passed_on_when_max_hold_was_seen_to_end_is_renewed() {
    let store = Mock::new();
    let locks = store.manager();
    let ttl = 600 * MS;
    let guard = locks.lock("k").ttl(ttl).max_hold(150 * MS).acquire().await.expect("granted");
    let hold = Arc::clone(&guard.turn().hold);
    until("it waits for its end", || hold.scheduled.due.load(Ordering::SeqCst) == hold.deadline().as_nanos())
        .await;
    // The holder has just left, and the lease is handed over.
    let next = guard.turn().next(Instant::now(), ttl * 10).expect("tokens are left");
    locks.engine().renewals.turn_moved(&hold);
    tokio::time::sleep(ttl * 2).await;
    assert!(next.is_valid(Instant::now()), "not renewed");
}

#[tokio::test]
async fn a_lease_that_is_handed_over_at_the_end_of_its_retention_is_renewed() {
    let store = Mock::new();
    let locks = store.manager();
    let ttl = 600 * MS;
    let first = locks.lock("k").ttl(ttl).hold_at_least(150 * MS).acquire().await.expect("granted");
    let waiting = locks.lock("k").ttl(ttl);
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    first.release().await.expect("held");
    let next = waiting.await.expect("no panic").expect("granted");
    assert_eq!(store.acquires().count("k"), 1, "handed over");
    tokio::time::sleep(ttl * 2).await;
    assert!(next.is_valid(), "not renewed");
    next.release().await.expect("held");
    assert_eq!(locks.engine().renewals.len(), 0);
}

#[tokio::test]
async fn a_loss_that_was_reported_before_the_end_of_its_turn_does_not_end_the_renewals() {
    let store = Mock::new();
    let locks = store.manager();
    let ttl = 600 * MS;
    let guard = locks.lock("k").ttl(ttl).max_hold(Duration::MAX).acquire().await.expect("granted");
    assert!(guard.turn().hold.is_first_report());
    tokio::time::sleep(ttl * 2).await;
    assert!(guard.is_valid(), "not renewed");
    guard.release().await.expect("held");
}

/// An engine that panics when it cleans up after its first loss, as a subscriber of its log may.
struct PanicsOnce {
    engine: Arc<Engine>,
    losses: AtomicU64,
}

impl LossHandler for PanicsOnce {
    fn renewals(&self) -> &Arc<Renewals> {
        &self.engine.renewals
    }

    fn metrics(&self) -> &Metrics {
        self.engine.metrics()
    }

    fn renewal(&self) -> Option<&dyn Renew> {
        self.engine.renewal()
    }

    fn end_retention(&self, _: &Arc<Hold>) -> bool {
        false
    }

    fn lost(&self, _: &Arc<Hold>, _: bool) {
        assert_ne!(self.losses.fetch_add(1, Ordering::SeqCst), 0, "the first loss");
    }
}

#[tokio::test]
async fn a_panic_at_a_loss_ends_neither_the_check_of_the_other_holds_nor_the_job() {
    let store = Mock::new();
    let locks = store.manager();
    let engine = Arc::new(PanicsOnce { engine: Arc::clone(locks.engine()), losses: AtomicU64::new(0) });
    let holds = [1, 2, 3].map(|number| {
        let (session, hold) = in_session(&engine, Duration::MAX);
        // The first two are due together.
        let valid = if number < 3 { 200 } else { 600 };
        session.valid_until.store((Instant::now() + valid * MS).as_nanos(), Ordering::SeqCst);
        engine.renewals().turn_moved(&hold);
        hold
    });
    until("all of them are lost", || engine.losses.load(Ordering::SeqCst) == 3).await;
    assert!(holds.iter().all(|hold| hold.is_closed()));
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_the_retention_of_a_lost_session_lock() {
    for guard_leaves_first in [false, true] {
        let store = Mock::new();
        let locks = store.manager();
        let engine = locks.engine();
        let (session, hold) = in_session(engine, Duration::MAX);
        let turn = Turn::first(hold, FencingToken::from_micros(7));
        turn.retain_until(Instant::now() + Duration::from_secs(3_600));
        let guard = LockGuard::new(turn, engine.permit().expect("room"), Instant::now());
        let loss = session.loss.lock().expect("no panic").take().expect("kept");
        if guard_leaves_first {
            session.valid_until.store(0, Ordering::SeqCst);
            drop(guard);
            loss.notify("notified");
        } else {
            loss.notify("notified");
            drop(guard);
        }
        tokio::time::timeout(Duration::from_secs(5), locks.shutdown()).await.expect("it returns");
        assert_eq!(session.releases.load(Ordering::SeqCst), 0, "released before its time");
    }
}

#[tokio::test]
async fn a_renewal_on_its_way_does_not_outlive_the_release() {
    let store = Mock::new();
    let locks = store.manager();
    let ttl = 300 * MS;
    store.renewals().set(Reply::Late(20 * MS));
    let guard = locks.lock("k").ttl(ttl).acquire().await.expect("granted");
    until("a renewal is on its way", || store.renewals().count("k") == 1).await;
    let hold = Arc::clone(&guard.turn().hold);
    guard.release().await.expect("held");
    tokio::time::sleep(ttl).await;
    assert_eq!(store.renewals().count("k"), 1);
    assert!(hold.is_closed() && locks.engine().renewals.len() == 0);
}

#[tokio::test]
async fn the_job_ends_with_the_last_handle_to_the_store() {
    let store = Mock::new();
    let engine = {
        let locks = store.manager();
        let guard = locks.lock("k").ttl(300 * MS).acquire().await.expect("granted");
        let engine = Arc::downgrade(locks.engine());
        drop(locks);
        until("it is renewed without a manager", || store.renewals().count("k") > 1).await;
        drop(guard);
        engine
    };
    until("the store is not used any more", || engine.strong_count() == 0).await;
}
