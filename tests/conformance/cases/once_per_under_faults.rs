//! `once_per` while the store fails: no period is run twice, and none is used up unless a body may have begun.

use std::time::{Duration, SystemTime};

use lock_runtime::{LockError, LockErrorKind};

use super::{
    LONG, SLACK, ms,
    once_per::{beginning, calm_period, is_left, is_used, once, unix_time},
    outage::OUTAGES,
};
use crate::{
    case::{Case, case},
    fixture::Fixture,
    polling::{begun, drop_after},
    store::Fault,
    support::stopwatch::Moment,
};

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        case!(a_claim_that_is_carried_out_late_runs_no_period_again).hurts(Fault::RequestsHeld),
        case!(a_shutdown_is_not_held_up_by_the_mark).hurts(Fault::Paused),
        case!(a_lost_answer_uses_up_no_period, Fault::AnswerLost).under(Fault::AnswerLost(1)),
        case!(a_lost_answer_uses_up_no_period, Fault::CutInRequest).under(Fault::CutInRequest(1)),
    ];
    cases.extend(OUTAGES.map(|fault| case!(an_outage_uses_up_no_period, fault).under(fault)));
    cases
}

/// A claim reaches the store when its period is over, and its mark, set by another client, has ended.
async fn a_claim_that_is_carried_out_late_runs_no_period_again(fixture: Fixture) {
    let period = ms(1000);
    let theirs = fixture.client_past_faults().await;
    let mut rounds = 0;
    for attempt in 0.. {
        assert!(attempt < 20, "the machine is too slow");
        let ours = fixture.client().await;
        let key = fixture.key(&attempt.to_string());
        once(&ours, &fixture.key("other"), Duration::from_hours(1))
            .await
            .map(drop)
            .or_else(|error| if error.kind() == LockErrorKind::AlreadyRun { Ok(()) } else { Err(error) })
            .unwrap();
        while unix_time().as_nanos() % period.as_nanos() > period.as_nanos() / 4 {
            tokio::time::sleep(ms(5)).await;
        }
        fixture.hurt(Fault::RequestsHeld);
        let claimed = beginning(unix_time(), period);
        let lock = ours.lock(&key).ttl(LONG).wait(LONG).once_per(period);
        let late = begun(async move { lock.acquire().await }).await;
        tokio::time::sleep(ms(100)).await;
        let ran = once(&theirs, &key, period).await;
        let is_of_this_period = ran.as_ref().is_ok_and(|guard| guard.period() == Some(claimed));
        if let Ok(guard) = ran {
            guard.release().await.unwrap();
        }
        let over = claimed + period * 5 / 4;
        tokio::time::sleep(over.duration_since(SystemTime::now()).unwrap_or_default()).await;
        fixture.heal();
        match late.await.unwrap() {
            Ok(guard) => {
                assert!(!is_of_this_period || guard.period() != Some(claimed), "{claimed:?} is run twice");
                guard.release().await.unwrap();
            }
            Err(error) => {
                assert!(
                    matches!(error.kind(), LockErrorKind::AlreadyRun | LockErrorKind::Backend),
                    "{error}"
                );
            }
        }
        rounds += u32::from(is_of_this_period);
        if rounds == 3 {
            break;
        }
    }
}

async fn an_outage_uses_up_no_period(fixture: Fixture, fault: Fault) {
    let ours = fixture.client().await;
    let period = calm_period();
    once(&ours, &fixture.key("warm"), period).await.unwrap().release().await.unwrap();
    // At the mark, by a single attempt and by one that is repeated; and at the lock.
    let [single, repeated, waiting] = ["single", "repeated", "waiting"].map(|key| fixture.key(key));
    let holder = fixture.client_past_faults().await;
    let guard = holder.lock(&waiting).ttl(LONG).acquire().await.unwrap();
    let lock = ours.lock(&waiting).ttl(LONG).wait(ms(3000)).once_per(period);
    let waiter = begun(async move { lock.acquire().await.map(drop) }).await;
    fixture.queued(&waiting, 1).await;
    fixture.hurt(fault);
    let error = ours.lock(&repeated).wait(ms(1500)).once_per(period).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    let error =
        ours.lock(&single).ttl(fixture.lease(ms(2000))).once_per(period).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    waiter.await.unwrap().unwrap_err();
    // It ends with its connection, or stays.
    drop(guard);
    fixture.heal();
    let theirs = fixture.client().await;
    for key in [single, repeated, waiting] {
        is_left(&theirs, &key, period).await.release().await.unwrap();
        is_used(&ours, &key, period).await;
    }
}

/// Each answer in turn is lost, or each request is cut: those about the mark, about the lock, and about their removal.
async fn a_lost_answer_uses_up_no_period(fixture: Fixture, fault: fn(u32) -> Fault) {
    let theirs = fixture.client_past_faults().await;
    let is_of_an_answer = matches!(fault(1), Fault::AnswerLost(_));
    let steps: Vec<u32> =
        if is_of_an_answer { (1..=8).collect() } else { (1..=16).map(|nth| nth * 40).collect() };
    for nth in steps {
        for is_kept in [true, false] {
            let (key, period) = (fixture.key(&format!("{nth}{is_kept}")), calm_period());
            let ours = fixture.client().await;
            once(&ours, &fixture.key(&format!("warm{nth}{is_kept}")), period)
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
            fixture.hurt(fault(nth));
            let ran = if is_kept {
                once(&ours, &key, period).await
            } else {
                // Dropped at a moment that depends on the store.
                let polls = nth as usize % 11;
                match drop_after(once(&ours, &key, period), polls).await {
                    Some(ran) => ran,
                    None => Err(LockError::new(LockErrorKind::Backend, "dropped")),
                }
            };
            match ran {
                Ok(guard) => {
                    is_used(&theirs, &key, period).await;
                    drop(guard);
                }
                Err(error) => {
                    assert_ne!(error.kind(), LockErrorKind::AlreadyRun, "its own mark: {error}");
                    fixture.heal();
                    is_left(&theirs, &key, period).await.release().await.unwrap();
                }
            }
            fixture.heal();
            is_used(&theirs, &key, period).await;
        }
    }
}

async fn a_shutdown_is_not_held_up_by_the_mark(fixture: Fixture) {
    let ours = fixture.client().await;
    let (key, period) = (fixture.key("k"), calm_period());
    once(&ours, &fixture.key("warm"), period).await.unwrap().release().await.unwrap();
    let ttl = fixture.lease(ms(2000));
    fixture.hurt(Fault::Paused);
    let error = ours.lock(&key).ttl(ttl).wait(ms(300)).once_per(period).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    let began = Moment::now();
    ours.shutdown().await;
    assert!(began.within(ttl + SLACK), "{:?}", began.took());
    fixture.heal();
    is_left(&fixture.client().await, &key, period).await.release().await.unwrap();
}
