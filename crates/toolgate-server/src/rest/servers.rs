//! `/v1/servers`: status of the MCP servers, reconnects, logins, and approval of changed tools.

use std::time::Duration;

use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tokio::time::timeout;
use toolgate_audit::{CallFilter, ProjectLog};
use toolgate_runtime::misfits::find_misfits;
use toolgate_runtime::runtime::{PendingApproval, ServerStatus};
use toolgate_store::document::EntryKind;
use toolgate_types::call::OperationKind;
use toolgate_types::{ErrorCode, ServerName};

use super::credentials;
use super::recorded::with_recorded_calls;
use crate::auth::HttpError;
use crate::response::Response;
use crate::route::{Access, AdmittedRequest};
use crate::{Gateway, response};

/// Time a change waits for its server to become ready. A first start may take longer; the response then says
/// `connecting`.
const READY_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn list(request: AdmittedRequest) -> Result<Response, HttpError> {
    let gateway = &request.gateway;
    let servers = gateway.runtime.servers().into_iter().map(without_stderr);
    let servers: Vec<Json> = servers.map(|status| gateway.server_document(&status, false)).collect();
    Ok(gateway.with_etag(response::json(&json!({ "servers": servers }))))
}

pub(crate) async fn show(request: AdmittedRequest) -> Result<Response, HttpError> {
    let name = request.parameter()?;
    let gateway = &request.gateway;
    let status = gateway.status(&name).ok_or_else(|| no_server(&name))?;
    let document = gateway.server_document(&status, request.access == Access::Full);
    Ok(gateway.with_etag(response::json(&document)))
}

pub(crate) async fn reconnect(request: AdmittedRequest) -> Result<Response, HttpError> {
    let name = request.parameter()?;
    let gateway = &request.gateway;
    let _call = gateway.begin_call()?;
    if !gateway.runtime.reconnect(&name).await {
        return Err(no_server(&name));
    }
    gateway.wait_until_ready(&name).await;
    let status = gateway.status(&name).ok_or_else(|| no_server(&name))?;
    Ok(response::json(&gateway.server_document(&status, false)))
}

/// Tools to approve, with the hashes that were reviewed. Without `tools`, all that wait.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApprovalBody {
    tools: Option<Vec<ApprovedTool>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ApprovedTool {
    name: String,
    hash: Option<String>,
}

pub(crate) async fn approve(request: AdmittedRequest) -> Result<Response, HttpError> {
    let name = request.parameter()?;
    let ApprovalBody { tools } = request.json()?;
    let gateway = &request.gateway;
    let _call = gateway.begin_call()?;
    let server: ServerName = name.parse().map_err(|_| no_server(&name))?;
    gateway.status(&name).ok_or_else(|| no_server(&name))?;
    let mut waiting = gateway.runtime.pending_approvals(&name);
    if tools.is_some() {
        // A person may change its mind, for tools that it names.
        waiting.extend(gateway.runtime.rejected_definitions(&name));
    }
    let waiting = select_definitions(&name, waiting, tools)?;
    gateway.runtime.approve(&server, &waiting).await.map_err(|error| not_stored(&error))?;
    let tools: Vec<_> = waiting.iter().map(|one| &one.tool.original).collect();
    Ok(response::json(&json!({ "server": name, "tools": tools, "approved": true })))
}

/// Stderr lines: default and maximum.
const STDERR_LINES: (usize, usize) = (100, 1_000);

/// Selection of stderr output.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StderrQuery {
    lines: Option<usize>,
}

/// Returns the last lines that the process of a server wrote to stderr, with secrets masked.
pub(crate) async fn stderr(request: AdmittedRequest) -> Result<Response, HttpError> {
    let name = request.parameter()?;
    let StderrQuery { lines } = request.query()?;
    let limit = lines.unwrap_or(STDERR_LINES.0).clamp(1, STDERR_LINES.1);
    let runtime = &request.gateway.runtime;
    let (is_running, lines) = runtime.server_stderr(&name, limit).ok_or_else(|| no_server(&name))?;
    Ok(response::json(&json!({ "server": name, "running": is_running, "lines": lines })))
}

/// Returns the definitions of a server that wait for approval, and those that were rejected.
pub(crate) async fn waiting(request: AdmittedRequest) -> Result<Response, HttpError> {
    let name = request.parameter()?;
    let gateway = &request.gateway;
    gateway.status(&name).ok_or_else(|| no_server(&name))?;
    let waiting = gateway.runtime.pending_approvals(&name);
    let rejected = gateway.runtime.rejected_definitions(&name);
    let misfits = if request.access == Access::Full && !waiting.is_empty() {
        let pending = waiting.clone();
        let filter = CallFilter { kind: Some(OperationKind::Tool), ..CallFilter::default() };
        let read = move |log: &ProjectLog, keep_going: &dyn Fn() -> bool| {
            with_recorded_calls(log, filter, keep_going, |calls| find_misfits(&pending, calls))
        };
        Some(gateway.log.read(read).await?)
    } else {
        None
    };
    let document = |one: &PendingApproval, misfits: Option<Json>| {
        let drift = one.drift();
        json!({
            "name": one.tool.original,
            "tool": one.tool.name,
            "hash": one.tool.hash,
            "cause": if one.old_definition.is_some() { "changed" } else { "not_approved" },
            "reason": one.tool.state.reason(),
            "class": drift.as_ref().map(|drift| drift.class.label()),
            "reasons": drift.map(|drift| drift.changes).unwrap_or_default(),
            "was": one.old_definition,
            "is": one.new_definition,
            "rejected": one.rejection,
            "misfits": misfits,
        })
    };
    let of_waiting = |(at, one): (usize, &PendingApproval)| {
        let misfits = misfits.as_ref().map(|(all, is_complete)| {
            let mut misfits = json!(all[at]);
            misfits["complete"] = json!(is_complete);
            misfits
        });
        document(one, misfits)
    };
    let waiting: Vec<Json> = waiting.iter().enumerate().map(of_waiting).collect();
    let rejected: Vec<Json> = rejected.iter().map(|one| document(one, None)).collect();
    let approved = gateway.runtime.is_approved(&name);
    Ok(response::json(
        &json!({ "server": name, "approved": approved, "waiting": waiting, "rejected": rejected }),
    ))
}

