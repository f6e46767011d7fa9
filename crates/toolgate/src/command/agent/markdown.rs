//! Markdown for a terminal, as it comes: headings, emphasis, code, lists; the rest stays as it is written.
//!
//! Invariant: no character of the text is lost but the marks that became a style; what the text holds of control
//! characters was taken away before; every style ends with its line, but that of a block of code.

use anstyle::{AnsiColor, Style};

const STRONG: Style = Style::new().bold();
const SOFT: Style = Style::new().italic();
const CODE: Style = AnsiColor::Cyan.on_default();
const HEADING: Style = AnsiColor::Blue.on_default().bold();
/// Marks that are held back until it is known what they are.
const LONGEST_MARK: usize = 8;

/// A text while it comes.
#[derive(Debug, Default)]
pub(crate) struct Markdown {
    /// Characters whose meaning is not known yet.
    held: String,
    /// Whether the line has only white space so far.
    at_start: Start,
    fence: bool,
    heading: bool,
    strong: bool,
    soft: bool,
    code: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Start {
    #[default]
    Yes,
    No,
}

impl Markdown {
    /// Takes some more; gives what can be shown.
    pub(crate) fn push(&mut self, text: &str) -> String {
        let mut out = String::new();
        for c in text.chars() {
            self.take(c, &mut out);
        }
        out
    }

    /// Nothing more comes.
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
            self.at_start = Start::Yes;
            return;
        }
        let mark = match self.held.chars().next() {
            Some(first) => c == first && self.held.len() < LONGEST_MARK,
            None => match c {
                '`' => true,
                '*' => !self.fence && !self.code,
                '#' => !self.fence && self.at_start == Start::Yes,
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
        // A mark may follow the one that was settled.
        if matches!(c, '`') || c == '*' && !self.fence && !self.code {
            self.held.push(c);
            return;
        }
        if !c.is_whitespace() {
            self.at_start = Start::No;
        }
        out.push(c);
    }

    fn settle(&mut self, out: &mut String) {
        self.settle_before('\n', out);
    }

    /// What the marks that were held mean, now that the next character is known.
    fn settle_before(&mut self, next: char, out: &mut String) {
        let held = std::mem::take(&mut self.held);
        let Some(mark) = held.chars().next() else { return };
        let start = self.at_start == Start::Yes;
        match (mark, held.len()) {
            ('`', 3..) if start => {
                self.fence = !self.fence;
                // The name of the language stays on the line.
                out.push_str(&if self.fence { format!("{CODE}{held}") } else { format!("{held}{CODE:#}") });
            }
            ('`', 1) if !self.fence => toggle(&mut self.code, CODE, out),
            ('#', 1..=6) if next == ' ' => {
                self.heading = true;
                out.push_str(&format!("{HEADING}"));
                return;
            }
            // A star before a space at the start of a line is an item of a list.
            ('*', 1) if start && next.is_whitespace() => out.push('•'),
            ('*', 1) if !next.is_whitespace() || self.soft => toggle(&mut self.soft, SOFT, out),
            ('*', 2) if !next.is_whitespace() || self.strong => toggle(&mut self.strong, STRONG, out),
            _ => out.push_str(&held),
        }
        self.at_start = Start::No;
    }

    /// The styles of a line end with it.
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
    fn marks_become_styles() {
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
            assert_eq!(shown(text, 3), is, "how it is cut changes nothing: {text}");
            assert_eq!(shown(text, 1_000), is, "{text}");
        }
    }
}
