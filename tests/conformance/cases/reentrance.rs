//! Acquiring a lock from inside its own section.

use std::time::Duration;

use lock_runtime::{LockErrorKind, current, ensure_locked};

use super::{LONG, SLACK, ms};
use crate::{
    case::{Case, case},
    fixture::Fixture,
    support::stopwatch::Moment,
};

pub fn cases() -> Vec<Case> {
    vec![
        case!(a_section_that_asks_for_its_own_lock_is_told_at_once),
        case!(a_section_that_may_enter_again_shares_the_hold),
        case!(an_inner_guard_neither_frees_nor_shortens_the_outer_hold),
        case!(an_inner_acquisition_that_is_dropped_changes_nothing),
        case!(an_inner_guard_ends_with_the_outer_hold),
        case!(a_section_that_lost_its_lock_cannot_enter_it_again),
        case!(the_hold_is_known_in_the_section_and_not_in_what_it_spawns),
        case!(another_client_of_the_store_is_told_the_same_in_the_section),
        case!(a_lock_of_the_same_name_in_another_store_is_another_lock),
    ]
}

async fn a_section_that_asks_for_its_own_lock_is_told_at_once(fixture: Fixture) {
    let locks = fixture.client().await.ttl(LONG);
    let key = fixture.key("k");
    let section = async {
        let began = Moment::now();
        let lock = locks.lock(&key);
        for error in [
            lock.acquire().await.unwrap_err(),
            lock.try_acquire().await.unwrap_err(),
            lock.clone().wait_forever().acquire().await.unwrap_err(),
            lock.clone().wait(Duration::ZERO).acquire().await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), LockErrorKind::WouldDeadlock, "{error}");
            assert!(!error.is_retryable());
            let text = error.to_string();
            assert!(text.contains(&key) && text.contains("reentrant"), "{text}");
        }
        assert!(began.within(SLACK), "{:?}", began.took());
        fixture.has_places(&key, 0);
    };
    locks.lock(&key).acquire().await.unwrap().run(section).await.unwrap();
    fixture.clean().await;
}

async fn a_section_that_may_enter_again_shares_the_hold(fixture: Fixture) {
    let locks = fixture.client().await.ttl(fixture.lease(ms(1200)));
    let key = fixture.key("k");
    let lock = locks.lock(&key).reentrant(true);
    let outer = lock.acquire().await.unwrap();
    let token = outer.fencing_token();
    let section = async {
        let inner = lock.acquire().await.unwrap();
        let innermost = lock.try_acquire().await.unwrap().expect("it is not busy for its holder");
        assert_eq!((inner.fencing_token(), innermost.fencing_token()), (token, token));
        // Renewed as one.
        tokio::time::sleep(ms(2500)).await;
        assert!(inner.is_valid() && innermost.is_valid());
        innermost.release().await.unwrap();
        inner.release().await.unwrap();
        fixture.is_held(&key).await;
    };
    outer.run(section).await.unwrap();
    fixture.clean().await;
    let next = lock.acquire().await.unwrap();
    assert!(next.fencing_token() > token);
    next.release().await.unwrap();
}

async fn an_inner_guard_neither_frees_nor_shortens_the_outer_hold(fixture: Fixture) {
    let locks = fixture.client().await.ttl(LONG);
    let key = fixture.key("k");
    let inner =
        locks.lock(&key).reentrant(true).ttl(fixture.lease(ms(100))).auto_renew(false).max_hold(ms(100));
    let section = async {
        drop(inner.acquire().await.unwrap());
        inner.acquire().await.unwrap().release().await.unwrap();
        inner.acquire().await.unwrap().run(async {}).await.unwrap();
        let dropped = inner.acquire().await.unwrap().run(std::future::pending::<()>());
        assert!(
            tokio::time::timeout(ms(300), dropped).await.is_err(),
            "the inner hold ended by its own terms"
        );
        fixture.is_held(&key).await;
        assert!(current().expect("held").is_valid());
    };
    locks.lock(&key).acquire().await.unwrap().run(section).await.unwrap();
    fixture.clean().await;
}

async fn an_inner_acquisition_that_is_dropped_changes_nothing(fixture: Fixture) {
    let locks = fixture.client().await.ttl(LONG);
    let key = fixture.key("k");
    let lock = locks.lock(&key).reentrant(true);
    let section = async {
        for polls in 0..3 {
            drop(crate::polling::drop_after(lock.acquire(), polls).await);
            let guard = lock.acquire().await.unwrap();
            drop(crate::polling::drop_after(guard.release(), polls).await);
            let guard = lock.acquire().await.unwrap();
            drop(crate::polling::drop_after(guard.run(tokio::task::yield_now()), polls).await);
        }
        fixture.is_held(&key).await;
    };
    locks.lock(&key).acquire().await.unwrap().run(section).await.unwrap();
    fixture.clean().await;
}

