//! The length of a hold: renewal, its end, and how the holder learns of it.

use std::time::{Duration, Instant};

use lock_runtime::LockErrorKind;

use super::{LONG, SLACK, ms};
use crate::{
    case::{Case, Need, case},
    fixture::Fixture,
    polling::drop_after,
    store::Fault,
    support::{repeat, stopwatch::Moment},
};

pub fn cases() -> Vec<Case> {
    vec![
        case!(a_held_lock_is_renewed_beyond_its_ttl),
        case!(many_held_locks_are_all_renewed),
        case!(a_crowd_that_locks_does_not_starve_renewal).busy(),
        case!(without_renewal_the_lock_is_lost_within_its_ttl),
        case!(nobody_holds_it_while_the_holder_before_believes_that_it_does),
        case!(the_end_of_max_hold_is_a_loss_that_says_so),
        case!(what_remains_falls_and_is_zero_after_the_loss),
        case!(a_lock_that_the_store_lost_is_noticed_by_renewal_and_not_taken_back),
        case!(a_release_that_races_a_renewal_ends_the_hold),
        case!(a_body_keeps_its_result_and_the_lock_is_free_after_it),
        case!(a_body_is_dropped_when_the_lock_is_lost),
        case!(a_view_of_a_hold_ends_with_it),
        case!(the_lease_counts_from_before_the_request).hurts(Fault::Slow(Duration::ZERO)),
        case!(an_answer_that_comes_too_late_to_be_of_use_is_given_back).hurts(Fault::Slow(Duration::ZERO)),
        case!(a_renewal_counts_from_before_its_request).hurts(Fault::Slow(Duration::ZERO)),
        case!(slow_renewals_do_not_lose_the_lock).hurts(Fault::Slow(Duration::ZERO)),
        case!(nothing_is_sent_for_a_hold_that_is_over).needs(Need::CountedCalls),
    ]
}

async fn a_held_lock_is_renewed_beyond_its_ttl(fixture: Fixture) {
    let key = fixture.key("k");
    let ttl = fixture.lease(ms(1200));
    let guard = fixture.client().await.lock(&key).ttl(ttl).acquire().await.unwrap();
    let other = fixture.client().await;
    let began = Instant::now();
    while began.elapsed() < ttl * 4 {
        assert!(guard.is_valid(), "lost after {:?}", began.elapsed());
        assert!(other.lock(&key).try_acquire().await.unwrap().is_none());
        tokio::time::sleep(ms(20)).await;
    }
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn many_held_locks_are_all_renewed(fixture: Fixture) {
    let ttl = fixture.lease(ms(1500));
    let locks = fixture.client().await.ttl(ttl);
    repeat(3, async || {
        let began = Moment::now();
        let mut guards = Vec::new();
        for number in 0..300 {
            guards.push(locks.lock(fixture.key(&number.to_string())).acquire().await.unwrap());
        }
        tokio::time::sleep(ms(3500)).await;
        let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
        if lost > 0 {
            return unless_late(began, ttl, format!("{lost} of {} are lost", guards.len()));
        }
        for guard in guards {
            guard.release().await.unwrap();
        }
        Ok(())
    })
    .await;
    assert_eq!(fixture.left(), [""; 0]);
}

/// Returns the failure of a trial that is made again: meanwhile, the machine kept threads from running for a third of the
/// lease, within which a lock should be renewed.
///
/// # Panics
/// If the machine did not.
fn unless_late(began: Moment, ttl: Duration, failure: String) -> Result<(), String> {
    let took = began.took();
    assert!(took.late > ttl / 3, "{failure} after {took:?}");
    Err(failure)
}

async fn a_crowd_that_locks_does_not_starve_renewal(fixture: Fixture) {
    let locks = fixture.client().await.wait(LONG);
    let ttl = fixture.lease(ms(1500));
    repeat(3, async || {
        let guard = locks.lock(fixture.key("k")).ttl(ttl).acquire().await.unwrap();
        let began = Moment::now();
        let crowd: Vec<_> = (0..100)
            .map(|number| {
                let lock = locks.lock(fixture.key(&format!("crowd{}", number % 40)));
                tokio::spawn(async move {
                    while began.elapsed() < ttl * 2 {
                        lock.acquire().await.unwrap().release().await.unwrap();
                    }
                })
            })
            .collect();
        while guard.is_valid() && began.elapsed() < ttl * 2 {
            tokio::time::sleep(ms(20)).await;
        }
        let outcome =
            if guard.is_valid() { Ok(()) } else { unless_late(began, ttl, "it is lost".to_owned()) };
        if outcome.is_ok() {
            guard.release().await.unwrap();
        }
        for task in crowd {
            task.await.unwrap();
        }
        outcome
    })
    .await;
    fixture.clean().await;
}

async fn without_renewal_the_lock_is_lost_within_its_ttl(fixture: Fixture) {
    let key = fixture.key("k");
    let ttl = fixture.lease(ms(2000));
    let locks = fixture.client().await;
    // Connecting takes a part of the time between the deadline and the end of the lease.
    let before = Instant::now();
    let guard = locks.lock(&key).ttl(ttl).auto_renew(false).acquire().await.unwrap();
    let held = guard.held();
    guard.lost().await;
    let took = before.elapsed();
    assert!(took < ttl, "the loss was signalled only after {took:?}");
    assert!(took > ttl * 9 / 10, "the loss was signalled as early as {took:?}");
    assert!(!guard.is_valid() && !held.is_valid());
    assert_eq!(guard.ensure_valid().unwrap_err().kind(), LockErrorKind::Lost);
    assert_eq!(guard.remaining(), Duration::ZERO);
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Lost);
    assert!(error.to_string().contains("auto_renew"), "the text names the reason: {error}");
    fixture.clean().await;
}

