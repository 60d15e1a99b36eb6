//! What to do with requests without a key.

/// What to do with a request that lacks a value used in the template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// The request is refused with 400 if a header or query parameter is missing, and with 500 if a route parameter is
    /// missing, since that means the layer is misconfigured.
    #[default]
    Reject,
    /// The request runs without the lock. In a layer with [several locks](crate::LockLayer::all), it runs without those
    /// whose key is incomplete.
    ///
    /// A request with an invalid value is still refused. If the layer runs before routing and the template contains a
    /// route parameter, every request is refused, because otherwise all of them would run without the lock.
    Skip,
}
