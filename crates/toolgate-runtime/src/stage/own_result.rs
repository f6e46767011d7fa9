//! The part of a result that the tool itself adds: hints, version and error.
//!
//! A tool sends it in `_meta["toolgate/result"]`; tools of the SDK do so, and scripts return an envelope that becomes one.
//! It counts for own tools and trusted servers only. Invariant: it is bounded, control characters are removed, and invalid
//! parts are left out: a wrong hint does not cost the result.

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use toolgate_json::object_members;
use toolgate_redact::sanitize::sanitize;
use toolgate_types::call::ToolCode;
use toolgate_types::contract::is_semantic_version;
use toolgate_types::hints::{
    AgentHints, Alternative, Dependency, EstimatedImpact, NextAction, PreferenceAlignment, Ratio,
    RelatedResource, RiskFactor, SourceQuality, ValidityPeriod, Warning,
};
use toolgate_types::{CallError, ErrorCode, ExecutionState};
use toolgate_upstream::RawJson;

use super::content::quote;
use super::hints::CallFacts;

/// Key in `_meta` of a result that holds hints, metadata and the error.
const RESULT_KEY: &str = "toolgate/result";
/// Largest part that is read.
const MAX_BYTES: usize = 64 << 10;
/// Items of one list of hints that are used.
const MAX_ITEMS: usize = 20;
/// Longest string in a hint, in characters.
const MAX_TEXT_CHARS: usize = 2_000;
/// Longest version or error code.
const MAX_NAME_BYTES: usize = 64;
/// Longest time that a tool asks a caller to wait.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the part of a reply that the tool itself added.
pub(crate) fn of_reply(reply: &RawJson) -> Option<RawJson> {
    if !reply.contains_short(RESULT_KEY) {
        return None;
    }
    let members = reply.members();
    let (_, meta) = members.iter().find(|(name, _)| name == "_meta")?;
    let members = object_members(meta);
    let (_, own) = members.iter().find(|(name, _)| name == RESULT_KEY)?;
    (own.starts_with('{') && own.len() <= MAX_BYTES).then(|| reply.slice(own))
}

/// Returns the version that the tool gives, if it is one.
pub(crate) fn tool_version(own: &RawJson) -> Option<String> {
    let own: Map<String, Value> = own.parse().ok()?;
    let version = own.get("metadata")?.get("toolVersion")?.as_str()?;
    let is_valid = version.len() <= MAX_NAME_BYTES && version.is_ascii() && is_semantic_version(version);
    is_valid.then(|| sanitize(version).into_owned())
}

/// Adds the details that the tool gives for its error.
pub(crate) fn with_own_error(mut error: CallError, reply: &RawJson) -> CallError {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct OwnError {
        code: Option<String>,
        message: Option<String>,
        hint: Option<String>,
        retry_after_ms: Option<u64>,
        outcome: Option<String>,
    }
    let own: Option<Map<String, Value>> = of_reply(reply).and_then(|own| own.parse().ok());
    let own = own.and_then(|mut own| own.remove("error"));
    let Some(own) = own.and_then(|own| serde_json::from_value::<OwnError>(own).ok()) else { return error };
    if let Some(message) = own.message {
        error.message = quote(&message);
    }
    error.hint = own.hint.map(|hint| quote(&hint));
    error.retry_after = own.retry_after_ms.map(|time| Duration::from_millis(time).min(MAX_RETRY_AFTER));
    error.outcome = match own.outcome.as_deref() {
        Some("not_started") => ExecutionState::NotStarted,
        Some("unknown") => ExecutionState::Unknown,
        _ => ExecutionState::Finished,
    };
    match own.code.as_deref() {
        Some("invalid_arguments") => error.code = ErrorCode::InvalidArguments,
        Some("not_found") => error.code = ErrorCode::NotFound,
        Some("rate_limited") => error.code = ErrorCode::RateLimited,
        Some("service_unavailable") => error.code = ErrorCode::ServiceUnavailable,
        Some(code) if is_code(code) && code != ErrorCode::ToolExecutionError.label() => {
            error.tool_code = Some(Box::new(ToolCode(code.to_owned())));
        }
        _ => {}
    }
    error
}

fn is_code(code: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=MAX_NAME_BYTES).contains(&code.len()) && code.bytes().all(is_allowed)
}