async fn nobody_holds_it_while_the_holder_before_believes_that_it_does(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await, fixture.client().await);
    let key = fixture.key("k");
    for _ in 0..5 {
        let guard = ours.lock(&key).ttl(fixture.lease(ms(200))).auto_renew(false).acquire().await.unwrap();
        let held = guard.held();
        let lock = theirs.lock(&key).wait(LONG);
        let waiter = tokio::spawn(async move {
            let next = lock.acquire().await.unwrap();
            (held.is_valid(), next)
        });
        let (both, next) = waiter.await.unwrap();
        assert!(!both, "two believe that they hold it");
        assert!(next.is_valid() && !guard.is_valid());
        next.release().await.unwrap();
        assert_eq!(guard.release().await.unwrap_err().kind(), LockErrorKind::Lost);
    }
    fixture.clean().await;
}

async fn the_end_of_max_hold_is_a_loss_that_says_so(fixture: Fixture) {
    let key = fixture.key("k");
    let began = Moment::now();
    let guard = fixture.client().await.lock(&key).max_hold(ms(300)).acquire().await.unwrap();
    assert!(guard.remaining() <= ms(300));
    guard.lost().await;
    assert!(began.elapsed() >= ms(300) && began.within(ms(300) + SLACK), "{:?}", began.took());
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Lost);
    assert!(error.to_string().contains("max_hold"), "{error}");
    fixture.is_clean_and_free(&key).await;
}

async fn what_remains_falls_and_is_zero_after_the_loss(fixture: Fixture) {
    let ttl = fixture.lease(ms(500));
    let guard =
        fixture.client().await.lock(fixture.key("k")).ttl(ttl).auto_renew(false).acquire().await.unwrap();
    let began = Instant::now();
    assert!(guard.remaining() < ttl, "the drift and the margin are left out");
    while guard.is_valid() {
        // It may rise below that bound, where a session lives on.
        let at_most = ttl.saturating_sub(began.elapsed());
        assert!(guard.remaining() <= at_most);
        tokio::time::sleep(ms(10)).await;
    }
    assert_eq!(guard.remaining(), Duration::ZERO);
}

