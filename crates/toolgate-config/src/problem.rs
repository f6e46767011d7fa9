//! Problems of a configuration, and their rendering.
//!
//! All problems are collected; the first does not hide the second. Invariant: everything shown is redacted,
//! including the source line.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::iter;
use std::ops::Range;

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use toolgate_redact::{is_unprintable, mask_config, mask_known, printable, secret_ranges_of_line};
use toolgate_types::Secret;
use toolgate_types::secret::MASK;

use crate::read::dotenv::is_name;
use crate::source::{SourceId, SourceMap, SourceVisibility, Span};

/// Problems of one configuration that are kept; errors get as many again. A file of 4 MB can have millions.
pub(crate) const MAX_PROBLEMS: usize = 1_000;
/// Longer lines are cut around the relevant part.
const MAX_LINE_WIDTH: usize = 160;
/// Longer messages are truncated; they quote a long value.
const MAX_MESSAGE_CHARS: usize = 400;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The configuration is rejected.
    Error,
    /// It works, but probably not as intended.
    Warning,
    /// Something was ignored on purpose.
    Note,
}

/// A problem with its location and a hint.
#[derive(Debug, Clone)]
pub struct Problem {
    pub severity: Severity,
    pub message: String,
    /// Location; `None` if a file is missing.
    pub span: Option<Span>,
    /// Suggested fix.
    pub hint: Option<String>,
}

impl Problem {
    pub(crate) fn error(span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, message: message.into(), span: Some(span), hint: None }
    }

    pub(crate) fn warning(span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(span, message) }
    }

    pub(crate) fn note(span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Note, ..Self::error(span, message) }
    }

    pub(crate) fn without_span(message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, message: message.into(), span: None, hint: None }
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// All problems of a configuration, with the sources they are in.
#[derive(Debug, Default)]
pub struct Report {
    pub(crate) sources: SourceMap,
    pub(crate) problems: Vec<Problem>,
    /// Values to mask in everything that is shown.
    pub(crate) secrets: Vec<Secret>,
}

/// A problem in the JSON output.
#[derive(Debug, Serialize)]
pub struct ProblemEntry {
    pub severity: Severity,
    /// Message, redacted.
    pub message: String,
    /// File name as shown to users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Column, from 1, in characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    /// Suggested fix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Report {
    /// Sorts the problems by location and removes duplicates: the content of a YAML alias is read once per use.
    pub(crate) fn new(sources: SourceMap, mut problems: Vec<Problem>, secrets: Vec<Secret>) -> Self {
        problems.sort_by_key(|problem| problem.span.map(|span| (span.source, span.start)));
        let mut seen = HashSet::new();
        problems.retain(|problem| seen.insert((problem.span, problem.message.clone())));
        Self { sources, problems, secrets }
    }

    /// Adds a last entry for the problems that were not kept.
    pub(crate) fn add_omitted(&mut self, count: usize) {
        if count > 0 {
            let message = format!("{count} more problems are not shown; fix these first");
            let severity = if self.has_errors() { Severity::Error } else { Severity::Note };
            self.problems.push(Problem { severity, ..Problem::without_span(message) });
        }
    }

    pub fn sources(&self) -> &SourceMap {
        &self.sources
    }

    /// Returns true if the configuration is rejected.
    pub fn has_errors(&self) -> bool {
        self.count(Severity::Error) > 0
    }

