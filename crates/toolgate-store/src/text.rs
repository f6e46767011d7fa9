//! JSON texts, changed entry by entry: comments, order, formatting and unknown keys stay.
//!
//! A [`List`] is the text of one object or array, cut at its entries; put together again it is the same
//! text, byte by byte. Invariant: a change touches the entry it is about, and the comma and the white space
//! around it; every comment outside of it stays.

use std::sync::Arc;

use jsonc_parser::errors::ParseError;
use jsonc_parser::tokens::Token;
use jsonc_parser::{CollectOptions, ParseOptions, Scanner, ScannerOptions, parse_to_ast};
use serde_json::Value as Json;

#[cfg(test)]
mod tests;

/// What is allowed beyond the standard. Nothing that changes what a value means.
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

/// Why a text cannot be cut at its entries.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TextError {
    /// It is not JSON.
    #[error("it is not valid JSON")]
    Syntax(#[source] Arc<ParseError>),
    /// It is not JSON, in a way that only matters here.
    #[error("it is not valid JSON: {what} at byte {at}")]
    Cut {
        /// What was found.
        what: &'static str,
        /// Where.
        at: usize,
    },
    /// It is JSON, but not an object or an array.
    #[error("it is neither an object nor an array")]
    Shape,
}

/// An object or an array, cut at its entries.
#[derive(Debug, Clone)]
pub struct List {
    /// All before the first entry, up to the bracket.
    open: String,
    items: Vec<Arc<Item>>,
    /// What is between the last comma, or the bracket where there is no entry, and the end.
    end: String,
    /// From the closing bracket on.
    close: String,
    style: Style,
}

/// One entry with what is around it.
#[derive(Debug, Clone)]
struct Item {
    /// White space and comments before it.
    lead: String,
    key: Option<Key>,
    value: String,
    /// White space and comments between it and its comma, or the end.
    tail: String,
    comma: bool,
}

#[derive(Debug, Clone)]
struct Key {
    name: String,
    /// As it is written, with the colon and the white space behind it.
    text: String,
}

/// How new text is written.
#[derive(Debug, Clone)]
struct Style {
    /// Of the line that the list begins in.
    indent: String,
    /// One level more.
    unit: String,
    newline: &'static str,
    /// Whether a first entry gets a line of its own.
    lines: bool,
}

