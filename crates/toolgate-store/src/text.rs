//! Edits JSON with comments entry by entry, and keeps comments, order, formatting and unknown keys.
//!
//! An [`EntryList`] is the text of one object or array, split at its entries. `jsonc-parser` finds the entries; this
//! module only moves pieces of text. Its own editor (the `cst` feature) loses comments and reformats, see
//! `docs/dev/decisions/json-text-editor.md`.
//! Invariant: an unchanged list renders to exactly the text it was parsed from. A change touches its entry, and the comma
//! and white space around it; every comment outside of the entry stays.

use std::sync::Arc;

use jsonc_parser::ast::Value as Ast;
use jsonc_parser::common::{Range, Ranged};
use jsonc_parser::errors::ParseError;
use jsonc_parser::tokens::Token;
use jsonc_parser::{CollectOptions, ParseOptions, Scanner, ScannerOptions, parse_to_ast};
use serde_json::{Map, Value as Json};

#[cfg(test)]
mod tests;

/// Syntax accepted beyond standard JSON. Nothing that changes the meaning of a value.
pub const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// Reason why a text cannot be split into entries.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TextError {
    #[error("it is not valid JSON")]
    Syntax(#[source] Arc<ParseError>),
    /// Only white space and comments.
    #[error("it is not valid JSON: there is no value")]
    Empty,
    /// The text is JSON, but not an object or an array.
    #[error("it is neither an object nor an array")]
    Shape,
}

/// An object or an array, split at its entries.
#[derive(Debug, Clone)]
pub struct EntryList {
    /// Everything before the first entry, including the bracket.
    open: String,
    /// Shared between copies of the list: a copy of a large registry costs one pointer per entry.
    entries: Vec<Arc<ListEntry>>,
    /// White space and comments between the last comma (or the opening bracket) and the closing bracket.
    end: String,
    /// The closing bracket and everything after it.
    close: String,
    format: TextFormat,
}

/// One entry with the white space and comments around it.
#[derive(Debug, Clone)]
struct ListEntry {
    /// White space and comments before the entry.
    before: String,
    key: Option<EntryKey>,
    value: String,
    /// White space and comments between the entry and its comma, or the end.
    after: String,
    comma: bool,
}

#[derive(Debug, Clone)]
struct EntryKey {
    name: String,
    /// As written, with the colon and the white space after it.
    text: String,
}

/// Formatting of new text.
#[derive(Debug, Clone)]
struct TextFormat {
    /// Indentation of the line that the list begins in.
    indent: String,
    /// Additional indentation per level.
    unit: String,
    newline: &'static str,
    /// True if the first entry gets its own line.
    multiline: bool,
}

