use std::time::Duration;

use crate::{
    LockError,
    backend::{
        common::settings::Settings,
        kits::redis::config::{Config, ONE_SERVER, Schemes, Urls},
    },
};

const SETTINGS: Settings = Settings {
    store: "Redisson",
    known: &["connect_timeout", "response_timeout", "fenced", "strict", "tls_ca", "tls_cert", "tls_key"],
    longest: Duration::MAX,
};

/// Reads `redisson://[user[:password]@]host[:port][/db][?setting=value&…]`, the same with `redisson+tls:`, or
/// `redisson+unix:///path[?db=1&…]`. Also returns whether the locks are `RFencedLock`s.
pub(super) fn from_url(url: &str) -> Result<(Config, bool), LockError> {
    let urls = Urls {
        settings: SETTINGS,
        schemes: Schemes { plain: "redisson", tls: "redisson+tls", unix: "redisson+unix" },
        example: ONE_SERVER,
    };
    let mut fenced = false;
    let config = urls.read(url, |name, value| {
        if name != "fenced" {
            return Ok(false);
        }
        fenced = SETTINGS.switch(name, value)?;
        Ok(true)
    })?;
    Ok((config, fenced))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockErrorKind;

    #[test]
    fn settings_are_read_and_the_server_is_that_of_redis() {
        let (config, fenced) =
            from_url("redisson://u:p@H:7000/3?response_timeout=250ms&fenced=true").expect("valid");
        assert!(fenced && !from_url("redisson://h").expect("valid").1);
        assert_eq!(config.store(), ("h:7000".into(), 3));
        assert_eq!(config.response_timeout, Duration::from_millis(250));
        assert_eq!(
            from_url("redisson+unix:///run/r.sock?db=2").expect("valid").0.store(),
            ("/run/r.sock".into(), 2)
        );
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_has_a_scheme_of_its_own() {
        let (config, _) = from_url("redisson+tls://h:7000/3?tls_ca=/ca.pem").expect("valid");
        assert!(config.tls.is_some());
        assert_eq!(config.store(), ("h:7000".into(), 3));
    }

    #[test]
    fn mistakes_are_named_with_this_store_s_schemes_and_the_password_is_not() {
        for (url, word) in [
            ("redisson://:canary@h?fenced=yes", "fenced=true"),
            ("redisson://:canary@h?group_commit=auto", "unknown setting `group_commit`"),
            ("redisson://:canary@h?fence=true", "`fenced`"),
            ("redisson://:canary@a,b", "write `redisson://host:6379`"),
            ("redisson://:canary@h:port", "Redisson URL is not understood"),
            ("redisson://:canary@h/-1", "Redisson URL is not understood"),
            ("redisson://:canary@h/x", "write `redisson://user:password@host:6379/0`"),
            ("redisson://:canary@h?tls_ca=/ca.pem", "write `redisson+tls://`"),
        ] {
            let error = from_url(url).map(drop).expect_err(url);
            assert_eq!(error.kind(), LockErrorKind::InvalidOptions);
            assert!(error.to_string().contains(word), "{url}: {error}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
    }
}