impl List {
    /// Cuts a text that is one object or array, with whatever comments around it.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        parse_to_ast(text, &CollectOptions::default(), &OPTIONS)
            .map_err(|error| TextError::Syntax(Arc::new(error)))?;
        Self::cut(text)
    }

    /// The same of a text that is known to be JSON.
    pub(crate) fn cut(text: &str) -> Result<Self, TextError> {
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let style = Style { indent: String::new(), unit: "  ".to_owned(), newline, lines: true };
        let mut list = Cutter::new(text).list(style)?;
        list.style.lines = text.trim().contains('\n') || list.items.is_empty();
        if let Some(unit) = list.items.iter().find_map(|item| item.indent()).filter(|unit| !unit.is_empty()) {
            list.style.unit = unit.to_owned();
        }
        Ok(list)
    }

    /// The list that is the value of a key.
    pub fn inner(&self, key: &str) -> Option<Result<Self, TextError>> {
        self.at(key).map(|at| self.inner_at(at))
    }

    /// Whether an entry is an object.
    pub(crate) fn is_object_at(&self, at: usize) -> bool {
        self.items[at].value.starts_with('{')
    }

    /// The list that is an entry, by its place.
    pub(crate) fn inner_at(&self, at: usize) -> Result<Self, TextError> {
        let Item { value, .. } = &*self.items[at];
        let indent = self.items[at].indent().unwrap_or(&self.style.indent).to_owned();
        let mut list = Cutter::new(value).list(Style { indent, ..self.style.clone() })?;
        list.style.lines = value.contains('\n') || list.items.is_empty() && self.style.lines;
        Ok(list)
    }

    /// The text.
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(self.len_bytes());
        text.push_str(&self.open);
        for item in &self.items {
            text.push_str(&item.lead);
            if let Some(key) = &item.key {
                text.push_str(&key.text);
            }
            text.push_str(&item.value);
            text.push_str(&item.tail);
            if item.comma {
                text.push(',');
            }
        }
        text.push_str(&self.end);
        text.push_str(&self.close);
        text
    }

    fn len_bytes(&self) -> usize {
        let of = |item: &Arc<Item>| {
            let key = item.key.as_ref().map_or(0, |key| key.text.len());
            item.lead.len() + key + item.value.len() + item.tail.len() + 1
        };
        self.open.len() + self.items.iter().map(of).sum::<usize>() + self.end.len() + self.close.len()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether it is an object.
    pub fn is_object(&self) -> bool {
        self.open.ends_with('{')
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The keys of an object, in their order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.items.iter().filter_map(|item| Some(item.key.as_ref()?.name.as_str()))
    }

    /// The texts of the entries, in their order.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.items.iter().map(|item| item.value.as_str())
    }

    /// The text of the value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.at(key).map(|at| self.items[at].value.as_str())
    }

    /// The place of a key.
    pub fn at(&self, key: &str) -> Option<usize> {
        self.items.iter().position(|item| item.key.as_ref().is_some_and(|own| own.name == key))
    }

    /// Gives a key of an object a value: in its place, or at the end.
    pub fn set(&mut self, key: &str, value: &Json) {
        match self.at(key) {
            Some(at) => self.replace(at, value),
            None => self.push(Some(key), value),
        }
    }

    /// Writes another value in the place of one.
    pub fn replace(&mut self, at: usize, value: &Json) {
        let indent = self.items[at].indent().unwrap_or(&self.style.indent).to_owned();
        let old = &self.items[at].value;
        let scalar = !old.starts_with(['{', '[']);
        let lines = old.contains('\n') || self.style.lines && (scalar || old.len() == 2);
        let spaced = self.style.lines || old.contains("\": ");
        let text = self.style.written(value, &indent, lines, spaced);
        self.put(at, text);
    }

    /// Puts a text, which is JSON, in the place of a value.
    pub fn put(&mut self, at: usize, text: String) {
        Arc::make_mut(&mut self.items[at]).value = text;
    }

    /// Puts the text of an inner list, changed, in its place.
    pub fn put_inner(&mut self, key: &str, inner: &List) {
        if let Some(at) = self.at(key) {
            self.put(at, inner.text());
        }
    }

    /// Adds an entry at the end; with a key to an object, without one to an array.
    pub fn push(&mut self, key: Option<&str>, value: &Json) {
        let lines = self.items.last().map_or(self.style.lines, |last| last.indent().is_some());
        let deeper = format!("{}{}", self.style.indent, self.style.unit);
        let indent = self.items.last().and_then(|last| last.indent()).unwrap_or(&deeper).to_owned();
        let (own_line, last_line) = if lines {
            (
                format!("{}{indent}", self.style.newline),
                format!("{}{}", self.style.newline, self.style.indent),
            )
        } else if self.items.is_empty() {
            (String::new(), String::new())
        } else {
            let same = self
                .items
                .last()
                .map(|last| &last.lead)
                .filter(|lead| self.items.len() > 1 && lead.chars().all(char::is_whitespace));
            (same.map_or_else(|| " ".to_owned(), Clone::clone), String::new())
        };
        let key = key.map(|name| Key { name: name.to_owned(), text: self.key_text(name, lines) });
        let spaced =
            key.as_ref().map_or(own_line == " " && self.items.len() > 1, |key| key.text.ends_with(' '));
        let value = self.style.written(value, &indent, lines, spaced);
        let trailing = self.items.last().is_some_and(|last| last.comma);
        // What stands before the bracket now: comments go before the new entry, the last line break stays last.
        let before = match self.items.last_mut().filter(|last| !last.comma) {
            Some(last) => {
                let last = Arc::make_mut(last);
                last.comma = true;
                std::mem::take(&mut last.tail)
            }
            None => std::mem::take(&mut self.end),
        };
        let (comments, rest) = comments(&before);
        let own_line = if !comments.is_empty() && rest.contains('\n') {
            format!("{}{indent}", self.style.newline)
        } else {
            own_line
        };
        let rest = if rest.is_empty() && self.items.is_empty() { last_line } else { rest.to_owned() };
        let mut item =
            Item { lead: format!("{comments}{own_line}"), key, value, tail: rest, comma: trailing };
        if trailing {
            self.end = std::mem::take(&mut item.tail);
        }
        self.items.push(Arc::new(item));
    }

    /// Takes an entry out. Comments beside it stay.
    pub fn remove(&mut self, at: usize) {
        let removed = self.items.remove(at);
        let Item { lead, tail, comma, .. } = &*removed;
        if let Some(next) = self.items.get_mut(at) {
            let next = Arc::make_mut(next);
            next.lead = joined(&[lead, tail, &next.lead], First);
        } else if *comma || self.items.is_empty() {
            self.end = joined(&[lead, tail, &self.end], Last);
        } else if let Some(last) = self.items.last_mut() {
            let last = Arc::make_mut(last);
            last.comma = false;
            last.tail = joined(&[&last.tail, lead, tail], Last);
        }
    }

    /// `"key": `, as the others have it.
    fn key_text(&self, name: &str, lines: bool) -> String {
        let others = self.items.last().and_then(|last| {
            let text = &last.key.as_ref()?.text;
            let behind = &text[text.rfind('"')? + 1..];
            (behind.trim() == ":").then_some(behind)
        });
        let behind = others.unwrap_or(if lines { ": " } else { ":" });
        format!("{}{behind}", Json::from(name))
    }
}

