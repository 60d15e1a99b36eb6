//! The attribute on every kind of function; the crate around it says on which store.
//!
//! The lints are part of the test: annotated code is to be as clean as it was.
#![deny(warnings)]
#![warn(clippy::pedantic)]

use std::{
    fmt::{self, Display},
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use lock_runtime::{LockError, LockErrorKind, LockManager, backend::Memory, distributed_lock};

/// The manager of all tests; each has keys of its own.
fn locks() -> &'static LockManager {
    static LOCKS: OnceLock<LockManager> = OnceLock::new();
    LOCKS.get_or_init(|| {
        let locks = crate::connect();
        lock_runtime::set_global(locks.clone()).expect("set once");
        locks
    })
}

/// Whether somebody holds the lock; asked from another task, which is another scope.
async fn is_held(key: &str) -> bool {
    let lock = locks().lock(key);
    tokio::spawn(async move {
        let Some(guard) = lock.try_acquire().await.expect("memory does not fail") else { return true };
        guard.release().await.expect("held a moment ago");
        false
    })
    .await
    .expect("no panic")
}

/// Asserts that `key` is held in here, by its name as the store has it.
async fn assert_held(key: &str) {
    assert!(is_held(key).await, "`{key}` is not held");
}

/// Waits for a release in the background.
async fn until_free(key: &str) {
    let free = async {
        while is_held(key).await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), free).await.expect("released");
}

fn assert_send<T: Send>(value: T) -> T {
    value
}

/// An application's error.
#[derive(Debug)]
enum AppError {
    Lock(LockError),
    Number(std::num::ParseIntError),
}

impl From<LockError> for AppError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<std::num::ParseIntError> for AppError {
    fn from(error: std::num::ParseIntError) -> Self {
        Self::Number(error)
    }
}

struct User {
    id: u64,
    place: (u8, u8),
}

mod free_functions {
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

    /// Names that the expansion uses itself.
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
        for key in ["free:plain:1", "free:constant", "free:generic:a%20b:7:2", "free:outer:1", "free:inner:1"]
        {
            assert!(!is_held(key).await, "`{key}` is still held");
        }
    }
}

mod methods {
    use super::*;

    struct Service {
        locks: LockManager,
        name: String,
        n: u32,
        ttl: Duration,
    }

    impl Service {
        fn new() -> Self {
            Self { locks: locks().clone(), name: "n:m".into(), n: 1, ttl: Duration::from_secs(20) }
        }

        fn manager(&self) -> Arc<LockManager> {
            Arc::new(self.locks.clone())
        }

        #[distributed_lock(key = "method:ref:<self.name>:<k>", manager = self.locks, ttl = self.ttl, wait = self.ttl / 2)]
        async fn by_reference(&self, k: &str) -> Result<usize, AppError> {
            assert_held("method:ref:n%3Am:k%25").await;
            Ok(self.name.len() + k.len())
        }

        #[distributed_lock(key = "method:mut:<self.name>", manager = &self.locks, ttl = const { Duration::from_secs(1) })]
        async fn by_mutable_reference(&mut self) -> Result<&mut u32, AppError> {
            assert_held("method:mut:n%3Am").await;
            self.n += 1;
            Ok(&mut self.n)
        }

        #[distributed_lock(key = "method:value:<self.name>", manager = self.manager())]
        async fn by_value(self) -> Result<String, AppError> {
            assert_held("method:value:n%3Am").await;
            Ok(self.name)
        }

        #[distributed_lock(key = "method:mut-value:<self.n>", manager = if self.n == 1 { &self.locks } else { locks() })]
        async fn by_mutable_value(mut self) -> Result<u32, AppError> {
            assert_held("method:mut-value:1").await;
            self.n += 1;
            Ok(self.n)
        }

        #[distributed_lock(key = "method:arc:<self.n>")]
        async fn by_arc(self: Arc<Self>) -> Result<u32, AppError> {
            assert_held("method:arc:1").await;
            Ok(self.n)
        }

        #[distributed_lock(key = "method:box:<self.n>")]
        async fn by_box(self: Box<Self>) -> Result<u32, AppError> {
            assert_held("method:box:1").await;
            Ok(self.n)
        }

