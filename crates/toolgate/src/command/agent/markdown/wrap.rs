//! Wraps styled text between words, with the indentation of its list item.

use unicode_width::UnicodeWidthChar as _;

/// Deepest indentation of wrapped lines.
const MAX_INDENT: usize = 16;
/// Narrower terminals are treated as this wide.
const MIN_COLUMNS: usize = 20;

/// Text to print, and the word that is not complete yet.
#[derive(Debug)]
pub(super) struct Wrapper {
    columns: usize,
    wraps: bool,
    ready: String,
    /// Column of the cursor, without the held spaces and word.
    column: usize,
    /// White space before the word.
    spaces: String,
    word: String,
    word_width: usize,
    /// Characters of the word without its styles, to recognise the marker of a list item.
    plain: String,
    /// True if the held word is the rest of one that was too long to hold.
    continues: bool,
    /// Words of the line so far.
    words: usize,
    indent: usize,
}

impl Wrapper {
    pub(super) fn new(columns: usize) -> Self {
        let columns = columns.max(MIN_COLUMNS);
        Self {
            columns,
            wraps: true,
            ready: String::new(),
            column: 0,
            spaces: String::new(),
            word: String::new(),
            word_width: 0,
            plain: String::new(),
            continues: false,
            words: 0,
            indent: 0,
        }
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    pub(super) fn set_columns(&mut self, columns: usize) {
        self.columns = columns.max(MIN_COLUMNS);
    }

    /// Stops or starts wrapping. Code is printed as it is.
    pub(super) fn set_wraps(&mut self, wraps: bool) {
        self.wraps = wraps;
    }

    /// Returns the text to print.
    pub(super) fn take(&mut self) -> String {
        std::mem::take(&mut self.ready)
    }

    /// Adds a visible character, or a space or tab.
    pub(super) fn push(&mut self, c: char) {
        if matches!(c, ' ' | '\t') {
            self.end_word();
            self.continues = false;
            self.spaces.push_str(if c == '\t' { "    " } else { " " });
            return;
        }
        self.word.push(c);
        self.plain.push(c);
        self.word_width += c.width().unwrap_or(0);
        // A word without an end, such as a long line of code, is printed as it grows.
        if self.word_width >= self.columns {
            self.end_word();
            self.continues = true;
        }
    }

    /// Adds a style. It takes no room.
    pub(super) fn style(&mut self, sequence: &str) {
        self.word.push_str(sequence);
    }

    /// Adds whole lines that fit.
    pub(super) fn verbatim(&mut self, lines: &str) {
        self.end_word();
        self.ready.push_str(lines);
        self.column = 0;
    }

    pub(super) fn newline(&mut self) {
        self.end_word();
        self.continues = false;
        self.ready.push('\n');
        (self.column, self.words, self.indent) = (0, 0, 0);
        self.spaces.clear();
    }

    /// Ends the text, and its line if it has one.
    pub(super) fn end(&mut self) {
        self.end_word();
        if self.column > 0 {
            self.newline();
        }
        self.spaces.clear();
    }

    fn end_word(&mut self) {
        if self.word.is_empty() {
            return;
        }
        let is_visible = !self.plain.is_empty();
        if self.wraps && is_visible && self.words == 0 {
            let own = self.spaces.len();
            let hanging = if is_list_marker(&self.plain) { self.word_width + 1 } else { 0 };
            self.indent = (own + hanging).min(MAX_INDENT);
        }
        let needed = self.column + self.spaces.len() + self.word_width;
        let may_wrap = self.wraps && !self.continues;
        if may_wrap && is_visible && self.words > 0 && needed > self.columns && self.column > self.indent {
            self.ready.push('\n');
            self.ready.extend(std::iter::repeat_n(' ', self.indent));
            self.column = self.indent;
            self.spaces.clear();
        }
        if is_visible {
            self.ready.push_str(&self.spaces);
            self.column += self.spaces.len();
            self.spaces.clear();
            self.words += 1;
        }
        self.ready.push_str(&self.word);
        self.column += self.word_width;
        // The terminal itself wraps a word that is wider than the line.
        if self.column > self.columns {
            self.column %= self.columns;
        }
        self.word.clear();
        self.plain.clear();
        self.word_width = 0;
    }
}

/// Returns true for `-`, `•`, `+`, `>` and numbers such as `1.`.
fn is_list_marker(word: &str) -> bool {
    let number = word.strip_suffix(['.', ')']);
    matches!(word, "-" | "•" | "+" | ">")
        || number.is_some_and(|number| {
            (1..=3).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit())
        })
}
