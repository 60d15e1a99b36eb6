//! The data of a contender's node: what its client states of itself, and whether its grant is revoked.
//!
//! The data are `1:<signature>`, or `1:revoked:<signature>` once an operator has revoked the grant. A signature has no
//! colon, so the two forms cannot be mistaken for each other. Nothing of the lock's protocol depends on the data of a
//! contender that is not revoked, and the nodes of other clients have other data.

use std::time::{Duration, UNIX_EPOCH};

use ::zookeeper_client as zk;

use crate::{
    FencingToken, Label, LockHolder, LockWaiter,
    backend::common::signature::{self, Signature},
};

/// Number of the format.
const FORMAT: &str = "1:";
/// What follows the number of the format in the record of a revoked grant.
const REVOKED: &str = "revoked:";

/// Upper bound on the bytes that are shown of the data of another library's client.
const MAX_FOREIGN_BYTES: usize = 64;

/// Returns the data of a new node.
pub(super) fn of(label: Label) -> String {
    [FORMAT, &signature::of(label)].concat()
}

/// Returns whether the data are those of a revoked grant.
pub(super) fn is_revoked(data: &[u8]) -> bool {
    rest(data).is_some_and(|rest| rest.starts_with(REVOKED.as_bytes()))
}

/// Returns the data of a grant with these `data` once the grant is revoked.
pub(super) fn revoked(data: &[u8]) -> Vec<u8> {
    match rest(data) {
        Some(rest) if !is_revoked(data) => [FORMAT.as_bytes(), REVOKED.as_bytes(), rest].concat(),
        _ => data.to_owned(),
    }
}

fn rest(data: &[u8]) -> Option<&[u8]> {
    data.strip_prefix(FORMAT.as_bytes())
}

/// Returns what the data state of the client, unless they are the data of another library's client.
fn signature(data: &[u8]) -> Option<Signature> {
    let rest = str::from_utf8(rest(data)?).ok()?;
    let signature = signature::read(rest.strip_prefix(REVOKED).unwrap_or(rest));
    Some(signature).filter(|signature| !signature.client.is_empty())
}

/// A contender's node, as an operator's client has read it.
#[derive(Debug)]
pub(super) struct Contender {
    pub(super) path: String,
    /// `None` if this client may not read the data.
    pub(super) data: Option<Vec<u8>>,
    pub(super) stat: zk::Stat,
}

impl Contender {
    /// The fencing token of a grant of this node, whatever library its client uses.
    pub(super) fn token(&self) -> FencingToken {
        FencingToken::from_number(self.stat.czxid.cast_unsigned())
    }

    pub(super) fn is_foreign(&self) -> bool {
        self.signature().is_none()
    }

    fn signature(&self) -> Option<Signature> {
        self.data.as_deref().and_then(signature)
    }

    /// Describes the contender as the holder of its lock.
    pub(super) fn holder(&self) -> LockHolder {
        let holder = match self.signature() {
            Some(Signature { client, label }) => {
                let holder = LockHolder::new().with_client(client).with_label(label).with_token(self.token());
                let is_revoked = self.data.as_deref().is_some_and(is_revoked);
                if is_revoked { holder.revoked() } else { holder }
            }
            None => LockHolder::new().with_client(self.other_client()).foreign(),
        };
        let created = u64::try_from(self.stat.ctime).ok().map(Duration::from_millis);
        // A node that belongs to no session stays until it is deleted.
        let remaining = (self.stat.ephemeral_owner == 0).then_some(Duration::MAX);
        let since = created.and_then(|created| UNIX_EPOCH.checked_add(created));
        holder.with_since(since).with_remaining(remaining)
    }

    /// Describes the contender as a waiter for its lock.
    pub(super) fn waiter(&self) -> LockWaiter {
        match self.signature() {
            Some(Signature { client, label }) => LockWaiter::new().with_client(client).with_label(label),
            None => LockWaiter::new().with_client(self.other_client()),
        }
    }

