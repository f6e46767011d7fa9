//! Hints for the calling agent: next steps, confidence in the result, risks.
//!
//! The JSON names are those of the tool interface specification. Invariant: every core field is present in every
//! result, and every [`Ratio`] is between 0 and 1.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Number between 0 and 1, both included.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Ratio(f64);

/// The number is not between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{0} is not between 0 and 1")]
pub struct RatioError(pub f64);

impl Ratio {
    /// The lowest value.
    pub const ZERO: Self = Self(0.0);
    /// The highest value.
    pub const ONE: Self = Self(1.0);

    /// Creates a ratio from any number: rounded to three digits, clamped to 0–1; NaN becomes 0.
    pub fn clamped(number: f64) -> Self {
        // The estimates are less precise than three digits.
        let rounded = (number * 1000.0).round() / 1000.0;
        Self(if rounded.is_nan() { 0.0 } else { rounded.clamp(0.0, 1.0) })
    }

    /// Returns the number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Ratio {
    type Error = RatioError;

    fn try_from(number: f64) -> Result<Self, RatioError> {
        if (0.0..=1.0).contains(&number) { Ok(Self(number)) } else { Err(RatioError(number)) }
    }
}

impl From<Ratio> for f64 {
    fn from(ratio: Ratio) -> Self {
        ratio.0
    }
}

/// Estimates the success rate of a tool: lower bound of the Wilson score interval at 90 % confidence (one-sided). With
/// few attempts the bound is low.
pub fn reliability(tried: u64, good: u64) -> f64 {
    const Z: f64 = 1.28;
    // Prior of one success and one failure, so that a tool without attempts starts at an even chance.
    let (n, good) = (tried as f64 + 2.0, good as f64 + 1.0);
    let rate = good / n;
    let spread = Z * (rate * (1.0 - rate) / n + Z * Z / (4.0 * n * n)).sqrt();
    ((rate + Z * Z / (2.0 * n) - spread) / (1.0 + Z * Z / n)).clamp(0.0, 1.0)
}

/// Hints about a result. The fields before `reasoning` are always present.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentHints {
    /// Next steps, most urgent first.
    pub suggested_next_actions: Vec<NextAction>,
    /// Things the result is about or refers to.
    pub related_resources: Vec<RelatedResource>,
    /// Confidence in the result.
    pub confidence: Ratio,
    /// Reliability of the source.
    pub source_quality: SourceQuality,
    /// Validity of the hints.
    pub validity_period: ValidityPeriod,
    /// Context that would have improved the hints.
    pub context_needed: Vec<String>,
    /// Assumptions behind the result.
    pub assumptions: Vec<String>,
    /// Possible problems.
    pub risk_factors: Vec<RiskFactor>,
    /// Order constraints between the suggested actions.
    pub dependencies: Vec<Dependency>,
    /// Benefit and effort of following the suggestions.
    pub estimated_impact: EstimatedImpact,
    /// Fit of the suggestions with the user's preferences.
    pub preference_alignment: Vec<PreferenceAlignment>,
    /// Explanation of the hints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// Warnings about the result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// Other ways to reach the goal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Alternative>,
    /// Limits that the suggestions respect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<String>,
    /// Origin of the hints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<HintsMetadata>,
}

/// Urgency of an action, or severity of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Act at once.
    Critical,
    /// Act soon.
    High,
    /// Act in the normal course of work.
    Medium,
    /// Act when there is time.
    Low,
}

/// Suggested next step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NextAction {
    /// Name of a tool, or a word for the action.
    pub action: String,
    pub priority: Severity,
    /// Input of the action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// Description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Expected duration in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_time: Option<u64>,
    /// Expected cost, in a unit that the tool declares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_cost: Option<f64>,
    /// Purpose of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<ActionCategory>,
    /// Actions that have to come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prerequisites: Vec<String>,
    /// Expected effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_outcome: Option<String>,
    /// True if the action can be undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reversible: Option<bool>,
    /// Confidence in the suggestion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Ratio>,
}

impl NextAction {
    /// Creates a suggestion without details.
    pub fn new(action: impl Into<String>, priority: Severity, description: impl Into<String>) -> Self {
        Self {
            action: action.into(),
            priority,
            data: None,
            description: Some(description.into()),
            estimated_time: None,
            estimated_cost: None,
            category: None,
            prerequisites: Vec::new(),
            expected_outcome: None,
            reversible: None,
            confidence: None,
        }
    }
}

/// Purpose of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionCategory {
    /// Finds out more.
    Exploration,
    /// Improves a result.
    Optimization,
    /// Fixes a problem.
    Correction,
    /// Teaches the agent or the user something.
    Learning,
}

/// Thing the result is about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RelatedResource {
    /// Kind of the resource.
    #[serde(rename = "type")]
    pub kind: String,
    /// ID by which tools refer to it.
    pub id: String,
    /// Name for people.
    pub label: String,
    /// Relevance to the result.
    pub relevance: Ratio,
    /// Further data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// Reliability of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceQuality {
    /// Authoritative and verified.
    High,
    /// Usually reliable.
    Medium,
    /// Uncertain.
    Low,
    /// Cannot be judged.
    Unknown,
}

