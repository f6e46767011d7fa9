//! A call over REST: a body becomes a caller's request, and the result an envelope.
//!
//! Arguments are handed on as the bytes they came in. Invariant: [`call_request`] is the only place where a
//! request of the runtime is made, and whoever leaves takes its call along: what is dropped here is cancelled at its
//! server.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use hyper::HeaderMap;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use toolgate_mcp::{Along, Trace};
use toolgate_runtime::{CallRequest, Origin};
use toolgate_types::Caller;
use toolgate_types::json::{Arguments, Raw};

use super::{Guest, POLICY_READ, tools};
use crate::Door;
use crate::admit::{Refusal, demand};
use crate::running::{Counted, Phase};
use crate::{answer, body};

/// The longest text in a context.
const LONGEST: usize = 256;

/// What a body says, by its members.
#[derive(Default)]
struct Sent {
    tool: Option<String>,
    caller: Option<String>,
    arguments: Option<Raw>,
    context: Context,
}

/// Where a call comes from and what it belongs to, in the words of the tool contract.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Context {
    user_id: Option<String>,
    session_id: Option<String>,
    correlation_id: Option<String>,
    trace_id: Option<String>,
    agent_id: Option<String>,
    agent_version: Option<String>,
    timestamp: Option<String>,
    metadata: Option<Map<String, Json>>,
}

pub(crate) async fn call(
    State(door): State<Arc<Door>>,
    guest: Guest,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let name = tools::path(name)?;
    let sent = Sent::read(&door, &headers, body, &["arguments", "context"]).await?;
    door.call(guest, name, sent).await
}

pub(crate) async fn execute(
    State(door): State<Arc<Door>>,
    guest: Guest,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let members = ["name", "tool", "arguments", "input", "args", "context"];
    let mut sent = Sent::read(&door, &headers, body, &members).await?;
    let name = sent
        .tool
        .take()
        .ok_or_else(|| Refusal::invalid("the body does not say which tool").hint("add `name`"))?;
    door.call(guest, name, sent).await
}

pub(crate) async fn why(
    State(door): State<Arc<Door>>,
    guest: Guest,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    demand(&guest.caller, POLICY_READ)?;
    let members = ["caller", "tool", "name", "arguments", "context"];
    let mut sent = Sent::read(&door, &headers, body, &members).await?;
    let name = sent
        .tool
        .take()
        .ok_or_else(|| Refusal::invalid("the body does not say which tool").hint("add `tool`"))?;
    let who = sent.caller.take();
    let caller = match who.as_deref() {
        None => Caller::clone(&guest.caller),
        Some(id) => match door.gate.caller(id) {
            Some(caller) => Caller::clone(&caller),
            None => return Err(Refusal::not_found(format!("there is no caller `{id}`"))),
        },
    };
    let request = call_request(&guest, name, sent);
    let explanation = door.runtime.explain(&caller, &request).ok_or_else(|| tools::unknown(&request.name))?;
    let mut document = json!(explanation);
    document["caller"] = json!(caller.id);
    document["tool"] = json!(request.name);
    Ok(answer::document(&document))
}

impl Door {
    /// Counts something that is waited for at the end, or says why it is not let in.
    pub(crate) fn let_in(&self) -> Result<Counted<'_>, Refusal> {
        self.running.call().map_err(|phase| match phase {
            Phase::Starting => Refusal::unavailable("it is starting").after(Duration::from_secs(1)),
            _ => {
                Refusal::unavailable("it is stopping, and lets no new calls in").after(Duration::from_secs(5))
            }
        })
    }

    async fn call(&self, guest: Guest, name: String, sent: Sent) -> Result<Response, Refusal> {
        let _counted = self.let_in()?;
        let request = call_request(&guest, name, sent);
        let trace = request.trace.clone();
        let called = self.runtime.call(&guest.caller, request).await;
        let mut response = answer::called(&called);
        answer::identified(&mut response, &trace);
        Ok(response)
    }
}

/// The request as the runtime knows it.
fn call_request(guest: &Guest, name: String, sent: Sent) -> CallRequest {
    let Context { user_id, session_id, correlation_id, trace_id, agent_version, metadata, .. } = sent.context;
    let mut trace = guest.trace.clone();
    // What the request itself says in its headers counts more.
    if let Some(id) = correlation_id.filter(|_| !guest.identified) {
        trace = Trace::new(&id).within(trace.trace_id());
    }
    if let Some(id) = trace_id.filter(|_| !guest.traced) {
        trace = trace.within(&id);
    }
    let arguments = sent.arguments.map_or_else(Arguments::none, Arguments::from);
    let origin = Origin {
        user: user_id,
        session: session_id,
        agent_version,
        metadata: metadata.map(Json::Object),
        along: Along::default(),
        hidden: false,
    };
    CallRequest { name, arguments, trace, origin, whole: false }
}

impl Sent {
    /// Reads a body that may have these members, and no other: a member that nobody knows is a mistake of
    /// whoever sent it.
    async fn read(door: &Door, headers: &HeaderMap, body: Body, may: &[&str]) -> Result<Self, Refusal> {
        let raw = body::read(headers, body, door.max_body).await?;
        if !is_object(&raw) {
            return Err(Refusal::invalid("the body is not an object"));
        }
        let mut sent = Self::default();
        for (name, value) in raw.members() {
            if !may.contains(&&*name) {
                let known: Vec<_> = may.iter().map(|name| format!("`{name}`")).collect();
                return Err(Refusal::invalid(format!(
                    "the body has a member `{name}`, which is not known here"
                ))
                .hint(format!("it may have {}", known.join(", "))));
            }
            sent.take(&name, value, &raw)?;
        }
        Ok(sent)
    }

    fn take(&mut self, name: &str, value: &str, whole: &Raw) -> Result<(), Refusal> {
        let twice = || Refusal::invalid(format!("`{name}` says what another member says already"));
        let text = || {
            serde_json::from_str::<String>(value)
                .map_err(|_| Refusal::invalid(format!("`{name}` is not a text")))
        };
        match name {
            "name" | "tool" if self.tool.is_some() => return Err(twice()),
            "name" | "tool" => self.tool = Some(text()?),
            "caller" => self.caller = Some(text()?),
            "context" => self.context = Context::read(value)?,
            _ if self.arguments.is_some() => return Err(twice()),
            _ => {
                let arguments = whole.slice(value);
                if !is_object(&arguments) {
                    return Err(Refusal::invalid(format!("`{name}` is not an object")));
                }
                self.arguments = Some(arguments);
            }
        }
        Ok(())
    }
}

fn is_object(raw: &Raw) -> bool {
    raw.get().trim_start().starts_with('{')
}

impl Context {
    fn read(value: &str) -> Result<Self, Refusal> {
        let context: Self = serde_json::from_str(value)
            .map_err(|error| Refusal::invalid(format!("`context` is not what it should be: {error}")))?;
        let Self { user_id, session_id, agent_id, agent_version, timestamp, .. } = &context;
        let long = |text: &Option<String>| text.as_ref().is_some_and(|text| text.len() > LONGEST);
        if [user_id, session_id, agent_id, agent_version, timestamp].into_iter().any(long) {
            return Err(Refusal::invalid(format!("a text in `context` has more than {LONGEST} bytes")));
        }
        Ok(context)
    }
}
