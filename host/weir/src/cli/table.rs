//! Tables for people.
//!
//! The crate `comfy-table` would replace about 15 lines with two more crates, for frames and wrapping that no table here
//! has.

use std::fmt::Write as _;

/// Rows with aligned columns.
pub(super) struct TextTable {
    rows: Vec<Vec<String>>,
}

impl TextTable {
    pub(super) fn new(headings: &[&str]) -> Self {
        let headings = headings.iter().map(|heading| (*heading).to_owned());
        Self {
            rows: vec![headings.collect()],
        }
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(super) fn print(&self) {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or_default()
        };
        let widths: Vec<_> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let _ = write!(line, "{cell:width$}  ");
            }
            println!("{}", line.trim_end());
        }
    }
}

/// Returns a cell for an optional text.
pub(super) fn optional(text: &Option<String>) -> String {
    match text.as_deref() {
        None | Some("") => "-".to_owned(),
        Some(text) => text.to_owned(),
    }
}
