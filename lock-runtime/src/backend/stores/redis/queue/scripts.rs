//! The scripts of the queue. The scripts for many locks without waiters are in `node.rs`.

use std::{fmt::Write as _, sync::LazyLock};

use super::{super::node, place};
use crate::backend::kits::redis::{
    foreign::{FOREIGN_OPENING, USUAL_OPENING},
    lua,
    net::Script,
};

/// Returns the constants of the queue, in Lua.
fn queue_constants() -> String {
    let (usual, foreign) = (USUAL_OPENING, FOREIGN_OPENING);
    let mut text = String::new();
    for (name, value) in [
        ("STALE_MS", place::STALE.as_millis()),
        ("INLINE_PLACES", place::INLINE_PLACES as u128),
        ("FAR_RANK", place::FAR_RANK as u128),
        ("OPEN_EVERY_US", usual.every.as_micros()),
        ("OPEN_MS", usual.length.as_millis()),
        ("OPEN_EVERY_FOREIGN_US", foreign.every.as_micros()),
        ("OPEN_FOREIGN_MS", foreign.length.as_millis()),
    ] {
        writeln!(text, "local {name} = {value}").expect("a String takes everything");
    }
    // These constants are texts, because they are arguments of commands.
    for (name, value) in [("CLAIM_WINDOW_MS", place::CLAIM_WINDOW), ("RETENTION_MS", place::RETENTION)] {
        writeln!(text, "local {name} = '{}'", value.as_millis()).expect("a String takes everything");
    }
    text
}

/// Returns the text of a script in which each line `--@ <file>` is replaced by the content of the file.
fn assembled(text: &str) -> String {
    let parts = [
        ("--@ fence.lua", lua::MINT),
        ("--@ grant.lua", include_str!("../scripts/grant.lua")),
        ("--@ queue.lua", include_str!("../scripts/queue.lua")),
        ("--@ shown.lua", include_str!("../scripts/shown.lua")),
        ("--@ each.lua", lua::EACH),
    ];
    parts.iter().fold(text.to_owned(), |text, (line, part)| text.replace(line, part))
}

fn with_queue(text: &str) -> Script {
    Script::of(&[&lua::fence_constants(lua::FENCE_RETENTION), &queue_constants(), &assembled(text)])
}

pub(crate) static ACQUIRE: LazyLock<Script> =
    LazyLock::new(|| with_queue(include_str!("../scripts/acquire.lua")));
pub(crate) static RELEASE: LazyLock<Script> =
    LazyLock::new(|| with_queue(include_str!("../scripts/release.lua")));
pub(crate) static RIGHTS: LazyLock<Script> =
    LazyLock::new(|| Script::of(&[include_str!("../scripts/rights.lua")]));

pub(crate) static INSPECT: LazyLock<Script> =
    LazyLock::new(|| with_queue(include_str!("../scripts/inspect.lua")));
pub(crate) static SCAN: LazyLock<Script> =
    LazyLock::new(|| Script::of(&[&assembled(include_str!("../scripts/scan.lua"))]));
pub(crate) static REVOKE: LazyLock<Script> =
    LazyLock::new(|| with_queue(&[lua::REPLICA_ERROR, include_str!("../scripts/revoke.lua")].concat()));

/// Returns the scripts that every process uses. The scripts for operators are loaded by the first call that needs them.
pub(crate) fn usual() -> [&'static Script; 6] {
    [&ACQUIRE, &RELEASE, &node::RENEW, &node::ACQUIRE_GROUP, &node::RELEASE_GROUP, &RIGHTS]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns the words in `text` between each `before` and the next `after`.
    fn words<'a>(text: &'a str, before: &str, after: char) -> BTreeSet<&'a str> {
        text.split(before).skip(1).filter_map(|rest| rest.split(after).next()).collect()
    }

    #[test]
    fn every_command_of_the_scripts_is_asked_for_and_in_the_published_acl() {
        let mut used = BTreeSet::new();
        let usual = usual().into_iter().filter(|script| script.text() != RIGHTS.text());
        for script in usual.chain([&*INSPECT, &*REVOKE]) {
            used.extend(script.commands());
        }
        assert!(used.contains("PUBLISH"), "{used:?}");
        assert_eq!(words(RIGHTS.text(), "need('", '\''), used);
        let page = include_str!("../docs.md").split("ACL SETUSER").nth(1).expect("the page has the user");
        for command in used {
            assert!(page.contains(&format!(" +{} ", command.to_lowercase())), "{command}");
        }
    }
}
