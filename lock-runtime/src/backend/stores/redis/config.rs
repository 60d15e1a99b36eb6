//! Reads the URL.

use std::time::Duration;

use crate::{
    LockError,
    backend::{
        common::settings::Settings,
        kits::redis::config::{Config, ONE_SERVER, SCHEMES, Urls},
    },
};

/// Upper bound on the setting `min_replicas`.
const MAX_REPLICAS: u32 = 64;

const URLS: Urls = Urls {
    settings: Settings {
        store: "Redis",
        known: &[
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
    example: ONE_SERVER,
};

/// Reads `redis://[user[:password]@]host[:port][/db][?setting=value&…]`, the same with `rediss:`, or
/// `redis+unix:///path[?db=1&…]`.
pub(super) fn from_url(url: &str) -> Result<Config, LockError> {
    let mut min_replicas = 0;
    let config = URLS.read(url, |name, value| {
        if name != MIN_REPLICAS {
            return Ok(false);
        }
        min_replicas = replicas(&URLS.settings, value)?;
        Ok(true)
    })?;
    Ok(Config { min_replicas, ..config })
}

/// The name of the setting with the number of replicas that must have a lease.
pub(super) const MIN_REPLICAS: &str = "min_replicas";

/// Reads the value of the setting [`MIN_REPLICAS`].
pub(super) fn replicas(settings: &Settings, value: &str) -> Result<u32, LockError> {
    let number = value.parse().ok().filter(|number| *number <= MAX_REPLICAS);
    number.ok_or_else(|| {
        settings.wrong(MIN_REPLICAS, &format!("must be a number of replicas, from 0 to {MAX_REPLICAS}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockErrorKind;

    #[test]
    fn the_number_of_replicas_is_read() {
        let number = |url: &str| from_url(url).expect(url).min_replicas;
        assert_eq!(number("redis://h"), 0);
        assert_eq!(number("redis://h/1?strict=true&min_replicas=2"), 2);
        assert_eq!(number("redis+unix:///run/r?db=1&min_replicas=1"), 1);
        for wrong in ["-1", "65", "x", ""] {
            let error = from_url(&format!("redis://u:canary@h?min_replicas={wrong}")).expect_err(wrong);
            assert_eq!(error.kind(), LockErrorKind::InvalidOptions);
            assert!(error.to_string().contains("`min_replicas`"), "{error}");
        }
        assert!(Config::from_url("redis://h?min_replicas=1").is_err(), "a node of Redlock has no replicas");
    }
}
