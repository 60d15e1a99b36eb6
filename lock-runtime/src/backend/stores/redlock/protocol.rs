//! The keys, owners and channels of a lock on each node, and the scripts.

use std::{sync::LazyLock, time::Duration};

use redis::{Cmd, RedisWrite, Value};

use crate::{
    LockKey, OwnerToken,
    backend::{
        Mode,
        kits::{
            redis::{
                format::{self, FORMAT},
                lua::{EACH, REPLICA_ERROR, fence_constants},
                net::Script,
            },
            unqueued::{
                SeenGrant, Sighting,
                protocol::{ForOperators, Kind, Protocol, REVOCATIONS},
            },
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
/// The end of the text of a holder whose grant is revoked.
const REVOKED: &str = ":revoked";
/// The beginning of the text of an owner that holds a lock exclusively: store, format and mode.
const EXCLUSIVE: &str = "r1x:";

static ACQUIRE: LazyLock<Script> = LazyLock::new(|| script(include_str!("scripts/acquire.lua")));
static RAISE: LazyLock<Script> = LazyLock::new(|| script(include_str!("scripts/raise.lua")));
static RENEW: LazyLock<Script> = LazyLock::new(|| script(include_str!("scripts/renew.lua")));
static JOIN: LazyLock<Script> = LazyLock::new(|| script(include_str!("scripts/join.lua")));
static RELEASE: LazyLock<Script> = LazyLock::new(|| release(true));
static WITHDRAW: LazyLock<Script> = LazyLock::new(|| release(false));
static LOOK: LazyLock<Script> = LazyLock::new(|| Script::of(&[include_str!("scripts/look.lua")]));
static REVOKE: LazyLock<Script> = LazyLock::new(|| script(include_str!("scripts/revoke.lua")));
static FREE: LazyLock<Script> = LazyLock::new(|| script(include_str!("scripts/free.lua")));

fn script(text: &str) -> Script {
    let fence = fence_constants(FENCE_RETENTION);
    let ahead = MAX_PROPOSAL_LEAD.as_micros();
    let ours = format!("local OWNERS, REVOKED, AHEAD_US = '{OWNERS}{FORMAT}', '{REVOKED}', {ahead}");
    Script::of(&[&fence, &ours, EACH, REPLICA_ERROR, include_str!("scripts/common.lua"), text])
}

fn release(notifies: bool) -> Script {
    script(&format!("local NOTIFIES = {notifies}\n{}", include_str!("scripts/release.lua")))
}

#[derive(Debug)]
pub(super) struct StringLock;

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

    /// Writes `r1x:<token>`: store, format and mode, and token.
    fn write_owner(&self, call: &mut Cmd, mode: Mode, owner: OwnerToken) {
        match mode {
            Mode::Exclusive => call.write_arg_fmt(format_args!("{EXCLUSIVE}{}", format::token(owner))),
        }
    }

    /// See `release.lua`.
    fn channel(&self, key: &LockKey) -> String {
        format::beside(key, "released").to_string()
    }

    fn for_operators(&self) -> ForOperators {
        ForOperators { look: &LOOK, revoke: Some(&REVOKE), free: &FREE, key_type: "string" }
    }

    fn sighting(&self, answer: &[Value]) -> Option<Sighting> {
        let [Value::BulkString(text), Value::Int(pttl), Value::Int(waiting)] = answer else { return None };
        let foreign = Sighting::foreign(text.clone(), *pttl, *waiting);
        let Some((owner, grant)) = str::from_utf8(text).ok().and_then(grant) else { return Some(foreign) };
        Some(Sighting { identity: owner.as_bytes().to_vec(), grant: Some(grant), ..foreign })
    }

    fn revocations(&self, prefix: &str) -> String {
        [prefix, REVOCATIONS].concat()
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

/// Reads the text of a holder of this library, as `acquire.lua` and `revoke.lua` write it; returns the owner and the grant.
fn grant(text: &str) -> Option<(&str, SeenGrant)> {
    let length = EXCLUSIVE.len() + text.strip_prefix(EXCLUSIVE)?.find(':')?;
    let (owner, rest) = text.split_at(length);
    let (rest, is_revoked) = match rest.strip_suffix(REVOKED) {
        Some(rest) => (rest, true),
        None => (rest, false),
    };
    let mut parts = rest.splitn(4, ':').skip(1);
    let fence = parts.next()?.parse().ok()?;
    let recorded: u64 = parts.next()?.parse().ok()?;
    let signature = parts.next()?.to_owned();
    // A node that was given the lease later has recorded it later, and the fence is a time of a node.
    Some((owner, SeenGrant { fence, recorded, since: recorded.min(fence), signature, is_revoked }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_read_as_the_scripts_write_it() {
        let plain = SeenGrant {
            fence: 17,
            recorded: 19,
            since: 17,
            signature: "program,1@host,label".into(),
            is_revoked: false,
        };
        let text = "r1x:00ff:17:19:program,1@host,label";
        assert_eq!(grant(text), Some(("r1x:00ff", plain.clone())));
        let revoked = format!("{text}:revoked");
        assert_eq!(grant(&revoked), Some(("r1x:00ff", SeenGrant { is_revoked: true, ..plain })));
        for other in ["", "r1x:", "r1x:00ff", "r1x:00ff:17", "r1x:00ff:x:19:", "r2x:00ff:17:19:a", "other"] {
            assert_eq!(grant(other), None, "{other}");
        }
    }
}
