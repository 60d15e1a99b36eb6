//! Splits a store's URL into its parts. Reserved characters that would turn the rest of a password into a host or a
//! setting are refused.

use super::settings::not_understood;
use crate::LockError;

/// The parts of `scheme://[credentials@][hosts][/path][?query]`, still with their percent-encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::backend) struct Parts<'a> {
    /// `user`, `user:password` or `:password`.
    pub(in crate::backend) credentials: Option<&'a str>,
    pub(in crate::backend) hosts: &'a str,
    /// The path with its leading slash; empty if the URL has no path.
    pub(in crate::backend) path: &'a str,
    pub(in crate::backend) query: &'a str,
}

impl<'a> Parts<'a> {
    /// Splits the text after `scheme://` in the URL of `store`.
    ///
    /// # Errors
    /// [`InvalidOptions`](crate::LockErrorKind::InvalidOptions) if a reserved character seems to end a part too early.
    /// The error repeats nothing of the URL: the text after that character may be the rest of a password.
    pub(in crate::backend) fn of(rest: &'a str, store: &str) -> Result<Self, LockError> {
        let refuse = |why| Err(not_understood(store, why));
        if rest.contains('#') {
            return refuse(
                "it has a `#`, and nothing may follow one; in a user name, a password or a value it is written `%23`",
            );
        }
        let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = before.find('/').map_or((before, ""), |at| before.split_at(at));
        // If the authority is empty, the path is that of a Unix socket, in which an `@` is an ordinary character.
        if !authority.is_empty() && path.contains('@') {
            return refuse(
                "it has an `@` after a `/`; in a user name or a password a `/` is written `%2F`, and in a path an `@` is \
                 written `%40`",
            );
        }
        let mut names = query.split('&').map(|pair| pair.split('=').next().unwrap_or(pair));
        if names.any(|name| name.contains('@')) {
            return refuse(
                "it has an `@` after a `?`; in a user name or a password a `?` is written `%3F`, a `/` is written `%2F` \
                 and an `&` is written `%26`",
            );
        }
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (Some(credentials), hosts),
            None => (None, authority),
        };
        Ok(Self { credentials, hosts, path, query })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_split_as_they_are_written() {
        let parts = |rest| Parts::of(rest, "Redis").expect(rest);
        let all = parts("u:p@:@a,[::1]:7/x%40y?z=1@2&b");
        assert_eq!((all.credentials, all.hosts), (Some("u:p@:"), "a,[::1]:7"));
        assert_eq!((all.path, all.query), ("/x%40y", "z=1@2&b"));
        assert_eq!(parts("h"), Parts { credentials: None, hosts: "h", path: "", query: "" });
        assert_eq!(parts("/run/a@b").path, "/run/a@b");
    }

    #[test]
    fn a_part_that_ends_too_early_is_answered_with_what_to_write() {
        for (rest, word) in [
            ("u:p#canary@h", "`%23`"),
            ("h/1#canary", "`%23`"),
            ("u:p/canary@h", "`%2F`"),
            ("u:1/canary@h/x", "`%2F`"),
            ("u:p@s/canary@h", "`%2F`"),
            ("u:p?canary@h", "`%3F`"),
            ("u:1?canary@h/x", "`%3F`"),
            ("u:1?a&canary@h/x", "`%26`"),
        ] {
            let error = Parts::of(rest, "Redis").expect_err(rest);
            assert!(error.to_string().contains(word), "{rest}: {error}");
            assert!(!format!("{error:?}").contains("canary"), "{error:?}");
        }
    }
}
