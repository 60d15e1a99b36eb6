//! The settings, from a URL or from an existing pool.

use std::{fmt, str::FromStr, time::Duration};

use sqlx::{
    ConnectOptions, PgPool,
    postgres::{PgConnectOptions, PgSslMode},
};
use url::Url;

use super::table::Table;
use crate::{
    LockError, LockErrorKind,
    backend::common::{
        client_name,
        credentials::{Credentials, Provider},
        parts::Parts,
        settings::{Settings, invalid},
    },
};

/// The settings that the driver reads, under the names that libpq, PostgreSQL's own library, gives to these settings.
const OF_DRIVER: &[&str] = &[
    "application_name",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "port",
    "user",
    "password",
    "dbname",
    "options",
];
const URLS: Urls = Urls {
    settings: Settings {
        store: "Postgres",
        known: &["connect_timeout", "response_timeout", "connections", "table", "create_table", "strict"],
        longest: Duration::MAX,
    },
    scheme: "postgres",
};
/// Upper bound on the connections of a runtime.
const MOST_CONNECTIONS: u32 = 64;

/// The URLs of a store in a PostgreSQL database.
pub(crate) struct Urls {
    /// The settings of this library; each store has the settings of the driver, too.
    pub(crate) settings: Settings,
    pub(crate) scheme: &'static str,
}

/// The configuration of one store.
#[derive(Clone)]
pub(crate) struct Config {
    /// The options that were given first; a new connection is made with the [`current`](Self::current) options. Never
    /// shown, because options contain the password.
    pub(crate) options: PgConnectOptions,
    /// The user's own pool, over which locks are acquired and released.
    pub(crate) pool: Option<PgPool>,
    /// Provides the credentials of each new connection.
    pub(crate) credentials: Option<Provider>,
    pub(crate) table: Table,
    /// Whether the table is created if it is missing; `create_table` in the URL.
    pub(crate) create_table: bool,
    /// How long to wait for a connection; `connect_timeout` in the URL.
    pub(crate) connect_timeout: Duration,
    /// How long to wait for an answer; `response_timeout` in the URL.
    pub(crate) response_timeout: Duration,
    /// Upper bound on the connections for each runtime of the caller; `connections` in the URL.
    pub(crate) connections: u32,
    /// Whether a server that may lose locks is refused; `strict` in the URL.
    pub(crate) strict: bool,
}

impl Config {
    pub(crate) fn new(options: PgConnectOptions) -> Self {
        Self {
            options: of_locks(options),
            pool: None,
            credentials: None,
            table: Table::default(),
            create_table: false,
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(1),
            connections: 4,
            strict: false,
        }
    }

    /// Creates the settings of a store on the user's own pool.
    pub(crate) fn of_pool(pool: PgPool) -> Self {
        let options = pool.connect_options().as_ref().clone();
        Self { pool: Some(pool), ..Self::new(options) }
    }

    /// Returns the options for a connection that is made now: the pool may have been given other options, the
    /// credentials may have changed, and the process may be a forked child with a name of its own.
    pub(crate) async fn current(&self) -> Result<PgConnectOptions, LockError> {
        if let Some(pool) = &self.pool {
            return Ok(named(of_locks(pool.connect_options().as_ref().clone())));
        }
        let options = named(self.options.clone());
        Ok(match &self.credentials {
            Some(provider) => {
                let Credentials { user, password } = provider.ask(self.connect_timeout).await?;
                options.username(&user).password(&password)
            }
            None => options,
        })
    }

    /// Returns whether the next connection may be made with other options than the last one.
    pub(crate) fn may_change(&self) -> bool {
        self.pool.is_some() || self.credentials.is_some()
    }

    /// Reads `postgres://[user[:password]@][host][:port][/database][?setting=value&…]`.
    pub(crate) fn from_url(text: &str) -> Result<Self, LockError> {
        URLS.read(text, |_, _| Ok(()))
    }

    /// Returns the address of the server, without credentials.
    pub(crate) fn address(&self) -> String {
        match self.options.get_socket() {
            Some(folder) => format!("{}:{}", folder.display(), self.options.get_port()),
            // An address with colons needs brackets.
            None if self.options.get_host().contains(':') => {
                format!("[{}]:{}", self.options.get_host(), self.options.get_port())
            }
            None => format!("{}:{}", self.options.get_host(), self.options.get_port()),
        }
    }

