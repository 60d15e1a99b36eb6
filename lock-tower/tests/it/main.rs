//! The layer through its public interface, on the store inside this process. One program, because each links every
//! dependency.

#[cfg(feature = "axum")]
mod annotated_handlers;
#[cfg(feature = "axum")]
mod grpc;
#[cfg(feature = "axum")]
mod grpc_service;
mod hold;
#[cfg(feature = "inspect")]
mod inspect;
#[cfg(feature = "axum")]
mod label;
#[cfg(feature = "axum")]
mod multi_lock;
#[cfg(feature = "axum")]
mod options;
#[cfg(feature = "axum")]
mod other_layers;
#[cfg(feature = "axum")]
mod rejections;
#[cfg(feature = "axum")]
mod routes;
mod silent_store;
mod streams;
mod support;
#[cfg(feature = "axum")]
mod tcp;
#[cfg(feature = "axum")]
mod with_tower_http;
