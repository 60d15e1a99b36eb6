//! Redisson's names and scripts.
//!
//! The names and channels follow Redisson 3.17.7 and 4.7.0 as seen on the wire. The scripts are our own.

use std::{
    fmt::{self, Display},
    sync::LazyLock,
    time::Duration,
};

use redis::{Cmd, RedisWrite, Value};

use crate::{
    FencingToken, LockKey, OwnerToken,
    backend::{
        Mode, Severity,
        kits::{
            redis::{
                format,
                lua::{EACH, FENCE_RETENTION, MINT, REPLICA_ERROR, fence_constants},
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
pub(super) const NAME: &str = "redisson";

/// Pause before a waiter asks again although no release was announced. Redisson's own clients announce each release,
/// except those of its spin and fair locks, and an announcement may be lost with a connection.
const PAUSE: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(350)];
/// Minimum and maximum time for which a released lock is left to other clients; a Java client was seen to ask 4 to 16
/// ms after a release.
const LEFT_FREE: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(16)];

/// The field in which a client of this library records its grant, beside the field of the owner. Redisson's clients read no
/// other field than their own.
const RECORD: &str = "~1:grant";

/// The source of the fencing tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FenceSource {
    /// The server's time, which orders the grants to clients of this library.
    Clock,
    /// The counter of Redisson's `RFencedLock`.
    Counter,
}

static BY_CLOCK: LazyLock<Scripts> =
    LazyLock::new(|| Scripts::with(&[MINT, include_str!("scripts/clock.lua")]));
static BY_COUNTER: LazyLock<Scripts> = LazyLock::new(|| Scripts::with(&[include_str!("scripts/fenced.lua")]));

struct Scripts {
    acquire: Script,
    renew: Script,
    count: Script,
    release: Script,
    free: Script,
}

static LOOK: LazyLock<Script> = LazyLock::new(|| Script::of(&[include_str!("scripts/look.lua")]));

impl Scripts {
    fn with(fences: &[&str]) -> Self {
        let constants = fence_constants(FENCE_RETENTION);
        let common = include_str!("scripts/common.lua");
        let record = format!("local RECORD = '{RECORD}'");
        let of = |text| {
            Script::of(
                &[&[constants.as_str(), &record][..], fences, &[EACH, REPLICA_ERROR, common, text]].concat(),
            )
        };
        Self {
            acquire: of(include_str!("scripts/acquire.lua")),
            renew: of(include_str!("scripts/renew.lua")),
            count: of(include_str!("scripts/count.lua")),
            release: of(include_str!("scripts/release.lua")),
            free: of(include_str!("scripts/free.lua")),
        }
    }
}

#[derive(Debug)]
pub(super) struct RLock {
    client: ClientId,
    pub(super) fences: FenceSource,
}

impl RLock {
    pub(super) fn new(fences: FenceSource) -> Self {
        Self { client: ClientId::random(), fences }
    }

    fn scripts(&self) -> &'static Scripts {
        match self.fences {
            FenceSource::Clock => &BY_CLOCK,
            FenceSource::Counter => &BY_COUNTER,
        }
    }
}

impl Protocol for RLock {
    fn store(&self) -> &'static str {
        NAME
    }

    fn if_forgotten(&self) -> Option<(Severity, &'static str)> {
        Some(match self.fences {
            FenceSource::Clock => (
                Severity::Warning,
                "and two clients can then hold one lock until the first one renews its lease",
            ),
            FenceSource::Counter => (Severity::Danger, "and the fencing tokens then begin at 1 again"),
        })
    }

    fn script(&self, kind: Kind) -> Option<&'static Script> {
        let scripts = self.scripts();
        Some(match kind {
            Kind::Acquire => &scripts.acquire,
            Kind::Renew => &scripts.renew,
            Kind::Count => &scripts.count,
            // An attempt without an answer may have been granted after all, and a client may have waited since that
            // grant.
            Kind::Release | Kind::Withdraw => &scripts.release,
            // There is only one server, so no node differs from the others.
            Kind::Raise | Kind::Join => return None,
        })
    }

    fn write_counter(&self, call: &mut Cmd, key: &LockKey) {
        match self.fences {
            FenceSource::Clock => call.write_arg_fmt(format::beside(key, "fence")),
            FenceSource::Counter => call.write_arg_fmt(before("redisson_lock_token", key.stored())),
        }
    }

    /// Writes `<uuid of the client>:<id>`. Java writes the number of a thread as the id, and accepts any text.
    fn write_owner(&self, call: &mut Cmd, mode: Mode, owner: OwnerToken) {
        match mode {
            Mode::Exclusive => {}
        }
        let id = owner.expose() & u128::from(i64::MAX.cast_unsigned());
        call.write_arg_fmt(format_args!("{}:{id}", self.client.0));
    }

    fn channel(&self, key: &LockKey) -> String {
        before("redisson_lock__channel", key.stored()).to_string()
    }

    fn for_operators(&self) -> ForOperators {
        ForOperators { look: &LOOK, revoke: None, free: &self.scripts().free, key_type: "hash" }
    }

    fn sighting(&self, answer: &[Value]) -> Option<Sighting> {
        let [Value::Array(fields), Value::Int(pttl), Value::Int(waiting)] = answer else { return None };
        let (mut owner, mut record) = (None, None);
        for field in fields.chunks_exact(2) {
            let [Value::BulkString(name), Value::BulkString(value)] = field else { return None };
            if name == RECORD.as_bytes() { record = Some(value) } else { owner = Some(name) }
        }
        let is_doubtful = !owner.is_some_and(|owner| is_owner(owner));
        let foreign = Sighting::foreign(owner.cloned().unwrap_or_default(), *pttl, *waiting);
        let grant = record.and_then(|record| grant(str::from_utf8(record).ok()?));
        Some(Sighting { grant, is_doubtful, ..foreign })
    }

    /// Begins like the channels of the releases, so that a user needs few rights.
    fn revocations(&self, prefix: &str) -> String {
        ["redisson_lock__channel:", prefix, REVOCATIONS].concat()
    }

    fn token(&self, fence: u64) -> FencingToken {
        match self.fences {
            FenceSource::Clock => FencingToken::from_micros(fence),
            FenceSource::Counter => FencingToken::from_number(fence),
        }
    }

    fn hands_over(&self) -> bool {
        self.fences == FenceSource::Clock
    }

    fn pause(&self, _: bool) -> [Duration; 2] {
        PAUSE
    }

    fn left_free(&self) -> [Duration; 2] {
        LEFT_FREE
    }

    fn outage_means(&self) -> &'static str {
        "no lock is granted"
    }
}

