//! Hints for the agent that called: what to do next, how far to trust the result, what could go wrong.
//!
//! The JSON names are those of the tool interface specification. Invariant: every core field is there on
//! every result, and every share of one is between 0 and 1.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A share of one: 0 is none, 1 is all.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Share(f64);

/// A number is not a share of one.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{0} is not between 0 and 1")]
pub struct NotAShare(pub f64);

impl Share {
    /// Nothing.
    pub const NONE: Self = Self(0.0);
    /// Everything.
    pub const ALL: Self = Self(1.0);

    /// The nearest share to a number; what is no number is nothing.
    pub fn nearest(number: f64) -> Self {
        // Three digits are more than any of these figures can bear.
        let rounded = (number * 1000.0).round() / 1000.0;
        Self(if rounded.is_nan() { 0.0 } else { rounded.clamp(0.0, 1.0) })
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Share {
    type Error = NotAShare;

    fn try_from(number: f64) -> Result<Self, NotAShare> {
        if (0.0..=1.0).contains(&number) { Ok(Self(number)) } else { Err(NotAShare(number)) }
    }
}

impl From<Share> for f64 {
    fn from(share: Share) -> Self {
        share.0
    }
}

/// How often something goes well at least, with nine chances in ten: the lower end of Wilson's interval.
/// What was never tried is as good as not known.
pub fn reliability(tried: u64, good: u64) -> f64 {
    const Z: f64 = 1.28;
    // Two tries, one good and one bad, stand for what anyone would guess beforehand.
    let (n, good) = (tried as f64 + 2.0, good as f64 + 1.0);
    let rate = good / n;
    let spread = Z * (rate * (1.0 - rate) / n + Z * Z / (4.0 * n * n)).sqrt();
    ((rate + Z * Z / (2.0 * n) - spread) / (1.0 + Z * Z / n)).clamp(0.0, 1.0)
}

/// What a caller should know beside the data. The fields before `reasoning` are always there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentHints {
    /// What to do next, the most urgent first.
    pub suggested_next_actions: Vec<NextAction>,
    /// What the result is about or refers to.
    pub related_resources: Vec<RelatedResource>,
    /// How far the result can be relied on.
    pub confidence: Share,
    /// How reliable the source is.
    pub source_quality: SourceQuality,
    /// How long this holds.
    pub validity_period: ValidityPeriod,
    /// What would have made the hints better.
    pub context_needed: Vec<String>,
    /// What was taken for granted.
    pub assumptions: Vec<String>,
    /// What could go wrong.
    pub risk_factors: Vec<RiskFactor>,
    /// Which suggested actions wait for others.
    pub dependencies: Vec<Dependency>,
    /// What following the suggestions brings and costs.
    pub estimated_impact: EstimatedImpact,
    /// How the suggestions fit what the user prefers.
    pub preference_alignment: Vec<PreferenceAlignment>,
    /// Why these hints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// What to be careful about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// Other ways to the same end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Alternative>,
    /// What bounds the suggestions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<String>,
    /// Where the hints come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<HintsMetadata>,
}

/// How urgent or how bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// At once, or at any cost.
    Critical,
    /// Soon.
    High,
    /// In its turn.
    Medium,
    /// When there is time.
    Low,
}

/// Something to do next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NextAction {
    /// A name for it: a tool, or a word for what to do.
    pub action: String,
    /// How urgent it is.
    pub priority: Severity,
    /// What it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// What it is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// How long it takes, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_time: Option<u64>,
    /// What it costs, in a unit that its tool declares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_cost: Option<f64>,
    /// What kind of step it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<ActionCategory>,
    /// Actions that come before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prerequisites: Vec<String>,
    /// What will have happened then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_outcome: Option<String>,
    /// Whether it can be undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reversible: Option<bool>,
    /// How sure this suggestion is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Share>,
}

impl NextAction {
    /// A suggestion without details.
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

/// What kind of step an action is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionCategory {
    /// To find out more.
    Exploration,
    /// To do better.
    Optimization,
    /// To put something right.
    Correction,
    /// To learn.
    Learning,
}

/// Something the result is about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RelatedResource {
    /// What kind of thing it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it is asked for by.
    pub id: String,
    /// Its name for people.
    pub label: String,
    /// How much it has to do with the result.
    pub relevance: Share,
    /// More about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// How reliable a source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceQuality {
    /// Authoritative and checked.
    High,
    /// Reliable as a rule.
    Medium,
    /// Uncertain.
    Low,
    /// Nobody can tell.
    Unknown,
}