/// Rejects definitions until they change again.
pub(crate) async fn reject(request: AdmittedRequest) -> Result<Response, HttpError> {
    let name = request.parameter()?;
    let ApprovalBody { tools } = request.json()?;
    let gateway = &request.gateway;
    let _call = gateway.begin_call()?;
    gateway.status(&name).ok_or_else(|| no_server(&name))?;
    let server: ServerName = name.parse().map_err(|_| no_server(&name))?;
    let rejected = select_definitions(&name, gateway.runtime.pending_approvals(&name), tools)?;
    let by = request.auth.caller.id.as_str();
    gateway.runtime.reject(&server, &rejected, by).await.map_err(|error| not_stored(&error))?;
    let tools: Vec<_> = rejected.iter().map(|one| &one.tool.original).collect();
    Ok(response::json(&json!({ "server": name, "tools": tools, "rejected": true })))
}

/// Selects definitions by the name of their tool. Without a selection, all.
fn select_definitions(
    server: &str,
    mut waiting: Vec<PendingApproval>,
    tools: Option<Vec<ApprovedTool>>,
) -> Result<Vec<PendingApproval>, HttpError> {
    let Some(tools) = tools else { return Ok(waiting) };
    let mut selected = Vec::new();
    for ApprovedTool { name: tool, hash } in tools {
        let at = waiting.iter().position(|one| one.tool.original == tool || one.tool.name == tool);
        let one = waiting.swap_remove(at.ok_or_else(|| {
            HttpError::not_found(format!("no tool `{tool}` of `{server}` waits for approval"))
        })?);
        if hash.is_some() && hash != one.tool.hash.as_ref().map(ToString::to_string) {
            let message = format!("`{tool}` has changed since it was reviewed");
            return Err(HttpError::new(StatusCode::PRECONDITION_FAILED, "conflict", message));
        }
        selected.push(one);
    }
    Ok(selected)
}

fn not_stored(error: &dyn std::fmt::Display) -> HttpError {
    tracing::error!("an approval cannot be stored: {error}");
    let code = ErrorCode::StorageUnavailable.label();
    HttpError::new(StatusCode::SERVICE_UNAVAILABLE, code, "the approval cannot be stored")
}

/// Starts a login, and returns the URL for a browser. Callers log in for themselves; with full access, for the gateway.
pub(crate) async fn login(request: AdmittedRequest) -> Result<Response, HttpError> {
    let name = request.parameter()?;
    let caller = &request.auth.caller;
    let found = request.gateway.runtime.server_credentials(&name);
    let (url, of) = match found {
        Some(shared) if !shared.is_per_caller() && request.access == Access::Full => {
            (shared.shared_login_link(), "gateway")
        }
        _ => (credentials::server_credentials(&request)?.login_link(&caller.id), "caller"),
    };
    let url = url.ok_or_else(|| {
        let message = format!("a login to MCP server `{name}` cannot be started here");
        HttpError::new(StatusCode::CONFLICT, "conflict", message).hint(
            "it needs a server with a login in a browser, and `serve.url` with https or a local address",
        )
    })?;
    Ok(response::json(&json!({ "server": name, "of": of, "caller": caller.id, "url": url })))
}

impl Gateway {
    pub(crate) fn status(&self, name: &str) -> Option<ServerStatus> {
        self.runtime.servers().into_iter().find(|server| server.name == name).map(without_stderr)
    }

    /// Describes a server. With `entry`, with its entry as it is written, secrets masked.
    pub(crate) fn server_document(&self, status: &ServerStatus, with_entry: bool) -> Json {
        let entry = self.stored_entry(EntryKind::Server, &status.name);
        let file = self.project.as_ref().filter(|_| entry.is_some());
        let file = file.and_then(|project| project.registry_file(EntryKind::Server));
        let mut document = json!(status);
        document["approved"] = self.runtime.is_approved(&status.name).into();
        document["source"] = json!({
            "kind": if entry.is_some() { "registry" } else { "project" },
            "file": file,
            "editable": entry.is_some(),
        });
        document["entry"] = json!(entry.filter(|_| with_entry).map(|it| self.runtime.masked_entry(&it)));
        document
    }

    /// Waits until a server is ready, up to a limit.
    pub(crate) async fn wait_until_ready(&self, name: &str) {
        let _ = timeout(READY_TIMEOUT, self.runtime.wait_for_server(name)).await;
    }
}

/// Removes stderr output: it has an endpoint and a permission of its own.
fn without_stderr(mut status: ServerStatus) -> ServerStatus {
    status.stderr.clear();
    status
}

fn no_server(name: &str) -> HttpError {
    HttpError::not_found(format!("there is no MCP server `{name}`")).hint("`GET /v1/servers` lists them all")
}
