//! Parts that the scripts of several stores share: answers for many locks in one call, and the mint of fences.

use std::time::Duration;

use crate::FencingToken;

/// Time by which the counter of fences outlasts the last grant: twice the longest lease, 24 h.
pub(crate) const FENCE_RETENTION: Duration = Duration::from_secs(48 * 60 * 60);
/// The Lua function that answers for each of many locks.
pub(crate) const EACH: &str = include_str!("scripts/each.lua");
/// The Lua function that mints a fence.
pub(crate) const MINT: &str = include_str!("scripts/fence.lua");

/// Returns the constants of the scripts that mint fences, in Lua.
pub(crate) fn fence_constants(retention: Duration) -> String {
    let retention = retention.as_millis();
    format!("local FENCE_RETENTION_MS, LAST_FENCE = '{retention}', {}", FencingToken::LAST_MICROS)
}
