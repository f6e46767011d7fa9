//! REST: what can be asked for, and what every request goes through first.
//!
//! Invariant: every answer carries the ids of its request, every error has one shape, and no handler but those
//! that say whether we live, what can be asked for, or where to log in, runs for who was not admitted. What there is
//! stands in [`operations`].

mod call;
mod callers;
mod changes;
mod desk;
mod document;
mod executions;
mod guard;
mod operation;
mod operations;
mod page;
mod runs;
mod servers;
pub(crate) mod tools;

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use toolgate_mcp::Trace;
use toolgate_types::Caller;

use crate::accept::{AtMachine, Ends};
use crate::admit::{self, Refusal, Standing, resource};
use crate::answer::{self, CORRELATION_ID, TRACEPARENT};
use crate::{Door, mcp};
pub(crate) use guard::Allowed;

/// What management demands. `*:*` has all of them.
pub(crate) const CALLERS_READ: &str = "callers:read";
pub(crate) const CALLERS_WRITE: &str = "callers:write";
pub(crate) const EXECUTIONS_READ: &str = "executions:read";
pub(crate) const METRICS_READ: &str = "metrics:read";
pub(crate) const HUMAN_INPUT_READ: &str = "human_input:read";
pub(crate) const HUMAN_INPUT_ANSWER: &str = "human_input:answer";
pub(crate) const APPROVALS_READ: &str = "approvals:read";
pub(crate) const APPROVALS_ANSWER: &str = "approvals:answer";
pub(crate) const POLICY_READ: &str = "policy:read";
/// To give the agent tasks; to see those of others.
pub(crate) const RUNS_START: &str = "runs:start";
pub(crate) const RUNS_READ: &str = "runs:read";
pub(crate) const RUNS_STOP: &str = "runs:stop";
pub(crate) const SERVERS_READ: &str = "servers:read";
pub(crate) const SERVERS_WRITE: &str = "servers:write";
pub(crate) const TOOLS_WRITE: &str = "tools:write";
/// What no star gives: to say what runs on this machine.
pub(crate) const SERVERS_EXEC: &str = "servers:exec";

pub(crate) fn router(door: &Arc<Door>) -> Router {
    operations::router()
        .route(resource::PLACE, get(resource::metadata))
        .route(&format!("{}/mcp", resource::PLACE), get(resource::metadata))
        .route(&format!("{}/mcp/{{profile}}", resource::PLACE), get(resource::metadata))
        .route("/mcp", post(mcp::post).get(mcp::get).delete(mcp::delete))
        .route("/mcp/{profile}", post(mcp::post).get(mcp::get).delete(mcp::delete))
        .route("/sse", get(mcp::sse::open))
        .route("/sse/{profile}", get(mcp::sse::open))
        .route("/sse/messages", post(mcp::sse::message))
        .route("/ws", get(mcp::ws::open))
        .route("/ws/{profile}", get(mcp::ws::open))
        .fallback(async || nothing())
        .method_not_allowed_fallback(async || {
            Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "this cannot be done with that",
            )
        })
        .layer(middleware::from_fn_with_state(Arc::clone(door), around))
        .with_state(Arc::clone(door))
}

/// What is said where nothing is.
pub(crate) fn nothing() -> Refusal {
    Refusal::not_found("there is nothing here").hint("`GET /v1/docs` lists what there is")
}

/// What every request goes through: its ids, whether it is meant for us, and the shape of its answer.
async fn around(State(door): State<Arc<Door>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let trace = trace(&parts.headers);
    parts.extensions.insert(trace.clone());
    let addressed = door.gate.addressed(&parts);
    let mut response = match meant_for_us(&door, &parts) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(refusal) => refusal.into_response(),
    };
    if let Some(refusal) = response.extensions_mut().remove::<Refusal>() {
        response = refusal.told(&trace);
    }
    if let Some(addressed) = addressed {
        door.gate.challenge(&mut response, &addressed);
    }
    answer::identified(&mut response, &trace);
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn meant_for_us(door: &Door, parts: &Parts) -> Result<(), Refusal> {
    // A page in a browser does not open sockets of files.
    if parts.extensions.get::<AtMachine>().is_none() {
        door.gate.pace(ends(parts).peer)?;
        door.gate.place(parts, ends(parts))?;
    }
    if parts.headers.contains_key(header::CONTENT_ENCODING) {
        let message = "a body is not compressed here";
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message));
    }
    Ok(())
}

fn ends(parts: &Parts) -> Ends {
    *parts.extensions.get::<Ends>().expect("every connection says where it is from")
}

/// The ids that a request came with, or new ones.
fn trace(headers: &HeaderMap) -> Trace {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let trace = text(CORRELATION_ID).map_or_else(Trace::fresh, Trace::new);
    text(TRACEPARENT).map_or(trace.clone(), |parent| trace.within(parent))
}

/// Who makes a request, and what it belongs to.
pub(crate) struct Guest {
    pub(crate) caller: Arc<Caller>,
    /// How long it stays, where it stays beyond this request.
    pub(crate) standing: Standing,
    pub(crate) trace: Trace,
    /// Whether it came by the socket in the project's folder, which its owner alone can open.
    pub(crate) at_machine: bool,
    /// Which of the ids it brought itself.
    pub(crate) identified: bool,
    pub(crate) traced: bool,
}

impl Guest {
    /// Whether it may manage this. Who can open the socket can write the files, too.
    pub(crate) fn demand(&self, permission: &str) -> Result<(), Refusal> {
        if self.at_machine { Ok(()) } else { admit::demand(&self.caller, permission) }
    }
}

impl FromRequestParts<Arc<Door>> for Guest {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, door: &Arc<Door>) -> Result<Self, Refusal> {
        let at_machine = parts.extensions.get::<AtMachine>().is_some();
        let (caller, standing) = if at_machine {
            (door.gate.owner(), Standing::Lasting)
        } else {
            door.gate.admit(parts, ends(parts)).await?
        };
        let trace = parts.extensions.get::<Trace>().cloned().unwrap_or_else(Trace::fresh);
        let identified = parts.headers.contains_key(&CORRELATION_ID);
        let traced = parts.headers.contains_key(&TRACEPARENT);
        Ok(Self { caller, standing, trace, at_machine, identified, traced })
    }
}
