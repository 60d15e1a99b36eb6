//! The attribute `#[distributed_lock]` of [`lock-runtime`](https://docs.rs/lock-runtime).
//!
//! Use it as `lock_runtime::distributed_lock`: what it generates calls that crate.

mod args;
mod check;
#[expect(unreachable_pub, reason = "shared with `lock-runtime`, where they are public")]
mod duration;
mod expand;
mod function;
mod lock_key;
mod suggest;
#[expect(unreachable_pub, reason = "shared with `lock-runtime`, where they are public")]
mod template;

/// Runs an `async fn` under a distributed lock.
///
/// The lock is acquired before the body starts and released after it has ended, however it ends: with a value, with
/// `return` or `?`, with a panic, or because the future is dropped. The body never runs without the lock. When the
/// lock is lost on the way, because its store was unreachable for too long, the body is dropped at its next `.await`
/// and the answer is an error, before anybody else can hold the lock.
///
/// ```
/// use lock_runtime::{LockError, distributed_lock};
///
/// #[distributed_lock(key = "user:<id>", ttl = "30s")]
/// async fn withdraw(id: u64, amount: u64) -> Result<(), BankError> {
///     // Nobody else, in this process or another, is in here for the same `id`.
///     # let _ = amount;
///     Ok(())
/// }
///
/// #[derive(Debug)]
/// enum BankError {
///     Lock(LockError),
///     // …
/// }
///
/// impl From<LockError> for BankError {
///     fn from(error: LockError) -> Self {
///         Self::Lock(error)
///     }
/// }
/// ```
///
/// Taking a lock can fail, so the function returns `Result<_, E>` where `E: From<LockError>`; `LockError` itself,
/// `Box<dyn Error + Send + Sync>` and the like are fine.
///
/// # Options
///
/// | option | default | meaning |
/// |---|---|---|
/// | [`key = "user:<id>"`](#key) | required | the name of the lock |
/// | [`ttl = "30s"`](#ttl) | the manager's | how long the lock outlives a crash of its holder |
/// | [`wait = "5s"`](#wait) | the manager's | how long to wait while somebody else holds it |
/// | [`manager = self.locks`](#manager) | the scope's, else the process's | where the lock comes from |
/// | [`auto_renew = false`](#auto_renew) | the manager's | whether the lease is renewed while the body runs |
/// | [`crate = path`](#crate) | `::lock_runtime` | where the runtime is found |
///
/// ## `key`
///
/// Text with placeholders. A placeholder is a parameter, or a field of one; everything that implements `Display` can
/// stand there.
///
/// ```
/// # use lock_runtime::{LockError, distributed_lock};
/// struct Order {
///     id: u64,
///     place: (String, u32),
/// }
///
/// struct Shop {
///     tenant: String,
/// }
///
/// impl Shop {
///     #[distributed_lock(key = "shop/<self.tenant>/order:<order.id>:<order.place.1>")]
///     async fn ship(&self, order: &Order) -> Result<(), LockError> {
///         # let _ = order;
///         Ok(())
///     }
/// }
///
/// // What a pattern binds can be used as well.
/// #[distributed_lock(key = "transfer:<from>:<to>")]
/// async fn transfer((from, to): (u64, u64), amount: u64) -> Result<(), LockError> {
///     # let _ = (from, to, amount);
///     Ok(())
/// }
///
/// // Without a placeholder it is one lock for everybody.
/// #[distributed_lock(key = "nightly-report")]
/// async fn report() -> Result<(), LockError> {
///     Ok(())
/// }
/// ```
///
/// Different values never give the same name: `:`, `/`, `%`, `~`, spaces, brackets, braces and control characters in
/// a value are percent-encoded, so `("1:2", "3")` and `("1", "2:3")` in `<a>:<b>` are two locks. For the same reason
/// there is a `:` or `/` between two placeholders, a value that turns out to be empty is an error of kind
/// `InvalidKey`, and an `Option` is refused by the compiler: unwrap it first.
///
/// `<<` and `>>` stand for the brackets themselves. Braces are refused, so that `{id}` cannot be taken for a
/// placeholder. The text may not begin with `~` nor contain `:~`. There is no code in a key: what has to be computed
/// is computed by the caller and passed as a parameter.
///
/// The key is computed once, before anything is awaited.
///
/// ## `ttl`
///
/// The length of the lease: a holder that crashes or is cut off keeps the lock for that long at most. It is no limit
/// on the body, because the lease is renewed while the body runs. From `"100ms"` to `"24h"`, in `h`, `m`, `s` and
/// `ms`; or any expression that is a `Duration`, which is checked when the lock is acquired.
///
/// ```
/// # use lock_runtime::{LockError, distributed_lock};
/// # struct Config { ttl: std::time::Duration }
/// #[distributed_lock(key = "user:<id>", ttl = "1m30s")]
/// async fn fixed(id: u64) -> Result<(), LockError> {
///     Ok(())
/// }
///
/// #[distributed_lock(key = "user:<id>", ttl = config.ttl)]
/// async fn configured(id: u64, config: &Config) -> Result<(), LockError> {
///     Ok(())
/// }
/// ```
///
/// ## `wait`
///
/// How long to wait while somebody else holds the lock: a length like that of `ttl`, `"0s"` for not at all, or
/// `"forever"`. The error is of kind `Contended` when nothing was waited and `Timeout` when the time ran out.
///
/// ```
/// # use lock_runtime::{LockError, distributed_lock};
/// #[distributed_lock(key = "user:<id>", wait = "0s")]
/// async fn now_or_never(id: u64) -> Result<(), LockError> {
///     Ok(())
/// }
///
/// #[distributed_lock(key = "user:<id>", wait = "forever")]
/// async fn patient(id: u64) -> Result<(), LockError> {
///     Ok(())
/// }
/// ```
///
/// ## `manager`
///
/// An expression for the `LockManager`: a field, a parameter, a function. A reference is enough, and an `Arc` is fine.
///
/// ```
/// # use lock_runtime::{LockError, LockManager, distributed_lock};
/// struct Bank {
///     locks: LockManager,
/// }
///
/// impl Bank {
///     #[distributed_lock(key = "user:<id>", manager = self.locks)]
///     async fn withdraw(&self, id: u64) -> Result<(), LockError> {
///         Ok(())
///     }
/// }
///
/// #[distributed_lock(key = "user:<id>", manager = locks)]
/// async fn withdraw(locks: &LockManager, id: u64) -> Result<(), LockError> {
///     Ok(())
/// }
/// ```
///
/// Without this option it is the manager of the scope (`lock_runtime::with_manager`, for tests), else that of the
/// process (`lock_runtime::set_global`). When there is neither, the error is of kind `NoManager`.
///
/// ## `auto_renew`
///
/// `false` when the lease is not to be renewed: the body has the lock for `ttl`, and what takes longer loses it.
///
/// ```
/// # use lock_runtime::{LockError, distributed_lock};
/// #[distributed_lock(key = "import:<name>", ttl = "10m", auto_renew = false)]
/// async fn import(name: &str) -> Result<(), LockError> {
///     Ok(())
/// }
/// ```
///
/// ## `crate`
///
/// For crates that re-export the runtime, so that their users need not depend on it.
///
/// ```
/// mod my_framework {
///     pub use lock_runtime as locks;
/// }
/// use my_framework::locks::{LockError, distributed_lock};
///
/// #[distributed_lock(key = "user:<id>", crate = my_framework::locks)]
/// async fn withdraw(id: u64) -> Result<(), LockError> {
///     Ok(())
/// }
/// ```
///
/// # Where it can stand
///
/// On free functions and methods with any receiver, with generics, lifetimes, patterns and `impl Trait`, on
/// `async fn` in traits and their implementations, under `#[async_trait]`, and on functions that consist of an
/// `async` block, boxed or not. The signature stays as it is, the future is not boxed, and it is `Send` whenever it
/// was.
///
/// Some attributes have to stand on the right side of it:
///
/// * `#[tokio::main]` and `#[tokio::test]` below it, because they make the function blocking.
/// * `#[tracing::instrument]` below it when the span is to include the wait for the lock, above it when not.
///
/// ```
/// # use lock_runtime::{LockError, LockManager, backend::Memory, distributed_lock};
/// # fn locks() -> LockManager { LockManager::new(Memory::new()) }
/// #[distributed_lock(key = "migration", manager = locks())]
/// #[tokio::main]
/// async fn main() -> Result<(), LockError> {
///     Ok(())
/// }
/// ```
///
/// # What the lock covers
///
/// The body and the drop of its parameters. Not covered are tasks that the body spawns, which live on without the
/// lock, and a parameter without a name: the value of `_: T` is dropped after the release, that of `_permit: T` before
/// it. The same holds for a parameter that nothing mentions although rustc warns about that.
///
/// Under `#[async_trait]` a key can use parameters, but not the names inside a pattern.
///
/// # Cancel safety
///
/// As safe as the body: dropping the future while it waits leaves neither a lock nor a place in the queue, and
/// dropping it later drops the body and releases the lock in the background.
#[proc_macro_attribute]
pub fn distributed_lock(
    args: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    expand::distributed_lock(args.into(), item.into()).into()
}

/// A [`LockKey`](https://docs.rs/lock-runtime/latest/lock_runtime/struct.LockKey.html) from a template and the variables
/// where it stands, for closures and for locks that are taken by hand.
///
/// The template is that of [`macro@distributed_lock`], and so is the name: a key that is built here and one that the
/// attribute builds from the same values are one lock. Values are encoded, so that different ones never give one name.
///
/// Evaluates to a `Result<LockKey, LockError>`. The error is of kind `InvalidKey`: a value was empty, or the name is too
/// long.
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
/// A crate that re-exports the runtime names it: `lock_key!("user:<id>", crate = my_framework::locks)`.
#[proc_macro]
pub fn lock_key(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    lock_key::lock_key(input.into()).into()
}
