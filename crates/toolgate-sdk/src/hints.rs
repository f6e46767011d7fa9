//! Hints for the calling agent, returned with the data.
//!
//! A tool adds what follows from its domain; everything that follows from the call itself (its outcome, the tool's
//! success rate, its definition) is filled in. Invariant: every core field is present in every result, and confidence
//! is a product of named factors.

use std::time::Duration;

use serde_json::json;
use toolgate_types::call::{ErrorClass, ExecutionState};
use toolgate_types::hints::reliability;
pub use toolgate_types::hints::{
    ActionCategory, AgentHints, Alignment, Alternative, Dependency, DependencyKind, EstimatedImpact,
    NextAction, PreferenceAlignment, Ratio, RelatedResource, RiskFactor, RiskKind, Severity, SourceQuality,
    ValidityPeriod, Warning, WarningKind,
};

use crate::definition::Definition;
use crate::error::ToolError;

/// Result with hints. A tool without hints returns plain data instead.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer<T> {
    /// Data of the result.
    pub data: T,
    /// Hints about the data.
    pub hints: Hints,
}

impl<T> Answer<T> {
    /// Creates a result with hints.
    pub fn new(data: T, hints: Hints) -> Self {
        Self { data, hints }
    }
}

impl<T> From<T> for Answer<T> {
    fn from(data: T) -> Self {
        Self { data, hints: Hints::new() }
    }
}

/// Hints about one result.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Hints {
    actions: Vec<NextAction>,
    related: Vec<RelatedResource>,
    factors: Vec<(Ratio, String)>,
    quality: Option<SourceQuality>,
    validity: Option<ValidityPeriod>,
    context_needed: Vec<String>,
    assumptions: Vec<String>,
    risks: Vec<RiskFactor>,
    dependencies: Vec<Dependency>,
    impact: Option<EstimatedImpact>,
    alignment: Vec<PreferenceAlignment>,
    warnings: Vec<Warning>,
    alternatives: Vec<Alternative>,
    constraints: Vec<String>,
}

/// Every method adds one hint and returns the whole, so that hints are written as one expression.
impl Hints {
    /// Creates an empty set of hints.
    pub fn new() -> Self {
        Self::default()
    }

    /// Suggests a next step.
    #[must_use]
    pub fn next(self, action: &str, priority: Severity, description: &str) -> Self {
        self.next_action(NextAction::new(action, priority, description))
    }

    /// Suggests a next step, with details.
    #[must_use]
    pub fn next_action(mut self, action: NextAction) -> Self {
        self.actions.push(action);
        self
    }

    /// Adds a thing the result is about, with its relevance from 0 to 1.
    #[must_use]
    pub fn related(mut self, kind: &str, id: impl ToString, label: &str, relevance: f64) -> Self {
        let (kind, id, label) = (kind.to_owned(), id.to_string(), label.to_owned());
        let relevance = Ratio::clamped(relevance);
        self.related.push(RelatedResource { kind, id, label, relevance, metadata: None });
        self
    }

    /// Adds a factor of the confidence: a number from 0 (unreliable) to 1 (reliable), and its reason.
    #[must_use]
    pub fn factor(mut self, ratio: f64, why: &str) -> Self {
        self.factors.push((Ratio::clamped(ratio), why.to_owned()));
        self
    }

    /// Sets the reliability of the source.
    #[must_use]
    pub fn source(mut self, quality: SourceQuality) -> Self {
        self.quality = Some(quality);
        self
    }

    /// Sets how long the hints hold.
    #[must_use]
    pub fn valid(mut self, period: ValidityPeriod) -> Self {
        self.validity = Some(period);
        self
    }

    /// Adds context that would have improved the hints.
    #[must_use]
    pub fn needs(mut self, context: &str) -> Self {
        self.context_needed.push(context.to_owned());
        self
    }

    /// Adds an assumption behind the result.
    #[must_use]
    pub fn assumes(mut self, assumption: &str) -> Self {
        self.assumptions.push(assumption.to_owned());
        self
    }

