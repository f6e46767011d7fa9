//! Metrics of an evaluation.
//!
//! Invariant: a share of zero lines is `None`, shown as `null`; no number is invented.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{EvalAnswer, ExpectedKind, GoldLine};
use crate::choice::ChoiceDecision;

/// Number of bins for comparing confidence with accuracy.
const BINS: usize = 5;

/// Metrics of all lines, and per suite and language.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EvalReport {
    #[serde(flatten)]
    pub all: EvalMetrics,
    pub suites: BTreeMap<String, EvalMetrics>,
    pub languages: BTreeMap<String, EvalMetrics>,
}

/// Metrics of a group of lines.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EvalMetrics {
    /// Number of lines.
    pub n: usize,
    /// Share of correct choices: the correct tool, no tool, or asking.
    pub top1: Option<f64>,
    /// Of the lines that need tools, the share with a correct one among the first five hits.
    pub recall5: Option<f64>,
    /// Share of lines for which it was recognised whether a tool is needed.
    pub need: Option<f64>,
    /// Lines that need one tool.
    pub tool: ToolRecall,
    /// Lines that need several tools.
    pub multi: ToolRecall,
    /// Lines that need no tool.
    pub none: PrecisionRecall,
    /// Lines for which the user must be asked.
    pub ask: PrecisionRecall,
    /// Number of lines by expected and actual decision.
    pub confusion: BTreeMap<ExpectedKind, BTreeMap<&'static str, usize>>,
    /// Calibration of the confidence.
    pub confidence: Calibration,
}

/// Metrics of lines that need tools.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolRecall {
    /// Number of lines.
    pub n: usize,
    /// Share for which a tool was chosen, and a correct one.
    pub top1: Option<f64>,
    /// Share with a correct tool as the first hit, chosen or not.
    pub first: Option<f64>,
    /// Share with a correct tool among the first five hits.
    pub recall5: Option<f64>,
    /// Share answered with a question instead (over-asking).
    pub asked: Option<f64>,
    /// Of the lines with a call, the share with the correct arguments.
    pub arguments: Option<f64>,
}

/// Metrics of lines for which no tool is correct.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PrecisionRecall {
    /// Number of lines.
    pub n: usize,
    /// Of the lines with this decision, the share for which it was correct.
    pub precision: Option<f64>,
    /// Of the lines for which it was correct, the share with this decision.
    pub recall: Option<f64>,
}

/// Calibration of the confidence.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calibration {
    /// Mean confidence.
    pub mean: Option<f64>,
    /// Expected calibration error: mean difference between confidence and accuracy over all lines.
    pub error: Option<f64>,
    /// From the least to the most confident.
    pub bins: Vec<CalibrationBin>,
}

/// Choices of similar confidence.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CalibrationBin {
    /// Number of lines.
    pub n: usize,
    /// Mean confidence.
    #[serde(rename = "told")]
    pub confidence: Option<f64>,
    /// Share of correct choices.
    pub right: Option<f64>,
}