impl EntryList {
    /// Splits a text that is one object or array, with any comments around it.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let format = TextFormat { indent: String::new(), unit: "  ".to_owned(), newline, multiline: true };
        let mut list = Self::split(text, format)?;
        list.format.multiline = text.trim().contains('\n') || list.entries.is_empty();
        if let Some(unit) =
            list.entries.iter().find_map(|entry| entry.indent()).filter(|unit| !unit.is_empty())
        {
            list.format.unit = unit.to_owned();
        }
        Ok(list)
    }

    fn split(text: &str, format: TextFormat) -> Result<Self, TextError> {
        let value = parse_value(text)?;
        let (open_end, close) = (value.range().start + 1, value.range().end - 1);
        let spans = entry_spans(value).ok_or(TextError::Shape)?;
        let mut entries = Vec::with_capacity(spans.len());
        let mut from = open_end;
        let mut spans = spans.into_iter().peekable();
        while let Some(EntrySpan { name, start, value }) = spans.next() {
            let next = spans.peek().map_or(close, |next| next.start);
            let comma = find_comma(&text[value.end..next]).map(|at| value.end + at);
            let key = name.map(|name| EntryKey { name, text: text[start..value.start].to_owned() });
            entries.push(Arc::new(ListEntry {
                before: text[from..start].to_owned(),
                key,
                value: text[value.start..value.end].to_owned(),
                after: text[value.end..comma.unwrap_or(next)].to_owned(),
                comma: comma.is_some(),
            }));
            from = comma.map_or(next, |comma| comma + 1);
        }
        let (open, end) = (text[..open_end].to_owned(), text[from..close].to_owned());
        Ok(Self { open, entries, end, close: text[close..].to_owned(), format })
    }

    /// Splits the value of a key.
    pub fn inner(&self, key: &str) -> Option<Result<Self, TextError>> {
        self.position(key).map(|at| self.inner_at(at))
    }

    pub(crate) fn is_object_at(&self, at: usize) -> bool {
        self.entries[at].value.starts_with('{')
    }

    /// Splits the entry at an index.
    pub(crate) fn inner_at(&self, at: usize) -> Result<Self, TextError> {
        let ListEntry { value, .. } = &*self.entries[at];
        let indent = self.entries[at].indent().unwrap_or(&self.format.indent).to_owned();
        let mut list = Self::split(value, TextFormat { indent, ..self.format.clone() })?;
        list.format.multiline = value.contains('\n') || list.entries.is_empty() && self.format.multiline;
        Ok(list)
    }

    /// Renders the text.
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(self.len_bytes());
        text.push_str(&self.open);
        for entry in &self.entries {
            text.push_str(&entry.before);
            if let Some(key) = &entry.key {
                text.push_str(&key.text);
            }
            text.push_str(&entry.value);
            text.push_str(&entry.after);
            if entry.comma {
                text.push(',');
            }
        }
        text.push_str(&self.end);
        text.push_str(&self.close);
        text
    }

    fn len_bytes(&self) -> usize {
        let entry_bytes = |entry: &Arc<ListEntry>| {
            let key = entry.key.as_ref().map_or(0, |key| key.text.len());
            entry.before.len() + key + entry.value.len() + entry.after.len() + 1
        };
        self.open.len()
            + self.entries.iter().map(entry_bytes).sum::<usize>()
            + self.end.len()
            + self.close.len()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_object(&self) -> bool {
        self.open.ends_with('{')
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the keys of an object, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter_map(|entry| Some(entry.key.as_ref()?.name.as_str()))
    }

    /// Returns the texts of the values, in order.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.value.as_str())
    }

    /// Returns the text of the value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.position(key).map(|at| self.entries[at].value.as_str())
    }

    /// Returns the index of a key.
    pub fn position(&self, key: &str) -> Option<usize> {
        self.entries.iter().position(|entry| entry.key.as_ref().is_some_and(|own| own.name == key))
    }

    /// Sets the value of a key: in its place, or at the end.
    pub fn set(&mut self, key: &str, value: &Json) {
        match self.position(key) {
            Some(at) => self.replace(at, value),
            None => self.push(Some(key), value),
        }
    }

    /// Replaces the value at an index.
    pub fn replace(&mut self, at: usize, value: &Json) {
        let indent = self.entries[at].indent().unwrap_or(&self.format.indent).to_owned();
        let old = &self.entries[at].value;
        let scalar = !old.starts_with(['{', '[']);
        let multiline = old.contains('\n') || self.format.multiline && (scalar || old.len() == 2);
        let spaced = self.format.multiline || old.contains("\": ");
        let text = self.format.render(value, &indent, multiline, spaced);
        self.put_text(at, text);
    }

    /// Replaces the value at an index by a text, which must be JSON.
    pub fn put_text(&mut self, at: usize, text: String) {
        Arc::make_mut(&mut self.entries[at]).value = text;
    }

    /// Replaces the value of a key by a changed inner list.
    pub fn put_inner(&mut self, key: &str, inner: &EntryList) {
        if let Some(at) = self.position(key) {
            self.put_text(at, inner.text());
        }
    }

    /// Appends an entry; with a key to an object, without one to an array.
    pub fn push(&mut self, key: Option<&str>, value: &Json) {
        let multiline = self.entries.last().map_or(self.format.multiline, |last| last.indent().is_some());
        let deeper = format!("{}{}", self.format.indent, self.format.unit);
        let indent = self.entries.last().and_then(|last| last.indent()).unwrap_or(&deeper).to_owned();
        // White space before the new entry, and before the bracket if the list was empty.
        let (own_line, bracket_line) = if multiline {
            let newline = self.format.newline;
            (format!("{newline}{indent}"), format!("{newline}{}", self.format.indent))
        } else if self.entries.is_empty() {
            (String::new(), String::new())
        } else {
            let same_as_last = self
                .entries
                .last()
                .map(|last| &last.before)
                .filter(|before| self.entries.len() > 1 && before.chars().all(char::is_whitespace));
            (same_as_last.map_or_else(|| " ".to_owned(), Clone::clone), String::new())
        };
        let key = key.map(|name| EntryKey { name: name.to_owned(), text: self.key_text(name, multiline) });
        let spaced =
            key.as_ref().map_or(own_line == " " && self.entries.len() > 1, |key| key.text.ends_with(' '));
        let value = self.format.render(value, &indent, multiline, spaced);
        let trailing_comma = self.entries.last().is_some_and(|last| last.comma);
        // The text before the bracket: comments go before the new entry, the last line break stays last.
        let trivia = match self.entries.last_mut().filter(|last| !last.comma) {
            Some(last) => {
                let last = Arc::make_mut(last);
                last.comma = true;
                std::mem::take(&mut last.after)
            }
            None => std::mem::take(&mut self.end),
        };
        let (comments, space) = split_comments(&trivia);
        let own_line = if !comments.is_empty() && space.contains('\n') {
            format!("{}{indent}", self.format.newline)
        } else {
            own_line
        };
        let space = if space.is_empty() && self.entries.is_empty() { bracket_line } else { space.to_owned() };
        let before = format!("{comments}{own_line}");
        let mut entry = ListEntry { before, key, value, after: space, comma: trailing_comma };
        if trailing_comma {
            self.end = std::mem::take(&mut entry.after);
        }
        self.entries.push(Arc::new(entry));
    }

    /// Removes an entry. Comments next to it stay.
    pub fn remove(&mut self, at: usize) {
        let removed = self.entries.remove(at);
        let ListEntry { before, after, comma, .. } = &*removed;
        if let Some(next) = self.entries.get_mut(at) {
            let next = Arc::make_mut(next);
            next.before = join_trivia(&[before, after, &next.before], KeptSpace::First);
        } else if *comma || self.entries.is_empty() {
            self.end = join_trivia(&[before, after, &self.end], KeptSpace::Last);
        } else if let Some(last) = self.entries.last_mut() {
            let last = Arc::make_mut(last);
            last.comma = false;
            last.after = join_trivia(&[&last.after, before, after], KeptSpace::Last);
        }
    }

    /// Renders `"key": ` in the format of the other keys.
    fn key_text(&self, name: &str, multiline: bool) -> String {
        let same_as_last = self.entries.last().and_then(|last| {
            let text = &last.key.as_ref()?.text;
            let colon = &text[text.rfind('"')? + 1..];
            (colon.trim() == ":").then_some(colon)
        });
        let colon = same_as_last.unwrap_or(if multiline { ": " } else { ":" });
        format!("{}{colon}", Json::from(name))
    }
}