async fn a_lock_that_the_store_lost_is_noticed_by_renewal_and_not_taken_back(fixture: Fixture) {
    let key = fixture.key("k");
    let ttl = fixture.lease(ms(900));
    let guard = fixture.client().await.lock(&key).ttl(ttl).acquire().await.unwrap();
    let began = Moment::now();
    fixture.lose(&key);
    let next = fixture.client().await.lock(&key).try_acquire().await.unwrap().expect("the store forgot it");
    guard.lost().await;
    assert!(began.within(ttl), "noticed only after {:?}", began.took());
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(guard.release().await.unwrap_err().kind(), LockErrorKind::Lost);
    assert!(next.is_valid());
    fixture.is_held(&key).await;
    next.release().await.unwrap();
    fixture.clean().await;
}

async fn a_release_that_races_a_renewal_ends_the_hold(fixture: Fixture) {
    let locks = fixture.client().await;
    // A lease of 900 ms is renewed after about 294 ms.
    let holds: Vec<_> = (0..40_u64)
        .map(|number| {
            let lock = locks.lock(fixture.key(&number.to_string())).ttl(fixture.lease(ms(900)));
            tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                tokio::time::sleep(ms(286) + Duration::from_micros(400 * number)).await;
                if number % 2 == 0 {
                    guard.release().await.unwrap();
                } else {
                    drop(guard);
                }
            })
        })
        .collect();
    for hold in holds {
        hold.await.unwrap();
    }
    fixture.clean().await;
    // A renewal that outlived its release would bring a key back.
    tokio::time::sleep(ms(1000)).await;
    assert_eq!(fixture.left(), [""; 0]);
}

async fn a_body_keeps_its_result_and_the_lock_is_free_after_it(fixture: Fixture) {
    let key = fixture.key("k");
    let guard = fixture.client().await.lock(&key).acquire().await.unwrap();
    let other = fixture.client().await;
    let lock = other.lock(&key);
    let result = guard
        .run(async move {
            // From another task: this section would re-enter the lock.
            let asked = tokio::spawn(async move { lock.try_acquire().await.unwrap().is_none() });
            assert!(asked.await.unwrap(), "the body runs under the lock");
            "done"
        })
        .await;
    assert_eq!(result.unwrap(), "done");
    assert_eq!(fixture.left(), [""; 0]);
}

async fn a_body_is_dropped_when_the_lock_is_lost(fixture: Fixture) {
    let key = fixture.key("k");
    let ttl = fixture.lease(ms(600));
    let guard = fixture.client().await.lock(&key).ttl(ttl).acquire().await.unwrap();
    let (body_lives, mut body_died) = tokio::sync::oneshot::channel::<()>();
    let began = Moment::now();
    fixture.lose(&key);
    let error = guard
        .run(async move {
            let _body_lives = body_lives;
            std::future::pending::<()>().await;
        })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Lost);
    assert!(body_died.try_recv().is_err_and(|e| e == tokio::sync::oneshot::error::TryRecvError::Closed));
    assert!(began.within(ttl + SLACK), "{:?}", began.took());
    fixture.clean().await;
}

async fn a_view_of_a_hold_ends_with_it(fixture: Fixture) {
    let guard = fixture.client().await.lock(fixture.key("k")).acquire().await.unwrap();
    let held = guard.held();
    assert!(held.is_valid());
    assert_eq!((held.key(), held.fencing_token()), (guard.key(), guard.fencing_token()));
    guard.release().await.unwrap();
    assert!(!held.is_valid());
    assert_eq!(held.remaining(), Duration::ZERO);
    held.lost().await;
    fixture.clean().await;
}

