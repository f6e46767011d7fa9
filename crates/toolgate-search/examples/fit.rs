//! Computes the constants of the decision model, and measures them on sources that they were not fitted to.
//!
//! `cargo xtask fit` runs it. It reads the calibration set of `eval/`, and the suite `stress` of the gold set for the
//! confidence of the ranking; the suite `core` is not read. Without `--check` it writes
//! `src/choice/model/fitted.rs`; with it, it fails if that file has other constants.
#![expect(clippy::print_stdout, reason = "a program of its own, read on a terminal")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::Value;
use toolgate_search::choice::{ChoiceEvidence, ConsideredQuery, DecisionModel, FITTED, need_examples};
use toolgate_search::eval::{ExpectedKind, GoldLine, parse_catalogs};
use toolgate_search::{ChoiceDecision, ToolIndex};

/// The embedding was trained on the queries of the calibration set that need a tool, so their similarities are higher
/// than those of unseen ones. Each of them counts at all of these scales.
const SIMILARITY_SCALES: [f32; 3] = [1.0, 0.75, 0.5];
/// Weight of a query that is asked of a catalog of another source, where no tool fits.
const FOREIGN_WEIGHT: f64 = 0.2;
/// Weights in the fit of the ranking: the labels of the suite `stress` are not audited, and name one of several right
/// tools; the calibration set has seen its tools.
const STRESS_WRONG_WEIGHT: f64 = 0.5;
const CALIBRATION_WEIGHT: f64 = 0.25;
/// Share of the lexical score in the fused score, as in the index.
const LEXICAL_WEIGHT: f32 = 0.8;

/// A line with the evidence for its choice.
struct FitLine {
    gold: GoldLine,
    /// Its source; folds are made of these.
    source: String,
    /// Asked of its own catalog.
    own: ConsideredQuery,
    /// Asked of a catalog of another source.
    foreign: Option<ConsideredQuery>,
}

/// A weighted example of a logistic regression.
struct Sample {
    features: Vec<f64>,
    label: bool,
    weight: f64,
}

