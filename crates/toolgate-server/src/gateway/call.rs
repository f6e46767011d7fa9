//! `tools/call`: the road, with the client behind it.

use serde_json::{Value, json};
use toolgate_mcp::serve::{Outcome, Request, in_words_of};
use toolgate_mcp::{Raw, RpcError};
use toolgate_runtime::{CallRequest, Called, Origin};
use toolgate_types::json::Arguments;
use toolgate_types::{CallError, ErrorCode};

use super::{Gateway, HINTS, Visitor};

impl Gateway {
    pub(super) async fn call(&self, visitor: &Visitor, request: Request) -> Outcome {
        let name: String = request.member("name")?;
        let arguments = request.raw_member("arguments").filter(|arguments| arguments.get() != "null");
        if arguments.as_ref().is_some_and(|arguments| !arguments.get().trim_start().starts_with('{')) {
            return Err(RpcError::new(RpcError::INVALID_PARAMS, "`arguments` is not an object"));
        }
        let origin = Origin {
            session: request.session.as_deref().map(str::to_owned),
            along: request.along(&["name", "arguments"]),
            ..Origin::default()
        };
        let call = CallRequest {
            name: name.clone(),
            arguments: arguments.map_or_else(Arguments::none, Arguments::from),
            trace: request.trace.clone(),
            origin,
            whole: false,
        };
        let called = self.runtime.call(&visitor.caller, call).await;
        self.tasks.learn(visitor, &self.runtime, &name, called.reply.as_ref());
        told(called).map(|result| in_words_of(request.client.revision(), result))
    }
}

/// How a call ended, as MCP says it.
fn told(called: Called) -> Outcome {
    let Called { result, reply, refusal, .. } = called;
    let hints = || json!(result.agent_hints);
    match (&result.error, refusal, reply) {
        (None, _, Some(reply)) => Ok(with_hints(&reply, hints)),
        (None, _, None) => Ok(with_hints(&Raw::of(&json!({ "content": [] })), hints)),
        // What the server itself says is passed on as it is.
        (Some(_), Some(refusal), _) => Err(refusal),
        (Some(error), None, Some(reply)) if error.code == ErrorCode::ToolExecutionError => {
            Ok(with_hints(&reply, hints))
        }
        (Some(error), None, _) if error.code == ErrorCode::ToolNotFound => {
            Err(RpcError::new(RpcError::INVALID_PARAMS, error.message.clone()))
        }
        (Some(error), None, _) => Ok(failed(error, hints())),
    }
}

/// A call that never got to its tool, or got nothing from it: models read results, not errors.
fn failed(error: &CallError, hints: Value) -> Raw {
    let hint = error.hint.as_ref().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
    Raw::of(&json!({
        "content": [{ "type": "text", "text": format!("{}{hint}", error.message) }],
        "isError": true,
        "_meta": { HINTS: hints, "dev.toolgate/error": error },
    }))
}

/// A result with hints in its `_meta`. One that is no result yet stays as it is.
fn with_hints(reply: &Raw, hints: impl Fn() -> Value) -> Raw {
    let members = reply.members();
    let unfinished = members.iter().any(|(name, value)| {
        name == "task" || (name == "resultType" && value.get().trim_matches('"') != "complete")
    });
    if unfinished {
        return reply.clone();
    }
    let mut out = String::with_capacity(reply.get().len() + 512);
    out.push('{');
    let mut meta = String::new();
    for (name, value) in &members {
        if name == "_meta" {
            let inner = value.get().trim();
            let inner = inner.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')).unwrap_or_default();
            meta = inner.trim().to_owned();
            continue;
        }
        out.push_str(&Value::from(name.as_str()).to_string());
        out.push(':');
        out.push_str(value.get());
        out.push(',');
    }
    let comma = if meta.is_empty() { "" } else { "," };
    out.push_str(&format!("\"_meta\":{{{meta}{comma}\"{HINTS}\":{}}}}}", hints()));
    Raw::trusted(out)
}

#[test]
fn hints_stand_beside_what_the_server_said() {
    let raw = |text: &'static str| {
        Raw::new(bytes::Bytes::from_static(text.as_bytes()), Default::default()).unwrap()
    };
    let hints = || json!({ "a": 1 });
    let check = |reply: &'static str, due: &str| assert_eq!(with_hints(&raw(reply), hints).get(), due);
    check(r#"{"content":[ ],"n":1.0}"#, r#"{"content":[ ],"n":1.0,"_meta":{"dev.toolgate/hints":{"a":1}}}"#);
    check(
        r#"{"_meta": {"x":1} ,"content":[]}"#,
        r#"{"content":[],"_meta":{"x":1,"dev.toolgate/hints":{"a":1}}}"#,
    );
    check(r#"{"resultType":"input_required"}"#, r#"{"resultType":"input_required"}"#);
    check(r#"{"task":{"taskId":"t"}}"#, r#"{"task":{"taskId":"t"}}"#);
}
