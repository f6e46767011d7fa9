//! Hints: what a caller should know beside the data. docs/hints.md says every rule in words.
//!
//! Everything here follows from what happened in this call and what is known of the tool. Invariant: no
//! figure is a constant that pretends; where nothing is known, the field is empty or says so.

use std::time::Duration;

use serde_json::{Value, json};
use toolgate_types::clean::clean;
use toolgate_types::hints;
use toolgate_types::hints::{
    ActionCategory, AgentHints, Alignment, Dependency, DependencyKind, EstimatedImpact, NextAction,
    PreferenceAlignment, RelatedResource, RiskFactor, RiskKind, Severity, Share, SourceQuality,
    ValidityPeriod, Warning, WarningKind,
};
use toolgate_types::tool::{Contract, Deprecation, FollowUp, Risk};
use toolgate_types::{CallError, ErrorCode, Outcome, Stage};

use crate::results::{Cut, READ_RESULT};

/// Preferences that are looked at.
const MOST_PREFERENCES: usize = 50;

/// Where a result comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// A tool of one's own.
    Own,
    /// A server that the operator trusts.
    Trusted,
    /// Any other server.
    Untrusted,
}

/// How the result fits its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fit {
    /// It was checked and fits.
    Checked,
    /// There is no schema to check it against.
    Unchecked,
    /// It does not fit, and passes all the same.
    Misfit(String),
}

/// What a tool has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Record {
    /// Calls that reached the tool.
    pub calls: u64,
    /// Those that it did well.
    pub good: u64,
    /// The time that calls took in all, in microseconds.
    pub micros: u64,
}

/// What callers did after a tool, and how often.
pub(crate) type Next = Vec<(String, u64)>;

/// What happened in a call.
pub(crate) struct Facts<'a> {
    pub(crate) source: Source,
    pub(crate) contract: &'a Contract,
    pub(crate) deprecated: Option<&'a Deprecation>,
    pub(crate) fit: Fit,
    pub(crate) attempts: u32,
    /// For a result from the cache: its age, and how old it may get.
    pub(crate) cached: Option<(Duration, Duration)>,
    pub(crate) cache_ttl: Option<Duration>,
    pub(crate) record: Record,
    pub(crate) next: Next,
    /// What the tool's author or the operator says comes after it.
    pub(crate) follow_ups: &'a [FollowUp],
    /// What the person behind the call prefers: for each preference, how well actions fit it.
    pub(crate) preferences: Option<&'a Value>,
    pub(crate) related: Vec<RelatedResource>,
    /// What became of a result that was too large.
    pub(crate) cut: Option<&'a Cut>,
    pub(crate) error: Option<&'a CallError>,
}

/// How often it goes well at least.
pub(crate) fn reliability(record: Record) -> f64 {
    hints::reliability(record.calls, record.good)
}

/// All hints for a call that has ended.
pub(crate) fn attach(facts: &Facts<'_>) -> AgentHints {
    let actions = actions(facts);
    let impact = impact(facts, &actions);
    let mut related = facts.related.clone();
    related.extend(facts.cut.and_then(|cut| cut.uri.clone()).map(|uri| RelatedResource {
        kind: "result".to_owned(),
        label: "the whole result".to_owned(),
        id: uri,
        relevance: Share::ALL,
        metadata: None,
    }));
    AgentHints {
        confidence: confidence(facts),
        source_quality: quality(facts),
        validity_period: validity(facts),
        context_needed: context_needed(facts),
        assumptions: assumptions(facts),
        risk_factors: risks(facts),
        warnings: warnings(facts),
        dependencies: dependencies(facts),
        preference_alignment: alignment(facts, &actions),
        suggested_next_actions: actions,
        related_resources: related,
        estimated_impact: impact,
        reasoning: Some(reasoning(facts)),
        alternatives: Vec::new(),
        constraints: Vec::new(),
        metadata: None,
    }
}

