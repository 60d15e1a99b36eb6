//! The treatment of requests without a key.

/// The treatment of a request that lacks a value named by the template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// The request is refused: 400 for a missing header or query value, 500 for a missing route parameter, which only
    /// wrong wiring causes.
    #[default]
    Reject,
    /// The request runs without the lock; in a layer of [several](crate::LockLayer::all), without those locks whose
    /// values are missing. A present but invalid value is refused all the same.
    Skip,
}
