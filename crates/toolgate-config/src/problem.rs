//! What is wrong with a configuration, and how it is told.
//!
//! Every problem is collected; the first never hides the second. Invariant: what is shown went
//! through the redactor, the offending line included.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::iter;
use std::ops::Range;

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use toolgate_types::Secret;
use toolgate_types::redact::{is_unseen, mask, mask_known, printable, secret_ranges_of_line};
use toolgate_types::secret::MASK;

use crate::read::dotenv::is_name;
use crate::source::{Shows, SourceId, Sources, Span};

/// A line longer than this is cut around the place that matters.
const WIDEST_LINE: usize = 160;
/// A message longer than this quotes something that nobody reads to the end.
const LONGEST_MESSAGE: usize = 400;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The configuration is refused.
    Error,
    /// It works, but probably not as meant.
    Warning,
    /// Something was passed over, as it should be.
    Note,
}

/// One thing to tell, with its place and the way out.
#[derive(Debug, Clone)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// What happened.
    pub message: String,
    /// Where. `None` where a file is missing.
    pub span: Option<Span>,
    /// What to do.
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

    pub(crate) fn nowhere(message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, message: message.into(), span: None, hint: None }
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// All problems of a configuration, with the texts they are in.
#[derive(Debug, Default)]
pub struct Report {
    pub(crate) sources: Sources,
    pub(crate) problems: Vec<Problem>,
    /// What must never be shown, wherever it turns up.
    pub(crate) secrets: Vec<Secret>,
}

/// A problem as programs read it.
#[derive(Debug, Serialize)]
pub struct ProblemEntry {
    /// How bad it is.
    pub severity: Severity,
    /// What happened, without secrets.
    pub message: String,
    /// The file, as people know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// From 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// From 1, in characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Report {
    /// The problems in the order of the texts. Two that say the same of the same place are one: what
    /// an alias stands for is read as often as it is used.
    pub(crate) fn new(sources: Sources, mut problems: Vec<Problem>, secrets: Vec<Secret>) -> Self {
        problems.sort_by_key(|problem| problem.span.map(|span| (span.source, span.start)));
        let mut seen = HashSet::new();
        problems.retain(|problem| seen.insert((problem.span, problem.message.clone())));
        Self { sources, problems, secrets }
    }

    /// The texts that were read.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Whether the configuration is refused.
    pub fn has_errors(&self) -> bool {
        self.count(Severity::Error) > 0
    }