/// Returns whether a field of a hash has the form of an owner, `<uuid>:<id>`. A program may have other hashes than locks under
/// any name.
fn is_owner(field: &[u8]) -> bool {
    let Some((uuid, id)) = str::from_utf8(field).ok().and_then(|field| field.split_once(':')) else {
        return false;
    };
    let is_uuid = uuid.len() == 36 && uuid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_uuid && !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit())
}

/// Reads the record of a grant, as `acquire.lua` writes it.
fn grant(record: &str) -> Option<SeenGrant> {
    let mut parts = record.splitn(3, ':');
    let (fence, recorded) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let signature = parts.next()?.to_owned();
    Some(SeenGrant { fence, recorded, since: recorded, signature, is_revoked: false })
}

/// Returns a name with this prefix in the slot of the lock. As in Redisson, a hash tag is put around the lock's name
/// only if the name has no brace.
fn before(prefix: &'static str, name: &str) -> impl Display {
    format::written(move |f| {
        if name.contains('{') { write!(f, "{prefix}:{name}") } else { write!(f, "{prefix}:{{{name}}}") }
    })
}

/// The part that the texts of all owners of one store have: a random UUID (RFC 9562, version 4) as text, like the UUID
/// of each Redisson client.
struct ClientId(String);

impl ClientId {
    fn random() -> Self {
        const VERSION: u128 = 0xf << 76;
        const VARIANT: u128 = 0b11 << 62;
        let bits = OwnerToken::random().expose() & !(VERSION | VARIANT) | (4 << 76) | (0b10 << 62);
        let hex = format!("{bits:032x}");
        Self([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
    }
}

/// Shows no digits: a reader of the text of an owner, of which the id is a part, could release the owner's lock.
impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientId(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_redisson_s_rule_for_braces() {
        for (name, channel) in [
            ("x", "redisson_lock__channel:{x}"),
            ("{t}:x", "redisson_lock__channel:{t}:x"),
            ("a{b", "redisson_lock__channel:a{b"),
        ] {
            assert_eq!(before("redisson_lock__channel", name).to_string(), channel);
        }
    }

    #[test]
    fn an_owner_is_told_from_other_fields() {
        for (field, expected) in [
            ("00000000-1111-2222-3333-444444444444:17", true),
            ("00000000-1111-2222-3333-444444444444:", false),
            ("00000000-1111-2222-3333-444444444444", false),
            ("name", false),
            ("a:1", false),
        ] {
            assert_eq!(is_owner(field.as_bytes()), expected, "{field}");
        }
    }

    #[test]
    fn a_record_is_read_as_the_script_writes_it() {
        let signature = "program,1@host".to_owned();
        let seen = SeenGrant { fence: 7, recorded: 9, since: 9, signature, is_revoked: false };
        assert_eq!(grant("7:9:program,1@host"), Some(seen));
        for other in ["", "7", "7:9", "x:9:program,1@host"] {
            assert_eq!(grant(other), None, "{other}");
        }
    }

    #[test]
    fn a_client_id_is_a_random_uuid_in_its_text_form() {
        let ClientId(text) = ClientId::random();
        let parts: Vec<_> = text.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12], "{text}");
        assert!(text[14..].starts_with('4') && "89ab".contains(&text[19..20]), "{text}");
        assert_ne!(text, ClientId::random().0);
    }
}
