//! OpenTelemetry spans of calls, named after the semantic conventions for GenAI and MCP.
//!
//! A call is one span, `execute_tool NAME`, with an event per stage. The request to a server is a child span,
//! `tools/call NAME`, whose id is propagated to the server. Spans contain no arguments and no results. Invariant: the
//! only strings from outside are names and the error message, which is redacted.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use toolgate_redact::mask;
use toolgate_types::call::Stage;

use crate::record::{CallBegin, CallEnd, CallStatus};

mod export;

pub use export::{ExporterError, SpanExporter};

/// Position of a call in its trace.
#[derive(Debug, Clone, Copy)]
pub struct SpanContext {
    /// Span of the caller, if any.
    pub parent: Option<u64>,
    /// Span id propagated to the server.
    pub server_span: u64,
    /// Time the call ended.
    pub ended: SystemTime,
}

/// Builds the spans of a call that ended.
pub(crate) fn build_spans(begin: &CallBegin<'_>, end: &CallEnd<'_>, place: SpanContext) -> Vec<Value> {
    let started = place.ended.checked_sub(end.took).unwrap_or(UNIX_EPOCH);
    let id = fastrand::u64(1..);
    let failed = end.error.as_ref().map(|error| error.code.label());
    let failed = failed.or((end.status == CallStatus::Abandoned).then_some("cancelled"));
    let mut attributes = vec![
        string_attribute("gen_ai.operation.name", "execute_tool"),
        string_attribute("gen_ai.tool.name", begin.tool),
        string_attribute("gen_ai.tool.call.id", begin.call),
        string_attribute("gen_ai.tool.type", if begin.server.is_some() { "extension" } else { "function" }),
        string_attribute("mcp.method.name", "tools/call"),
        string_attribute("toolgate.caller", begin.caller),
        string_attribute("toolgate.correlation_id", begin.correlation),
        string_attribute("toolgate.decision", begin.decision.label()),
        attribute("toolgate.attempts", json!({ "intValue": end.attempts.to_string() })),
        attribute("toolgate.cached", json!({ "boolValue": end.cached })),
    ];
    attributes.extend(begin.session.map(|session| string_attribute("mcp.session.id", session)));
    attributes.extend(begin.server.map(|server| string_attribute("toolgate.server", server)));
    attributes.extend(failed.map(|code| string_attribute("error.type", code)));
    let status = match &end.error {
        Some(error) => json!({ "code": 2, "message": mask(error.message, &[]) }),
        None if failed.is_some() => json!({ "code": 2 }),
        None => json!({}),
    };
    let mut call = json!({
        "traceId": begin.trace, "spanId": hex(id), "name": format!("execute_tool {}", begin.tool), "kind": 1,
        "startTimeUnixNano": nanos(started), "endTimeUnixNano": nanos(place.ended),
        "attributes": attributes, "events": events(end, started), "status": status,
    });
    if let Some(parent) = place.parent {
        call["parentSpanId"] = json!(hex(parent));
    }
    let mut spans = vec![call];
    if let (Some(server), Some((from, to))) = (begin.server, invoke_range(end)) {
        let mut attributes = vec![
            string_attribute("mcp.method.name", "tools/call"),
            string_attribute("gen_ai.operation.name", "execute_tool"),
            string_attribute("gen_ai.tool.name", begin.tool),
            string_attribute("toolgate.server", server),
        ];
        attributes.extend(failed.map(|code| string_attribute("error.type", code)));
        spans.push(json!({
            "traceId": begin.trace, "spanId": hex(place.server_span), "parentSpanId": hex(id),
            "name": format!("tools/call {}", begin.tool), "kind": 3,
            "startTimeUnixNano": nanos(started + from), "endTimeUnixNano": nanos(started + to),
            "attributes": attributes, "status": if failed.is_some() { json!({ "code": 2 }) } else { json!({}) },
        }));
    }
    spans
}

/// Returns start and end of the tool invocation, relative to the start of the call; `None` if it was not invoked.
fn invoke_range(end: &CallEnd<'_>) -> Option<(Duration, Duration)> {
    if end.attempts == 0 {
        return None;
    }
    let before = |stage: &Stage| !matches!(stage, Stage::Invoke | Stage::Convert | Stage::ValidateOutput);
    let from = end.stages.iter().take_while(|one| before(&one.stage)).map(|one| one.took).sum();
    let took = end.stages.iter().find(|one| one.stage == Stage::Invoke).map(|one| one.took);
    // A failed call has no time for the invoke stage; it lasted until the end.
    let to = took.map_or(end.took, |took| from + took);
    Some((from, to.max(from)))
}

fn events(end: &CallEnd<'_>, started: SystemTime) -> Vec<Value> {
    let mut at = started;
    let event = |stage: &crate::record::StageTime| {
        at += stage.took;
        let attributes: Vec<_> =
            stage.note.iter().map(|note| string_attribute("toolgate.note", &mask(note, &[]))).collect();
        json!({ "timeUnixNano": nanos(at), "name": stage.stage.label(), "attributes": attributes })
    };
    end.stages.iter().map(event).collect()
}

