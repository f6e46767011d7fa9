//! Parsers of each file format. They produce trees with locations.
//!
//! A parser stops at the first syntax error, since everything after it is guesswork; semantic errors are all found
//! later. Invariant: bounded in size, depth and nodes; never panics.

pub(crate) mod dotenv;
pub(crate) mod json;
pub(crate) mod toml;
pub(crate) mod yaml;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use crate::node::{MapEntry, Node};
use crate::problem::Problem;
use crate::source::{SourceId, SourceMap, Span};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileFormat {
    Yaml,
    Json,
    Toml,
}

impl FileFormat {
    /// Returns the format for a file name's extension. Default: YAML, a superset of JSON.
    pub(crate) fn of(name: &str) -> Self {
        match name.rsplit_once('.').map(|(_, end)| end) {
            Some("json" | "jsonc") => Self::Json,
            Some("toml") => Self::Toml,
            _ => Self::Yaml,
        }
    }

    /// Returns the format of a text without a file name, by its first line with content.
    pub(crate) fn guess(text: &str) -> Self {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        match lines.next() {
            Some(line) if line.starts_with('{') || line.starts_with("//") || line.starts_with("/*") => {
                Self::Json
            }
            Some(line) if line.starts_with('[') && line.contains(']') => Self::Toml,
            Some(line) if line.split(':').next().is_some_and(|key| key.contains('=')) => Self::Toml,
            _ => Self::Yaml,
        }
    }
}

/// Parses a source, or returns the problem that prevents it.
pub(crate) fn read(sources: &SourceMap, id: SourceId, format: FileFormat) -> Result<Node, Problem> {
    let text = sources.get(id).text();
    if text.starts_with('\u{feff}') {
        let span = Span::new(id, 0, '\u{feff}'.len_utf8());
        return Err(Problem::error(span, "the file starts with a byte order mark")
            .hint("save it as UTF-8 without a byte order mark"));
    }
    match format {
        FileFormat::Yaml => yaml::read(text, id),
        FileFormat::Json => json::read(text, id),
        FileFormat::Toml => toml::read(text, id),
    }
}

/// Creates a span that lies inside the text, even if a parser reports an invalid range.
pub(crate) fn clamp_span(text: &str, id: SourceId, start: usize, end: usize) -> Span {
    let floor = |at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    Span::new(id, floor(start), floor(end))
}

/// Rejects duplicate keys, since the intended one is ambiguous.
pub(crate) fn check_unique_keys(entries: &[MapEntry]) -> Result<(), Problem> {
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
    // Underlines the start only, not everything nested in it.
    let start = Span::new(span.source, span.start, span.start);
    Problem::error(start, format!("more than {} levels of nesting", crate::node::MAX_DEPTH))
        .hint("no configuration needs that many; look for brackets that were not closed")
}

pub(crate) fn too_many(span: Span) -> Problem {
    Problem::error(span, format!("more than {} values in one file", crate::node::MAX_NODES))
        .hint("aliases count as often as they are used")
}

/// Converts a document that did not come from a file, in YAML or JSON, to JSON.
///
/// # Errors
/// Returns the syntax error and its location.
pub fn parse_document(text: &str) -> Result<Box<serde_json::value::RawValue>, String> {
    let mut sources = SourceMap::default();
    let format = if text.trim_start().starts_with('{') { FileFormat::Json } else { FileFormat::Yaml };
    let id = sources.add("document", text, None);
    match read(&sources, id, format) {
        Ok(node) => Ok(node.to_json()),
        Err(problem) => {
            let place = problem.span.map(|span| sources.location(span)).unwrap_or_default();
            Err(format!("{} at {place}", problem.message))
        }
    }
}
