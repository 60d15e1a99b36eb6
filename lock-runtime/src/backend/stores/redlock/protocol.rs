//! The keys, owners and channels of a lock on each node, and the scripts.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use redis::{Cmd, RedisWrite};

use crate::{
    LockKey, OwnerToken,
    backend::{
        Mode,
        common::host,
        kits::{
            redis::{
                format::{self, FORMAT},
                lua::{EACH, REPLICA_ERROR, fence_constants},
                net::Script,
            },
            unqueued::protocol::{Kind, Protocol},
        },
    },
};

/// The name of this kind of store, for metrics and traces.
pub(super) const NAME: &str = "redlock";

/// Time for which a counter of fences is kept after the last grant or renewal of its lock.
const FENCE_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
/// Upper bound on the lead of a fence, which is a time in µs, over the node's time, if a client proposes the fence.
const MAX_PROPOSAL_LEAD: Duration = Duration::from_secs(1);
/// Pause before the next round behind a holder whose release is announced. The announcement may be lost.
const BEHIND_OURS: [Duration; 2] = [Duration::from_millis(150), Duration::from_millis(300)];
/// Pause before the next round behind a client of another library, which announces no release.
const BEHIND_FOREIGN: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(150)];
const LEFT_FREE: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(4)];

/// The text with which the text of each owner of this library begins.
const OWNERS: &str = "r";

static ACQUIRE: LazyLock<Script> = LazyLock::new(|| script(include_str!("scripts/acquire.lua")));
static RAISE: LazyLock<Script> = LazyLock::new(|| script(include_str!("scripts/raise.lua")));
static RENEW: LazyLock<Script> = LazyLock::new(|| script(include_str!("scripts/renew.lua")));
static JOIN: LazyLock<Script> = LazyLock::new(|| script(include_str!("scripts/join.lua")));
static RELEASE: LazyLock<Script> = LazyLock::new(|| release(true));
static WITHDRAW: LazyLock<Script> = LazyLock::new(|| release(false));

fn script(text: &str) -> Script {
    let fence = fence_constants(FENCE_RETENTION);
    let ours = format!("local OWNERS, AHEAD_US = '{OWNERS}{FORMAT}', {}", MAX_PROPOSAL_LEAD.as_micros());
    Script::of(&[&fence, &ours, EACH, REPLICA_ERROR, include_str!("scripts/common.lua"), text])
}

fn release(notifies: bool) -> Script {
    script(&format!("local NOTIFIES = {notifies}\n{}", include_str!("scripts/release.lua")))
}

#[derive(Debug)]
pub(super) struct StringLock {
    /// The part that the texts of all owners in this process have.
    process: Arc<str>,
}

impl StringLock {
    pub(super) fn new() -> Self {
        Self { process: format!("{}@{}", std::process::id(), host::name()).into() }
    }
}

impl Protocol for StringLock {
    fn store(&self) -> &'static str {
        NAME
    }

    fn script(&self, kind: Kind) -> Option<&'static Script> {
        Some(match kind {
            Kind::Acquire => &ACQUIRE,
            Kind::Raise => &RAISE,
            Kind::Renew => &RENEW,
            Kind::Join => &JOIN,
            Kind::Count => return None,
            Kind::Release => &RELEASE,
            Kind::Withdraw => &WITHDRAW,
        })
    }

    fn write_counter(&self, call: &mut Cmd, key: &LockKey) {
        call.write_arg_fmt(format::beside(key, "fence"));
    }

    /// Writes `r1x:<pid>@<host>:<token>`: store, format and mode, process, and token.
    fn write_owner(&self, call: &mut Cmd, mode: Mode, owner: OwnerToken) {
        call.write_arg_fmt(format_args!("{OWNERS}{}", format::owner(mode, &self.process, owner)));
    }

    /// See `release.lua`.
    fn channel(&self, key: &LockKey) -> String {
        format::beside(key, "released").to_string()
    }

    fn pause(&self, behind_foreign: bool) -> [Duration; 2] {
        if behind_foreign { BEHIND_FOREIGN } else { BEHIND_OURS }
    }

    fn left_free(&self) -> [Duration; 2] {
        LEFT_FREE
    }

    fn outage_means(&self) -> &'static str {
        "it has no vote"
    }
}
