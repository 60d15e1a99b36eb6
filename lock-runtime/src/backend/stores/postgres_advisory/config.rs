//! The settings, read from the URL.

use std::time::Duration;

use crate::{
    LockError,
    backend::{
        common::settings::Settings,
        kits::postgres::config::{Config as OfServer, Urls},
    },
};

const URLS: Urls = Urls {
    settings: Settings {
        store: "PostgresAdvisory",
        known: &["session_timeout", "connect_timeout", "response_timeout", "table", "create_table"],
        longest: Duration::from_secs(24 * 60 * 60),
    },
    scheme: "postgres+advisory",
};
/// Lower bound on the session timeout: a tenth of it has to suffice for a round trip on a busy machine.
const SHORTEST: Duration = Duration::from_secs(1);

/// The configuration of one store.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) of_server: OfServer,
    /// After this time of silence, the server ends the session; `session_timeout` in the URL.
    pub(super) session_timeout: Duration,
}

impl Config {
    /// Reads `postgres+advisory://[user[:password]@][host][:port][/database][?setting=value&…]`.
    pub(super) fn from_url(url: &str) -> Result<Self, LockError> {
        let mut session_timeout = Duration::from_secs(10);
        let of_server = URLS.read(url, |name, value| {
            session_timeout = URLS.settings.length(name, value)?;
            if session_timeout < SHORTEST {
                return Err(URLS.settings.wrong(name, &format!("must be at least {SHORTEST:?}")));
            }
            Ok(())
        })?;
        Ok(Self { of_server, session_timeout })
    }

    /// Returns the name of the store, without the table: advisory locks belong to the whole database.
    pub(super) fn name(&self) -> String {
        format!("postgres+advisory://{}", self.of_server.database())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockErrorKind;

    #[test]
    fn settings_are_read_and_the_server_is_that_of_postgres() {
        let config = Config::from_url(
            "postgres+advisory://u:p@H:7000/db?session_timeout=6s&table=app.locks&sslmode=disable",
        )
        .expect("valid");
        assert_eq!(config.session_timeout, Duration::from_secs(6));
        assert_eq!(config.name(), "postgres+advisory://h:7000/db");
        assert_eq!(config.of_server.table.name(), "\"app\".\"locks\"");
        let plain = Config::from_url("postgres+advisory://u:p@h/db").expect("valid");
        assert_eq!(plain.session_timeout, Duration::from_secs(10));
    }

    #[test]
    fn mistakes_are_named_with_this_store_s_scheme_and_the_password_is_not() {
        for (url, word) in [
            ("postgres+advisory:", "write `postgres+advisory://"),
            ("postgres+advisory://u:canary@h?strict=true", "unknown setting `strict`"),
            ("postgres+advisory://u:canary@h?connections=2", "`session_timeout`, `connect_timeout`"),
            ("postgres+advisory://u:canary@h?session_timeout=5", "unit"),
            ("postgres+advisory://u:canary@h?session_timeout=300ms", "at least 1s"),
            ("postgres+advisory://u:canary@h?session_timeout=25h", "at most 24h"),
            ("postgres+advisory://u:canary@a,b/db", "several servers"),
        ] {
            let error = Config::from_url(url).map(drop).expect_err(url);
            assert_eq!(error.kind(), LockErrorKind::InvalidOptions);
            assert!(error.to_string().contains(word), "{url}: {error}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
    }
}
