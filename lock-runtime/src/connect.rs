//! From a URL to a store.

use std::sync::Arc;

use crate::{LockError, LockErrorKind, backend::Backend};

/// The schemes of this version.
const KNOWN: &str = "`memory:`, `redis:`, `zookeeper:`, `zookeeper+tls:`";
/// The schemes that are planned; they deserve a better answer than «unknown».
const PLANNED: &[&str] = &[
    "rediss",
    "redis-cluster",
    "redis-sentinel",
    "redlock",
    "redisson",
    "postgres",
    "postgresql",
    "postgres+advisory",
    "mysql",
    "mariadb",
    "sqlite",
];

/// The store, which connects when it is first asked for something.
pub(crate) fn store(url: &str) -> Result<Arc<dyn Backend>, LockError> {
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(invalid(format!("the URL of a store begins with its scheme, one of {KNOWN}")));
    };
    // Case does not matter in a scheme (RFC 3986, section 3.1).
    let scheme = scheme.to_ascii_lowercase();
    let url = format!("{scheme}:{rest}");
    match &*scheme {
        "memory" => memory(rest),
        "redis" | "redis+unix" => redis(&url),
        "zookeeper" | "zookeeper+tls" => zookeeper(&url),
        planned if PLANNED.contains(&planned) => Err(LockError::new(
            LockErrorKind::Unsupported,
            format!("the store `{planned}:` is not in this version of lock-runtime; it has {KNOWN}"),
        )),
        // Shown only if it looks like a scheme: of a URL without one it may be a password.
        unknown
            if unknown.len() <= 32
                && unknown.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) =>
        {
            let remedy = if rest.parse::<u16>().is_ok() {
                format!("; for Redis at that host and port write `redis://{unknown}:{rest}`")
            } else {
                String::new()
            };
            Err(invalid(format!(
                "unknown scheme `{unknown}:` in the URL of a store; known are {KNOWN}{remedy}"
            )))
        }
        _ => Err(invalid(format!("the URL of a store begins with its scheme, one of {KNOWN}"))),
    }
}

#[cfg(feature = "memory")]
fn memory(name: &str) -> Result<Arc<dyn Backend>, LockError> {
    if name.contains(['?', '/', '#', '@']) {
        return Err(invalid("`memory:` takes nothing but a name, like `memory:orders`".into()));
    }
    Ok(Arc::new(crate::backend::Memory::named(name)))
}

#[cfg(not(feature = "memory"))]
fn memory(_name: &str) -> Result<Arc<dyn Backend>, LockError> {
    Err(not_compiled_in("memory"))
}

#[cfg(feature = "redis")]
fn redis(url: &str) -> Result<Arc<dyn Backend>, LockError> {
    Ok(Arc::new(crate::backend::Redis::connect_lazy(url)?))
}

#[cfg(not(feature = "redis"))]
fn redis(_url: &str) -> Result<Arc<dyn Backend>, LockError> {
    Err(not_compiled_in("redis"))
}

#[cfg(feature = "zookeeper")]
fn zookeeper(url: &str) -> Result<Arc<dyn Backend>, LockError> {
    Ok(Arc::new(crate::backend::ZooKeeper::connect_lazy(url)?))
}

#[cfg(not(feature = "zookeeper"))]
fn zookeeper(_url: &str) -> Result<Arc<dyn Backend>, LockError> {
    Err(not_compiled_in("zookeeper"))
}

#[cfg(not(all(feature = "memory", feature = "redis", feature = "zookeeper")))]
fn not_compiled_in(store: &str) -> LockError {
    LockError::new(
        LockErrorKind::Unsupported,
        format!("the store `{store}:` is not compiled in; switch on the feature `{store}` of lock-runtime"),
    )
}

fn invalid(message: String) -> LockError {
    LockError::new(LockErrorKind::InvalidOptions, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_is_not_understood_is_answered_with_what_to_write_and_without_its_secrets() {
        for (url, word) in [
            ("", "begins with its scheme"),
            ("canary", "begins with its scheme"),
            ("canary@127.0.0.1:6379", "begins with its scheme"),
            ("http://u:canary@h", "unknown scheme `http:`"),
            ("HTTP://u:canary@h", "unknown scheme `http:`"),
            ("localhost:6379", "write `redis://localhost:6379`"),
            ("postgres://u:canary@h", "not in this version"),
            ("PostgreSQL://u:canary@h", "not in this version"),
            ("memory:a/b", "nothing but a name"),
        ] {
            let error = store(url).map(drop).expect_err(url);
            assert!(error.to_string().contains(word), "{url}: {error}");
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("canary"), "{shown}");
        }
    }

    #[cfg(feature = "redis")]
    #[tokio::test]
    async fn no_line_of_what_a_store_that_is_not_there_gives_is_told_twice() {
        for url in ["redis://127.0.0.1:1", "redis+unix:///nowhere", "redis://host.invalid"] {
            let error = store(url).expect("understood").ping().await.expect_err("nothing is there");
            let (mut told, mut next) = (String::new(), Some(&error as &dyn std::error::Error));
            while let Some(error) = next {
                let line = error.to_string();
                assert!(!told.contains(&line), "{line:?} again after {told:?}");
                told.push_str(&line);
                next = error.source();
            }
        }
    }

    #[cfg(feature = "memory")]
    #[test]
    fn case_does_not_matter_in_a_scheme() {
        assert_eq!(
            store("Memory:Orders").expect("known").names(),
            store("memory:Orders").expect("known").names()
        );
    }
}
