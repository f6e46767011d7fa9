//! Hints: derives advice for the caller from a finished call. docs/hints.md lists every rule.
//!
//! All hints follow from this call and the statistics of the tool. Invariant: no value is made up; without evidence a
//! field is empty or says so.

use std::time::Duration;

use serde_json::{Value, json};
use toolgate_redact::sanitize::sanitize;
use toolgate_types::hints;
use toolgate_types::hints::{
    ActionCategory, AgentHints, Alignment, Dependency, DependencyKind, EstimatedImpact, NextAction,
    PreferenceAlignment, Ratio, RelatedResource, RiskFactor, RiskKind, Severity, SourceQuality,
    ValidityPeriod, Warning, WarningKind,
};
use toolgate_types::tool::{Deprecation, FollowUp, RiskLevel, ToolContract};
use toolgate_types::{CallError, ErrorCode, ExecutionState, Stage};

use crate::results::{READ_RESULT, TruncatedResult};

/// Preferences that are evaluated.
const MAX_PREFERENCES: usize = 50;

/// Origin of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultSource {
    /// A tool of this project.
    Own,
    /// A server the operator trusts.
    Trusted,
    Untrusted,
}

/// Result of the output validation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SchemaFit {
    /// The result matches its schema.
    Valid,
    /// The tool has no output schema.
    NoSchema,
    /// The result does not match, and is returned with a warning.
    Mismatch(String),
}

/// Call statistics of a tool at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatsSnapshot {
    /// Calls that reached the tool.
    pub calls: u64,
    pub succeeded: u64,
    /// Total duration in microseconds.
    pub micros: u64,
}

/// Tools that callers used next, with counts.
pub(crate) type NextTools = Vec<(String, u64)>;

/// Everything about a call that the hints depend on.
pub(crate) struct CallFacts<'a> {
    pub(crate) source: ResultSource,
    pub(crate) contract: &'a ToolContract,
    pub(crate) deprecated: Option<&'a Deprecation>,
    pub(crate) schema_fit: SchemaFit,
    pub(crate) attempts: u32,
    /// Age and TTL of a cached result.
    pub(crate) cached: Option<(Duration, Duration)>,
    pub(crate) cache_ttl: Option<Duration>,
    pub(crate) stats: StatsSnapshot,
    pub(crate) next_tools: NextTools,
    /// Next steps declared by the tool's author or the operator.
    pub(crate) follow_ups: &'a [FollowUp],
    /// The user's preferences: for each one, a score per action.
    pub(crate) preferences: Option<&'a Value>,
    pub(crate) related: Vec<RelatedResource>,
    /// Set if the result was truncated.
    pub(crate) truncated: Option<&'a TruncatedResult>,
    pub(crate) error: Option<&'a CallError>,
}

/// Lower bound of the success rate.
pub(crate) fn reliability(record: StatsSnapshot) -> f64 {
    hints::reliability(record.calls, record.succeeded)
}

/// Builds all hints of a finished call.
pub(crate) fn attach(facts: &CallFacts<'_>) -> AgentHints {
    let actions = actions(facts);
    let impact = impact(facts, &actions);
    let mut related = facts.related.clone();
    related.extend(facts.truncated.and_then(|truncated| truncated.uri.clone()).map(|uri| RelatedResource {
        kind: "result".to_owned(),
        label: "the full result".to_owned(),
        id: uri,
        relevance: Ratio::ONE,
        metadata: None,
    }));
    AgentHints {
        confidence: confidence(facts),
        source_quality: source_quality(facts),
        validity_period: validity_period(facts),
        context_needed: context_needed(facts),
        assumptions: assumptions(facts),
        risk_factors: risks(facts),
        warnings: warnings(facts),
        dependencies: dependencies(facts),
        preference_alignment: preference_alignment(facts, &actions),
        suggested_next_actions: actions,
        related_resources: related,
        estimated_impact: impact,
        reasoning: Some(reasoning(facts)),
        alternatives: Vec::new(),
        constraints: Vec::new(),
        metadata: None,
    }
}

fn trust(source: ResultSource) -> f64 {
    match source {
        ResultSource::Own => 1.0,
        ResultSource::Trusted => 0.95,
        ResultSource::Untrusted => 0.8,
    }
}

