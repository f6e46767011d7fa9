//! `.env` files: lines of `NAME=value`, with optional `export`, comments and quotes.
//!
//! References in values are not resolved: a `.env` file holds values, not templates. Double quotes support
//! `\n`, `\t`, `\"`, `\\` and multiple lines; single quotes are literal.

use super::clamp_span;
use crate::problem::Problem;
use crate::source::{SourceId, Span};

/// A variable and the location of its name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EnvVariable {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) span: Span,
}

/// Reads every valid line and returns the problems of the others.
pub(crate) fn read(text: &str, id: SourceId) -> (Vec<EnvVariable>, Vec<Problem>) {
    let (mut variables, mut problems) = (Vec::new(), Vec::new());
    // Some editors start every file with a byte order mark.
    let mut at = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    while at < text.len() {
        let end = line_end(text, at);
        let line = &text[at..end];
        let start = at + (line.len() - line.trim_start().len());
        let content = line.trim();
        at = end + 1;
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let wrong =
            |message: &str, hint: &str| Problem::error(clamp_span(text, id, start, end), message).hint(hint);
        let (exported, declaration) = match content.strip_prefix("export ") {
            Some(rest) => (content.len() - rest.trim_start().len(), rest.trim_start()),
            None => (0, content),
        };
        let Some((name, _)) = declaration.split_once('=') else {
            problems
                .push(wrong("this line sets no variable", "write `NAME=value`, or start a comment with `#`"));
            continue;
        };
        let name_length = name.len();
        let name = name.trim_end();
        if !is_name(name) {
            problems.push(wrong("this is not a valid variable name", "names are letters, digits and `_`"));
            continue;
        }
        let from = start + exported + name_length + 1;
        match parse_value(text, from, end) {
            Ok((value, past)) => {
                let span = clamp_span(text, id, start + exported, start + exported + name.len());
                variables.push(EnvVariable { name: name.to_owned(), value, span });
                at = line_end(text, past) + 1;
            }
            Err(quote) => {
                problems.push(wrong(
                    &format!("the closing {quote} is missing"),
                    "close the quote, or remove both",
                ));
            }
        }
    }
    (variables, problems)
}

/// Returns true if the string is a valid name of an environment variable.
pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn line_end(text: &str, at: usize) -> usize {
    text[at.min(text.len())..].find('\n').map_or(text.len(), |length| at + length)
}

/// Parses the value that starts at `from` and returns it with its end, or the quote that is not closed.
fn parse_value(text: &str, from: usize, end: usize) -> Result<(String, usize), char> {
    let raw = &text[from..end];
    let start = from + (raw.len() - raw.trim_start().len());
    match text[start..].chars().next().filter(|_| start < end) {
        Some(quote @ ('\'' | '"')) => parse_quoted(text, start + 1, quote).ok_or(quote),
        _ => {
            // A comment starts at a `#` after white space; `a#b` is a value.
            let stop =
                raw.match_indices('#').find(|(at, _)| *at == 0 || raw[..*at].ends_with(char::is_whitespace));
            let value = stop.map_or(raw, |(at, _)| &raw[..at]);
            Ok((value.trim().to_owned(), end))
        }
    }
}

fn parse_quoted(text: &str, from: usize, quote: char) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut chars = text[from..].char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            _ if c == quote => return Some((value, from + at + 1)),
            '\\' if quote == '"' => match chars.next()?.1 {
                'n' => value.push('\n'),
                'r' => value.push('\r'),
                't' => value.push('\t'),
                known @ ('"' | '\\' | '$' | '\'') => value.push(known),
                other => value.extend(['\\', other]),
            },
            _ => value.push(c),
        }
    }
    None
}
