//! A server that allows one connection only: a lock that could not be renewed is not granted.

use std::time::Instant;

use lock_runtime::LockErrorKind;

use super::{LONG, ms};
use crate::{
    case::{Case, Need, case},
    fixture::Fixture,
    store::{CANARY, Fault},
};

pub fn cases() -> Vec<Case> {
    vec![
        case!(a_lock_that_could_not_be_renewed_is_not_granted)
            .hurts(Fault::OneConnection)
            .needs(Need::Passwords),
    ]
}

async fn a_lock_that_could_not_be_renewed_is_not_granted(fixture: Fixture) {
    fixture.hurt(Fault::OneConnection);
    let (url, key) = (fixture.url_with_password(CANARY), fixture.key("k"));
    let began = Instant::now();
    // One that needs several connections for its session is refused earlier.
    let locks = match fixture.connect(url.clone()).await {
        Err(error) => {
            assert!(error.is_retryable(), "{error}");
            fixture.heal();
            fixture.connect(url).await.unwrap()
        }
        Ok(locks) => {
            let error = locks.lock(&*key).wait(LONG).acquire().await.unwrap_err();
            assert_eq!(error.kind(), LockErrorKind::Overloaded, "{error}");
            assert!(error.to_string().contains("could not be renewed"), "{error}");
            assert!(
                error.to_string().contains("clients") || error.to_string().contains("connections"),
                "{error}"
            );
            // Nothing needs another connection then.
            let once = locks.lock(&*key).auto_renew(false).acquire().await.unwrap();
            once.release().await.unwrap();
            fixture.heal();
            locks
        }
    };
    assert!(began.elapsed() < ms(8_000), "{:?}", began.elapsed());
    // The failure is shared for a moment.
    tokio::time::sleep(ms(100)).await;
    let ttl = fixture.lease(ms(800));
    let guard = locks.lock(&*key).ttl(ttl).wait(LONG).acquire().await.unwrap();
    tokio::time::sleep(ttl * 3 / 2).await;
    assert!(guard.is_valid(), "it is not renewed");
    guard.release().await.unwrap();
}
