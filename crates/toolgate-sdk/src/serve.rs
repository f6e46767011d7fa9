//! A set of tools as an MCP server: over stdio, and over HTTP.
//!
//! The protocol is that of `toolgate_mcp::serve`, in every revision from 2024-11-05 on; this module says what the
//! tools are and how a call goes. Invariant: whoever leaves cancels what he was waiting for.

mod http;

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use toolgate_mcp::mirror::{Mirror, mirrors};
use toolgate_mcp::scan::Limits;
use toolgate_mcp::serve::{
    About, Change, Endpoint, Guest, Outcome, Request, Service, Subscription, in_words_of,
};
use toolgate_mcp::transport::lines;
use toolgate_mcp::{Raw, Revision, RpcError};
use toolgate_types::ToolContext as Context;
use toolgate_types::server::Encoding;

pub use http::{Http, HttpError};

use crate::mcp;
use crate::tool::now;
use crate::tools::Tools;

/// Where the token stands that clients over HTTP have to know.
pub const TOKEN: &str = "TOOLGATE_SDK_TOKEN";

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The command line says something else.
    #[error("unknown argument `{0}`\nhint: nothing for stdio, or `--http 127.0.0.1:7400`")]
    Argument(String),
    /// HTTP cannot be served.
    #[error(transparent)]
    Http(#[from] HttpError),
}

/// Serves tools as the command line says: over stdio, or with `--http ADDRESS` over HTTP, where clients have to
/// know the token in the variable `TOOLGATE_SDK_TOKEN`, if there is one. Ends when the client leaves; over HTTP, never.
///
/// # Errors
/// When the command line says something else, or the address cannot be had.
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
            let token = std::env::var(TOKEN).ok();
            let http = Http::bind(tools, address, token).await?;
            say(http.address());
            http.run().await;
            Ok(())
        }
        [first, ..] => Err(ServeError::Argument(first.to_owned())),
    }
}

#[expect(clippy::print_stderr, reason = "whoever starts a server wants to know where it is")]
fn say(address: SocketAddr) {
    eprintln!("http://{address}/mcp is open");
}

/// Serves one client over stdin and stdout, until it leaves.
pub async fn stdio(tools: Tools) {
    converse(tools, tokio::io::stdin(), tokio::io::stdout()).await;
}

/// Serves one client over any pair of pipes, a message in each line, until it leaves.
pub async fn converse(
    tools: Tools,
    reader: impl AsyncRead + Send + Unpin + 'static,
    writer: impl AsyncWrite + Send + Unpin + 'static,
) {
    let link = lines::open(reader, writer, Encoding::Utf8, Limits::default());
    endpoint(tools).converse(Anyone, link).await;
}

fn endpoint(tools: Tools) -> Arc<Endpoint<Served>> {
    Endpoint::new(Arc::new(Served(Arc::new(tools))), Limits::default())
}

/// Clients are not told apart: who may do what is decided by Toolgate, or by nobody.
#[derive(Debug, Clone, Copy)]
struct Anyone;

impl Guest for Anyone {
    fn id(&self) -> &str {
        "anyone"
    }
}

/// Tools that are served.
struct Served(Arc<Tools>);

impl Service for Served {
    type Guest = Anyone;

    fn about(&self, _: &Anyone, _: Revision) -> About {
        About {
            name: self.0.name().to_owned(),
            version: self.0.version().to_owned(),
            capabilities: json!({ "tools": {} }),
            instructions: self.0.told().map(str::to_owned),
        }
    }

    fn request(&self, _: &Anyone, request: Request) -> BoxFuture<'static, Outcome> {
        let tools = Arc::clone(&self.0);
        Box::pin(async move {
            let result = match &*request.method {
                "tools/list" => mcp::list(&tools),
                "tools/call" => call(&tools, &request).await?,
                method => {
                    let method: String = method.chars().take(64).collect();
                    let message = format!("there is no method `{method}`");
                    return Err(RpcError::new(RpcError::METHOD_NOT_FOUND, message));
                }
            };
            Ok(in_words_of(request.client.revision(), Raw::of(&result)))
        })
    }

    fn changes(&self, _: &Anyone) -> BoxStream<'static, Change> {
        // The tools of a program are those it was built with.
        futures_util::stream::pending().boxed()
    }

    fn subscribe(&self, _: &Anyone, uri: &str) -> BoxFuture<'static, Result<Subscription, RpcError>> {
        let error = RpcError::new(RpcError::INVALID_PARAMS, format!("there is no resource `{uri}`"));
        Box::pin(async { Err(error) })
    }

    fn mirrors(&self, _: &Anyone, tool: &str) -> Vec<Mirror> {
        let schema = self.0.get(tool).map(|tool| &tool.definition().input_schema);
        schema.and_then(|schema| mirrors(schema).ok()).unwrap_or_default()
    }
}

async fn call(tools: &Tools, request: &Request) -> Result<Value, RpcError> {
    let name: String = request.member("name")?;
    let arguments = request.raw_member("arguments").map(|arguments| arguments.parse::<Value>());
    let Ok(arguments) = arguments.unwrap_or_else(|| Ok(json!({}))) else {
        return Err(RpcError::new(RpcError::INVALID_PARAMS, "`arguments` cannot be read"));
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
        Some(result) => Ok(mcp::result(&result)),
        None => Err(RpcError::new(RpcError::INVALID_PARAMS, format!("there is no tool `{name}`"))),
    }
}