/// Validity of hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValidityPeriod {
    /// For the next action only.
    Immediate,
    /// About five minutes.
    Short,
    /// About an hour.
    Medium,
    /// About a day.
    Long,
    /// Until something else changes.
    Indefinite,
}

impl ValidityPeriod {
    /// Returns the longest period that is not longer than `seconds`.
    pub fn longest_within(seconds: u64) -> Self {
        match seconds {
            0..300 => Self::Immediate,
            300..3_600 => Self::Short,
            3_600..86_400 => Self::Medium,
            86_400.. => Self::Long,
        }
    }
}

/// Possible problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RiskFactor {
    /// Aspect that would suffer.
    #[serde(rename = "type")]
    pub kind: RiskKind,
    /// Severity if it happens.
    pub severity: Severity,
    /// Description for people.
    pub description: String,
    /// Likelihood.
    pub probability: Ratio,
    /// Extent of the damage.
    pub impact: Ratio,
    /// Measure that avoids it or limits the damage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mitigation: Option<String>,
}

/// Aspect that a risk concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RiskKind {
    /// Speed.
    Performance,
    /// Correctness of results.
    Accuracy,
    /// Money or quota.
    Cost,
    /// Complexity of the solution.
    Complexity,
    /// Experience of the user.
    UserExperience,
}

/// Order constraint between suggested actions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dependency {
    /// Action that has to wait.
    pub action: String,
    /// Actions it waits for.
    pub depends_on: Vec<String>,
    /// Strength of the constraint.
    #[serde(rename = "type")]
    pub kind: DependencyKind,
    /// Reason of the constraint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Strength of an order constraint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DependencyKind {
    /// The action fails otherwise.
    Required,
    /// The action works better in this order.
    Recommended,
    /// Either order works.
    Optional,
}

/// Lowest effort that has a return on investment.
const MIN_EFFORT: f64 = 0.1;

/// Benefit and effort of following the suggestions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EstimatedImpact {
    /// Expected benefit.
    pub benefit: Ratio,
    /// Expected effort.
    pub effort: Ratio,
    /// Return on investment: benefit divided by effort. Left out if the effort is so low that the ratio says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roi: Option<f64>,
    /// Metrics that would change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub affected_metrics: Vec<String>,
}

impl EstimatedImpact {
    /// Computes the return on investment.
    pub fn new(benefit: Ratio, effort: Ratio) -> Self {
        let roi = (effort.get() >= MIN_EFFORT).then(|| benefit.get() / effort.get());
        let roi = roi.map(|roi| (roi * 1000.0).round() / 1000.0);
        Self { benefit, effort, roi, affected_metrics: Vec::new() }
    }
}

/// Fit of a suggestion with a preference of the user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreferenceAlignment {
    /// Name of the suggested action.
    pub action: String,
    /// The preference.
    pub preference: String,
    /// Degree of fit.
    pub alignment: Alignment,
    /// Degree of fit as a number from -1 to 1.
    pub score: f64,
    /// Explanation of the degree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
}

/// Degree of fit between a suggestion and a preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Alignment {
    /// Exactly what the user wants.
    Strong,
    /// Close to it.
    Moderate,
    /// Loosely related.
    Weak,
    /// Unrelated.
    Neutral,
    /// Contrary to it.
    Conflict,
}

/// Warning about a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Warning {
    /// Kind of the problem.
    #[serde(rename = "type")]
    pub kind: WarningKind,
    pub severity: Severity,
    /// Description for people.
    pub message: String,
    /// IDs of the affected resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related_ids: Vec<String>,
    /// Suggested fix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggested_fix: Option<String>,
    /// True if a program can fix it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_fixable: Option<bool>,
}

/// Kind of problem a warning reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningKind {
    /// Malformed or invalid data.
    Validation,
    /// Duplicate data.
    Duplicate,
    /// Contradicting data.
    Conflict,
    /// Use of something deprecated.
    Deprecation,
    /// Slow operation.
    Performance,
}

/// Other way to reach the goal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Alternative {
    /// Description of the approach.
    pub approach: String,
    /// Confidence that it works.
    pub confidence: Ratio,
    /// Reason for suggesting it.
    pub reasoning: String,
    /// Advantages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pros: Vec<String>,
    /// Disadvantages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cons: Vec<String>,
    /// Expected benefit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_impact: Option<Ratio>,
}

/// Origin of hints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HintsMetadata {
    /// Time of creation, in UTC.
    pub generated_at: String,
    /// Program that created them.
    pub generated_by: String,
    /// Version of the model, if one was involved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_version: Option<String>,
    /// Duration of their creation in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processing_time: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_clamped() {
        for (number, ratio) in
            [(0.12345, 0.123), (-1.0, 0.0), (7.0, 1.0), (f64::NAN, 0.0), (f64::INFINITY, 1.0)]
        {
            assert_eq!(Ratio::clamped(number).get(), ratio, "{number}");
        }
        assert!(serde_json::from_str::<Ratio>("1.01").is_err());
        assert!(serde_json::from_str::<Ratio>("0.5").is_ok());
    }

    #[test]
    fn returns_longest_period_within_seconds() {
        let periods = [0, 299, 300, 3_600, 86_400].map(ValidityPeriod::longest_within);
        use ValidityPeriod::{Immediate, Long, Medium, Short};
        assert_eq!(periods, [Immediate, Immediate, Short, Medium, Long]);
    }
}