/// Hints of the tool itself. Every part is optional.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnHints {
    actions: Vec<NextAction>,
    related: Vec<RelatedResource>,
    confidence: Option<Ratio>,
    source_quality: Option<SourceQuality>,
    validity_period: Option<ValidityPeriod>,
    context_needed: Vec<String>,
    assumptions: Vec<String>,
    risks: Vec<RiskFactor>,
    dependencies: Vec<Dependency>,
    impact: Option<EstimatedImpact>,
    alignment: Vec<PreferenceAlignment>,
    reasoning: Option<String>,
    warnings: Vec<Warning>,
    alternatives: Vec<Alternative>,
    constraints: Vec<String>,
}

impl OwnHints {
    /// Reads the hints. Parts that are not hints are left out.
    pub(crate) fn parse(own: &RawJson) -> Self {
        let own: Option<Map<String, Value>> = own.parse().ok();
        let Some(Value::Object(mut hints)) = own.and_then(|mut own| own.remove("agentHints")) else {
            return Self::default();
        };
        hints.values_mut().for_each(clean);
        Self {
            actions: list(&mut hints, "suggestedNextActions"),
            related: list(&mut hints, "relatedResources"),
            confidence: single(&mut hints, "confidence"),
            source_quality: single(&mut hints, "sourceQuality"),
            validity_period: single(&mut hints, "validityPeriod"),
            context_needed: list(&mut hints, "contextNeeded"),
            assumptions: list(&mut hints, "assumptions"),
            risks: list(&mut hints, "riskFactors"),
            dependencies: list(&mut hints, "dependencies"),
            impact: single(&mut hints, "estimatedImpact"),
            alignment: list(&mut hints, "preferenceAlignment"),
            reasoning: single(&mut hints, "reasoning"),
            warnings: list(&mut hints, "warnings"),
            alternatives: list(&mut hints, "alternatives"),
            constraints: list(&mut hints, "constraints"),
        }
    }

    /// Suggested actions that the caller may know of: none that names, or depends on, a tool that the caller does not see.
    pub(super) fn shown_actions<'a>(
        &'a self,
        facts: &'a CallFacts<'_, '_>,
    ) -> impl Iterator<Item = &'a NextAction> {
        let is_shown = |name: &String| (facts.is_visible)(name) != Some(false);
        // The tool cannot suggest to repeat a call after a final error.
        let is_final = facts.error.is_some_and(|error| !error.is_retryable());
        let repeats = move |action: &str| is_final && is_repetition(action, facts.tool);
        self.actions.iter().filter(move |next| {
            !repeats(&next.action) && is_shown(&next.action) && next.prerequisites.iter().all(is_shown)
        })
    }

    /// Adds these hints to those that follow from the call. The confidence is the product of both.
    pub(super) fn merge_into(&self, hints: &mut AgentHints, facts: &CallFacts<'_, '_>) {
        let is_shown = |name: &String| (facts.is_visible)(name) != Some(false);
        hints.suggested_next_actions.extend(self.shown_actions(facts).cloned());
        hints.suggested_next_actions.sort_by_key(|action| action.priority);
        let dependencies = self
            .dependencies
            .iter()
            .filter(|dependency| is_shown(&dependency.action) && dependency.depends_on.iter().all(is_shown));
        hints.dependencies.extend(dependencies.cloned());
        let alignment = self.alignment.iter().filter(|alignment| is_shown(&alignment.action));
        hints.preference_alignment.extend(alignment.cloned());
        hints.related_resources.extend_from_slice(&self.related);
        hints.context_needed.extend_from_slice(&self.context_needed);
        hints.assumptions.extend_from_slice(&self.assumptions);
        hints.risk_factors.extend_from_slice(&self.risks);
        hints.warnings.extend_from_slice(&self.warnings);
        hints.alternatives.extend_from_slice(&self.alternatives);
        hints.constraints.extend_from_slice(&self.constraints);
        if let Some(confidence) = self.confidence {
            hints.confidence = Ratio::clamped(hints.confidence.get() * confidence.get());
        }
        hints.source_quality = self.source_quality.unwrap_or(hints.source_quality);
        hints.validity_period = self.validity_period.unwrap_or(hints.validity_period);
        if let Some(impact) = &self.impact {
            hints.estimated_impact = impact.clone();
        }
        if let Some(reasoning) = &self.reasoning {
            let ours = hints.reasoning.take().map(|ours| format!("; {ours}")).unwrap_or_default();
            hints.reasoning = Some(format!("{reasoning}{ours}"));
        }
    }
}

