//! Boxes for futures that are rarely awaited.

use std::pin::Pin;

/// Boxes a future that its caller seldom awaits, or awaits only before much slower work.
///
/// A future reserves memory for the largest future that it may await, even if it never awaits the largest. A box keeps
/// the rare future out of its caller, so that the usual case neither reserves nor copies memory for the rare case.
pub(in crate::backend) fn cold<F: Future>(future: F) -> Pin<Box<F>> {
    Box::pin(future)
}