impl ListEntry {
    /// Returns the indentation of the entry, if it starts a line.
    fn indent(&self) -> Option<&str> {
        let line = &self.before[self.before.rfind('\n')? + 1..];
        Some(&line[..line.len() - line.trim_start().len()])
    }
}

impl TextFormat {
    fn render(&self, value: &Json, indent: &str, multiline: bool, spaced: bool) -> String {
        let mut text = String::new();
        match (multiline, spaced) {
            (true, _) => self.write_lines(value, indent, &mut text),
            (false, true) => write_spaced(value, &mut text),
            (false, false) => text = value.to_string(),
        }
        text
    }

    /// Writes a value. Objects get one line per key; so do arrays that hold more than scalars per element.
    fn write_lines(&self, value: &Json, indent: &str, out: &mut String) {
        let deeper = format!("{indent}{}", self.unit);
        let scalar = |value: &Json| !value.is_object() && !value.is_array();
        match value {
            Json::Object(fields) if !fields.is_empty() => {
                for (index, (key, value)) in fields.iter().enumerate() {
                    let before = if index == 0 { "{" } else { "," };
                    out.push_str(&format!("{before}{}{deeper}{}: ", self.newline, Json::from(key.as_str())));
                    self.write_lines(value, &deeper, out);
                }
                out.push_str(&format!("{}{indent}}}", self.newline));
            }
            Json::Array(elements) if !elements.iter().all(scalar) => {
                for (index, element) in elements.iter().enumerate() {
                    let before = if index == 0 { "[" } else { "," };
                    out.push_str(&format!("{before}{}{deeper}", self.newline));
                    self.write_lines(element, &deeper, out);
                }
                out.push_str(&format!("{}{indent}]", self.newline));
            }
            value => write_spaced(value, out),
        }
    }
}

/// Writes a value on one line, with spaces.
fn write_spaced(value: &Json, out: &mut String) {
    match value {
        Json::Object(fields) if !fields.is_empty() => {
            for (index, (key, value)) in fields.iter().enumerate() {
                let before = if index == 0 { "{" } else { "," };
                out.push_str(&format!("{before} {}: ", Json::from(key.as_str())));
                write_spaced(value, out);
            }
            out.push_str(" }");
        }
        Json::Array(elements) => {
            out.push('[');
            for (index, element) in elements.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                write_spaced(element, out);
            }
            out.push(']');
        }
        value => out.push_str(&value.to_string()),
    }
}