async fn an_inner_guard_ends_with_the_outer_hold(fixture: Fixture) {
    let locks = fixture.client().await.ttl(LONG).wait(LONG);
    let key = fixture.key("k");
    let lock = locks.lock(&key).reentrant(true);
    // In both cases: the lease goes to a waiter of the same client, or back to the store.
    for waits in [true, false] {
        let outer = lock.acquire().await.unwrap();
        let next = waits.then(|| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await.unwrap() })
        });
        let inner = outer.run(async { lock.acquire().await.unwrap() }).await.unwrap();
        assert!(!inner.is_valid() && inner.remaining().is_zero());
        inner.lost().await;
        match next {
            Some(next) => {
                let next = next.await.unwrap();
                assert!(next.fencing_token() > inner.fencing_token());
                assert_eq!(inner.release().await.unwrap_err().kind(), LockErrorKind::Lost);
                fixture.is_held(&key).await;
                next.release().await.unwrap();
            }
            None => drop(inner),
        }
        fixture.clean().await;
    }
}

async fn a_section_that_lost_its_lock_cannot_enter_it_again(fixture: Fixture) {
    let locks = fixture.client().await.ttl(fixture.lease(ms(900)));
    let key = fixture.key("k");
    let lock = locks.lock(&key).reentrant(true);
    let outer = lock.acquire().await.unwrap();
    let (told, tell) = tokio::sync::oneshot::channel();
    let section = async {
        let inner = lock.acquire().await.unwrap();
        fixture.lose(&key);
        inner.lost().await;
        assert_eq!(inner.release().await.unwrap_err().kind(), LockErrorKind::Lost);
        told.send([
            lock.acquire().await.unwrap_err().kind(),
            locks.lock(&key).acquire().await.unwrap_err().kind(),
        ])
        .unwrap();
        std::future::pending::<()>().await;
    };
    assert_eq!(outer.run(section).await.unwrap_err().kind(), LockErrorKind::Lost);
    // The section was dropped before it could ask, or got the same answer.
    if let Ok(kinds) = tell.await {
        assert_eq!(kinds, [LockErrorKind::Lost; 2]);
    }
    fixture.is_clean_and_free(&key).await;
}

async fn the_hold_is_known_in_the_section_and_not_in_what_it_spawns(fixture: Fixture) {
    let locks = fixture.client().await.ttl(LONG);
    let (key, other) = (fixture.key("k"), fixture.key("other"));
    let outer = locks.lock(&key).acquire().await.unwrap();
    let token = outer.fencing_token();
    assert!(current().is_none(), "a guard alone is no section");
    let section = async {
        assert_eq!(current().expect("held").fencing_token(), token);
        let inner = locks.lock(&other).acquire().await.unwrap();
        inner
            .run(async {
                assert_eq!(current().expect("held").key(), other.as_str());
                assert_eq!(ensure_locked(&key).unwrap().fencing_token(), token);
            })
            .await
            .unwrap();
        assert_eq!(ensure_locked(&other).unwrap_err().kind(), LockErrorKind::NotHeld);
        let lock = locks.lock(&key);
        let spawned = tokio::spawn(async move {
            assert!(current().is_none());
            lock.try_acquire().await.unwrap().is_none()
        });
        assert!(spawned.await.unwrap(), "for another task it is busy");
    };
    outer.run(section).await.unwrap();
    fixture.clean().await;
}

async fn another_client_of_the_store_is_told_the_same_in_the_section(fixture: Fixture) {
    let (ours, theirs) = (fixture.client().await.ttl(LONG), fixture.client().await.ttl(LONG));
    let key = fixture.key("k");
    let section = async {
        let token = current().expect("held").fencing_token();
        for error in [
            theirs.lock(&key).wait(ms(100)).acquire().await.unwrap_err(),
            theirs.lock(&key).try_acquire().await.map(drop).unwrap_err(),
            theirs.all([fixture.key("j"), key.clone()]).wait(ms(100)).acquire().await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), LockErrorKind::WouldDeadlock, "{error}");
        }
        let again = theirs.lock(&key).reentrant(true).acquire().await.unwrap();
        assert_eq!(again.fencing_token(), token);
        again.release().await.unwrap();
        fixture.is_held(&key).await;
    };
    ours.lock(&key).acquire().await.unwrap().run(section).await.unwrap();
    fixture.clean().await;
}

async fn a_lock_of_the_same_name_in_another_store_is_another_lock(fixture: Fixture) {
    let other = fixture.elsewhere();
    let (ours, theirs) = (fixture.client().await.ttl(LONG), other.client().await.ttl(LONG));
    let key = fixture.key("k");
    let section = async {
        theirs.lock(&key).acquire().await.expect("another lock").release().await.unwrap();
    };
    ours.lock(&key).acquire().await.unwrap().run(section).await.unwrap();
    fixture.clean().await;
    other.clean().await;
}
