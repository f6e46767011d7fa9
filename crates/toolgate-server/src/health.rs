//! For whoever watches: whether it lives, whether it can serve, and what it counted.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use hyper::StatusCode;
use hyper::header::{self, HeaderValue};
use serde_json::{Value as Json, json};
use toolgate_runtime::runtime::ServerStatus;

use crate::Door;
use crate::admit::{Refusal, demand};
use crate::answer;
use crate::rest::{Guest, METRICS_READ, SERVERS_READ};
use crate::running::Phase;

/// It lives.
pub(crate) async fn alive() -> Response {
    answer::document(&json!({ "status": "ok" }))
}

/// Whether it can serve: calls are let in, they can be written down, and not every server is gone. Which
/// servers are not there, why, and when they are tried again is for who may know.
pub(crate) async fn ready(State(door): State<Arc<Door>>, guest: Result<Guest, Refusal>) -> Response {
    let servers = door.runtime.servers();
    let down: Vec<_> = servers.iter().filter(|server| server.reason.is_some()).collect();
    let all_down = !servers.is_empty() && down.len() == servers.len();
    let written_down = door.runtime.log().is_none_or(toolgate_audit::Log::is_available);
    let why = match door.running.phase() {
        Phase::Starting => Some("it is starting: its servers are being asked what they offer"),
        Phase::Draining | Phase::Closing => Some("it is stopping: no new calls are let in"),
        Phase::Open if !written_down => {
            Some("calls cannot be written down; look at the disk that holds the log")
        }
        Phase::Open if all_down => Some("no MCP server is available"),
        Phase::Open => None,
    };
    let mut document = json!({ "ready": why.is_none(), "servers": servers.len(), "down": down.len() });
    if let Some(why) = why {
        document["reason"] = why.into();
    }
    let next = down.iter().filter_map(|server| server.retry_in_ms).min();
    if let Some(next) = next {
        document["nextTryInMs"] = json!(next);
    }
    if guest.is_ok_and(|guest| demand(&guest.caller, SERVERS_READ).is_ok()) {
        let told = |server: &&ServerStatus| -> Json {
            json!({ "name": server.name, "reason": server.reason, "nextTryInMs": server.retry_in_ms })
        };
        document["unavailable"] = down.iter().map(told).collect();
    }
    let status = if why.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    answer::with_status(status, &document)
}

/// The numbers, in the text format of Prometheus.
pub(crate) async fn metrics(State(door): State<Arc<Door>>, guest: Guest) -> Result<Response, Refusal> {
    demand(&guest.caller, METRICS_READ)?;
    let mut text = door.runtime.metrics().render();
    let ready = door.runtime.servers().iter().filter(|server| server.state == "ready").count();
    for (name, help, value) in [
        ("toolgate_calls_running", "Calls that run now.", door.running.calls()),
        ("toolgate_connections", "Connections to the door.", door.running.connections()),
        ("toolgate_servers_ready", "MCP servers that are connected.", ready),
    ] {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
    }
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}
