//! The attribute inside and next to other macros: `macro_rules!`, `tracing::instrument`, `async_trait`, `tokio::main`.

use super::*;

macro_rules! key_from_outside {
    ($name:ident, $key:literal, $ty:ty) => {
        #[distributed_lock(key = $key)]
        async fn $name(id: u64) -> $ty {
            assert_held("macro:key:1").await;
            Ok(id)
        }
    };
}
key_from_outside!(key_passed, "macro:key:<id>", Result<u64, AppError>);

macro_rules! parameter_from_outside {
    ($name:ident, $parameter:ident, $manager:expr, $ttl:expr, $body:block) => {
        #[distributed_lock(key = "macro:parameter:<outer>", manager = $manager, ttl = $ttl)]
        async fn $name($parameter: u64) -> Result<u64, AppError> $body
    };
}
parameter_from_outside!(parameter_passed, outer, locks(), "1s", {
    assert_held("macro:parameter:2").await;
    Ok(outer)
});

mod facade {
    pub(crate) use lock_runtime as inside;
}

macro_rules! through_facade {
    ($name:ident) => {
        #[distributed_lock(key = "macro:facade:<id>", crate = $crate::cases::other_macros::facade::inside)]
        async fn $name(id: u64) -> Result<u64, AppError> {
            assert_held("macro:facade:3").await;
            Ok(id)
        }
    };
}
through_facade!(facade_passed);

#[distributed_lock(key = "macro:crate:<id>", crate = crate::cases::other_macros::facade::inside)]
async fn other_crate(id: u64) -> Result<u64, AppError> {
    Ok(id)
}

#[tracing::instrument(skip(id), err(Debug))]
#[distributed_lock(key = "macro:span-inside:<id>")]
async fn span_inside(id: u64) -> Result<u64, AppError> {
    assert_held("macro:span-inside:4").await;
    Ok(id)
}

#[distributed_lock(key = "macro:span-outside:<id>")]
#[tracing::instrument(skip(id), err(Debug))]
async fn span_outside(id: u64) -> Result<u64, AppError> {
    assert_held("macro:span-outside:5").await;
    Ok(id)
}

#[async_trait::async_trait]
trait Dynamic {
    async fn inside(&self, id: u64) -> Result<u64, AppError>;
    async fn outside(&self, id: u64) -> Result<u64, AppError>;
}

#[async_trait::async_trait]
impl Dynamic for () {
    #[tracing::instrument(skip(self))]
    #[distributed_lock(key = "macro:dynamic-inside:<id>")]
    async fn inside(&self, id: u64) -> Result<u64, AppError> {
        assert_held("macro:dynamic-inside:6").await;
        Ok(id)
    }

    #[distributed_lock(key = "macro:dynamic-outside:<id>")]
    #[tracing::instrument(skip(self))]
    async fn outside(&self, id: u64) -> Result<u64, AppError> {
        assert_held("macro:dynamic-outside:7").await;
        Ok(id)
    }
}

#[distributed_lock(key = "macro:main")]
#[tokio::main]
async fn entry_point() -> Result<u64, AppError> {
    assert_held("macro:main").await;
    Ok(8)
}

#[distributed_lock(key = "macro:test", manager = locks())]
#[tokio::test]
async fn test_under_a_lock() -> Result<(), AppError> {
    assert_held("macro:test").await;
    Ok(())
}

#[distributed_lock(key = "macro:cfg:<gone>")]
#[cfg(any())]
async fn removed(gone: NoSuchType) {}

#[tokio::test]
async fn all() {
    locks();
    assert_eq!(key_passed(1).await.expect("free"), 1);
    assert_eq!(parameter_passed(2).await.expect("free"), 2);
    assert_eq!(facade_passed(3).await.expect("free"), 3);
    assert_eq!(other_crate(3).await.expect("free"), 3);
    assert_eq!(assert_send(span_inside(4)).await.expect("free"), 4);
    assert_eq!(assert_send(span_outside(5)).await.expect("free"), 5);
    assert_eq!(assert_send(().inside(6)).await.expect("free"), 6);
    assert_eq!(assert_send(().outside(7)).await.expect("free"), 7);
    assert_eq!(tokio::task::spawn_blocking(entry_point).await.expect("no panic").expect("free"), 8);
}
