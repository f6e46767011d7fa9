//! Renders streamed Markdown for a terminal: headings, emphasis, code, links, lists and tables, wrapped between words.
//!
//! Text is printed word by word, a table when it is complete. Invariant: only the marks that become a style are removed,
//! and the URL of a link is always shown; the input is already sanitised; every style ends with its line, except that of
//! a code block; text that is held back is bounded.

use anstyle::{AnsiColor, Style};

use table::Table;
use wrap::Wrapper;

mod table;
mod wrap;

const STRONG: Style = Style::new().bold();
const SOFT: Style = Style::new().italic();
const CODE: Style = AnsiColor::Cyan.on_default();
const HEADING: Style = AnsiColor::Blue.on_default().bold();
const LINK: Style = AnsiColor::Blue.on_default();
/// Marks held back until their meaning is known.
const MAX_MARK: usize = 8;
/// Bytes of a link held back until it is complete.
const MAX_LINK: usize = 2 << 10;
/// Bytes of a table row held back until it is complete.
const MAX_ROW: usize = 8 << 10;

/// Renderer state of a stream.
#[derive(Debug)]
pub(crate) struct Markdown {
    out: Wrapper,
    /// Marks whose meaning is not known yet.
    held: String,
    /// A link from its `[` on.
    link: String,
    /// A table row from its first `|` on.
    row: Option<String>,
    table: Table,
    /// `Yes` while the line has only white space.
    at_start: LineStart,
    fence: bool,
    heading: bool,
    strong: bool,
    soft: bool,
    code: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum LineStart {
    #[default]
    Yes,
    No,
}

impl Markdown {
    /// Creates a renderer for a terminal of this width.
    pub(crate) fn new(columns: usize) -> Self {
        Self {
            out: Wrapper::new(columns),
            held: String::new(),
            link: String::new(),
            row: None,
            table: Table::default(),
            at_start: LineStart::Yes,
            fence: false,
            heading: false,
            strong: false,
            soft: false,
            code: false,
        }
    }

    /// Renders more text for a terminal of this width; returns the part that can be printed.
    pub(crate) fn push(&mut self, text: &str, columns: usize) -> String {
        self.out.set_columns(columns);
        for c in text.chars() {
            self.take(c);
        }
        self.out.take()
    }

    /// Ends the stream; returns the rest, with the end of its line.
    pub(crate) fn end(&mut self) -> String {
        if let Some(row) = self.row.take() {
            self.add_row(row);
        }
        self.end_table();
        self.end_line();
        if self.fence {
            self.out.style(&format!("{CODE:#}"));
        }
        self.out.end();
        let rest = self.out.take();
        *self = Self::new(self.out.columns());
        rest
    }

    fn take(&mut self, c: char) {
        if let Some(row) = &mut self.row {
            if c == '\n' {
                let row = std::mem::take(row);
                self.row = None;
                self.add_row(row);
            } else {
                row.push(c);
                if row.len() > MAX_ROW {
                    let row = std::mem::take(row);
                    self.row = None;
                    self.end_table();
                    row.chars().for_each(|c| self.take_inline(c));
                }
            }
            return;
        }
        let starts_line = self.at_start == LineStart::Yes && self.held.is_empty() && self.link.is_empty();
        if starts_line && c == '|' && !self.fence {
            self.row = Some(c.to_string());
            return;
        }
        if !c.is_whitespace() || c == '\n' {
            self.end_table();
        }
        self.take_inline(c);
    }

    fn add_row(&mut self, row: String) {
        if !self.table.push(row) {
            self.end_table();
        }
    }

    /// Prints the table that has ended, or its lines if they are none.
    fn end_table(&mut self) {
        if self.table.is_empty() {
            return;
        }
        let table = std::mem::take(&mut self.table);
        match table.render(self.out.columns()) {
            Ok(text) => self.out.verbatim(&text),
            Err(lines) => {
                for line in lines {
                    line.chars().chain(['\n']).for_each(|c| self.take_inline(c));
                }
            }
        }
    }

    fn take_inline(&mut self, c: char) {
        if !self.link.is_empty() {
            return self.take_link(c);
        }
        if c == '\n' {
            self.end_line();
            self.out.newline();
            return;
        }
        let mark = match self.held.chars().next() {
            Some(first) => c == first && self.held.len() < MAX_MARK,
            None => match c {
                '`' => true,
                '*' => !self.fence && !self.code,
                '#' => !self.fence && self.at_start == LineStart::Yes,
                _ => false,
            },
        };
        if mark {
            self.held.push(c);
            return;
        }
        let held_heading = self.held.starts_with('#');
        self.settle_before(c);
        if held_heading && self.heading && c == ' ' {
            return;
        }
        // Another mark may follow.
        if matches!(c, '`') || c == '*' && !self.fence && !self.code {
            self.held.push(c);
            return;
        }
        if c == '[' && !self.fence && !self.code {
            self.link.push(c);
            return;
        }
        if !c.is_whitespace() {
            self.at_start = LineStart::No;
        }
        self.out.push(c);
    }

