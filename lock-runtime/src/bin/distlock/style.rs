//! How texts look on a terminal.

use std::io::{IsTerminal as _, stdout};

/// Whether the output has colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Coloured,
}

impl Style {
    /// Colours are for a terminal, unless `NO_COLOR` is set (no-color.org).
    pub(crate) fn of_stdout() -> Self {
        let is_wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        if is_wanted && stdout().is_terminal() { Self::Coloured } else { Self::Plain }
    }

    pub(crate) fn strong(self, text: &str) -> String {
        self.shown(text, "1")
    }

    /// Returns the text as what is bad.
    pub(crate) fn bad(self, text: &str) -> String {
        self.shown(text, "1;31")
    }

    /// Returns the text as what deserves attention.
    pub(crate) fn warning(self, text: &str) -> String {
        self.shown(text, "1;33")
    }

    fn shown(self, text: &str, how: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Coloured => format!("\x1b[{how}m{text}\x1b[0m"),
        }
    }
}

/// Returns a text without control characters: a terminal would obey the sequences that another client has written.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { '\u{fffd}' } else { character }).collect()
}