    /// How many problems there are of one severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.problems.iter().filter(|problem| problem.severity == severity).count()
    }

    /// The problems as programs read them, in the order of the texts.
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
                message: self.shown(&problem.message),
                file: source.map(|source| source.name().to_owned()),
                line: position.map(|position| position.line),
                column: position.map(|position| position.column),
                hint: problem.hint.as_deref().map(|hint| self.shown(hint)),
            }
        };
        self.problems.iter().map(entry).collect()
    }

    /// A text as it may be shown: what is secret in this configuration is `***`.
    pub fn mask(&self, text: &str) -> String {
        mask(text, &self.secrets)
    }

    /// The same for a text of our own making: only the values of this configuration's secrets are hidden.
    pub fn mask_known(&self, text: &str) -> String {
        mask_known(text, &self.secrets)
    }

    /// The problems as people read them, with the offending lines. Styles are ANSI escapes; the
    /// stream that prints them drops them where they are not wanted.
    pub fn render(&self) -> String {
        let mut out = String::new();
        let mut hidden = Hidden::default();
        for problem in &self.problems {
            self.render_one(problem, &mut hidden, &mut out);
        }
        out
    }

    /// A message without secrets, and without all of a long value that it quotes. In this order: half of
    /// a secret would not be known as one.
    fn shown(&self, text: &str) -> String {
        let masked = self.mask(text);
        match masked.char_indices().nth(LONGEST_MESSAGE) {
            Some((end, _)) => format!("{}…", &masked[..end]),
            None => masked,
        }
    }

    fn render_one(&self, problem: &Problem, hidden: &mut Hidden, out: &mut String) {
        let (label, colour) = match problem.severity {
            Severity::Error => ("error", AnsiColor::Red),
            Severity::Warning => ("warning", AnsiColor::Yellow),
            Severity::Note => ("note", AnsiColor::Cyan),
        };
        let (bold, dim) = (Style::new().bold(), Style::new().dimmed());
        let strong = Style::new().fg_color(Some(colour.into())).bold();
        let message = printable(&self.shown(&problem.message));
        let _ = writeln!(out, "{strong}{label}{strong:#}{bold}: {message}{bold:#}");
        if let Some(span) = problem.span {
            let _ = writeln!(out, "{dim}  -->{dim:#} {}", printable(&self.sources.place(span)));
            self.render_line(span, strong, hidden, out);
        }
        if let Some(hint) = &problem.hint {
            let green = Style::new().fg_color(Some(AnsiColor::Green.into())).bold();
            let _ = writeln!(out, "{green}hint{green:#}: {}", printable(&self.shown(hint)));
        }
        out.push('\n');
    }

    fn render_line(&self, span: Span, strong: Style, hidden: &mut Hidden, out: &mut String) {
        let dim = Style::new().dimmed();
        let source = self.sources.get(span.source);
        let position = source.position(span.start);
        let (line, start) = source.line_at(span.start);
        let end = (start + (span.end - span.start)).min(line.len());
        let hidden = hidden.of(line, source.shows(), (span.source, position.line), &self.secrets);
        let Shown { text, before, width } = shown(line, start, end, hidden);
        let number = position.line.to_string();
        let gutter = " ".repeat(number.len());
        let carets = "^".repeat(width.max(1));
        let pad = " ".repeat(before);
        let space = if text.is_empty() { "" } else { " " };
        let _ = writeln!(out, "{dim}{number} |{dim:#}{space}{text}");
        let _ = writeln!(out, "{dim}{gutter} |{dim:#} {pad}{strong}{carets}{strong:#}");
    }
}

/// The secrets in the line that was shown last. A minified file is one line with all the problems.
#[derive(Default)]
struct Hidden {
    line: Option<(SourceId, usize)>,
    ranges: Vec<Range<usize>>,
}

impl Hidden {
    fn of(
        &mut self,
        text: &str,
        shows: Shows,
        line: (SourceId, usize),
        secrets: &[Secret],
    ) -> &[Range<usize>] {
        if self.line != Some(line) {
            self.line = Some(line);
            self.ranges = match shows {
                Shows::Text => secret_ranges_of_line(text, secrets),
                Shows::Names => iter::once(after_name(text)..text.len()).collect(),
                Shows::Nothing => iter::once(0..text.len()).collect(),
            };
        }
        &self.ranges
    }
}

/// Where the value starts in a line of a `.env` file. Without a name it may all be value: a key may go
/// over many lines.
fn after_name(line: &str) -> usize {
    let name = |before: &str| is_name(before.trim().trim_start_matches("export ").trim());
    line.find('=').filter(|at| name(&line[..*at])).map_or(0, |at| at + 1)
}

/// A line as it is shown: secrets masked, controls spelled as dots, cut to a width.
struct Shown {
    text: String,
    before: usize,
    width: usize,
}

