//! The store that the arguments or the environment name.

use std::env;

use lock_runtime::{LockErrorKind, LockManager};

use crate::{
    arguments::StoreArguments,
    exit::{Exit, Failure},
    program::URL,
    say,
};

/// Returns a manager for the store, which connects when it is first used.
pub(crate) fn open(arguments: &StoreArguments) -> Result<LockManager, Failure> {
    let usage = |message: &str| Failure::new(Exit::Usage, message);
    let url = match &arguments.url {
        Some(url) => {
            if has_password(url) {
                say::line(&format!(
                    "warning: the URL after --url contains a password, and every user of this machine can see it in \
                     the list of processes; set {URL} in the environment instead"
                ));
            }
            url.clone()
        }
        None => match env::var(URL) {
            Ok(url) => url,
            Err(env::VarError::NotPresent) => {
                return Err(usage(
                    "no store: write --url, or set LOCK_URL in the environment, as in redis://host:6379",
                ));
            }
            Err(env::VarError::NotUnicode(_)) => return Err(usage("LOCK_URL is not UTF-8")),
        },
    };
    let locks = LockManager::connect_lazy(&url).map_err(|error| {
        let remedy = match error.kind() {
            LockErrorKind::Unsupported => "; install distlock with it (`--features cli,…`)",
            _ => "",
        };
        Failure::new(Exit::Usage, format!("{error}{remedy}"))
    })?;
    if !locks.capabilities().is_shared_between_processes() {
        return Err(usage(
            "`memory:` is a store inside one process, so that no other process sees its locks; name a store that \
             processes share, such as redis://host:6379",
        ));
    }
    match &arguments.prefix {
        Some(prefix) => {
            Ok(locks.with_prefix(prefix).map_err(|error| Failure::new(Exit::Usage, error.to_string()))?)
        }
        None => Ok(locks),
    }
}

/// Returns whether a URL seems to contain a password.
fn has_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (place, settings) = rest.split_once('?').unwrap_or((rest, ""));
    // A password that is not encoded may contain an `@` or a `/`.
    let in_place = place.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'));
    in_place
        || settings.split('&').any(|setting| {
            setting.split_once('=').is_some_and(|(name, value)| name.contains("pass") && !value.is_empty())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_urls_are_seen() {
        for url in [
            "redis://:secret@host",
            "redis://user:se/cr@et@host:6379/0",
            "redis+unix:///run/redis?user=a&pass=secret",
            "postgres://user:secret@host/db?sslmode=require",
            "zookeeper://user:secret@a,b,c",
            "redis+unix:///run/redis?password=secret",
            "redis-sentinel://a,b,c/name?sentinel_user=a&sentinel_password=secret",
        ] {
            assert!(has_password(url), "{url}");
        }
        for url in [
            "redis://host:6379",
            "postgres://user@host/db",
            "redis+unix:///run/a:b?db=1",
            "redis://[::1]:6379",
        ] {
            assert!(!has_password(url), "{url}");
        }
    }
}
