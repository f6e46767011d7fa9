//! Sources of a configuration, and locations in them.
//!
//! A location is a [`Span`]: a source and a range of bytes. Lines and columns are computed only when a problem is
//! shown. Invariant: a span lies inside its source, on character boundaries.

use std::path::{Path, PathBuf};

/// Maximum size of a file. Enough for a registry of 100,000 tools.
pub(crate) const MAX_FILE_BYTES: u64 = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(u32);

/// A range of bytes in a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    pub(crate) source: SourceId,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// A file, or the value of an environment variable that overrides one.
#[derive(Debug)]
pub struct Source {
    name: String,
    text: String,
    /// Path of the file, for relative paths in it. `None` for a variable.
    path: Option<PathBuf>,
    line_starts: Vec<usize>,
    /// Number of characters before each block of [`BLOCK_BYTES`] bytes, and before the end. A file may be a single
    /// line of many megabytes, and its columns are looked up once per value.
    characters_before: Vec<usize>,
    visibility: SourceVisibility,
}

/// Part of a source that may be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceVisibility {
    /// Everything except secrets.
    Text,
    /// The names before `=`, since every value in a `.env` file is treated as a secret.
    Names,
    /// Nothing: the value of a variable that is a secret.
    Nothing,
}

/// Returns true if a text has only white space, comments and document markers. Such a file parses to nothing. The first
/// part of a file may be valid too; that it was cut cannot be known.
pub fn is_blank(text: &str) -> bool {
    let has_nothing = |line: &str| {
        let content = line.split('#').next().and_then(|line| line.split("//").next()).unwrap_or_default();
        matches!(content.trim(), "" | "---" | "..." | "null" | "~")
    };
    text.trim_start_matches('\u{feff}').lines().all(has_nothing)
}

/// Maximum number of bytes to count for a column.
const BLOCK_BYTES: usize = 256;

/// All sources of a configuration.
#[derive(Debug, Default)]
pub struct SourceMap(Vec<Source>);

/// Line and column of a location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1, in characters.
    pub column: usize,
}

impl SourceMap {
    pub(crate) fn add(
        &mut self,
        name: impl Into<String>,
        text: impl Into<String>,
        path: Option<PathBuf>,
    ) -> SourceId {
        let text = text.into();
        let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let mut characters_before = vec![0];
        for block in text.as_bytes().chunks(BLOCK_BYTES) {
            characters_before.push(characters_before[characters_before.len() - 1] + count_chars(block));
        }
        let id = u32::try_from(self.0.len()).expect("a configuration has fewer than four billion files");
        let shows = SourceVisibility::Text;
        self.0.push(Source {
            name: name.into(),
            text,
            path,
            line_starts,
            characters_before,
            visibility: shows,
        });
        SourceId(id)
    }

    /// Limits the part of a source that may be shown.
    pub(crate) fn set_visibility(&mut self, id: SourceId, shows: SourceVisibility) {
        self.0[id.0 as usize].visibility = shows;
    }

    pub fn get(&self, id: SourceId) -> &Source {
        &self.0[id.0 as usize]
    }

    /// Returns all sources, in the order they were read.
    pub fn iter(&self) -> impl Iterator<Item = &Source> {
        self.0.iter()
    }

    pub(crate) fn text(&self, span: Span) -> &str {
        &self.get(span.source).text[span.start..span.end]
    }

    /// Formats a location as `toolgate.yaml:14:5`, or as the name alone for an environment variable.
    pub fn location(&self, span: Span) -> String {
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
    /// Returns the name shown to users: a path relative to the project, or `environment variable X`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns true if this is the text of the source.
    pub fn has_text(&self, text: &str) -> bool {
        self.text == text
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn shows(&self) -> SourceVisibility {
        self.visibility
    }

    /// Returns true if the file has no content: see [`is_blank`].
    pub fn is_blank(&self) -> bool {
        is_blank(self.text())
    }

    /// Returns the path of the file; `None` for a variable.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns the line and column of a byte.
    pub fn position(&self, at: usize) -> Position {
        let line = self.line_starts.partition_point(|start| *start <= at) - 1;
        let column = self.characters_before(at) - self.characters_before(self.line_starts[line]) + 1;
        Position { line: line + 1, column }
    }

    fn characters_before(&self, at: usize) -> usize {
        let block = at / BLOCK_BYTES;
        self.characters_before[block] + count_chars(&self.text.as_bytes()[block * BLOCK_BYTES..at])
    }

    /// Returns the line that contains a byte, without its line break, and the byte's offset in it.
    pub(crate) fn line_at(&self, at: usize) -> (&str, usize) {
        let line = self.line_starts.partition_point(|start| *start <= at);
        let start = self.line_starts[line - 1];
        let end = self.line_starts.get(line).copied().unwrap_or(self.text.len());
        let text = self.text[start..end].trim_end_matches(['\n', '\r']);
        (text, (at - start).min(text.len()))
    }
}

/// Counts the characters that start in these bytes.
fn count_chars(bytes: &[u8]) -> usize {
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

    fn source(text: &str) -> SourceMap {
        let mut sources = SourceMap::default();
        sources.add("x", text, Some("x".into()));
        sources
    }

    #[test]
    fn comments_are_no_content() {
        for text in ["", " \n\t", "# a: 1\n  # b", "\u{feff}---\n# x\n...\n", "null # x", "~", "// rules\n"] {
            assert!(is_blank(text), "{text:?}");
        }
        for text in ["a: 1", "# x\na: 1 # y", "{}", "[a]\n", "permit(principal, action, resource);", "- #"] {
            assert!(!is_blank(text), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn position_counts_lines_and_characters(text in "(a|β|\n|€){0,40}", repeat in 1_usize..400) {
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
