//! `tools/call`: runs a tool through the pipeline, and connects the tool to the client.

use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use toolgate_json::{CallArguments, object_members, quote};
use toolgate_mcp::server::{ClientRequest, RpcResult, adapt_result, has_result_member};
use toolgate_mcp::{RawJson, Revision, RpcError};
use toolgate_runtime::{CallOrigin, CallOutcome, CallRequest};
use toolgate_types::call::ResultMetadata;
use toolgate_types::hints::AgentHints;
use toolgate_types::{CallError, ErrorCode};

use super::profile::{CallRoute, with_text};
use super::{McpCaller, McpService, RESULT_KEY};

impl McpService {
    pub(super) async fn call(&self, mcp_caller: &McpCaller, request: ClientRequest) -> RpcResult {
        let name: String = request.member("name")?;
        let arguments = request.raw_member("arguments").filter(|arguments| arguments.as_str() != "null");
        if arguments.as_ref().is_some_and(|arguments| !arguments.as_str().trim_start().starts_with('{')) {
            return Err(RpcError::new(RpcError::INVALID_PARAMS, "`arguments` is not an object"));
        }
        let routed = match self.route(mcp_caller, &request, name, arguments)? {
            CallRoute::Pipeline(routed) => routed,
            CallRoute::Answered(outcome) => return outcome,
        };
        let origin = CallOrigin {
            session: request.session.as_deref().map(str::to_owned),
            forwarded: request.forwarded(&["name", "arguments"]),
            hidden: routed.hidden,
            ..CallOrigin::default()
        };
        let call = CallRequest {
            name: routed.name.clone(),
            arguments: routed.arguments.clone().map_or_else(CallArguments::empty, CallArguments::from),
            trace: request.trace.clone(),
            origin,
            full_result: false,
        };
        let mut called = self.runtime.call(&mcp_caller.caller, call).await;
        mcp_caller.record_missing(&called);
        self.task_registry.record(mcp_caller, &self.runtime, &routed.name, called.reply.as_ref());
        let hints_text = routed.rename_tools(&mut called);
        let result = mcp_result(called, request.client.revision());
        match hints_text {
            Some(text) => result.map(|result| with_text(&result, &text)),
            None => result,
        }
    }
}

/// Usual size of hints and metadata, in bytes.
const META_CAPACITY: usize = 1_792;

/// Converts the outcome of a call to MCP, in the format of a protocol revision.
fn mcp_result(called: CallOutcome, revision: Revision) -> RpcResult {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct ResultMeta<'a> {
        agent_hints: &'a AgentHints,
        metadata: &'a ResultMetadata,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a CallError>,
        /// Value of the same key from the tool itself.
        #[serde(skip_serializing_if = "Option::is_none")]
        tool: Option<&'a RawValue>,
    }
    let CallOutcome { result, reply, rpc_error, .. } = called;
    let result_meta = |tool: Option<&str>| {
        let (agent_hints, metadata) = (&result.agent_hints, &result.metadata);
        let tool = tool.and_then(|tool| serde_json::from_str(tool).ok());
        let result_meta = ResultMeta { agent_hints, metadata, error: result.error.as_ref(), tool };
        let mut out = Vec::with_capacity(META_CAPACITY);
        serde_json::to_writer(&mut out, &result_meta).expect("result metadata has a JSON form");
        String::from_utf8(out).expect("JSON is UTF-8")
    };
    match (&result.error, rpc_error, reply) {
        (None, _, Some(reply)) => Ok(with_metadata(&reply, result_meta, revision)),
        (None, _, None) => {
            Ok(with_metadata(&RawJson::from_value(&json!({ "content": [] })), result_meta, revision))
        }
        // Errors of the server are passed on unchanged.
        (Some(_), Some(rpc_error), _) => Err(rpc_error),
        (Some(error), None, Some(reply)) if error.code == ErrorCode::ToolExecutionError => {
            Ok(with_metadata(&reply, result_meta, revision))
        }
        (Some(error), None, _) if error.code == ErrorCode::ToolNotFound => {
            Err(RpcError::new(RpcError::INVALID_PARAMS, error.message.clone()))
        }
        (Some(error), None, _) => Ok(with_metadata(&error_result(error), result_meta, revision)),
    }
}

/// Turns an error into a tool result with `isError`, because models read results, not protocol errors.
fn error_result(error: &CallError) -> RawJson {
    let hint = error.hint.as_ref().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
    let text = format!("{}{hint}", error.message);
    RawJson::from_value(&json!({ "content": [{ "type": "text", "text": text }], "isError": true }))
}

/// Adds hints and metadata to the `_meta` of a result, in the format of a revision, in a single pass. A value of the
/// tool under the same key is kept inside. Unfinished results stay as they are.
fn with_metadata(
    reply: &RawJson,
    result_meta: impl Fn(Option<&str>) -> String,
    revision: Revision,
) -> RawJson {
    let members = reply.members();
    let unfinished = members.iter().any(|(name, value)| {
        name == "task" || (name == "resultType" && value.trim_matches('"') != "complete")
    });
    if unfinished {
        return adapt_result(revision, reply.clone());
    }
    let mut out = String::with_capacity(reply.as_str().len() + META_CAPACITY + 256);
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
    out.push_str("\"_meta\":{");
    let mut tool_meta = None;
    for (name, value) in meta {
        if name == RESULT_KEY {
            tool_meta = Some(value);
        } else {
            add(&mut out, &name, value);
        }
    }
    quote(RESULT_KEY, &mut out);
    out.push(':');
    out.push_str(&result_meta(tool_meta));
    out.push_str("}}");
    RawJson::from_trusted(out)
}

#[test]
fn result_metadata_is_added_to_meta() {
    let raw = |text: &'static str| {
        RawJson::new(bytes::Bytes::from_static(text.as_bytes()), Default::default()).unwrap()
    };
    let result_meta = |tool: Option<&str>| match tool {
        None => r#"{"a":1}"#.to_owned(),
        Some(tool) => format!(r#"{{"a":1,"tool":{tool}}}"#),
    };
    let older = Revision::NEWEST_WITH_HANDSHAKE;
    let check = |reply: &'static str, due: &str| {
        assert_eq!(with_metadata(&raw(reply), result_meta, older).as_str(), due)
    };
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
    let newest =
        |reply: &'static str| with_metadata(&raw(reply), result_meta, Revision::NEWEST).as_str().to_owned();
    assert_eq!(newest("{}"), r#"{"resultType":"complete","_meta":{"toolgate/result":{"a":1}}}"#);
    assert_eq!(newest(r#"{"resultType":"input_required"}"#), r#"{"resultType":"input_required"}"#);
}
