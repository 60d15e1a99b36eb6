//! The code that `tonic-build` would generate from `bank.proto`, by hand, so that the example needs no `protoc`.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tonic::{Request, Response, Status, body::Body, codegen::Service, server::NamedService};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Withdrawal {
    #[prost(int64, tag = "1")]
    pub(crate) amount: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Account {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Balance {
    #[prost(int64, tag = "1")]
    pub(crate) left: i64,
    #[prost(uint64, tag = "2")]
    pub(crate) token: u64,
}

#[tonic::async_trait]
pub(crate) trait Bank: Send + Sync + 'static {
    async fn withdraw(&self, request: Request<Withdrawal>) -> Result<Response<Balance>, Status>;
    async fn close(&self, request: Request<Account>) -> Result<Response<Balance>, Status>;
}

pub(crate) struct BankServer<T>(Arc<T>);

impl<T> BankServer<T> {
    pub(crate) fn new(bank: T) -> Self {
        Self(Arc::new(bank))
    }
}

impl<T> Clone for BankServer<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> NamedService for BankServer<T> {
    const NAME: &'static str = "demo.Bank";
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<T: Bank> Service<http::Request<Body>> for BankServer<T> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let bank = Arc::clone(&self.0);
        Box::pin(async move {
            Ok(match request.uri().path() {
                "/demo.Bank/Withdraw" => {
                    tonic::server::Grpc::new(ProstCodec::default()).unary(Withdraw(bank), request).await
                }
                "/demo.Bank/Close" => {
                    tonic::server::Grpc::new(ProstCodec::default()).unary(Close(bank), request).await
                }
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}

struct Withdraw<T>(Arc<T>);

impl<T: Bank> tonic::server::UnaryService<Withdrawal> for Withdraw<T> {
    type Response = Balance;
    type Future = BoxFuture<Result<Response<Balance>, Status>>;

    fn call(&mut self, request: Request<Withdrawal>) -> Self::Future {
        let bank = Arc::clone(&self.0);
        Box::pin(async move { bank.withdraw(request).await })
    }
}

struct Close<T>(Arc<T>);

impl<T: Bank> tonic::server::UnaryService<Account> for Close<T> {
    type Response = Balance;
    type Future = BoxFuture<Result<Response<Balance>, Status>>;

    fn call(&mut self, request: Request<Account>) -> Self::Future {
        let bank = Arc::clone(&self.0);
        Box::pin(async move { bank.close(request).await })
    }
}