    /// Adds a possible problem.
    #[must_use]
    pub fn risk(mut self, risk: RiskFactor) -> Self {
        self.risks.push(risk);
        self
    }

    /// Declares that an action has to wait for others.
    #[must_use]
    pub fn depends(mut self, action: &str, on: &[&str], kind: DependencyKind, reason: &str) -> Self {
        let depends_on = on.iter().map(|&action| action.to_owned()).collect();
        let (action, reason) = (action.to_owned(), Some(reason.to_owned()));
        self.dependencies.push(Dependency { action, depends_on, kind, reason });
        self
    }

    /// Sets benefit and effort of following the suggestions, each from 0 to 1.
    #[must_use]
    pub fn impact(mut self, benefit: f64, effort: f64) -> Self {
        self.impact = Some(EstimatedImpact::new(Ratio::clamped(benefit), Ratio::clamped(effort)));
        self
    }

    /// Adds how well a suggestion fits a preference of the user, from −1 (conflict) to 1 (perfect fit).
    #[must_use]
    pub fn aligns(mut self, action: &str, preference: &str, score: f64) -> Self {
        let score = if score.is_nan() { 0.0 } else { score.clamp(-1.0, 1.0) };
        let alignment = match score {
            ..-0.1 => Alignment::Conflict,
            ..0.1 => Alignment::Neutral,
            ..0.4 => Alignment::Weak,
            ..0.7 => Alignment::Moderate,
            _ => Alignment::Strong,
        };
        let (action, preference) = (action.to_owned(), preference.to_owned());
        self.alignment.push(PreferenceAlignment { action, preference, alignment, score, explanation: None });
        self
    }

    /// Adds a warning.
    #[must_use]
    pub fn warn(mut self, kind: WarningKind, severity: Severity, message: &str) -> Self {
        self.warnings.push(warning(kind, severity, message.to_owned()));
        self
    }

    /// Adds another way to reach the goal, with the confidence from 0 to 1 that it works.
    #[must_use]
    pub fn alternative(mut self, approach: &str, confidence: f64, reasoning: &str) -> Self {
        self.alternatives.push(Alternative {
            approach: approach.to_owned(),
            confidence: Ratio::clamped(confidence),
            reasoning: reasoning.to_owned(),
            pros: Vec::new(),
            cons: Vec::new(),
            estimated_impact: None,
        });
        self
    }

    /// Adds a limit that the suggestions respect.
    #[must_use]
    pub fn constraint(mut self, constraint: &str) -> Self {
        self.constraints.push(constraint.to_owned());
        self
    }
}

/// Facts about a call from which hints are derived.
pub(crate) struct CallFacts<'a> {
    pub(crate) definition: &'a Definition,
    pub(crate) error: Option<&'a ToolError>,
    pub(crate) took: Duration,
    /// Calls of this tool so far, and the successful ones among them, this call included.
    pub(crate) record: (u64, u64),
}

