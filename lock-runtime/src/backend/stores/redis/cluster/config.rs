//! Reads the URL.

use std::{collections::HashMap, time::Duration};

use super::{
    super::{
        CONSEQUENCE,
        config::{MIN_REPLICAS, replicas},
    },
    NAME,
};
use crate::{
    LockError,
    backend::{
        common::{
            parts::Parts,
            settings::{Settings, not_understood},
        },
        kits::redis::{
            config::{Schemes, Urls},
            net::{Address, ClusterSettings},
        },
    },
};

const STORE: &str = "Redis Cluster";
const SCHEMES: Schemes =
    Schemes { plain: "redis-cluster", tls: "redis-cluster+tls", unix: "redis-cluster+unix" };
const EXAMPLE: &str = "host1:6379,host2:6379,host3:6379";
/// The name of the setting with the addresses at which servers are reached that announce others.
const ADDRESSES: &str = "addresses";
const URLS: Urls = Urls {
    settings: Settings {
        store: STORE,
        known: &[
            ADDRESSES,
            "connect_timeout",
            "min_replicas",
            "response_timeout",
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

/// Reads `redis-cluster://[user[:password]@]host1[:port],host2[:port],…[?setting=value&…]`, or the same with
/// `redis-cluster+tls:`.
pub(super) fn from_url(url: &str) -> Result<ClusterSettings, LockError> {
    let wrong = |why: &str| not_understood(STORE, why);
    let form = || wrong(&format!("write `{}://user:password@{EXAMPLE}`", SCHEMES.plain));
    let (scheme, rest) = url.split_once("://").ok_or_else(form)?;
    if scheme != SCHEMES.plain && scheme != SCHEMES.tls {
        return Err(form());
    }
    let parts = Parts::of(rest, STORE)?;
    if !["", "/", "/0"].contains(&parts.path) {
        return Err(wrong(
            "nothing follows the hosts but settings; a Redis Cluster has no numbered databases",
        ));
    }
    let hosts: Vec<_> = parts.hosts.split(',').collect();
    if hosts.iter().any(|host| host.is_empty() || host.starts_with(':')) {
        return Err(wrong(&format!("a server has no host; write `{scheme}://{EXAMPLE}`")));
    }
    let credentials = parts.credentials.map_or_else(String::new, |credentials| format!("{credentials}@"));
    let (mut addresses, mut min_replicas) = (HashMap::new(), 0);
    let read =
        URLS.read(&format!("{scheme}://{credentials}{}?{}", hosts[0], parts.query), |name, value| {
            match name {
                ADDRESSES => {
                    let pairs = "must be pairs `announced:6379=reached:6379`, with a comma between them";
                    addresses = reached_at(value).ok_or_else(|| URLS.settings.wrong(name, pairs))?;
                }
                MIN_REPLICAS => min_replicas = replicas(&URLS.settings, value)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
    let mut servers = read;
    servers.min_replicas = min_replicas;
    let seeds = hosts.iter().map(|host| {
        let address = URLS.read(&format!("{scheme}://{host}"), |_, _| Ok(false))?;
        let mut seed = servers.clone();
        seed.info = seed.info.set_addr(address.info.addr().clone());
        Ok(seed)
    });
    let seeds = seeds.collect::<Result<_, LockError>>()?;
    Ok(ClusterSettings {
        seeds,
        servers,
        addresses,
        store: NAME,
        consequence: CONSEQUENCE,
        consequence_of_one: "no lock in its hash slots is granted",
    })
}

/// Reads `announced:port=reached:port,…`.
fn reached_at(value: &str) -> Option<HashMap<Address, Address>> {
    let address = |text: &str| -> Option<Address> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (!host.is_empty()).then_some((host.to_owned(), port.parse().ok()?))
    };
    let pairs = value.split(',').map(|pair| {
        let (announced, reached) = pair.split_once('=')?;
        Some((address(announced)?, address(reached)?))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LockErrorKind, backend::kits::redis::config::Config};

    #[test]
    fn one_server_or_several_are_read() {
        let settings = from_url(
            "redis-cluster://u:p%40ss@a,B:7000,[::1]?response_timeout=250ms&strict=true&min_replicas=1\
             &addresses=10.0.0.1:6379=localhost:7001,[::2]:6379=h:7002",
        )
        .expect("valid");
        let addresses: Vec<_> = settings.seeds.iter().map(Config::address).collect();
        assert_eq!(addresses, ["a:6379", "B:7000", "::1:6379"]);
        for server in settings.seeds.iter().chain([&settings.servers]) {
            let redis = server.info.redis_settings();
            assert_eq!((redis.username(), redis.password()), (Some("u"), Some("p@ss")));
            assert_eq!(server.response_timeout, Duration::from_millis(250));
            assert!(server.strict && server.min_replicas == 1);
        }
        let at = |host: &str, port| (host.to_owned(), port);
        assert_eq!(settings.addresses[&at("10.0.0.1", 6_379)], at("localhost", 7_001));
        assert_eq!(settings.addresses[&at("::2", 6_379)], at("h", 7_002));
        for url in ["redis-cluster://h", "redis-cluster://h/", "redis-cluster://h/0"] {
            assert_eq!(from_url(url).expect(url).seeds.len(), 1);
        }
    }

    #[test]
    fn mistakes_are_named_and_no_password_is() {
        for (url, word) in [
            ("redis-cluster:a,b", "write `redis-cluster://"),
            ("redis-cluster://u:canary@a/1", "no numbered databases"),
            ("redis-cluster://u:canary@a,b/name", "no numbered databases"),
            ("redis-cluster://u:canary@a,,c", "no host"),
            ("redis-cluster://u:canary@", "no host"),
            ("redis-cluster://u:canary@a:port", "not understood"),
            ("redis-cluster://canary@a", "no password"),
            ("redis-cluster://u:canary@a?db=1", "unknown setting `db`"),
            ("redis-cluster://u:canary@a?addresses=b:1", "`addresses`"),
            ("redis-cluster://u:canary@a?addresses=b:1=c", "`addresses`"),
            ("redis-cluster://u:canary@a?tls_ca=/ca.pem", "write `redis-cluster+tls://`"),
        ] {
            let error = from_url(url).map(drop).expect_err(url);
            assert_eq!(error.kind(), LockErrorKind::InvalidOptions);
            assert!(error.to_string().contains(word), "{url}: {error}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
    }
}
