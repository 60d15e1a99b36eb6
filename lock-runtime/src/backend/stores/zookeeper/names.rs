//! The paths of a lock and of its contenders.
//!
//! A lock is one node below the chroot, `/<prefix><name>`; each contender is a child of this node, and is named as
//! Apache Curator names contenders, `_c_<guid>-lock-<sequence>`.

use crate::{LockKey, OwnerToken, key::encode::percent};

/// Returns the path of a lock's node below the chroot.
pub(super) fn lock(key: &LockKey) -> String {
    path(key.stored())
}

fn path(name: &str) -> String {
    // These names have a special meaning in paths or to the server.
    let reserved = matches!(name, "." | ".." | "zookeeper");
    let mut path = String::with_capacity(name.len() + 1);
    path.push('/');
    for (at, c) in name.char_indices() {
        if c == '/' || c == '%' || !is_allowed(c) || reserved && at == 0 {
            c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| percent(&mut path, byte));
        } else {
            path.push(c);
        }
    }
    path
}

/// Returns the [stored name](LockKey::stored) of the lock whose node has this name, or `None` if the node is no lock's.
pub(super) fn stored(node: &str) -> Option<String> {
    let (mut stored, mut rest) = (Vec::with_capacity(node.len()), node);
    while let Some((plain, escaped)) = rest.split_once('%') {
        stored.extend_from_slice(plain.as_bytes());
        let digits = escaped.get(..2)?;
        stored.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &escaped[2..];
    }
    stored.extend_from_slice(rest.as_bytes());
    let stored = String::from_utf8(stored).ok()?;
    // Another spelling belongs to a node that no lock has.
    (path(&stored)[1..] == *node).then_some(stored)
}

/// Returns whether the server accepts `c` in a path (`PathUtils.validatePath`). The server checks UTF-16 code units,
/// and accepts no surrogates, so no character beyond the basic multilingual plane.
pub(super) fn is_allowed(c: char) -> bool {
    !c.is_control() && c <= '\u{d7ff}' || ('\u{f900}'..='\u{ffef}').contains(&c)
}

/// Returns the beginning of a contender's name, to which the server appends the sequence number.
pub(super) fn contender(owner: OwnerToken) -> String {
    let guid = owner.expose();
    format!(
        "_c_{:08x}-{:04x}-{:04x}-{:04x}-{:012x}-lock-",
        guid >> 96,
        guid >> 80 & 0xffff,
        guid >> 64 & 0xffff,
        guid >> 48 & 0xffff,
        guid & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(prefix: &str, name: &str) -> String {
        let key = LockKey::with_prefix(prefix, name).expect("valid");
        let path = lock(&key);
        assert_eq!(stored(&path[1..]).as_deref(), Some(key.stored()), "{path}");
        path
    }

    #[test]
    fn a_plain_name_is_kept() {
        assert_eq!(path("lock:", "user:42"), "/lock:user:42");
        assert_eq!(path("", "{acme}:orders é"), "/{acme}:orders é");
    }

    #[test]
    fn what_would_be_something_else_in_a_path_is_escaped_and_no_two_names_meet() {
        let names = [
            "a/b",
            "a%2Fb",
            "a%2fb",
            ".",
            "..",
            "...",
            "%2E",
            "%2E.",
            "zookeeper",
            "%7Aookeeper",
            "a\u{1f512}",
            "a\u{e000}",
            "a\u{fff0}",
            "a\u{ffff}",
            "./a",
            "a/.",
            "/",
            "//",
        ];
        let paths: Vec<_> = names.map(|name| path("", name)).into();
        assert_eq!(paths[..6], ["/a%2Fb", "/a%252Fb", "/a%252fb", "/%2E", "/%2E.", "/..."]);
        assert_eq!(path("", "zookeeper"), "/%7Aookeeper");
        assert_eq!(path("", "a\u{1f512}"), "/a%F0%9F%94%92");
        let mut distinct = paths.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), names.len());
        assert!(paths.iter().all(|path| !path[1..].contains('/')), "{paths:?}");
    }

    #[test]
    fn a_node_with_another_spelling_is_no_lock_s() {
        for node in ["a%2fb", "%61", "%", "a%", "a%2", "a%2\u{e9}", "%FF", "%+1", "zookeeper", "."] {
            assert_eq!(stored(node), None, "{node}");
        }
    }

    #[test]
    fn a_contender_is_named_as_curator_names_it() {
        let name = contender(OwnerToken::from(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef));
        assert_eq!(name, "_c_01234567-89ab-cdef-0123-456789abcdef-lock-");
    }
}
