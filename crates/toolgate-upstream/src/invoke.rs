//! Sends the operations of callers to an MCP server: tool calls, resources, prompts, completions, tasks. Takes only an `Input`, the proof that the policy and the schema were checked:
//!
//! ```compile_fail
//! # async fn f(server: &std::sync::Arc<toolgate_upstream::Server>, tool: &toolgate_upstream::invoke::RemoteTool, trace: &toolgate_upstream::TraceContext) {
//! let arguments = toolgate_json::RawJson::from_value(&"{}");
//! toolgate_upstream::invoke::invoke(server, tool, &arguments, None, &Default::default(), trace).await;
//! # }
//! ```

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::timeout;
use toolgate_json::MemberName;
use toolgate_mcp::mirror::{self, HeaderMirror};
use toolgate_mcp::{
    DownstreamClient, Forwarded, LinkError, Params, RawJson, RequestError, Session, TraceContext,
};
use toolgate_policy::Input;

use crate::builtin::BuiltinError;
use crate::connect::{Connection, OutageKind};
use crate::openapi::ApiError;
use crate::script::ScriptError;
use crate::server::{Requester, Server, ServerUnavailable, error_chain, mask_secrets};

/// The time that a call waits for a login, once the client has opened its page. The link stays valid for longer.
const LOGIN_WAIT: Duration = Duration::from_secs(20);

/// A tool, as its server knows it.
#[derive(Debug, Clone)]
pub struct RemoteTool {
    /// The name on the server.
    pub name: MemberName,
    /// The arguments that are mirrored in HTTP headers.
    pub mirrors: Vec<HeaderMirror>,
}

/// A request to a server that is not a tool call.
#[derive(Debug, Clone)]
pub enum ServerRequest {
    /// Reads the resource in the argument `uri`.
    ReadResource,
    /// Gets a prompt, by its name on the server.
    GetPrompt { name: String },
    /// Completes an argument of a prompt or a resource template.
    Complete { reference: RawJson },
    /// Sends a request for a task.
    Task { method: TaskMethod, id: String },
    /// Lists the tools. Needs the credential of the caller, and changes nothing.
    ListTools,
}

/// Requests for a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskMethod {
    Get,
    Result,
    Update,
    Cancel,
}

impl ServerRequest {
    fn method(&self) -> &'static str {
        match self {
            Self::ReadResource => "resources/read",
            Self::GetPrompt { .. } => "prompts/get",
            Self::Complete { .. } => "completion/complete",
            Self::ListTools => "tools/list",
            Self::Task { method: TaskMethod::Get, .. } => "tasks/get",
            Self::Task { method: TaskMethod::Result, .. } => "tasks/result",
            Self::Task { method: TaskMethod::Update, .. } => "tasks/update",
            Self::Task { method: TaskMethod::Cancel, .. } => "tasks/cancel",
        }
    }

    fn params(&self, arguments: &RawJson) -> Params {
        match self {
            Self::ListTools => Params::none(),
            Self::ReadResource => Params::none().with_members(arguments),
            Self::GetPrompt { name } => {
                Params::none().with_text("name", name.as_str()).with_raw("arguments", arguments.clone())
            }
            Self::Complete { reference } => {
                Params::none().with_raw("ref", reference.clone()).with_members(arguments)
            }
            Self::Task { id, .. } => Params::none().with_text("taskId", id.as_str()),
        }
    }
}

/// The failure of an operation, for all kinds of tools.
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

/// Calls a tool. Forwards the client's metadata and the trace context to the server. Waits as long as its caller does:
/// dropping the future cancels the request. The caller of the input, and the session, own the connection.
///
/// # Errors
/// If the server is not available, or does not answer.
pub async fn invoke(
    server: &Arc<Server>,
    tool: &RemoteTool,
    input: &Input,
    session: Option<&str>,
    along: &Forwarded,
    trace: &TraceContext,
) -> Result<RawJson, InvokeError> {
    let requester = Requester { caller: input.caller(), session, client: along.client.as_ref() };
    let params = || {
        let arguments = input.arguments();
        let mirrored = match tool.mirrors.as_slice() {
            [] => Vec::new(),
            mirrors => mirror::mirror_headers(mirrors, &arguments.parse().unwrap_or_default()),
        };
        Params::none()
            .with_text("name", tool.name.clone())
            .with_raw("arguments", arguments.clone())
            .with_mirror_headers(mirrored)
            .with_forwarded(along)
            .with_trace(trace)
    };
    let error = match send_once(server, requester, "tools/call", params(), along).await {
        Err(InvokeError::Unavailable(error)) if needs_login(server, &error) => error,
        done => return done,
    };
    // Boxed, because this is rare: otherwise its size would be part of every call's future.
    Box::pin(send_after_login(server, requester, "tools/call", (params(), along), error)).await
}

