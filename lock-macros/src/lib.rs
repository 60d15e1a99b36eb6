//! The `#[distributed_lock]` attribute; use it through `lock_runtime`.