    /// Returns how long a statement may wait for a lock that another transaction holds: half of the response timeout,
    /// so that the answer to the statement can still arrive in time.
    pub(crate) fn lock_timeout(&self) -> Duration {
        self.response_timeout / 2
    }

    /// Returns the name of the store: the address of the server in lower case, the database and the table.
    pub(crate) fn name(&self) -> String {
        format!("postgres://{}?table={}", self.database(), self.table.name())
    }

    /// Returns the address of the server and the name of the database.
    pub(crate) fn database(&self) -> String {
        let database = self.options.get_database().unwrap_or_else(|| self.options.get_username());
        format!("{}/{database}", self.address().to_lowercase())
    }
}

impl Urls {
    /// Reads `<scheme>://[user[:password]@][host][:port][/database][?setting=value&…]`. Calls `other` for each setting
    /// that only some of the stores have.
    pub(crate) fn read(
        &self,
        text: &str,
        mut other: impl FnMut(&str, &str) -> Result<(), LockError>,
    ) -> Result<Config, LockError> {
        let Self { settings, scheme } = self;
        let store = settings.store;
        let not_understood = |why: &str| invalid(format!("the {store} URL is not understood: {why}"));
        let example = format!("write `{scheme}://user:password@host:5432/database`");
        let Some((of_url, rest)) = text.split_once("://") else {
            return Err(not_understood(&example));
        };
        let parts = Parts::of(rest, store)?;
        if parts.hosts.contains(',') {
            return Err(invalid(format!(
                "the {store} URL names several servers: write one, with a name that leads to the primary"
            )));
        }
        let text = match parts {
            // The parser refuses a URL with credentials and without a host. If the setting `host` names the host, as in
            // the URLs of sockets, `localhost` is put into the URL, and the driver replaces `localhost` with the
            // setting.
            Parts { credentials: Some(credentials), hosts: "", path, query } => {
                if !query.split('&').any(|setting| setting.starts_with("host=")) {
                    return Err(not_understood(&format!(
                        "it names no host; {example}, or add the folder of a socket, `?host=/run/postgresql`"
                    )));
                }
                &format!("{of_url}://{credentials}@localhost{path}?{query}")
            }
            _ => text,
        };
        let mut url = Url::parse(text).map_err(|error| not_understood(&error.to_string()))?;
        let all: Vec<(String, String)> =
            url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        let (for_driver, ours): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(name, _)| OF_DRIVER.contains(&name.as_str()));
        url.set_query(None);
        if !for_driver.is_empty() {
            url.query_pairs_mut().extend_pairs(&for_driver);
        }
        let options = PgConnectOptions::from_str(url.as_str()).map_err(|error| {
            // The driver's text may repeat a value of the URL.
            drop(error);
            let names: Vec<_> = for_driver.iter().map(|(name, _)| format!("`{name}`")).collect();
            not_understood(&if names.is_empty() {
                example
            } else {
                format!("a value of {} is not valid", names.join(", "))
            })
        })?;
        // The driver would take an address in brackets for a host name, and would ask the name server for that name.
        let address = options.get_host().strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let options = match address.map(str::to_owned) {
            Some(address) if options.get_socket().is_none() => options.host(&address),
            _ => options,
        };
        if cfg!(not(any(feature = "tls-aws-lc-rs", feature = "tls-ring")))
            && matches!(
                options.get_ssl_mode(),
                PgSslMode::Require | PgSslMode::VerifyCa | PgSslMode::VerifyFull
            )
        {
            return Err(LockError::new(
                LockErrorKind::Unsupported,
                format!(
                    "setting `sslmode` in the {store} URL: TLS is not compiled in; switch on the feature \
                     `tls-aws-lc-rs` or `tls-ring` of lock-runtime"
                ),
            ));
        }
        let mut config = Config::new(options);
        let yes_or_no = |name: &str, value: &str| {
            let wrong = || settings.wrong(name, &format!("write `{name}=true` or `{name}=false`"));
            value.parse().map_err(|_| wrong())
        };
        for (name, value) in &ours {
            if !settings.known.contains(&name.as_str()) {
                return Err(settings.unknown_beside(name, parts.query, OF_DRIVER));
            }
            match name.as_str() {
                "connect_timeout" => config.connect_timeout = settings.length(name, value)?,
                "response_timeout" => config.response_timeout = settings.length(name, value)?,
                "connections" => {
                    let number = value.parse().ok().filter(|number| (1..=MOST_CONNECTIONS).contains(number));
                    config.connections = number.ok_or_else(|| {
                        settings.wrong(name, &format!("write a number from 1 to {MOST_CONNECTIONS}"))
                    })?;
                }
                "table" => {
                    config.table = Table::from_name(value).map_err(|why| settings.wrong(name, &why))?;
                }
                "create_table" => config.create_table = yes_or_no(name, value)?,
                "strict" => config.strict = yes_or_no(name, value)?,
                _ => other(name, value)?,
            }
        }
        Ok(config)
    }
}