fn confidence(facts: &CallFacts<'_>) -> Ratio {
    match facts.error {
        // Errors detected before anything was sent are certain.
        Some(error) if error.stage != Stage::Invoke && error.outcome == ExecutionState::NotStarted => {
            Ratio::ONE
        }
        Some(error) => {
            let known = if error.outcome == ExecutionState::Unknown { 0.5 } else { 1.0 };
            Ratio::clamped(known * trust(facts.source))
        }
        None => {
            let fit = match facts.schema_fit {
                SchemaFit::Valid => 1.0,
                SchemaFit::NoSchema => 0.9,
                SchemaFit::Mismatch(_) => 0.5,
            };
            let retries = 0.95_f64.powi(i32::try_from(facts.attempts.saturating_sub(1)).unwrap_or(i32::MAX));
            let age = facts
                .cached
                .map_or(1.0, |(age, ttl)| 1.0 - 0.3 * (age.as_secs_f64() / ttl.as_secs_f64()).min(1.0));
            // This call succeeded, so even a tool without history gets half of the weight.
            let record = 0.5 + 0.5 * reliability(facts.stats);
            // The part that is not shown lowers the confidence.
            let shown_share = facts
                .truncated
                .map_or(1.0, |truncated| 0.5 + 0.5 * truncated.shown as f64 / truncated.total as f64);
            Ratio::clamped(fit * retries * age * trust(facts.source) * record * shown_share)
        }
    }
}

fn source_quality(facts: &CallFacts<'_>) -> SourceQuality {
    match (facts.source, &facts.schema_fit, facts.stats.calls) {
        (_, SchemaFit::Mismatch(_), _) => SourceQuality::Low,
        (ResultSource::Own, ..) => SourceQuality::High,
        (ResultSource::Trusted, ..) => SourceQuality::Medium,
        (ResultSource::Untrusted, _, 0) => SourceQuality::Unknown,
        (ResultSource::Untrusted, ..) => SourceQuality::Low,
    }
}

fn validity_period(facts: &CallFacts<'_>) -> ValidityPeriod {
    match (facts.error, facts.cached, facts.cache_ttl) {
        (Some(error), ..) => {
            ValidityPeriod::longest_within(error.retry_after.map_or(0, |after| after.as_secs()))
        }
        (None, Some((age, ttl)), _) => ValidityPeriod::longest_within(ttl.saturating_sub(age).as_secs()),
        (None, None, Some(ttl)) => ValidityPeriod::longest_within(ttl.as_secs()),
        (None, None, None) => ValidityPeriod::Immediate,
    }
}

fn context_needed(facts: &CallFacts<'_>) -> Vec<String> {
    let mut needed = Vec::new();
    if facts.error.is_none() && facts.schema_fit == SchemaFit::NoSchema {
        needed.push("an output schema, to validate the result".to_owned());
    }
    if facts.stats.calls < 5 {
        needed.push(format!("more calls of the tool: {} so far", facts.stats.calls));
    }
    needed
}

fn assumptions(facts: &CallFacts<'_>) -> Vec<String> {
    let mut assumed = Vec::new();
    if facts.source == ResultSource::Untrusted {
        assumed.push("the server's own claims are not trusted".to_owned());
    }
    if facts.cached.is_some() {
        assumed.push("nothing has changed since the result was cached".to_owned());
    }
    assumed
}

fn risks(facts: &CallFacts<'_>) -> Vec<RiskFactor> {
    let mut risks = Vec::new();
    let failing = Ratio::clamped(1.0 - reliability(facts.stats));
    if facts.stats.calls >= 5 && failing.get() > 0.3 {
        risks.push(RiskFactor {
            kind: RiskKind::Accuracy,
            severity: if failing.get() > 0.6 { Severity::High } else { Severity::Medium },
            description: format!("{} of {} calls succeeded", facts.stats.succeeded, facts.stats.calls),
            probability: failing,
            impact: Ratio::clamped(match facts.contract.risk {
                RiskLevel::Low => 0.3,
                RiskLevel::Medium => 0.6,
                RiskLevel::High => 0.9,
            }),
            mitigation: Some("check the result by other means".to_owned()),
        });
    }
    if facts.error.is_some_and(|error| error.outcome == ExecutionState::Unknown) && !facts.contract.idempotent
    {
        risks.push(RiskFactor {
            kind: RiskKind::Accuracy,
            severity: Severity::Critical,
            description: "the tool may have done all, some or none of its work".to_owned(),
            probability: Ratio::clamped(0.5),
            impact: Ratio::ONE,
            mitigation: Some("check its effects before calling it again".to_owned()),
        });
    }
    risks
}

