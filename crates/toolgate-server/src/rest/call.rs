//! Tool calls over REST: a body becomes a request, and the result an envelope.
//!
//! Arguments are passed on as the bytes received. Invariant: [`call_request`] is the only place that builds requests to
//! the runtime. A client that disconnects cancels its call: the future is dropped, which cancels the call at the
//! server.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};
use toolgate_json::{CallArguments, RawJson};
use toolgate_mcp::TraceContext;
use toolgate_runtime::{CallOrigin, CallOutcome, Operation, OperationTarget, Runtime, SessionId};
use toolgate_types::{Caller, Stage};

use super::{call_events, tools};
use crate::auth::{Authenticated, HttpError};
use crate::lifecycle::{CountGuard, Phase};
use crate::response::Response;
use crate::route::{AdmittedRequest, schema_of};
use crate::routes::POLICY_READ;
use crate::{Gateway, response};

/// Maximum length of a string in the context.
const MAX_CONTEXT_BYTES: usize = 256;

/// Members of the bodies of `/v1/tools/{name}/call`, `/v1/tools/execute` and `/v1/policy/why`.
const CALL_MEMBERS: [&str; 2] = ["arguments", "context"];
/// `tool` and `tool_name` are aliases of `name`; `input` and `args` are aliases of `arguments`.
const EXECUTE_MEMBERS: [&str; 7] = ["name", "tool", "tool_name", "arguments", "input", "args", "context"];
const EXPLAIN_MEMBERS: [&str; 5] = ["caller", "tool", "name", "arguments", "context"];

pub(crate) fn call_schema() -> Json {
    schema("A call of a tool.", &CALL_MEMBERS)
}

pub(crate) fn execute_schema() -> Json {
    let summary =
        "`tool` and `tool_name` are aliases of `name`; `input` and `args` are aliases of `arguments`.";
    schema(summary, &EXECUTE_MEMBERS)
}

pub(crate) fn explain_schema() -> Json {
    schema("A call to explain, of the given caller.", &EXPLAIN_MEMBERS)
}

/// Schema of a body with these members. [`CallBody`] has no derived one, because it keeps the arguments as received.
fn schema(summary: &str, members: &[&str]) -> Json {
    let property = |name: &&str| {
        let schema = match *name {
            "name" | "tool" | "tool_name" | "caller" => json!({ "type": "string" }),
            "context" => schema_of::<RequestContext>(),
            _ => json!({ "type": "object" }),
        };
        ((*name).to_owned(), schema)
    };
    let properties: Map<_, _> = members.iter().map(property).collect();
    json!({ "description": summary, "type": "object", "additionalProperties": false, "properties": properties })
}

/// Members of a request body.
#[derive(Default)]
struct CallBody {
    tool: Option<String>,
    caller: Option<String>,
    arguments: Option<RawJson>,
    context: RequestContext,
}

/// Origin of a call, and the ids it belongs to.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RequestContext {
    #[schemars(length(max = MAX_CONTEXT_BYTES))]
    user_id: Option<String>,
    #[schemars(length(max = MAX_CONTEXT_BYTES))]
    session_id: Option<String>,
    correlation_id: Option<String>,
    trace_id: Option<String>,
    #[schemars(length(max = MAX_CONTEXT_BYTES))]
    agent_id: Option<String>,
    #[schemars(length(max = MAX_CONTEXT_BYTES))]
    agent_version: Option<String>,
    #[schemars(length(max = MAX_CONTEXT_BYTES))]
    timestamp: Option<String>,
    metadata: Option<Map<String, Json>>,
}

pub(crate) async fn call(request: AdmittedRequest) -> Result<Response, HttpError> {
    let name = request.parameter()?;
    let call_body = CallBody::read(&request, &CALL_MEMBERS)?;
    run(request, name, call_body).await
}

pub(crate) async fn execute(request: AdmittedRequest) -> Result<Response, HttpError> {
    let mut call_body = CallBody::read(&request, &EXECUTE_MEMBERS)?;
    let name = call_body
        .tool
        .take()
        .ok_or_else(|| HttpError::invalid("the body names no tool").hint("add `name`"))?;
    run(request, name, call_body).await
}

