//! What is wrong with a configuration, and how it is told.
//!
//! Every problem is collected; the first never hides the second. Invariant: what is shown went
//! through the redactor, the offending line included.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use toolgate_types::Secret;
use toolgate_types::redact::{mask, secret_ranges};
use toolgate_types::secret::MASK;

use crate::source::{Sources, Span};

/// A line longer than this is cut around the place that matters.
const WIDEST_LINE: usize = 160;

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
    severity: Severity,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl Report {
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
        let entry = |problem: &&Problem| {
            let source = problem.span.map(|span| self.sources.get(span.source));
            let position = problem
                .span
                .zip(source)
                .filter(|(_, source)| source.path().is_some())
                .map(|(span, source)| source.position(span.start));
            ProblemEntry {
                severity: problem.severity,
                message: mask(&problem.message, &self.secrets),
                file: source.map(|source| source.name().to_owned()),
                line: position.map(|position| position.line),
                column: position.map(|position| position.column),
                hint: problem.hint.as_deref().map(|hint| mask(hint, &self.secrets)),
            }
        };
        self.in_order().iter().map(entry).collect()
    }

    /// The problems as people read them, with the offending lines. Styles are ANSI escapes; the
    /// stream that prints them drops them where they are not wanted.
    pub fn render(&self) -> String {
        let mut out = String::new();
        for problem in self.in_order() {
            self.render_one(problem, &mut out);
        }
        out
    }

    fn in_order(&self) -> Vec<&Problem> {
        let mut problems: Vec<_> = self.problems.iter().collect();
        problems.sort_by_key(|problem| problem.span.map(|span| (span.source, span.start)));
        problems
    }

    fn render_one(&self, problem: &Problem, out: &mut String) {
        let (label, colour) = match problem.severity {
            Severity::Error => ("error", AnsiColor::Red),
            Severity::Warning => ("warning", AnsiColor::Yellow),
            Severity::Note => ("note", AnsiColor::Cyan),
        };
        let (bold, dim) = (Style::new().bold(), Style::new().dimmed());
        let strong = Style::new().fg_color(Some(colour.into())).bold();
        let message = mask(&problem.message, &self.secrets);
        let _ = writeln!(out, "{strong}{label}{strong:#}{bold}: {message}{bold:#}");
        if let Some(span) = problem.span {
            let _ = writeln!(out, "{dim}  -->{dim:#} {}", self.sources.place(span));
            self.render_line(span, strong, out);
        }
        if let Some(hint) = &problem.hint {
            let green = Style::new().fg_color(Some(AnsiColor::Green.into())).bold();
            let _ = writeln!(out, "{green}hint{green:#}: {}", mask(hint, &self.secrets));
        }
        out.push('\n');
    }

    fn render_line(&self, span: Span, strong: Style, out: &mut String) {
        let dim = Style::new().dimmed();
        let source = self.sources.get(span.source);
        let position = source.position(span.start);
        let line = source.line(position.line);
        let start = line.char_indices().nth(position.column - 1).map_or(line.len(), |(at, _)| at);
        let end = (start + (span.end - span.start)).min(line.len());
        let Shown { text, before, width } = shown(line, start, end, &self.secrets);
        let number = position.line.to_string();
        let gutter = " ".repeat(number.len());
        let carets = "^".repeat(width.max(1));
        let pad = " ".repeat(before);
        let _ = writeln!(out, "{dim}{number} |{dim:#} {text}");
        let _ = writeln!(out, "{dim}{gutter} |{dim:#} {pad}{strong}{carets}{strong:#}");
    }
}

/// A line as it is shown: secrets masked, controls spelled as dots, cut to a width.
struct Shown {
    text: String,
    before: usize,
    width: usize,
}

/// Masks a line and finds out where the range from `start` to `end` is afterwards.
fn shown(line: &str, start: usize, end: usize, secrets: &[Secret]) -> Shown {
    let hidden = secret_ranges(line, secrets);
    let mut chars: Vec<(usize, char)> = Vec::with_capacity(line.len());
    for (at, c) in line.char_indices() {
        match hidden.iter().find(|range| range.contains(&at)) {
            Some(range) if range.start == at => chars.extend(MASK.chars().map(|c| (at, c))),
            Some(_) => {}
            None => chars.push((at, if c.is_control() && c != '\t' { '·' } else { c })),
        }
    }
    let column = |at: usize| chars.partition_point(|(place, _)| *place < at);
    let (mut first, last) = (column(start), column(end));
    let cut = first.saturating_sub(WIDEST_LINE / 2);
    let chars: Vec<char> = chars[cut..].iter().map(|(_, c)| if *c == '\t' { ' ' } else { *c }).collect();
    first -= cut;
    let last = (last - cut).min(WIDEST_LINE);
    let text: String = chars.iter().take(WIDEST_LINE).collect();
    let (lead, trail) = (if cut > 0 { "…" } else { "" }, if chars.len() > WIDEST_LINE { "…" } else { "" });
    first += lead.chars().count();
    Shown {
        text: format!("{lead}{text}{trail}"),
        before: first,
        width: (last + usize::from(cut > 0)).saturating_sub(first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, at: &str, expected: &str) {
        let start = line.find(at).unwrap();
        let Shown { text, before, width } = shown(line, start, start + at.len(), &[]);
        assert_eq!(format!("{text}\n{}{}", " ".repeat(before), "^".repeat(width)), expected);
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
}