fn warnings(facts: &CallFacts<'_>) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if let SchemaFit::Mismatch(why) = &facts.schema_fit {
        warnings.push(Warning {
            kind: WarningKind::Validation,
            severity: Severity::Medium,
            message: format!("the result does not match the tool's output schema: {why}"),
            related_ids: Vec::new(),
            suggested_fix: Some("set `output_validation: strict` to reject such results".to_owned()),
            auto_fixable: Some(false),
        });
    }
    if let Some(Deprecation { since, replacement, removal_date }) = facts.deprecated {
        warnings.push(Warning {
            kind: WarningKind::Deprecation,
            severity: Severity::High,
            message: format!("deprecated since {since}, refused after {removal_date}"),
            related_ids: vec![replacement.to_string()],
            suggested_fix: Some(format!("use `{replacement}`")),
            auto_fixable: Some(false),
        });
    }
    if let Some(truncated) = facts.truncated {
        let stored = truncated.uri.is_some();
        warnings.push(Warning {
            kind: WarningKind::Validation,
            severity: if stored { Severity::Medium } else { Severity::High },
            message: format!("{} of {} bytes of the result are shown", truncated.shown, truncated.total),
            related_ids: truncated.uri.iter().cloned().collect(),
            suggested_fix: Some(match stored {
                true => format!("`{READ_RESULT}` reads the rest"),
                false => "the rest could not be stored; request less".to_owned(),
            }),
            auto_fixable: Some(stored),
        });
    }
    if facts.attempts > 1 {
        warnings.push(Warning {
            kind: WarningKind::Performance,
            severity: Severity::Low,
            message: format!("it took {} attempts", facts.attempts),
            related_ids: Vec::new(),
            suggested_fix: None,
            auto_fixable: None,
        });
    }
    warnings
}

fn actions(facts: &CallFacts<'_>) -> Vec<NextAction> {
    let mut actions: Vec<_> =
        facts.error.map(|error| action_after_error(error, facts.contract)).into_iter().collect();
    if let Some(Deprecation { replacement, .. }) = facts.deprecated {
        let mut action =
            NextAction::new(replacement.to_string(), Severity::High, "the replacement for this tool");
        action.category = Some(ActionCategory::Correction);
        actions.push(action);
    }
    if let Some(TruncatedResult { uri: Some(uri), .. }) = facts.truncated {
        let mut action = NextAction::new(READ_RESULT, Severity::High, "read the rest of the result");
        action.category = Some(ActionCategory::Exploration);
        action.data = Some(json!({ "uri": uri }));
        actions.push(action);
    }
    if facts.error.is_none() {
        for FollowUp { action, priority, description, after } in facts.follow_ups {
            let text = description.as_deref().unwrap_or("declared as a next step of this tool");
            let mut action = NextAction::new(action, *priority, text);
            action.prerequisites.clone_from(after);
            actions.push(action);
        }
        let all: u64 = facts.next_tools.iter().map(|(_, count)| count).sum();
        let declared = |tool: &str| facts.follow_ups.iter().any(|follow_up| follow_up.action == tool);
        for (tool, count) in facts.next_tools.iter().filter(|(tool, _)| !declared(tool)).take(3) {
            let mut action =
                NextAction::new(tool, Severity::Low, format!("followed this tool {count} of {all} times"));
            action.category = Some(ActionCategory::Exploration);
            action.confidence = Some(Ratio::clamped(*count as f64 / all as f64));
            actions.push(action);
        }
    }
    actions.sort_by_key(|action| action.priority);
    actions
}

/// Prerequisites of the declared next steps.
fn dependencies(facts: &CallFacts<'_>) -> Vec<Dependency> {
    let wait = |follow_up: &&FollowUp| facts.error.is_none() && !follow_up.after.is_empty();
    let dependency = |follow_up: &FollowUp| Dependency {
        action: follow_up.action.clone(),
        depends_on: follow_up.after.clone(),
        kind: DependencyKind::Required,
        reason: follow_up.description.clone(),
    };
    facts.follow_ups.iter().filter(wait).map(dependency).collect()
}

