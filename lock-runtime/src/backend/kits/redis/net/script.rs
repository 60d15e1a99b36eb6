use redis::{Arg, Cmd};

/// A script's text, and the SHA-1 digest by which the server knows the script.
#[derive(Debug)]
pub(crate) struct Script {
    text: String,
    sha: String,
}

impl Script {
    /// Creates a script from its parts.
    pub(crate) fn of(parts: &[&str]) -> Self {
        let text = parts.join("\n");
        Self { sha: redis::Script::new(&text).get_hash().to_owned(), text }
    }

    /// Begins a call with `keys` keys, which the caller adds before all other arguments. The call has room for
    /// `arguments` arguments with `bytes` bytes in all.
    pub(crate) fn call_with_room(&self, keys: usize, arguments: usize, bytes: usize) -> Cmd {
        let mut call = Cmd::with_capacity(arguments, bytes);
        call.arg("EVALSHA").arg(&self.sha).arg(keys);
        call
    }

    /// Returns the same call with the text of the script, for a server that does not know the script yet.
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

    /// Returns the call that loads the script into the server.
    pub(crate) fn load(&self) -> Cmd {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(&self.text);
        load
    }

    /// Returns the text of the program.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the commands that the script calls.
    pub(crate) fn commands(&self) -> impl Iterator<Item = &str> {
        self.text.split("call('").skip(1).filter_map(|rest| rest.split('\'').next())
    }
}