pub(crate) async fn explain_policy(request: AdmittedRequest) -> Result<Response, HttpError> {
    let (gateway, auth) = (&request.gateway, &request.auth);
    let mut call_body = CallBody::read(&request, &EXPLAIN_MEMBERS)?;
    let name = call_body
        .tool
        .take()
        .ok_or_else(|| HttpError::invalid("the body names no tool").hint("add `tool`"))?;
    let id = call_body.caller.take();
    let caller = match id.as_deref() {
        None => Caller::clone(&auth.caller),
        Some(id) => match gateway.authenticator.caller(id) {
            Some(caller) => Caller::clone(&caller),
            None => return Err(HttpError::not_found(format!("there is no caller `{id}`"))),
        },
    };
    let request = call_request(auth, name, call_body);
    let explanation =
        gateway.runtime.explain(&caller, &request).ok_or_else(|| tools::no_tool(request.name()))?;
    let mut document = json!(explanation);
    document["caller"] = json!(caller.id);
    document["tool"] = json!(request.name());
    Ok(response::json(&document))
}

impl Gateway {
    /// Counts a call for the shutdown, or rejects it if calls are not accepted.
    pub(crate) fn begin_call(&self) -> Result<CountGuard<'_>, HttpError> {
        self.lifecycle.begin_call().map_err(|phase| match phase {
            Phase::Starting => {
                HttpError::unavailable("the gateway is starting").retry_after(Duration::from_secs(1))
            }
            _ => HttpError::unavailable("the gateway is stopping and accepts no new calls")
                .retry_after(Duration::from_secs(5)),
        })
    }
}

/// Parameters of a call.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallQuery {
    trace: Option<bool>,
}

/// Makes a call and returns its result, or its events.
async fn run(request: AdmittedRequest, name: String, call_body: CallBody) -> Result<Response, HttpError> {
    let CallQuery { trace } = request.query()?;
    let AdmittedRequest { gateway, auth, parts, .. } = &request;
    call_body.context.check_agent(&auth.caller)?;
    let operation = call_request(auth, name, call_body);
    // Names of policy rules are for those that may read the policy.
    let with_steps = trace.unwrap_or(false).then(|| auth.require(POLICY_READ).is_ok());
    let trace = operation.trace.clone();
    let mut response = if call_events::wants_events(&parts.headers) {
        call_events::stream(gateway, auth, operation, with_steps)?
    } else {
        let _call = gateway.begin_call()?;
        let called = gateway.runtime.execute(&auth.caller, operation).await;
        let envelope = envelope(&gateway.runtime, &auth.caller, &called, with_steps);
        response::call_result(&called, envelope)
    };
    response.body_mut().set_request_ids(&trace);
    Ok(response)
}

/// A stage of a call, in microseconds from the request.
#[derive(Serialize)]
struct CallStepView<'a> {
    stage: Stage,
    start: u64,
    micros: u64,
    note: Option<&'a str>,
}

/// Renders the result envelope, with the stages of the call if they are wanted. Tells then if policy rules are shown.
pub(super) fn envelope(
    runtime: &Runtime,
    caller: &Caller,
    called: &CallOutcome,
    with_steps: Option<bool>,
) -> Vec<u8> {
    let mut envelope = response::envelope(runtime, caller, called);
    let Some(shows_rules) = with_steps else { return envelope };
    let mut start = 0;
    let steps = called.steps.iter().map(|step| {
        let note = step.note.as_deref().filter(|_| shows_rules || step.stage != Stage::Authorize);
        let micros = step.micros();
        let view = CallStepView { stage: step.stage, start, micros, note };
        start += micros;
        view
    });
    let steps = serde_json::to_vec(&steps.collect::<Vec<_>>()).unwrap_or_default();
    if envelope.pop_if(|last| *last == b'}').is_some() && !steps.is_empty() {
        envelope.extend(b",\"steps\":");
        envelope.extend(steps);
        envelope.push(b'}');
    }
    envelope
}

