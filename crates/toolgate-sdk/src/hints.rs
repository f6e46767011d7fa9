//! Hints for the agent that called, beside the data: what the author knows, and the rest worked out.
//!
//! An author says what follows from the domain; what follows from the call itself (how it ended, how often the
//! tool goes well, what its definition declares) is filled in. Invariant: every core field is there on every
//! result, and confidence is a product of named factors, never a number from nowhere.

use std::time::Duration;

use serde_json::json;
use toolgate_types::call::{ErrorClass, Outcome};
use toolgate_types::hints::reliability;
pub use toolgate_types::hints::{
    ActionCategory, AgentHints, Alignment, Alternative, Dependency, DependencyKind, EstimatedImpact,
    NextAction, PreferenceAlignment, RelatedResource, RiskFactor, RiskKind, Severity, Share, SourceQuality,
    ValidityPeriod, Warning, WarningKind,
};

use crate::definition::Definition;
use crate::error::ToolError;

/// A result with hints. A tool that has none to give just returns its data.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer<T> {
    /// The result.
    pub data: T,
    /// What to know beside it.
    pub hints: Hints,
}

impl<T> Answer<T> {
    /// A result with hints.
    pub fn new(data: T, hints: Hints) -> Self {
        Self { data, hints }
    }
}

impl<T> From<T> for Answer<T> {
    fn from(data: T) -> Self {
        Self { data, hints: Hints::new() }
    }
}

/// What the author of a tool knows about one result.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Hints {
    actions: Vec<NextAction>,
    related: Vec<RelatedResource>,
    factors: Vec<(Share, String)>,
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

/// Every method adds and gives back, so that hints are one expression.
impl Hints {
    /// No hints yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Something to do next.
    #[must_use]
    pub fn next(self, action: &str, priority: Severity, description: &str) -> Self {
        self.next_action(NextAction::new(action, priority, description))
    }

    /// Something to do next, with details.
    #[must_use]
    pub fn next_action(mut self, action: NextAction) -> Self {
        self.actions.push(action);
        self
    }

    /// Something that the result is about; how much it is, from 0 to 1.
    #[must_use]
    pub fn related(mut self, kind: &str, id: impl ToString, label: &str, relevance: f64) -> Self {
        let (kind, id, label) = (kind.to_owned(), id.to_string(), label.to_owned());
        let relevance = Share::nearest(relevance);
        self.related.push(RelatedResource { kind, id, label, relevance, metadata: None });
        self
    }

    /// Something that confidence depends on: how far it can be relied on, from 0 to 1, and what it is.
    #[must_use]
    pub fn factor(mut self, share: f64, why: &str) -> Self {
        self.factors.push((Share::nearest(share), why.to_owned()));
        self
    }

    /// How reliable the source of the data is.
    #[must_use]
    pub fn source(mut self, quality: SourceQuality) -> Self {
        self.quality = Some(quality);
        self
    }

    /// How long this holds.
    #[must_use]
    pub fn valid(mut self, period: ValidityPeriod) -> Self {
        self.validity = Some(period);
        self
    }

    /// What would have made the hints better.
    #[must_use]
    pub fn needs(mut self, context: &str) -> Self {
        self.context_needed.push(context.to_owned());
        self
    }

    /// What was taken for granted.
    #[must_use]
    pub fn assumes(mut self, assumption: &str) -> Self {
        self.assumptions.push(assumption.to_owned());
        self
    }

    /// What could go wrong.
    #[must_use]
    pub fn risk(mut self, risk: RiskFactor) -> Self {
        self.risks.push(risk);
        self
    }

    /// An action that waits for others.
    #[must_use]
    pub fn depends(mut self, action: &str, on: &[&str], kind: DependencyKind, reason: &str) -> Self {
        let depends_on = on.iter().map(|&action| action.to_owned()).collect();
        let (action, reason) = (action.to_owned(), Some(reason.to_owned()));
        self.dependencies.push(Dependency { action, depends_on, kind, reason });
        self
    }

    /// What following the suggestions brings and costs, each from 0 to 1.
    #[must_use]
    pub fn impact(mut self, benefit: f64, effort: f64) -> Self {
        self.impact = Some(EstimatedImpact::new(Share::nearest(benefit), Share::nearest(effort)));
        self
    }

    /// How a suggestion fits what the person prefers, from −1 to 1.
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

    /// Something to be careful about.
    #[must_use]
    pub fn warn(mut self, kind: WarningKind, severity: Severity, message: &str) -> Self {
        self.warnings.push(warning(kind, severity, message.to_owned()));
        self
    }

