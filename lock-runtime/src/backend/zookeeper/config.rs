//! Settings, from the URL.

use std::{fmt, time::Duration};

use ::zookeeper_client as zk;
use url::form_urlencoded;

use super::names;
use crate::{__private::duration, LockError, LockErrorKind};

const SCHEME: &str = "zookeeper://";

/// What is known of one ensemble.
#[derive(Clone)]
pub(super) struct Config {
    /// `host:port,host:port`, without credentials.
    pub(super) servers: String,
    /// The node below which all locks are; none for the root.
    pub(super) chroot: Option<String>,
    /// `user:password`, never shown.
    pub(super) credentials: Option<String>,
    /// What is asked of the servers; `session_timeout` in the URL.
    pub(super) session_timeout: Duration,
    /// How long to wait for a session; `connect_timeout` in the URL.
    pub(super) connect_timeout: Duration,
    /// How long to wait for an answer; `response_timeout` in the URL.
    pub(super) response_timeout: Duration,
}

impl Config {
    /// Reads `zookeeper://[user:password@]host[:port],…[/chroot][?setting=value&…]`.
    pub(super) fn from_url(url: &str) -> Result<Self, LockError> {
        let rest = url.strip_prefix(SCHEME).ok_or_else(|| {
            invalid(
                "the ZooKeeper URL is not understood: write `zookeeper://host:2181,host:2181/chroot`".into(),
            )
        })?;
        let (rest, settings) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, chroot) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (credentials, servers) = match authority.rsplit_once('@') {
            Some((credentials, servers)) => (Some(credentials), servers),
            None => (None, authority),
        };
        for server in servers.split(',') {
            check_server(server)?;
        }
        let chroot = chroot.trim_end_matches('/');
        let mut config = Self {
            servers: servers.to_owned(),
            chroot: (!chroot.is_empty()).then(|| decode(chroot)),
            credentials: credentials.map(decode),
            session_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(2),
        };
        if config.credentials.as_ref().is_some_and(|pair| !pair.contains(':')) {
            return Err(invalid(
                "the ZooKeeper URL is not understood: credentials are `user:password@`".into(),
            ));
        }
        if config.chroot.as_ref().is_some_and(|path| !is_path(path)) {
            return Err(invalid(
                "the ZooKeeper URL is not understood: the path behind the servers is no node".into(),
            ));
        }
        for (name, value) in form_urlencoded::parse(settings.as_bytes()) {
            let setting = match &*name {
                "session_timeout" => &mut config.session_timeout,
                "connect_timeout" => &mut config.connect_timeout,
                "response_timeout" => &mut config.response_timeout,
                _ => {
                    return Err(invalid(format!(
                        "unknown setting `{}` in the ZooKeeper URL; known are `session_timeout`, `connect_timeout` and \
                         `response_timeout`",
                        name.escape_debug()
                    )));
                }
            };
            *setting = length(&name, &value)?;
        }
        Ok(config)
    }

    pub(super) fn connector(&self) -> zk::Connector {
        let connector = zk::Client::connector()
            .with_session_timeout(self.session_timeout)
            // Noticed early enough that the same session can go on elsewhere before it has to be given up.
            .with_connection_timeout(self.session_timeout / 3)
            .with_fail_eagerly();
        match &self.credentials {
            Some(credentials) => connector.with_auth("digest", credentials.as_bytes()),
            None => connector,
        }
    }

    /// Who may touch our nodes: where we say who we are, only we.
    pub(super) fn acls(&self) -> zk::Acls<'static> {
        if self.credentials.is_some() { zk::Acls::creator_all() } else { zk::Acls::anyone_all() }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("servers", &self.servers)
            .field("chroot", &self.chroot)
            .field("session_timeout", &self.session_timeout)
            .finish_non_exhaustive()
    }
}

fn check_server(server: &str) -> Result<(), LockError> {
    let (host, port) = match server.rsplit_once(':') {
        // The colons of an address in brackets are not those of a port.
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (server, None),
    };
    let bracketed = host.strip_prefix('[').map(|rest| rest.strip_suffix(']'));
    let host_is_fine = match bracketed {
        Some(address) => address.is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok()),
        None => !host.is_empty() && host.chars().all(|c| c.is_alphanumeric() || "-._".contains(c)),
    };
    let port_is_fine = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    if host_is_fine && port_is_fine {
        return Ok(());
    }
    Err(invalid(
        "the ZooKeeper URL is not understood: servers are `host:port`, with commas between them".into(),
    ))
}

/// A path as ZooKeeper takes it.
fn is_path(path: &str) -> bool {
    path.split('/')
        .skip(1)
        .all(|name| !name.is_empty() && name != "." && name != ".." && name.chars().all(names::is_allowed))
}

/// Takes `%40` and the like for what they stand for.
fn decode(text: &str) -> String {
    // A form would take `+` for a space and `&` and `=` for its own.
    let text = text.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
    form_urlencoded::parse(text.as_bytes()).map(|(name, _)| name.into_owned()).collect()
}

fn length(name: &str, value: &str) -> Result<Duration, LockError> {
    let length = duration::parse(value)
        .map_err(|error| invalid(format!("setting `{name}` in the ZooKeeper URL: {error}")))?;
    if length.is_zero() || length > Duration::from_hours(24) {
        return Err(invalid(format!(
            "setting `{name}` in the ZooKeeper URL must be above zero and at most 24h"
        )));
    }
    Ok(length)
}

fn invalid(message: String) -> LockError {
    LockError::new(LockErrorKind::InvalidOptions, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_chroot_credentials_and_settings_are_read() {
        let config = Config::from_url(
            "zookeeper://u:p%40s+s@a,b:2182,[::1]:2183/locks/of%20us/?session_timeout=6s&connect_timeout=1s&response_timeout=250ms",
        )
        .expect("valid");
        assert_eq!(config.servers, "a,b:2182,[::1]:2183");
        assert_eq!(config.chroot.as_deref(), Some("/locks/of us"));
        assert_eq!(config.credentials.as_deref(), Some("u:p@s+s"));
        assert_eq!(config.session_timeout, Duration::from_secs(6));
        assert_eq!(config.connect_timeout, Duration::from_secs(1));
        assert_eq!(config.response_timeout, Duration::from_millis(250));
        let plain = Config::from_url("zookeeper://127.0.0.1:2181").expect("valid");
        assert_eq!((plain.chroot, plain.credentials), (None, None));
        assert_eq!(plain.session_timeout, Duration::from_secs(10));
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
            ("//u:canary@h/a//b", "no node"),
            ("//u:canary@h/a/../b", "no node"),
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
}
