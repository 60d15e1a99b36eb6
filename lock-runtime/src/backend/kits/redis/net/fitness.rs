//! Decides from a server's answers to `HELLO` and `INFO` whether the server is fit for locks. This module does no I/O.

use std::{collections::HashMap, time::Duration};

use redis::{FromRedisValue, Value};

use super::{
    super::error::{CLUSTER, SENTINEL},
    topology::NamedBy,
};
use crate::{
    LockError, LockErrorKind,
    backend::{Finding, FindingCode, Severity},
};

/// The oldest version with all that the scripts need, which includes `SET … GET`.
const OLDEST: (u64, u64) = (6, 2);

/// Refuses a server that can hold no locks, judged by its answer to `HELLO`.
pub(super) fn check_server(
    hello: &HashMap<String, Value>,
    address: &str,
    named_by: NamedBy,
) -> Result<(), LockError> {
    let field = |name: &str| hello.get(name).and_then(|value| String::from_redis_value_ref(value).ok());
    let version = field("version").unwrap_or_default();
    let mut numbers = version.split('.').map(|number| number.parse::<u64>().ok());
    if let (Some(Some(major)), Some(Some(minor))) = (numbers.next(), numbers.next())
        && (major, minor) < OLDEST
    {
        return Err(unsupported(format!("Redis at {address} is version {version}; 6.2 or later is needed"))
            .with_fault(FindingCode::Version));
    }
    match field("mode").as_deref() {
        Some("sentinel") => {
            return Err(
                unsupported(format!("Redis at {address}: {SENTINEL}")).with_fault(FindingCode::Topology)
            );
        }
        Some("cluster") if named_by != NamedBy::Cluster => {
            return Err(
                unsupported(format!("Redis at {address}: {CLUSTER}")).with_fault(FindingCode::Topology)
            );
        }
        _ => {}
    }
    if field("role").is_some_and(|role| ["slave", "replica"].contains(&role.as_str())) {
        let remedy = match named_by {
            NamedBy::Url => "the URL must lead to the primary",
            NamedBy::Sentinels => "the Sentinels have not named another primary yet",
            NamedBy::Cluster => "the cluster has not named another primary yet",
        };
        return Err(LockError::backend(format!(
            "Redis at {address} is a replica, which takes no locks; {remedy}"
        ))
        .with_fault(FindingCode::ReadOnly));
    }
    Ok(())
}

/// Returns a field of the text of `INFO`.
pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.trim();
    (!value.is_empty()).then_some(value)
}

/// Something in a server's settings that may cost locks.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) code: FindingCode,
    severity: Severity,
    /// What the server does, without its subject.
    what: String,
    remedy: &'static str,
}

impl Fault {
    /// Returns the finding for an examination.
    pub(crate) fn finding(self) -> Finding {
        let message = format!("the server {}", self.what);
        match self.severity {
            Severity::Danger => Finding::danger(self.code, message, self.remedy),
            Severity::Warning => Finding::warning(self.code, message, self.remedy),
        }
    }
}

/// Returns what the text of `INFO` shows that may lose locks: eviction, or, if `alone` is to be warned of, writes that no
/// replica has.
pub(super) fn faults(info: &str, alone: bool) -> Vec<Fault> {
    [evicts(info), alone.then(|| accepts_writes_alone(info)).flatten()].into_iter().flatten().collect()
}

/// Returns what is wrong in one sentence, for the log; `None` if nothing is.
pub(super) fn danger(faults: &[Fault], address: &str) -> Option<String> {
    let dangers: Vec<_> =
        faults.iter().map(|fault| format!("Redis at {address} {}; {}", fault.what, fault.remedy)).collect();
    (!dangers.is_empty()).then(|| dangers.join("; "))
}

fn evicts(info: &str) -> Option<Fault> {
    let (policy, limit) = (field(info, "maxmemory_policy")?, field(info, "maxmemory")?);
    (limit != "0" && policy != "noeviction").then(|| Fault {
        code: FindingCode::Eviction,
        severity: Severity::Danger,
        what: format!(
            "may evict locks when memory runs out (maxmemory-policy {policy}), and then two clients can hold one lock"
        ),
        remedy: "set `maxmemory-policy noeviction`",
    })
}

/// The server reports the number of its good replicas only if it refuses writes without them.
fn accepts_writes_alone(info: &str) -> Option<Fault> {
    let is_limited = field(info, "min_slaves_good_slaves").is_some();
    (!info.is_empty() && !is_limited).then(|| Fault {
        code: FindingCode::Replicas,
        severity: Severity::Warning,
        what: "goes on granting locks when it is cut off from its replicas (min-replicas-to-write 0), although one of these \
               may have become the primary, and then two clients can hold one lock"
            .to_owned(),
        remedy: "set `min-replicas-to-write 1` and `min-replicas-max-lag 10` on each server",
    })
}

/// Share of `maxmemory`, in percent, from which the memory counts as nearly full.
const NEARLY_FULL: u64 = 90;

/// Returns a fault if little of the server's memory is left. A server that evicts is full as a rule, and goes on granting
/// locks.
pub(super) fn is_nearly_full(info: &str) -> Option<Fault> {
    if evicts(info).is_some() {
        return None;
    }
    let number = |name| field(info, name)?.parse::<u64>().ok();
    let (used, limit) = (number("used_memory")?, number("maxmemory")?);
    let percent = used.saturating_mul(100).checked_div(limit)?;
    (percent >= NEARLY_FULL).then(|| Fault {
        code: FindingCode::Memory,
        severity: if percent >= 100 { Severity::Danger } else { Severity::Warning },
        what: format!("uses {percent}% of its `maxmemory`; once it is full, no lock is granted"),
        remedy: "raise `maxmemory`, or remove data",
    })
}

