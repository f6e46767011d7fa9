//! REST: what can be asked for. What there is stands in [`operations`].
//!
//! Invariant: no handler but those that say whether we live, what can be asked for, or where to log in, runs for who
//! was not admitted.

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
use axum::routing::{get, post};
use hyper::StatusCode;

use crate::admit::{Refusal, resource};
pub(crate) use crate::entry::Guest;
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
        .route("/sse", get(mcp::sse::open))
        .route("/sse/{profile}", get(mcp::sse::open))
        .route("/sse/messages", post(mcp::sse::message))
        .route("/ws", get(mcp::ws::open))
        .route("/ws/{profile}", get(mcp::ws::open))
        .fallback(async || nothing())
        .method_not_allowed_fallback(async || not_allowed())
        .with_state(Arc::clone(door))
}

/// What is said where nothing is.
pub(crate) fn nothing() -> Refusal {
    Refusal::not_found("there is nothing here").hint("`GET /v1/docs` lists what there is")
}

/// What is said where something is that cannot be done.
pub(crate) fn not_allowed() -> Refusal {
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "this cannot be done with that")
}