impl Hints {
    /// Completes the hints with everything that follows from the call.
    pub(crate) fn complete(mut self, facts: &CallFacts<'_>) -> AgentHints {
        let definition = facts.definition;
        let confidence = self.confidence(facts);
        let reasoning = self.reasoning(facts);
        match facts.error {
            Some(error) => self.actions.push(recovery_action(error)),
            None => {
                for step in &definition.follow_ups {
                    let mut action = NextAction::new(
                        &*step.action,
                        step.priority,
                        step.description.clone().unwrap_or_default(),
                    );
                    action.description = action.description.filter(|text| !text.is_empty());
                    action.prerequisites.clone_from(&step.after);
                    self.actions.push(action);
                }
            }
        }
        for step in definition.follow_ups.iter().filter(|step| !step.after.is_empty()) {
            self.dependencies.push(Dependency {
                action: step.action.clone(),
                depends_on: step.after.clone(),
                kind: DependencyKind::Required,
                reason: None,
            });
        }
        if let Some(deprecation) = &definition.deprecated {
            let message =
                format!("the tool is deprecated; calls are rejected after {}", deprecation.removal_date);
            let mut warning = warning(WarningKind::Deprecation, Severity::Medium, message);
            warning.suggested_fix = Some(format!("use `{}`", deprecation.replacement));
            self.warnings.push(warning);
        }
        self.actions.sort_by_key(|action| action.priority);
        let highest =
            self.actions.iter().filter_map(|action| action.confidence).fold(0.0, |a, b| f64::max(a, b.get()));
        let seconds = facts.took.as_secs_f64();
        let impact =
            || EstimatedImpact::new(Ratio::clamped(highest), Ratio::clamped(seconds / (1.0 + seconds)));
        AgentHints {
            confidence,
            source_quality: self.quality.unwrap_or(SourceQuality::Unknown),
            validity_period: self.validity.unwrap_or_else(|| validity(facts)),
            estimated_impact: self.impact.unwrap_or_else(impact),
            reasoning: Some(reasoning),
            suggested_next_actions: self.actions,
            related_resources: self.related,
            context_needed: self.context_needed,
            assumptions: self.assumptions,
            risk_factors: self.risks,
            dependencies: self.dependencies,
            preference_alignment: self.alignment,
            warnings: self.warnings,
            alternatives: self.alternatives,
            constraints: self.constraints,
            metadata: None,
        }
    }

    /// Multiplies the author's factors with the tool's success rate. An error found before anything was done is
    /// certain.
    fn confidence(&self, facts: &CallFacts<'_>) -> Ratio {
        match facts.error {
            Some(error) if error.outcome == ExecutionState::NotStarted => Ratio::ONE,
            Some(error) if error.outcome == ExecutionState::Unknown => Ratio::clamped(0.5),
            Some(_) => Ratio::ONE,
            None => {
                let (calls, good) = facts.record;
                let record = 0.5 + 0.5 * reliability(calls, good);
                Ratio::clamped(self.factors.iter().fold(record, |all, (ratio, _)| all * ratio.get()))
            }
        }
    }

    fn reasoning(&self, facts: &CallFacts<'_>) -> String {
        let (calls, good) = facts.record;
        let mut parts: Vec<String> =
            self.factors.iter().map(|(ratio, why)| format!("{why} ({})", ratio.get())).collect();
        parts.push(format!("{good} of {calls} calls of this tool succeeded"));
        parts.join("; ")
    }
}

fn warning(kind: WarningKind, severity: Severity, message: String) -> Warning {
    Warning { kind, severity, message, related_ids: Vec::new(), suggested_fix: None, auto_fixable: None }
}

fn validity(facts: &CallFacts<'_>) -> ValidityPeriod {
    match (facts.error.map(|error| error.retry_after), facts.definition.cache_ttl) {
        (Some(Some(pause)), _) => ValidityPeriod::longest_within(pause.as_secs()),
        (None, Some(ttl)) => ValidityPeriod::longest_within(ttl.get().as_secs()),
        _ => ValidityPeriod::Immediate,
    }
}

/// Suggests what to do after an error, with the action names that the Toolgate pipeline uses.
fn recovery_action(error: &ToolError) -> NextAction {
    let description = error.hint.clone().unwrap_or_else(|| error.message.clone());
    let (name, priority) = match (error.class, error.outcome) {
        _ if error.retryable => ("wait-and-retry", Severity::Medium),
        (_, ExecutionState::Unknown) => ("check-outcome", Severity::High),
        (ErrorClass::Validation, _) => ("correct-arguments", Severity::High),
        (ErrorClass::Business, _) => ("change-plan", Severity::High),
        (ErrorClass::System, _) => ("report-failure", Severity::Medium),
    };
    let mut action = NextAction::new(name, priority, description);
    action.category = Some(ActionCategory::Correction);
    action.data = error.retry_after.map(|pause| json!({ "retryAfterMs": pause.as_millis() as u64 }));
    action
}
