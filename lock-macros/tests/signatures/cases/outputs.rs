//! Functions that return no lock error: what `or_else` and `on_contention` return instead.

use super::*;

/// The output if the lock was not held.
#[expect(clippy::needless_pass_by_value, reason = "`or_else` passes it by value")]
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

/// Only the body determines the type.
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

#[expect(clippy::needless_pass_by_value, reason = "`or_else` passes it by value")]
fn gives_up(error: LockError) -> ! {
    panic!("{error}")
}

#[distributed_lock(key = "output:never-held", wait = "0s", or_else = gives_up)]
async fn never_held() -> ! {
    loop {
        tokio::time::sleep(Duration::from_secs(90)).await;
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

    #[distributed_lock(key = "output:method:<self.name>", or_else = Self::without_a_lock)]
    async fn method(&self) -> Option<&'static str> {
        Some(self.name)
    }

    fn without_a_lock(_: LockError) -> Option<&'static str> {
        None
    }

    #[expect(clippy::manual_async_fn, reason = "the form under test")]
    #[distributed_lock(key = "output:written:<id>", or_else = refused, on_lost = finish)]
    fn written(&self, id: u32) -> impl Future<Output = String> + Send {
        async move {
            assert_held("output:written:3").await;
            format!("{}{id}", self.name)
        }
    }
}

/// Keeps the two tests apart: one holds the locks that the other acquires without waiting.
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
