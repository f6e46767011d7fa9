//! Hints: derives advice for the caller from a finished call. docs/hints.md lists every rule.
//!
//! All hints follow from this call and the statistics of the tool. They are computed when a front end asks for them:
//! [`attach`] builds the full set, [`suggested_actions`] only the actions that follow from the call itself. Invariant:
//! no value is made up; without evidence a field is empty or says so.

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
use toolgate_types::{CallError, ErrorCode, ExecutionState, Stage, ToolName};

use crate::results::{READ_RESULT, TruncatedResult};
use crate::stage::own_result::OwnHints;

mod brief;

use brief::PreparedStep;
pub use brief::SuggestedAction;
pub(crate) use brief::{FollowUps, suggested_actions};

/// Usual next tools that are suggested.
const MAX_NEXT_TOOLS: usize = 3;
/// Preferences that are evaluated.
const MAX_PREFERENCES: usize = 50;
/// Reasons of suggested actions.
const REPLACEMENT: &str = "the replacement for this tool";
const READ_REST: &str = "read the rest of the result";
const DECLARED_STEP: &str = "declared as a next step of this tool";
const OWN_STEP: &str = "suggested by the tool";

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

/// Tools that the caller used next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NextTools {
    /// Those used often enough to suggest them, with counts, most frequent first.
    pub(crate) often: Vec<(String, u64)>,
    /// Number of times that any tool was used next.
    pub(crate) total: u64,
}

/// Everything about a call that the hints depend on.
pub(crate) struct CallFacts<'v, 'a> {
    /// Name of the tool.
    pub(crate) tool: &'a str,
    /// Returns true if the caller sees the tool with this name, `None` if there is no such tool.
    pub(crate) is_visible: &'v dyn Fn(&str) -> Option<bool>,
    /// Returns true if the tool with this name may destroy something, as far as is known.
    pub(crate) may_destroy: &'v dyn Fn(&str) -> bool,
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
    pub(crate) follow_ups: &'a FollowUps,
    /// The user's preferences: for each one, a score per action.
    pub(crate) preferences: Option<&'a Value>,
    pub(crate) related: Vec<RelatedResource>,
    /// Set if the result was truncated.
    pub(crate) truncated: Option<&'a TruncatedResult>,
    pub(crate) error: Option<&'a CallError>,
    /// Hints of the tool itself.
    pub(crate) own_hints: OwnHints,
}

/// Lower bound of the success rate.
pub(crate) fn reliability(record: StatsSnapshot) -> f64 {
    hints::reliability(record.calls, record.succeeded)
}

/// Builds all hints of a finished call.
pub(crate) fn attach(facts: &CallFacts<'_, '_>) -> AgentHints {
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
    let mut hints = AgentHints {
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
    };
    facts.own_hints.merge_into(&mut hints, facts);
    hints
}

fn trust(source: ResultSource) -> f64 {
    match source {
        ResultSource::Own => 1.0,
        ResultSource::Trusted => 0.95,
        ResultSource::Untrusted => 0.8,
    }
}