impl Item {
    /// How far it is indented, where it begins a line.
    fn indent(&self) -> Option<&str> {
        let line = &self.lead[self.lead.rfind('\n')? + 1..];
        Some(&line[..line.len() - line.trim_start().len()])
    }
}

impl Style {
    fn written(&self, value: &Json, indent: &str, lines: bool, spaced: bool) -> String {
        let mut text = String::new();
        match (lines, spaced) {
            (true, _) => self.write(value, indent, &mut text),
            (false, true) => spaced_line(value, &mut text),
            (false, false) => text = value.to_string(),
        }
        text
    }

    /// Objects get lines; so do arrays that hold more than plain values.
    fn write(&self, value: &Json, indent: &str, out: &mut String) {
        let deeper = format!("{indent}{}", self.unit);
        let plain = |item: &Json| !item.is_object() && !item.is_array();
        match value {
            Json::Object(fields) if !fields.is_empty() => {
                for (index, (key, value)) in fields.iter().enumerate() {
                    let before = if index == 0 { "{" } else { "," };
                    out.push_str(&format!("{before}{}{deeper}{}: ", self.newline, Json::from(key.as_str())));
                    self.write(value, &deeper, out);
                }
                out.push_str(&format!("{}{indent}}}", self.newline));
            }
            Json::Array(items) if !items.iter().all(plain) => {
                for (index, item) in items.iter().enumerate() {
                    let before = if index == 0 { "[" } else { "," };
                    out.push_str(&format!("{before}{}{deeper}", self.newline));
                    self.write(item, &deeper, out);
                }
                out.push_str(&format!("{}{indent}]", self.newline));
            }
            value => spaced_line(value, out),
        }
    }
}

/// On one line, as people write it.
fn spaced_line(value: &Json, out: &mut String) {
    match value {
        Json::Object(fields) if !fields.is_empty() => {
            for (index, (key, value)) in fields.iter().enumerate() {
                out.push_str(&format!(
                    "{} {}: ",
                    if index == 0 { "{" } else { "," },
                    Json::from(key.as_str())
                ));
                spaced_line(value, out);
            }
            out.push_str(" }");
        }
        Json::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                spaced_line(item, out);
            }
            out.push(']');
        }
        value => out.push_str(&value.to_string()),
    }
}

/// White space and comments, cut behind the last comment; what is on its line stays with it.
fn comments(trivia: &str) -> (&str, &str) {
    let end = trivia.trim_end().len();
    if end == 0 {
        return ("", trivia);
    }
    let line = trivia[end..].find(['\r', '\n']).map_or(end, |at| end + at);
    trivia.split_at(line)
}

/// Which white space stays where there is nothing else.
enum Stays {
    First,
    Last,
}
use Stays::{First, Last};

/// Pieces of white space and comments as one: all comments, and the white space of the piece that stays.
fn joined(pieces: &[&str], stays: Stays) -> String {
    let blank = |piece: &&&str| piece.trim().is_empty();
    if pieces.iter().all(|piece| piece.trim().is_empty()) {
        let piece = match stays {
            First => pieces.first(),
            Last => pieces.last(),
        };
        return piece.map(|piece| (*piece).to_owned()).unwrap_or_default();
    }
    let mut all = String::new();
    for piece in pieces.iter().filter(|piece| !blank(piece)) {
        let at_space = all.ends_with(char::is_whitespace);
        all.push_str(if at_space { piece.trim_start_matches([' ', '\t']) } else { piece });
    }
    // The bracket keeps its line.
    if let (Last, Some(last)) = (stays, pieces.last().filter(blank)) {
        let (comments, _) = comments(&all);
        // A comment to the end of its line needs that end.
        let rest = last.find(['\r', '\n']).map_or(&all[comments.len()..], |line| &last[line..]);
        all = format!("{comments}{rest}");
    }
    all
}

