//! Settings, from a URL or from an existing client.

use std::time::Duration;

use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};
use url::Url;

use crate::{
    LockError,
    backend::common::{
        credentials::{Credentials, Provider},
        parts::Parts,
        settings::{Settings, invalid},
        tls::{Tls, settings::Files},
    },
};

/// The URLs of a store on one Redis server.
pub(crate) struct Urls {
    pub(crate) settings: Settings,
    pub(crate) schemes: Schemes,
    /// An example of what follows the credentials.
    pub(crate) example: &'static str,
}

/// What follows the credentials in the URL of a store on one server, with the number of the database.
pub(crate) const ONE_SERVER: &str = "host:6379/0";

/// The URL schemes of a store, for TCP, TLS and a Unix socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schemes {
    pub(crate) plain: &'static str,
    pub(crate) tls: &'static str,
    pub(crate) unix: &'static str,
}

/// The schemes that the driver understands.
pub(crate) const SCHEMES: Schemes = Schemes { plain: "redis", tls: "rediss", unix: "redis+unix" };

const URLS: Urls = Urls {
    settings: Settings {
        store: "Redis",
        known: &["connect_timeout", "response_timeout", "strict", "tls_ca", "tls_cert", "tls_key"],
        longest: Duration::MAX,
    },
    schemes: SCHEMES,
    example: ONE_SERVER,
};

/// The configuration of one server.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Never shown, because it contains the password.
    pub(crate) info: ConnectionInfo,
    /// Provides the credentials of each new connection.
    pub(crate) credentials: Option<Provider>,
    /// The certificates of `rediss:`; `tls_ca`, `tls_cert` and `tls_key` in the URL. The driver does not get them.
    pub(crate) tls: Option<Tls>,
    /// Upper bound on the wait for a connection; `connect_timeout` in the URL.
    pub(crate) connect_timeout: Duration,
    /// Upper bound on the wait for an answer; `response_timeout` in the URL.
    pub(crate) response_timeout: Duration,
    /// Whether a server that may lose locks is refused; `strict` in the URL.
    pub(crate) strict: bool,
    /// Number of replicas that must have a lease before its deadline counts; `min_replicas` in the URL of a store that
    /// has this setting.
    pub(crate) min_replicas: u32,
    /// The schemes of the store, for messages that name the right URL.
    pub(crate) schemes: Schemes,
}

impl Config {
    pub(crate) fn new(info: ConnectionInfo) -> Self {
        let redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let info = info.set_redis_settings(redis).set_tcp_settings(tcp_settings());
        Self {
            info,
            credentials: None,
            tls: None,
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(1),
            strict: false,
            min_replicas: 0,
            schemes: SCHEMES,
        }
    }

    /// Reads `redis://[user[:password]@]host[:port][/db][?setting=value&…]`, the same with `rediss:`, or
    /// `redis+unix:///path[?db=1&…]`.
    pub(crate) fn from_url(text: &str) -> Result<Self, LockError> {
        URLS.read(text, |_, _| Ok(false))
    }

    /// Returns the settings of a connection that is made now: the credentials may have changed.
    pub(crate) async fn current(&self) -> Result<RedisConnectionInfo, LockError> {
        let settings = self.info.redis_settings().clone();
        Ok(match &self.credentials {
            Some(provider) => {
                let Credentials { user, password } = provider.ask(self.connect_timeout).await?;
                settings.set_username(user).set_password(password)
            }
            None => settings,
        })
    }

    /// Returns host and port of the server. `None` for a Unix socket, and for a client with TLS of its own.
    pub(crate) fn host_and_port(&self) -> Option<(&str, u16)> {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) => Some((host, *port)),
            _ => None,
        }
    }

    /// Returns the identity of the store: the address in one spelling, and the database.
    pub(crate) fn store(&self) -> (String, i64) {
        let address = match self.info.addr() {
            ConnectionAddr::Unix(path) => path.display().to_string(),
            of_a_host => of_a_host.to_string().to_lowercase(),
        };
        (address, self.info.redis_settings().db())
    }

    /// Returns the address, without credentials.
    pub(crate) fn address(&self) -> String {
        self.info.addr().to_string()
    }
}

