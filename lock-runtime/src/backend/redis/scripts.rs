//! The scripts, and how they are called.

use std::{fmt::Write as _, sync::LazyLock};

use redis::{Arg, Cmd, RedisWrite};

use super::{names, place};
use crate::{FencingToken, LockKey, OwnerToken};

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

    /// A script of these parts.
    fn of(parts: &[&str]) -> Self {
        Self::new(parts.join("\n"))
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

    /// The same call for a server that does not know it: it does afterwards.
    pub(super) fn with_text(&self, call: &Cmd) -> Cmd {
        let mut with_text = redis::cmd("EVAL");
        with_text.arg(&self.text);
        for argument in call.args_iter().skip(2) {
            if let Arg::Simple(bytes) = argument {
                with_text.arg(bytes);
            }
        }
        with_text
    }

    /// Makes the server know it.
    pub(super) fn load(&self) -> Cmd {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(&self.text);
        load
    }
}

/// The constants of the fence counter, which the short ways need.
fn of_fences() -> String {
    let retention = place::FENCE_RETENTION.as_millis();
    format!("local FENCE_RETENTION_MS, LAST_FENCE = '{retention}', {}", FencingToken::LAST_MICROS)
}

/// The constants of the queue.
fn of_queues() -> String {
    let (usual, foreign) = (place::OPEN, place::OPEN_FOREIGN);
    let mut text = String::new();
    for (name, value) in [
        ("STALE_MS", place::STALE.as_millis()),
        ("CLAIM_WINDOW_MS", place::CLAIM_WINDOW.as_millis()),
        ("OPEN_EVERY_US", usual.every.as_micros()),
        ("OPEN_MS", usual.length.as_millis()),
        ("OPEN_EVERY_FOREIGN_US", foreign.every.as_micros()),
        ("OPEN_FOREIGN_MS", foreign.length.as_millis()),
    ] {
        writeln!(text, "local {name} = {value}").expect("a String takes everything");
    }
    let retention = place::RETENTION.as_millis();
    writeln!(text, "local RETENTION_MS = '{retention}'").expect("a String takes everything");
    text
}

/// The constants of the scripts for many locks.
fn of_groups() -> String {
    format!("local QUEUE = ':~{}:queue'", names::FORMAT)
}

const FENCE: &str = include_str!("scripts/fence.lua");
const QUEUE: &str = include_str!("scripts/queue.lua");
const QUEUES: &str = include_str!("scripts/queues.lua");
const ASK: &str = include_str!("scripts/ask.lua");

pub(super) static ACQUIRE: LazyLock<Script> = LazyLock::new(|| {
    let (short, long) = (include_str!("scripts/acquire_short.lua"), include_str!("scripts/acquire_long.lua"));
    Script::of(&[&of_fences(), FENCE, short, &of_queues(), QUEUE, ASK, long])
});
pub(super) static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    let (short, long) = (include_str!("scripts/release_short.lua"), include_str!("scripts/release_long.lua"));
    Script::of(&[short, &of_fences(), FENCE, &of_queues(), QUEUE, long])
});
pub(super) static RENEW: LazyLock<Script> =
    LazyLock::new(|| Script::of(&[include_str!("scripts/renew.lua")]));
pub(super) static ACQUIRE_GROUP: LazyLock<Script> = LazyLock::new(|| {
    Script::of(&[&of_fences(), FENCE, &of_groups(), QUEUES, include_str!("scripts/acquire_group.lua")])
});
pub(super) static POLL_GROUP: LazyLock<Script> = LazyLock::new(|| {
    Script::of(&[&of_fences(), FENCE, &of_queues(), QUEUE, ASK, include_str!("scripts/poll_group.lua")])
});
pub(super) static RELEASE_GROUP: LazyLock<Script> =
    LazyLock::new(|| Script::of(&[&of_groups(), QUEUES, include_str!("scripts/release_group.lua")]));
pub(super) static RIGHTS: LazyLock<Script> =
    LazyLock::new(|| Script::of(&[include_str!("scripts/rights.lua")]));

pub(super) fn all() -> [&'static Script; 7] {
    [&ACQUIRE, &RELEASE, &RENEW, &ACQUIRE_GROUP, &POLL_GROUP, &RELEASE_GROUP, &RIGHTS]
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
        for script in [&ACQUIRE, &RELEASE, &RENEW, &ACQUIRE_GROUP, &POLL_GROUP, &RELEASE_GROUP] {
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
