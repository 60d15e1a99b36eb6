use super::*;
use crate::{
    FencingToken, LockErrorKind, OwnerToken,
    backend::{BoxFuture, HandOver, Lease, LeaseId, Mode, Releasable, Released},
};

const MS: Duration = Duration::from_millis(1);

#[derive(Debug)]
struct NoLease(LeaseId);

impl Releasable for NoLease {
    fn key(&self) -> &LockKey {
        &self.0.key
    }

    fn release(&self) -> BoxFuture<'_, Result<Released, LockError>> {
        Box::pin(async { Ok(Released::Released) })
    }
}

impl Lease for NoLease {
    fn id(&self) -> &LeaseId {
        &self.0
    }

    fn may_hand_over(&self) -> HandOver {
        HandOver::uncontended()
    }
}

fn turn(valid_for: Duration, turn_for: Duration) -> Arc<Turn> {
    turn_from(Origin::default(), valid_for, turn_for)
}

fn turn_from(origin: Origin, valid_for: Duration, turn_for: Duration) -> Arc<Turn> {
    let (token, ttl) = (FencingToken::from_micros(7), Duration::from_secs(1));
    let lock = LockId { key: LockKey::new("k").expect("valid"), mode: Mode::Exclusive };
    let LockId { key, mode } = lock.clone();
    let lease = Arc::new(NoLease(LeaseId { key, mode, owner: OwnerToken::from(1), token, ttl }));
    let now = Instant::now();
    let held = Held::Lease { lease, valid_until: now + valid_for };
    Turn::first(Hold::new(held, lock, Terms { ttl, auto_renew: true }, now, turn_for, origin), token)
}

#[test]
fn a_renewal_moves_the_deadline_and_never_back() {
    let turn = turn(1000 * MS, 5000 * MS);
    let later = turn.deadline() + 100 * MS;
    assert!(turn.hold.renewed(later));
    assert_eq!(turn.deadline(), later);
    assert!(turn.hold.renewed(Instant::now()));
    assert_eq!(turn.deadline(), later);
}

#[test]
fn a_late_renewal_does_not_revive() {
    let turn = turn(5 * MS, 5000 * MS);
    std::thread::sleep(10 * MS);
    // No caller has checked the hold since its deadline.
    assert!(!turn.hold.renewed(Instant::now() + 1000 * MS));
    let now = Instant::now();
    assert!(!turn.is_valid(now) && !turn.hold.is_valid(now));
    assert_eq!(turn.remaining(now), Duration::ZERO);
}

#[test]
fn a_deadline_seen_to_have_passed_stays_passed() {
    let turn = turn(1000 * MS, 5000 * MS);
    let deadline = turn.deadline();
    assert!(!turn.is_valid(deadline));
    assert!(!turn.is_valid(Instant::now()), "seen before");
    assert!(!turn.hold.renewed(deadline + 1000 * MS));
}

#[test]
fn a_release_that_was_sent_ends_renewal() {
    let turn = turn(1000 * MS, 5000 * MS);
    turn.hold.close();
    assert!(!turn.hold.renewed(Instant::now() + 2000 * MS));
}

#[test]
fn a_turn_ends_though_the_lease_goes_on_and_the_next_one_has_its_own_end() {
    let turn = turn(10_000 * MS, Duration::ZERO);
    let now = Instant::now();
    assert!(!turn.is_valid(now) && turn.hold.is_valid(now));
    assert!(turn.loss().to_string().contains("max_hold"));
    assert!(turn.end() && !turn.end());
    let next = turn.next(now, 5000 * MS).expect("tokens are left");
    assert!(next.is_valid(now) && next.token > turn.token);
    assert_eq!(next.deadline(), now + 5000 * MS);
    assert!(!turn.is_valid(now));
}

#[test]
fn a_loss_is_marked_once() {
    let turn = turn(1000 * MS, 5000 * MS);
    assert!(turn.hold.lose(crate::engine::loss::Cause::GivenAway));
    assert!(!turn.hold.lose(crate::engine::loss::Cause::GivenAway));
    assert!(!turn.is_valid(Instant::now()));
}