fn trust(source: Source) -> f64 {
    match source {
        Source::Own => 1.0,
        Source::Trusted => 0.95,
        Source::Untrusted => 0.8,
    }
}

fn confidence(facts: &Facts<'_>) -> Share {
    match facts.error {
        // What we found out ourselves before anything was sent is certain.
        Some(error) if error.stage != Stage::Invoke && error.outcome == Outcome::NotStarted => Share::ALL,
        Some(error) => {
            let known = if error.outcome == Outcome::Unknown { 0.5 } else { 1.0 };
            Share::nearest(known * trust(facts.source))
        }
        None => {
            let fit = match facts.fit {
                Fit::Checked => 1.0,
                Fit::Unchecked => 0.9,
                Fit::Misfit(_) => 0.5,
            };
            let retries = 0.95_f64.powi(i32::try_from(facts.attempts.saturating_sub(1)).unwrap_or(i32::MAX));
            let age = facts
                .cached
                .map_or(1.0, |(age, ttl)| 1.0 - 0.3 * (age.as_secs_f64() / ttl.as_secs_f64()).min(1.0));
            // A tool that worked just now deserves more than its record, which may be short.
            let record = 0.5 + 0.5 * reliability(facts.record);
            // What is not shown may say something else.
            let seen = facts.cut.map_or(1.0, |cut| 0.5 + 0.5 * cut.shown as f64 / cut.of as f64);
            Share::nearest(fit * retries * age * trust(facts.source) * record * seen)
        }
    }
}

fn quality(facts: &Facts<'_>) -> SourceQuality {
    match (facts.source, &facts.fit, facts.record.calls) {
        (_, Fit::Misfit(_), _) => SourceQuality::Low,
        (Source::Own, ..) => SourceQuality::High,
        (Source::Trusted, ..) => SourceQuality::Medium,
        (Source::Untrusted, _, 0) => SourceQuality::Unknown,
        (Source::Untrusted, ..) => SourceQuality::Low,
    }
}

fn validity(facts: &Facts<'_>) -> ValidityPeriod {
    match (facts.error, facts.cached, facts.cache_ttl) {
        (Some(error), ..) => ValidityPeriod::within(error.retry_after.map_or(0, |after| after.as_secs())),
        (None, Some((age, ttl)), _) => ValidityPeriod::within(ttl.saturating_sub(age).as_secs()),
        (None, None, Some(ttl)) => ValidityPeriod::within(ttl.as_secs()),
        (None, None, None) => ValidityPeriod::Immediate,
    }
}

fn context_needed(facts: &Facts<'_>) -> Vec<String> {
    let mut needed = Vec::new();
    if facts.error.is_none() && facts.fit == Fit::Unchecked {
        needed.push("a schema of the tool's result, to check it against".to_owned());
    }
    if facts.record.calls < 5 {
        needed.push(format!("more calls of the tool: {} so far", facts.record.calls));
    }
    needed
}

fn assumptions(facts: &Facts<'_>) -> Vec<String> {
    let mut assumed = Vec::new();
    if facts.source == Source::Untrusted {
        assumed.push("what the server says of itself is not relied on".to_owned());
    }
    if facts.cached.is_some() {
        assumed.push("nothing has changed since the result was kept".to_owned());
    }
    assumed
}

fn risks(facts: &Facts<'_>) -> Vec<RiskFactor> {
    let mut risks = Vec::new();
    let failing = Share::nearest(1.0 - reliability(facts.record));
    if facts.record.calls >= 5 && failing.get() > 0.3 {
        risks.push(RiskFactor {
            kind: RiskKind::Accuracy,
            severity: if failing.get() > 0.6 { Severity::High } else { Severity::Medium },
            description: format!("{} of {} calls went well", facts.record.good, facts.record.calls),
            probability: failing,
            impact: Share::nearest(match facts.contract.risk {
                Risk::Low => 0.3,
                Risk::Medium => 0.6,
                Risk::High => 0.9,
            }),
            mitigation: Some("check the result by other means".to_owned()),
        });
    }
    if facts.error.is_some_and(|error| error.outcome == Outcome::Unknown) && !facts.contract.idempotent {
        risks.push(RiskFactor {
            kind: RiskKind::Accuracy,
            severity: Severity::Critical,
            description: "the tool may have done all, a part or nothing of it".to_owned(),
            probability: Share::nearest(0.5),
            impact: Share::ALL,
            mitigation: Some("look at what it was to change before it is called again".to_owned()),
        });
    }
    risks
}

