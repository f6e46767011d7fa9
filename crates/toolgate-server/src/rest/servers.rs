//! `/v1/servers`: what the MCP servers are doing, a new connection, and what they changed let through.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use hyper::HeaderMap;
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;
use toolgate_runtime::runtime::ServerStatus;
use toolgate_types::{ErrorCode, ServerName};

use super::{Guest, SERVERS_READ, SERVERS_WRITE, tools};
use crate::Door;
use crate::admit::Refusal;
use crate::{answer, body};

/// How long whoever changed a server waits for it to be there. Its first start may take longer; then the answer says
/// that it is connecting.
const ARRIVAL: Duration = Duration::from_secs(5);

/// The servers: what they are doing, and when those that are gone are tried again.
pub(crate) async fn list(State(door): State<Arc<Door>>, guest: Guest) -> Result<Response, Refusal> {
    guest.demand(SERVERS_READ)?;
    let servers: Vec<_> = door.runtime.servers().into_iter().map(shown).collect();
    Ok(door.tagged(answer::document(&json!({ "servers": servers }))))
}

pub(crate) async fn show(
    State(door): State<Arc<Door>>,
    guest: Guest,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    guest.demand(SERVERS_READ)?;
    let name = tools::path(name)?;
    let status = door.status(&name).ok_or_else(|| unknown(&name))?;
    Ok(door.tagged(answer::document(&status)))
}

pub(crate) async fn reconnect(
    State(door): State<Arc<Door>>,
    guest: Guest,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    guest.demand(SERVERS_WRITE)?;
    let name = tools::path(name)?;
    let _counted = door.let_in()?;
    if !door.runtime.reconnect(&name).await {
        return Err(unknown(&name));
    }
    door.arrival(&name).await;
    door.status(&name).map(|status| answer::document(&status)).ok_or_else(|| unknown(&name))
}

/// What is let through: tools by their names with the hash of what was looked at, or all that waits.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Approval {
    tools: Option<Vec<Approved>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Approved {
    name: String,
    hash: Option<String>,
}

pub(crate) async fn approve(
    State(door): State<Arc<Door>>,
    guest: Guest,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    guest.demand(SERVERS_WRITE)?;
    let name = tools::path(name)?;
    let raw = body::read(&headers, body, door.max_body).await?;
    let Approval { tools } =
        serde_json::from_str(raw.get()).map_err(|error| Refusal::invalid(error.to_string()))?;
    let _counted = door.let_in()?;
    let server: ServerName = name.parse().map_err(|_| unknown(&name))?;
    door.status(&name).ok_or_else(|| unknown(&name))?;
    let mut waiting = door.runtime.waiting(&name);
    if let Some(tools) = tools {
        let mut chosen = Vec::new();
        for Approved { name: tool, hash } in tools {
            let at = waiting.iter().position(|one| one.tool.original == tool || one.tool.name == tool);
            let one = waiting.swap_remove(at.ok_or_else(|| {
                Refusal::not_found(format!("no tool `{tool}` of `{name}` waits for approval"))
            })?);
            if hash.is_some() && hash != one.tool.hash.as_ref().map(ToString::to_string) {
                let message = format!("`{tool}` is not what was looked at any more");
                return Err(Refusal::new(StatusCode::PRECONDITION_FAILED, "conflict", message));
            }
            chosen.push(one);
        }
        waiting = chosen;
    }
    door.runtime.approve(&server, &waiting).await.map_err(|error| {
        tracing::error!("an approval cannot be kept: {error}");
        let code = ErrorCode::StorageUnavailable.label();
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, code, "the approval cannot be kept")
    })?;
    let tools: Vec<_> = waiting.iter().map(|one| &one.tool.original).collect();
    Ok(answer::document(&json!({ "server": name, "tools": tools, "approved": true })))
}

impl Door {
    /// What a server is doing.
    pub(crate) fn status(&self, name: &str) -> Option<ServerStatus> {
        self.runtime.servers().into_iter().find(|server| server.name == name).map(shown)
    }

    /// Waits for a server whose tools are to be used at once.
    pub(crate) async fn arrival(&self, name: &str) {
        let _ = timeout(ARRIVAL, self.runtime.arrived(name)).await;
    }
}

/// What a program wrote to stderr is for whoever sits at the machine.
fn shown(mut status: ServerStatus) -> ServerStatus {
    status.stderr.clear();
    status
}

fn unknown(name: &str) -> Refusal {
    Refusal::not_found(format!("there is no MCP server `{name}`")).hint("`GET /v1/servers` lists them all")
}
