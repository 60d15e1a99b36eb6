//! Whether a server is fit for locks, from what it says of itself. Pure: it reads the text of `INFO`.

use crate::{LockError, LockErrorKind};

/// The oldest version whose commands the scripts need: `SET … GET`.
const OLDEST: (u64, u64) = (6, 2);

/// Refuses a server on which no lock can be held; returns what is dangerous but possible.
pub(super) fn check(info: &str, address: &str) -> Result<Option<String>, LockError> {
    let field = |name: &str| {
        info.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
            .unwrap_or_default()
    };
    let version = field("redis_version");
    let mut numbers = version.split('.').map(|number| number.parse::<u64>().ok());
    if let (Some(Some(major)), Some(Some(minor))) = (numbers.next(), numbers.next())
        && (major, minor) < OLDEST
    {
        return Err(LockError::new(
            LockErrorKind::Unsupported,
            format!("Redis at {address} is version {version}; 6.2 or later is needed"),
        ));
    }
    if ["slave", "replica"].contains(&field("role")) {
        return Err(LockError::new(
            LockErrorKind::Backend,
            format!("Redis at {address} is a replica, which takes no locks; name the primary in the URL"),
        ));
    }
    let (policy, limit) = (field("maxmemory_policy"), field("maxmemory"));
    let evicts = !["", "0"].contains(&limit) && !["", "noeviction"].contains(&policy);
    Ok(evicts.then(|| {
        format!(
            "Redis at {address} may evict locks when memory runs out (maxmemory-policy {policy}), and then two can hold \
             one lock; set `maxmemory-policy noeviction`"
        )
    }))
}

/// What a server is called from its start to its end, unlike any other.
pub(super) fn run_id(info: &str) -> Option<&str> {
    info.lines().find_map(|line| line.strip_prefix("run_id:")).map(str::trim).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(version: &str, role: &str, maxmemory: &str, policy: &str) -> String {
        format!(
            "# Server\r\nredis_version:{version}\r\n# Memory\r\nmaxmemory:{maxmemory}\r\nmaxmemory_human:1G\r\n\
             maxmemory_policy:{policy}\r\n# Replication\r\nrole:{role}\r\n"
        )
    }

    #[test]
    fn fit_servers_pass() {
        for info in [
            info("7.0.15", "master", "0", "noeviction"),
            info("6.2.0", "master", "1000", "noeviction"),
            info("8.0", "master", "0", "allkeys-lru"),
            info("255.255.255", "master", "0", "noeviction"),
            String::new(),
        ] {
            assert_eq!(check(&info, "h:1").expect("fit"), None, "{info}");
        }
    }

    #[test]
    fn unfit_servers_are_refused_in_one_sentence() {
        for (info, word) in [
            (info("6.0.16", "master", "0", "noeviction"), "6.2 or later"),
            (info("5.0.1", "master", "0", "noeviction"), "6.2 or later"),
            (info("7.0.15", "slave", "0", "noeviction"), "replica"),
        ] {
            let error = check(&info, "h:1").expect_err(word);
            assert!(error.to_string().contains(word) && error.to_string().contains("h:1"), "{error}");
        }
    }

    #[test]
    fn an_evicting_server_is_warned_of() {
        for policy in ["allkeys-lru", "volatile-ttl", "allkeys-random"] {
            let warning = check(&info("7.0.15", "master", "1000", policy), "h:1").expect("possible");
            assert!(
                warning.is_some_and(|warning| warning.contains(policy) && warning.contains("noeviction"))
            );
        }
    }
}