fn warnings(facts: &Facts<'_>) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if let Fit::Misfit(why) = &facts.fit {
        warnings.push(Warning {
            kind: WarningKind::Validation,
            severity: Severity::Medium,
            message: format!("the result does not fit the tool's own schema: {why}"),
            related_ids: Vec::new(),
            suggested_fix: Some("`output_validation: strict` refuses such results".to_owned()),
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
    if let Some(cut) = facts.cut {
        let kept = cut.uri.is_some();
        warnings.push(Warning {
            kind: WarningKind::Validation,
            severity: if kept { Severity::Medium } else { Severity::High },
            message: format!("{} of {} bytes of the result are shown", cut.shown, cut.of),
            related_ids: cut.uri.iter().cloned().collect(),
            suggested_fix: Some(match kept {
                true => format!("`{READ_RESULT}` reads the rest"),
                false => "the rest could not be kept; ask for less".to_owned(),
            }),
            auto_fixable: Some(kept),
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

fn actions(facts: &Facts<'_>) -> Vec<NextAction> {
    let mut actions: Vec<_> = facts.error.map(|error| after(error, facts.contract)).into_iter().collect();
    if let Some(Deprecation { replacement, .. }) = facts.deprecated {
        let mut action = NextAction::new(replacement.to_string(), Severity::High, "what replaces this tool");
        action.category = Some(ActionCategory::Correction);
        actions.push(action);
    }
    if let Some(Cut { uri: Some(uri), .. }) = facts.cut {
        let mut action = NextAction::new(READ_RESULT, Severity::High, "read what is not shown");
        action.category = Some(ActionCategory::Exploration);
        action.data = Some(json!({ "uri": uri }));
        actions.push(action);
    }
    if facts.error.is_none() {
        for FollowUp { action, priority, description, after } in facts.follow_ups {
            let text = description.as_deref().unwrap_or("declared to come after this tool");
            let mut action = NextAction::new(action, *priority, text);
            action.prerequisites.clone_from(after);
            actions.push(action);
        }
        let all: u64 = facts.next.iter().map(|(_, count)| count).sum();
        let declared = |tool: &str| facts.follow_ups.iter().any(|follow_up| follow_up.action == tool);
        for (tool, count) in facts.next.iter().filter(|(tool, _)| !declared(tool)).take(3) {
            let mut action =
                NextAction::new(tool, Severity::Low, format!("what followed {count} of {all} times"));
            action.category = Some(ActionCategory::Exploration);
            action.confidence = Some(Share::nearest(*count as f64 / all as f64));
            actions.push(action);
        }
    }
    actions.sort_by_key(|action| action.priority);
    actions
}

/// What declared steps wait for.
fn dependencies(facts: &Facts<'_>) -> Vec<Dependency> {
    let wait = |follow_up: &&FollowUp| facts.error.is_none() && !follow_up.after.is_empty();
    let dependency = |follow_up: &FollowUp| Dependency {
        action: follow_up.action.clone(),
        depends_on: follow_up.after.clone(),
        kind: DependencyKind::Required,
        reason: follow_up.description.clone(),
    };
    facts.follow_ups.iter().filter(wait).map(dependency).collect()
}

/// How the suggestions fit what the person prefers.
fn alignment(facts: &Facts<'_>, actions: &[NextAction]) -> Vec<PreferenceAlignment> {
    let preferences = facts.preferences.and_then(Value::as_object).into_iter().flatten();
    let known = preferences.take(MOST_PREFERENCES).flat_map(|(preference, scores)| {
        actions.iter().filter_map(move |action| {
            let score = scores.get(&action.action)?.as_f64()?.clamp(-1.0, 1.0);
            Some(PreferenceAlignment {
                action: action.action.clone(),
                preference: clean(preference).into_owned(),
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

/// The way on from an error.
fn after(error: &CallError, contract: &Contract) -> NextAction {
    use Severity::{Critical, High, Medium};
    let (action, priority, text) = match error.code {
        ErrorCode::InvalidArguments => ("correct-arguments", High, "call again with arguments that fit"),
        ErrorCode::ToolNotFound => ("list-tools", High, "see which tools there are"),
        ErrorCode::Unauthorized => ("request-permission", High, "ask whoever gives permissions"),
        ErrorCode::RateLimited | ErrorCode::Overloaded => ("wait-and-retry", Medium, "call again later"),
        ErrorCode::ServiceUnavailable | ErrorCode::StorageUnavailable => {
            ("wait-and-retry", Medium, "call again when it is back")
        }
        ErrorCode::Timeout | ErrorCode::ProviderFailure | ErrorCode::Cancelled
            if error.outcome == Outcome::Unknown && !contract.idempotent =>
        {
            ("check-outcome", Critical, "find out what the tool has done before it is called again")
        }
        ErrorCode::Timeout | ErrorCode::ProviderFailure | ErrorCode::Cancelled => {
            ("retry", Medium, "call again")
        }
        ErrorCode::ToolExecutionError => {
            ("correct-arguments", Medium, "read what the tool says, and correct it")
        }
        ErrorCode::InvalidOutput | ErrorCode::OutputTooLarge => {
            ("narrow-request", Medium, "ask for less, or for something else")
        }
        ErrorCode::DeprecatedRemoved => ("use-replacement", High, "use the tool that took its place"),
    };
    let mut next = NextAction::new(action, priority, text);
    next.category = Some(ActionCategory::Correction);
    next.data = error.retry_after.map(|after| json!({ "retryAfterMs": after.as_millis() }));
    next
}

/// What it brings to follow the suggestions, from how sure they are, and what it takes, from how long the
/// tool takes.
fn impact(facts: &Facts<'_>, actions: &[NextAction]) -> EstimatedImpact {
    let benefit = actions.iter().map(|action| match (action.confidence, action.priority) {
        (Some(confidence), _) => confidence.get(),
        (None, Severity::Critical) => 1.0,
        (None, Severity::High) => 0.8,
        (None, Severity::Medium) => 0.5,
        (None, Severity::Low) => 0.2,
    });
    let benefit = benefit.fold(0.0, f64::max);
    // A call of a second is half of the effort that there can be.
    let seconds = facts.record.micros as f64 / 1e6 / facts.record.calls.max(1) as f64;
    let effort = if actions.is_empty() { 0.0 } else { seconds / (1.0 + seconds) };
    EstimatedImpact::new(Share::nearest(benefit), Share::nearest(effort))
}

fn reasoning(facts: &Facts<'_>) -> String {
    let source = match facts.source {
        Source::Own => "a tool of your own",
        Source::Trusted => "a server that is trusted",
        Source::Untrusted => "a server that nobody vouches for",
    };
    let fit = match (&facts.error, &facts.fit) {
        (Some(error), _) => format!("it ended with {}", error.code.label()),
        (None, Fit::Checked) => "the result fits its schema".to_owned(),
        (None, Fit::Unchecked) => "there is no schema for the result".to_owned(),
        (None, Fit::Misfit(_)) => "the result does not fit its schema".to_owned(),
    };
    let Record { calls, good, .. } = facts.record;
    format!("from {source}; {fit}; {good} of {calls} calls went well so far")
}

#[cfg(test)]
mod tests;
