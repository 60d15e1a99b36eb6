//! Reads the URL.

use std::time::Duration;

use redis::RedisConnectionInfo;

use super::super::config::{MIN_REPLICAS, replicas};
use crate::{
    LockError,
    backend::{
        common::{
            parts::Parts,
            settings::{Settings, invalid, not_understood},
        },
        kits::redis::{
            config::{Config, Schemes, Urls},
            net::SentinelSet,
        },
    },
};

const STORE: &str = "Redis Sentinel";
const SCHEMES: Schemes =
    Schemes { plain: "redis-sentinel", tls: "redis-sentinel+tls", unix: "redis-sentinel+unix" };
const EXAMPLE: &str = "host1:26379,host2:26379,host3:26379/name";
const URLS: Urls = Urls {
    settings: Settings {
        store: STORE,
        known: &[
            "connect_timeout",
            "db",
            "min_replicas",
            "response_timeout",
            "sentinel_password",
            "sentinel_user",
            "strict",
            "tls_ca",
            "tls_cert",
            "tls_key",
        ],
        longest: Duration::MAX,
    },
    schemes: SCHEMES,
    example: EXAMPLE,
};

/// Reads `redis-sentinel://[user[:password]@]host1[:port],host2[:port],host3[:port]/name[?setting=value&…]`, or the same
/// with `redis-sentinel+tls:`.
pub(super) fn from_url(url: &str) -> Result<SentinelSet, LockError> {
    let wrong = |why: &str| not_understood(STORE, why);
    let form = || wrong(&format!("write `{}://user:password@{EXAMPLE}`", SCHEMES.plain));
    let (scheme, rest) = url.split_once("://").ok_or_else(form)?;
    if scheme != SCHEMES.plain && scheme != SCHEMES.tls {
        return Err(form());
    }
    let parts = Parts::of(rest, STORE)?;
    let name = name(parts.path).map_err(|why| wrong(&why))?;
    let hosts: Vec<_> = parts.hosts.split(',').map(with_port).collect();
    if hosts.iter().any(|host| host.starts_with(':')) {
        return Err(wrong(&format!("a Sentinel has no host; write `{scheme}://{EXAMPLE}`")));
    }
    // The query may be the rest of a password, whose part after an `&` is then not repeated as an unknown setting.
    let secret = parts.query.contains("sentinel_password=");
    let (mut db, mut min_replicas, mut user, mut password) = (0, 0, None, None);
    let credentials = parts.credentials.map_or_else(String::new, |credentials| format!("{credentials}@"));
    let read = URLS.read(&format!("{scheme}://{credentials}{}?{}", hosts[0], parts.query), |name, value| {
        match name {
            "db" => {
                db = value.parse().ok().filter(|db| *db >= 0).ok_or_else(|| {
                    URLS.settings.wrong(name, "must be the number of a database, from 0")
                })?;
            }
            MIN_REPLICAS => min_replicas = replicas(&URLS.settings, value)?,
            "sentinel_user" => user = Some(value.to_owned()),
            "sentinel_password" => password = Some(value.to_owned()),
            _ if secret && !URLS.settings.known.contains(&name) => {
                return Err(invalid(format!(
                    "the {STORE} URL has an unknown setting after its `?`, which is not repeated here; in a password an `&` \
                     is written `%26`"
                )));
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if user.is_some() && password.is_none() {
        return Err(invalid(format!(
            "the {STORE} URL has a `sentinel_user` but no `sentinel_password`; write `sentinel_password=` for a user without \
             one"
        )));
    }
    let mut of_sentinels = RedisConnectionInfo::default().set_protocol(read.info.redis_settings().protocol());
    if let Some(user) = user {
        of_sentinels = of_sentinels.set_username(user);
    }
    if let Some(password) = password {
        of_sentinels = of_sentinels.set_password(password);
    }
    let sentinels = hosts.iter().map(|host| {
        let address = URLS.read(&format!("{scheme}://{host}"), |_, _| Ok(false))?;
        let info = address.info.set_redis_settings(of_sentinels.clone());
        Ok(Config { info, strict: false, ..read.clone() })
    });
    let sentinels = sentinels.collect::<Result<Vec<_>, LockError>>()?;
    for (number, sentinel) in sentinels.iter().enumerate() {
        if sentinels[..number].iter().any(|other| other.store() == sentinel.store()) {
            return Err(invalid(format!(
                "the {STORE} URL names {} twice: a majority of the Sentinels could not be counted",
                sentinel.address()
            )));
        }
    }
    let redis = read.info.redis_settings().clone().set_db(db);
    let servers = Config { info: read.info.clone().set_redis_settings(redis), min_replicas, ..read };
    Ok(SentinelSet { name, sentinels, servers })
}

/// Returns the name of the primary in `/name`. Sentinels allow letters, digits, `.`, `-` and `_` in such a name.
fn name(path: &str) -> Result<String, String> {
    let name = path.strip_prefix('/').unwrap_or_default();
    if name.is_empty() {
        return Err(format!("the name of the primary is missing; write `{}://{EXAMPLE}`", SCHEMES.plain));
    }
    if name.contains('/') {
        return Err(
            "only the name of the primary follows the Sentinels; write the database as `?db=1`".into()
        );
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)) {
        return Err("the name of the primary has letters, digits, `.`, `-` and `_`".into());
    }
    Ok(name.to_owned())
}

/// Returns the host with its port, which is 26379 unless the host has one.
fn with_port(host: &str) -> String {
    match host.rsplit_once(':') {
        Some((_, port)) if !port.contains(']') => host.to_owned(),
        _ => format!("{host}:26379"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockErrorKind;

    #[test]
    fn sentinels_and_servers_have_credentials_of_their_own() {
        let set = from_url(
            "redis-sentinel://u:p%40ss@a,B:7000,[::1]/my.primary-1_x?db=3&sentinel_user=s&sentinel_password=w%26x\
             &response_timeout=250ms&strict=true&min_replicas=2",
        )
        .expect("valid");
        assert_eq!(set.name, "my.primary-1_x");
        let addresses: Vec<_> = set.sentinels.iter().map(Config::address).collect();
        assert_eq!(addresses, ["a:26379", "B:7000", "::1:26379"]);
        let of = |config: &Config| {
            let redis = config.info.redis_settings();
            (redis.username().map(str::to_owned), redis.password().map(str::to_owned), redis.db())
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of(&set.servers), (some("u"), some("p@ss"), 3));
        assert!(set.servers.strict && set.servers.min_replicas == 2);
        for sentinel in &set.sentinels {
            assert_eq!(of(sentinel), (some("s"), some("w&x"), 0));
            assert_eq!(sentinel.response_timeout, Duration::from_millis(250));
        }
        let set = from_url("redis-sentinel://:p@a/m").expect("valid");
        assert_eq!((of(&set.servers), of(&set.sentinels[0])), ((None, some("p"), 0), (None, None, 0)));
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_is_for_sentinels_and_servers() {
        let set = from_url("redis-sentinel+tls://a,b/m?tls_ca=/ca.pem").expect("valid");
        assert!(set.servers.tls.is_some() && set.sentinels.iter().all(|sentinel| sentinel.tls.is_some()));
    }

    #[test]
    fn mistakes_are_named_and_no_password_is() {
        for (url, word) in [
            ("redis-sentinel:a,b/m", "write `redis-sentinel://"),
            ("redis-sentinel://u:canary@a,b,c", "name of the primary is missing"),
            ("redis-sentinel://u:canary@a,b,c/", "name of the primary is missing"),
            ("redis-sentinel://u:canary@a,b,c/m/0", "`?db=1`"),
            ("redis-sentinel://u:canary@a,b,c/m%20x", "letters, digits"),
            ("redis-sentinel://u:canary@a,,c/m", "no host"),
            ("redis-sentinel://u:canary@/m", "no host"),
            ("redis-sentinel://u:canary@a,A:26379/m", "twice"),
            ("redis-sentinel://u:canary@a:port/m", "not understood"),
            ("redis-sentinel://canary@a/m", "no password"),
            ("redis-sentinel://u:canary@a/m?db=-1", "`db`"),
            ("redis-sentinel://u:canary@a/m?db=x", "`db`"),
            ("redis-sentinel://a/m?sentinel_user=canary", "`sentinel_password`"),
            ("redis-sentinel://a/m?sentinel_password=pass&canary=1", "not repeated"),
            ("redis-sentinel://a/m?sentinel_password=pass&canary", "not repeated"),
            ("redis-sentinel://a/m?sentinel_password=pass#canary", "`%23`"),
            ("redis-sentinel://u:canary@a/m?unknown=1", "unknown setting `unknown`"),
            ("redis-sentinel://u:canary@a/m?tls_ca=/ca.pem", "write `redis-sentinel+tls://`"),
        ] {
            let error = from_url(url).map(drop).expect_err(url);
            assert_eq!(error.kind(), LockErrorKind::InvalidOptions);
            assert!(error.to_string().contains(word), "{url}: {error}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
    }
}
