//! Endpoints for monitoring: liveness, readiness, and metrics.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use hyper::StatusCode;
use hyper::header::{self, HeaderValue};
use serde_json::{Value as Json, json};
use toolgate_runtime::runtime::ServerStatus;

use crate::Gateway;
use crate::auth::{HttpError, require_permission};
use crate::lifecycle::Phase;
use crate::response;
use crate::rest::{Authenticated, METRICS_READ, SERVERS_READ};

pub(crate) async fn alive() -> Response {
    response::json(&json!({ "status": "ok" }))
}

/// Readiness: calls are accepted, the execution log is writable, and at least one server is up. Names, errors and retry
/// times of unavailable servers are shown only to callers with `servers:read`.
pub(crate) async fn ready(
    State(gateway): State<Arc<Gateway>>,
    auth: Result<Authenticated, HttpError>,
) -> Response {
    let servers = gateway.runtime.servers();
    let down: Vec<_> = servers.iter().filter(|server| server.reason.is_some()).collect();
    let all_down = !servers.is_empty() && down.len() == servers.len();
    let log_available = gateway.runtime.log().is_none_or(toolgate_audit::ExecutionLog::is_available);
    let reason = match gateway.lifecycle.phase() {
        Phase::Starting => Some("the gateway is starting and loads the tools of its servers"),
        Phase::Draining | Phase::Closing => Some("the gateway is stopping and accepts no new calls"),
        Phase::Open if !log_available => {
            Some("the execution log is not writable; check the disk that holds it")
        }
        Phase::Open if all_down => Some("no MCP server is available"),
        Phase::Open => None,
    };
    let mut document = json!({ "ready": reason.is_none(), "servers": servers.len(), "down": down.len() });
    if let Some(reason) = reason {
        document["reason"] = reason.into();
    }
    let next = down.iter().filter_map(|server| server.retry_in_ms).min();
    if let Some(next) = next {
        document["nextTryInMs"] = json!(next);
    }
    if auth.is_ok_and(|auth| require_permission(&auth.caller, SERVERS_READ).is_ok()) {
        let entry = |server: &&ServerStatus| -> Json {
            json!({ "name": server.name, "reason": server.reason, "nextTryInMs": server.retry_in_ms })
        };
        document["unavailable"] = down.iter().map(entry).collect();
    }
    let status = if reason.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    response::json_with_status(status, &document)
}

/// Metrics in the Prometheus text format.
pub(crate) async fn metrics(
    State(gateway): State<Arc<Gateway>>,
    auth: Authenticated,
) -> Result<Response, HttpError> {
    require_permission(&auth.caller, METRICS_READ)?;
    let mut text = gateway.runtime.metrics().render();
    let ready = gateway.runtime.servers().iter().filter(|server| server.state == "ready").count();
    for (name, help, value) in [
        ("toolgate_calls_running", "Calls running now.", gateway.lifecycle.calls()),
        ("toolgate_connections", "Open connections to the gateway.", gateway.lifecycle.connections()),
        ("toolgate_servers_ready", "Connected MCP servers.", ready),
    ] {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
    }
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}
