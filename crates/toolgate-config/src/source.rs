//! The texts a configuration was read from, and places in them.
//!
//! A place is a [`Span`]: which text, from which byte to which. Lines and columns are worked out
//! only when a problem is shown. Invariant: a span lies inside its text, on character boundaries.

use std::path::{Path, PathBuf};

/// The largest file that is read: a registry of 100,000 tools fits.
pub(crate) const LARGEST_FILE: u64 = 64 << 20;

/// One of the texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(u32);

/// A place in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    pub(crate) source: SourceId,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// A text: a file, or the value of an environment variable that overrides one.
#[derive(Debug)]
pub struct Source {
    name: String,
    text: String,
    /// Where the file is, for relative paths in it. `None` for a variable.
    path: Option<PathBuf>,
    line_starts: Vec<usize>,
}

/// All texts of a configuration.
#[derive(Debug, Default)]
pub struct Sources(Vec<Source>);

/// Line and column of a place, both from 1; the column counts characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
}

impl Sources {
    pub(crate) fn add(
        &mut self,
        name: impl Into<String>,
        text: impl Into<String>,
        path: Option<PathBuf>,
    ) -> SourceId {
        let text = text.into();
        let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let id = u32::try_from(self.0.len()).expect("a configuration has fewer than four billion files");
        self.0.push(Source { name: name.into(), text, path, line_starts });
        SourceId(id)
    }

    /// The text behind an id.
    pub fn get(&self, id: SourceId) -> &Source {
        &self.0[id.0 as usize]
    }

    /// All texts, in the order they were read.
    pub fn iter(&self) -> impl Iterator<Item = &Source> {
        self.0.iter()
    }

    pub(crate) fn text(&self, span: Span) -> &str {
        &self.get(span.source).text[span.start..span.end]
    }

    /// `toolgate.yaml:14:5`, or the name alone for an environment variable.
    pub fn place(&self, span: Span) -> String {
        let source = self.get(span.source);
        match source.path {
            Some(_) => {
                let Position { line, column } = source.position(span.start);
                format!("{}:{line}:{column}", source.name)
            }
            None => source.name.clone(),
        }
    }
}

impl Source {
    /// The name people know it by: a path relative to the project, or `environment variable X`.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The file, unless this is the value of a variable.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The line and column of a byte.
    pub fn position(&self, at: usize) -> Position {
        let line = self.line_starts.partition_point(|start| *start <= at) - 1;
        let column = self.text[self.line_starts[line]..at].chars().count() + 1;
        Position { line: line + 1, column }
    }

    /// The text of a line, without its end.
    pub(crate) fn line(&self, line: usize) -> &str {
        let start = self.line_starts[line - 1];
        let end = self.line_starts.get(line).copied().unwrap_or(self.text.len());
        self.text[start..end].trim_end_matches(['\n', '\r'])
    }
}

impl Span {
    pub(crate) fn new(source: SourceId, start: usize, end: usize) -> Self {
        Self { source, start, end: end.max(start) }
    }
}