impl Urls {
    /// Reads a URL as [`Config::from_url`] does, with the schemes and settings of the store.
    ///
    /// `take` is given each setting first, and returns whether it takes the setting.
    pub(crate) fn read(
        &self,
        text: &str,
        mut take: impl FnMut(&str, &str) -> Result<bool, LockError>,
    ) -> Result<Config, LockError> {
        let Self { settings: known, schemes, example } = self;
        let Schemes { plain: scheme, tls: scheme_of_tls, unix: scheme_of_unix } = *schemes;
        let not_understood = |why: &str| invalid(format!("the {} URL is not understood: {why}", known.store));
        let (of_url, rest) = text.split_once(':').unwrap_or_default();
        let drivers = [(scheme, SCHEMES.plain), (scheme_of_tls, SCHEMES.tls), (scheme_of_unix, SCHEMES.unix)];
        let drivers = drivers.into_iter().find_map(|(ours, drivers)| (ours == of_url).then_some(drivers));
        let text = &drivers.map_or_else(|| text.to_owned(), |drivers| format!("{drivers}:{rest}"));
        let Some(after) = rest.strip_prefix("//") else {
            return Err(not_understood(&format!("write `{scheme}://user:password@{example}`")));
        };
        if after.ends_with("#insecure") {
            return Err(not_understood(
                "certificates are always checked; a CA of your own is named by the setting `tls_ca`",
            ));
        }
        let parts = Parts::of(after, known.store)?;
        check_credentials(parts.credentials, known.store, scheme)?;
        if parts.hosts.contains(',') {
            return Err(invalid(format!(
                "the {} URL names several servers, but `{scheme}:` is for one: write `{scheme}://host:6379`, with a name \
                 that leads to the primary",
                known.store
            )));
        }
        let mut url = Url::parse(text).map_err(|error| not_understood(&error.to_string()))?;
        let settings: Vec<(String, String)> =
            url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        let drivers_own = |name: &str| url_is_unix(text) && ["db", "user", "pass"].contains(&name);
        let (for_driver, ours): (Vec<_>, Vec<_>) =
            settings.into_iter().partition(|(name, _)| drivers_own(name));
        url.set_query(None);
        let with_tls = url.scheme() == "rediss";
        if with_tls {
            // The driver gets the same address without TLS, because this library makes the TLS stream itself.
            url.set_scheme("redis").expect("neither scheme is special (RFC 3986, section 3.1)");
        }
        if !for_driver.is_empty() {
            url.query_pairs_mut().extend_pairs(&for_driver);
        }
        let mut info = url.into_connection_info().map_err(|error| {
            // The driver's text names the part that is wrong and never its value.
            not_understood(&format!(
                "write `{scheme}://user:password@{example}`{} ({})",
                if *example == ONE_SERVER { ", where 0 is the number of the database" } else { "" },
                error.category()
            ))
            .with_source(error)
        })?;
        let redis = info.redis_settings();
        if redis.username().is_some() && redis.password().is_none() {
            // The driver takes an empty password in the URL for a missing one. The URL of a socket has user and
            // password as settings.
            if !parts.credentials.is_some_and(|credentials| credentials.ends_with(':')) {
                return Err(user_alone(known.store, scheme));
            }
            let redis = redis.clone().set_password("");
            info = info.set_redis_settings(redis);
        }
        if info.redis_settings().db() < 0 {
            return Err(not_understood("databases are numbered from 0"));
        }
        if let ConnectionAddr::TcpTls { .. } = info.addr() {
            return Err(not_understood(&format!("for TLS write `{scheme_of_tls}://host:6379`")));
        }
        let mut config = Config { schemes: *schemes, ..Config::new(info) };
        let mut files = Files::default();
        for (name, value) in ours {
            if take(&name, &value)? {
                continue;
            }
            match name.as_str() {
                "connect_timeout" => config.connect_timeout = known.length(&name, &value)?,
                "response_timeout" => config.response_timeout = known.length(&name, &value)?,
                "strict" => config.strict = known.switch(&name, &value)?,
                _ => match files.of_setting(&name) {
                    Some(file) => *file = Some(value.into()),
                    None => return Err(known.unknown(&name, parts.query)),
                },
            }
        }
        if with_tls {
            let hosts: Vec<_> = config.host_and_port().into_iter().map(|(host, _)| host).collect();
            config.tls = Some(Tls::new(known.store, scheme_of_tls, files, &hosts)?);
        } else if !files.is_empty() {
            return Err(invalid(format!(
                "settings `tls_…` in the {} URL: write `{scheme_of_tls}://` for connections with TLS",
                known.store
            )));
        }
        Ok(config)
    }
}