        #[distributed_lock(key = "method:pin:<self.n>")]
        async fn by_pin(self: Pin<&mut Self>) -> Result<u32, AppError> {
            assert_held("method:pin:1").await;
            Ok(self.n)
        }

        #[distributed_lock(key = "method:self-type:<other.n>")]
        async fn self_type(other: Self) -> Result<Self, AppError> {
            assert_held("method:self-type:1").await;
            Ok(other)
        }
    }

    #[tokio::test]
    async fn all() {
        let mut service = Service::new();
        assert_eq!(assert_send(service.by_reference("k%")).await.expect("free"), 5);
        assert_eq!(*assert_send(service.by_mutable_reference()).await.expect("free"), 2);
        assert_eq!(assert_send(Service::new().by_value()).await.expect("free"), "n:m");
        assert_eq!(assert_send(Service::new().by_mutable_value()).await.expect("free"), 2);
        assert_eq!(assert_send(Arc::new(Service::new()).by_arc()).await.expect("free"), 1);
        assert_eq!(assert_send(Box::new(Service::new()).by_box()).await.expect("free"), 1);
        assert_eq!(Box::pin(Service::new()).as_mut().by_pin().await.expect("free"), 1);
        assert_eq!(Service::self_type(Service::new()).await.expect("free").n, 1);
    }
}

mod traits {
    use super::*;

    struct Service(LockManager);

    trait Native {
        async fn go(&self, id: u32) -> Result<u32, AppError>;

        #[distributed_lock(key = "trait:default")]
        async fn default_method(&self) -> Result<u32, AppError> {
            assert_held("trait:default").await;
            self.go(1).await
        }
    }

    impl Native for Service {
        #[distributed_lock(key = "trait:native:<id>", manager = self.0)]
        async fn go(&self, id: u32) -> Result<u32, AppError> {
            assert_held(&format!("trait:native:{id}")).await;
            Ok(id)
        }
    }

    trait Sendable {
        fn go_sendable(&self, id: u32) -> impl Future<Output = Result<u32, AppError>> + Send;
        fn go_written_out(&self, id: u32) -> impl Future<Output = Result<u32, AppError>> + Send;
        fn go_boxed(&self, id: u32) -> Pin<Box<dyn Future<Output = Result<Vec<u32>, AppError>> + Send + '_>>;
    }

    impl Sendable for Service {
        #[distributed_lock(key = "trait:sendable:<id>", manager = self.0)]
        async fn go_sendable(&self, id: u32) -> Result<u32, AppError> {
            assert_held(&format!("trait:sendable:{id}")).await;
            Ok(id)
        }

        #[expect(clippy::manual_async_fn, reason = "it is what is tested")]
        #[distributed_lock(key = "trait:written:<id>", manager = self.0)]
        fn go_written_out(&self, id: u32) -> impl Future<Output = Result<u32, AppError>> + Send {
            async move {
                assert_held(&format!("trait:written:{id}")).await;
                Ok(id)
            }
        }

