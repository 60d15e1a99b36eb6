//! What can be chosen for a layer, beside times and texts.

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

/// Until when a request holds its lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldUntil {
    /// Until the work is done: to the head of a response of known size, which is complete by then, and to the end of
    /// one that is produced while it is sent.
    #[default]
    Auto,
    /// Until the inner service has answered, whatever is still to be sent.
    ResponseHead,
    /// Until the last part of the response is handed to the server, of known size or not. A client that reads slowly
    /// keeps the lock, up to `max_hold`.
    ResponseEnd,
}