/// Refuses a user without a password: for the driver, such a user would be the default user, who may do everything.
pub(crate) fn check_credentials(
    credentials: Option<&str>,
    store: &str,
    scheme: &str,
) -> Result<(), LockError> {
    match credentials {
        Some(user) if !user.is_empty() && !user.contains(':') => Err(user_alone(store, scheme)),
        _ => Ok(()),
    }
}

/// Returns the error for a user without a password. The name is not repeated, because it may be a password.
fn user_alone(store: &str, scheme: &str) -> LockError {
    invalid(format!(
        "the {store} URL has a user but no password; write `{scheme}://user:password@…`, `{scheme}://:password@…` if this is \
         the password, or `{scheme}://user:@…` for a user without one"
    ))
}

/// Returns the settings that keep the network from forgetting a quiet connection, such as the connection for renewals,
/// and that show whether a connection was forgotten.
fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5))
}

/// Upper bound on the time that sent data may stay unacknowledged.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(10);

fn tcp_settings() -> TcpSettings {
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive());
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(USER_TIMEOUT);
    settings
}

fn url_is_unix(text: &str) -> bool {
    text.starts_with("redis+unix:")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockErrorKind;

    #[test]
    fn urls_of_one_store_are_seen_to_be_so() {
        let store = |url: &str| Config::from_url(url).expect(url).store();
        for url in [
            "redis://some.host",
            "redis://some.host:6379",
            "redis://Some.HOST:6379/0",
            "redis://user:password@some.host/?strict=false&response_timeout=2s",
            "redis://:other@some.host/0?response_timeout=2s&strict=false",
        ] {
            assert_eq!(store(url), ("some.host:6379".into(), 0), "{url}");
        }
        for url in ["redis://some.host/1", "redis://some.host:6380", "redis://other.host"] {
            assert_ne!(store(url), store("redis://some.host"), "{url}");
        }
        assert_eq!(store("redis+unix:///run/R.sock?db=2&user=u&pass=p"), ("/run/R.sock".into(), 2));
    }

    #[test]
    fn settings_are_read_and_taken_off() {
        let config = Config::from_url("redis://u:p@h:7000/3?response_timeout=250ms&connect_timeout=3s")
            .expect("valid");
        assert_eq!(config.response_timeout, Duration::from_millis(250));
        assert_eq!(config.connect_timeout, Duration::from_secs(3));
        assert_eq!(config.address(), "h:7000");
        assert_eq!(config.info.redis_settings().db(), 3);
        assert_eq!(config.info.redis_settings().username(), Some("u"));
        let socket =
            Config::from_url("redis+unix:///run/redis.sock?db=2&response_timeout=1s").expect("valid");
        assert_eq!(socket.address(), "/run/redis.sock");
        assert_eq!(socket.info.redis_settings().db(), 2);
    }

    #[test]
    fn a_user_may_have_an_empty_password_and_a_password_no_user() {
        let read = |url: &str| {
            let config = Config::from_url(url).expect(url);
            let redis = config.info.redis_settings();
            (redis.username().map(str::to_owned), redis.password().map(str::to_owned))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(read("redis://u:@h"), (some("u"), some("")));
        assert_eq!(read("redis+unix:///run/r?user=u&pass="), (some("u"), some("")));
        assert_eq!(read("redis://:p@h"), (None, some("p")));
        assert_eq!(read("redis://u:p%40%3A%23@h"), (some("u"), some("p@:#")));
        assert_eq!(read("redis://u:p@:q@h"), (some("u"), some("p@:q")));
        for without in ["redis://h", "redis://@h", "redis://:@h"] {
            assert_eq!(read(without), (None, None), "{without}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_is_for_the_same_address_and_wants_both_parts_of_an_identity() {
        let read = |rest: &str| Config::from_url(&format!("rediss://u:canary@{rest}"));
        let config =
            read("h:7000/3?tls_ca=/ca%20s.pem&tls_cert=/c.pem&tls_key=/k.pem&strict=true").expect("valid");
        assert!(config.tls.is_some() && config.strict);
        assert_eq!(config.info.redis_settings().password(), Some("canary"));
        assert_eq!(config.store(), ("h:7000".into(), 3));
        for (rest, host, port) in
            [("h", "h", 6379), ("[::1]", "::1", 6379), ("10.0.0.1:6380", "10.0.0.1", 6380)]
        {
            assert_eq!(read(rest).expect(rest).host_and_port(), Some((host, port)));
        }
        // One port is one server.
        assert_eq!(read("h").expect("valid").store(), Config::from_url("redis://H").expect("valid").store());
        for (rest, word) in [
            ("h?tls_cert=/c.pem", "`tls_key`"),
            ("h?tls_key=/k.pem", "`tls_cert`"),
            ("-h-", "`-h-`"),
            ("h/#insecure", "always checked"),
            ("h/#canary", "`%23`"),
            ("h?tls_insecure=true", "tls_insecure"),
            ("a,b", "several servers"),
        ] {
            let error = read(rest).map(drop).expect_err(rest);
            assert_eq!(error.kind(), LockErrorKind::InvalidOptions);
            assert!(error.to_string().contains(word), "{rest}: {error}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn tls_that_is_not_compiled_in_names_its_feature() {
        let error = Config::from_url("rediss://u:canary@h?tls_ca=/ca.pem").expect_err("no TLS");
        assert_eq!(error.kind(), LockErrorKind::Unsupported);
        assert!(error.to_string().contains("`tls-aws-lc-rs` or `tls-ring`"), "{error}");
    }

    #[test]
    fn mistakes_are_named_and_the_password_is_not() {
        for (url, word) in [
            ("redis://:canary@h/?respnse_timeout=1s", "respnse_timeout"),
            ("redis://:canary@h/?response_timeout=1", "unit"),
            ("redis://:canary@h/?response_timeout=0s", "zero"),
            ("redis://:canary@h/?strict=yes", "strict=true"),
            ("redis://:canary@h/?group_commit=auto", "unknown setting `group_commit`"),
            ("redis://:canary@h:port/", "not understood"),
            ("redis://:canary@h/database", "not understood"),
            ("redis://:canary@a,b", "several servers"),
            ("redis://:canary@a,b:6379/1", "several servers"),
            ("redis://:canary@a:6379,b:6379", "several servers"),
            ("redis://:canary@h/-1", "database"),
            ("redis:canary@h", "write `redis://"),
            ("redis://canary@h", "no password; write `redis://user:password@"),
            ("redis+unix:///run/r?user=canary", "no password"),
            ("redis://h#canary", "`%23`"),
            ("redis://:c#canary@h", "`%23`"),
            ("redis://u:12/canary@h", "`%2F`"),
            ("redis://u:12?canary@h", "`%3F`"),
            ("redis://u:12?a=canary@h", "`%3F`"),
            ("redis://u:12?canary&b@h", "`%3F`"),
            ("redis://h?CANARY-canary", "`%3F`"),
            ("redis://h?response_timeout=canary", "not a duration"),
            ("redis://:canary@h?tls_ca=/ca.pem", "write `rediss://`"),
            ("redis+unix:///canary?tls_key=/k.pem", "write `rediss://`"),
        ] {
            let error = Config::from_url(url).expect_err(url);
            assert_eq!(error.kind(), LockErrorKind::InvalidOptions);
            assert!(error.to_string().contains(word), "{error}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
    }
}
