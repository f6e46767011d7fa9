//! Minimal gateway built from the library's server and client, as a baseline for benchmarks.
//!
//! Every call is decoded into the library's types, sent on by its client, and encoded again. Nothing is decided,
//! checked or recorded.

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorData, ListToolsResult, PaginatedRequestParams, ServerConfig,
};
use rmcp::service::{Peer, RequestContext, RoleClient, RoleServer, RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ServerHandler, ServiceExt};
use serde_json::json;

use crate::from_wire;

/// Server half, which holds the client half.
#[derive(Clone)]
pub(crate) struct ChainHandler(Peer<RoleClient>);

/// Client half, connected to the upstream server.
pub(crate) type UpstreamClient = RunningService<RoleClient, ()>;

/// Connects to the upstream server.
pub(crate) async fn connect(url: &str) -> Result<(UpstreamClient, ChainHandler), Box<dyn std::error::Error>> {
    let client = ().serve(StreamableHttpClientTransport::from_uri(url)).await?;
    let handler = ChainHandler(client.peer().clone());
    Ok((client, handler))
}

fn to_error_data(error: ServiceError) -> ErrorData {
    match error {
        ServiceError::McpError(error) => error,
        error => ErrorData::internal_error(error.to_string(), None),
    }
}

impl ServerHandler for ChainHandler {
    fn get_info(&self) -> ServerConfig {
        from_wire(json!({
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
        self.0.list_tools(request).await.map_err(to_error_data)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.0.call_tool_once(request).await.map_err(to_error_data)
    }
}
