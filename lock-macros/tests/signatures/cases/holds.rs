//! The hold inside the body: `guard`, with various keys and options.

use super::*;

#[distributed_lock(keys = ["hold:<from>", "hold:<to>"], guard = held)]
async fn several((from, to): (u8, u8)) -> Result<Vec<String>, AppError> {
    for key in ["hold:1", "hold:2"] {
        assert_held(key).await;
    }
    Ok(held.iter().map(|held| held.key().to_string()).collect())
}

/// The body reuses the name `held` for a variable of its own.
#[distributed_lock(key = "hold:own:<guard>", guard = held, max_hold = "forever", reentrant = true)]
async fn own_name(guard: u8) -> Result<u64, AppError> {
    let held = held.fencing_token();
    Ok(held.get())
}

#[distributed_lock(key = "hold:raw", guard = r#type, max_hold = Duration::from_secs(90))]
async fn raw_name() -> Result<bool, AppError> {
    Ok(r#type.is_valid())
}

macro_rules! named_from_outside {
    ($name:ident, $held:ident, $contention:ident, $body:block) => {
        #[distributed_lock(keys = ["hold:macro"], guard = $held, on_contention = $contention)]
        async fn $name() -> Result<(), AppError> $body
    };
}
named_from_outside!(passed, held, skip, {
    assert!(held.get("hold:macro").is_some());
    Ok(())
});

#[distributed_lock(key = "{<tenant>}:hold:<id>", guard = held)]
async fn tagged(tenant: &str, id: u8) -> Result<String, AppError> {
    Ok(held.key().to_string())
}

#[tokio::test]
async fn all() {
    locks();
    assert_eq!(assert_send(several((2, 1))).await.expect("free"), ["hold:1", "hold:2"]);
    let first = assert_send(own_name(1)).await.expect("free");
    assert!(own_name(1).await.expect("free") > first);
    assert!(raw_name().await.expect("free"));
    assert_send(passed()).await.expect("free");
    assert_eq!(tagged("a:{b}", 7).await.expect("free"), "{a%3A%7Bb%7D}:hold:7");
}
