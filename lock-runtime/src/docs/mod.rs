//! Pages to read: what the crate promises, how it is operated, and how it is built.

#[doc = include_str!("architecture.md")]
pub mod architecture {}

#[doc = include_str!("operation.md")]
pub mod operation {}

#[doc = include_str!("safety.md")]
pub mod safety {}
