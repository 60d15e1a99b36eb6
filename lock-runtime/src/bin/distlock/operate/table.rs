//! Text in columns.

use std::io::{IsTerminal as _, stdout};

/// Whether the output has colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Coloured,
}

impl Style {
    /// Colours are for a terminal, unless `NO_COLOR` is set (no-color.org).
    pub(super) fn of_stdout() -> Self {
        let is_wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        if is_wanted && stdout().is_terminal() { Self::Coloured } else { Self::Plain }
    }

    pub(super) fn strong(self, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Coloured => format!("\x1b[1m{text}\x1b[0m"),
        }
    }
}

/// Returns a text without control characters: a terminal would obey the sequences that another client has written.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { '\u{fffd}' } else { character }).collect()
}

/// Rows of cells.
pub(super) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub(super) fn new(head: [&str; N]) -> Self {
        Self { rows: vec![head.map(str::to_owned)] }
    }

    pub(super) fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells.map(|cell| clean(&cell)));
    }

    pub(super) fn text(&self, style: Style) -> String {
        let mut widths = [0; N];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
            let line = cells.collect::<Vec<_>>().join("  ");
            let line = line.trim_end();
            text.push_str(&if number == 0 { style.strong(line) } else { line.to_owned() });
            text.push('\n');
        }
        text
    }
}