/// Adapts the options of a connection to statements about locks.
fn of_locks(options: PgConnectOptions) -> PgConnectOptions {
    // A statement may contain an owner token, which must not be logged. A pooler such as PgBouncer refuses parameters
    // that it does not know, and `extra_float_digits` only changes how floats are shown.
    options.disable_statement_logging().extra_float_digits(None)
}

/// Gives a connection the name of this process, which `pg_stat_activity` shows, unless the URL, the pool or `PGAPPNAME`
/// gives another name. PgBouncer knows this parameter and passes it on.
fn named(options: PgConnectOptions) -> PgConnectOptions {
    match options.get_application_name() {
        Some(_) => options,
        None => options.application_name(&client_name::of_this_process()),
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("name", &self.name()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_the_others_are_the_driver_s() {
        let config = Config::from_url(
            "postgres://u:canary@H:7000/db?response_timeout=250ms&table=app.locks&connections=2&create_table=true\
             &application_name=me",
        )
        .expect("valid");
        assert_eq!(config.response_timeout, Duration::from_millis(250));
        assert_eq!((config.connections, config.create_table), (2, true));
        assert_eq!(config.name(), "postgres://h:7000/db?table=\"app\".\"locks\"");
        assert_eq!(config.options.get_application_name(), Some("me"));
        assert!(config.table.ddl().contains("CREATE TABLE IF NOT EXISTS \"app\".\"locks\" ("));
        assert!(!format!("{config:?}").contains("canary"));
        for url in ["postgresql:///db?host=/run/p:g&user=u", "postgresql://u:canary@/db?host=/run/p:g"] {
            let socket = Config::from_url(url).expect(url);
            assert_eq!((socket.address(), socket.options.get_username()), ("/run/p:g:5432".into(), "u"));
            assert_eq!(socket.options.get_database(), Some("db"));
        }
        for url in ["postgres://u@[::1]:7000/db", "postgres://u@/db?host=[::1]&port=7000"] {
            let config = Config::from_url(url).expect(url);
            assert_eq!((config.options.get_host(), config.address()), ("::1", "[::1]:7000".into()));
        }
    }

    #[test]
    fn mistakes_are_named_and_the_password_is_not() {
        for (url, word) in [
            ("postgres:", "write `postgres://"),
            ("postgres://u:canary@h:port", "not understood"),
            ("postgres://u:canary@a,b/db", "several servers"),
            ("postgres://u:canary@h?tabel=x", "unknown setting `tabel`"),
            ("postgres://u:12?canary@h/db", "`%3F`"),
            ("postgres://u:12?a=canary@h/db", "`%3F`"),
            ("postgres://u:12/canary@h/db", "`%2F`"),
            ("postgres://u:p#canary@h/db", "`%23`"),
            ("postgres://h/db#canary", "`%23`"),
            ("postgres://u:canary@/db", "names no host"),
            ("postgres://u:canary@h?table=Drop%20it", "lower-case"),
            ("postgres://u:canary@h?table=a.b.c", "schema.table"),
            ("postgres://u:canary@h?connections=0", "from 1 to 64"),
            ("postgres://u:canary@h?strict=maybe", "strict=true"),
            ("postgres://u:canary@h?port=canary", "a value of `port`"),
        ] {
            let error = Config::from_url(url).map(drop).expect_err(url);
            assert_eq!(error.kind(), LockErrorKind::InvalidOptions);
            assert!(error.to_string().contains(word), "{url}: {error}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
    }
}
