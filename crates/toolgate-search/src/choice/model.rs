//! The decision model: probabilities from the evidence of a query.
//!
//! Three hypotheses compete: a tool is needed and the best one fits, a tool is needed and none fits, no tool is needed.
//! The evidence of each step is a likelihood ratio, learned on its own; `cargo xtask fit` computes the constants.
//! Invariant: pure arithmetic, the same on every machine up to rounding.

mod fitted;

pub use fitted::FITTED;

/// Number of features of a match.
pub(super) const FIT_FEATURES: usize = 5;

/// Share of requests that need no tool, and of those that need a tool missing in the catalog. The one constant that is
/// chosen: lower, and more requests without a fitting tool go to a tool; higher, and more tools are missed.
const UNSERVED_SHARE: f32 = 0.12;
/// Weight of the need against the match. Both are seen in the same words, so they are not independent.
const NEED_WEIGHT: f32 = 0.5;

/// The learned constants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DecisionModel {
    /// Log-odds that a tool is needed: slope over the ratio of the examples, and base.
    pub need: [f32; 2],
    /// Log-likelihood ratio that the best tool fits: weights of the features, and base.
    pub fit: [f32; FIT_FEATURES + 1],
    /// Log-odds that the best tool is the right one of those that fit: score, gap to the next, and base.
    pub rank: [f32; 3],
}

/// The evidence that the steps of a choice collect about a query.
#[derive(Debug, Clone, PartialEq)]
pub struct ChoiceEvidence {
    /// Log ratio of the densities of example queries that need a tool, and that need none.
    pub need_ratio: f32,
    /// Features of the best match: similarity, coverage, margin, 1 if its arguments are complete, covered words.
    pub fit: [f32; FIT_FEATURES],
    /// Score of the best tool, and the gap to the next one.
    pub rank: [f32; 2],
}

/// Probabilities of the hypotheses. They add up to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChoiceProbabilities {
    /// A tool is needed, and the best one fits.
    pub fits: f32,
    /// A tool is needed, and none fits.
    pub unserved: f32,
    /// No tool is needed.
    pub unneeded: f32,
    /// If one fits, the best one is the right one.
    pub first_is_right: f32,
}

impl DecisionModel {
    /// Returns the probabilities of the hypotheses.
    pub fn weigh(&self, evidence: &ChoiceEvidence) -> ChoiceProbabilities {
        let need = NEED_WEIGHT * linear(&self.need, &[evidence.need_ratio]);
        let fit = linear(&self.fit, &evidence.fit);
        let odds =
            [(1.0 - 2.0 * UNSERVED_SHARE).ln() + need + fit, UNSERVED_SHARE.ln() + need, UNSERVED_SHARE.ln()];
        let most = odds.into_iter().fold(f32::MIN, f32::max);
        let [fits, unserved, unneeded] = odds.map(|odds| (odds - most).exp());
        let sum = fits + unserved + unneeded;
        ChoiceProbabilities {
            fits: fits / sum,
            unserved: unserved / sum,
            unneeded: unneeded / sum,
            first_is_right: sigmoid(linear(&self.rank, &evidence.rank)),
        }
    }
}

/// Returns the weighted sum of features; the last weight is the base.
fn linear(weights: &[f32], features: &[f32]) -> f32 {
    let sum: f32 = weights.iter().zip(features).map(|(weight, feature)| weight * feature).sum();
    sum + weights[features.len()]
}

fn sigmoid(value: f32) -> f32 {
    1.0 / (1.0 + (-value).exp())
}