/// Splits white space and comments after the last comment; spaces behind a comment stay on its line.
fn split_comments(trivia: &str) -> (&str, &str) {
    let end = trivia.trim_end().len();
    if end == 0 {
        return ("", trivia);
    }
    let line = trivia[end..].find(['\r', '\n']).map_or(end, |at| end + at);
    trivia.split_at(line)
}

/// Selects the piece whose white space remains after a removal.
#[derive(Clone, Copy)]
enum KeptSpace {
    First,
    Last,
}

/// Joins pieces of white space and comments: keeps all comments, and the white space of the selected piece.
fn join_trivia(pieces: &[&str], kept: KeptSpace) -> String {
    let blank = |piece: &&&str| piece.trim().is_empty();
    if pieces.iter().all(|piece| piece.trim().is_empty()) {
        let piece = match kept {
            KeptSpace::First => pieces.first(),
            KeptSpace::Last => pieces.last(),
        };
        return piece.map(|piece| (*piece).to_owned()).unwrap_or_default();
    }
    let mut all = String::new();
    for piece in pieces.iter().filter(|piece| !blank(piece)) {
        let at_space = all.ends_with(char::is_whitespace);
        all.push_str(if at_space { piece.trim_start_matches([' ', '\t']) } else { piece });
    }
    // The bracket keeps its line.
    if let (KeptSpace::Last, Some(last)) = (kept, pieces.last().filter(blank)) {
        let (comments, _) = split_comments(&all);
        // A line comment needs its line break.
        let space = last.find(['\r', '\n']).map_or(&all[comments.len()..], |line| &last[line..]);
        all = format!("{comments}{space}");
    }
    all
}

/// Parses JSON with comments. The parser rejects values nested deeper than about 512 levels.
pub(crate) fn parse_value(text: &str) -> Result<Ast<'_>, TextError> {
    let parsed = parse_to_ast(text, &CollectOptions::default(), &OPTIONS)
        .map_err(|error| TextError::Syntax(Arc::new(error)))?;
    parsed.value.ok_or(TextError::Empty)
}

/// Parses JSON with comments to a value. `None` for a number that JSON does not have.
pub(crate) fn parse_json(text: &str) -> Option<Json> {
    to_json(parse_value(text).ok()?)
}

fn to_json(value: Ast<'_>) -> Option<Json> {
    Some(match value {
        Ast::NullKeyword(_) => Json::Null,
        Ast::BooleanLit(literal) => literal.value.into(),
        Ast::NumberLit(literal) => serde_json::from_str(literal.value).ok()?,
        Ast::StringLit(literal) => literal.value.into_owned().into(),
        Ast::Array(array) => array.elements.into_iter().map(to_json).collect::<Option<_>>()?,
        Ast::Object(object) => {
            let member = |property: jsonc_parser::ast::ObjectProp<'_>| {
                Some((property.name.into_string(), to_json(property.value)?))
            };
            object.properties.into_iter().map(member).collect::<Option<Map<_, _>>>()?.into()
        }
    })
}

/// Position of an entry in a text.
struct EntrySpan {
    /// Decoded key, for an entry of an object.
    name: Option<String>,
    /// Start of the key, or of the value if there is no key.
    start: usize,
    value: Range,
}

/// Returns the entries of an object or an array, and `None` for other values.
fn entry_spans(value: Ast<'_>) -> Option<Vec<EntrySpan>> {
    match value {
        Ast::Object(object) => {
            let spans = object.properties.into_iter().map(|property| EntrySpan {
                start: property.range.start,
                value: property.value.range(),
                name: Some(property.name.into_string()),
            });
            Some(spans.collect())
        }
        Ast::Array(array) => {
            let spans = array.elements.iter().map(|element| EntrySpan {
                name: None,
                start: element.range().start,
                value: element.range(),
            });
            Some(spans.collect())
        }
        _ => None,
    }
}

/// Returns the position of the comma in white space and comments.
fn find_comma(trivia: &str) -> Option<usize> {
    let mut scanner = Scanner::new(trivia, &ScannerOptions::default());
    while let Ok(Some(token)) = scanner.scan() {
        if token == Token::Comma {
            return Some(scanner.token_start());
        }
    }
    None
}
