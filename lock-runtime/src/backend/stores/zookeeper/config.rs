//! The settings, read from the URL.

use std::{fmt, time::Duration};

use ::zookeeper_client as zk;

use super::{
    credentials::{Credentials, Scheme},
    names,
    url::{SETTINGS, decode},
};
use crate::{
    LockError,
    backend::common::{
        parts::Parts,
        settings::{invalid, not_understood},
        tls::{Tls, settings::Files},
    },
};

const PLAIN: &str = "zookeeper://";
const WITH_TLS: &str = "zookeeper+tls://";
/// The driver's default.
const DEFAULT_PORT: u16 = 2181;

/// The settings for one ensemble.
#[derive(Clone)]
pub(super) struct Config {
    /// `host:port,host:port`, without credentials.
    pub(super) servers: String,
    /// The node below which all locks are; `None` for the root.
    pub(super) chroot: Option<String>,
    /// Our user and password; never printed.
    credentials: Option<Credentials>,
    /// The certificates of `zookeeper+tls:`; `tls_ca`, `tls_cert` and `tls_key` in the URL.
    pub(super) tls: Option<Tls>,
    /// The timeout requested from the servers; `session_timeout` in the URL.
    pub(super) session_timeout: Duration,
    /// How long to wait for a session; `connect_timeout` in the URL.
    pub(super) connect_timeout: Duration,
    /// How long to wait for an answer; `response_timeout` in the URL.
    pub(super) response_timeout: Duration,
}

