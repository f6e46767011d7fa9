//! `tools/call`: the road, with the client behind it.

use std::fmt::Write as _;

use serde_json::{Value, json};
use toolgate_mcp::serve::{Outcome, Request, in_words_of};
use toolgate_mcp::{Raw, RpcError};
use toolgate_runtime::{CallRequest, Called, Origin};
use toolgate_types::json::Arguments;
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
        let result = told(called).map(|result| in_words_of(request.client.revision(), result));
        match beside {
            Some(text) => result.map(|result| with_text(&result, &text)),
            None => result,
        }
    }
}

/// How a call ended, as MCP says it.
fn told(called: Called) -> Outcome {
    let Called { result, reply, refusal, .. } = called;
    let beside = || {
        let mut beside = json!({ "agentHints": result.agent_hints, "metadata": result.metadata });
        if let Some(error) = &result.error {
            beside["error"] = json!(error);
        }
        beside
    };
    match (&result.error, refusal, reply) {
        (None, _, Some(reply)) => Ok(with(&reply, beside)),
        (None, _, None) => Ok(with(&Raw::of(&json!({ "content": [] })), beside)),
        // What the server itself says is passed on as it is.
        (Some(_), Some(refusal), _) => Err(refusal),
        (Some(error), None, Some(reply)) if error.code == ErrorCode::ToolExecutionError => {
            Ok(with(&reply, beside))
        }
        (Some(error), None, _) if error.code == ErrorCode::ToolNotFound => {
            Err(RpcError::new(RpcError::INVALID_PARAMS, error.message.clone()))
        }
        (Some(error), None, _) => Ok(failed(error, &beside())),
    }
}

/// A call that never got to its tool, or got nothing from it: models read results, not errors.
fn failed(error: &CallError, beside: &Value) -> Raw {
    let hint = error.hint.as_ref().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
    Raw::of(&json!({
        "content": [{ "type": "text", "text": format!("{}{hint}", error.message) }],
        "isError": true,
        "_meta": { RESULT: beside },
    }))
}

/// A result with hints and metadata in its `_meta`. What the tool itself says there of its result goes along in
/// them. One that is no result yet stays as it is.
fn with(reply: &Raw, beside: impl Fn() -> Value) -> Raw {
    let members = reply.members();
    let unfinished = members.iter().any(|(name, value)| {
        name == "task" || (name == "resultType" && value.get().trim_matches('"') != "complete")
    });
    if unfinished {
        return reply.clone();
    }
    let mut beside = beside();
    let mut out = String::with_capacity(reply.get().len() + 1024);
    out.push('{');
    let mut meta = String::new();
    let add = |out: &mut String, name: &str, value: &str| {
        let _ = write!(out, "{}:{value},", Value::from(name));
    };
    for (name, value) in &members {
        if name != "_meta" {
            add(&mut out, name, value.get());
            continue;
        }
        let own = reply.slice(value);
        for (name, value) in own.members() {
            if name == RESULT {
                beside["tool"] = serde_json::from_str(value.get()).unwrap_or_default();
            } else {
                add(&mut meta, &name, value.get());
            }
        }
    }
    let _ = write!(out, "\"_meta\":{{{meta}\"{RESULT}\":{beside}}}}}");
    Raw::trusted(out)
}

#[test]
fn hints_stand_beside_what_the_server_said() {
    let raw = |text: &'static str| {
        Raw::new(bytes::Bytes::from_static(text.as_bytes()), Default::default()).unwrap()
    };
    let beside = || json!({ "a": 1 });
    let check = |reply: &'static str, due: &str| assert_eq!(with(&raw(reply), beside).get(), due);
    check(r#"{"content":[ ],"n":1.0}"#, r#"{"content":[ ],"n":1.0,"_meta":{"toolgate/result":{"a":1}}}"#);
    check(
        r#"{"_meta": {"x":1.0} ,"content":[]}"#,
        r#"{"content":[],"_meta":{"x":1.0,"toolgate/result":{"a":1}}}"#,
    );
    check(
        r#"{"_meta":{"toolgate/result":{"b":2}}}"#,
        r#"{"_meta":{"toolgate/result":{"a":1,"tool":{"b":2}}}}"#,
    );
    check(r#"{"resultType":"input_required"}"#, r#"{"resultType":"input_required"}"#);
    check(r#"{"task":{"taskId":"t"}}"#, r#"{"task":{"taskId":"t"}}"#);
}