    /// Counts the problems of one severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.problems.iter().filter(|problem| problem.severity == severity).count()
    }

    /// Returns the problems for the JSON output, in source order.
    pub fn entries(&self) -> Vec<ProblemEntry> {
        let entry = |problem: &Problem| {
            let source = problem.span.map(|span| self.sources.get(span.source));
            let position = problem
                .span
                .zip(source)
                .filter(|(_, source)| source.path().is_some())
                .map(|(span, source)| source.position(span.start));
            ProblemEntry {
                severity: problem.severity,
                message: self.redact_message(&problem.message),
                file: source.map(|source| source.name().to_owned()),
                line: position.map(|position| position.line),
                column: position.map(|position| position.column),
                hint: problem.hint.as_deref().map(|hint| self.redact_message(hint)),
            }
        };
        self.problems.iter().map(entry).collect()
    }

    /// Masks secrets in a string: those of this configuration, and anything that looks like one.
    pub fn mask(&self, text: &str) -> String {
        mask_config(text, &self.secrets)
    }

    /// Masks the secrets of this configuration only, for strings Toolgate generated itself.
    pub fn mask_known(&self, text: &str) -> String {
        mask_known(text, &self.secrets)
    }

    /// Renders the problems for people, with source lines. Contains ANSI escapes; the output stream strips them
    /// if they are not supported.
    pub fn render(&self) -> String {
        let mut out = String::new();
        let mut mask = LineMask::default();
        for problem in &self.problems {
            self.render_one(problem, &mut mask, &mut out);
        }
        out
    }

    /// Masks a message, then truncates it. In this order, because half of a secret would not be recognised.
    fn redact_message(&self, text: &str) -> String {
        let masked = self.mask(text);
        match masked.char_indices().nth(MAX_MESSAGE_CHARS) {
            Some((end, _)) => format!("{}…", &masked[..end]),
            None => masked,
        }
    }

    fn render_one(&self, problem: &Problem, mask: &mut LineMask, out: &mut String) {
        let (label, colour) = match problem.severity {
            Severity::Error => ("error", AnsiColor::Red),
            Severity::Warning => ("warning", AnsiColor::Yellow),
            Severity::Note => ("note", AnsiColor::Cyan),
        };
        let (bold, dim) = (Style::new().bold(), Style::new().dimmed());
        let strong = Style::new().fg_color(Some(colour.into())).bold();
        let message = printable(&self.redact_message(&problem.message));
        let _ = writeln!(out, "{strong}{label}{strong:#}{bold}: {message}{bold:#}");
        if let Some(span) = problem.span {
            let _ = writeln!(out, "{dim}  -->{dim:#} {}", printable(&self.sources.location(span)));
            self.render_line(span, strong, mask, out);
        }
        if let Some(hint) = &problem.hint {
            let green = Style::new().fg_color(Some(AnsiColor::Green.into())).bold();
            let _ = writeln!(out, "{green}hint{green:#}: {}", printable(&self.redact_message(hint)));
        }
        out.push('\n');
    }

    fn render_line(&self, span: Span, strong: Style, mask: &mut LineMask, out: &mut String) {
        let dim = Style::new().dimmed();
        let source = self.sources.get(span.source);
        let position = source.position(span.start);
        let (line, start) = source.line_at(span.start);
        let end = (start + (span.end - span.start)).min(line.len());
        let hidden = mask.secret_ranges(line, source.shows(), (span.source, position.line), &self.secrets);
        let RenderedLine { text, before, width } = render_excerpt(line, start, end, hidden);
        let number = position.line.to_string();
        let gutter = " ".repeat(number.len());
        let carets = "^".repeat(width.max(1));
        let pad = " ".repeat(before);
        let space = if text.is_empty() { "" } else { " " };
        let _ = writeln!(out, "{dim}{number} |{dim:#}{space}{text}");
        let _ = writeln!(out, "{dim}{gutter} |{dim:#} {pad}{strong}{carets}{strong:#}");
    }
}

/// Secret ranges of the last rendered line, cached because a minified file has all its problems in one line.
#[derive(Default)]
struct LineMask {
    line: Option<(SourceId, usize)>,
    ranges: Vec<Range<usize>>,
}

impl LineMask {
    fn secret_ranges(
        &mut self,
        text: &str,
        shows: SourceVisibility,
        line: (SourceId, usize),
        secrets: &[Secret],
    ) -> &[Range<usize>] {
        if self.line != Some(line) {
            self.line = Some(line);
            self.ranges = match shows {
                SourceVisibility::Text => secret_ranges_of_line(text, secrets),
                SourceVisibility::Names => iter::once(value_start(text)..text.len()).collect(),
                SourceVisibility::Nothing => iter::once(0..text.len()).collect(),
            };
        }
        &self.ranges
    }
}

/// Returns where the value starts in a line of a `.env` file. A line without a name may be all value, since a
/// value can span lines.
fn value_start(line: &str) -> usize {
    let name = |before: &str| is_name(before.trim().trim_start_matches("export ").trim());
    line.find('=').filter(|at| name(&line[..*at])).map_or(0, |at| at + 1)
}

/// A source line as shown: secrets masked, control characters replaced by dots, cut to a width.
struct RenderedLine {
    text: String,
    before: usize,
    width: usize,
}