/// Finds the ends of entries. It knows no more of JSON than that.
struct Cutter<'a> {
    text: &'a str,
    scanner: Scanner<'a>,
}

/// What matters of a token.
enum Mark {
    Open,
    Close,
    Comma,
    Colon,
    String(String),
    Other,
}

impl<'a> Cutter<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, scanner: Scanner::new(text, &ScannerOptions::default()) }
    }

    fn syntax(&self, what: &'static str) -> TextError {
        TextError::Cut { what, at: self.scanner.token_start().min(self.text.len()) }
    }

    /// The next token that is no comment, with its place.
    fn next(&mut self) -> Result<Option<(Mark, usize, usize)>, TextError> {
        loop {
            let token = self.scanner.scan().map_err(|_| self.syntax("an unknown character"))?;
            let mark = match token {
                None => return Ok(None),
                Some(Token::CommentLine(_) | Token::CommentBlock(_)) => continue,
                Some(Token::OpenBrace | Token::OpenBracket) => Mark::Open,
                Some(Token::CloseBrace | Token::CloseBracket) => Mark::Close,
                Some(Token::Comma) => Mark::Comma,
                Some(Token::Colon) => Mark::Colon,
                Some(Token::String(text)) => Mark::String(text.into_owned()),
                Some(Token::Word(_) | Token::Boolean(_) | Token::Number(_) | Token::Null) => Mark::Other,
            };
            return Ok(Some((mark, self.scanner.token_start(), self.scanner.token_end())));
        }
    }

    fn some(&mut self) -> Result<(Mark, usize, usize), TextError> {
        self.next()?.ok_or_else(|| self.syntax("the end of the text"))
    }

    fn list(mut self, style: Style) -> Result<List, TextError> {
        let (mark, start, open_end) = self.some()?;
        if !matches!(mark, Mark::Open) {
            return Err(TextError::Shape);
        }
        let is_object = self.text[start..].starts_with('{');
        let (mut items, mut from): (Vec<Arc<Item>>, _) = (Vec::new(), open_end);
        let close = loop {
            let (mark, start, end) = self.some()?;
            if matches!(mark, Mark::Close) {
                break start;
            }
            let lead = self.text[from..start].to_owned();
            let (key, (mark, start, end)) =
                if is_object { self.member(mark, start)? } else { (None, (mark, start, end)) };
            let end = self.value(&mark, end)?;
            let (after, stop, behind) = self.some()?;
            let comma = matches!(after, Mark::Comma);
            let (value, tail) = (self.text[start..end].to_owned(), self.text[end..stop].to_owned());
            items.push(Arc::new(Item { lead, key, value, tail, comma }));
            match after {
                Mark::Comma => from = behind,
                Mark::Close => {
                    from = stop;
                    break stop;
                }
                _ => return Err(self.syntax("a missing comma")),
            }
        };
        if self.next()?.is_some() {
            return Err(self.syntax("something behind the end"));
        }
        let (open, end) = (self.text[..open_end].to_owned(), self.text[from..close].to_owned());
        Ok(List { open, items, end, close: self.text[close..].to_owned(), style })
    }

    /// A key and its colon, then the first token of its value.
    #[expect(clippy::type_complexity, reason = "a token is three values here and everywhere")]
    fn member(&mut self, mark: Mark, start: usize) -> Result<(Option<Key>, (Mark, usize, usize)), TextError> {
        let Mark::String(name) = mark else { return Err(self.syntax("a missing key")) };
        if !matches!(self.some()?.0, Mark::Colon) {
            return Err(self.syntax("a missing colon"));
        }
        let value = self.some()?;
        Ok((Some(Key { name, text: self.text[start..value.1].to_owned() }), value))
    }

    /// Where a value ends that began with this token.
    fn value(&mut self, first: &Mark, end: usize) -> Result<usize, TextError> {
        match first {
            Mark::String(_) | Mark::Other => return Ok(end),
            Mark::Open => {}
            Mark::Close | Mark::Comma | Mark::Colon => return Err(self.syntax("a missing value")),
        }
        let mut depth = 1;
        loop {
            let (mark, _, end) = self.some()?;
            match mark {
                Mark::Open => depth += 1,
                Mark::Close => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Ok(end);
            }
        }
    }
}