/// Builds the request to the runtime.
fn call_request(auth: &Authenticated, name: String, call_body: CallBody) -> Operation {
    let RequestContext { user_id, session_id, correlation_id, trace_id, agent_version, metadata, .. } =
        call_body.context;
    let mut trace = auth.trace.clone();
    // Headers take precedence over the body.
    if let Some(id) = correlation_id.filter(|_| !auth.has_correlation_id) {
        trace = TraceContext::new(&id).with_parent(trace.trace_id());
    }
    if let Some(id) = trace_id.filter(|_| !auth.has_traceparent) {
        trace = trace.with_parent(&id);
    }
    let arguments = call_body.arguments.map_or_else(CallArguments::empty, CallArguments::from);
    let origin = CallOrigin {
        user: user_id,
        session: session_id.map(SessionId::Claimed),
        agent_version,
        metadata: metadata.map(Json::Object),
        access: auth.access(),
        ..CallOrigin::default()
    };
    Operation { target: OperationTarget::Tool(name.into()), arguments, trace, origin, full_result: false }
}

impl CallBody {
    /// Reads a body with these members. Unknown members are rejected, because they are mistakes of the client.
    fn read(request: &AdmittedRequest, allowed: &[&str]) -> Result<Self, HttpError> {
        let raw = request.raw_json()?;
        if !is_object(&raw) {
            return Err(HttpError::invalid("the body is not an object"));
        }
        let mut call_body = Self::default();
        for (name, value) in raw.members() {
            if !allowed.contains(&&*name) {
                let known: Vec<_> = allowed.iter().map(|name| format!("`{name}`")).collect();
                return Err(HttpError::invalid(format!("unknown member `{name}` in the body"))
                    .hint(format!("allowed members: {}", known.join(", "))));
            }
            call_body.take(&name, value, &raw)?;
        }
        Ok(call_body)
    }

    fn take(&mut self, name: &str, value: &str, whole: &RawJson) -> Result<(), HttpError> {
        let twice = || HttpError::invalid(format!("`{name}` repeats another member"));
        let text = || {
            serde_json::from_str::<String>(value)
                .map_err(|_| HttpError::invalid(format!("`{name}` is not a string")))
        };
        match name {
            "name" | "tool" | "tool_name" if self.tool.is_some() => return Err(twice()),
            "name" | "tool" | "tool_name" => self.tool = Some(text()?),
            "caller" => self.caller = Some(text()?),
            "context" => self.context = RequestContext::read(value)?,
            _ if self.arguments.is_some() => return Err(twice()),
            _ => {
                let arguments = whole.slice(value);
                if !is_object(&arguments) {
                    return Err(HttpError::invalid(format!("`{name}` is not an object")));
                }
                self.arguments = Some(arguments);
            }
        }
        Ok(())
    }
}

fn is_object(raw: &RawJson) -> bool {
    raw.as_str().trim_start().starts_with('{')
}

impl RequestContext {
    fn read(value: &str) -> Result<Self, HttpError> {
        let context: Self = serde_json::from_str(value)
            .map_err(|error| HttpError::invalid(format!("invalid `context`: {error}")))?;
        let Self { user_id, session_id, agent_id, agent_version, timestamp, .. } = &context;
        let long = |text: &Option<String>| text.as_ref().is_some_and(|text| text.len() > MAX_CONTEXT_BYTES);
        if [user_id, session_id, agent_id, agent_version, timestamp].into_iter().any(long) {
            return Err(HttpError::invalid(format!(
                "a string in `context` has more than {MAX_CONTEXT_BYTES} bytes"
            )));
        }
        Ok(context)
    }

    /// Refuses a call on behalf of another agent: tools and the execution log would name the caller instead.
    fn check_agent(&self, caller: &Caller) -> Result<(), HttpError> {
        match &self.agent_id {
            Some(agent) if agent != caller.id.as_str() => {
                let message =
                    format!("`agentId` in `context` is `{agent}`, but the caller is `{}`", caller.id);
                Err(HttpError::invalid(message)
                    .hint("leave out `agentId`, or use the key of that caller; `userId` names an end user"))
            }
            _ => Ok(()),
        }
    }
}
