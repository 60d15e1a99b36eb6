//! The stores of this version, and how a URL selects one of them. To add a store, add a folder, and here its `mod` and
//! `use` lines and its row in the table.

#[cfg(feature = "memory")]
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "postgres")]
pub mod postgres_advisory;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redis")]
pub mod redisson;
#[cfg(feature = "redis")]
pub mod redlock;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

use std::sync::Arc;

use crate::{LockError, LockErrorKind, backend::Backend};

#[cfg(feature = "memory")]
pub use self::memory::Memory;
#[cfg(feature = "postgres")]
pub use self::postgres::Postgres;
#[cfg(feature = "postgres")]
pub use self::postgres_advisory::PostgresAdvisory;
#[cfg(feature = "redis")]
pub use self::redis::Redis;
#[cfg(feature = "redis")]
pub use self::redisson::Redisson;
#[cfg(feature = "redis")]
pub use self::redlock::Redlock;
#[cfg(feature = "zookeeper")]
pub use self::zookeeper::ZooKeeper;

type Open = fn(&str) -> Result<Arc<dyn Backend>, LockError>;

/// A store that a URL can select.
struct Store {
    /// The URL schemes that select the store.
    schemes: &'static [&'static str],
    /// The crate feature that includes the store.
    feature: &'static str,
    /// Creates the store from its URL without connecting to the server; `None` if the feature is off.
    open: Option<Open>,
}

macro_rules! store {
    ($feature:literal, $($scheme:literal)|+, $store:ty) => {
        Store {
            schemes: &[$($scheme),+],
            feature: $feature,
            #[cfg(feature = $feature)]
            open: Some(|url| Ok(Arc::new(<$store>::connect_lazy(url)?))),
            #[cfg(not(feature = $feature))]
            open: None,
        }
    };
}

/// One row for each store: its feature, its URL schemes, and its type. The type has a function
/// `connect_lazy(url: &str) -> Result<Self, LockError>`, which reads the URL without connecting to the server.
const STORES: &[Store] = &[
    store!("memory", "memory", memory::Memory),
    store!("postgres", "postgres" | "postgresql", postgres::Postgres),
    store!("postgres", "postgres+advisory" | "postgresql+advisory", postgres_advisory::PostgresAdvisory),
    store!("redis", "redis" | "rediss" | "redis+unix", redis::Redis),
    store!("redis", "redisson" | "redisson+tls" | "redisson+unix", redisson::Redisson),
    store!("redis", "redlock", redlock::Redlock),
    store!("zookeeper", "zookeeper" | "zookeeper+tls", zookeeper::ZooKeeper),
];

/// Schemes of planned stores, which get a better error message than "unknown".
const PLANNED: &[&str] = &["redis-cluster", "redis-sentinel", "mysql", "mariadb", "sqlite"];

/// Returns the store that a URL selects. The store connects at its first request.
pub(crate) fn store(url: &str) -> Result<Arc<dyn Backend>, LockError> {
    let no_scheme = || invalid(format!("the URL of a store begins with its scheme, one of {}", known()));
    let (scheme, rest) = url.split_once(':').ok_or_else(no_scheme)?;
    // Schemes are case-insensitive (RFC 3986, section 3.1).
    let scheme = scheme.to_ascii_lowercase();
    if let Some(Store { feature, open, .. }) =
        STORES.iter().find(|store| store.schemes.contains(&scheme.as_str()))
    {
        return match open {
            Some(open) => open(&format!("{scheme}:{rest}")),
            None => Err(unsupported(format!(
                "the store `{feature}:` is not compiled in; switch on the feature `{feature}` of lock-runtime"
            ))),
        };
    }
    if PLANNED.contains(&scheme.as_str()) {
        let message =
            format!("the store `{scheme}:` is not in this version of lock-runtime; it has {}", known());
        return Err(unsupported(message));
    }
    // The text is shown only if it looks like a scheme: if the URL has no scheme, the text may be a password.
    if scheme.len() > 32 || !scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) {
        return Err(no_scheme());
    }
    let remedy = if rest.parse::<u16>().is_ok() {
        format!("; for Redis at that host and port write `redis://{scheme}:{rest}`")
    } else {
        String::new()
    };
    Err(invalid(format!("unknown scheme `{scheme}:` in a store URL; known schemes are {}{remedy}", known())))
}

/// Returns a list of the schemes for an error message.
fn known() -> String {
    let schemes = STORES.iter().flat_map(|store| store.schemes);
    schemes.map(|scheme| format!("`{scheme}:`")).collect::<Vec<_>>().join(", ")
}

fn unsupported(message: String) -> LockError {
    LockError::new(LockErrorKind::Unsupported, message)
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
            ("mysql://u:canary@h", "not in this version"),
            ("MariaDB://u:canary@h", "not in this version"),
            #[cfg(feature = "memory")]
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
