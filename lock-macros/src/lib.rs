//! The attribute `#[distributed_lock]` of [`lock-runtime`](https://docs.rs/lock-runtime).
//!
//! Use it as `lock_runtime::distributed_lock`: what it generates calls that crate.

mod args;
mod check;
#[expect(unreachable_pub, reason = "shared with `lock-runtime`, where they are public")]
mod duration;
mod errors;
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
/// and the answer is an error. That is before anybody else can hold the lock, unless the body comes to no `.await` in
/// time or the store itself gave the lock away.
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
/// `Box<dyn Error + Send + Sync>` and the like are fine. A function that returns something else says with
/// [`or_else`](#or_else) what it returns then. For `tonic::Status`, and for `LockError` as the answer of an axum handler,
/// switch on the feature `tonic` or `axum` of lock-runtime.
///
/// # Options
///
/// | option | default | meaning |
/// |---|---|---|
/// | [`key = "user:<id>"`](#key) | required | the name of the lock |
/// | [`keys = ["a:<x>", "b:<y>"]`](#keys) | | several locks, in place of `key` |
/// | [`ttl = "30s"`](#ttl) | the manager's: 30 s | how long the lock outlives a crash of its holder |
/// | [`wait = "5s"`](#wait) | the manager's: 10 s | how long to wait while another caller holds it |
/// | [`manager = self.locks`](#manager) | the scope's, else the process's | where the lock comes from |
/// | [`auto_renew = false`](#auto_renew) | the manager's: `true` | whether the lease is renewed while the body runs |
/// | [`max_hold = "5m"`](#max_hold) | the manager's: 1 h | how long the lock is held at most |
/// | [`hold_at_least = "10s"`](#hold_at_least) | no time | how long it is held at least |
/// | [`on_contention = skip`](#on_contention) | `error` | what happens while another caller holds it |
/// | [`or_else = function`](#or_else) | the error | what is returned when the lock was not held |
/// | [`on_lost = finish`](#on_lost) | `cancel` | what happens to the body when the lock is lost |
/// | [`reentrant = true`](#reentrant) | `false` | whether it may be entered again from inside |
/// | [`guard = held`](#guard) | none | the name of the hold inside the body |
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
/// #[distributed_lock(key = "cell:<x>:<y>")]
/// async fn paint((x, y): (u64, u64), colour: u8) -> Result<(), LockError> {
///     # let _ = (x, y, colour);
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
/// `<<` and `>>` stand for the brackets themselves. `{id}` is refused, so that it cannot be taken for a placeholder:
/// braces stand at most once, around a placeholder, for the hash tag that decides the slot in a Redis Cluster, as in
/// `"{<tenant>}:user:<id>"`. The text may not begin with `~` nor contain `:~`. There is no code in a key: what has to
/// be computed is computed by the caller and passed as a parameter.
///
/// The key is computed once, before anything is awaited.
///
/// ## `keys`
///
/// Several locks, which are held together: all of them or none, with one wait for all, and the loss of one is the loss
/// of all. They are taken in the order of their names, whatever the order in the list, so that functions with the same
/// keys never wait for each other in a circle. Two keys that turn out to be the same are one lock.
///
/// ```
/// # use lock_runtime::{LockError, distributed_lock};
/// #[distributed_lock(keys = ["account:<from>", "account:<to>"])]
/// async fn transfer(from: u64, to: u64, amount: u64) -> Result<(), LockError> {
///     # let _ = amount;
///     Ok(())
/// }
/// ```
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
/// An expression for the `LockManager`: a field, a parameter, a function, a static. A reference is enough, and an `Arc` or
/// a `LazyLock` is fine.
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
/// ## `max_hold`
///
/// The longest that the lock is held, however often it is renewed: a body that hangs must not keep it forever. What
/// takes longer loses the lock, as under [`on_lost`](#on_lost). A length like that of `ttl`, or `"forever"`, which a body
/// needs that runs as long as the process, such as a leader's.
///
/// ```
/// # use lock_runtime::{LockError, distributed_lock};
/// #[distributed_lock(key = "report:<day>", max_hold = "5m")]
/// async fn report(day: u32) -> Result<(), LockError> {
///     Ok(())
/// }
/// ```
///
/// ## `hold_at_least`
///
/// The lock is not given to anybody else before this time is over, although the function has returned: for jobs that
/// every process starts at the same moment by clocks that differ a little, and for requests that are sent twice. The
/// caller does not wait for it. A process that ends takes no care of it any more, so where it has to hold all the
/// same, `ttl` is at least as long.
///
/// ```
/// # use lock_runtime::{LockError, distributed_lock};
/// #[distributed_lock(key = "nightly-report", wait = "0s", on_contention = skip, hold_at_least = "10s")]
/// async fn nightly_report() -> Result<(), LockError> {
///     // In one process of all, although it takes a moment only.
///     Ok(())
/// }
/// ```
///
/// ## `on_contention`
///
/// With `skip`, a lock that somebody else holds is no error: the body does not run, and the function returns the value
/// of its type for "nothing was done". That is `()`, `None`, `Ok(())` or `Ok(None)`; other types have none. It is
/// meant for errors of the kinds `Contended` and `Timeout`, and for no other: that the store cannot be reached is told
/// as ever, by the `Result` or by `or_else`.
///
/// ```
/// # use lock_runtime::{LockError, distributed_lock};
/// #[distributed_lock(key = "refresh:<id>", wait = "0s", on_contention = skip)]
/// async fn refresh(id: u64) -> Result<Option<String>, LockError> {
///     // `Ok(None)`: somebody is refreshing it right now.
///     Ok(Some("fresh".into()))
/// }
/// ```
///
/// ## `or_else`
///
/// A function, a path or a closure from `LockError` to what the function returns. It gets every error: that the lock
/// was not acquired, and that it was lost; beside `on_contention = skip` all but contention. So a function without a
/// `Result` can be annotated too.
///
/// ```
/// # use lock_runtime::{LockError, distributed_lock};
/// # struct Response(u16);
/// fn refuse(error: LockError) -> Response {
///     eprintln!("{error}");
///     Response(if error.is_retryable() { 503 } else { 500 })
/// }
///
/// #[distributed_lock(key = "user:<id>", or_else = refuse)]
/// async fn handler(id: u64) -> Response {
///     Response(200)
/// }
///
/// #[distributed_lock(key = "clean-up", on_contention = skip, or_else = |error| eprintln!("not cleaned up: {error}"))]
/// async fn clean_up() {}
/// ```
///
/// It runs outside of the body, to which the parameters belong by then: a closure can use those that are `Copy`, such
/// as references and numbers, and `self` when that is `&self`.
///
/// A body that comes to its end after the loss of its lock has not been protected to its end; what it returns is
/// replaced by the loss. An error of its own is kept, because it says more. A body that ends before the loss is known
/// keeps its result, also when the release then finds that the store had given the lock away: the log says so.
///
/// ## `on_lost`
///
/// What becomes of the body when the lock is lost on the way. It is dropped at its next `.await`: before anybody else can
/// hold the lock, if it comes to one in time and the store has not given the lock away. With `finish` it runs to its
/// end, perhaps beside the next holder, and its result is replaced by the loss. That is for what must not stop half-way
/// and whose writes are checked by the fencing token.
///
/// ```
/// # use lock_runtime::{FencingToken, LockError, distributed_lock};
/// # async fn write(_: u64, _: FencingToken) -> Result<(), LockError> { Ok(()) }
/// #[distributed_lock(key = "file:<id>", on_lost = finish, guard = held)]
/// async fn store(id: u64) -> Result<(), LockError> {
///     write(id, held.fencing_token()).await
/// }
/// ```
///
/// ## `reentrant`
///
/// A function that is called in a section which holds a lock (a function with this attribute, `LockGuard::run`, a layer) and
/// asks for the same one would wait for itself: that is an error of kind `WouldDeadlock`, at once. Beside a guard that is
/// merely alive there is no section, and it waits. With `reentrant = true` it shares the hold of its caller, with its token and its end, and
/// does not release it.
///
/// ```
/// # use lock_runtime::{LockError, distributed_lock};
/// #[distributed_lock(key = "account:<id>")]
/// async fn close(id: u64) -> Result<(), LockError> {
///     withdraw_all(id).await
/// }
///
/// #[distributed_lock(key = "account:<id>", reentrant = true)]
/// async fn withdraw_all(id: u64) -> Result<(), LockError> {
///     Ok(())
/// }
/// ```
///
/// A task that the body spawns does not belong to it and waits as any other does.
///
/// ## `guard`
///
/// The name under which the body finds its hold, a `HeldLock`: the fencing token for the resource that is written to,
/// whether the hold is still valid, how long it is, and its loss. With [`keys`](#keys) it is a `HeldLocks`, in which
/// each is found by its key. Without it, `lock_runtime::current()` finds the hold from anywhere in the body.
///
/// ```
/// # use lock_runtime::{LockError, distributed_lock};
/// # async fn update(_: &str, _: i64) {}
/// #[distributed_lock(key = "account:<id>", guard = held)]
/// async fn withdraw(id: u64) -> Result<(), LockError> {
///     update("UPDATE account SET … WHERE id = $1 AND fence <= $2", i64::from(held.fencing_token())).await;
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
/// was; it is neither `Sync` nor `UnwindSafe`. Where lints are forbidden, as by `#![forbid(unused)]`, write `deny` instead:
/// the generated code allows some of them for itself.
///
/// A pattern's names can stand in the key, so a handler of axum is annotated as it is, with an error that is made of a
/// `LockError` and is a response:
///
/// ```
/// # use lock_runtime::{LockError, distributed_lock};
/// # struct Path<T>(T);
/// # struct Json<T>(T);
/// # struct Withdrawal { amount: u64 }
/// #[distributed_lock(key = "user:<id>", wait = "2s")]
/// async fn withdraw(Path(id): Path<u64>, Json(order): Json<Withdrawal>) -> Result<Json<u64>, LockError> {
///     # let _ = id;
///     Ok(Json(order.amount))
/// }
/// ```
///
/// A `tonic::Request` has no public fields; the method that it is unpacked in calls an annotated one with the message.
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
/// lock, a response that is produced after the body has returned it, such as a stream of server-sent events (for which
/// there is the layer of `lock-tower`), and a parameter without a name: the value of `_: T` is dropped after the
/// release, that of `_permit: T` before it. The same holds for a parameter that nothing mentions although rustc warns
/// about that.
///
/// The attribute stands on functions. For a closure or a block there are [`lock_key!`] and `LockGuard::run`.
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
