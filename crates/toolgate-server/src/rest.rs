//! The REST API. Its endpoints are listed in [`operations`].
//!
//! Invariant: every handler requires an authenticated caller, except health, API description, and OAuth metadata.

mod api_operation;
mod call;
mod callers;
mod changes;
mod docs_page;
mod executions;
mod guard;
mod openapi;
mod operations;
mod questions;
mod runs;
mod servers;
pub(crate) mod tools;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use hyper::{Method, StatusCode, Uri};

use crate::auth::{HttpError, protected_resource};
pub(crate) use crate::handler::Authenticated;
use crate::{Gateway, mcp};
pub(crate) use guard::AllowList;

/// Characters of a path shown in an error message.
const MAX_SHOWN_PATH: usize = 200;

/// Permissions for management. `*:*` includes all of them.
pub(crate) const CALLERS_READ: &str = "callers:read";
pub(crate) const CALLERS_WRITE: &str = "callers:write";
pub(crate) const EXECUTIONS_READ: &str = "executions:read";
pub(crate) const METRICS_READ: &str = "metrics:read";
pub(crate) const HUMAN_INPUT_READ: &str = "human_input:read";
pub(crate) const HUMAN_INPUT_ANSWER: &str = "human_input:answer";
pub(crate) const APPROVALS_READ: &str = "approvals:read";
pub(crate) const APPROVALS_ANSWER: &str = "approvals:answer";
pub(crate) const POLICY_READ: &str = "policy:read";
/// Start agent runs; read and stop runs of other callers.
pub(crate) const RUNS_START: &str = "runs:start";
pub(crate) const RUNS_READ: &str = "runs:read";
pub(crate) const RUNS_STOP: &str = "runs:stop";
pub(crate) const SERVERS_READ: &str = "servers:read";
pub(crate) const SERVERS_WRITE: &str = "servers:write";
pub(crate) const TOOLS_WRITE: &str = "tools:write";
/// Register commands that run on this machine. Wildcards do not include it.
pub(crate) const SERVERS_EXEC: &str = "servers:exec";

pub(crate) fn router(gateway: &Arc<Gateway>) -> Router {
    operations::router()
        .route(protected_resource::METADATA_PATH, get(protected_resource::metadata))
        .route(&format!("{}/mcp", protected_resource::METADATA_PATH), get(protected_resource::metadata))
        .route(
            &format!("{}/mcp/{{profile}}", protected_resource::METADATA_PATH),
            get(protected_resource::metadata),
        )
        .route("/sse", get(mcp::sse::open))
        .route("/sse/{profile}", get(mcp::sse::open))
        .route("/sse/messages", post(mcp::sse::message))
        .route("/ws", get(mcp::ws::open))
        .route("/ws/{profile}", get(mcp::ws::open))
        .fallback(async |method: Method, uri: Uri| no_endpoint(&method, &uri))
        .method_not_allowed_fallback(async |method: Method, uri: Uri| method_not_allowed(&method, &uri))
        .with_state(Arc::clone(gateway))
}

/// 404: no endpoint has this path, or the caller may not know of it.
pub(crate) fn no_endpoint(method: &Method, uri: &Uri) -> HttpError {
    HttpError::not_found(format!("no such endpoint: {method} {}", shown_path(uri))).hint("see `GET /v1/docs`")
}

/// 405. [`crate::handler`] adds the allowed methods.
pub(crate) fn method_not_allowed(method: &Method, uri: &Uri) -> HttpError {
    let message = format!("{method} is not supported on {}", shown_path(uri));
    HttpError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}

/// The path of a request, truncated for use in a message.
fn shown_path(uri: &Uri) -> String {
    let mut path: String = uri.path().chars().take(MAX_SHOWN_PATH).collect();
    if path.len() < uri.path().len() {
        path.push('…');
    }
    path
}
