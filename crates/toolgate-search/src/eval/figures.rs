//! Figures: what answers come to.
//!
//! Invariant: a share of nothing is `None`, and shown as `null`; no figure is made up.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Answer, Expected, Line};
use crate::choice::Decision;

/// Bins in which confidence is compared with what came of it.
const BINS: usize = 5;

/// All figures: of all lines, and of each suite, kind and language.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Of all lines.
    #[serde(flatten)]
    pub all: Figures,
    /// By suite.
    pub suites: BTreeMap<String, Figures>,
    /// By language.
    pub languages: BTreeMap<String, Figures>,
}

/// What some lines come to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Lines.
    pub n: usize,
    /// The share for which the choice was right: the right tool, no tool, or to ask.
    pub top1: Option<f64>,
    /// Of the lines that need tools, the share with a right one among the first five.
    pub recall5: Option<f64>,
    /// Lines that need one tool.
    pub tool: Recalled,
    /// Lines that need several.
    pub multi: Recalled,
    /// Lines that need none.
    pub none: Judged,
    /// Lines for which a person is to be asked.
    pub ask: Judged,
    /// What was expected, what was chosen instead or as well, and how often.
    pub confusion: BTreeMap<Expected, BTreeMap<&'static str, usize>>,
    /// How sure the choices were, and how often they were right.
    pub confidence: Told,
}

/// Lines that need tools.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recalled {
    /// Lines.
    pub n: usize,
    /// The share for which a tool was chosen, and the right one.
    pub top1: Option<f64>,
    /// The share for which the right one was found first, whether it was chosen or not.
    pub first: Option<f64>,
    /// The share with a right one among the first five.
    pub recall5: Option<f64>,
}

/// Lines for which something else than a tool is right.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// Lines.
    pub n: usize,
    /// Of those for which it was chosen, the share for which it was right.
    pub precision: Option<f64>,
    /// Of those for which it was right, the share for which it was chosen.
    pub recall: Option<f64>,
}

/// What confidence is worth.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Told {
    /// Its mean.
    pub mean: Option<f64>,
    /// How far it is from what came of it, in the mean over all lines.
    pub error: Option<f64>,
    /// From the least sure to the most.
    pub bins: Vec<Bin>,
}

/// Choices of about the same confidence.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bin {
    /// Lines.
    pub n: usize,
    /// The mean of their confidence.
    pub told: Option<f64>,
    /// The share that was right.
    pub right: Option<f64>,
}

impl Report {
    /// What answers come to.
    pub fn of(answers: &[Answer<'_>]) -> Self {
        let by = |key: fn(&Line) -> &str| {
            let mut groups: BTreeMap<String, Vec<&Answer<'_>>> = BTreeMap::new();
            for answer in answers.iter().filter(|answer| !key(answer.line).is_empty()) {
                groups.entry(key(answer.line).to_owned()).or_default().push(answer);
            }
            groups.into_iter().map(|(name, group)| (name, Figures::of(&group))).collect()
        };
        Self {
            all: Figures::of(&answers.iter().collect::<Vec<_>>()),
            suites: by(|line| &line.suite),
            languages: by(|line| &line.lang),
        }
    }
}

impl Figures {
    fn of(answers: &[&Answer<'_>]) -> Self {
        let mut confusion: BTreeMap<Expected, BTreeMap<&'static str, usize>> = BTreeMap::new();
        for answer in answers {
            *confusion.entry(answer.line.kind).or_default().entry(chosen(answer)).or_default() += 1;
        }
        let needs_tool = |answer: &&&Answer<'_>| matches!(answer.line.kind, Expected::Tool | Expected::Multi);
        Self {
            n: answers.len(),
            top1: share(answers.iter().map(|answer| answer.is_right())),
            recall5: share(answers.iter().filter(needs_tool).map(|answer| answer.is_among(5))),
            tool: Recalled::of(answers, Expected::Tool),
            multi: Recalled::of(answers, Expected::Multi),
            none: Judged::of(answers, Expected::None, Decision::None),
            ask: Judged::of(answers, Expected::Ask, Decision::Ask),
            confusion,
            confidence: Told::of(answers),
        }
    }
}

/// What was chosen, in one word.
fn chosen(answer: &Answer<'_>) -> &'static str {
    match answer.choice.decision {
        Decision::Tool if answer.is_among(1) => "tool",
        Decision::Tool => "other tool",
        other => other.name(),
    }
}

impl Recalled {
    fn of(answers: &[&Answer<'_>], kind: Expected) -> Self {
        let lines: Vec<_> = answers.iter().filter(|answer| answer.line.kind == kind).collect();
        Self {
            n: lines.len(),
            top1: share(lines.iter().map(|answer| answer.is_right())),
            first: share(lines.iter().map(|answer| answer.is_among(1))),
            recall5: share(lines.iter().map(|answer| answer.is_among(5))),
        }
    }
}

impl Judged {
    fn of(answers: &[&Answer<'_>], kind: Expected, decision: Decision) -> Self {
        let right = |answer: &&&Answer<'_>| answer.line.kind == kind;
        let chosen = |answer: &&&Answer<'_>| answer.choice.decision == decision;
        Self {
            n: answers.iter().filter(right).count(),
            precision: share(answers.iter().filter(chosen).map(|answer| right(&answer))),
            recall: share(answers.iter().filter(right).map(|answer| chosen(&answer))),
        }
    }
}

impl Told {
    fn of(answers: &[&Answer<'_>]) -> Self {
        let mut sorted: Vec<(f64, bool)> =
            answers.iter().map(|answer| (f64::from(answer.choice.confidence), answer.is_right())).collect();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        let size = sorted.len().div_ceil(BINS).max(1);
        let bins: Vec<Bin> = sorted
            .chunks(size)
            .map(|bin| Bin {
                n: bin.len(),
                told: mean(bin.iter().map(|(told, _)| *told)),
                right: share(bin.iter().map(|(_, right)| *right)),
            })
            .collect();
        let weighed = bins.iter().map(|bin| match (bin.told, bin.right) {
            (Some(told), Some(right)) => bin.n as f64 * (told - right).abs(),
            _ => 0.0,
        });
        let error = (!sorted.is_empty()).then(|| rounded(weighed.sum::<f64>() / sorted.len() as f64));
        Self { mean: mean(sorted.iter().map(|(told, _)| *told)), error, bins }
    }
}

/// The share that holds, to four places.
fn share(all: impl Iterator<Item = bool>) -> Option<f64> {
    mean(all.map(f64::from))
}

fn mean(all: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = all.fold((0_u32, 0.0), |(count, sum), one| (count + 1, sum + one));
    (count > 0).then(|| rounded(sum / f64::from(count)))
}

fn rounded(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}
