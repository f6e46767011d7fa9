//! Calls a tool of an MCP server. Takes only an `Input`, the proof that the policy and the schema were checked:
//!
//! ```compile_fail
//! # async fn f(server: &std::sync::Arc<toolgate_upstream::Server>, tool: &toolgate_upstream::invoke::RemoteTool, trace: &toolgate_upstream::TraceContext) {
//! let arguments = toolgate_json::RawJson::from_value(&"{}");
//! toolgate_upstream::invoke::invoke(server, tool, &arguments, &Default::default(), trace, std::time::Duration::MAX).await;
//! # }
//! ```

use std::sync::Arc;
use std::time::Duration;

use toolgate_mcp::mirror::{self, HeaderMirror};
use toolgate_mcp::{Forwarded, LinkError, Params, RawJson, RequestError, TraceContext};
use toolgate_policy::Input;

use crate::builtin::BuiltinError;
use crate::openapi::ApiError;
use crate::script::ScriptError;
use crate::server::{Server, ServerUnavailable, mask_secrets};

/// A tool, as its server knows it.
#[derive(Debug, Clone)]
pub struct RemoteTool {
    /// The name on the server.
    pub name: String,
    /// The arguments that are mirrored in HTTP headers.
    pub mirrors: Vec<HeaderMirror>,
}

/// The failure of a tool call, for all kinds of tools.
#[derive(Debug, thiserror::Error)]
pub enum InvokeError {
    /// The server is not available.
    #[error(transparent)]
    Unavailable(#[from] ServerUnavailable),
    /// A built-in tool failed.
    #[error(transparent)]
    Builtin(#[from] BuiltinError),
    /// A script failed.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// A call to an HTTP API failed.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The connection ended during the call.
    #[error("{0}")]
    Ended(String),
    /// The server did not answer, or answered with an error.
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// Calls a tool. Forwards the client's metadata and the trace context to the server.
///
/// # Errors
/// If the server is not available, or does not answer in time.
pub async fn invoke(
    server: &Arc<Server>,
    tool: &RemoteTool,
    input: &Input,
    along: &Forwarded,
    trace: &TraceContext,
    within: Duration,
) -> Result<RawJson, InvokeError> {
    let client_connection = server.client_connection(along.client.as_ref()).await?;
    let connection = &client_connection.connection;
    let arguments = input.arguments();
    let mirrored = match tool.mirrors.as_slice() {
        [] => Vec::new(),
        mirrors => mirror::mirror_headers(mirrors, &arguments.parse().unwrap_or_default()),
    };
    let params = Params::none()
        .with_text("name", &tool.name)
        .with_raw("arguments", arguments.clone())
        .with_mirror_headers(mirrored)
        .with_forwarded(along)
        .with_trace(trace);
    let within = along.extend_timeout(within);
    match connection.session.request_with_input("tools/call", params, within).await {
        Err(RequestError::Link(why @ LinkError::Closed)) => {
            let why = connection.describe_disconnect(&why).await;
            Err(InvokeError::Ended(mask_secrets(server.spec(), &why)))
        }
        answer => Ok(answer?),
    }
}
