//! Texts of each format become trees with places.
//!
//! A reader stops at the first syntax error, since what follows one is guesswork; every error of
//! meaning is found later, all at once. Invariant: bounded in size, depth and nodes; never panics.

pub(crate) mod dotenv;
pub(crate) mod json;
pub(crate) mod toml;
pub(crate) mod yaml;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use crate::node::{Entry, Node};
use crate::problem::Problem;
use crate::source::{SourceId, Sources, Span};

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Yaml,
    Json,
    Toml,
}

impl Format {
    /// By the end of a file's name; YAML, which holds JSON, where it says nothing.
    pub(crate) fn of(name: &str) -> Self {
        match name.rsplit_once('.').map(|(_, end)| end) {
            Some("json" | "jsonc") => Self::Json,
            Some("toml") => Self::Toml,
            _ => Self::Yaml,
        }
    }
}

/// Reads a text. The problem says why it cannot be read.
pub(crate) fn read(sources: &Sources, id: SourceId, format: Format) -> Result<Node, Problem> {
    let text = sources.get(id).text();
    if text.starts_with('\u{feff}') {
        let span = Span::new(id, 0, '\u{feff}'.len_utf8());
        return Err(Problem::error(span, "the file starts with a byte order mark")
            .hint("save it as UTF-8 without a byte order mark"));
    }
    match format {
        Format::Yaml => yaml::read(text, id),
        Format::Json => json::read(text, id),
        Format::Toml => toml::read(text, id),
    }
}

/// A span that is sure to lie inside the text, whatever a parser said.
pub(crate) fn clamp(text: &str, id: SourceId, start: usize, end: usize) -> Span {
    let floor = |at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    Span::new(id, floor(start), floor(end))
}

/// Refuses a map that has a key twice: which one counts is anybody's guess.
pub(crate) fn unique(entries: &[Entry]) -> Result<(), Problem> {
    let mut seen: HashMap<&str, Span> = HashMap::with_capacity(entries.len());
    for entry in entries {
        if seen.insert(&entry.key, entry.key_span).is_some() {
            return Err(Problem::error(entry.key_span, format!("the key `{}` is given twice", entry.key))
                .hint("keep one of the two"));
        }
    }
    Ok(())
}

pub(crate) fn too_deep(span: Span) -> Problem {
    // All that is nested in it would be a long line of carets.
    let start = Span::new(span.source, span.start, span.start);
    Problem::error(start, format!("more than {} levels of nesting", crate::node::DEEPEST))
        .hint("no configuration needs that many; look for brackets that were not closed")
}

pub(crate) fn too_many(span: Span) -> Problem {
    Problem::error(span, format!("more than {} values in one file", crate::node::MOST_NODES))
        .hint("aliases count as often as they are used")
}

/// A text as JSON, whichever of YAML and JSON it is: a document that did not come from a file.
///
/// # Errors
/// Why it is neither, with its place.
pub fn document(text: &str) -> Result<Box<serde_json::value::RawValue>, String> {
    let mut sources = Sources::default();
    let format = if text.trim_start().starts_with('{') { Format::Json } else { Format::Yaml };
    let id = sources.add("document", text, None);
    match read(&sources, id, format) {
        Ok(node) => Ok(node.to_json()),
        Err(problem) => {
            let place = problem.span.map(|span| sources.place(span)).unwrap_or_default();
            Err(format!("{} at {place}", problem.message))
        }
    }
}