impl EvalReport {
    pub fn compute(answers: &[EvalAnswer<'_>]) -> Self {
        let by = |key: fn(&GoldLine) -> &str| {
            let mut groups: BTreeMap<String, Vec<&EvalAnswer<'_>>> = BTreeMap::new();
            for answer in answers.iter().filter(|answer| !key(answer.line).is_empty()) {
                groups.entry(key(answer.line).to_owned()).or_default().push(answer);
            }
            groups.into_iter().map(|(name, group)| (name, EvalMetrics::of(&group))).collect()
        };
        Self {
            all: EvalMetrics::of(&answers.iter().collect::<Vec<_>>()),
            suites: by(|line| &line.suite),
            languages: by(|line| &line.lang),
        }
    }
}

impl EvalMetrics {
    fn of(answers: &[&EvalAnswer<'_>]) -> Self {
        let mut confusion: BTreeMap<ExpectedKind, BTreeMap<&'static str, usize>> = BTreeMap::new();
        for answer in answers {
            *confusion.entry(answer.line.kind).or_default().entry(decision_label(answer)).or_default() += 1;
        }
        let needs_tool =
            |answer: &&&EvalAnswer<'_>| matches!(answer.line.kind, ExpectedKind::Tool | ExpectedKind::Multi);
        Self {
            n: answers.len(),
            top1: share(answers.iter().map(|answer| answer.is_correct())),
            recall5: share(answers.iter().filter(needs_tool).map(|answer| answer.is_among(5))),
            need: share(
                answers.iter().map(|one| (one.line.kind != ExpectedKind::None) == one.choice.needs_tool),
            ),
            tool: ToolRecall::of(answers, ExpectedKind::Tool),
            multi: ToolRecall::of(answers, ExpectedKind::Multi),
            none: PrecisionRecall::of(answers, ExpectedKind::None, ChoiceDecision::None),
            ask: PrecisionRecall::of(answers, ExpectedKind::Ask, ChoiceDecision::Ask),
            confusion,
            confidence: Calibration::of(answers),
        }
    }
}

/// Returns the label of the actual decision.
fn decision_label(answer: &EvalAnswer<'_>) -> &'static str {
    match answer.choice.decision {
        ChoiceDecision::Tool if answer.is_among(1) => "tool",
        ChoiceDecision::Tool => "other tool",
        other => other.name(),
    }
}

impl ToolRecall {
    fn of(answers: &[&EvalAnswer<'_>], kind: ExpectedKind) -> Self {
        let lines: Vec<_> = answers.iter().filter(|answer| answer.line.kind == kind).collect();
        Self {
            n: lines.len(),
            top1: share(lines.iter().map(|answer| answer.is_correct())),
            first: share(lines.iter().map(|answer| answer.is_among(1))),
            recall5: share(lines.iter().map(|answer| answer.is_among(5))),
            asked: share(lines.iter().map(|answer| answer.choice.decision == ChoiceDecision::Ask)),
            arguments: share(lines.iter().filter_map(|answer| answer.arguments)),
        }
    }
}

impl PrecisionRecall {
    fn of(answers: &[&EvalAnswer<'_>], kind: ExpectedKind, decision: ChoiceDecision) -> Self {
        let right = |answer: &&&EvalAnswer<'_>| answer.line.kind == kind;
        let decision_label = |answer: &&&EvalAnswer<'_>| answer.choice.decision == decision;
        Self {
            n: answers.iter().filter(right).count(),
            precision: share(answers.iter().filter(decision_label).map(|answer| right(&answer))),
            recall: share(answers.iter().filter(right).map(|answer| decision_label(&answer))),
        }
    }
}

impl Calibration {
    fn of(answers: &[&EvalAnswer<'_>]) -> Self {
        let mut sorted: Vec<(f64, bool)> =
            answers.iter().map(|answer| (f64::from(answer.choice.confidence), answer.is_correct())).collect();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        let size = sorted.len().div_ceil(BINS).max(1);
        let bins: Vec<CalibrationBin> = sorted
            .chunks(size)
            .map(|bin| CalibrationBin {
                n: bin.len(),
                confidence: mean(bin.iter().map(|(confidence, _)| *confidence)),
                right: share(bin.iter().map(|(_, right)| *right)),
            })
            .collect();
        let weighted = bins.iter().map(|bin| match (bin.confidence, bin.right) {
            (Some(confidence), Some(right)) => bin.n as f64 * (confidence - right).abs(),
            _ => 0.0,
        });
        let error =
            (!sorted.is_empty()).then(|| round_to_4_places(weighted.sum::<f64>() / sorted.len() as f64));
        Self { mean: mean(sorted.iter().map(|(confidence, _)| *confidence)), error, bins }
    }
}

/// Returns the share of true values, rounded to four places.
fn share(all: impl Iterator<Item = bool>) -> Option<f64> {
    mean(all.map(f64::from))
}

fn mean(all: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = all.fold((0_u32, 0.0), |(count, sum), one| (count + 1, sum + one));
    (count > 0).then(|| round_to_4_places(sum / f64::from(count)))
}

fn round_to_4_places(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}