        #[distributed_lock(key = "trait:boxed:<id>", manager = self.0)]
        fn go_boxed(&self, id: u32) -> Pin<Box<dyn Future<Output = Result<Vec<u32>, AppError>> + Send + '_>> {
            Box::pin(async move {
                assert_held(&format!("trait:boxed:{id}")).await;
                let all = ["1", "2"].iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
                Ok(all)
            })
        }
    }

    #[async_trait::async_trait]
    trait Dynamic {
        async fn go_dynamic(
            &self,
            id: u32,
            bytes: Vec<u8>,
            (a, _): (u8, u8),
            text: &str,
        ) -> Result<u32, AppError>;
        async fn only_in_key(&self, id: u32, n: u32) -> Result<u32, AppError>;
        async fn change(&mut self, id: u32) -> Result<u32, AppError>;
        async fn consume(self: Box<Self>, id: u32) -> Result<u32, AppError>;
        #[distributed_lock(key = "trait:dynamic-default:<id>")]
        async fn default_method(&self, id: u32) -> Result<u32, AppError> {
            assert_held("trait:dynamic-default:1").await;
            Ok(id)
        }
    }

    #[async_trait::async_trait]
    impl Dynamic for Service {
        #[distributed_lock(key = "trait:dynamic:<id>:<text>", manager = self.0)]
        async fn go_dynamic(
            &self,
            id: u32,
            bytes: Vec<u8>,
            (a, _): (u8, u8),
            text: &str,
        ) -> Result<u32, AppError> {
            assert_held("trait:dynamic:5:t").await;
            let n: u32 = "1".parse()?;
            let manager: &LockManager = &self.0;
            drop(manager.clone());
            Ok(id + n + u32::from(bytes[0]) + u32::from(a) + u32::from(text.is_empty()))
        }

        #[distributed_lock(key = "trait:only-in-key:<id>", manager = self.0)]
        async fn only_in_key(&self, id: u32, mut n: u32) -> Result<u32, AppError> {
            assert_held("trait:only-in-key:9").await;
            n += 1;
            Ok(n)
        }

        #[distributed_lock(key = "trait:change:<id>", manager = self.0)]
        async fn change(&mut self, id: u32) -> Result<u32, AppError> {
            assert_held("trait:change:6").await;
            self.0 = locks().clone();
            Ok(id)
        }

        #[distributed_lock(key = "trait:consume:<id>", manager = self.0)]
        async fn consume(self: Box<Self>, id: u32) -> Result<u32, AppError> {
            assert_held("trait:consume:7").await;
            drop(self);
            Ok(id)
        }
    }

    #[tokio::test]
    async fn all() {
        let mut service = Service(locks().clone());
        assert_eq!(service.go(3).await.expect("free"), 3);
        assert_eq!(Native::default_method(&service).await.expect("free"), 1);
        assert_eq!(assert_send(service.go_sendable(4)).await.expect("free"), 4);
        assert_eq!(assert_send(service.go_written_out(4)).await.expect("free"), 4);
        assert_eq!(assert_send(service.go_boxed(4)).await.expect("free"), [1, 2]);
        assert_eq!(assert_send(service.go_dynamic(5, vec![1], (1, 2), "t")).await.expect("free"), 8);
        assert_eq!(assert_send(service.only_in_key(9, 1)).await.expect("free"), 2);
        assert_eq!(assert_send(service.change(6)).await.expect("free"), 6);
        assert_eq!(Dynamic::default_method(&service, 1).await.expect("free"), 1);
        assert_eq!(Box::new(service).consume(7).await.expect("free"), 7);
    }
}

mod other_macros {
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
            #[distributed_lock(key = "macro:facade:<id>", crate = $crate::signatures::other_macros::facade::inside)]
            async fn $name(id: u64) -> Result<u64, AppError> {
                assert_held("macro:facade:3").await;
                Ok(id)
            }
        };
    }
    through_facade!(facade_passed);

    #[distributed_lock(key = "macro:crate:<id>", crate = crate::signatures::other_macros::facade::inside)]
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
}

mod spans {
    use std::{
        cell::Cell,
        sync::atomic::{AtomicU64, Ordering},
    };

    use tracing::{Event, Metadata, Subscriber, span};

    use super::*;

    thread_local! {
        static DEPTH: Cell<u32> = const { Cell::new(0) };
    }

    /// Knows how many spans this thread is in.
    struct Depth(AtomicU64);

    impl Subscriber for Depth {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(self.0.fetch_add(1, Ordering::Relaxed) + 1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, _: &Event<'_>) {}

        fn enter(&self, _: &span::Id) {
            DEPTH.set(DEPTH.get() + 1);
        }

        fn exit(&self, _: &span::Id) {
            DEPTH.set(DEPTH.get() - 1);
        }
    }

    /// Called before the wait.
    fn locks_in(depth: u32) -> &'static LockManager {
        assert_eq!(DEPTH.get(), depth);
        locks()
    }

    #[tracing::instrument]
    #[distributed_lock(key = "span:above", manager = locks_in(0))]
    async fn span_above() -> Result<u32, LockError> {
        Ok(DEPTH.get())
    }

    #[distributed_lock(key = "span:below", manager = locks_in(1))]
    #[tracing::instrument]
    async fn span_below() -> Result<u32, LockError> {
        Ok(DEPTH.get())
    }

    #[tokio::test]
    async fn a_span_below_the_lock_includes_the_wait() {
        let _subscriber = tracing::subscriber::set_default(Depth(AtomicU64::new(0)));
        assert_eq!(span_above().await.expect("free"), 1);
        assert_eq!(span_below().await.expect("free"), 1);
    }
}

