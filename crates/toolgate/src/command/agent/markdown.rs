//! Renders streamed Markdown for a terminal: headings, emphasis, code and lists; everything else is printed as it is.
//!
//! Invariant: only the marks that become a style are removed; the input is already sanitised; every style ends with its
//! line, except that of a code block.

use anstyle::{AnsiColor, Style};

const STRONG: Style = Style::new().bold();
const SOFT: Style = Style::new().italic();
const CODE: Style = AnsiColor::Cyan.on_default();
const HEADING: Style = AnsiColor::Blue.on_default().bold();
/// Marks held back until their meaning is known.
const MAX_MARK: usize = 8;

/// Renderer state of a stream.
#[derive(Debug, Default)]
pub(crate) struct Markdown {
    /// Marks whose meaning is not known yet.
    held: String,
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
    /// Renders more text; returns the part that can be printed.
    pub(crate) fn push(&mut self, text: &str) -> String {
        let mut out = String::new();
        for c in text.chars() {
            self.take(c, &mut out);
        }
        out
    }

    /// Ends the stream; returns the rest.
    pub(crate) fn end(&mut self) -> String {
        let mut out = String::new();
        self.settle(&mut out);
        self.close(&mut out);
        if self.fence {
            out.push_str(&format!("{CODE:#}"));
        }
        *self = Self::default();
        out
    }

    fn take(&mut self, c: char, out: &mut String) {
        if c == '\n' {
            self.settle(out);
            self.close(out);
            out.push('\n');
            self.at_start = LineStart::Yes;
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
        self.settle_before(c, out);
        if held_heading && self.heading && c == ' ' {
            return;
        }
        // Another mark may follow.
        if matches!(c, '`') || c == '*' && !self.fence && !self.code {
            self.held.push(c);
            return;
        }
        if !c.is_whitespace() {
            self.at_start = LineStart::No;
        }
        out.push(c);
    }

    fn settle(&mut self, out: &mut String) {
        self.settle_before('\n', out);
    }

    /// Interprets the held marks, given the next character.
    fn settle_before(&mut self, next: char, out: &mut String) {
        let held = std::mem::take(&mut self.held);
        let Some(mark) = held.chars().next() else { return };
        let start = self.at_start == LineStart::Yes;
        match (mark, held.len()) {
            ('`', 3..) if start => {
                self.fence = !self.fence;
                // The language name stays on the line.
                out.push_str(&if self.fence { format!("{CODE}{held}") } else { format!("{held}{CODE:#}") });
            }
            ('`', 1) if !self.fence => toggle(&mut self.code, CODE, out),
            ('#', 1..=6) if next == ' ' => {
                self.heading = true;
                out.push_str(&format!("{HEADING}"));
                return;
            }
            // A star before a space at the start of a line is a list item.
            ('*', 1) if start && next.is_whitespace() => out.push('•'),
            ('*', 1) if !next.is_whitespace() || self.soft => toggle(&mut self.soft, SOFT, out),
            ('*', 2) if !next.is_whitespace() || self.strong => toggle(&mut self.strong, STRONG, out),
            _ => out.push_str(&held),
        }
        self.at_start = LineStart::No;
    }

    /// Ends all styles of a line.
    fn close(&mut self, out: &mut String) {
        for (open, style) in [
            (&mut self.code, CODE),
            (&mut self.soft, SOFT),
            (&mut self.strong, STRONG),
            (&mut self.heading, HEADING),
        ] {
            if std::mem::take(open) {
                out.push_str(&format!("{style:#}"));
            }
        }
    }
}

fn toggle(open: &mut bool, style: Style, out: &mut String) {
    *open = !*open;
    out.push_str(&if *open { format!("{style}") } else { format!("{style:#}") });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, piece: usize) -> String {
        let mut markdown = Markdown::default();
        let all: Vec<char> = text.chars().collect();
        let mut out: String =
            all.chunks(piece).map(|piece| markdown.push(&piece.iter().collect::<String>())).collect();
        out.push_str(&markdown.end());
        out.replace('\u{1b}', "^")
    }

    #[test]
    fn renders_marks_as_styles() {
        for (text, is) in [
            ("plain", "plain"),
            ("**bold** and *soft*", "^[1mbold^[0m and ^[3msoft^[0m"),
            ("`a * b`", "^[36ma * b^[0m"),
            ("# Title\nx", "^[1m^[34mTitle^[0m\nx"),
            ("#hash", "#hash"),
            ("* item\n- other", "• item\n- other"),
            ("2 * 3 ** 4", "2 * 3 ** 4"),
            ("**open\nnext", "^[1mopen^[0m\nnext"),
            ("```rust\n*x\n```\n*y*", "^[36m```rust\n*x\n```^[0m\n^[3my^[0m"),
            ("***both***", "***both***"),
        ] {
            assert_eq!(shown(text, 1), is, "{text}");
            assert_eq!(shown(text, 3), is, "chunk size does not matter: {text}");
            assert_eq!(shown(text, 1_000), is, "{text}");
        }
    }
}
