//! The scripts, and how they are called.

use std::sync::LazyLock;

use redis::{Cmd, RedisWrite};

use super::{names, place};
use crate::{LockKey, OwnerToken};

/// A script's text and the name by which the server knows it.
#[derive(Debug)]
pub(super) struct Script {
    text: String,
    sha: String,
}

impl Script {
    fn new(text: String) -> Self {
        Self { sha: redis::Script::new(&text).get_hash().to_owned(), text }
    }

    /// A script over the queue: its short way, what both ways need, its long way.
    fn over_queue(short: &str, long: &str) -> Self {
        let constants = format!(
            "local STALE_MS, CLAIM_WINDOW_MS, RETENTION_MS, OPEN_EVERY_US = {}, {}, '{}', {}",
            place::STALE.as_millis(),
            place::CLAIM_WINDOW.as_millis(),
            place::RETENTION.as_millis(),
            place::OPEN_EVERY.as_micros(),
        );
        Self::new([short, &constants, include_str!("scripts/queue.lua"), long].join("\n"))
    }

    /// A script for many locks.
    fn over_group(text: &str) -> Self {
        let constants = format!("local QUEUE = ':~{}:queue'", names::FORMAT);
        Self::new([&constants, include_str!("scripts/queues.lua"), text].join("\n"))
    }

    /// The beginning of a call about one lock: its keys, and the owner.
    pub(super) fn about(&self, key: &LockKey, process: &str, owner: OwnerToken) -> Cmd {
        let mut call = self.call_with_room(4, 12, 512);
        call.arg(key.stored());
        call.write_arg_fmt(names::beside(key, "queue"));
        call.write_arg_fmt(names::beside(key, "places"));
        call.write_arg_fmt(names::fence(key.prefix()));
        call.write_arg_fmt(names::owner(process, owner));
        call
    }

    /// The beginning of a call with `keys` keys, which are added first; with room for so many arguments and bytes.
    pub(super) fn call_with_room(&self, keys: usize, arguments: usize, bytes: usize) -> Cmd {
        let mut call = Cmd::with_capacity(arguments, bytes);
        call.arg("EVALSHA").arg(&self.sha).arg(keys);
        call
    }

    /// Makes the server know it.
    pub(super) fn load(&self) -> Cmd {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(&self.text);
        load
    }
}

pub(super) static ACQUIRE: LazyLock<Script> = LazyLock::new(|| {
    Script::over_queue(include_str!("scripts/acquire_short.lua"), include_str!("scripts/acquire_long.lua"))
});
pub(super) static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::over_queue(include_str!("scripts/release_short.lua"), include_str!("scripts/release_long.lua"))
});
pub(super) static RENEW: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/renew.lua").to_owned()));
pub(super) static ACQUIRE_GROUP: LazyLock<Script> =
    LazyLock::new(|| Script::over_group(include_str!("scripts/acquire_group.lua")));
pub(super) static RELEASE_GROUP: LazyLock<Script> =
    LazyLock::new(|| Script::over_group(include_str!("scripts/release_group.lua")));
pub(super) static RIGHTS: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/rights.lua").to_owned()));

pub(super) fn all() -> [&'static Script; 6] {
    [&ACQUIRE, &RELEASE, &RENEW, &ACQUIRE_GROUP, &RELEASE_GROUP, &RIGHTS]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The words that stand in `text` behind `before`, up to `after`.
    fn words<'a>(text: &'a str, before: &str, after: char) -> BTreeSet<&'a str> {
        text.split(before).skip(1).filter_map(|rest| rest.split(after).next()).collect()
    }

    #[test]
    fn every_command_of_the_scripts_is_asked_for_and_in_the_published_acl() {
        let mut used = BTreeSet::new();
        for script in [&ACQUIRE, &RELEASE, &RENEW, &ACQUIRE_GROUP, &RELEASE_GROUP] {
            used.extend(words(&script.text, "call('", '\''));
        }
        assert!(used.contains("PUBLISH"), "{used:?}");
        assert_eq!(words(&RIGHTS.text, "need('", '\''), used);
        let page = include_str!("docs.md").split("ACL SETUSER").nth(1).expect("the page has the user");
        for command in used {
            assert!(page.contains(&format!(" +{} ", command.to_lowercase())), "{command}");
        }
    }
}
