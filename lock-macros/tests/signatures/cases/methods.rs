//! Methods, by each kind of `self`.

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
