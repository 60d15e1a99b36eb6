//! Types that rustc infers, coerces or cannot send to another thread.

use super::*;

type Alias = Result<usize, Box<dyn std::error::Error + Send + Sync>>;

#[distributed_lock(key = "type:alias")]
async fn alias() -> Alias {
    let all = ["1"].iter().map(|text| text.parse::<i32>()).collect::<Result<Vec<_>, _>>()?;
    Ok(all.len())
}

#[distributed_lock(key = "type:inferred")]
async fn inferred() -> Result<Vec<u8>, AppError> {
    let all = ["1", "2"].iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    Ok(all)
}

#[distributed_lock(key = "type:coerced")]
async fn coerced() -> Result<Box<dyn Display + Send>, AppError> {
    if false {
        return Ok(Box::new('a'));
    }
    Ok(Box::new(1))
}

#[distributed_lock(key = "type:closure")]
async fn closure() -> Result<impl Fn(u8) -> Result<u8, AppError>, AppError> {
    Ok(|n| Ok(n + 1))
}

#[distributed_lock(key = "type:generic:<id>")]
async fn generic_error<E: From<LockError>>(id: u8) -> Result<u8, E> {
    Ok(id)
}

#[distributed_lock(key = "type:not-send")]
async fn not_send(n: Rc<u8>) -> Result<Rc<u8>, AppError> {
    tokio::task::yield_now().await;
    Ok(n)
}

/// No borrow of `id` may live across the wait: `Cell` is not `Sync`, so the future would not be `Send`.
#[distributed_lock(key = "type:cell:<id.0>")]
async fn not_sync(id: (u8, std::cell::Cell<u8>)) -> Result<u8, AppError> {
    tokio::task::yield_now().await;
    Ok(id.0 + id.1.get())
}

/// A body whose future rustc finds hard to prove `Send`.
#[distributed_lock(key = "type:borrows:<names.0>")]
async fn borrows<'a, F>(names: (&'a str, &'a [String]), f: F) -> Result<Vec<&'a str>, AppError>
where
    F: for<'x> Fn(&'x str) -> Pin<Box<dyn Future<Output = &'x str> + Send + 'x>> + Send + Sync,
{
    let mut all = Vec::new();
    for name in names.1.iter().map(String::as_str).filter(|name| !name.is_empty()) {
        all.push(f(name).await);
    }
    tokio::task::yield_now().await;
    Ok(all)
}

#[distributed_lock(key = "type:recursive:<n>")]
async fn recursive(n: u8) -> Result<u8, AppError> {
    if n == 0 { Ok(0) } else { Box::pin(recursive(n - 1)).await }
}

#[tokio::test]
async fn all() {
    locks();
    assert_eq!(assert_send(alias()).await.expect("free"), 1);
    assert_eq!(assert_send(inferred()).await.expect("free"), [1, 2]);
    assert_eq!(assert_send(coerced()).await.expect("free").to_string(), "1");
    assert_eq!(closure().await.expect("free")(1).expect("never fails"), 2);
    assert_eq!(generic_error::<AppError>(3).await.expect("free"), 3);
    assert_eq!(*not_send(Rc::new(4)).await.expect("free"), 4);
    assert_eq!(assert_send(not_sync((1, 4.into()))).await.expect("free"), 5);
    let names = ["a".to_owned(), String::new()];
    let future = borrows(("x", &names), |name| Box::pin(async move { name }));
    assert_eq!(assert_send(future).await.expect("free"), ["a"]);
    assert_eq!(recursive(3).await.expect("free"), 0);
}
