//! Decides from a server's answers to `HELLO` and `INFO` whether the server is fit for locks. This module does no I/O.

use std::{collections::HashMap, time::Duration};

use redis::{FromRedisValue, Value};

use super::super::error::{CLUSTER, SENTINEL};
use crate::{LockError, LockErrorKind};

/// The oldest version with all that the scripts need, which includes `SET … GET`.
const OLDEST: (u64, u64) = (6, 2);

/// Refuses a server that can hold no locks, judged by its answer to `HELLO`.
pub(super) fn check_server(hello: &HashMap<String, Value>, address: &str) -> Result<(), LockError> {
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
        Some("cluster") => return Err(unsupported(format!("Redis at {address}: {CLUSTER}"))),
        _ => {}
    }
    if field("role").is_some_and(|role| ["slave", "replica"].contains(&role.as_str())) {
        return Err(LockError::backend(format!(
            "Redis at {address} is a replica, which takes no locks; the URL must lead to the primary"
        )));
    }
    Ok(())
}

/// Returns a field of the text of `INFO`.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.trim();
    (!value.is_empty()).then_some(value)
}

/// Returns a warning if the text of `INFO` shows that the server may evict locks.
pub(super) fn danger(info: &str, address: &str) -> Option<String> {
    let (policy, limit) = (field(info, "maxmemory_policy")?, field(info, "maxmemory")?);
    let evicts = limit != "0" && policy != "noeviction";
    evicts.then(|| {
        format!(
            "Redis at {address} may evict locks when memory runs out (maxmemory-policy {policy}), and then two clients \
             can hold one lock; set `maxmemory-policy noeviction`"
        )
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
            check_server(&hello, "h:1").expect("fit");
        }
        for info in
            [info("0", "noeviction"), info("1000", "noeviction"), info("0", "allkeys-lru"), String::new()]
        {
            assert_eq!(danger(&info, "h:1"), None, "{info}");
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
            let error = check_server(&hello, "h:1").expect_err(word);
            assert!(error.to_string().contains(word) && error.to_string().contains("h:1"), "{error}");
            assert_eq!(error.is_retryable(), may_change, "{error}");
        }
    }

    #[test]
    fn an_evicting_server_is_warned_of() {
        for policy in ["allkeys-lru", "volatile-ttl", "allkeys-random"] {
            let warning = danger(&info("1000", policy), "h:1");
            assert!(
                warning.is_some_and(|warning| warning.contains(policy) && warning.contains("noeviction"))
            );
        }
    }
}
