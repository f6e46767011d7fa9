//! Forwards requests other than tool calls to servers: prompts, resources, completions, tasks, log levels.
//!
//! Invariant: no tool can be called from here; [`Runtime::call`] is the only path.

use std::sync::Arc;

use tokio::sync::broadcast;
use toolgate_types::ServerName;
use toolgate_upstream::offer::OfferKinds;
use toolgate_upstream::{
    Forwarded, Params, PeerInfo, RawJson, RequestError, ResourceSubscription, ServerState, ServerUnavailable,
    TraceContext,
};

use super::{ManagedServer, Runtime};

/// Reasons why a request to a server fails.
#[derive(Debug, thiserror::Error)]
pub enum ServerRequestError {
    #[error("there is no MCP server `{0}`")]
    NoServer(String),
    #[error("MCP server `{0}` is not approved; run `toolgate servers approve {0}` to review and approve it")]
    NotApproved(String),
    #[error(transparent)]
    Unavailable(#[from] ServerUnavailable),
    /// The server rejected a subscription.
    #[error("MCP server `{server}`: {why}")]
    Refused { server: String, why: String },
    #[error("MCP server `{server}`: {why}")]
    Request { server: String, why: RequestError },
}

/// Requests that [`Runtime::forward`] can send to a server. Tool calls are absent: [`Runtime::call`] is the only path
/// to a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    Prompt,
    Resource,
    Completion,
    LogLevel,
    TaskGet,
    TaskResult,
    TaskUpdate,
    TaskCancel,
}

impl RequestKind {
    fn method(self) -> &'static str {
        match self {
            Self::Prompt => "prompts/get",
            Self::Resource => "resources/read",
            Self::Completion => "completion/complete",
            Self::LogLevel => "logging/setLevel",
            Self::TaskGet => "tasks/get",
            Self::TaskResult => "tasks/result",
            Self::TaskUpdate => "tasks/update",
            Self::TaskCancel => "tasks/cancel",
        }
    }
}

impl Runtime {
    /// Sends a request to a server, within its request timeout.
    ///
    /// # Errors
    /// If the server is unknown, unavailable, not approved, or does not answer in time.
    pub async fn request(
        &self,
        server: &str,
        kind: RequestKind,
        params: Params,
    ) -> Result<RawJson, ServerRequestError> {
        self.forward(server, kind, params, (&Forwarded::default(), &TraceContext::generate())).await
    }

    /// Forwards a client's request, within the server's request timeout.
    ///
    /// # Errors
    /// If the server is unknown, unavailable, not approved, or does not answer in time.
    pub async fn forward(
        &self,
        server: &str,
        kind: RequestKind,
        params: Params,
        (forwarded, trace): (&Forwarded, &TraceContext),
    ) -> Result<RawJson, ServerRequestError> {
        let server =
            self.sources.server(server).ok_or_else(|| ServerRequestError::NoServer(server.to_owned()))?;
        let spec = server.spec();
        if !self.pins.is_approved(spec) {
            return Err(ServerRequestError::NotApproved(spec.name.to_string()));
        }
        let client = server.client_connection(forwarded.client.as_ref()).await?;
        let params = params.with_forwarded(forwarded).with_trace(trace);
        let timeout = forwarded.extend_timeout(spec.request_timeout.get());
        let outcome = client.connection.session.request_with_input(kind.method(), params, timeout).await;
        outcome.map_err(|why| ServerRequestError::Request { server: spec.name.to_string(), why })
    }

    /// Subscribes to updates of a resource, until the returned guard is dropped.
    ///
    /// # Errors
    /// If the server is unknown or rejects the subscription.
    pub async fn subscribe_resource(
        &self,
        server: &str,
        uri: &str,
    ) -> Result<ResourceSubscription, ServerRequestError> {
        let server =
            self.sources.server(server).ok_or_else(|| ServerRequestError::NoServer(server.to_owned()))?;
        let name = server.spec().name.to_string();
        server
            .subscribe_resource(uri)
            .await
            .map_err(|why| ServerRequestError::Refused { server: name, why: why.to_string() })
    }

    /// Updates of subscribed resources. `None` stands for updates that were missed.
    pub fn resource_updates(&self) -> broadcast::Receiver<(ServerName, Option<RawJson>)> {
        self.sources.updates.subscribe()
    }

    /// Lists that servers reported as changed, after they were refreshed, even if nothing new was found.
    pub fn list_changes(&self) -> broadcast::Receiver<OfferKinds> {
        self.sources.list_changes.subscribe()
    }

    /// Connected and approved servers with the details they sent at initialization, in configuration order.
    pub fn peers(&self) -> Vec<(ServerName, PeerInfo)> {
        let pins = self.pins.get();
        let inputs = self.sources.load();
        let peer = |managed: &Arc<ManagedServer>| {
            let spec = managed.server.spec();
            let ServerState::Ready(connection) = managed.server.state() else { return None };
            (spec.approved || pins.is_approved(&spec.name))
                .then(|| (spec.name.clone(), connection.peer.clone()))
        };
        inputs.servers.iter().filter_map(peer).collect()
    }
}
