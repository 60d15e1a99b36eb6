//! Decides when a node has a vote, without I/O.

use std::time::Duration;

use crate::{
    LockError, LockErrorKind,
    backend::{FindingCode, kits::redis::net::fitness},
};

/// Time that a node without its data must have run, in addition to the longest lease, before it votes. The margin
/// covers the lead of the fences over the nodes' time, and small differences between the nodes' clocks.
const VOTE_MARGIN: Duration = Duration::from_secs(2);

/// Settings that must be the same in all clients of the nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FleetSettings {
    /// Whether a node has a vote as soon as it has started.
    pub(crate) durable: bool,
    /// The longest lease of all clients.
    pub(crate) max_ttl: Duration,
}

impl Default for FleetSettings {
    fn default() -> Self {
        Self { durable: false, max_ttl: Duration::from_secs(60) }
    }
}

/// Properties that a server shows of itself; `None` where the server does not show a property to this user.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerFacts {
    pub(super) run_id: Option<Box<str>>,
    /// The time that the server had run when the connection was opened.
    pub(super) uptime: Option<Duration>,
    /// Whether the server has a log of its writes (`appendonly yes`).
    pub(super) has_log: Option<bool>,
    /// When the server syncs its log to the disk (`appendfsync`).
    pub(super) fsync: Option<String>,
}

impl ServerFacts {
    pub(super) fn by(info: &str) -> Self {
        Self {
            run_id: fitness::run_id(info).map(Box::from),
            uptime: fitness::uptime(info),
            has_log: fitness::has_log(info),
            fsync: None,
        }
    }

    /// Returns an error if the server shows that it is not durable.
    fn belies_durable(&self, address: &str) -> Option<LockError> {
        let setting = match (self.has_log, self.fsync.as_deref()) {
            (Some(false), _) => "appendonly no".to_owned(),
            (_, Some(fsync)) if fsync != "always" => format!("appendfsync {fsync}"),
            _ => return None,
        };
        let message = format!(
            "Redis at {address} has `{setting}`, so it may forget locks: remove `durable=true`, or set `appendonly yes` \
             and `appendfsync always` on every node"
        );
        Some(LockError::new(LockErrorKind::InvalidOptions, message).with_fault(FindingCode::Durable))
    }
}

impl FleetSettings {
    /// Returns the reason why a node that shows `shown` over a connection of this age has no vote; `None` if the node has
    /// a vote. The error is [retryable](LockError::is_retryable) if the node gets its vote once it has run for long
    /// enough; otherwise, the settings of the node, or of its user, must be changed first.
    pub(super) fn refuse(&self, shown: &ServerFacts, age: Duration, address: &str) -> Option<LockError> {
        // A server that does not show its run id may have been configured as two nodes, under two addresses.
        if shown.run_id.is_none() {
            let message = format!(
                "Redis at {address} has no vote, because it does not answer INFO: it may be the server of another node, \
                 and may have forgotten locks. Allow its user the command INFO"
            );
            return Some(LockError::backend(message).into_permanent().with_fault(FindingCode::NoVote));
        }
        if self.durable {
            return shown.belies_durable(address);
        }
        let up = shown.uptime.unwrap_or_default() + age;
        let left = (self.max_ttl + VOTE_MARGIN).saturating_sub(up);
        (!left.is_zero()).then(|| {
            let message = format!(
                "Redis at {address} was started a moment ago, may have forgotten locks, and votes in {:?}. On a \
                 developer's machine, a short `max_ttl` (such as `max_ttl=2s`) makes that short. `durable=true` is for \
                 nodes that forget nothing: each persists every write before it answers (`appendonly yes` and \
                 `appendfsync always`)",
                Duration::from_secs(left.as_secs() + 1)
            );
            LockError::backend(message).with_fault(FindingCode::NoVote)
        })
    }

    /// Returns the reason why a node that shows `shown` has no vote, however long the node runs.
    pub(super) fn refuse_for_good(&self, shown: &ServerFacts, address: &str) -> Option<LockError> {
        self.refuse(shown, Duration::ZERO, address).filter(|error| !error.is_retryable())
    }

