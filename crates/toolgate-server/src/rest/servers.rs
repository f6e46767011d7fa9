//! `/v1/servers`: status of the MCP servers, reconnects, and approval of changed tools.

use std::time::Duration;

use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;
use toolgate_runtime::runtime::ServerStatus;
use toolgate_types::{ErrorCode, ServerName};

use crate::auth::HttpError;
use crate::response::Response;
use crate::route::AdmittedRequest;
use crate::{Gateway, response};

/// Time a change waits for its server to become ready. A first start may take longer; the response then says
/// `connecting`.
const READY_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn list(request: AdmittedRequest) -> Result<Response, HttpError> {
    let gateway = &request.gateway;
    let servers: Vec<_> = gateway.runtime.servers().into_iter().map(without_stderr).collect();
    Ok(gateway.with_etag(response::json(&json!({ "servers": servers }))))
}

pub(crate) async fn show(request: AdmittedRequest) -> Result<Response, HttpError> {
    let name = request.parameter()?;
    let gateway = &request.gateway;
    let status = gateway.status(&name).ok_or_else(|| no_server(&name))?;
    Ok(gateway.with_etag(response::json(&status)))
}

pub(crate) async fn reconnect(request: AdmittedRequest) -> Result<Response, HttpError> {
    let name = request.parameter()?;
    let gateway = &request.gateway;
    let _call = gateway.begin_call()?;
    if !gateway.runtime.reconnect(&name).await {
        return Err(no_server(&name));
    }
    gateway.wait_until_ready(&name).await;
    gateway.status(&name).map(|status| response::json(&status)).ok_or_else(|| no_server(&name))
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
    if let Some(tools) = tools {
        let mut selected = Vec::new();
        for ApprovedTool { name: tool, hash } in tools {
            let at = waiting.iter().position(|one| one.tool.original == tool || one.tool.name == tool);
            let one = waiting.swap_remove(at.ok_or_else(|| {
                HttpError::not_found(format!("no tool `{tool}` of `{name}` waits for approval"))
            })?);
            if hash.is_some() && hash != one.tool.hash.as_ref().map(ToString::to_string) {
                let message = format!("`{tool}` has changed since it was reviewed");
                return Err(HttpError::new(StatusCode::PRECONDITION_FAILED, "conflict", message));
            }
            selected.push(one);
        }
        waiting = selected;
    }
    gateway.runtime.approve(&server, &waiting).await.map_err(|error| {
        tracing::error!("an approval cannot be stored: {error}");
        let code = ErrorCode::StorageUnavailable.label();
        HttpError::new(StatusCode::SERVICE_UNAVAILABLE, code, "the approval cannot be stored")
    })?;
    let tools: Vec<_> = waiting.iter().map(|one| &one.tool.original).collect();
    Ok(response::json(&json!({ "server": name, "tools": tools, "approved": true })))
}

impl Gateway {
    pub(crate) fn status(&self, name: &str) -> Option<ServerStatus> {
        self.runtime.servers().into_iter().find(|server| server.name == name).map(without_stderr)
    }

    /// Waits until a server is ready, up to a limit.
    pub(crate) async fn wait_until_ready(&self, name: &str) {
        let _ = timeout(READY_TIMEOUT, self.runtime.wait_for_server(name)).await;
    }
}

/// Removes stderr output, which only the local user may see.
fn without_stderr(mut status: ServerStatus) -> ServerStatus {
    status.stderr.clear();
    status
}

fn no_server(name: &str) -> HttpError {
    HttpError::not_found(format!("there is no MCP server `{name}`")).hint("`GET /v1/servers` lists them all")
}
