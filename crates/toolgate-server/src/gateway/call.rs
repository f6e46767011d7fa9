//! `tools/call`: the road, with the client behind it.

use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use toolgate_mcp::serve::{Outcome, Request, in_words_of, is_said_in};
use toolgate_mcp::{Raw, Revision, RpcError};
use toolgate_runtime::{CallRequest, Called, Origin};
use toolgate_types::call::ResultMetadata;
use toolgate_types::hints::AgentHints;
use toolgate_types::json::{Arguments, members_of, quote};
use toolgate_types::{CallError, ErrorCode};

use super::profile::{Way, with_text};
use super::{Gateway, RESULT, Visitor};

impl Gateway {
    pub(super) async fn call(&self, visitor: &Visitor, request: Request) -> Outcome {
        let name: String = request.member("name")?;
        let arguments = request.raw_member("arguments").filter(|arguments| arguments.get() != "null");
        if arguments.as_ref().is_some_and(|arguments| !arguments.get().trim_start().starts_with('{')) {
            return Err(RpcError::new(RpcError::INVALID_PARAMS, "`arguments` is not an object"));
        }
        let sent = match self.way(visitor, &request, name, arguments)? {
            Way::Road(sent) => sent,
            Way::Answered(outcome) => return outcome,
        };
        let origin = Origin {
            session: request.session.as_deref().map(str::to_owned),
            along: request.along(&["name", "arguments"]),
            hidden: sent.hidden,
            ..Origin::default()
        };
        let call = CallRequest {
            name: sent.name.clone(),
            arguments: sent.arguments.clone().map_or_else(Arguments::none, Arguments::from),
            trace: request.trace.clone(),
            origin,
            whole: false,
        };
        let mut called = self.runtime.call(&visitor.caller, call).await;
        visitor.lacked(&called);
        self.tasks.learn(visitor, &self.runtime, &sent.name, called.reply.as_ref());
        let beside = sent.retell(&mut called);
        let result = told(called, request.client.revision());
        match beside {
            Some(text) => result.map(|result| with_text(&result, &text)),
            None => result,
        }
    }
}

/// What hints and metadata take, mostly.
const BESIDE: usize = 1_792;

/// How a call ended, as MCP says it in the words of a revision.
fn told(called: Called, revision: Revision) -> Outcome {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Beside<'a> {
        agent_hints: &'a AgentHints,
        metadata: &'a ResultMetadata,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a CallError>,
        /// What the tool itself says of its result.
        #[serde(skip_serializing_if = "Option::is_none")]
        tool: Option<&'a RawValue>,
    }
    let Called { result, reply, refusal, .. } = called;
    let beside = |tool: Option<&str>| {
        let (agent_hints, metadata) = (&result.agent_hints, &result.metadata);
        let tool = tool.and_then(|tool| serde_json::from_str(tool).ok());
        let beside = Beside { agent_hints, metadata, error: result.error.as_ref(), tool };
        let mut out = Vec::with_capacity(BESIDE);
        serde_json::to_writer(&mut out, &beside).expect("what is ours has a JSON form");
        String::from_utf8(out).expect("JSON is UTF-8")
    };
    match (&result.error, refusal, reply) {
        (None, _, Some(reply)) => Ok(with(&reply, beside, revision)),
        (None, _, None) => Ok(with(&Raw::of(&json!({ "content": [] })), beside, revision)),
        // What the server itself says is passed on as it is.
        (Some(_), Some(refusal), _) => Err(refusal),
        (Some(error), None, Some(reply)) if error.code == ErrorCode::ToolExecutionError => {
            Ok(with(&reply, beside, revision))
        }
        (Some(error), None, _) if error.code == ErrorCode::ToolNotFound => {
            Err(RpcError::new(RpcError::INVALID_PARAMS, error.message.clone()))
        }
        (Some(error), None, _) => Ok(with(&failed(error), beside, revision)),
    }
}

/// A call that never got to its tool, or got nothing from it: models read results, not errors.
fn failed(error: &CallError) -> Raw {
    let hint = error.hint.as_ref().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
    let text = format!("{}{hint}", error.message);
    Raw::of(&json!({ "content": [{ "type": "text", "text": text }], "isError": true }))
}

/// A result with hints and metadata in its `_meta`, in the words of a revision, put together in one go. What the tool
/// itself says there of its result goes along in them. One that is no result yet stays as it is.
fn with(reply: &Raw, beside: impl Fn(Option<&str>) -> String, revision: Revision) -> Raw {
    let members = reply.members();
    let unfinished = members.iter().any(|(name, value)| {
        name == "task" || (name == "resultType" && value.trim_matches('"') != "complete")
    });
    if unfinished {
        return in_words_of(revision, reply.clone());
    }
    let mut out = String::with_capacity(reply.get().len() + BESIDE + 256);
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
            meta = members_of(value);
        } else if name != "resultType" && is_said_in(revision, name, value) {
            add(&mut out, name, value);
        }
    }
    out.push_str("\"_meta\":{");
    let mut of_tool = None;
    for (name, value) in meta {
        if name == RESULT {
            of_tool = Some(value);
        } else {
            add(&mut out, &name, value);
        }
    }
    quote(RESULT, &mut out);
    out.push(':');
    out.push_str(&beside(of_tool));
    out.push_str("}}");
    Raw::trusted(out)
}

#[test]
fn hints_stand_beside_what_the_server_said() {
    let raw = |text: &'static str| {
        Raw::new(bytes::Bytes::from_static(text.as_bytes()), Default::default()).unwrap()
    };
    let beside = |tool: Option<&str>| match tool {
        None => r#"{"a":1}"#.to_owned(),
        Some(tool) => format!(r#"{{"a":1,"tool":{tool}}}"#),
    };
    let older = Revision::NEWEST_WITH_HANDSHAKE;
    let check = |reply: &'static str, due: &str| assert_eq!(with(&raw(reply), beside, older).get(), due);
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
    // What only the newest revision says.
    check(r#"{"resultType":"complete","ttlMs":5}"#, r#"{"_meta":{"toolgate/result":{"a":1}}}"#);
    let newest = |reply: &'static str| with(&raw(reply), beside, Revision::NEWEST).get().to_owned();
    assert_eq!(newest("{}"), r#"{"resultType":"complete","_meta":{"toolgate/result":{"a":1}}}"#);
    assert_eq!(newest(r#"{"resultType":"input_required"}"#), r#"{"resultType":"input_required"}"#);
}
