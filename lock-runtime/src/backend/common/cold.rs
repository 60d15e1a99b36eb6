//! Boxes for futures that are rarely awaited.

use std::pin::Pin;

/// Boxes a future that a caller seldom awaits, or awaits before much slower work.
///
/// A future is as large as the largest of the futures that it may await, whether or not it awaits that one. In a box, the
/// rare case costs the usual one no memory and no copy.
pub(in crate::backend) fn cold<F: Future>(future: F) -> Pin<Box<F>> {
    Box::pin(future)
}
