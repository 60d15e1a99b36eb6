//! The course of one call: order of drops, exits, one evaluation of the key, choice of the manager.

use super::*;

/// Events in order.
static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn log(text: impl Into<String>) {
    LOG.lock().expect("no panic").push(text.into());
}

/// Logs its drop, and whether the lock was held at that time.
struct Witness(&'static str);

impl Drop for Witness {
    fn drop(&mut self) {
        let key = "promise:drop";
        let lock = locks().lock(key);
        let asked = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async { lock.try_acquire().await.expect("memory does not fail").is_none() })
        });
        log(format!("{} held={}", self.0, asked.join().expect("no panic")));
    }
}

struct Pair(Witness, #[expect(dead_code, reason = "kept only to be dropped")] Witness);

#[distributed_lock(key = "promise:drop")]
async fn drops(first: Witness, _second: Witness, pair: Pair, _: Witness) -> Result<(), AppError> {
    let _local = Witness("local");
    log(format!("body with {} and {}", first.0, pair.0.0));
    drop(pair.0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_are_dropped_before_the_lock_is_released() {
    locks();
    let pair = Pair(Witness("pair.0"), Witness("pair.1"));
    drops(Witness("first"), Witness("second"), pair, Witness("anonymous")).await.expect("free");
    assert_eq!(
        *LOG.lock().expect("no panic"),
        [
            "body with first and pair.0",
            "pair.0 held=true",
            "local held=true",
            "pair.1 held=true",
            "second held=true",
            "first held=true",
            // A parameter without a name cannot be captured.
            "anonymous held=false",
        ]
    );
}

/// Counts how often it is formatted.
struct Counted(Arc<std::sync::atomic::AtomicUsize>);

impl Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        f.write_str("x")
    }
}

#[distributed_lock(key = "promise:once:<id>", wait = "10ms")]
async fn once(id: Counted) -> Result<(), AppError> {
    drop(id);
    Ok(())
}

#[tokio::test]
async fn the_key_is_computed_once() {
    let count = Arc::default();
    let busy = locks().lock("promise:once:x").try_acquire().await.expect("no failure").expect("free");
    let error = once(Counted(Arc::clone(&count))).await.expect_err("held");
    assert!(matches!(error, AppError::Lock(_)), "{error:?}");
    assert_eq!(Arc::strong_count(&count), 1);
    assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 1);
    busy.release().await.expect("held");
}

#[distributed_lock(key = "promise:busy:<id>", wait = "0s")]
async fn does_not_wait(id: u8) -> Result<u8, AppError> {
    Ok(id)
}

#[tokio::test]
async fn the_body_does_not_run_without_the_lock() {
    let busy = locks().lock("promise:busy:1").try_acquire().await.expect("no failure").expect("free");
    match does_not_wait(1).await {
        Err(AppError::Lock(error)) => assert_eq!(error.kind(), LockErrorKind::Contended),
        other => panic!("{other:?}"),
    }
    assert_eq!(does_not_wait(2).await.expect("another lock"), 2);
    busy.release().await.expect("held");
    assert_eq!(does_not_wait(1).await.expect("free again"), 1);
}

#[distributed_lock(key = "promise:empty:<name>")]
async fn named(name: &str) -> Result<(), LockError> {
    unreachable!("{name}")
}

#[tokio::test]
async fn an_empty_value_is_an_error() {
    locks();
    let error = named("").await.expect_err("empty");
    assert_eq!(error.kind(), LockErrorKind::InvalidKey);
    assert!(error.to_string().contains("`<name>`"), "{error}");
}

#[distributed_lock(key = "promise:apart:<a>:<b>")]
async fn apart(a: &str, b: &str, key: &str) -> Result<(), AppError> {
    assert_held(key).await;
    Ok(())
}

#[tokio::test]
async fn different_values_have_different_locks() {
    locks();
    apart("1:2", "3", "promise:apart:1%3A2:3").await.expect("free");
    apart("1", "2:3", "promise:apart:1:2%3A3").await.expect("free");
}

#[distributed_lock(key = "promise:early")]
async fn early(how: u8) -> Result<u8, AppError> {
    assert_held("promise:early").await;
    match how {
        0 => return Ok(0),
        1 => Err("x".parse::<u8>().expect_err("no number"))?,
        2 => std::future::pending().await,
        _ => {}
    }
    Ok(how)
}

#[tokio::test]
async fn every_way_out_releases() {
    locks();
    assert_eq!(early(0).await.expect("free"), 0);
    assert!(!is_held("promise:early").await);
    match early(1).await {
        Err(AppError::Number(error)) => assert_eq!(error.to_string(), "invalid digit found in string"),
        other => panic!("{other:?}"),
    }
    assert!(!is_held("promise:early").await);
    tokio::time::timeout(Duration::from_millis(50), early(2)).await.expect_err("never ends");
    until_free("promise:early").await;
    assert_eq!(early(3).await.expect("free"), 3);
}

#[distributed_lock(key = "promise:scoped")]
async fn scoped() -> Result<bool, LockError> {
    Ok(is_held("promise:scoped").await)
}

#[tokio::test]
async fn a_scoped_manager_comes_before_the_global_one() {
    assert!(LockManager::new(Memory::new()).lock("x").try_acquire().await.is_ok());
    locks();
    assert!(scoped().await.expect("free"));
    let other = LockManager::new(Memory::new());
    assert!(!lock_runtime::with_manager(other, scoped()).await.expect("free"));
}
