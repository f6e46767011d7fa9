//! The way to a tool of a server. Only what was decided on and checked goes this way:
//!
//! ```compile_fail
//! # async fn f(server: &std::sync::Arc<toolgate_upstream::Server>, tool: &toolgate_upstream::invoke::Address, trace: &toolgate_upstream::Trace) {
//! let arguments = toolgate_types::json::Raw::of(&"{}");
//! toolgate_upstream::invoke::invoke(server, tool, &arguments, &Default::default(), trace, std::time::Duration::MAX).await;
//! # }
//! ```

use std::sync::Arc;
use std::time::Duration;

use toolgate_mcp::mirror::{self, Mirror};
use toolgate_mcp::{Along, LinkError, Params, Raw, RequestError, Trace};
use toolgate_policy::Input;

use crate::builtin::Fault;
use crate::openapi::ApiError;
use crate::script::ScriptError;
use crate::server::{Server, Unavailable};

/// A tool on its server.
#[derive(Debug, Clone)]
pub struct Address {
    /// Its name there.
    pub name: String,
    /// The arguments that are mirrored in headers.
    pub mirrors: Vec<Mirror>,
}

/// Why a tool could not be invoked, or gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum InvokeError {
    /// Its server is not there.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// It is ours, and failed.
    #[error(transparent)]
    Builtin(#[from] Fault),
    /// It is a program of one's own, and gave nothing.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// It is an operation of an API, and gave nothing.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// Its server ended in the middle of it.
    #[error("{0}")]
    Ended(String),
    /// Its server did not answer, or not with a result.
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// Calls a tool with what was decided on, and with what its client brings along. The server is told of the trace.
///
/// # Errors
/// When its server is not there, or does not answer in time.
pub async fn invoke(
    server: &Arc<Server>,
    tool: &Address,
    input: &Input,
    along: &Along,
    trace: &Trace,
    within: Duration,
) -> Result<Raw, InvokeError> {
    let lane = server.lane(along.client.as_ref()).await?;
    let connection = &lane.connection;
    let arguments = input.arguments();
    let mirrored = match tool.mirrors.as_slice() {
        [] => Vec::new(),
        mirrors => mirror::headers(mirrors, &arguments.parse().unwrap_or_default()),
    };
    let params = Params::none()
        .with_text("name", &tool.name)
        .with_raw("arguments", arguments.clone())
        .mirroring(mirrored)
        .along(along)
        .traced(trace);
    let within = along.within(within);
    match connection.session.ask("tools/call", params, within).await {
        Err(RequestError::Link(why @ LinkError::Closed)) => {
            Err(InvokeError::Ended(connection.obituary(&why).await))
        }
        answer => Ok(answer?),
    }
}