#[tokio::test]
async fn everybody_who_waits_for_the_loss_is_told_of_a_loss_a_release_and_a_deadline() {
    let endings: [fn(&Turn); 3] = [
        |turn| assert!(turn.hold.lose(crate::engine::loss::Cause::GivenAway)),
        |turn| assert!(turn.end()),
        |_| {},
    ];
    for (number, ending) in endings.into_iter().enumerate() {
        // The last turn ends by its deadline.
        let turn = turn(if number == 2 { 30 * MS } else { 60_000 * MS }, 60_000 * MS);
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let turn = Arc::clone(&turn);
                tokio::spawn(async move { turn.lost().await })
            })
            .collect();
        tokio::task::yield_now().await;
        ending(&turn);
        for waiting in waiting {
            tokio::time::timeout(5000 * MS, waiting).await.expect("notified").expect("no panic");
        }
    }
}

#[tokio::test]
async fn the_end_of_a_turn_moves_with_renewal_for_those_who_wait() {
    let turn = turn(60 * MS, 60_000 * MS);
    let waiting = tokio::spawn({
        let turn = Arc::clone(&turn);
        async move { turn.lost().await }
    });
    tokio::time::sleep(20 * MS).await;
    turn.hold.renewed(Instant::now() + 60_000 * MS);
    tokio::time::sleep(100 * MS).await;
    assert!(!waiting.is_finished(), "notified at the old deadline");
    turn.end();
    waiting.await.expect("no panic");
}

#[test]
fn the_loss_names_the_cause_that_is_known() {
    let says = |turn: &Turn, words: &str| {
        std::thread::sleep(10 * MS);
        let error = turn.loss().to_string();
        assert!(error.contains(words), "{words}: {error}");
        // A later cause changes nothing.
        turn.hold.lose(Cause::GivenAway);
        assert_eq!(turn.loss().to_string(), error);
    };
    let failure = LockError::new(LockErrorKind::Backend, "refused: because");
    says(&turn(5 * MS, 5000 * MS), "passed before a renewal was sent");
    let unanswered = turn(5 * MS, 5000 * MS);
    unanswered.hold.renewal_sent();
    says(&unanswered, "without an answer from the store");
    let failed = turn(5 * MS, 5000 * MS);
    failed.hold.renewal_sent();
    failed.hold.renewal_failed(&failure);
    failed.hold.renewal_sent();
    says(&failed, "while its renewals failed: refused: because; check");
    let mended = turn(1 * MS, 5000 * MS);
    mended.hold.renewal_failed(&failure);
    assert!(mended.hold.renewed(Instant::now() + 5 * MS));
    says(&mended, "passed before a renewal was sent");
    // The lease is not renewed after the end of the turn.
    let over = turn(5 * MS, 1 * MS);
    over.hold.renewal_failed(&failure);
    says(&over, "`max_hold` is reached");
    let given_away = turn(5000 * MS, 5000 * MS);
    given_away.hold.lose(Cause::GivenAway);
    says(&given_away, "the store says that it is no longer ours");
}

#[test]
fn a_tenth_of_the_shortest_of_ttl_session_and_max_hold_is_enough() {
    let (long, session_timeout) = (5000 * MS, Some(300 * MS));
    for (session_timeout, max_hold, least) in
        [(None, long, 100), (session_timeout, long, 30), (session_timeout, 50 * MS, 5), (None, 50 * MS, 5)]
    {
        let turn = turn_from(Origin { process: None, session_timeout }, 1000 * MS, long);
        let hold = &turn.hold;
        let with_left = |left: Duration| {
            Instant::from_nanos(hold.deadline().as_nanos() - u64::try_from(left.as_nanos()).expect("short"))
        };
        assert!(hold.has_enough_validity(with_left(least * MS), max_hold));
        assert!(
            !hold.has_enough_validity(
                with_left((least * MS).saturating_sub(Duration::from_nanos(1))),
                max_hold
            )
        );
    }
}

#[test]
fn nothing_is_never_enough() {
    let turn = turn(5 * MS, 5000 * MS);
    assert!(!turn.hold.has_enough_validity(turn.hold.deadline(), Duration::from_nanos(1)));
}

/// A process may hold a hundred thousand locks; the benchmark `renewal` bounds the memory of each.
#[test]
fn a_hold_reserves_no_memory_for_a_loss_a_link_or_a_retention() {
    let bytes = size_of::<Hold>();
    assert!(bytes <= 224, "{bytes} bytes");
}
