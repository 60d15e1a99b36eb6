//! A boxed future.

use std::{
    future::Future,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
};

/// A boxed future that leaves what owns it `Sync`.
///
/// Stores answer with futures that are `Send` only, and a body that is not `Sync` does not go into every stack. It
/// is polled through `&mut` alone, so the mutex is never locked.
pub(crate) struct Task<T>(Mutex<Pin<Box<dyn Future<Output = T> + Send>>>);

impl<T> Task<T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Mutex::new(Box::pin(future)))
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).as_mut().poll(cx)
    }
}
