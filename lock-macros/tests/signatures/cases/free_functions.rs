//! Free functions: generics, patterns, parameters that are used only in the key.

use super::*;

/// Documentation stays.
#[distributed_lock(key = "free:plain:<id>", ttl = "30s", wait = "5s", auto_renew = true)]
pub(super) async fn plain(id: u64) -> Result<u64, AppError> {
    assert_held("free:plain:1").await;
    let more: u64 = "5".parse()?;
    if more == 9 {
        return Ok(1);
    }
    Ok(id + more)
}

#[distributed_lock(key = "free:constant", auto_renew = false)]
async fn constant() -> Result<(), LockError> {
    assert_held("free:constant").await;
    Ok(())
}

#[distributed_lock(key = "free:generic:<id>:<user.id>:<user.place.1>", ttl = "1m30s", wait = "forever")]
async fn generic<'a, T: Display + Sync>(id: &'a T, user: &User, mut n: i32) -> Result<&'a T, AppError> {
    assert_held("free:generic:a%20b:7:2").await;
    n += 1;
    assert_eq!(n, 2);
    Ok(id)
}

#[distributed_lock(key = "free:where:<id>")]
async fn with_where_clause<T, const N: usize>(id: T, _all: [T; N]) -> Result<usize, AppError>
where
    T: Display + Send,
{
    assert_held("free:where:x").await;
    Ok(N)
}

#[distributed_lock(key = "free:impl:<s>")]
async fn impl_trait(s: impl Display + Send) -> Result<impl Display, AppError> {
    assert_held("free:impl:q").await;
    Ok(format!("<{s}>"))
}

#[distributed_lock(key = "free:patterns:<a>:<x>:<n>")]
async fn patterns((a, b): (u8, u8), User { id: x, .. }: User, [n, ..]: [u8; 3]) -> Result<u64, AppError> {
    assert_held("free:patterns:1:3:9").await;
    Ok(u64::from(a + b + n) + x)
}

#[distributed_lock(key = "free:raw:<r#type>:<match>")]
async fn raw_identifiers(r#type: u8, r#match: u8) -> Result<u8, AppError> {
    #![allow(unused_labels)]
    assert_held("free:raw:3:4").await;
    Ok(r#type + r#match)
}

#[distributed_lock(key = "free:cfg:<a>")]
async fn conditional(
    a: u8,
    #[cfg(any())] b: NoSuchType,
    #[cfg(any())] _c: NoSuchType,
    #[cfg(test)] _d: u8,
) -> Result<u8, AppError> {
    Ok(a)
}

/// Parameters with names that the expansion itself uses.
#[distributed_lock(key = "free:names:<key>:<guard>")]
async fn names(key: u8, guard: u8, out: u8, error: u8, ret: u8) -> Result<u8, AppError> {
    assert_held("free:names:1:2").await;
    Ok(key + guard + out + error + ret)
}

#[distributed_lock(key = "free:only-in-key:<id>")]
async fn used_only_in_the_key(id: u8, _ignored: u8) -> Result<(), AppError> {
    assert_held("free:only-in-key:4").await;
    Ok(())
}

#[distributed_lock(key = "free:mut-ref:<n>")]
async fn mutable_reference<'a>(n: &'a mut u32, other: &mut Vec<u32>) -> Result<&'a mut u32, AppError> {
    assert_held("free:mut-ref:1").await;
    *n += 1;
    other.push(*n);
    Ok(n)
}

#[distributed_lock(key = "free:delegates:<id>")]
async fn delegates(id: u64) -> Result<u64, AppError> {
    plain(id).await
}

#[distributed_lock(key = "free:diverging")]
#[must_use = "or else"]
async fn diverging() -> Result<(), AppError> {
    tokio::task::yield_now().await;
    panic!("on purpose")
}

#[distributed_lock(key = "free:outer:<n>")]
#[distributed_lock(key = "free:inner:<n>")]
async fn two_locks(n: u8) -> Result<u8, AppError> {
    assert_held("free:outer:1").await;
    assert_held("free:inner:1").await;
    Ok(n)
}

#[tokio::test]
async fn all() {
    locks();
    assert_eq!(assert_send(plain(1)).await.expect("free"), 6);
    assert_send(constant()).await.expect("free");
    let user = User { id: 7, place: (1, 2) };
    assert_eq!(*assert_send(generic(&"a b", &user, 1)).await.expect("free"), "a b");
    assert_eq!(assert_send(with_where_clause("x", ["y", "z"])).await.expect("free"), 2);
    assert_eq!(assert_send(impl_trait("q")).await.expect("free").to_string(), "<q>");
    assert_eq!(patterns((1, 2), User { id: 3, place: (0, 0) }, [9, 0, 0]).await.expect("free"), 15);
    assert_eq!(raw_identifiers(3, 4).await.expect("free"), 7);
    assert_eq!(conditional(1, 2).await.expect("free"), 1);
    assert_eq!(names(1, 2, 3, 4, 5).await.expect("free"), 15);
    let mut all = Vec::new();
    assert_eq!(*assert_send(mutable_reference(&mut 1, &mut all)).await.expect("free"), 2);
    assert_eq!(delegates(1).await.expect("free"), 6);
    used_only_in_the_key(4, 5).await.expect("free");
    assert!(tokio::spawn(diverging()).await.expect_err("panics").is_panic());
    until_free("free:diverging").await;
    assert_eq!(two_locks(1).await.expect("free"), 1);
    for key in ["free:plain:1", "free:constant", "free:generic:a%20b:7:2", "free:outer:1", "free:inner:1"] {
        assert!(!is_held(key).await, "`{key}` is still held");
    }
}