impl Config {
    /// Reads `zookeeper://[user:password@]host[:port],…[/chroot][?setting=value&…]`, or the same with
    /// `zookeeper+tls:`.
    pub(super) fn from_url(url: &str) -> Result<Self, LockError> {
        let refuse = |why| not_understood(SETTINGS.store, why);
        let plain = url.strip_prefix(PLAIN);
        let rest = plain.or_else(|| url.strip_prefix(WITH_TLS)).ok_or_else(|| {
            refuse("write `zookeeper://host:2181,host:2181/chroot`, or `zookeeper+tls://` for TLS")
        })?;
        let Parts { credentials, hosts: servers, path: chroot, query } = Parts::of(rest, SETTINGS.store)?;
        if servers.split(',').any(|server| host_and_port(server).is_none()) {
            return Err(refuse("servers are `host:port`, with commas between them"));
        }
        let chroot = chroot.trim_end_matches('/');
        let mut config = Self {
            servers: servers.to_owned(),
            chroot: (!chroot.is_empty()).then(|| decode(chroot)),
            credentials: None,
            tls: None,
            session_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(2),
        };
        if config.chroot.as_ref().is_some_and(|path| !is_path(path)) {
            return Err(refuse("the path after the servers is not a valid node"));
        }
        let (mut scheme, mut files) = (None, Files::default());
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "session_timeout" => config.session_timeout = SETTINGS.length(&name, &value)?,
                "connect_timeout" => config.connect_timeout = SETTINGS.length(&name, &value)?,
                "response_timeout" => config.response_timeout = SETTINGS.length(&name, &value)?,
                "auth" => scheme = Some(Scheme::from_text(&value)?),
                _ => match files.of_setting(&name) {
                    Some(file) => *file = Some(value.into_owned().into()),
                    None => return Err(SETTINGS.unknown(&name, query)),
                },
            }
        }
        match credentials {
            Some(pair) => {
                config.credentials = Some(Credentials::from_url(pair, scheme.unwrap_or_default())?);
            }
            None if scheme.is_some() => {
                let problem = "it says how to send credentials, so add `user:password@`";
                return Err(SETTINGS.wrong("auth", problem));
            }
            None => {}
        }
        if plain.is_none() {
            let hosts: Vec<_> = config.hosts().into_iter().map(|(host, _)| host).collect();
            let has_ca = files.ca.is_some();
            config.tls = Some(Tls::new(SETTINGS.store, "zookeeper+tls", files, &hosts)?);
            if !has_ca {
                return Err(invalid(
                    "the ZooKeeper URL needs the setting `tls_ca`: a PEM file with the certificates of the CAs that \
                     sign the servers' certificates"
                        .into(),
                ));
            }
        } else if !files.is_empty() {
            return Err(invalid(
                "settings `tls_…` in the ZooKeeper URL: write `zookeeper+tls://` for connections with TLS"
                    .into(),
            ));
        }
        Ok(config)
    }

    /// Returns the servers' hosts and ports.
    pub(super) fn hosts(&self) -> Vec<(&str, u16)> {
        self.servers.split(',').filter_map(host_and_port).collect()
    }

    /// Returns the names of the store: one for each server, in one spelling, with the chroot. A server belongs to one
    /// ensemble only.
    pub(super) fn stores(&self) -> Vec<String> {
        let chroot = self.chroot.as_deref().unwrap_or_default();
        let hosts = self.hosts().into_iter();
        hosts.map(|(host, port)| format!("zookeeper://{}:{port}{chroot}", host.to_lowercase())).collect()
    }

    /// Returns the time without an answer after which the driver leaves a connection, or gives up an attempt to
    /// connect.
    ///
    /// A silent server may cost this time twice: once until the silence is noticed, and once for an attempt to connect
    /// that begins before the server is back. A hold ends if no heartbeat has moved its deadline by then. Less than two
    /// seconds may be too short for TLS and authentication over a long distance; only short sessions get less.
    fn connection_timeout(&self) -> Duration {
        let enough = Duration::from_secs(2).min(self.session_timeout / 3);
        enough.max(self.session_timeout / 6)
    }

    pub(super) fn connector(&self) -> zk::Connector {
        let connector = zk::Client::connector()
            .with_session_timeout(self.session_timeout)
            .with_connection_timeout(self.connection_timeout())
            .with_fail_eagerly();
        match &self.credentials {
            Some(credentials) => credentials.on(connector),
            None => connector,
        }
    }

    /// Returns the number of rounds, each over all servers, in which a session is requested before the request counts
    /// as refused.
    ///
    /// ZooKeeper's server for TLS (`NettyServerCnxn`) may answer the credentials before the request for a session,
    /// which was sent first: the server sends one of the two answers directly, and the other through a queue. The
    /// driver takes the first answer for that to the session request, and considers the server unusable. The faster a
    /// server makes sessions, the more often the order is reversed: up to every second time if the server waits for no
    /// disk. Servers that are electing a leader turn all clients away, and should not be asked more often than
    /// necessary.
    pub(super) fn attempts(&self) -> u32 {
        let asked: u32 = if self.credentials.is_some() { 16 } else { 1 };
        asked.div_ceil(u32::try_from(self.hosts().len()).unwrap_or(u32::MAX))
    }

    /// Returns the ACL of our nodes: only the URL's user has access if the URL names a user, otherwise everyone.
    pub(super) fn acls(&self) -> zk::Acls<'static> {
        if self.credentials.is_some() { zk::Acls::creator_all() } else { zk::Acls::anyone_all() }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("servers", &self.servers)
            .field("chroot", &self.chroot)
            .field("tls", &self.tls)
            .field("session_timeout", &self.session_timeout)
            .finish_non_exhaustive()
    }
}

/// Returns the host, without the brackets of an address, and the port; `None` if the driver would not accept the text.
fn host_and_port(server: &str) -> Option<(&str, u16)> {
    let (host, port) = match server.rsplit_once(':') {
        // A colon inside the brackets of an address does not begin a port.
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok().filter(|port| *port > 0)?),
        _ => (server, DEFAULT_PORT),
    };
    if let Some(rest) = host.strip_prefix('[') {
        let address = rest.strip_suffix(']')?;
        return address.parse::<std::net::Ipv6Addr>().is_ok().then_some((address, port));
    }
    let is_name = !host.is_empty() && host.chars().all(|c| c.is_alphanumeric() || "-._".contains(c));
    is_name.then_some((host, port))
}