fn attribute(key: &str, value: Value) -> Value {
    json!({ "key": key, "value": value })
}

fn string_attribute(key: &str, value: &str) -> Value {
    attribute(key, json!({ "stringValue": value }))
}

fn hex(id: u64) -> String {
    format!("{id:016x}")
}

/// Formats nanoseconds as a string, as OTLP JSON requires: they exceed the precision of a JSON number.
fn nanos(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}

#[cfg(test)]
mod tests {
    use toolgate_json::RawJson;
    use toolgate_types::{ErrorCode, ExecutionState};

    use super::*;
    use crate::record::{CallFailure, Decision, StageTime};

    fn spans(server: Option<&str>, attempts: u32, error: Option<CallFailure<'_>>) -> Vec<Value> {
        let arguments = RawJson::from_value(&json!({ "secret": "in the arguments" }));
        let begin = CallBegin {
            operation: Default::default(),
            tainted: false,
            deprecated: false,
            user: None,
            agent_version: None,
            call: "c1",
            caller: "ann",
            tool: "find",
            session: Some("s1"),
            correlation: "corr",
            correlation_from_client: true,
            trace: "4bf92f3577b34da6a3ce929d0e0e4736",
            server,
            definition: None,
            decision: Decision::Allow,
            rules: &[],
            asked: None,
            refused_by: None,
            identity: Default::default(),
            arguments: &arguments,
            secret: None,
        };
        let stage = |stage, micros| StageTime { stage, took: Duration::from_micros(micros), note: None };
        let stages = [stage(Stage::Resolve, 10), stage(Stage::Slots, 20), stage(Stage::Invoke, 1_000)];
        let status = if error.is_some() { CallStatus::Error } else { CallStatus::Success };
        let end = CallEnd {
            status,
            error,
            attempts,
            cached: false,
            took: Duration::from_micros(2_000),
            stages: &stages,
            output: Some(&arguments),
            secret: None,
            upstream: None,
        };
        let ended = UNIX_EPOCH + Duration::from_secs(1);
        build_spans(&begin, &end, SpanContext { parent: Some(7), server_span: 9, ended })
    }

    fn attributes(span: &Value) -> Vec<(String, String)> {
        let one = |one: &Value| {
            let value = one["value"].as_object().unwrap().values().next().unwrap();
            (one["key"].as_str().unwrap().to_owned(), value.as_str().map_or(value.to_string(), str::to_owned))
        };
        span["attributes"].as_array().unwrap().iter().map(one).collect()
    }

    #[test]
    fn server_call_has_two_spans() {
        let [call, client] = &spans(Some("bank"), 1, None)[..] else { panic!("two spans") };
        assert_eq!(call["name"], "execute_tool find");
        assert_eq!(
            (call["parentSpanId"].as_str(), call["kind"].as_u64()),
            (Some("0000000000000007"), Some(1))
        );
        assert_eq!(call["startTimeUnixNano"], "998000000");
        assert_eq!(call["endTimeUnixNano"], "1000000000");
        assert_eq!(call["events"][1]["timeUnixNano"], "998030000");
        let has = |key: &str, value: &str| attributes(call).contains(&(key.to_owned(), value.to_owned()));
        assert!(has("gen_ai.tool.name", "find") && has("mcp.method.name", "tools/call"));
        assert!(
            has("gen_ai.tool.type", "extension")
                && has("mcp.session.id", "s1")
                && has("toolgate.attempts", "1")
        );
        assert!(!attributes(call).iter().any(|(key, _)| key == "error.type"));
        assert_eq!(
            (&client["parentSpanId"], &client["spanId"]),
            (&call["spanId"], &json!("0000000000000009"))
        );
        assert_eq!((&client["name"], &client["kind"]), (&json!("tools/call find"), &json!(3)));
        let times = (&client["startTimeUnixNano"], &client["endTimeUnixNano"]);
        assert_eq!(times, (&json!("998030000"), &json!("999030000")));
        assert!(!json!([call, client]).to_string().contains("in the arguments"));
    }

    #[test]
    fn rejected_call_has_one_span() {
        let error = CallFailure {
            code: ErrorCode::RateLimited,
            stage: Stage::RateLimit,
            outcome: ExecutionState::NotStarted,
            message: "limit reached for AKIAIOSFODNN7EXAMPLE",
            cause: None,
        };
        let [call] = &spans(Some("bank"), 0, Some(error))[..] else { panic!("one span") };
        assert!(attributes(call).contains(&("error.type".to_owned(), "rate_limited".to_owned())));
        assert_eq!(call["status"], json!({ "code": 2, "message": "limit reached for ***" }));
        assert_eq!(spans(None, 1, None).len(), 1, "a built-in tool has no server span");
    }
}
