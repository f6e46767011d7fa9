//! `tools/call`: runs a tool through the pipeline, and connects the tool to the client.

use std::sync::Arc;

use serde_json::json;
use toolgate_json::{CallArguments, object_members, quote};
use toolgate_mcp::server::{ClientRequest, RpcResult, adapt_result, has_result_member};
use toolgate_mcp::{RawJson, Revision, RpcError};
use toolgate_runtime::{CallOrigin, CallOutcome, ListRequest, Operation, OperationTarget};
use toolgate_types::{CallError, ErrorCode};

use super::hints::ResultHints;
use super::profile::{CallRoute, with_text};
use super::{McpCaller, McpService, RESULT_KEY};

impl McpService {
    pub(super) async fn call(&self, mcp_caller: &McpCaller, request: ClientRequest) -> RpcResult {
        let name = request.string("name")?;
        let arguments = request.raw_member("arguments").filter(|arguments| arguments.as_str() != "null");
        if arguments.as_ref().is_some_and(|arguments| !arguments.as_str().trim_start().starts_with('{')) {
            return Err(RpcError::new(RpcError::INVALID_PARAMS, "`arguments` is not an object"));
        }
        let routed = match self.route(mcp_caller, &request, name, arguments).await? {
            CallRoute::Pipeline(routed) => routed,
            CallRoute::Program { view, arguments } => {
                return self.run_program(mcp_caller, &request, &view, arguments).await;
            }
            CallRoute::Answered { name, arguments, outcome } => {
                let list = ListRequest {
                    name,
                    arguments: arguments.unwrap_or_else(|| RawJson::from_value(&json!({}))),
                    trace: &request.trace,
                    session: request.session.as_deref().map(super::issued_session),
                };
                return self.runtime.list(&mcp_caller.caller, list, || outcome).await;
            }
        };
        let origin = CallOrigin {
            session: request.session.as_deref().map(super::issued_session),
            forwarded: request.forwarded(&["name", "arguments"]),
            hidden: routed.hidden,
            client_approves: mcp_caller.client_approves,
            access: mcp_caller.access.clone(),
            ..CallOrigin::default()
        };
        let arguments = routed.arguments.clone().map_or_else(CallArguments::empty, CallArguments::from);
        let call = Operation {
            target: OperationTarget::Tool(Arc::clone(&routed.name)),
            arguments,
            trace: request.trace.clone(),
            origin,
            full_result: false,
        };
        let mut called = self.runtime.execute(&mcp_caller.caller, call).await;
        mcp_caller.record_missing(&called);
        routed.rename_error(&mut called);
        let hints = ResultHints::render(&self.runtime, &mcp_caller.caller, &routed, &called);
        mcp_result(called, &hints, request.client.revision())
    }
}

/// Converts the outcome of a call to MCP, in the format of a protocol revision.
pub(super) fn mcp_result(called: CallOutcome, hints: &ResultHints, revision: Revision) -> RpcResult {
    let CallOutcome { result, reply, rpc_error, .. } = called;
    match (&result.error, rpc_error, reply) {
        (None, _, Some(reply)) => Ok(with_hints(reply, hints, revision)),
        (None, _, None) => Ok(with_hints(RawJson::from_value(&json!({ "content": [] })), hints, revision)),
        // Errors of the server are passed on unchanged.
        (Some(_), Some(rpc_error), _) => Err(rpc_error),
        (Some(error), None, Some(reply)) if error.code == ErrorCode::ToolExecutionError => {
            Ok(with_hints(reply, hints, revision))
        }
        (Some(error), None, _) if error.code == ErrorCode::ToolNotFound => {
            Err(RpcError::new(RpcError::INVALID_PARAMS, error.message.clone()))
        }
        (Some(error), None, _) => Ok(with_hints(error_result(error), hints, revision)),
    }
}

/// Turns an error into a tool result with `isError`, because models read results, not protocol errors.
fn error_result(error: &CallError) -> RawJson {
    let hint = error.hint.as_ref().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
    let text = format!("{}{hint}", error.message);
    RawJson::from_value(&json!({ "content": [{ "type": "text", "text": text }], "isError": true }))
}

/// Adds hints to a result, in the format of a revision. Unfinished results stay as they are.
fn with_hints(reply: RawJson, hints: &ResultHints, revision: Revision) -> RawJson {
    match hints {
        // Most results: nothing is added, and the tool has no value under our key.
        ResultHints::None if !reply.contains_short(RESULT_KEY) => adapt_result(revision, reply),
        ResultHints::None => with_metadata(&reply, None, false, revision),
        ResultHints::Brief(json) => with_metadata(&reply, Some(json), false, revision),
        ResultHints::Full(json) => with_metadata(&reply, Some(json), true, revision),
        ResultHints::Text(text) => with_text(&with_metadata(&reply, None, false, revision), text),
    }
}