/// Sends a request other than a tool call, with the same proof and in the same way.
///
/// # Errors
/// If the server is not available, or does not answer.
pub async fn request(
    server: &Arc<Server>,
    request: &ServerRequest,
    input: &Input,
    session: Option<&str>,
    along: &Forwarded,
    trace: &TraceContext,
) -> Result<RawJson, InvokeError> {
    let requester = Requester { caller: input.caller(), session, client: along.client.as_ref() };
    let params = || request.params(input.arguments()).with_forwarded(along).with_trace(trace);
    let error = match send_once(server, requester, request.method(), params(), along).await {
        Err(InvokeError::Unavailable(error)) if needs_login(server, &error) => error,
        done => return done,
    };
    Box::pin(send_after_login(server, requester, request.method(), (params(), along), error)).await
}

async fn send_once(
    server: &Arc<Server>,
    requester: Requester<'_>,
    method: &str,
    params: Params,
    along: &Forwarded,
) -> Result<RawJson, InvokeError> {
    let client_connection = server.client_connection(requester).await?;
    share_roots(&client_connection.connection, along).await;
    send(server, &client_connection.connection, method, params).await
}

/// Returns true if the caller has to log in first.
fn needs_login(server: &Server, error: &ServerUnavailable) -> bool {
    error.kind == OutageKind::Unauthorized && server.credentials().is_per_caller()
}

/// Offers the login where the caller is: its client opens the page, or the error contains the link. Sends the request
/// once more if the caller logs in meanwhile.
async fn send_after_login(
    server: &Arc<Server>,
    requester: Requester<'_>,
    method: &str,
    (params, along): (Params, &Forwarded),
    mut error: ServerUnavailable,
) -> Result<RawJson, InvokeError> {
    let credentials = server.credentials();
    let Some(link) = credentials.login_link(requester.caller) else { return Err(error.into()) };
    if let Some(client) = requester.client
        && offer_login(server, &**client, &link).await
    {
        server.note_login(requester.caller);
        return send_once(server, requester, method, params, along).await;
    }
    let (name, caller) = (credentials.server(), requester.caller);
    error.hint =
        Some(format!("log in at {link} , or run `toolgate servers login {name} --as {caller}`").into());
    Err(error.into())
}

/// Asks the client to open a login page, if it can; returns true once the caller has logged in.
async fn offer_login(server: &Server, client: &dyn DownstreamClient, link: &str) -> bool {
    let can_open = client.capabilities().get("elicitation").is_some_and(|it| it.get("url").is_some());
    let tickets = server.credentials().tickets();
    let (true, Some(mut done)) = (can_open, tickets.watch(link)) else { return false };
    let id = link.rsplit('/').next().unwrap_or_default();
    let message = format!("Log in to the server `{}`, so that it can be used as you.", server.spec().name);
    let params = serde_json::json!({ "mode": "url", "url": link, "elicitationId": id, "message": message });
    let answer = client.ask("elicitation/create", Some(RawJson::from_value(&params))).await;
    let action = answer.ok().and_then(|answer| answer.parse::<ElicitationAnswer>().ok());
    if action.is_none_or(|answer| answer.action != "accept") {
        return false;
    }
    // The client may answer as soon as the page is open.
    let is_done = timeout(LOGIN_WAIT, done.wait_for(|done| *done)).await.is_ok_and(|done| done.is_ok());
    // In the newest revision, the answer to the request comes after the login.
    if is_done && !client.accepts_input_requests() {
        let params = RawJson::from_value(&serde_json::json!({ "elicitationId": id }));
        client.notify("notifications/elicitation/complete", Some(&params));
    }
    is_done
}

/// Answer of a client to an elicitation.
#[derive(Deserialize)]
struct ElicitationAnswer {
    action: String,
}

/// Tells the server of the roots of the client, if it requests roots and does not know them.
async fn share_roots(connection: &Connection, along: &Forwarded) {
    if let Some(client) = &along.client
        && connection.peer.revision.has_handshake()
        && connection.roots().is_due(&**client)
    {
        // Boxed, because this is rare: otherwise its size would be part of every call's future.
        Box::pin(connection.roots().share(&connection.session, client)).await;
    }
}

async fn send(
    server: &Server,
    connection: &Connection,
    method: &str,
    params: Params,
) -> Result<RawJson, InvokeError> {
    match connection.session.request_with_input(method, params, Session::NO_TIMEOUT).await {
        Err(RequestError::Link(why @ LinkError::Closed)) => {
            let why = connection.describe_disconnect(&why).await;
            Err(InvokeError::Ended(mask_secrets(server.spec(), &why)))
        }
        Err(error @ RequestError::Link(LinkError::Unreachable(_))) => {
            server.check_health();
            Err(error.into())
        }
        Err(RequestError::Link(why @ (LinkError::LoginRequired(_) | LinkError::LoginFailed(_)))) => {
            let error = ServerUnavailable {
                server: server.spec().name.to_string(),
                reason: mask_secrets(server.spec(), &error_chain(&why)).into(),
                hint: None,
                kind: OutageKind::Unauthorized,
            };
            Err(error.into())
        }
        answer => Ok(answer?),
    }
}