fn confidence(facts: &CallFacts<'_, '_>) -> Ratio {
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

fn source_quality(facts: &CallFacts<'_, '_>) -> SourceQuality {
    match (facts.source, &facts.schema_fit, facts.stats.calls) {
        (_, SchemaFit::Mismatch(_), _) => SourceQuality::Low,
        (ResultSource::Own, ..) => SourceQuality::High,
        (ResultSource::Trusted, ..) => SourceQuality::Medium,
        (ResultSource::Untrusted, _, 0) => SourceQuality::Unknown,
        (ResultSource::Untrusted, ..) => SourceQuality::Low,
    }
}

fn validity_period(facts: &CallFacts<'_, '_>) -> ValidityPeriod {
    match (facts.error, facts.cached, facts.cache_ttl) {
        (Some(error), ..) => {
            ValidityPeriod::longest_within(error.retry_after.map_or(0, |after| after.as_secs()))
        }
        (None, Some((age, ttl)), _) => ValidityPeriod::longest_within(ttl.saturating_sub(age).as_secs()),
        (None, None, Some(ttl)) => ValidityPeriod::longest_within(ttl.as_secs()),
        (None, None, None) => ValidityPeriod::Immediate,
    }
}

fn context_needed(facts: &CallFacts<'_, '_>) -> Vec<String> {
    let mut needed = Vec::new();
    if facts.error.is_none() && facts.schema_fit == SchemaFit::NoSchema {
        needed.push("an output schema, to validate the result".to_owned());
    }
    if facts.stats.calls < 5 {
        needed.push(format!("more calls of the tool: {} so far", facts.stats.calls));
    }
    needed
}

fn assumptions(facts: &CallFacts<'_, '_>) -> Vec<String> {
    let mut assumed = Vec::new();
    if facts.source == ResultSource::Untrusted {
        assumed.push("the server's own claims are not trusted".to_owned());
    }
    if facts.cached.is_some() {
        assumed.push("nothing has changed since the result was cached".to_owned());
    }
    assumed
}

fn risks(facts: &CallFacts<'_, '_>) -> Vec<RiskFactor> {
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

fn warnings(facts: &CallFacts<'_, '_>) -> Vec<Warning> {
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
    if let Some(Deprecation { since, removal_date, .. }) = facts.deprecated {
        let replacement = shown_replacement(facts);
        warnings.push(Warning {
            kind: WarningKind::Deprecation,
            severity: Severity::High,
            message: format!("deprecated since {since}, refused after {removal_date}"),
            related_ids: replacement.iter().map(ToString::to_string).collect(),
            suggested_fix: replacement.map(|replacement| format!("use `{replacement}`")),
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

fn actions(facts: &CallFacts<'_, '_>) -> Vec<NextAction> {
    let mut actions: Vec<_> = facts.error.map(action_after_error).into_iter().collect();
    if let Some(replacement) = shown_replacement(facts) {
        let mut action = NextAction::new(replacement.to_string(), Severity::High, REPLACEMENT);
        action.category = Some(ActionCategory::Correction);
        actions.push(action);
    }
    if let Some(TruncatedResult { uri: Some(uri), .. }) = facts.truncated {
        let mut action = NextAction::new(READ_RESULT, Severity::High, READ_REST);
        action.category = Some(ActionCategory::Exploration);
        action.data = Some(json!({ "uri": uri }));
        actions.push(action);
    }
    if facts.error.is_none() {
        for (FollowUp { action, priority, description, after }, _) in shown_follow_ups(facts) {
            let text = description.as_deref().unwrap_or(DECLARED_STEP);
            let mut action = NextAction::new(action, *priority, text);
            action.prerequisites.clone_from(after);
            actions.push(action);
        }
        let NextTools { often, total } = &facts.next_tools;
        let is_suggested = |tool: &str| {
            let declared = facts.follow_ups.steps.iter().any(|follow_up| follow_up.action == tool);
            // A change is not suggested again because it was repeated before.
            let repeats = tool == facts.tool && facts.contract.risk != RiskLevel::Low;
            !declared && !repeats && !(facts.may_destroy)(tool) && (facts.is_visible)(tool) == Some(true)
        };
        for (tool, count) in often.iter().filter(|(tool, _)| is_suggested(tool)).take(MAX_NEXT_TOOLS) {
            let text = format!("followed this tool {count} of {total} times");
            let mut action = NextAction::new(tool, Severity::Low, text);
            action.category = Some(ActionCategory::Exploration);
            action.confidence = Some(Ratio::clamped(hints::reliability(*total, *count)));
            actions.push(action);
        }
    }
    actions.sort_by_key(|action| action.priority);
    actions
}

/// Declared next steps that the caller may know of: none that names, or depends on, a tool the caller does not see.
fn shown_follow_ups<'a>(facts: &CallFacts<'_, 'a>) -> impl Iterator<Item = (&'a FollowUp, &'a PreparedStep)> {
    let is_hidden = |name: &String| (facts.is_visible)(name) == Some(false);
    let FollowUps { steps, prepared } = facts.follow_ups;
    let is_shown = move |step: &FollowUp| !is_hidden(&step.action) && !step.after.iter().any(is_hidden);
    steps.iter().zip(prepared).filter(move |(step, _)| is_shown(step))
}

/// Replacement of a deprecated tool, if the caller sees it.
fn shown_replacement<'a>(facts: &CallFacts<'_, 'a>) -> Option<&'a ToolName> {
    let replacement = facts.deprecated.map(|deprecated| &deprecated.replacement);
    replacement.filter(|name| (facts.is_visible)(name.as_str()) != Some(false))
}

/// Prerequisites of the declared next steps.
fn dependencies(facts: &CallFacts<'_, '_>) -> Vec<Dependency> {
    let wait = |follow_up: &&FollowUp| facts.error.is_none() && !follow_up.after.is_empty();
    let dependency = |follow_up: &FollowUp| Dependency {
        action: follow_up.action.clone(),
        depends_on: follow_up.after.clone(),
        kind: DependencyKind::Required,
        reason: follow_up.description.clone(),
    };
    shown_follow_ups(facts).map(|(follow_up, _)| follow_up).filter(wait).map(dependency).collect()
}

/// Scores the suggested actions against the user's preferences.
fn preference_alignment(facts: &CallFacts<'_, '_>, actions: &[NextAction]) -> Vec<PreferenceAlignment> {
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

/// Suggests the next step after an error: action, priority and reason. Suggests a retry if, and only if, the error says
/// that it is retryable.
fn error_action(error: &CallError) -> (&'static str, Severity, &'static str) {
    use Severity::{Critical, High, Medium};
    match error.code {
        ErrorCode::RateLimited | ErrorCode::Overloaded if error.is_retryable() => {
            ("wait-and-retry", Medium, "call again later")
        }
        ErrorCode::ServiceUnavailable | ErrorCode::StorageUnavailable if error.is_retryable() => {
            ("wait-and-retry", Medium, "call again when it is back")
        }
        _ if error.is_retryable() => ("retry", Medium, "call again"),
        ErrorCode::InvalidArguments => ("correct-arguments", High, "call it with valid arguments"),
        ErrorCode::ToolNotFound => ("list-tools", High, "list the available tools"),
        ErrorCode::NotFound => ("list-resources", High, "list what is available"),
        ErrorCode::Unauthorized => ("request-permission", High, "ask the operator for the permission"),
        ErrorCode::DeprecatedRemoved => ("use-replacement", High, "use the replacement"),
        ErrorCode::InvalidOutput | ErrorCode::OutputTooLarge => {
            ("narrow-request", Medium, "request less, or something else")
        }
        _ if error.outcome == ExecutionState::Unknown => {
            ("check-outcome", Critical, "check what the tool has done before anything else")
        }
        ErrorCode::ToolExecutionError => {
            ("correct-arguments", Medium, "read the tool's error message and correct the arguments")
        }
        ErrorCode::ToolUnusable
        | ErrorCode::RateLimited
        | ErrorCode::Overloaded
        | ErrorCode::Timeout
        | ErrorCode::ServiceUnavailable
        | ErrorCode::ProviderFailure
        | ErrorCode::Cancelled
        | ErrorCode::StorageUnavailable => {
            ("report-problem", High, "tell the operator: the same call would fail in the same way")
        }
    }
}

/// The suggested step after an error, with all details.
fn action_after_error(error: &CallError) -> NextAction {
    let (action, priority, text) = error_action(error);
    let mut next = NextAction::new(action, priority, text);
    next.category = Some(ActionCategory::Correction);
    let retry_after = error.retry_after.filter(|_| error.is_retryable());
    next.data = retry_after.map(|after| json!({ "retryAfterMs": after.as_millis() }));
    next
}

/// Estimates benefit and effort of the suggestions: benefit from their confidence or priority, effort from the average
/// duration of the tool.
fn impact(facts: &CallFacts<'_, '_>, actions: &[NextAction]) -> EstimatedImpact {
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

fn reasoning(facts: &CallFacts<'_, '_>) -> String {
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
mod situations;
#[cfg(test)]
mod tests;
