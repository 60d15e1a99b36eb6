//! Parts that the scripts of several stores share: the answers for many locks in one call, and the minting of fencing
//! tokens.

use std::time::Duration;

use crate::FencingToken;

/// Time for which the counter of fencing tokens outlasts the last grant: twice the longest lease of 24 h.
pub(crate) const FENCE_RETENTION: Duration = Duration::from_secs(48 * 60 * 60);
/// The Lua function that adds the answer for each of many locks.
pub(crate) const EACH: &str = include_str!("scripts/each.lua");
/// The Lua function that tells a replica from a primary.
pub(crate) const REPLICA_ERROR: &str = include_str!("scripts/replica.lua");
/// The Lua function that mints a fencing token.
pub(crate) const MINT: &str = include_str!("scripts/fence.lua");

/// Returns, in Lua, the constants of the scripts that mint fencing tokens.
pub(crate) fn fence_constants(retention: Duration) -> String {
    let retention = retention.as_millis();
    format!("local FENCE_RETENTION_MS, LAST_FENCE = '{retention}', {}", FencingToken::LAST_MICROS)
}
