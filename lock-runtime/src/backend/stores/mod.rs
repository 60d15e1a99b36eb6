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

use crate::{
    LockError, LockErrorKind,
    backend::{Backend, common::settings::invalid},
};

#[cfg(feature = "memory")]
pub use self::memory::Memory;
#[cfg(feature = "postgres")]
pub use self::postgres::Postgres;
#[cfg(feature = "postgres")]
pub use self::postgres_advisory::PostgresAdvisory;
#[cfg(feature = "redis")]
pub use self::redis::{
    Redis,
    cluster::{self as redis_cluster, RedisCluster},
    sentinel::{self as redis_sentinel, RedisSentinel},
};
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
    store!("redis", "redis-cluster" | "redis-cluster+tls", redis_cluster::RedisCluster),
    store!("redis", "redis-sentinel" | "redis-sentinel+tls", redis_sentinel::RedisSentinel),
    store!("redis", "redisson" | "redisson+tls" | "redisson+unix", redisson::Redisson),
    store!("redis", "redlock", redlock::Redlock),
    store!("zookeeper", "zookeeper" | "zookeeper+tls", zookeeper::ZooKeeper),
];

/// Schemes of planned stores, which get a better error message than "unknown".
const PLANNED: &[&str] = &["mysql", "mariadb", "sqlite"];

/// Spellings of other programs, and what to write.
const ELSEWHERE: &[(&[&str], &str)] = &[
    (
        &["redis+tls", "redis+ssl", "rediss+tls", "redis+rediss", "valkeys", "valkey+tls", "valkey+ssl"],
        "rediss://host:6379",
    ),
    (&["valkey", "keydb", "dragonfly", "redis+tcp", "tcp"], "redis://host:6379"),
    (&["unix", "redis+socket", "redis-socket", "valkey+unix"], "redis+unix:///path"),
    (
        &[
            "redis+sentinel",
            "redis_sentinel",
            "redissentinel",
            "sentinel",
            "valkey-sentinel",
            "valkey+sentinel",
        ],
        "redis-sentinel://host1:26379,host2:26379,host3:26379/name",
    ),
    (
        &[
            "rediss+sentinel",
            "rediss-sentinel",
            "redis+sentinel+tls",
            "redis+sentinel+ssl",
            "redis-sentinel+ssl",
            "redis-sentinels",
            "sentinel+tls",
            "sentinels",
        ],
        "redis-sentinel+tls://host1:26379,host2:26379,host3:26379/name",
    ),
    (
        &["redis+cluster", "redis_cluster", "rediscluster", "cluster", "valkey-cluster", "valkey+cluster"],
        "redis-cluster://host1:6379,host2:6379,host3:6379",
    ),
    (
        &["rediss+cluster", "rediss-cluster", "redis+cluster+tls", "redis-cluster+ssl", "redis-clusters"],
        "redis-cluster+tls://host1:6379,host2:6379,host3:6379",
    ),
    (&["redisson+ssl", "redissons"], "redisson+tls://host:6379"),
    (&["redlock+tls", "redlock+ssl", "redlocks"], "rediss://host:6379` for each node, in `Redlock::new"),
    (
        &["pgsql", "postgis", "pg", "jdbc", "cockroachdb", "timescaledb"],
        "postgresql://user:password@host:5432/database",
    ),
    (&["zk", "zookeeper+ssl", "zookeepers"], "zookeeper://host:2181` or `zookeeper+tls://host:2281"),
];

/// Returns what to write instead of a scheme that other programs have.
fn meant(scheme: &str) -> Option<&'static str> {
    // With a driver of another language, such as `postgresql+asyncpg`.
    if scheme.starts_with("postgresql+") || scheme.starts_with("postgres+") {
        return Some("postgresql://user:password@host:5432/database");
    }
    ELSEWHERE.iter().find(|(spellings, _)| spellings.contains(&scheme)).map(|(_, meant)| *meant)
}

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
        let message = format!(
            "the store `{scheme}:` is not in this version of lock-runtime; known schemes are {}",
            known()
        );
        return Err(unsupported(message));
    }
    if let Some(meant) = meant(&scheme) {
        return Err(invalid(format!("unknown scheme `{scheme}:` in a store URL; write `{meant}`")));
    }
    // The text is shown only if it is a scheme, as it seems: in a URL without one, it may be a user or a password.
    let is_scheme =
        scheme.len() <= 32 && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    let is_port = rest.parse::<u16>().is_ok();
    if !is_scheme || !(is_port || rest.starts_with("//")) {
        return Err(no_scheme());
    }
    let remedy = if is_port {
        format!("; for Redis at that host and port write `redis://{scheme}:{rest}`")
    } else {
        String::new()
    };
    Err(invalid(format!("unknown scheme `{scheme}:` in a store URL; known schemes are {}{remedy}", known())))
}

