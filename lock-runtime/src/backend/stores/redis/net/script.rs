//! A script, and how it is called.

use redis::{Arg, Cmd};

/// A script's text and the name by which the server knows it.
#[derive(Debug)]
pub(crate) struct Script {
    text: String,
    sha: String,
}

impl Script {
    /// A script of these parts.
    pub(crate) fn of(parts: &[&str]) -> Self {
        let text = parts.join("\n");
        Self { sha: redis::Script::new(&text).get_hash().to_owned(), text }
    }

    /// The beginning of a call with `keys` keys, which are added first; with room for so many arguments and bytes.
    pub(crate) fn call_with_room(&self, keys: usize, arguments: usize, bytes: usize) -> Cmd {
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
    pub(crate) fn load(&self) -> Cmd {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(&self.text);
        load
    }

    #[cfg(test)]
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}
