//! A configured server with its offer: the lists it offers, and its status.

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde::Serialize;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use toolgate_types::ServerSpec;
use toolgate_upstream::offer::{OfferKinds, ServerOffer, discover};
use toolgate_upstream::{Server, ServerState};

use super::ServerRequestError;
use super::sources::ServerOptions;
use crate::catalog::{Catalog, CatalogTool, ToolState};

/// A server with its offer, once that is known.
pub(super) struct ManagedServer {
    pub(super) server: Arc<Server>,
    pub(super) offer: ArcSwap<Option<ServerOffer>>,
    /// True once its offer is in the catalog.
    pub(super) is_listed: watch::Sender<bool>,
    /// Notified when a caller waits for a refresh, to skip the backoff.
    pub(super) refresh_now: Notify,
    /// Held during a refresh.
    pub(super) refreshing: tokio::sync::Mutex<()>,
}

/// A server in listings.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerStatus {
    pub name: String,
    pub transport: &'static str,
    /// `idle`, `connecting`, `ready` or `down`.
    pub state: &'static str,
    /// Reason for its state, if it is not ready.
    pub reason: Option<String>,
    /// Milliseconds until the next connection attempt, if it is down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u128>,
    /// Negotiated MCP revision.
    pub protocol_version: Option<&'static str>,
    /// Number of tools offered.
    pub tools: usize,
    /// Number of quarantined tools.
    pub held_back: usize,
    /// Name and version that the server reports.
    pub implementation: Option<String>,
    /// Last lines that its process wrote to stderr.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stderr: Vec<String>,
}

impl ManagedServer {
    pub(super) fn new(spec: ServerSpec, options: &ServerOptions) -> Self {
        let ServerOptions { message_limits, logins, features } = options;
        let server = Arc::new(Server::new(spec, *message_limits, logins, features.clone()));
        Self {
            server,
            offer: ArcSwap::from_pointee(None),
            is_listed: watch::Sender::new(false),
            refresh_now: Notify::new(),
            refreshing: tokio::sync::Mutex::default(),
        }
    }

    /// Requests the lists that may have changed. Returns those that did.
    pub(super) async fn refresh(&self, kinds: OfferKinds) -> Result<OfferKinds, ServerRequestError> {
        let spec = self.server.spec();
        let kinds = OfferKinds {
            tools: kinds.tools && spec.load_tools,
            prompts: kinds.prompts && spec.load_prompts,
            resources: kinds.resources,
        };
        let connection = self.server.connection().await?;
        let before = self.offer.load_full();
        let discovered =
            discover(&connection, kinds, before.as_ref().as_ref(), spec.request_timeout.get()).await;
        let mut offer = discovered
            .map_err(|why| ServerRequestError::Request { server: spec.name.to_string(), why })
            .inspect_err(|_| self.server.mark_stale(kinds))?;
        if let Some(allowed) = &spec.prompts {
            offer.prompts =
                offer.prompts.iter().filter(|prompt| allowed.contains(&prompt.id)).cloned().collect();
        }
        let changed = before.as_ref().as_ref().map_or(OfferKinds::ALL, |before| offer.changes_since(before));
        self.offer.store(Arc::new(Some(offer)));
        Ok(changed)
    }

    /// Status for listings, with the number of tools that the catalog quarantines.
    pub(super) fn status(&self, catalog: &Catalog) -> ServerStatus {
        let spec = self.server.spec();
        let state = self.server.state();
        let label = state.label();
        let (reason, next_try, connection) = match state {
            ServerState::Down { reason, hint, next_try, .. } => {
                let hint = hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
                (Some(format!("{reason}{hint}")), Some(next_try), None)
            }
            ServerState::Ready(connection) => (None, None, Some(connection)),
            ServerState::Idle | ServerState::Connecting => (None, None, None),
        };
        let wait = |next: Instant| next.saturating_duration_since(Instant::now()).as_millis();
        let is_quarantined = |tool: &&Arc<CatalogTool>| {
            tool.server.as_ref() == Some(&spec.name) && tool.state != ToolState::Ready
        };
        let peer = connection.as_ref().map(|connection| &connection.peer);
        ServerStatus {
            name: spec.name.to_string(),
            transport: spec.transport.label(),
            state: label,
            reason,
            retry_in_ms: next_try.map(wait),
            protocol_version: peer.map(|peer| peer.revision.name()),
            tools: self.offer.load().as_ref().as_ref().map_or(0, |offer| offer.tools.len()),
            held_back: catalog.tools().filter(is_quarantined).count(),
            implementation: peer.map(|peer| format!("{} {}", peer.name, peer.version).trim().to_owned()),
            stderr: connection.as_ref().map(|connection| connection.stderr_tail()).unwrap_or_default(),
        }
    }
}
