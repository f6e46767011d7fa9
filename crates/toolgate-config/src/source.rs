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
    /// Characters before each block of [`BLOCK`] bytes, and before the end: a file may be one line of many megabytes, and
    /// a column in it is asked for as often as it has values.
    characters_before: Vec<usize>,
    shows: Shows,
}

/// What may be shown of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shows {
    /// All but the secrets in it.
    Text,
    /// The names before `=`: a `.env` file is all secrets.
    Names,
    /// A value of a variable that is a secret.
    Nothing,
}

/// How many bytes are counted again for a column.
const BLOCK: usize = 256;

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
        let mut characters_before = vec![0];
        for block in text.as_bytes().chunks(BLOCK) {
            characters_before.push(characters_before[characters_before.len() - 1] + characters(block));
        }
        let id = u32::try_from(self.0.len()).expect("a configuration has fewer than four billion files");
        let shows = Shows::Text;
        self.0.push(Source { name: name.into(), text, path, line_starts, characters_before, shows });
        SourceId(id)
    }

    /// From now on no more than this of a text is shown.
    pub(crate) fn restrict(&mut self, id: SourceId, shows: Shows) {
        self.0[id.0 as usize].shows = shows;
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

    pub(crate) fn shows(&self) -> Shows {
        self.shows
    }

    /// The file, unless this is the value of a variable.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The line and column of a byte.
    pub fn position(&self, at: usize) -> Position {
        let line = self.line_starts.partition_point(|start| *start <= at) - 1;
        let column = self.characters_before(at) - self.characters_before(self.line_starts[line]) + 1;
        Position { line: line + 1, column }
    }

    fn characters_before(&self, at: usize) -> usize {
        let block = at / BLOCK;
        self.characters_before[block] + characters(&self.text.as_bytes()[block * BLOCK..at])
    }

    /// The line that a byte is in, without its end, and where in it the byte is.
    pub(crate) fn line_at(&self, at: usize) -> (&str, usize) {
        let line = self.line_starts.partition_point(|start| *start <= at);
        let start = self.line_starts[line - 1];
        let end = self.line_starts.get(line).copied().unwrap_or(self.text.len());
        let text = self.text[start..end].trim_end_matches(['\n', '\r']);
        (text, (at - start).min(text.len()))
    }
}

/// How many characters start in these bytes of a text.
fn characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| !matches!(byte, 0x80..0xc0)).count()
}

impl Span {
    pub(crate) fn new(source: SourceId, start: usize, end: usize) -> Self {
        Self { source, start, end: end.max(start) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn source(text: &str) -> Sources {
        let mut sources = Sources::default();
        sources.add("x", text, Some("x".into()));
        sources
    }

    proptest! {
        #[test]
        fn a_position_counts_lines_and_characters(text in "(a|β|\n|€){0,40}", repeat in 1_usize..400) {
            let text = text.repeat(repeat);
            let sources = source(&text);
            let boundaries = (0..=text.len()).rev().filter(|at| text.is_char_boundary(*at));
            for at in boundaries.step_by(1 + text.len() / 50) {
                let before = &text[..at];
                let line = before.matches('\n').count() + 1;
                let column = before.rsplit('\n').next().unwrap().chars().count() + 1;
                prop_assert_eq!(sources.get(SourceId(0)).position(at), Position { line, column });
            }
        }
    }
}
