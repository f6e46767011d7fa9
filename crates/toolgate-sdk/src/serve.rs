//! Serves tools as an MCP server: over stdio, or over HTTP with the feature `http`.
//!
//! `toolgate_mcp::server` implements the protocol, in every revision from 2024-11-05 on; this module supplies the tools.
//! Invariant: a client that disconnects cancels its running calls.

#[cfg(feature = "http")]
mod http;

#[cfg(feature = "http")]
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use toolgate_mcp::scan::ScanLimits;
use toolgate_mcp::server::{
    ChangeSource, ClientRequest, LinkRequest, McpEndpoint, RequestExchange, RpcResult, ServiceCall,
    ServiceInfo, SessionKeys, adapt_result,
};
use toolgate_mcp::transport::lines;
use toolgate_mcp::{Link, RawJson, RpcError};
use toolgate_types::ToolContext as Context;
use toolgate_types::server::OutputEncoding;

#[cfg(feature = "http")]
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
    /// The program was built without HTTP.
    #[error(
        "`--http` needs the feature `http`\nhint: set `features = [\"http\"]` of toolgate-sdk in Cargo.toml"
    )]
    NoHttp,
    /// The HTTP server failed to start.
    #[cfg(feature = "http")]
    #[error(transparent)]
    Http(#[from] HttpError),
}

/// Serves tools as the command line says: over stdio by default, over HTTP with `--http ADDRESS` and the feature `http`.
/// HTTP clients must
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
        #[cfg(not(feature = "http"))]
        ["--http", ..] => Err(ServeError::NoHttp),
        #[cfg(feature = "http")]
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

#[cfg(feature = "http")]
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
    ToolServer::new(tools).serve_link(link).await;
}

/// MCP server of a set of tools. Clients are not distinguished: permissions are enforced by Toolgate, not here.
struct ToolServer {
    /// Decodes requests and encodes responses.
    endpoint: Arc<McpEndpoint>,
    tools: Arc<Tools>,
}

/// Id of every client.
static ANYONE: LazyLock<Arc<str>> = LazyLock::new(|| "anyone".into());

impl ToolServer {
    fn new(tools: Tools) -> Self {
        Self {
            endpoint: McpEndpoint::new(ScanLimits::default(), &SessionKeys::random()),
            tools: Arc::new(tools),
        }
    }

    async fn serve_link(&self, link: Link) {
        let mut session = self.endpoint.open_link(&ANYONE, link);
        while let Some(request) = session.next().await {
            match request {
                LinkRequest::Initialize(request) => {
                    session.initialize(request, self.describe(), no_changes().changes).await;
                }
                LinkRequest::Listen(request) => session.listen(request, async { no_changes() }),
                LinkRequest::Exchange(mut exchange) => {
                    self.answer(&mut exchange);
                    session.respond(exchange);
                }
                LinkRequest::Handled => {}
            }
        }
        session.end().await;
    }

    fn describe(&self) -> ServiceInfo {
        ServiceInfo {
            name: self.tools.name().to_owned(),
            version: self.tools.version().to_owned(),
            capabilities: json!({ "tools": {} }),
            instructions: self.tools.instructions_text().map(str::to_owned),
            is_gateway: false,
        }
    }

    /// Answers the call of an exchange, if it has one.
    fn answer(&self, exchange: &mut RequestExchange) {
        match exchange.take_call() {
            None => {}
            Some(ServiceCall::Discover) => {
                let info = self.describe();
                exchange.answer(Box::pin(async { Ok(info.discover_result()) }));
            }
            Some(ServiceCall::Subscribe(call)) => {
                let message = format!("there is no resource `{}`", call.uri());
                exchange.answer(Box::pin(async { Err(RpcError::new(RpcError::INVALID_PARAMS, message)) }));
            }
            Some(ServiceCall::Request(request)) => {
                exchange.answer(Box::pin(answer_request(Arc::clone(&self.tools), request)));
            }
        }
    }
}

/// The tools of a program are fixed at startup, and it has no resources.
fn no_changes() -> ChangeSource {
    ChangeSource { changes: futures_util::stream::pending().boxed(), subscriptions: Default::default() }
}

async fn answer_request(tools: Arc<Tools>, request: ClientRequest) -> RpcResult {
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
