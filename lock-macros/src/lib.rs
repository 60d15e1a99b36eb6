//! The procedural macros of [`lock-runtime`](https://docs.rs/lock-runtime): the [`#[distributed_lock]`
//! attribute](macro@distributed_lock) and [`lock_key!`].
//!
//! Use these macros through lock-runtime, as `lock_runtime::distributed_lock` and `lock_runtime::lock_key!`, because
//! the code that they generate calls into lock-runtime.

mod args;
mod check;
#[expect(unreachable_pub, reason = "shared with `lock-runtime`, where they are public")]
mod duration;
mod errors;
mod expand;
mod function;
mod lock_key;
mod parameters;
mod suggest;
#[expect(unreachable_pub, reason = "shared with `lock-runtime`, where they are public")]
mod template;
mod tokens;

#[doc = include_str!("distributed_lock.md")]
#[proc_macro_attribute]
pub fn distributed_lock(
    args: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    expand::distributed_lock(args.into(), item.into()).into()
}

/// Builds a [`LockKey`](https://docs.rs/lock-runtime/latest/lock_runtime/struct.LockKey.html) from a template and the
/// variables in scope. Use it to acquire a lock without the attribute, or to compute a request's key in the closure
/// passed to `LockLayer::with_key_fn` (in the [lock-tower](https://docs.rs/lock-tower) crate).
///
/// The template has the syntax described for the [attribute](macro@distributed_lock#key). Given the same template and
/// the same values, this macro and the attribute build the same key, so they refer to the same lock. Special
/// characters in values are percent-encoded, so two values whose `Display` output differs never produce the same name.
///
/// Evaluates to a `Result<LockKey, LockError>`. The error is always of kind `InvalidKey`: a value is empty, its
/// `Display` implementation failed, or the name is longer than 512 bytes.
///
/// ```
/// use lock_runtime::{LockError, LockManager, lock_key};
///
/// struct Order { id: u64 }
///
/// async fn ship(locks: &LockManager, tenant: &str, order: &Order) -> Result<(), LockError> {
///     let guard = locks.lock(lock_key!("<tenant>/order:<order.id>")?).acquire().await?;
///     guard.run(async { /* … */ }).await
/// }
///
/// let (tenant, id) = ("a:b", 42);
/// assert_eq!(lock_key!("<tenant>/order:<id>").unwrap().as_str(), "a%3Ab/order:42");
/// ```
///
/// If your crate uses lock-runtime only through a crate that re-exports it, add the path of the re-export:
/// `lock_key!("user:<id>", crate = my_framework::locks)`.
#[proc_macro]
pub fn lock_key(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    lock_key::lock_key(input.into()).into()
}