mod types {
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

    /// Nothing may refer to `id` while it waits: `Cell` is not `Sync`, so the future would not be `Send`.
    #[distributed_lock(key = "type:cell:<id.0>")]
    async fn not_sync(id: (u8, std::cell::Cell<u8>)) -> Result<u8, AppError> {
        tokio::task::yield_now().await;
        Ok(id.0 + id.1.get())
    }

    /// The kind of body for which rustc finds it hardest to prove that a future is `Send`.
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
}

mod outputs {
    use super::*;

    /// Takes the place of what was not done.
    #[expect(clippy::needless_pass_by_value, reason = "as `or_else` calls it")]
    fn refused(error: LockError) -> String {
        format!("refused: {:?}", error.kind())
    }

    #[distributed_lock(key = "output:text:<id>", wait = "0s", or_else = refused)]
    async fn text(id: u64) -> String {
        assert_held("output:text:1").await;
        id.to_string()
    }

    #[distributed_lock(key = "output:unit", wait = "0s", or_else = |error| assert_eq!(refused(error), "refused: Contended"))]
    async fn unit() {
        assert_held("output:unit").await;
    }

    #[distributed_lock(key = "output:explicit-unit", on_contention = skip, or_else = |_| ())]
    async fn explicit_unit() -> () {
        assert_held("output:explicit-unit").await;
    }

    #[distributed_lock(key = "output:option", wait = "0s", on_contention = skip, or_else = |_| None)]
    async fn option(found: bool) -> Option<Vec<u8>> {
        let all = ["1"].iter().map(|text| text.parse().ok()).collect::<Option<_>>()?;
        found.then_some(all)
    }

    #[distributed_lock(key = "output:skip", wait = "0s", on_contention = skip)]
    async fn skip_result() -> Result<Option<u8>, AppError> {
        Ok(Some("5".parse()?))
    }

    /// The body alone says what it is.
    #[distributed_lock(key = "output:hidden", wait = "0s", or_else = refused)]
    async fn hidden() -> impl Display + Send {
        assert_held("output:hidden").await;
        String::from("done")
    }

    #[distributed_lock(key = "output:partly-hidden", or_else = |_| Vec::new())]
    async fn partly_hidden() -> Vec<impl Display> {
        vec![1, 2]
    }

    #[distributed_lock(key = "output:boxed", or_else = |error| Box::new(error))]
    async fn boxed(n: u8) -> Box<dyn Display + Send> {
        if n == 0 {
            return Box::new('a');
        }
        Box::new(n)
    }

    #[distributed_lock(key = "output:generic:<id>", or_else = |_| T::default())]
    async fn generic<T: Default + Send>(id: u8, value: T) -> T {
        value
    }

    #[distributed_lock(key = "output:reference:<text>", or_else = |_| text)]
    async fn reference(text: &str) -> &str {
        &text[1..]
    }

    #[distributed_lock(key = "output:never", or_else = |error| panic!("{error}"))]
    async fn never() -> ! {
        tokio::task::yield_now().await;
        panic!("on purpose")
    }

    #[expect(clippy::needless_pass_by_value, reason = "as `or_else` calls it")]
    fn gives_up(error: LockError) -> ! {
        panic!("{error}")
    }

    #[distributed_lock(key = "output:never-held", wait = "0s", or_else = gives_up)]
    async fn never_held() -> ! {
        loop {
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
    }

    struct Service {
        name: &'static str,
    }

    #[async_trait::async_trait]
    trait Dynamic {
        async fn greet(&self, id: u32, suffix: String) -> String;
        async fn job(&self);
    }

    #[async_trait::async_trait]
    impl Dynamic for Service {
        #[distributed_lock(key = "output:dynamic:<self.name>:<id>", wait = "0s", or_else = |e| self.refuse(id, e), guard = held)]
        async fn greet(&self, id: u32, suffix: String) -> String {
            assert_eq!(held.key().as_str(), format!("output:dynamic:{}:{id}", self.name));
            format!("{}{id}{suffix}", self.name)
        }

        #[distributed_lock(key = "output:job", on_contention = skip, or_else = drop)]
        async fn job(&self) {
            assert_held("output:job").await;
        }
    }

    impl Service {
        fn refuse(&self, id: u32, error: LockError) -> String {
            format!("{}{id} {}", self.name, refused(error))
        }

        #[distributed_lock(key = "output:method:<self.name>", or_else = Self::nobody)]
        async fn method(&self) -> Option<&'static str> {
            Some(self.name)
        }

        fn nobody(_: LockError) -> Option<&'static str> {
            None
        }

