//! Serves tools as an MCP server: over stdio or over HTTP.
//!
//! `toolgate_mcp::serve` implements the protocol, in every revision from 2024-11-05 on; this module supplies the tools.
//! Invariant: a client that disconnects cancels its running calls.

mod http;

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use toolgate_mcp::mirror::{HeaderMirror, find_mirrors};
use toolgate_mcp::scan::ScanLimits;
use toolgate_mcp::serve::{
    CallerIdentity, ClientRequest, McpEndpoint, RpcResult, Service, ServiceChange, ServiceInfo, Subscription,
    adapt_result,
};
use toolgate_mcp::transport::lines;
use toolgate_mcp::{RawJson, Revision, RpcError};
use toolgate_types::ToolContext as Context;
use toolgate_types::server::OutputEncoding;

pub use http::{HttpError, HttpServer};

use crate::mcp;
use crate::tool::now;
use crate::tools::Tools;

/// Environment variable with the token that HTTP clients must send.
pub const TOKEN_VARIABLE: &str = "TOOLGATE_SDK_TOKEN";

/// Reason why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Unknown command-line argument.
    #[error("unknown argument `{0}`\nhint: use no arguments for stdio, or `--http 127.0.0.1:7400`")]
    Argument(String),
    /// The HTTP server failed to start.
    #[error(transparent)]
    Http(#[from] HttpError),
}

/// Serves tools as the command line says: over stdio by default, over HTTP with `--http ADDRESS`. HTTP clients must
/// send the token in the environment variable `TOOLGATE_SDK_TOKEN`, if set. Returns when the stdio client disconnects;
/// over HTTP, never.
///
/// # Errors
/// If the command line has other arguments, or the address cannot be bound.
pub async fn serve(tools: Tools) -> Result<(), ServeError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            stdio(tools).await;
            Ok(())
        }
        ["--http", address] => {
            let address: SocketAddr =
                address.parse().map_err(|_| ServeError::Argument(address.to_owned()))?;
            let token = std::env::var(TOKEN_VARIABLE).ok();
            let http = HttpServer::bind(tools, address, token).await?;
            announce(http.address());
            http.run().await;
            Ok(())
        }
        [first, ..] => Err(ServeError::Argument(first.to_owned())),
    }
}

#[expect(clippy::print_stderr, reason = "shows the URL to the person who starts the server")]
fn announce(address: SocketAddr) {
    eprintln!("listening on http://{address}/mcp");
}

/// Serves one client over stdin and stdout, until it disconnects.
pub async fn stdio(tools: Tools) {
    serve_pipes(tools, tokio::io::stdin(), tokio::io::stdout()).await;
}

/// Serves one client over any pair of pipes, one message per line, until it disconnects.
pub async fn serve_pipes(
    tools: Tools,
    reader: impl AsyncRead + Send + Unpin + 'static,
    writer: impl AsyncWrite + Send + Unpin + 'static,
) {
    let link = lines::open(reader, writer, OutputEncoding::Utf8, ScanLimits::default());
    endpoint(tools).serve_link(AnonymousClient, link).await;
}

fn endpoint(tools: Tools) -> Arc<McpEndpoint<ToolService>> {
    McpEndpoint::new(Arc::new(ToolService(Arc::new(tools))), ScanLimits::default())
}

/// Clients are not distinguished: permissions are enforced by Toolgate, not here.
#[derive(Debug, Clone, Copy)]
struct AnonymousClient;

impl CallerIdentity for AnonymousClient {
    fn id(&self) -> &str {
        "anyone"
    }
}

/// MCP service backed by a set of tools.
struct ToolService(Arc<Tools>);

impl Service for ToolService {
    type Caller = AnonymousClient;

    fn describe(&self, _: &AnonymousClient, _: Revision) -> ServiceInfo {
        ServiceInfo {
            name: self.0.name().to_owned(),
            version: self.0.version().to_owned(),
            capabilities: json!({ "tools": {} }),
            instructions: self.0.instructions_text().map(str::to_owned),
        }
    }

    fn request(&self, _: &AnonymousClient, request: ClientRequest) -> BoxFuture<'static, RpcResult> {
        let tools = Arc::clone(&self.0);
        Box::pin(async move {
            let result = match &*request.method {
                "tools/list" => mcp::list_result(&tools),
                "tools/call" => call(&tools, &request).await?,
                method => {
                    let method: String = method.chars().take(64).collect();
                    let message = format!("there is no method `{method}`");
                    return Err(RpcError::new(RpcError::METHOD_NOT_FOUND, message));
                }
            };
            Ok(adapt_result(request.client.revision(), RawJson::from_value(&result)))
        })
    }

    fn changes(&self, _: &AnonymousClient) -> BoxStream<'static, ServiceChange> {
        // The tools of a program are fixed at startup.
        futures_util::stream::pending().boxed()
    }

    fn subscribe(
        &self,
        _: &AnonymousClient,
        uri: &str,
    ) -> BoxFuture<'static, Result<Subscription, RpcError>> {
        let error = RpcError::new(RpcError::INVALID_PARAMS, format!("there is no resource `{uri}`"));
        Box::pin(async { Err(error) })
    }

    fn mirrors(&self, _: &AnonymousClient, tool: &str) -> Vec<HeaderMirror> {
        let schema = self.0.get(tool).map(|tool| &tool.definition().input_schema);
        schema.and_then(|schema| find_mirrors(schema).ok()).unwrap_or_default()
    }
}

async fn call(tools: &Tools, request: &ClientRequest) -> Result<Value, RpcError> {
    let name: String = request.member("name")?;
    let arguments = request.raw_member("arguments").map(|arguments| arguments.parse::<Value>());
    let Ok(arguments) = arguments.unwrap_or_else(|| Ok(json!({}))) else {
        return Err(RpcError::new(RpcError::INVALID_PARAMS, "`arguments` is not valid JSON"));
    };
    let context = Context {
        user_id: None,
        session_id: request.session.as_deref().map(str::to_owned),
        correlation_id: request.trace.correlation_id().to_owned(),
        trace_id: request.trace.trace_id().to_owned(),
        agent_id: "mcp-client".to_owned(),
        agent_version: request.client.revision().to_string(),
        timestamp: now(),
        metadata: None,
    };
    match tools.call(&name, arguments, context).await {
        Some(result) => Ok(mcp::call_result(&result)),
        None => Err(RpcError::new(RpcError::INVALID_PARAMS, format!("there is no tool `{name}`"))),
    }
}
