//! The scripts, and how they are called.

use std::sync::LazyLock;

use redis::Cmd;

/// A script's text and the name by which the server knows it.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    sha: String,
}

impl Script {
    fn new(text: &'static str) -> Self {
        Self { text, sha: redis::Script::new(text).get_hash().to_owned() }
    }

    /// The beginning of a call with `keys` keys, which are added first.
    pub(super) fn call(&self, keys: usize) -> Cmd {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.sha).arg(keys);
        call
    }

    /// Makes the server know it.
    pub(super) fn load(&self) -> Cmd {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(self.text);
        load
    }
}

macro_rules! with_common {
    ($file:literal) => {
        concat!(include_str!("scripts/common.lua"), "\n", include_str!($file))
    };
}

pub(super) static ACQUIRE: LazyLock<Script> =
    LazyLock::new(|| Script::new(with_common!("scripts/acquire.lua")));
pub(super) static RELEASE: LazyLock<Script> =
    LazyLock::new(|| Script::new(with_common!("scripts/release.lua")));
pub(super) static RENEW: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/renew.lua")));