    /// Describes the client of another library: by its session, and by the beginning of its data, in which some of these
    /// libraries name their clients. Curator writes an address, kazoo the text that its caller chooses.
    fn other_client(&self) -> String {
        let data = self.data.as_deref().unwrap_or_default();
        let text = String::from_utf8_lossy(&data[..data.len().min(MAX_FOREIGN_BYTES)]);
        let is_plain = |c: &char| !c.is_control() && *c != char::REPLACEMENT_CHARACTER;
        let text: String = text.chars().map(|c| Some(c).filter(is_plain).unwrap_or('_')).collect();
        let mut client = match self.stat.ephemeral_owner {
            0 => String::new(),
            session => format!("session {session:#x}"),
        };
        if !text.is_empty() {
            client.push_str(if client.is_empty() { "(" } else { " (" });
            client.push_str(&text);
            client.push(')');
        }
        client
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(session: i64) -> zk::Stat {
        zk::Stat {
            czxid: 7,
            mzxid: 7,
            pzxid: 7,
            ctime: 1_700_000_000_123,
            mtime: 0,
            version: 0,
            cversion: 0,
            aversion: 0,
            ephemeral_owner: session,
            data_length: 0,
            num_children: 0,
        }
    }

    fn contender(data: impl Into<Option<Vec<u8>>>, session: i64) -> Contender {
        Contender { path: "/k/n".into(), data: data.into(), stat: stat(session) }
    }

    #[test]
    fn a_holder_is_shown_as_it_describes_itself() {
        let data = of(Label::new("nightly: a,b@c")).into_bytes();
        let holder = contender(data.clone(), 1).holder();
        assert_eq!(holder.label(), Some("nightly: a,b@c"));
        assert_eq!(holder.client(), Some(&*crate::backend::client_name()));
        assert_eq!(holder.token().map(FencingToken::get), Some(7));
        assert_eq!(holder.since(), Some(UNIX_EPOCH + Duration::from_millis(1_700_000_000_123)));
        assert_eq!(holder.remaining(), None);
        assert!(!holder.is_revoked() && !holder.is_foreign());
        let marked = revoked(&data);
        assert!(is_revoked(&marked) && !is_revoked(&data));
        assert_eq!(revoked(&marked), marked);
        assert_eq!(contender(marked, 1).holder(), holder.revoked());
    }

    #[test]
    fn a_holder_with_other_data_is_foreign_and_is_shown_with_its_session() {
        let others: [(&[u8], &str); 6] = [
            (b"10.0.0.5", "10.0.0.5"),
            // The address of an IPv6 client, which begins like our data.
            (b"1:2::3", "1:2::3"),
            (b"1:revoked:", "1:revoked:"),
            (b"a\x1b[2J\nb\xff", "a_[2J_b_"),
            (&[b'x'; 200], &"x".repeat(MAX_FOREIGN_BYTES)),
            (b"2:a,1@b", "2:a,1@b"),
        ];
        for (data, text) in others {
            let holder = contender(data.to_owned(), 0x1000_0abc).holder();
            assert!(holder.is_foreign() && holder.token().is_none(), "{holder:?}");
            assert_eq!(holder.client(), Some(&*format!("session 0x10000abc ({text})")));
            assert_eq!((holder.label(), holder.remaining()), (None, None));
        }
        let unreadable = contender(None, 0).holder();
        assert!(unreadable.is_foreign() && unreadable.client().is_none() && unreadable.label().is_none());
        assert_eq!(unreadable.remaining(), Some(Duration::MAX), "it belongs to no session");
        let waiter = contender(b"x".to_vec(), 16).waiter();
        assert_eq!(waiter, LockWaiter::new().with_client("session 0x10 (x)"));
    }

    #[test]
    fn the_data_of_other_clients_are_never_those_of_a_revoked_grant() {
        for data in [&b""[..], b"1", b"1:", b"1:revoked", b"revoked:", b"2:revoked:a,1@b", b"__REVOKE__"] {
            assert!(!is_revoked(data), "{data:?}");
        }
        assert!(!is_revoked(of(Label::new("revoked:")).as_bytes()));
    }
}
