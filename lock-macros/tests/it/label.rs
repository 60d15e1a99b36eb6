//! The label of a function's lock.

use std::sync::LazyLock;

use lock_runtime::{LockError, LockErrorKind, LockManager, backend::Memory, distributed_lock};

static LOCKS: LazyLock<LockManager> = LazyLock::new(|| LockManager::new(Memory::new()));

/// Returns the label that the store shows to operators.
async fn shown(key: &str) -> Result<Option<String>, LockError> {
    let state = LOCKS.inspect(key).await?;
    assert!(state.is_held(), "{key}");
    Ok(state.holders[0].label().map(ToOwned::to_owned))
}

#[distributed_lock(key = "default:<secret>", manager = LOCKS)]
async fn by_default(secret: &str) -> Result<Option<String>, LockError> {
    shown(&format!("default:{secret}")).await
}

#[distributed_lock(keys = ["literal", "other:<secret>"], manager = LOCKS, label = "the <report")]
async fn literal(secret: &str) -> Result<Option<String>, LockError> {
    let labels = (shown("literal").await?, shown(&format!("other:{secret}")).await?);
    assert_eq!(labels.0, labels.1);
    Ok(labels.0)
}

struct Import {
    trigger: String,
}

impl Import {
    #[distributed_lock(key = "import", manager = LOCKS, label = self.trigger)]
    async fn run(&self) -> Result<Option<String>, LockError> {
        shown("import").await
    }
}

#[distributed_lock(key = "computed", manager = LOCKS, label = format!("batch {number}"))]
async fn computed(number: u64) -> Result<Option<String>, LockError> {
    shown("computed").await
}

#[tokio::test]
async fn the_label_is_the_function_or_what_the_option_says() {
    assert_eq!(by_default("canary").await.expect("free").as_deref(), Some("it::label::by_default"));
    assert_eq!(literal("canary").await.expect("free").as_deref(), Some("the <report"));
    let import = |trigger: &str| Import { trigger: trigger.into() };
    assert_eq!(import("by hand").run().await.expect("free").as_deref(), Some("by hand"));
    assert_eq!(import("").run().await.expect("free"), None, "an empty text is no label");
    assert_eq!(computed(7).await.expect("free").as_deref(), Some("batch 7"));
}

#[tokio::test]
async fn a_computed_label_that_is_not_allowed_is_refused() {
    for trigger in ["x".repeat(64), "a\nb".into()] {
        let error = Import { trigger }.run().await.expect_err("not allowed");
        assert_eq!(error.kind(), LockErrorKind::InvalidOptions);
        assert!(error.to_string().contains("the label of the lock"), "{error}");
    }
}
