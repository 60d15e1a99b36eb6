//! The layer from outside, on the store inside this process. One program, because each links everything it needs.

#[cfg(feature = "axum")]
mod answers;
#[cfg(feature = "axum")]
mod grpc;
#[cfg(feature = "axum")]
mod handlers;
mod hold;
#[cfg(feature = "axum")]
mod log;
#[cfg(feature = "axum")]
mod options;
#[cfg(feature = "axum")]
mod routes;
#[cfg(feature = "axum")]
mod rpc;
#[cfg(feature = "axum")]
mod several;
mod silent;
#[cfg(feature = "axum")]
mod stacks;
mod streams;
mod support;
#[cfg(feature = "axum")]
mod tcp;
