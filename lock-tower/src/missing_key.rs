//! What to do with requests without a key.

/// What to do with a request that lacks a value the template asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// The request is refused: 400 for a missing header or query parameter, 500 for a missing route parameter, which
    /// can only be a configuration mistake.
    #[default]
    Reject,
    /// The request runs without the lock. In a layer with [several locks](crate::LockLayer::all), it runs without those
    /// whose key is incomplete.
    ///
    /// A request with an invalid value is still refused, and so is every request if the layer runs before routing and
    /// the template asks for a route parameter.
    Skip,
}