        #[expect(clippy::manual_async_fn, reason = "it is what is tested")]
        #[distributed_lock(key = "output:written:<id>", or_else = refused, on_lost = finish)]
        fn written(&self, id: u32) -> impl Future<Output = String> + Send {
            async move {
                assert_held("output:written:3").await;
                format!("{}{id}", self.name)
            }
        }
    }

    /// One test holds the locks that the other one takes without waiting.
    static IN_TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

    #[tokio::test]
    async fn all() {
        let _turn = IN_TURN.lock().await;
        locks();
        assert_eq!(assert_send(text(1)).await, "1");
        assert_send(unit()).await;
        explicit_unit().await;
        assert_eq!(option(true).await, Some(vec![1]));
        assert_eq!(option(false).await, None);
        assert_eq!(skip_result().await.expect("free"), Some(5));
        assert_eq!(assert_send(hidden()).await.to_string(), "done");
        assert_eq!(partly_hidden().await[1].to_string(), "2");
        assert_eq!(assert_send(boxed(7)).await.to_string(), "7");
        assert_eq!(assert_send(generic(1, "x")).await, "x");
        assert_eq!(reference("abc").await, "bc");
        assert!(tokio::spawn(never()).await.expect_err("panics").is_panic());
        let service = Service { name: "s" };
        assert_eq!(assert_send(service.greet(1, "!".into())).await, "s1!");
        assert_send(service.job()).await;
        assert_eq!(assert_send(service.method()).await, Some("s"));
        assert_eq!(assert_send(service.written(3)).await, "s3");
    }

    #[tokio::test]
    async fn all_while_the_locks_are_held() {
        let _turn = IN_TURN.lock().await;
        let mut held = Vec::new();
        for key in ["text:2", "unit", "option", "skip", "hidden", "dynamic:s:2", "never-held"] {
            let lock = locks().lock(format!("output:{key}")).wait(Duration::from_secs(30));
            held.push(lock.acquire().await.expect("free before long"));
        }
        assert_eq!(text(2).await, "refused: Contended");
        unit().await;
        assert_eq!(option(true).await, None);
        assert_eq!(skip_result().await.expect("skipped"), None);
        assert_eq!(hidden().await.to_string(), "refused: Contended");
        assert_eq!(Service { name: "s" }.greet(2, String::new()).await, "s2 refused: Contended");
        assert!(tokio::spawn(never_held()).await.expect_err("panics").is_panic());
    }
}

mod holds {
    use super::*;

    #[distributed_lock(keys = ["hold:<from>", "hold:<to>"], guard = held)]
    async fn several((from, to): (u8, u8)) -> Result<Vec<String>, AppError> {
        for key in ["hold:1", "hold:2"] {
            assert_held(key).await;
        }
        Ok(held.iter().map(|held| held.key().to_string()).collect())
    }

    /// `held` is the name of the function's own.
    #[distributed_lock(key = "hold:own:<guard>", guard = held, max_hold = "forever", reentrant = true)]
    async fn own_name(guard: u8) -> Result<u64, AppError> {
        let held = held.fencing_token();
        Ok(held.get())
    }

    #[distributed_lock(key = "hold:raw", guard = r#type, max_hold = Duration::from_secs(60))]
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
}

mod promises {
    use super::*;

    /// What happened, in this order.
    static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

    fn log(text: impl Into<String>) {
        LOG.lock().expect("no panic").push(text.into());
    }

    /// Says when it is dropped, and whether the lock was held then.
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

    struct Pair(Witness, #[expect(dead_code, reason = "it is there to be dropped")] Witness);

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
                // A parameter without a name cannot be taken along.
                "anonymous held=false",
            ]
        );
    }

    /// Counts how often it is written.
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
}
