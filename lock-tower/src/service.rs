//! The service, which finds the keys of a request and starts its future.

use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower::{Layer, Service};

use crate::{LockLayer, ResponseBody, ResponseFuture, protocol::Wire};

/// A service wrapped by [`LockLayer`].
///
/// The inner service's errors are returned unchanged, whereas the layer's errors become responses.
#[derive(Clone)]
pub struct LockService<S> {
    inner: S,
    /// Shared, because routers clone their services for every request.
    layer: Arc<LockLayer>,
}

impl<S> LockService<S> {
    pub(crate) fn new(inner: S, layer: LockLayer) -> Self {
        Self { inner, layer: Arc::new(layer) }
    }
}

impl<S> Layer<S> for LockLayer {
    type Service = LockService<S>;

    fn layer(&self, inner: S) -> LockService<S> {
        LockService::new(inner, self.clone())
    }
}

impl<S, B, ResBody> Service<Request<B>> for LockService<S>
where
    S: Service<Request<B>, Response = Response<ResBody>> + Clone,
    ResBody: Body<Data = Bytes>,
{
    type Response = Response<ResponseBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The service that was polled ready is called, or it is dropped with its reservations. Its clone has not been
        // polled.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        if !self.layer.methods.contains(&request) {
            tracing::trace!(method = %request.method(), "not locked: not one of the layer's methods");
            return ResponseFuture::unlocked(ready, request);
        }
        let wire = Wire::of(request.headers(), self.layer.protocol);
        let (mut parts, body) = request.into_parts();
        let found = self.layer.keys.of(&mut parts, self.layer.missing_key);
        let request = Request::from_parts(parts, body);
        match found {
            Ok(Some(keys)) => ResponseFuture::locked(ready, request, &self.layer, keys, wire),
            Ok(None) => ResponseFuture::unlocked(ready, request),
            Err(rejection) => ResponseFuture::rejected(rejection.at(&request), &self.layer, wire),
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for LockService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockService").field("inner", &self.inner).field("layer", &self.layer).finish()
    }
}