/// Returns a fault if the server keeps nothing on its disk: neither a log nor, by its setting `save`, snapshots.
pub(super) fn forgets(info: &str, save: &str, severity: Severity, consequence: &str) -> Option<Fault> {
    let forgets = has_log(info) == Some(false) && save.trim().is_empty();
    forgets.then(|| Fault {
        code: FindingCode::Persistence,
        severity,
        what: format!("forgets all locks when it restarts (`appendonly no` and no `save`), {consequence}"),
        remedy: "set `appendonly yes`",
    })
}

fn unsupported(message: String) -> LockError {
    LockError::new(LockErrorKind::Unsupported, message)
}

/// Returns the run id, which is unique to one run of one server.
pub(crate) fn run_id(info: &str) -> Option<&str> {
    field(info, "run_id")
}

/// Returns the server's time, in µs.
pub(crate) fn time(info: &str) -> Option<u64> {
    field(info, "server_time_usec")?.parse().ok()
}

/// Returns a lower bound on the time for which the server has run.
pub(crate) fn uptime(info: &str) -> Option<Duration> {
    Some(Duration::from_secs(field(info, "uptime_in_seconds")?.parse().ok()?))
}

/// Returns whether the server logs its writes to an append-only file.
pub(crate) fn has_log(info: &str) -> Option<bool> {
    Some(field(info, "aof_enabled")? == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(version: &str, mode: &str, role: &str) -> HashMap<String, Value> {
        [("version", version), ("mode", mode), ("role", role)]
            .into_iter()
            .map(|(name, value)| (name.to_owned(), Value::BulkString(value.into())))
            .collect()
    }

    fn info(maxmemory: &str, policy: &str) -> String {
        format!(
            "# Memory\r\nmaxmemory:{maxmemory}\r\nmaxmemory_human:1G\r\nmaxmemory_policy:{policy}\r\n# Keyspace\r\n"
        )
    }

    #[test]
    fn fit_servers_pass() {
        for hello in [
            hello("7.0.15", "standalone", "master"),
            hello("6.2.0", "standalone", "master"),
            hello("255.255.255", "", ""),
            HashMap::new(),
        ] {
            check_server(&hello, "h:1", NamedBy::Url).expect("fit");
        }
        for info in
            [info("0", "noeviction"), info("1000", "noeviction"), info("0", "allkeys-lru"), String::new()]
        {
            assert!(faults(&info, false).is_empty(), "{info}");
        }
    }

    #[test]
    fn unfit_servers_are_refused_in_one_sentence() {
        for (hello, word, may_change) in [
            (hello("6.0.16", "standalone", "master"), "6.2 or later", false),
            (hello("5.0.1", "standalone", "master"), "6.2 or later", false),
            (hello("7.0.15", "standalone", "replica"), "replica", true),
            (hello("7.0.15", "standalone", "slave"), "replica", true),
            (hello("7.0.15", "cluster", "master"), "Redis Cluster", false),
            (hello("7.0.15", "sentinel", ""), "Sentinel", false),
        ] {
            let error = check_server(&hello, "h:1", NamedBy::Url).expect_err(word);
            assert!(error.to_string().contains(word) && error.to_string().contains("h:1"), "{error}");
            assert_eq!(error.is_retryable(), may_change, "{error}");
        }
    }

    #[test]
    fn a_server_without_a_disk_and_one_without_memory_are_found() {
        let forgets = |log: &str, save: &str| {
            let info = format!("# Persistence\r\naof_enabled:{log}\r\n");
            forgets(&info, save, Severity::Warning, "so").is_some()
        };
        assert!(forgets("0", ""));
        assert!(!forgets("1", "") && !forgets("0", "3600 1"));
        for (used, severity) in [(899, None), (900, Some("warning")), (1_000, Some("danger"))] {
            let fault = is_nearly_full(&format!("used_memory:{used}\r\nmaxmemory:1000\r\n"));
            assert_eq!(fault.map(|fault| fault.finding().severity.name()), severity, "{used}");
        }
        assert!(is_nearly_full("used_memory:1000\r\nmaxmemory:0\r\n").is_none(), "without a limit");
    }

    #[test]
    fn an_evicting_server_is_warned_of() {
        for policy in ["allkeys-lru", "volatile-ttl", "allkeys-random"] {
            let warning = danger(&faults(&info("1000", policy), false), "h:1");
            assert!(
                warning.is_some_and(|warning| warning.contains(policy) && warning.contains("noeviction"))
            );
        }
    }

    #[test]
    fn a_primary_that_accepts_writes_alone_is_warned_of_where_another_may_become_the_primary() {
        let alone = info("0", "noeviction");
        let danger = |info: &str, alone| danger(&faults(info, alone), "h:1");
        let warning = danger(&alone, true).expect("a warning");
        assert!(warning.contains("min-replicas-to-write 1"), "{warning}");
        assert_eq!(danger(&alone, false), None);
        assert_eq!(danger(&format!("{alone}min_slaves_good_slaves:1\r\n"), true), None);
        assert_eq!(danger("", true), None, "a user who may not call INFO");
        let both = danger(&info("1000", "allkeys-lru"), true).expect("a warning");
        assert!(both.contains("noeviction") && both.contains("min-replicas-to-write"), "{both}");
        let replica = check_server(&hello("7.0.15", "standalone", "replica"), "h:1", NamedBy::Sentinels);
        assert!(replica.expect_err("a replica").message().contains("Sentinels"));
    }
}
