//! The expressions that `manager = …` accepts.

use std::sync::{Arc, LazyLock, OnceLock};

use lock_runtime::{
    LockError, LockErrorKind, LockManager, backend::Memory, current, distributed_lock, lock_key,
};

static LAZY: LazyLock<LockManager> = LazyLock::new(|| LockManager::new(Memory::new()));
static ONCE: OnceLock<Arc<LockManager>> = OnceLock::new();

#[distributed_lock(key = "user:<id>", manager = LAZY)]
async fn made_at_first_use(id: u64) -> Result<bool, LockError> {
    Ok(current().is_some())
}

#[distributed_lock(key = "user:<id>", manager = ONCE.get().expect("set at start"))]
async fn set_at_start(id: u64) -> Result<bool, LockError> {
    Ok(current().is_some())
}

#[tokio::test]
async fn a_static_is_named_as_it_is() {
    assert!(made_at_first_use(1).await.expect("free"));
    assert!(ONCE.set(Arc::new(LAZY.clone())).is_ok());
    assert!(set_at_start(1).await.expect("free"));
}

#[distributed_lock(key = "user:<name>")]
async fn without(name: &str) -> Result<(), LockError> {
    let _ = name;
    Ok(())
}

#[distributed_lock(keys = ["user:<name>", "all"], manager = LAZY)]
async fn several(name: &str) -> Result<(), LockError> {
    let _ = name;
    Ok(())
}

#[tokio::test]
async fn an_error_about_the_attribute_names_its_function() {
    let error = without("me").await.expect_err("no manager is set in this program");
    assert_eq!(error.kind(), LockErrorKind::NoManager);
    assert!(error.to_string().starts_with("`it::manager::without` has no lock manager: "), "{error}");

    let nobody = "";
    let by_hand = (lock_key!("user:<nobody>"), line!());
    let by_hand = (by_hand.0.map(drop), format!("`lock_key!` at {}:{}:", file!(), by_hand.1));
    for (outcome, place) in [
        (without("").await, "`it::manager::without`: ".into()),
        (several("").await, "`it::manager::several`: ".into()),
        by_hand,
    ] {
        let error = outcome.expect_err("no value");
        assert_eq!(error.kind(), LockErrorKind::InvalidKey);
        let text = error.to_string();
        assert!(text.starts_with(&place) && text.contains("` is empty, which would put all"), "{text}");
    }
}