/// Returns true if an action calls the same tool again in the same way.
fn is_repetition(action: &str, tool: &str) -> bool {
    ["retry", "wait-and-retry", tool].contains(&action)
}

/// Items of a list that have the expected form.
fn list<T: DeserializeOwned>(hints: &mut Map<String, Value>, name: &str) -> Vec<T> {
    let Some(Value::Array(items)) = hints.remove(name) else { return Vec::new() };
    items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).take(MAX_ITEMS).collect()
}

fn single<T: DeserializeOwned>(hints: &mut Map<String, Value>, name: &str) -> Option<T> {
    hints.remove(name).and_then(|value| serde_json::from_value(value).ok())
}

/// Removes control characters from all strings, and truncates them.
fn clean(value: &mut Value) {
    match value {
        Value::String(text) => {
            let clean: String = sanitize(text).chars().take(MAX_TEXT_CHARS).collect();
            *text = clean;
        }
        Value::Array(items) => items.iter_mut().for_each(clean),
        Value::Object(members) => members.values_mut().for_each(clean),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolgate_types::Stage;

    use super::*;

    fn reply(own: Value) -> RawJson {
        RawJson::from_value(&json!({ "content": [], "_meta": { RESULT_KEY: own } }))
    }

    #[test]
    fn reads_valid_parts_only() {
        let own = of_reply(&reply(json!({
            "agentHints": {
                "suggestedNextActions": [
                    { "action": "review\u{202e}", "priority": "high" }, { "action": 1 }, "x"
                ],
                "confidence": 7, "sourceQuality": "low", "reasoning": "x".repeat(5_000), "unknown": {},
            },
            "metadata": { "toolVersion": "1.2.3" },
        })))
        .unwrap();
        let hints = OwnHints::parse(&own);
        assert_eq!(hints.actions.len(), 1);
        assert_eq!(hints.actions[0].action, "review");
        assert_eq!((hints.confidence, hints.source_quality), (None, Some(SourceQuality::Low)));
        assert_eq!(hints.reasoning.unwrap().len(), MAX_TEXT_CHARS);
        assert_eq!(tool_version(&own).as_deref(), Some("1.2.3"));
        let many = of_reply(&reply(json!({ "agentHints": { "constraints": vec!["x"; 100] } }))).unwrap();
        assert_eq!(OwnHints::parse(&many).constraints.len(), MAX_ITEMS);
        for invalid in [json!("text"), json!({ "x": "y".repeat(MAX_BYTES) })] {
            assert!(of_reply(&reply(invalid)).is_none());
        }
        assert!(of_reply(&RawJson::from_value(&json!({ "content": [] }))).is_none());
        for version in ["1", "1.2.3\u{1b}", &"1.2.3-".repeat(50)] {
            let own = RawJson::from_value(&json!({ "metadata": { "toolVersion": version } }));
            assert_eq!(tool_version(&own), None, "{version}");
        }
    }

    #[test]
    fn maps_own_errors() {
        let error = |own: Value| {
            let error = CallError::new(ErrorCode::ToolExecutionError, Stage::Invoke, "text");
            let error = with_own_error(error, &reply(json!({ "error": own })));
            (error.code, error.tool_code.map(|code| code.0), error.message, error.hint, error.outcome)
        };
        let own =
            json!({ "code": "deck_full", "message": "full", "hint": "use another", "outcome": "finished" });
        assert_eq!(
            error(own),
            (
                ErrorCode::ToolExecutionError,
                Some("deck_full".to_owned()),
                "full".to_owned(),
                Some("use another".to_owned()),
                ExecutionState::Finished
            )
        );
        let (code, tool_code, ..) = error(json!({ "code": "not_found", "message": "x" }));
        assert_eq!((code, tool_code), (ErrorCode::NotFound, None));
        let (code, tool_code, message, ..) = error(json!({ "code": "storage unavailable!" }));
        assert_eq!((code, tool_code, message.as_str()), (ErrorCode::ToolExecutionError, None, "text"));
    }
}
