//! Pages to read: how the crate is built, and what it promises.

#[doc = include_str!("architecture.md")]
pub mod architecture {}

#[doc = include_str!("safety.md")]
pub mod safety {}