    /// Takes a character of a link: `[text](url)`. Anything else is printed as it is.
    fn take_link(&mut self, c: char) {
        let was_text_end = self.link.ends_with(']');
        let has_url = self.link.contains("](");
        let breaks = c == '\n' || was_text_end && !has_url && c != '(' || c == '[' && !has_url;
        if breaks || self.link.len() > MAX_LINK {
            self.end_link();
            return self.take_inline(c);
        }
        self.link.push(c);
        if c == ')' && has_url {
            let link = std::mem::take(&mut self.link);
            match link[1..link.len() - 1].split_once("](") {
                Some((text, url)) if !url.trim().is_empty() => self.print_link(text.trim(), url.trim()),
                _ => link.chars().for_each(|c| self.print_plain(c)),
            }
        }
    }

    fn print_link(&mut self, text: &str, url: &str) {
        self.at_start = LineStart::No;
        let text: String = text.chars().filter(|c| !matches!(c, '*' | '`')).collect();
        // The marks of a code span or of emphasis around the link go on after it.
        if !text.is_empty() && text != url {
            self.styled(LINK, &text);
            self.out.push(' ');
            self.styled(LINK, &format!("({url})"));
        } else {
            self.styled(LINK, url);
        }
    }

    fn styled(&mut self, style: Style, text: &str) {
        self.out.style(&format!("{style}"));
        text.chars().for_each(|c| self.out.push(c));
        self.out.style(&format!("{style:#}"));
        for (open, style) in [(self.strong, STRONG), (self.soft, SOFT), (self.heading, HEADING)] {
            if open {
                self.out.style(&format!("{style}"));
            }
        }
    }

    /// Prints the text that was taken for the start of a link.
    fn end_link(&mut self) {
        let link = std::mem::take(&mut self.link);
        let mut rest = link.chars();
        if let Some(bracket) = rest.next() {
            self.print_plain(bracket);
        }
        rest.for_each(|c| self.take_inline(c));
    }

    fn print_plain(&mut self, c: char) {
        self.at_start = LineStart::No;
        self.out.push(c);
    }

    fn end_line(&mut self) {
        if !self.link.is_empty() {
            self.end_link();
        }
        self.settle_before('\n');
        self.close();
        self.at_start = LineStart::Yes;
    }

    /// Interprets the held marks, given the next character.
    fn settle_before(&mut self, next: char) {
        let held = std::mem::take(&mut self.held);
        let Some(mark) = held.chars().next() else { return };
        let start = self.at_start == LineStart::Yes;
        match (mark, held.len()) {
            ('`', 3..) if start => {
                self.fence = !self.fence;
                // The language name stays on the line.
                if self.fence {
                    self.out.set_wraps(false);
                    self.out.style(&format!("{CODE}"));
                    held.chars().for_each(|c| self.out.push(c));
                } else {
                    held.chars().for_each(|c| self.out.push(c));
                    self.out.style(&format!("{CODE:#}"));
                    self.out.set_wraps(true);
                }
            }
            ('`', 1) if !self.fence => toggle(&mut self.code, CODE, &mut self.out),
            ('#', 1..=6) if next == ' ' => {
                self.heading = true;
                self.out.style(&format!("{HEADING}"));
                return;
            }
            // A star before a space at the start of a line is a list item.
            ('*', 1) if start && next.is_whitespace() => self.out.push('•'),
            ('*', 1) if !next.is_whitespace() || self.soft => toggle(&mut self.soft, SOFT, &mut self.out),
            ('*', 2) if !next.is_whitespace() || self.strong => {
                toggle(&mut self.strong, STRONG, &mut self.out);
            }
            _ => held.chars().for_each(|c| self.out.push(c)),
        }
        self.at_start = LineStart::No;
    }

    /// Ends all styles of a line.
    fn close(&mut self) {
        for (open, style) in [
            (&mut self.code, CODE),
            (&mut self.soft, SOFT),
            (&mut self.strong, STRONG),
            (&mut self.heading, HEADING),
        ] {
            if std::mem::take(open) {
                self.out.style(&format!("{style:#}"));
            }
        }
    }
}

fn toggle(open: &mut bool, style: Style, out: &mut Wrapper) {
    *open = !*open;
    out.style(&if *open { format!("{style}") } else { format!("{style:#}") });
}

#[cfg(test)]
mod tests;
