//! Acquisition, fencing and extension on a quorum of independent nodes.

mod canonical;
mod client;
mod properties;
mod redlock;
mod scripts;
mod state;
mod step;
mod variant;
mod variants;

pub(crate) use variants::all;
