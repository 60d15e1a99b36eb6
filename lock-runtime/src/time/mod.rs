//! Moments, deadlines and lengths of time.

pub(crate) mod backoff;
pub(crate) mod clock;
pub(crate) mod deadline;
pub mod duration;
pub(crate) mod renewal;
