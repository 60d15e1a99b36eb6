//! What becomes of a request without a key.

/// What becomes of a request that has none of the values which a template names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// It is refused: 400 for a header or a query value, 500 for a route parameter, which only a wrong wiring leaves
    /// out.
    #[default]
    Reject,
    /// It runs without a lock; of a layer of [several](crate::LockLayer::all), without those whose values are missing. A
    /// value that is there and not allowed is refused all the same.
    Skip,
}