    /// Returns the warning to the operator about a node that shows `shown`.
    pub(super) fn warning(&self, shown: &ServerFacts, address: &str) -> Option<String> {
        if let Some(error) = self.refuse_for_good(shown, address) {
            return Some(error.message().to_owned());
        }
        let unseen = match (shown.has_log, &shown.fsync) {
            (Some(_), Some(_)) => return None,
            (Some(_), None) => "`appendfsync`, because this user may not ask for it by CONFIG",
            (None, _) => "`appendonly`, because its INFO does not name it",
        };
        self.durable.then(|| {
            format!(
                "Redis at {address} does not show its {unseen}; `durable=true` claims that it persists every write before \
                 it answers (`appendonly yes` and `appendfsync always`), and otherwise two clients can hold one lock"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DURABLE: FleetSettings = FleetSettings { durable: true, max_ttl: Duration::from_secs(5) };
    const FORGETFUL: FleetSettings = FleetSettings { durable: false, ..DURABLE };

    fn shown(info: &str, fsync: Option<&str>) -> ServerFacts {
        ServerFacts { fsync: fsync.map(str::to_owned), ..ServerFacts::by(info) }
    }

    /// Returns the reason, and whether the refusal is for now only.
    fn refusal(rules: FleetSettings, shown: &ServerFacts) -> Option<(String, bool)> {
        let refusal = rules.refuse(shown, Duration::from_secs(1), "h:1")?;
        Some((refusal.to_string(), refusal.is_retryable()))
    }

    #[test]
    fn a_node_votes_once_every_lease_that_it_may_have_forgotten_has_ended() {
        for (uptime, votes) in [(0, false), (5, false), (6, true), (3600, true)] {
            let shown = shown(&format!("run_id:x\r\nuptime_in_seconds:{uptime}\r\naof_enabled:0\r\n"), None);
            let refusal = refusal(FORGETFUL, &shown);
            assert_eq!(refusal.is_none(), votes, "{uptime}: {refusal:?}");
            assert!(refusal.is_none_or(|(text, for_now)| for_now && text.contains("`max_ttl`")));
            assert_eq!(FORGETFUL.warning(&shown, "h:1"), None);
        }
    }

    #[test]
    fn a_node_that_says_nothing_of_itself_has_no_vote() {
        for rules in [DURABLE, FORGETFUL] {
            let (text, for_now) = refusal(rules, &ServerFacts::default()).expect("no vote");
            assert!(!for_now && text.contains("INFO") && !text.contains("durable"), "{text}");
            assert!(rules.warning(&ServerFacts::default(), "h:1").is_some());
        }
    }

    #[test]
    fn what_contradicts_durable_is_refused_and_what_cannot_be_seen_is_warned_of() {
        for (log, fsync, refused, warned) in [
            ("aof_enabled:1", Some("always"), None, None),
            ("aof_enabled:1", Some("everysec"), Some("appendfsync everysec"), Some("appendfsync everysec")),
            ("aof_enabled:1", Some("no"), Some("appendfsync no"), Some("appendfsync no")),
            ("aof_enabled:1", None, None, Some("does not show its `appendfsync`")),
            ("aof_enabled:0", None, Some("appendonly no"), Some("appendonly no")),
            ("aof_enabled:0", Some("always"), Some("appendonly no"), Some("appendonly no")),
            ("", None, None, Some("does not show its `appendonly`")),
            ("", Some("always"), None, Some("does not show its `appendonly`")),
        ] {
            let shown = shown(&format!("run_id:x\r\nuptime_in_seconds:0\r\n{log}\r\n"), fsync);
            let is_said = |text: Option<String>, what: Option<&str>| match (&text, what) {
                (Some(text), Some(what)) => assert!(text.contains(what), "{log} {fsync:?}: {text}"),
                (text, what) => assert_eq!(text.is_some(), what.is_some(), "{log} {fsync:?}: {text:?}"),
            };
            is_said(refusal(DURABLE, &shown).map(|(text, _)| text), refused);
            is_said(DURABLE.warning(&shown, "h:1"), warned);
        }
    }
}
