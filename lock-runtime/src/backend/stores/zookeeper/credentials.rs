//! The credentials that the servers see.

use ::zookeeper_client as zk;

use super::url::{SETTINGS, decode};
use crate::{LockError, backend::common::settings::not_understood};

/// User and password, from the URL; without `Debug`, because they must not be printed.
#[derive(Clone)]
pub(super) struct Credentials {
    user: String,
    password: String,
    scheme: Scheme,
}

/// How credentials are sent to the servers.
#[derive(Clone, Copy, Default)]
pub(super) enum Scheme {
    /// `addauth digest`: the servers accept any credentials, and compare them with the credentials of a node's owner.
    #[default]
    Digest,
    /// SASL with DIGEST-MD5: the servers accept only users that they know.
    #[cfg(feature = "zookeeper-sasl")]
    Sasl,
}

impl Scheme {
    /// Reads `digest` or `sasl`.
    pub(super) fn from_text(text: &str) -> Result<Self, LockError> {
        match text {
            "digest" => Ok(Self::Digest),
            #[cfg(feature = "zookeeper-sasl")]
            "sasl" => Ok(Self::Sasl),
            #[cfg(not(feature = "zookeeper-sasl"))]
            "sasl" => Err(LockError::new(
                crate::LockErrorKind::Unsupported,
                "setting `auth` in the ZooKeeper URL: `sasl` is not compiled in; switch on the feature \
                 `zookeeper-sasl` of lock-runtime",
            )),
            _ => Err(SETTINGS.wrong("auth", "write `digest` or `sasl`")),
        }
    }
}

impl Credentials {
    /// Reads `user:password`, as written in a URL.
    pub(super) fn from_url(pair: &str, scheme: Scheme) -> Result<Self, LockError> {
        let (user, password) =
            pair.split_once(':').map(|(user, password)| (decode(user), decode(password))).unwrap_or_default();
        if user.is_empty() {
            return Err(not_understood(SETTINGS.store, "credentials are `user:password@`"));
        }
        // The servers, too, end the user name at the first colon. SASL puts the user name between quotes.
        let forbidden: &[char] = match scheme {
            Scheme::Digest => &[':'],
            #[cfg(feature = "zookeeper-sasl")]
            Scheme::Sasl => &[':', '"', '\\'],
        };
        if user.contains(forbidden) || user.chars().any(char::is_control) {
            let why = "the user has a character that ZooKeeper does not accept";
            return Err(not_understood(SETTINGS.store, why));
        }
        Ok(Self { user, password, scheme })
    }

    /// Makes `connector` send the credentials over each connection of the session, including reconnections.
    pub(super) fn on(&self, connector: zk::Connector) -> zk::Connector {
        match self.scheme {
            Scheme::Digest => {
                connector.with_auth("digest", format!("{}:{}", self.user, self.password).as_bytes())
            }
            #[cfg(feature = "zookeeper-sasl")]
            Scheme::Sasl => {
                connector.with_sasl(zk::SaslOptions::digest_md5(self.user.clone(), self.password.clone()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_password_are_decoded_each_for_itself() {
        let read = |pair| Credentials::from_url(pair, Scheme::Digest).map(|read| (read.user, read.password));
        assert_eq!(read("u:p%40s+s:%2F").ok(), Some(("u".into(), "p@s+s:/".into())));
        assert_eq!(read("a%20b:").ok(), Some(("a b".into(), String::new())));
        for wrong in ["", "canary", ":canary", "a%3Ab:canary", "a%0Ab:canary"] {
            let error = read(wrong).expect_err(wrong);
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
    }

    #[cfg(feature = "zookeeper-sasl")]
    #[test]
    fn a_user_cannot_leave_its_quotes() {
        for wrong in [r#"a",realm="x:canary"#, r"a\:canary"] {
            assert!(Credentials::from_url(wrong, Scheme::Sasl).is_err(), "{wrong}");
            assert!(Credentials::from_url(wrong, Scheme::Digest).is_ok(), "{wrong}");
        }
    }
}