    /// Another way to the same end.
    #[must_use]
    pub fn alternative(mut self, approach: &str, confidence: f64, reasoning: &str) -> Self {
        self.alternatives.push(Alternative {
            approach: approach.to_owned(),
            confidence: Share::nearest(confidence),
            reasoning: reasoning.to_owned(),
            pros: Vec::new(),
            cons: Vec::new(),
            estimated_impact: None,
        });
        self
    }

    /// What bounds the suggestions.
    #[must_use]
    pub fn constraint(mut self, constraint: &str) -> Self {
        self.constraints.push(constraint.to_owned());
        self
    }
}

/// What happened in a call.
pub(crate) struct Facts<'a> {
    pub(crate) definition: &'a Definition,
    pub(crate) error: Option<&'a ToolError>,
    pub(crate) took: Duration,
    /// Calls of this tool so far, and those that went well, this one among them.
    pub(crate) record: (u64, u64),
}

impl Hints {
    /// All of them, with what follows from the call.
    pub(crate) fn finish(mut self, facts: &Facts<'_>) -> AgentHints {
        let definition = facts.definition;
        let confidence = self.confidence(facts);
        let reasoning = self.reasoning(facts);
        match facts.error {
            Some(error) => self.actions.push(way_on(error)),
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
        if let Some(gone) = &definition.deprecated {
            let message = format!("it is on its way out and is refused after {}", gone.removal_date);
            let mut warning = warning(WarningKind::Deprecation, Severity::Medium, message);
            warning.suggested_fix = Some(format!("use `{}`", gone.replacement));
            self.warnings.push(warning);
        }
        self.actions.sort_by_key(|action| action.priority);
        let surest =
            self.actions.iter().filter_map(|action| action.confidence).fold(0.0, |a, b| f64::max(a, b.get()));
        let seconds = facts.took.as_secs_f64();
        let impact =
            || EstimatedImpact::new(Share::nearest(surest), Share::nearest(seconds / (1.0 + seconds)));
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

    /// The author's factors times the tool's record; an error that was found before anything was done is certain.
    fn confidence(&self, facts: &Facts<'_>) -> Share {
        match facts.error {
            Some(error) if error.outcome == Outcome::NotStarted => Share::ALL,
            Some(error) if error.outcome == Outcome::Unknown => Share::nearest(0.5),
            Some(_) => Share::ALL,
            None => {
                let (calls, good) = facts.record;
                let record = 0.5 + 0.5 * reliability(calls, good);
                Share::nearest(self.factors.iter().fold(record, |all, (share, _)| all * share.get()))
            }
        }
    }

    fn reasoning(&self, facts: &Facts<'_>) -> String {
        let (calls, good) = facts.record;
        let mut parts: Vec<String> =
            self.factors.iter().map(|(share, why)| format!("{why} ({})", share.get())).collect();
        parts.push(format!("{good} of {calls} calls of this tool went well"));
        parts.join("; ")
    }
}

fn warning(kind: WarningKind, severity: Severity, message: String) -> Warning {
    Warning { kind, severity, message, related_ids: Vec::new(), suggested_fix: None, auto_fixable: None }
}

fn validity(facts: &Facts<'_>) -> ValidityPeriod {
    match (facts.error.map(|error| error.retry_after), facts.definition.cache_ttl) {
        (Some(Some(pause)), _) => ValidityPeriod::within(pause.as_secs()),
        (None, Some(ttl)) => ValidityPeriod::within(ttl.get().as_secs()),
        _ => ValidityPeriod::Immediate,
    }
}

/// What to do after an error, in the words of Toolgate's own road.
fn way_on(error: &ToolError) -> NextAction {
    let told = error.hint.clone().unwrap_or_else(|| error.message.clone());
    let (name, priority) = match (error.class, error.outcome) {
        _ if error.retryable => ("wait-and-retry", Severity::Medium),
        (_, Outcome::Unknown) => ("check-outcome", Severity::High),
        (ErrorClass::Validation, _) => ("correct-arguments", Severity::High),
        (ErrorClass::Business, _) => ("change-plan", Severity::High),
        (ErrorClass::System, _) => ("report-failure", Severity::Medium),
    };
    let mut action = NextAction::new(name, priority, told);
    action.category = Some(ActionCategory::Correction);
    action.data = error.retry_after.map(|pause| json!({ "retryAfterMs": pause.as_millis() as u64 }));
    action
}