/// Returns whether ZooKeeper accepts `path`.
fn is_path(path: &str) -> bool {
    path.split('/')
        .skip(1)
        .all(|name| !name.is_empty() && name != "." && name != ".." && name.chars().all(names::is_allowed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockErrorKind;

    #[test]
    fn servers_chroot_credentials_and_settings_are_read() {
        let config = Config::from_url(
            "zookeeper://u:p%40s+s@a,b:2182,[::1]:2183/locks/of%20us/?session_timeout=6s&connect_timeout=1s&response_timeout=250ms",
        )
        .expect("valid");
        assert_eq!(config.servers, "a,b:2182,[::1]:2183");
        assert_eq!(config.chroot.as_deref(), Some("/locks/of us"));
        assert!(config.credentials.is_some());
        assert_eq!(config.attempts(), 6);
        assert_eq!(config.hosts(), [("a", 2181), ("b", 2182), ("::1", 2183)]);
        assert_eq!(config.session_timeout, Duration::from_secs(6));
        assert_eq!(config.connect_timeout, Duration::from_secs(1));
        assert_eq!(config.response_timeout, Duration::from_millis(250));
        let plain = Config::from_url("zookeeper://127.0.0.1:2181").expect("valid");
        assert_eq!(plain.chroot, None);
        assert!(plain.credentials.is_none() && plain.tls.is_none());
        assert_eq!(plain.session_timeout, Duration::from_secs(10));
    }

    #[test]
    fn urls_of_one_store_are_seen_to_be_so() {
        let stores = |rest: &str| Config::from_url(&format!("zookeeper://{rest}")).expect(rest).stores();
        let all = stores("a,b,c");
        for rest in ["b", "user:password@C:2181?session_timeout=6s", "x,a:2181/", "[::1],b"] {
            assert!(stores(rest).iter().any(|store| all.contains(store)), "{rest}");
        }
        for rest in ["a/chroot", "a:2182,b:2182,c:2182", "d"] {
            assert!(!stores(rest).iter().any(|store| all.contains(store)), "{rest}");
        }
        assert_eq!(stores("a/chroot/"), ["zookeeper://a:2181/chroot"]);
    }

    #[test]
    fn mistakes_are_named_and_the_password_is_not() {
        for (rest, word) in [
            ("", "zookeeper://host"),
            ("//", "host:port"),
            ("//u:canary@", "host:port"),
            ("//u:canary@h:99999", "host:port"),
            ("//u:canary@h:0", "host:port"),
            ("//u:canary@h:port", "host:port"),
            ("//u:canary@h,,i", "host:port"),
            ("//u:canary@[::1", "host:port"),
            ("//canary@h", "user:password@"),
            ("//u:12?canary@h", "`%3F`"),
            ("//u:12/canary@h", "`%2F`"),
            ("//u:12#canary@h", "`%23`"),
            ("//u:canary@h/a//b", "not a valid node"),
            ("//u:canary@h/a/../b", "not a valid node"),
            ("//u:canary@h?auth=plain", "`digest` or `sasl`"),
            ("//h?auth=digest", "user:password@"),
            ("//u:canary@h?tls_ca=/ca.pem", "zookeeper+tls://"),
            ("//u:canary@h?sesion_timeout=1s", "sesion_timeout"),
            ("//u:canary@h?session_timeout=1", "unit"),
            ("//u:canary@h?session_timeout=0s", "above zero"),
            ("//u:canary@h?session_timeout=25h", "at most 24h"),
        ] {
            let error = Config::from_url(&format!("zookeeper:{rest}")).expect_err(rest);
            assert_eq!(error.kind(), LockErrorKind::InvalidOptions);
            assert!(error.to_string().contains(word), "{rest}: {error}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
        let config = Config::from_url("zookeeper://u:canary@h").expect("valid");
        assert!(!format!("{config:?}").contains("canary"));
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_wants_to_know_whom_to_trust_and_both_parts_of_an_identity() {
        let read = |rest: &str| Config::from_url(&format!("zookeeper+tls://u:canary@{rest}"));
        let config = read("a:2281,[::1]:2281,10.0.0.1?tls_ca=/ca%20s.pem&tls_cert=/c.pem&tls_key=/k.pem")
            .expect("valid");
        assert!(config.tls.is_some());
        for (rest, word) in [
            ("h", "`tls_ca`"),
            ("h?tls_ca=/ca.pem&tls_cert=/c.pem", "`tls_key`"),
            ("h?tls_ca=/ca.pem&tls_key=/k.pem", "`tls_cert`"),
            ("-h-?tls_ca=/ca.pem", "`-h-`"),
        ] {
            let error = read(rest).map(drop).expect_err(rest);
            assert_eq!(error.kind(), LockErrorKind::InvalidOptions);
            assert!(error.to_string().contains(word), "{rest}: {error}");
        }
    }
}
