//! A gRPC service and its client, written without `protoc`.

use std::{
    convert::Infallible,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::uri::PathAndQuery;
use lock_runtime::{LockError, LockManager, distributed_lock};
use lock_tower::HeldLock;
use tokio::{net::TcpListener, sync::Semaphore};
use tonic::{
    Request, Response, Status, Streaming,
    body::Body,
    codegen::tokio_stream::wrappers::ReceiverStream,
    server::NamedService,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Order {
    #[prost(uint64, tag = "1")]
    pub(crate) account: u64,
    /// Duration of the work, or number of events.
    #[prost(uint64, tag = "2")]
    pub(crate) millis: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Done {
    /// The key of the layer's lock.
    #[prost(string, tag = "1")]
    pub(crate) key: String,
}

#[derive(Clone)]
pub(crate) struct Bank {
    pub(crate) locks: LockManager,
    /// One permit for each event of a stream.
    pub(crate) events: Arc<Semaphore>,
}

impl Bank {
    pub(crate) fn new(locks: &LockManager) -> Self {
        Self { locks: locks.clone(), events: Arc::new(Semaphore::new(0)) }
    }

    #[allow(clippy::unused_async, reason = "gRPC methods are async")]
    async fn withdraw(&self, request: Request<Order>) -> Result<Response<Done>, Status> {
        let key = request.extensions().get::<HeldLock>().map(|lock| lock.key().to_string());
        tokio::time::sleep(Duration::from_millis(request.get_ref().millis)).await;
        Ok(Response::new(Done { key: key.unwrap_or_default() }))
    }

    /// As users would write it: the inner method takes the message, whose fields name the lock.
    async fn close(&self, request: Request<Order>) -> Result<Response<Done>, Status> {
        Ok(Response::new(self.close_account(request.into_inner()).await?))
    }

    #[distributed_lock(key = "account:<order.account>", manager = self.locks, wait = "0s")]
    async fn close_account(&self, order: Order) -> Result<Done, Status> {
        tokio::time::sleep(Duration::from_millis(order.millis)).await;
        Ok(Done { key: lock_key(order.account)? })
    }

    #[allow(clippy::unused_async, reason = "gRPC methods are async")]
    async fn watch(
        &self,
        request: Request<Order>,
    ) -> Result<Response<ReceiverStream<Result<Done, Status>>>, Status> {
        let (events, stream) = tokio::sync::mpsc::channel(1);
        let permits = Arc::clone(&self.events);
        tokio::spawn(async move {
            for number in 0..request.into_inner().millis {
                permits.acquire().await.expect("open").forget();
                if events.send(Ok(Done { key: number.to_string() })).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

/// A second error in the method, so that `?` has two to convert.
fn lock_key(account: u64) -> Result<String, LockError> {
    Ok(lock_runtime::LockKey::new(format!("account:{account}"))?.as_str().into())
}

impl NamedService for Bank {
    const NAME: &'static str = "demo.Bank";
}

impl Service<http::Request<Body>> for Bank {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let bank = self.clone();
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<Done, Order>::default());
            let path = request.uri().path().to_owned();
            Ok(match path.as_str() {
                "/demo.Bank/Withdraw" => {
                    let method = service_fn(move |request| {
                        let bank = bank.clone();
                        async move { bank.withdraw(request).await }
                    });
                    grpc.unary(method, request).await
                }
                "/demo.Bank/Close" => {
                    let method = service_fn(move |request| {
                        let bank = bank.clone();
                        async move { bank.close(request).await }
                    });
                    grpc.unary(method, request).await
                }
                "/demo.Bank/Watch" => {
                    let method = service_fn(move |request| {
                        let bank = bank.clone();
                        async move { bank.watch(request).await }
                    });
                    grpc.server_streaming(method, request).await
                }
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}

/// Listens on a free port.
pub(crate) async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    (listener, address)
}

/// A client.
#[derive(Clone)]
pub(crate) struct Client(Channel);

impl Client {
    pub(crate) async fn connect(server: SocketAddr) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{server}")).expect("a URI");
        Self(endpoint.connect().await.expect("listening"))
    }

    pub(crate) async fn unary(&self, method: &str, request: Request<Order>) -> Result<Done, Status> {
        let mut grpc = tonic::client::Grpc::new(self.0.clone());
        grpc.ready().await.expect("connected");
        Ok(grpc.unary(request, path(method), ProstCodec::default()).await?.into_inner())
    }

    pub(crate) async fn watch(&self, request: Request<Order>) -> Result<Streaming<Done>, Status> {
        let mut grpc = tonic::client::Grpc::new(self.0.clone());
        grpc.ready().await.expect("connected");
        Ok(grpc.server_streaming(request, path("Watch"), ProstCodec::default()).await?.into_inner())
    }
}

fn path(method: &str) -> PathAndQuery {
    format!("/demo.Bank/{method}").parse().expect("a path")
}

/// An order for this account, named in the metadata as well.
pub(crate) fn order(account: u64, millis: u64) -> Request<Order> {
    let mut request = Request::new(Order { account, millis });
    request.metadata_mut().insert("x-account", account.to_string().parse().expect("ASCII"));
    request
}
