//! Text in columns.

use crate::style::{Style, clean};

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