async fn the_lease_counts_from_before_the_request(fixture: Fixture) {
    let (delay, ttl) = (ms(200), fixture.lease(ms(2000)));
    let locks = fixture.client().await;
    locks.lock(fixture.key("warm")).acquire().await.unwrap().release().await.unwrap();
    fixture.hurt(Fault::Slow(delay));
    let guard = locks.lock(fixture.key("k")).ttl(ttl).auto_renew(false).acquire().await.unwrap();
    // The store began the lease when the request came, at least `delay` ago.
    assert!(guard.remaining() + delay <= ttl, "relied on for {:?}", guard.remaining());
    fixture.heal();
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn an_answer_that_comes_too_late_to_be_of_use_is_given_back(fixture: Fixture) {
    let key = fixture.key("k");
    let ttl = fixture.lease(ms(300));
    let locks = fixture.client().await;
    // The connection for renewals then exists; making it would take longer than the wait.
    locks.lock(fixture.key("before")).acquire().await.unwrap().release().await.unwrap();
    fixture.hurt(Fault::Slow(ms(290)));
    let answer = locks.lock(&key).ttl(ttl).wait(ms(800)).acquire().await;
    match answer {
        Ok(guard) => assert!(guard.remaining() >= ttl / 20, "{:?} is of no use", guard.remaining()),
        Err(error) => assert_eq!(error.kind(), LockErrorKind::Backend, "{error}"),
    }
    fixture.heal();
    fixture.is_clean_and_free(&key).await;
}

async fn a_renewal_counts_from_before_its_request(fixture: Fixture) {
    let (locks, ttl) = fixture.client_that_keeps(ms(9000)).await;
    // Far more than the margin of a lease, or a late deadline would not show; and far less than the time for a
    // renewal, because a busy machine may make a new connection necessary, which needs several answers.
    let delay = ttl / 15;
    let guard = locks.lock(fixture.key("k")).ttl(ttl).acquire().await.unwrap();
    // Two renewals pass, so that the connection for them exists.
    tokio::time::sleep(ttl).await;
    fixture.hurt(Fault::Slow(delay));
    tokio::time::sleep(delay * 2).await;
    let (began, mut last, mut renewals) = (Instant::now(), guard.remaining(), 0);
    while began.elapsed() < ttl * 3 / 2 {
        let now = guard.remaining();
        renewals += u32::from(now > last);
        last = now;
        // The store began the lease when the request came, at least `delay` ago.
        assert!(now <= ttl.saturating_sub(delay), "relied on for {now:?}");
        tokio::time::sleep(ms(1)).await;
    }
    assert!(renewals > 0, "it was not renewed");
    fixture.heal();
    guard.release().await.unwrap();
    fixture.clean().await;
}

async fn nothing_is_sent_for_a_hold_that_is_over(fixture: Fixture) {
    let locks = fixture.client().await;
    let ttl = fixture.lease(ms(3000));
    for number in 0..40 {
        let lock = locks.lock(fixture.key(&number.to_string())).ttl(ttl);
        match number % 3 {
            0 => drop(drop_after(lock.acquire(), number % 7).await),
            1 => lock.acquire().await.unwrap().release().await.unwrap(),
            _ => drop(lock.acquire().await.unwrap()),
        }
    }
    fixture.clean().await;
    // What was given up may be released again when nothing is left.
    tokio::time::sleep(ms(700)).await;
    let before = fixture.calls();
    // Past the first renewal, and past the end.
    tokio::time::sleep(ttl * 5 / 4).await;
    assert_eq!(fixture.calls() - before, 0, "calls for holds that are over");
}

async fn slow_renewals_do_not_lose_the_lock(fixture: Fixture) {
    // A renewal attempt over a new connection has a tenth of the lease, of which each answer takes two thirds; the
    // rest is to be more than the delays of a busy machine.
    let (locks, ttl) = fixture.client_that_keeps(ms(9000)).await;
    let guard = locks.lock(fixture.key("k")).ttl(ttl).acquire().await.unwrap();
    fixture.hurt(Fault::Slow(ttl / 15));
    let began = Instant::now();
    while began.elapsed() < ttl * 2 {
        assert!(guard.is_valid(), "lost after {:?}", began.elapsed());
        tokio::time::sleep(ms(20)).await;
    }
    fixture.heal();
    guard.release().await.unwrap();
    fixture.clean().await;
}
