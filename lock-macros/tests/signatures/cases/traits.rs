//! Methods of traits: native, returning a future, boxed by `async_trait`, and with a default body.

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

    #[expect(clippy::manual_async_fn, reason = "the form under test")]
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
