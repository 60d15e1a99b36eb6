//! Values from the route that axum has matched.

use std::{
    fmt::Write as _,
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

use axum::extract::{FromRequestParts, RawPathParams, rejection::RawPathParamsRejection};
use http::request::Parts;

use crate::KeyRejection;

/// Returns the route's parameters, decoded. Axum has them ready, although its extractor is asynchronous.
pub(super) fn params(parts: &mut Parts) -> Result<RawPathParams, KeyRejection> {
    let params = pin!(RawPathParams::from_request_parts(parts, &()));
    match params.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(params)) => Ok(params),
        Poll::Ready(Err(RawPathParamsRejection::InvalidUtf8InPathParam(_))) => {
            Err(KeyRejection::bad_request("a path parameter is not valid UTF-8"))
        }
        // Not `missing`, because with `MissingKey::Skip` no request at all would be locked.
        Poll::Ready(Err(RawPathParamsRejection::MissingPathParams(_))) => Err(KeyRejection::internal(
            "the lock key names route parameters, but the layer runs before the route is known: add it to the route \
             itself, `post(handler).route_layer(lock)`, not around the `Router`",
        )),
        Poll::Ready(Err(other)) => Err(KeyRejection::internal(format!("no route parameters: {other}"))),
        Poll::Pending => {
            Err(KeyRejection::internal("this version of axum does not have route parameters at once"))
        }
    }
}

/// Returns the only value of `name`. If there is none, or more than one, the layer cannot work on this route, so this
/// function does not guess.
pub(super) fn value<'a, P>(name: &str, params: impl Fn() -> P) -> Result<&'a str, KeyRejection>
where
    P: Iterator<Item = (&'a str, &'a str)>,
{
    let mut values = params().filter(|(known, _)| *known == name).map(|(_, value)| value);
    match (values.next(), values.next()) {
        (Some(value), None) => Ok(value),
        (Some(_), Some(_)) => Err(KeyRejection::internal(format!(
            "the route has two parameters `{name}`, as nested routers may: rename one of them"
        ))),
        (None, _) => {
            let mut known = String::new();
            for (name, _) in params() {
                let _ = write!(known, " `{name}`");
            }
            let (known, remedy) = if known.is_empty() {
                (
                    " none",
                    "this route has none, or no route matched, and `Router::layer` runs even then; add the layer to \
                     the routes that are to be locked",
                )
            } else {
                (
                    &*known,
                    "write it as the route does; if this route is not to be locked, add the layer to those that are",
                )
            };
            Err(KeyRejection::internal(format!(
                "the lock key names `<{name}>`, which is not a parameter of the matched route (it has:{known}): \
                 {remedy}, `post(handler).route_layer(lock)`"
            ))
            .missing())
        }
    }
}