/// Masks a line around the range `start..end` and computes the position of the range in the result. Looks only at
/// the visible part of a long line.
fn render_excerpt(line: &str, start: usize, end: usize, hidden: &[Range<usize>]) -> RenderedLine {
    let from = line[..start].char_indices().rev().nth(MAX_LINE_WIDTH - 1).map_or(0, |(at, _)| at);
    let to = line[start..].char_indices().nth(MAX_LINE_WIDTH).map_or(line.len(), |(at, _)| start + at);
    let first = hidden.partition_point(|range| range.end <= from);
    let hidden = &hidden[first..hidden.partition_point(|range| range.start < to)];
    // A secret is masked as a whole, even if only part of it is visible.
    let from = hidden.first().map_or(from, |range| from.min(range.start));
    let to = hidden.last().map_or(to, |range| to.max(range.end));
    let mut chars: Vec<(usize, char)> = Vec::with_capacity(2 * MAX_LINE_WIDTH);
    for (at, c) in line[from..to].char_indices().map(|(at, c)| (from + at, c)) {
        match hidden.iter().find(|range| range.contains(&at)) {
            Some(range) if range.start == at => chars.extend(MASK.chars().map(|c| (at, c))),
            Some(_) => {}
            None => chars.push((at, if is_unprintable(c) && c != '\t' { '·' } else { c })),
        }
    }
    let column = |at: usize| chars.partition_point(|(place, _)| *place < at);
    let (mut first, last) = (column(start), column(end));
    let cut = first.saturating_sub(MAX_LINE_WIDTH / 2);
    let chars: Vec<char> = chars[cut..].iter().map(|(_, c)| if *c == '\t' { ' ' } else { *c }).collect();
    first -= cut;
    let last = (last - cut).min(MAX_LINE_WIDTH);
    let text: String = chars.iter().take(MAX_LINE_WIDTH).collect();
    let lead = if cut > 0 || from > 0 { "…" } else { "" };
    let trail = if chars.len() > MAX_LINE_WIDTH || to < line.len() { "…" } else { "" };
    let shift = lead.chars().count();
    RenderedLine {
        text: format!("{lead}{text}{trail}"),
        before: first + shift,
        width: last.saturating_sub(first),
    }
}

#[cfg(test)]
mod tests {
    use toolgate_redact::config_secret_ranges;

    use super::*;

    fn check(line: &str, at: &str, expected: &str) {
        let start = line.find(at).unwrap();
        let RenderedLine { text, before, width } =
            render_excerpt(line, start, start + at.len(), &config_secret_ranges(line, &[]));
        assert_eq!(format!("{text}\n{}{}", " ".repeat(before), "^".repeat(width)), expected);
    }

    #[test]
    fn dotenv_line_shows_name_only() {
        for (line, shown) in
            [("TOKEN=abc", 6), (" export A = 'x", 11), ("no name here", 0), ("MIIEow==", 7), ("a b=c", 0)]
        {
            assert_eq!(value_start(line), shown, "{line}");
        }
    }

    #[test]
    fn caret_is_under_its_word() {
        check("a: {b: c}", "c", "a: {b: c}\n       ^");
        check("\tβ: value", "value", " β: value\n    ^^^^^");
        check("a: {token: hunter2, bad: 1}", "bad", "a: {token: ***, bad: 1}\n                ^^^");
        check("token: hunter2", "hunter2", "token: ***\n       ^^^");
    }

    #[test]
    fn cuts_long_line_around_the_span() {
        let line = format!("{}HERE{}", "a".repeat(300), "b".repeat(300));
        let RenderedLine { text, before, width } = render_excerpt(&line, 300, 304, &[]);
        let found: String = text.chars().skip(before).take(width).collect();
        assert_eq!((found.as_str(), text.chars().count()), ("HERE", MAX_LINE_WIDTH + 2));
    }

    #[test]
    fn masks_partly_visible_secret() {
        let line = format!("{{token: {}, bad: 1}}", "x".repeat(300));
        let start = line.find("bad").unwrap();
        let RenderedLine { text, before, width } =
            render_excerpt(&line, start, start + 3, &config_secret_ranges(&line, &[]));
        assert_eq!(text, "…***, bad: 1}");
        assert_eq!((before, width), (6, 3));
    }

    #[test]
    fn renders_a_thousand_problems_in_one_line() {
        let text = "{bad: 1, token: hunter2}, ".repeat(5_000);
        let mut sources = SourceMap::default();
        let id = sources.add("long.json", text.as_str(), Some("long.json".into()));
        let place = |(at, _): (usize, &str)| Problem::error(Span::new(id, at, at + 3), "wrong");
        let problems = text.match_indices("bad").step_by(5).map(place).collect();
        let shown = Report::new(sources, problems, vec![Secret::new("unused secret")]).render();
        assert_eq!(shown.matches("-->").count(), 1000);
        assert!(!shown.contains("hunter2"));
    }

    #[test]
    fn removes_duplicate_problems() {
        let mut sources = SourceMap::default();
        let id = sources.add("a.yaml", "a b", Some("a.yaml".into()));
        let at = |start| Span::new(id, start, start + 1);
        let problems = vec![
            Problem::error(at(2), "wrong"),
            Problem::error(at(0), "wrong"),
            Problem::error(at(2), "wrong"),
            Problem::error(at(2), "also wrong"),
        ];
        let report = Report::new(sources, problems, Vec::new());
        assert_eq!(report.count(Severity::Error), 3);
        assert_eq!(report.problems[0].span, Some(at(0)));
    }
}