/// How long hints hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValidityPeriod {
    /// For the next action.
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
    /// The longest period that ends within a time.
    pub fn within(seconds: u64) -> Self {
        match seconds {
            0..300 => Self::Immediate,
            300..3_600 => Self::Short,
            3_600..86_400 => Self::Medium,
            86_400.. => Self::Long,
        }
    }
}

/// Something that could go wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RiskFactor {
    /// What it would hurt.
    #[serde(rename = "type")]
    pub kind: RiskKind,
    /// How bad it would be.
    pub severity: Severity,
    /// What it is.
    pub description: String,
    /// How likely it is.
    pub probability: Share,
    /// How much it would matter.
    pub impact: Share,
    /// What helps against it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mitigation: Option<String>,
}

/// What a risk would hurt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RiskKind {
    /// Speed.
    Performance,
    /// Truth.
    Accuracy,
    /// Money, or what stands for it.
    Cost,
    /// Ease.
    Complexity,
    /// The person who waits.
    UserExperience,
}

/// An action that waits for others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dependency {
    /// The action that waits.
    pub action: String,
    /// What it waits for.
    pub depends_on: Vec<String>,
    /// How much it has to.
    #[serde(rename = "type")]
    pub kind: DependencyKind,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How much an action has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DependencyKind {
    /// It fails otherwise.
    Required,
    /// It goes better so.
    Recommended,
    /// It may.
    Optional,
}

/// What following the suggestions brings and costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EstimatedImpact {
    /// What it brings.
    pub benefit: Share,
    /// What it takes.
    pub effort: Share,
    /// The one over the other.
    pub roi: f64,
    /// What it moves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub affected_metrics: Vec<String>,
}

impl EstimatedImpact {
    /// The ratio follows from the two; what takes nothing is as good as what it brings.
    pub fn new(benefit: Share, effort: Share) -> Self {
        let roi = if effort.get() > 0.0 { benefit.get() / effort.get() } else { benefit.get() };
        Self { benefit, effort, roi: (roi * 1000.0).round() / 1000.0, affected_metrics: Vec::new() }
    }
}

/// How a suggestion fits what the user prefers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreferenceAlignment {
    /// The suggestion.
    pub action: String,
    /// The preference.
    pub preference: String,
    /// How well they fit.
    pub alignment: Alignment,
    /// The same as a number, from -1 to 1.
    pub score: f64,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
}

/// How well a suggestion fits a preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Alignment {
    /// It is what the user wants.
    Strong,
    /// It is near it.
    Moderate,
    /// It has to do with it.
    Weak,
    /// It has nothing to do with it.
    Neutral,
    /// It is against it.
    Conflict,
}

/// Something to be careful about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Warning {
    /// What kind of thing it is.
    #[serde(rename = "type")]
    pub kind: WarningKind,
    /// How bad it is.
    pub severity: Severity,
    /// What it is.
    pub message: String,
    /// What it concerns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related_ids: Vec<String>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggested_fix: Option<String>,
    /// Whether a program can do it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_fixable: Option<bool>,
}

/// What kind of thing a warning is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningKind {
    /// Something does not have its form.
    Validation,
    /// Something is there twice.
    Duplicate,
    /// Two things do not go together.
    Conflict,
    /// Something is on its way out.
    Deprecation,
    /// Something takes long.
    Performance,
}

/// Another way to the same end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Alternative {
    /// What it is.
    pub approach: String,
    /// How sure it is to work.
    pub confidence: Share,
    /// Why it is named.
    pub reasoning: String,
    /// What speaks for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pros: Vec<String>,
    /// What speaks against it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cons: Vec<String>,
    /// What it would bring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_impact: Option<Share>,
}

/// Where hints come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HintsMetadata {
    /// When they were made, in UTC.
    pub generated_at: String,
    /// Who made them.
    pub generated_by: String,
    /// The model, where one took part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_version: Option<String>,
    /// How long it took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processing_time: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_between_none_and_all() {
        for (number, share) in
            [(0.12345, 0.123), (-1.0, 0.0), (7.0, 1.0), (f64::NAN, 0.0), (f64::INFINITY, 1.0)]
        {
            assert_eq!(Share::nearest(number).get(), share, "{number}");
        }
        assert!(serde_json::from_str::<Share>("1.01").is_err());
        assert!(serde_json::from_str::<Share>("0.5").is_ok());
    }

    #[test]
    fn periods_end_within_their_time() {
        let periods = [0, 299, 300, 3_600, 86_400].map(ValidityPeriod::within);
        use ValidityPeriod::{Immediate, Long, Medium, Short};
        assert_eq!(periods, [Immediate, Immediate, Short, Medium, Long]);
    }
}
