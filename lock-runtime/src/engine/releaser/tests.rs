use super::*;
use crate::{
    LockGuard, LockManager, background,
    mock::{Mock, Reply, until},
};

const MS: Duration = Duration::from_millis(1);
const TTL: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_release_is_repeated_until_the_store_answers() {
    let store = Mock::new();
    let locks = store.manager().ttl(TTL);
    store.releases().once([Reply::Fails; 4]);
    drop(locks.lock("k").acquire().await.expect("granted"));
    locks.shutdown().await;
    assert_eq!(store.releases().count("k"), 5);
}

#[tokio::test]
async fn an_answer_that_it_is_not_ours_ends_it() {
    let store = Mock::new();
    let locks = store.manager().ttl(TTL);
    store.releases().set(Reply::No);
    drop(locks.lock("k").acquire().await.expect("granted"));
    locks.shutdown().await;
    assert_eq!(store.releases().count("k"), 1);
}

#[tokio::test]
async fn it_ends_when_the_lease_must_have_ended_by_itself() {
    let store = Mock::new();
    let locks = store.manager().ttl(100 * MS);
    store.releases().set(Reply::Fails);
    drop(locks.lock("k").acquire().await.expect("granted"));
    let drained = tokio::time::timeout(5000 * MS, locks.shutdown()).await;
    assert!(drained.is_ok(), "tried forever");
    assert!(store.releases().count("k") > 1);
}

/// Acquires `count` locks, named by their numbers.
async fn many(locks: &LockManager, count: usize) -> Vec<LockGuard> {
    let mut guards = Vec::new();
    for number in 0..count {
        guards.push(locks.lock(number.to_string()).acquire().await.expect("granted"));
    }
    guards
}

#[tokio::test]
async fn of_many_releases_that_failed_one_asks_for_all() {
    const COUNT: usize = 500;
    let store = Mock::new();
    let locks = store.manager().ttl(Duration::from_mins(10));
    store.releases().set(Reply::Fails);
    drop(many(&locks, COUNT).await);
    until("each was tried", || (0..COUNT).all(|number| store.releases().count(&number.to_string()) > 0))
        .await;
    let (before, began) = (store.releases().total(), Instant::now());
    while Instant::now() < began + 1000 * MS {
        tokio::time::sleep(10 * MS).await;
    }
    let calls = store.releases().total() - before;
    assert!(calls < 20, "{calls} calls in a second");
    store.releases().set(Reply::Yes);
    locks.shutdown().await;
    // The store has answered one probe, and then all the other releases.
    assert!((0..COUNT).all(|number| store.releases().count(&number.to_string()) <= 2 + calls));
}

#[tokio::test]
async fn a_lock_that_the_store_refuses_to_release_does_not_hold_up_the_others() {
    let store = Mock::new();
    let locks = store.manager().ttl(3000 * MS);
    store.releases().set(Reply::Fails);
    for refused in 0..3 {
        store.releases().set_about(&refused.to_string(), Reply::Fails);
    }
    drop(many(&locks, 100).await);
    let calls = |number: usize| store.releases().count(&number.to_string());
    until("each was tried", || (0..100).all(|number| calls(number) > 0)).await;
    store.releases().set(Reply::Yes);
    until("the others are released", || (3..100).all(|number| calls(number) > 1)).await;
    let before = store.releases().total();
    drop(locks.lock("fresh").acquire().await.expect("granted"));
    until("a fresh one is released", || store.releases().count("fresh") == 1).await;
    locks.shutdown().await;
    assert!(store.releases().total() - before < 30, "{} calls", store.releases().total() - before);
}

#[tokio::test]
async fn what_failed_once_does_not_wait_behind_many_that_the_store_refuses() {
    const COUNT: usize = 400;
    let store = Mock::new();
    let locks = store.manager().ttl(Duration::from_mins(10));
    for refused in 0..COUNT {
        store.releases().set_about(&refused.to_string(), Reply::Fails);
    }
    drop(many(&locks, COUNT).await);
    until("each was tried, and some as probes", || store.releases().total() > COUNT + 5).await;
    store.releases().once([Reply::Fails]);
    drop(locks.lock("fresh").acquire().await.expect("granted"));
    until("it is released", || store.releases().count("fresh") == 2).await;
    for refused in 0..COUNT {
        store.releases().set_about(&refused.to_string(), Reply::No);
    }
    locks.shutdown().await;
}

