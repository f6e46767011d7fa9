//! Tables: rows held back until the table ends, then printed with aligned columns.

use anstyle::Style;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

const HEAD: Style = Style::new().bold();
/// Rows and bytes of one table. A longer one is printed as several.
const MAX_ROWS: usize = 500;
const MAX_BYTES: usize = 128 << 10;
/// Columns of a table. One with more is printed as it is.
const MAX_COLUMNS: usize = 32;
/// Narrowest column that cells are wrapped into.
const MIN_WIDTH: usize = 3;
const SEPARATOR: &str = " │ ";

/// Lines of a table, from the first `|` on.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: Vec<String>,
    bytes: usize,
}

impl Table {
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds a line. Returns false if the table is full.
    pub(super) fn push(&mut self, row: String) -> bool {
        self.bytes += row.len();
        self.rows.push(row);
        self.rows.len() < MAX_ROWS && self.bytes < MAX_BYTES
    }

    /// Formats the table.
    ///
    /// # Errors
    /// If the lines are not a table that fits; returns them.
    pub(super) fn render(self, columns: usize) -> Result<String, Vec<String>> {
        let Some(alignments) = self.rows.get(1).and_then(|row| alignments(row)) else {
            return Err(self.rows);
        };
        let count = alignments.len();
        let room = columns.checked_sub(SEPARATOR.width() * count.saturating_sub(1));
        let Some(room) = room.filter(|room| count <= MAX_COLUMNS && *room >= count * MIN_WIDTH) else {
            return Err(self.rows);
        };
        let body = self.rows.iter().enumerate().filter(|(at, _)| *at != 1);
        let rows: Vec<Vec<String>> = body
            .map(|(_, row)| {
                let mut cells = cells(row);
                cells.resize(count, String::new());
                cells
            })
            .collect();
        let widths = fit(&rows, count, room);
        let mut text = String::new();
        for (at, row) in rows.iter().enumerate() {
            push_row(&mut text, row, &widths, &alignments, at == 0);
            if at == 0 {
                let lines: Vec<_> = widths.iter().map(|width| "─".repeat(*width)).collect();
                text.push_str(&lines.join("─┼─"));
                text.push('\n');
            }
        }
        Ok(text)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alignment {
    Left,
    Right,
    Center,
}

/// Reads the line of dashes below the head.
fn alignments(row: &str) -> Option<Vec<Alignment>> {
    let cells = cells(row);
    let read = |cell: &String| {
        let dashes = cell.trim_matches(':');
        let (left, right) = (cell.starts_with(':'), cell.ends_with(':'));
        (!dashes.is_empty() && dashes.bytes().all(|b| b == b'-')).then_some(match (left, right) {
            (true, true) => Alignment::Center,
            (false, true) => Alignment::Right,
            _ => Alignment::Left,
        })
    };
    cells.iter().map(read).collect()
}

/// Splits a line into its cells, without their marks.
fn cells(row: &str) -> Vec<String> {
    let row = row.trim();
    let row = row.strip_prefix('|').unwrap_or(row);
    let mut cells = vec![String::new()];
    let mut chars = row.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.peek() == Some(&'|') => {
                chars.next();
                cells.last_mut().expect("one cell").push('|');
            }
            '|' if chars.clone().all(char::is_whitespace) => break,
            '|' => cells.push(String::new()),
            c => cells.last_mut().expect("one cell").push(c),
        }
    }
    cells.iter().map(|cell| plain(cell.trim())).collect()
}

/// Removes the marks of code and strong text. Everything else, such as a link, stays as it is.
fn plain(cell: &str) -> String {
    cell.replace("**", "").replace('`', "").replace("<br>", " ")
}

/// Returns the widths of the columns: their widest cell, or less for the widest ones if the table is too wide.
fn fit(rows: &[Vec<String>], count: usize, room: usize) -> Vec<usize> {
    let widest = |at: usize| rows.iter().map(|row| row[at].width()).max().unwrap_or(0).max(1);
    let mut widths: Vec<usize> = (0..count).map(widest).collect();
    while widths.iter().sum::<usize>() > room {
        let over = widths.iter().sum::<usize>() - room;
        let most = *widths.iter().max().expect("a table has columns");
        let next = widths.iter().copied().filter(|width| *width < most).max().unwrap_or(0).max(MIN_WIDTH);
        let all: Vec<usize> = (0..count).filter(|at| widths[*at] == most).collect();
        let less = (most - next).min(over.div_ceil(all.len())).max(1);
        for at in all {
            widths[at] = (widths[at] - less).max(1);
        }
    }
    widths
}

fn push_row(text: &mut String, row: &[String], widths: &[usize], alignments: &[Alignment], is_head: bool) {
    let wrapped: Vec<Vec<String>> =
        row.iter().zip(widths).map(|(cell, width)| wrap_cell(cell, *width)).collect();
    let height = wrapped.iter().map(Vec::len).max().unwrap_or(1).max(1);
    for line in 0..height {
        let mut shown = String::new();
        for (at, cell) in wrapped.iter().enumerate() {
            let part = cell.get(line).map_or("", String::as_str);
            let space = widths[at].saturating_sub(part.width());
            let before = match alignments[at] {
                Alignment::Left => 0,
                Alignment::Right => space,
                Alignment::Center => space / 2,
            };
            if at > 0 {
                shown.push_str(SEPARATOR);
            }
            shown.extend(std::iter::repeat_n(' ', before));
            if is_head && !part.is_empty() {
                shown.push_str(&format!("{HEAD}{part}{HEAD:#}"));
            } else {
                shown.push_str(part);
            }
            shown.extend(std::iter::repeat_n(' ', space - before));
        }
        text.push_str(shown.trim_end());
        text.push('\n');
    }
}

/// Wraps a cell between words, and within words that are too long.
fn wrap_cell(cell: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in cell.split_whitespace() {
        let line = lines.last_mut().expect("one line");
        if !line.is_empty() && line.width() + 1 + word.width() <= width {
            line.push(' ');
            line.push_str(word);
            continue;
        }
        if !line.is_empty() {
            lines.push(String::new());
        }
        for c in word.chars() {
            let line = lines.last_mut().expect("one line");
            if line.width() + c.width().unwrap_or(0) > width && !line.is_empty() {
                lines.push(c.to_string());
            } else {
                line.push(c);
            }
        }
    }
    lines
}