/// Masks a line around the range from `start` to `end`, and finds out where the range is afterwards.
/// Only what can be shown of a long line is looked at.
fn shown(line: &str, start: usize, end: usize, hidden: &[Range<usize>]) -> Shown {
    let from = line[..start].char_indices().rev().nth(WIDEST_LINE - 1).map_or(0, |(at, _)| at);
    let to = line[start..].char_indices().nth(WIDEST_LINE).map_or(line.len(), |(at, _)| start + at);
    let first = hidden.partition_point(|range| range.end <= from);
    let hidden = &hidden[first..hidden.partition_point(|range| range.start < to)];
    // A secret is masked as a whole, however much of it is in sight.
    let from = hidden.first().map_or(from, |range| from.min(range.start));
    let to = hidden.last().map_or(to, |range| to.max(range.end));
    let mut chars: Vec<(usize, char)> = Vec::with_capacity(2 * WIDEST_LINE);
    for (at, c) in line[from..to].char_indices().map(|(at, c)| (from + at, c)) {
        match hidden.iter().find(|range| range.contains(&at)) {
            Some(range) if range.start == at => chars.extend(MASK.chars().map(|c| (at, c))),
            Some(_) => {}
            None => chars.push((at, if is_unseen(c) && c != '\t' { '·' } else { c })),
        }
    }
    let column = |at: usize| chars.partition_point(|(place, _)| *place < at);
    let (mut first, last) = (column(start), column(end));
    let cut = first.saturating_sub(WIDEST_LINE / 2);
    let chars: Vec<char> = chars[cut..].iter().map(|(_, c)| if *c == '\t' { ' ' } else { *c }).collect();
    first -= cut;
    let last = (last - cut).min(WIDEST_LINE);
    let text: String = chars.iter().take(WIDEST_LINE).collect();
    let lead = if cut > 0 || from > 0 { "…" } else { "" };
    let trail = if chars.len() > WIDEST_LINE || to < line.len() { "…" } else { "" };
    let shift = lead.chars().count();
    Shown { text: format!("{lead}{text}{trail}"), before: first + shift, width: last.saturating_sub(first) }
}

#[cfg(test)]
mod tests {
    use toolgate_types::redact::secret_ranges;

    use super::*;

    fn check(line: &str, at: &str, expected: &str) {
        let start = line.find(at).unwrap();
        let Shown { text, before, width } = shown(line, start, start + at.len(), &secret_ranges(line, &[]));
        assert_eq!(format!("{text}\n{}{}", " ".repeat(before), "^".repeat(width)), expected);
    }

    #[test]
    fn a_line_of_an_env_file_shows_its_name() {
        for (line, shown) in
            [("TOKEN=abc", 6), (" export A = 'x", 11), ("no name here", 0), ("MIIEow==", 7), ("a b=c", 0)]
        {
            assert_eq!(after_name(line), shown, "{line}");
        }
    }

    #[test]
    fn the_caret_stays_under_its_word() {
        check("a: {b: c}", "c", "a: {b: c}\n       ^");
        check("\tβ: value", "value", " β: value\n    ^^^^^");
        check("a: {token: hunter2, bad: 1}", "bad", "a: {token: ***, bad: 1}\n                ^^^");
        check("token: hunter2", "hunter2", "token: ***\n       ^^^");
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let line = format!("{}HERE{}", "a".repeat(300), "b".repeat(300));
        let Shown { text, before, width } = shown(&line, 300, 304, &[]);
        let found: String = text.chars().skip(before).take(width).collect();
        assert_eq!((found.as_str(), text.chars().count()), ("HERE", WIDEST_LINE + 2));
    }

    #[test]
    fn a_secret_that_is_half_in_sight_is_masked() {
        let line = format!("{{token: {}, bad: 1}}", "x".repeat(300));
        let start = line.find("bad").unwrap();
        let Shown { text, before, width } = shown(&line, start, start + 3, &secret_ranges(&line, &[]));
        assert_eq!(text, "…***, bad: 1}");
        assert_eq!((before, width), (6, 3));
    }

    #[test]
    fn a_thousand_problems_in_one_long_line() {
        let text = "{bad: 1, token: hunter2}, ".repeat(5_000);
        let mut sources = Sources::default();
        let id = sources.add("long.json", text.as_str(), Some("long.json".into()));
        let place = |(at, _): (usize, &str)| Problem::error(Span::new(id, at, at + 3), "wrong");
        let problems = text.match_indices("bad").step_by(5).map(place).collect();
        let shown = Report::new(sources, problems, vec![Secret::new("unused secret")]).render();
        assert_eq!(shown.matches("-->").count(), 1000);
        assert!(!shown.contains("hunter2"));
    }

    #[test]
    fn what_is_said_twice_of_one_place_is_shown_once() {
        let mut sources = Sources::default();
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