/// Returns a list of the schemes for an error message: of each store, the one without TLS.
fn known() -> String {
    let schemes = STORES.iter().filter_map(|store| store.schemes.first());
    schemes.map(|scheme| format!("`{scheme}:`")).collect::<Vec<_>>().join(", ")
}

fn unsupported(message: String) -> LockError {
    LockError::new(LockErrorKind::Unsupported, message)
}

#[cfg(test)]
mod tests {
    mod page;

    use super::*;
    use crate::mock::Log;

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
            ("redis+sentinel://u:canary@h", "write `redis-sentinel://host1:26379,"),
            ("rediss+sentinel://u:canary@h", "write `redis-sentinel+tls://host1:26379,"),
            ("redis+cluster://u:canary@h", "write `redis-cluster://host1:6379,"),
            ("rediss-cluster://u:canary@h", "write `redis-cluster+tls://host1:6379,"),
            ("redis+tls://u:canary@h", "write `rediss://host:6379`"),
            ("valkey://u:canary@h", "write `redis://host:6379`"),
            ("postgresql+asyncpg://u:canary@h/db", "write `postgresql://user:password@host:5432/database`"),
            ("jdbc:postgresql://h/db?password=canary", "write `postgresql://"),
            ("canary:secret@h:6379", "begins with its scheme"),
            ("canary:", "begins with its scheme"),
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

    /// Every reserved character at every place of a URL, written as it is and encoded, in every scheme.
    #[tokio::test]
    async fn no_part_of_a_user_or_a_password_is_in_any_text() {
        use std::fmt::Write;
        let log = Log::default();
        let _log = tracing::subscriber::set_default(log.clone());
        let mut understood = 0;
        for scheme in STORES.iter().filter(|store| store.open.is_some()).flat_map(|store| store.schemes) {
            // PostgreSQL's user is no secret: the statements that grant it rights name it.
            let (of_postgres, user_name) =
                if scheme.starts_with("postgres") { (true, "someone") } else { (false, "canary") };
            for reserved in "#?/@:%&=+[]\\ ;,!$'()*<>\"|^`{}~".chars() {
                let encoded = format!("%{:02X}", u32::from(reserved));
                for c in [reserved.to_string(), encoded] {
                    for place in 0..8 {
                        let at = |here: i32| if here == place { c.as_str() } else { "" };
                        // With a number before it, a password looks like a port.
                        let (user, password) =
                            (format!("usr{}{user_name}", at(0)), format!("12{}canary{}canary", at(1), at(2)));
                        let hosts = if *scheme == "redlock" {
                            format!("127.0.0.1:1,127.0.0.1:2,127.0.0.1:3{}", at(3))
                        } else {
                            format!("127.0.0.1{}:1", at(3))
                        };
                        let (path, name, value) = (
                            format!("{}{}", at(4), if of_postgres { "db" } else { "0" }),
                            format!("strict{}", at(5)),
                            format!("true{}", at(6)),
                        );
                        let urls = [
                            format!("{scheme}://{user}:{password}@{hosts}/{path}?{name}={value}{}", at(7)),
                            format!("{scheme}://{user}:{password}@{hosts}/{path}"),
                            format!("{scheme}://:{password}@{hosts}"),
                            format!("{scheme}:{user}:{password}@{hosts}"),
                            format!("{scheme}://{user}:{password}@/{path}?host={hosts}"),
                            format!("{scheme}://{}@{hosts}", if of_postgres { user } else { password }),
                        ];
                        for url in urls {
                            let mut shown = String::new();
                            match store(&url) {
                                Ok(store) => {
                                    understood += 1;
                                    let _ = write!(shown, "{store:?} {:?}", store.names());
                                }
                                Err(error) => {
                                    let _ = write!(shown, "{error} {error:?}");
                                    let mut source = std::error::Error::source(&error);
                                    while let Some(cause) = source {
                                        let _ = write!(shown, " {cause} {cause:?}");
                                        source = cause.source();
                                    }
                                }
                            }
                            // The memory's store has a name, and no credentials.
                            let is_shown = shown.to_lowercase().contains("canary") && *scheme != "memory";
                            assert!(!is_shown, "{url}: {shown}");
                        }
                    }
                }
            }
        }
        // The store in memory understands none of them.
        let has_servers = STORES.iter().any(|store| store.open.is_some() && store.feature != "memory");
        assert!(understood > 1_000 || !has_servers, "{understood}");
        let log = log.texts();
        assert!(!log.contains("canary"), "{log}");
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