#[tokio::test]
async fn a_release_that_hangs_is_begun_anew_when_the_store_answers() {
    let store = Mock::new();
    let locks = store.manager().ttl(Duration::from_mins(10));
    let [hangs, fails] = ["hangs", "fails"].map(|key| locks.lock(key));
    let (hangs, fails) = (hangs.acquire().await.expect("granted"), fails.acquire().await.expect("granted"));
    store.releases().once([Reply::Silent, Reply::Fails, Reply::Fails]);
    drop(hangs);
    until("it hangs", || store.releases().count("hangs") == 1).await;
    drop(fails);
    let ended = tokio::time::timeout(Duration::from_secs(10), locks.shutdown()).await;
    assert!(ended.is_ok(), "it hangs still");
    assert_eq!((store.releases().count("hangs"), store.releases().count("fails")), (2, 3));
}

#[tokio::test]
async fn who_waits_for_the_end_does_not_wait_for_the_next_probe() {
    let store = Mock::new();
    store.releases().set(Reply::Fails);
    let locks = store.manager().ttl(Duration::from_mins(10));
    let releaser = Releaser::with_pause(background::handle(), Arc::new(Metrics::of("other")), |_| {
        Duration::from_hours(1)
    });
    for guard in many(&locks, 10).await {
        releaser.release(
            guard.turn().hold.in_store.releasable(),
            ReleaseTarget::Remains,
            Instant::FAR_FUTURE,
        );
        let _ = std::mem::ManuallyDrop::new(guard);
    }
    until("each was tried", || store.releases().total() == 10).await;
    store.releases().set(Reply::Yes);
    let drained = tokio::time::timeout(Duration::from_secs(10), releaser.drained()).await;
    assert!(drained.is_ok(), "it waits for the next probe");
    assert_eq!(store.releases().total(), 20);
}

#[tokio::test]
async fn releases_that_hang_do_not_keep_the_next_from_asking() {
    let store = Mock::new();
    let locks = store.manager().ttl(Duration::from_mins(10));
    let guards = many(&locks, 10).await;
    store.releases().set(Reply::Fails);
    drop(guards);
    until("each was tried", || store.releases().total() >= 10).await;
    store.releases().set(Reply::Silent);
    let before = store.releases().total();
    until("two of them hang", || store.releases().total() >= before + 2).await;
    store.releases().set(Reply::Yes);
    let ended = tokio::time::timeout(Duration::from_secs(10), locks.shutdown()).await;
    assert!(ended.is_ok(), "the prober no longer runs");
}

#[tokio::test]
async fn a_store_that_panics_loses_no_release() {
    let store = Mock::new();
    let locks = store.manager().ttl(Duration::from_mins(10));
    store.releases().once([Reply::Panics; 3]);
    drop(locks.lock("k").acquire().await.expect("granted"));
    locks.shutdown().await;
    assert_eq!(store.releases().count("k"), 4);
}

#[tokio::test]
async fn a_release_that_was_not_waited_for_goes_on() {
    let store = Mock::new();
    let locks = store.manager().ttl(TTL);
    store.releases().once([Reply::Silent, Reply::Fails]);
    let guard = locks.lock("k").acquire().await.expect("granted");
    let waited = tokio::time::timeout(20 * MS, guard.release()).await;
    assert!(waited.is_err(), "the store is silent");
    locks.shutdown().await;
    assert_eq!(store.releases().count("k"), 3);
}

#[tokio::test]
async fn a_grant_that_comes_too_late_to_be_of_use_is_given_back() {
    let store = Mock::new();
    let locks = store.manager().ttl(100 * MS);
    store.acquires().once([Reply::Late(95 * MS)]);
    let guard = locks.lock("k").acquire().await.expect("granted at the second attempt");
    assert_eq!(store.acquires().count("k"), 2);
    until("the first one is given back", || store.releases().count("k") == 1).await;
    assert!(guard.is_valid());
}

#[tokio::test]
async fn a_silent_store_ends_the_wait() {
    let store = Mock::new();
    let locks = store.manager();
    store.acquires().set(Reply::Silent);
    let began = std::time::Instant::now();
    let error = locks.lock("k").wait(100 * MS).acquire().await.expect_err("no answer");
    assert_eq!(error.kind(), crate::LockErrorKind::Backend, "{error}");
    assert!(began.elapsed() < 3000 * MS, "{:?}", began.elapsed());
}