/// Scores the suggested actions against the user's preferences.
fn preference_alignment(facts: &CallFacts<'_>, actions: &[NextAction]) -> Vec<PreferenceAlignment> {
    let preferences = facts.preferences.and_then(Value::as_object).into_iter().flatten();
    let known = preferences.take(MAX_PREFERENCES).flat_map(|(preference, scores)| {
        actions.iter().filter_map(move |action| {
            let score = scores.get(&action.action)?.as_f64()?.clamp(-1.0, 1.0);
            Some(PreferenceAlignment {
                action: action.action.clone(),
                preference: sanitize(preference).into_owned(),
                alignment: match score {
                    score if score < -0.1 => Alignment::Conflict,
                    score if score <= 0.1 => Alignment::Neutral,
                    score if score < 0.4 => Alignment::Weak,
                    score if score < 0.7 => Alignment::Moderate,
                    _ => Alignment::Strong,
                },
                score,
                explanation: None,
            })
        })
    });
    known.collect()
}

/// Suggests the next step after an error.
fn action_after_error(error: &CallError, contract: &ToolContract) -> NextAction {
    use Severity::{Critical, High, Medium};
    let (action, priority, text) = match error.code {
        ErrorCode::InvalidArguments => ("correct-arguments", High, "call again with valid arguments"),
        ErrorCode::ToolNotFound => ("list-tools", High, "list the available tools"),
        ErrorCode::Unauthorized => ("request-permission", High, "ask the operator for the permission"),
        ErrorCode::RateLimited | ErrorCode::Overloaded => ("wait-and-retry", Medium, "call again later"),
        ErrorCode::ServiceUnavailable | ErrorCode::StorageUnavailable => {
            ("wait-and-retry", Medium, "call again when it is back")
        }
        ErrorCode::Timeout | ErrorCode::ProviderFailure | ErrorCode::Cancelled
            if error.outcome == ExecutionState::Unknown && !contract.idempotent =>
        {
            ("check-outcome", Critical, "check what the tool has done before calling it again")
        }
        ErrorCode::Timeout | ErrorCode::ProviderFailure | ErrorCode::Cancelled => {
            ("retry", Medium, "call again")
        }
        ErrorCode::ToolExecutionError => {
            ("correct-arguments", Medium, "read the tool's error message and correct the arguments")
        }
        ErrorCode::InvalidOutput | ErrorCode::OutputTooLarge => {
            ("narrow-request", Medium, "request less, or something else")
        }
        ErrorCode::DeprecatedRemoved => ("use-replacement", High, "use the replacement"),
    };
    let mut next = NextAction::new(action, priority, text);
    next.category = Some(ActionCategory::Correction);
    next.data = error.retry_after.map(|after| json!({ "retryAfterMs": after.as_millis() }));
    next
}

/// Estimates benefit and effort of the suggestions: benefit from their confidence or priority, effort from the average
/// duration of the tool.
fn impact(facts: &CallFacts<'_>, actions: &[NextAction]) -> EstimatedImpact {
    let benefit = actions.iter().map(|action| match (action.confidence, action.priority) {
        (Some(confidence), _) => confidence.get(),
        (None, Severity::Critical) => 1.0,
        (None, Severity::High) => 0.8,
        (None, Severity::Medium) => 0.5,
        (None, Severity::Low) => 0.2,
    });
    let benefit = benefit.fold(0.0, f64::max);
    // One second of average duration is half of the maximum effort.
    let seconds = facts.stats.micros as f64 / 1e6 / facts.stats.calls.max(1) as f64;
    let effort = if actions.is_empty() { 0.0 } else { seconds / (1.0 + seconds) };
    EstimatedImpact::new(Ratio::clamped(benefit), Ratio::clamped(effort))
}

fn reasoning(facts: &CallFacts<'_>) -> String {
    let source = match facts.source {
        ResultSource::Own => "one of your own tools",
        ResultSource::Trusted => "a trusted server",
        ResultSource::Untrusted => "an untrusted server",
    };
    let fit = match (&facts.error, &facts.schema_fit) {
        (Some(error), _) => format!("the call failed with {}", error.code.label()),
        (None, SchemaFit::Valid) => "the result matches its schema".to_owned(),
        (None, SchemaFit::NoSchema) => "the result has no schema".to_owned(),
        (None, SchemaFit::Mismatch(_)) => "the result does not match its schema".to_owned(),
    };
    let StatsSnapshot { calls, succeeded: good, .. } = facts.stats;
    format!("from {source}; {fit}; {good} of {calls} calls succeeded so far")
}

#[cfg(test)]
mod tests;
