//! `/stdio`: a `toolgate stdio` of the same project, which joins this gateway over the socket instead of starting the
//! servers again. After the upgrade, one message per line.
//!
//! Invariant: reachable through the socket of the project only. The user that can open it may act as any caller anyway,
//! because it can change the files.

use std::sync::Arc;

use http::StatusCode;
use http::header::{self, HeaderValue};
use serde::Deserialize;
use toolgate_http::server::OnUpgrade;
use toolgate_mcp::transport::lines;
use toolgate_types::Caller;
use toolgate_types::server::OutputEncoding;

use crate::auth::HttpError;
use crate::mcp_service::McpCaller;
use crate::response::{self, Response};
use crate::route::AdmittedRequest;
use crate::routes;

/// Name of the protocol after the upgrade.
const PROTOCOL: &str = "mcp-lines";

/// Caller and profile of the session.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StdioQuery {
    caller: String,
    #[serde(default)]
    profile: Option<String>,
}

pub(crate) async fn open(request: AdmittedRequest) -> Result<Response, HttpError> {
    if !request.auth.via_socket {
        return Err(routes::no_endpoint(&request.parts.method, &request.parts.uri));
    }
    let StdioQuery { caller: id, profile } = request.query()?;
    let AdmittedRequest { gateway, mut parts, .. } = request;
    let upgrade = parts.extensions.remove::<OnUpgrade>().ok_or_else(|| {
        let message = "this endpoint requires an upgrade of the connection";
        HttpError::new(StatusCode::UPGRADE_REQUIRED, "upgrade_required", message)
    })?;
    let owner = || (id == Caller::OWNER).then(|| gateway.authenticator.owner());
    let caller = gateway.authenticator.caller(&id).or_else(owner);
    let caller = caller.ok_or_else(|| {
        HttpError::not_found(format!("there is no caller `{id}`"))
            .hint("callers are defined in `callers` of toolgate.yaml")
    })?;
    let resolved =
        gateway.runtime.profiles().resolve(&caller.id, profile.as_deref()).map(|found| found.cloned());
    let named = resolved.map_err(|_| {
        let name = profile.as_deref().unwrap_or_default();
        HttpError::not_found(format!("there is no profile `{name}` for caller `{id}`"))
            .hint("`toolgate profiles list` shows them")
    })?;
    let named = named.filter(|_| profile.is_some()).map(|profile| profile.name.clone());
    let mcp_caller = McpCaller::new(&caller).with_profile(named).with_client_approvals();
    let serving = Arc::clone(&gateway);
    gateway.mcp.spawn_session(async move {
        let stream = tokio::select! {
            stream = upgrade.stream() => stream,
            () = serving.lifecycle.closing() => None,
        };
        let Some(stream) = stream else { return };
        let (reader, writer) = tokio::io::split(stream);
        let link = lines::open(reader, writer, OutputEncoding::Utf8, serving.mcp.message_limits);
        serving.mcp.serve_link(mcp_caller, link, None).await;
    })?;
    let mut response = response::empty(StatusCode::SWITCHING_PROTOCOLS);
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static(PROTOCOL));
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    Ok(response)
}
