//! The fencing token, which is public, and the owner token, which is secret.

mod fencing;
mod owner;

pub use self::{fencing::FencingToken, owner::OwnerToken};
