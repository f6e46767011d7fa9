//! Two halves of the library, one behind the other: the simplest gateway that one can write on it, for benchmarks.
//!
//! Every call is read into the library's types, sent on by its client, and written anew. Nothing is decided, checked or
//! written down.

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorData, ListToolsResult, PaginatedRequestParams, ServerConfig,
};
use rmcp::service::{Peer, RequestContext, RoleClient, RoleServer, RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ServerHandler, ServiceExt};
use serde_json::json;

use crate::typed;

/// The half towards clients, with the other one in its hand.
#[derive(Clone)]
pub(crate) struct Chain(Peer<RoleClient>);

/// The half towards the server.
pub(crate) type Other = RunningService<RoleClient, ()>;

/// Connects to the server behind.
pub(crate) async fn connect(url: &str) -> Result<(Other, Chain), Box<dyn std::error::Error>> {
    let other = ().serve(StreamableHttpClientTransport::from_uri(url)).await?;
    let chain = Chain(other.peer().clone());
    Ok((other, chain))
}

fn broken(error: ServiceError) -> ErrorData {
    match error {
        ServiceError::McpError(error) => error,
        error => ErrorData::internal_error(error.to_string(), None),
    }
}

impl ServerHandler for Chain {
    fn get_info(&self) -> ServerConfig {
        typed(json!({
            "protocolVersion": "2026-07-28",
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "chain", "version": env!("CARGO_PKG_VERSION") },
        }))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.0.list_tools(request).await.map_err(broken)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.0.call_tool_once(request).await.map_err(broken)
    }
}