/// Replaces the value under our key in the `_meta` of a result, in the format of a revision, in a single pass. The value
/// of the tool under the same key is kept inside with `keep_tool`, and removed otherwise. Unfinished results stay as they
/// are.
fn with_metadata(reply: &RawJson, result_meta: Option<&str>, keep_tool: bool, revision: Revision) -> RawJson {
    let members = reply.members();
    let unfinished = members.iter().any(|(name, value)| {
        name == "task" || (name == "resultType" && value.trim_matches('"') != "complete")
    });
    if unfinished {
        return adapt_result(revision, reply.clone());
    }
    // Most results fit the revision and have no metadata: a member is added, and nothing is copied.
    let is_typed = revision.has_handshake() || members.iter().any(|(name, _)| name == "resultType");
    let mut members_fit =
        members.iter().map(|(name, value)| name != "_meta" && has_result_member(revision, name, value));
    if let Some(result_meta) = result_meta
        && is_typed
        && members_fit.all(|fits| fits)
    {
        let mut meta = String::with_capacity(result_meta.len() + RESULT_KEY.len() + 8);
        meta.push('{');
        quote(RESULT_KEY, &mut meta);
        meta.push(':');
        meta.push_str(result_meta);
        meta.push('}');
        if let Some(result) = reply.with_member("_meta", &meta) {
            return result;
        }
    }
    let mut out = String::with_capacity(reply.as_str().len() + result_meta.map_or(0, str::len) + 256);
    out.push('{');
    if !revision.has_handshake() {
        out.push_str("\"resultType\":\"complete\",");
    }
    let add = |out: &mut String, name: &str, value: &str| {
        quote(name, out);
        out.push(':');
        out.push_str(value);
        out.push(',');
    };
    let mut meta = Vec::new();
    for (name, value) in &members {
        if name == "_meta" {
            meta = object_members(value);
        } else if name != "resultType" && has_result_member(revision, name, value) {
            add(&mut out, name, value);
        }
    }
    let (own, other): (Vec<_>, Vec<_>) = meta.into_iter().partition(|(name, _)| name == RESULT_KEY);
    if result_meta.is_some() || !other.is_empty() {
        out.push_str("\"_meta\":{");
        for (name, value) in other {
            add(&mut out, &name, value);
        }
        if let Some(result_meta) = result_meta {
            quote(RESULT_KEY, &mut out);
            out.push(':');
            match own.first().filter(|_| keep_tool) {
                Some((_, tool)) => {
                    out.push_str(result_meta.strip_suffix('}').unwrap_or(result_meta));
                    out.push_str(",\"tool\":");
                    out.push_str(tool);
                    out.push('}');
                }
                None => out.push_str(result_meta),
            }
        } else {
            out.pop();
        }
        out.push('}');
    } else if out.ends_with(',') {
        out.pop();
    }
    out.push('}');
    RawJson::from_trusted(out)
}

#[test]
fn result_metadata_is_added_to_meta() {
    let raw = |text: &'static str| {
        RawJson::new(bytes::Bytes::from_static(text.as_bytes()), Default::default()).unwrap()
    };
    let full = ResultHints::Full(r#"{"a":1}"#.to_owned());
    let older = Revision::NEWEST_WITH_HANDSHAKE;
    let check =
        |reply: &'static str, due: &str| assert_eq!(with_hints(raw(reply), &full, older).as_str(), due);
    check(r#"{"content":[ ],"n":1.0}"#, r#"{"content":[ ],"n":1.0,"_meta":{"toolgate/result":{"a":1}}}"#);
    check(
        r#"{"_meta": {"x":1.0} ,"content":[]}"#,
        r#"{"content":[],"_meta":{"x":1.0,"toolgate/result":{"a":1}}}"#,
    );
    check(
        r#"{"_meta":{"toolgate/result":{"b":2}}}"#,
        r#"{"_meta":{"toolgate/result":{"a":1,"tool":{"b":2}}}}"#,
    );
    check(r#"{"task":{"taskId":"t"}}"#, r#"{"task":{"taskId":"t"}}"#);
    // Members that exist only in the newest revision.
    check(r#"{"resultType":"complete","ttlMs":5}"#, r#"{"_meta":{"toolgate/result":{"a":1}}}"#);
    let newest = |reply: &'static str| with_hints(raw(reply), &full, Revision::NEWEST).as_str().to_owned();
    assert_eq!(newest("{}"), r#"{"resultType":"complete","_meta":{"toolgate/result":{"a":1}}}"#);
    assert_eq!(newest(r#"{"resultType":"input_required"}"#), r#"{"resultType":"input_required"}"#);
}

#[test]
fn only_full_hints_keep_the_value_of_the_tool() {
    let check = |hints: ResultHints, due: [&str; 3]| {
        let replies = [
            r#"{"content":[]}"#,
            r#"{"content":[],"_meta":{"toolgate/result":{"b":2}}}"#,
            r#"{"_meta":{"x":1,"toolgate/result":{"b":2}},"content":[]}"#,
        ];
        let older = Revision::NEWEST_WITH_HANDSHAKE;
        let found = replies.map(|reply| with_hints(RawJson::from_trusted(reply.to_owned()), &hints, older));
        assert_eq!(found.each_ref().map(RawJson::as_str), due, "{hints:?}");
    };
    let none = [r#"{"content":[]}"#, r#"{"content":[]}"#, r#"{"content":[],"_meta":{"x":1}}"#];
    check(ResultHints::None, none);
    check(
        ResultHints::Brief(r#"{"a":1}"#.to_owned()),
        [
            r#"{"content":[],"_meta":{"toolgate/result":{"a":1}}}"#,
            r#"{"content":[],"_meta":{"toolgate/result":{"a":1}}}"#,
            r#"{"content":[],"_meta":{"x":1,"toolgate/result":{"a":1}}}"#,
        ],
    );
    let text = |rest: &str| format!(r#"{{"content":[{{"type":"text","text":"t"}}]{rest}}}"#);
    check(ResultHints::Text("t".to_owned()), [&text(""), &text(""), &text(r#","_meta":{"x":1}"#)]);
}