fn main() -> ExitCode {
    let is_check = std::env::args().any(|argument| argument == "--check");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let calibration = read_lines(root, "calibration.jsonl", "calibration_tools.json", "calibration", true);
    let stress = read_lines(root, "gold.jsonl", "tools.json", "stress", false);

    let sources: BTreeSet<&str> = calibration.iter().map(|line| line.source.as_str()).collect();
    let mut answers: Vec<(&FitLine, bool, ChoiceDecision, f32)> = Vec::new();
    for source in &sources {
        let others: Vec<&FitLine> = calibration.iter().filter(|line| line.source != *source).collect();
        let model = fit_model(&others, &stress);
        let held_out: Vec<_> = calibration
            .iter()
            .filter(|line| line.source == *source)
            .map(|line| answer(line, &model))
            .collect();
        report(source, &held_out);
        answers.extend(held_out);
    }
    report("all held out", &answers);

    let model = fit_model(&calibration.iter().collect::<Vec<_>>(), &stress);
    let path = root.join("src/choice/model/fitted.rs");
    if is_check {
        let same = model_numbers(&model)
            .iter()
            .zip(model_numbers(&FITTED))
            .all(|(new, old)| (new - old).abs() < 0.011);
        println!(
            "{}",
            if same { "the constants are those of the data" } else { "stale: run `cargo xtask fit`" }
        );
        return if same { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    fs_err::write(&path, source_of(&model)).expect("the file of the constants is writable");
    println!("wrote {}", path.display());
    ExitCode::SUCCESS
}

fn read_lines(root: &Path, lines: &str, tools: &str, suite: &str, with_foreign: bool) -> Vec<FitLine> {
    let folder: PathBuf = root.join("../../eval");
    let read = |name: &str| fs_err::read_to_string(folder.join(name)).expect("a file of eval/");
    let tools: Value = read(tools).parse().expect("JSON");
    let catalogs = parse_catalogs(&tools).expect("catalogs");
    let indexes: BTreeMap<String, ToolIndex> =
        catalogs.into_iter().map(|(name, entries)| (name, ToolIndex::new(entries))).collect();
    let mut found = Vec::new();
    for text in read(lines).lines() {
        let gold: GoldLine = serde_json::from_str(text).expect("a line of the set");
        if gold.suite != suite {
            continue;
        }
        let raw: Value = text.parse().expect("JSON");
        let source = raw["source"].as_str().unwrap_or_default().to_owned();
        let own = indexes[&gold.catalog].consider(&gold.query);
        let others: Vec<&ToolIndex> =
            indexes.iter().filter(|(name, _)| !name.starts_with(&source)).map(|(_, index)| index).collect();
        let is_asked_elsewhere = with_foreign && gold.kind == ExpectedKind::Tool;
        let foreign =
            is_asked_elsewhere.then(|| others[found.len() * 7_919 % others.len()].consider(&gold.query));
        found.push(FitLine { gold, source, own, foreign });
    }
    found
}

fn fit_model(lines: &[&FitLine], stress: &[FitLine]) -> DecisionModel {
    let needs = need_examples().into_iter().map(|(ratio, label)| Sample {
        features: vec![f64::from(ratio)],
        label,
        weight: 1.0,
    });
    let need = logistic(&needs.collect::<Vec<_>>(), 0.01);

    let mut matches = Vec::new();
    let (tools, others): (Vec<&&FitLine>, Vec<&&FitLine>) =
        lines.iter().partition(|line| line.gold.kind == ExpectedKind::Tool);
    for line in &tools {
        for scale in SIMILARITY_SCALES {
            let weight = 1.0 / SIMILARITY_SCALES.len() as f64;
            matches.push(Sample { features: fit_features(&line.own.evidence, scale), label: true, weight });
        }
    }
    // Both classes have the same weight, so that the result is a likelihood ratio.
    let negatives = others.len() as f64 + FOREIGN_WEIGHT * tools.len() as f64;
    let ratio = tools.len() as f64 / negatives;
    for line in &others {
        matches.push(Sample { features: fit_features(&line.own.evidence, 1.0), label: false, weight: ratio });
    }
    for foreign in tools.iter().filter_map(|line| line.foreign.as_ref()) {
        matches.push(Sample {
            features: fit_features(&foreign.evidence, 1.0),
            label: false,
            weight: FOREIGN_WEIGHT * ratio,
        });
    }
    let fit = logistic(&matches, 1.0);

    let ranked = |line: &FitLine, right_weight, wrong_weight| {
        let label = is_first(line);
        let features = line.own.evidence.rank.map(f64::from).to_vec();
        Sample { features, label, weight: if label { right_weight } else { wrong_weight } }
    };
    let unseen = stress.iter().filter(|line| line.gold.kind == ExpectedKind::Tool);
    let mut ranks: Vec<Sample> = unseen.map(|line| ranked(line, 1.0, STRESS_WRONG_WEIGHT)).collect();
    ranks.extend(tools.iter().map(|line| ranked(line, CALIBRATION_WEIGHT, CALIBRATION_WEIGHT)));
    let rank = logistic(&ranks, 0.05);

    let rounded = |numbers: &[f64]| {
        numbers.iter().map(|number| (number * 100.0).round() as f32 / 100.0).collect::<Vec<f32>>()
    };
    DecisionModel {
        need: rounded(&need).try_into().expect("a slope and a base"),
        fit: rounded(&fit).try_into().expect("a weight per feature and a base"),
        rank: rounded(&rank).try_into().expect("two weights and a base"),
    }
}

/// Features of a match, with the similarity scaled.
fn fit_features(evidence: &ChoiceEvidence, scale: f32) -> Vec<f64> {
    let [cosine, coverage, margin, complete, covered_words] = evidence.fit;
    // The margin is that of the fused score: the similarity's part of it shrinks, too.
    let lexical_margin = margin - (margin * cosine / (cosine + LEXICAL_WEIGHT * coverage).max(0.01));
    let scaled_margin = lexical_margin + (margin - lexical_margin) * scale;
    [cosine * scale, coverage, scaled_margin, complete, covered_words].map(f64::from).to_vec()
}

fn is_first(line: &FitLine) -> bool {
    line.own.hits.first().is_some_and(|hit| line.gold.tools.contains(&hit.name))
}

fn answer<'a>(line: &'a FitLine, model: &DecisionModel) -> (&'a FitLine, bool, ChoiceDecision, f32) {
    let choice = line.own.clone().decide(model);
    let right = match (line.gold.kind, choice.decision) {
        (ExpectedKind::Tool, ChoiceDecision::Tool) => is_first(line),
        (ExpectedKind::None, ChoiceDecision::None) => true,
        _ => false,
    };
    (line, right, choice.decision, choice.confidence)
}

fn report(name: &str, answers: &[(&FitLine, bool, ChoiceDecision, f32)]) {
    let share = |all: Vec<bool>| match all.len() {
        0 => "–".to_owned(),
        count => format!("{:.3}", all.iter().filter(|right| **right).count() as f64 / count as f64),
    };
    let of = |kind: ExpectedKind, decision: ChoiceDecision| {
        share(answers.iter().filter(|one| one.0.gold.kind == kind).map(|one| one.2 == decision).collect())
    };
    let said_none = answers.iter().filter(|one| one.2 == ChoiceDecision::None);
    let mut sorted: Vec<(f64, bool)> = answers.iter().map(|one| (f64::from(one.3), one.1)).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let size = sorted.len().div_ceil(5).max(1);
    let error: f64 = sorted
        .chunks(size)
        .map(|bin| (bin.iter().map(|(told, right)| told - f64::from(u8::from(*right))).sum::<f64>()).abs())
        .sum::<f64>()
        / sorted.len() as f64;
    println!(
        "{name:<13} {:>4} lines, right {}, asked {}, none recall {} precision {}, calibration error {error:.3}",
        answers.len(),
        share(answers.iter().map(|one| one.1).collect()),
        of(ExpectedKind::Tool, ChoiceDecision::Ask),
        of(ExpectedKind::None, ChoiceDecision::None),
        share(said_none.map(|one| one.0.gold.kind == ExpectedKind::None).collect()),
    );
}

/// Fits a logistic regression by Newton's method, with a penalty on the weights. Returns the weights and the base.
fn logistic(samples: &[Sample], penalty: f64) -> Vec<f64> {
    let size = samples[0].features.len() + 1;
    let mut weights = vec![0.0; size];
    for _ in 0..50 {
        let mut gradient = vec![0.0; size];
        let mut hessian = vec![vec![0.0; size]; size];
        for at in 0..size {
            let own = if at + 1 < size { penalty } else { 1e-6 };
            gradient[at] = own * weights[at];
            hessian[at][at] = own;
        }
        for Sample { features, label, weight } in samples {
            let full: Vec<f64> = features.iter().copied().chain([1.0]).collect();
            let value: f64 = full.iter().zip(&weights).map(|(feature, weight)| feature * weight).sum();
            let told = 1.0 / (1.0 + (-value).exp());
            for (row, feature) in full.iter().enumerate() {
                gradient[row] += weight * (told - f64::from(u8::from(*label))) * feature;
                for (column, other) in full.iter().enumerate() {
                    hessian[row][column] += weight * told * (1.0 - told) * feature * other;
                }
            }
        }
        let step = solve(hessian, gradient);
        weights.iter_mut().zip(&step).for_each(|(weight, step)| *weight -= step);
        if step.iter().all(|step| step.abs() < 1e-9) {
            break;
        }
    }
    weights
}

/// Solves a system of linear equations with a positive definite matrix by Gaussian elimination.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let size = right.len();
    for pivot in 0..size {
        let (above, below) = matrix.split_at_mut(pivot + 1);
        let pivot_row = &above[pivot];
        for (row, values) in below.iter_mut().enumerate() {
            let factor = values[pivot] / pivot_row[pivot];
            for (value, other) in values.iter_mut().zip(pivot_row).skip(pivot) {
                *value -= factor * other;
            }
            right[pivot + 1 + row] -= factor * right[pivot];
        }
    }
    for row in (0..size).rev() {
        for column in row + 1..size {
            right[row] -= matrix[row][column] * right[column];
        }
        right[row] /= matrix[row][row];
    }
    right
}

fn model_numbers(model: &DecisionModel) -> Vec<f32> {
    [&model.need[..], &model.fit, &model.rank].concat()
}

fn source_of(model: &DecisionModel) -> String {
    format!(
        "//! The constants of the decision model. Generated by `cargo xtask fit`; do not edit.\n\n\
         use super::DecisionModel;\n\n/// The learned constants.\n\
         pub const FITTED: DecisionModel = DecisionModel {{\n    need: {:?},\n    fit: {:?},\n    rank: {:?},\n}};\n",
        model.need, model.fit, model.rank
    )
}
