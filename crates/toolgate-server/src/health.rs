//! Endpoints for monitoring: liveness, readiness, and metrics.

use std::fmt::Write as _;

use http::StatusCode;
use http::header::{self, HeaderValue};
use serde_json::{Value as Json, json};
use toolgate_runtime::runtime::ServerStatus;

use crate::auth::HttpError;
use crate::lifecycle::Phase;
use crate::response::{self, Response, ResponseBody};
use crate::rest::cluster::readiness;
use crate::route::{Access, AdmittedRequest};

/// Gauges of the gateway: their names and descriptions.
pub(crate) const GAUGES: [(&str, &str); 3] = [
    ("toolgate_calls_running", "Calls running now."),
    ("toolgate_connections", "Open connections to the gateway."),
    ("toolgate_servers_ready", "Connected MCP servers."),
];
/// State of a server that is being connected.
const CONNECTING: &str = "connecting";

pub(crate) async fn alive(_: AdmittedRequest) -> Result<Response, HttpError> {
    Ok(response::json(&json!({ "status": "ok" })))
}

/// Readiness: calls are accepted, the execution log is writable, and at least one server is up. Names, errors and retry
/// times of unavailable servers are shown only with full access.
pub(crate) async fn ready(request: AdmittedRequest) -> Result<Response, HttpError> {
    let gateway = &request.gateway;
    let servers = gateway.runtime.servers();
    // A server that is being connected cannot be used yet, or not any more.
    let is_down = |server: &&ServerStatus| server.reason.is_some() || server.state == CONNECTING;
    let down: Vec<_> = servers.iter().filter(is_down).collect();
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
    if let Some(cluster) = &gateway.cluster {
        // Ready without the database, too: if every replica left the balancer, its outage would be one of the gateway.
        document["cluster"] = readiness(&cluster.members.status(), request.access == Access::Full);
    }
    let next = down.iter().filter_map(|server| server.retry_in_ms).min();
    if let Some(next) = next {
        document["nextTryInMs"] = json!(next);
    }
    if request.access == Access::Full {
        let entry = |server: &&ServerStatus| -> Json {
            let reason = server.reason.as_deref().unwrap_or("it is being connected");
            json!({ "name": server.name, "reason": reason, "nextTryInMs": server.retry_in_ms })
        };
        document["unavailable"] = down.iter().map(entry).collect();
    }
    let status = if reason.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok(response::json_with_status(status, &document))
}

/// State of the configuration: problems of the files that are not in use because of them, and changed sections that
/// wait for a restart.
pub(crate) async fn configuration(request: AdmittedRequest) -> Result<Response, HttpError> {
    let gateway = &request.gateway;
    let state = gateway.registry.as_ref().map(toolgate_store::registry::Registry::state);
    let rejected = state.as_ref().and_then(|state| state.rejection.as_ref());
    let mut document = json!({
        "policy": gateway.runtime.access_rules().policy.version(),
        "rejected": rejected.map(|problems| problems.0.as_slice()).unwrap_or_default(),
        "needsRestart": **gateway.pending_restart.load(),
    });
    if let Some(state) = &state {
        document["revision"] = json!(state.rev.to_string());
    }
    Ok(response::json(&document))
}

/// Metrics in the Prometheus text format.
pub(crate) async fn metrics(request: AdmittedRequest) -> Result<Response, HttpError> {
    let gateway = &request.gateway;
    let mut text = gateway.runtime.metrics().render();
    if let Some(log) = gateway.runtime.log() {
        log.render_metrics(&mut text);
    }
    let ready = gateway.runtime.servers().iter().filter(|server| server.state == "ready").count();
    let values = [gateway.lifecycle.calls(), gateway.lifecycle.connections(), ready];
    for ((name, help), value) in GAUGES.into_iter().zip(values) {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
    }
    let mut response = Response::new(ResponseBody::from(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}
