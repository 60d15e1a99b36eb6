//! The span of an acquisition.

use std::{future::Future, pin::Pin};

use tracing::{Instrument, field::Empty};

use crate::{LockError, backend::LockId, engine::Engine, metrics::Outcome, time::clock::Instant};

/// Acquires in a span, if a subscriber wants the span.
///
/// # Cancel safety
/// As cancel safe as `acquiring`.
pub(crate) async fn traced<T>(
    engine: &Engine,
    locks: &[LockId],
    acquiring: Pin<&mut impl Future<Output = Result<T, LockError>>>,
) -> Result<T, LockError> {
    let lock = &locks[0];
    let span = tracing::debug_span!(
        "acquire lock",
        lock.store = engine.backend.capabilities().name(),
        lock.class = lock.key.class(),
        lock.mode = lock.mode.name(),
        lock.count = locks.len(),
        lock.waited = Empty,
        lock.outcome = Empty,
    );
    if span.is_disabled() {
        return acquiring.await;
    }
    let began = Instant::now();
    let acquired = acquiring.instrument(span.clone()).await;
    let outcome = acquired.as_ref().map_or_else(|error| Outcome::of(error.kind()), |_| Outcome::Acquired);
    span.record("lock.waited", Instant::now().saturating_duration_since(began).as_secs_f64());
    span.record("lock.outcome", outcome.name());
    acquired
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::mock::{Log, Mock, Reply};

    /// Duration of the body of a section.
    const SECTION: Duration = Duration::from_millis(20);

    /// The spans of what `acquire` does, without the marks of entering and leaving, and without times.
    async fn spans(acquire: impl AsyncFnOnce()) -> Vec<String> {
        let log = Log::default();
        let logging = tracing::subscriber::set_default(log.clone());
        acquire().await;
        drop(logging);
        let timeless = |line: &str| match line.split_once('=') {
            Some((name @ ("lock.waited" | "lock.held"), seconds)) => {
                let least = if name == "lock.held" { SECTION.as_secs_f64() } else { 0.0 };
                assert!((least..10.0).contains(&seconds.parse().expect("a number")), "{line}");
                name.to_owned()
            }
            _ => line.to_owned(),
        };
        log.spans().lines().map(|line| timeless(line.trim_start_matches(['(', ')']))).collect()
    }

    #[tokio::test]
    async fn an_acquisition_and_a_section_have_spans_that_state_no_name() {
        let store = Mock::new();
        let locks = store.manager().class("user:<id>").wait(Duration::ZERO);
        let seen = spans(async || {
            let guard = locks.lock("canary").acquire().await.expect("granted");
            guard.run(tokio::time::sleep(SECTION)).await.expect("held");
        });
        let of = |count: u32| {
            [
                "lock.store=\"other\"".to_owned(),
                "lock.class=\"user:<id>\"".to_owned(),
                "lock.mode=\"exclusive\"".to_owned(),
                format!("lock.count={count}"),
            ]
        };
        let expected = |count, outcome: &str| {
            let mut all = vec!["acquire lock".to_owned()];
            all.extend(of(count));
            all.push("lock.waited".to_owned());
            all.push(format!("lock.outcome=\"{outcome}\""));
            all
        };
        let section = [vec!["hold lock".to_owned()], of(1).to_vec(), vec!["lock.held".to_owned()]].concat();
        let expected_first = [expected(1, "acquired"), section].concat();
        assert_eq!(seen.await[..expected_first.len()], expected_first);
        store.acquires().once([Reply::No]);
        let seen = spans(async || drop(locks.lock("canary").acquire().await.expect_err("held")));
        assert_eq!(seen.await, expected(1, "contended"));
        let seen = spans(async || drop(locks.all(["canary", "b"]).acquire().await.expect("granted")));
        assert_eq!(seen.await, expected(2, "acquired"));
    }

    #[tokio::test]
    async fn a_body_runs_in_the_span_of_its_section() {
        let locks = Mock::new().manager();
        let guard = locks.lock("k").acquire().await.expect("granted");
        let log = Log::default();
        let logging = tracing::subscriber::set_default(log.clone());
        let body = async {
            let inside = log.spans();
            tokio::task::yield_now().await;
            (inside, log.spans())
        };
        let (first, second) = guard.run(body).await.expect("held");
        drop(logging);
        assert!(first.ends_with("\n("), "{first:?}");
        assert!(second.ends_with("\n()("), "{second:?}");
        assert!(log.spans().contains("\n()()lock.held="), "{:?}", log.spans());
    }
}
