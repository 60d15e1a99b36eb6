//! Decides from a server's answers to `HELLO` and `INFO` whether the server is fit for locks. This module does no I/O.

use std::{collections::HashMap, time::Duration};

use redis::{FromRedisValue, Value};

use super::{
    super::error::{CLUSTER, SENTINEL},
    topology::NamedBy,
};
use crate::{LockError, LockErrorKind};

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
        return Err(unsupported(format!("Redis at {address} is version {version}; 6.2 or later is needed")));
    }
    match field("mode").as_deref() {
        Some("sentinel") => return Err(unsupported(format!("Redis at {address}: {SENTINEL}"))),
        Some("cluster") if named_by != NamedBy::Cluster => {
            return Err(unsupported(format!("Redis at {address}: {CLUSTER}")));
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
        )));
    }
    Ok(())
}

/// Returns a field of the text of `INFO`.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.trim();
    (!value.is_empty()).then_some(value)
}

/// Returns a warning if the text of `INFO` shows that the server may lose locks: by eviction, or, if `alone` is to be
/// warned of, by writes that no replica has.
pub(super) fn danger(info: &str, address: &str, alone: bool) -> Option<String> {
    let dangers: Vec<_> = [evicts(info), alone.then(|| accepts_writes_alone(info)).flatten()]
        .into_iter()
        .flatten()
        .map(|danger| format!("Redis at {address} {danger}"))
        .collect();
    (!dangers.is_empty()).then(|| dangers.join("; "))
}

fn evicts(info: &str) -> Option<String> {
    let (policy, limit) = (field(info, "maxmemory_policy")?, field(info, "maxmemory")?);
    let evicts = limit != "0" && policy != "noeviction";
    evicts.then(|| {
        format!(
            "may evict locks when memory runs out (maxmemory-policy {policy}), and then two clients can hold one lock; set \
             `maxmemory-policy noeviction`"
        )
    })
}

/// The server reports the number of its good replicas only if it refuses writes without them.
fn accepts_writes_alone(info: &str) -> Option<String> {
    let is_limited = field(info, "min_slaves_good_slaves").is_some();
    (!info.is_empty() && !is_limited).then(|| {
        "goes on granting locks when it is cut off from its replicas (min-replicas-to-write 0), although one of these may \
         have become the primary, and then two clients can hold one lock; set `min-replicas-to-write 1` and \
         `min-replicas-max-lag 10` on each server"
            .to_owned()
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
            assert_eq!(danger(&info, "h:1", false), None, "{info}");
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
    fn an_evicting_server_is_warned_of() {
        for policy in ["allkeys-lru", "volatile-ttl", "allkeys-random"] {
            let warning = danger(&info("1000", policy), "h:1", false);
            assert!(
                warning.is_some_and(|warning| warning.contains(policy) && warning.contains("noeviction"))
            );
        }
    }

    #[test]
    fn a_primary_that_accepts_writes_alone_is_warned_of_where_another_may_become_the_primary() {
        let alone = info("0", "noeviction");
        let warning = danger(&alone, "h:1", true).expect("a warning");
        assert!(warning.contains("min-replicas-to-write 1"), "{warning}");
        assert_eq!(danger(&alone, "h:1", false), None);
        assert_eq!(danger(&format!("{alone}min_slaves_good_slaves:1\r\n"), "h:1", true), None);
        assert_eq!(danger("", "h:1", true), None, "a user who may not call INFO");
        let both = danger(&info("1000", "allkeys-lru"), "h:1", true).expect("a warning");
        assert!(both.contains("noeviction") && both.contains("min-replicas-to-write"), "{both}");
        let replica = check_server(&hello("7.0.15", "standalone", "replica"), "h:1", NamedBy::Sentinels);
        assert!(replica.expect_err("a replica").message().contains("Sentinels"));
    }
}
