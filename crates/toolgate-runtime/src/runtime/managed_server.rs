//! A configured server with its offer: the lists it offers, and its status.

use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use toolgate_types::ServerSpec;
use toolgate_upstream::connect::ConnectionLimits;
use toolgate_upstream::offer::{OfferKinds, ServerOffer, discover};
use toolgate_upstream::{
    Forwarded, RequestError, Server, ServerHistory, ServerOutage, ServerState, ServerUnavailable,
};

use super::client_lists::ClientLists;
use super::sources::ServerOptions;
use crate::catalog::{Catalog, CatalogTool, ToolState};

/// Reasons why the lists of a server cannot be requested.
#[derive(Debug, thiserror::Error)]
pub(super) enum RefreshError {
    #[error(transparent)]
    Unavailable(#[from] ServerUnavailable),
    #[error("MCP server `{server}`: {why}")]
    Request { server: String, why: RequestError },
}

/// A server with its offer, once that is known.
pub(super) struct ManagedServer {
    pub(super) server: Arc<Server>,
    pub(super) offer: ArcSwap<Option<ServerOffer>>,
    /// True once its offer is in the catalog.
    pub(super) is_listed: watch::Sender<bool>,
    /// Notified when a caller waits for a refresh, to skip the backoff.
    pub(super) refresh_now: Notify,
    /// Held during a refresh of the tools.
    pub(super) refreshing: tokio::sync::Mutex<()>,
    /// Lists that were read for clients.
    pub(super) client_lists: ClientLists,
    /// Held while the offer is updated.
    updating: parking_lot::Mutex<()>,
}

/// Marks kinds as stale again when dropped.
struct StaleGuard<'a> {
    server: &'a Server,
    kinds: OfferKinds,
}

impl Drop for StaleGuard<'_> {
    fn drop(&mut self) {
        if !self.kinds.is_empty() {
            self.server.mark_stale(self.kinds);
        }
    }
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
    /// Number of open connections: one that the lists are read from, and those of callers. For a program, each is a
    /// process.
    pub connections: usize,
    /// Number of tools offered.
    pub tools: usize,
    /// Number of quarantined tools.
    pub held_back: usize,
    /// Name and version that the server reports.
    pub implementation: Option<String>,
    /// Number of prompts, resources and resource templates offered.
    pub prompts: usize,
    pub resources: usize,
    pub templates: usize,
    /// True if its annotations are trusted.
    pub trusted: bool,
    /// Time of the last change between ready and not ready. `None` for an API.
    pub since: Option<String>,
    /// Connections after the first one.
    pub restarts: u64,
    /// Newest first.
    pub last_errors: Vec<ServerError>,
    /// `None` if it needs no login that is known.
    pub login: Option<LoginStatus>,
    /// Last lines that its process wrote to stderr.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stderr: Vec<String>,
}

/// An outage of a server in listings.
#[derive(Debug, Clone, Serialize)]
pub struct ServerError {
    pub at: String,
    pub reason: String,
}

/// The login of a server in listings.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct LoginStatus {
    /// `gateway`: one login for all callers. `caller`: each has its own.
    pub of: &'static str,
    /// True if the connection that lists are read from needs one now.
    pub needed: bool,
}

fn time_text(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or_default();
    time.strftime("%FT%TZ").to_string()
}

impl ManagedServer {
    pub(super) fn new(spec: ServerSpec, options: &ServerOptions) -> Self {
        let ServerOptions { message_limits, max_requests, logins, features } = options;
        let limits = ConnectionLimits { messages: *message_limits, max_requests: *max_requests };
        let server = Arc::new(Server::new(spec, limits, logins, features.clone()));
        Self {
            server,
            offer: ArcSwap::from_pointee(None),
            is_listed: watch::Sender::new(false),
            refresh_now: Notify::new(),
            refreshing: tokio::sync::Mutex::default(),
            client_lists: ClientLists::default(),
            updating: parking_lot::Mutex::default(),
        }
    }

    /// Requests the lists of these kinds. Returns those that changed. If the lists cannot be requested, or the future is
    /// dropped before, the kinds stay stale.
    pub(super) async fn refresh(&self, kinds: OfferKinds) -> Result<OfferKinds, RefreshError> {
        let spec = self.server.spec();
        let kinds = self.listed_kinds(kinds);
        let mut guard = StaleGuard { server: &self.server, kinds };
        let connection = self.server.connection().await?;
        let discovered =
            discover(&connection, kinds, &Forwarded::default(), spec.request_timeout.get()).await;
        let newer = discovered.map_err(|why| RefreshError::Request { server: spec.name.to_string(), why })?;
        guard.kinds = OfferKinds::default();
        let newer = self.with_allowed_prompts(newer);
        // Lists of other kinds may have been stored meanwhile.
        let _updating = self.updating.lock();
        let before = self.offer.load_full();
        let mut offer = before.as_ref().clone().unwrap_or_default();
        offer.update(newer, kinds);
        let changed = before.as_ref().as_ref().map_or(kinds, |before| offer.changes_since(before));
        self.offer.store(Arc::new(Some(offer)));
        Ok(changed)
    }

    /// Those of the kinds that are loaded from the server.
    pub(super) fn listed_kinds(&self, kinds: OfferKinds) -> OfferKinds {
        let spec = self.server.spec();
        OfferKinds {
            tools: kinds.tools && spec.load_tools,
            prompts: kinds.prompts && spec.load_prompts,
            resources: kinds.resources,
        }
    }

    /// Removes the prompts that the configuration does not allow.
    pub(super) fn with_allowed_prompts(&self, mut offer: ServerOffer) -> ServerOffer {
        if let Some(allowed) = &self.server.spec().prompts {
            offer.prompts =
                offer.prompts.iter().filter(|prompt| allowed.contains(&prompt.id)).cloned().collect();
        }
        offer
    }

    /// Sets the offer of a server that is not connected yet. A newer one stays.
    pub(super) fn restore(&self, offer: ServerOffer) {
        let _updating = self.updating.lock();
        if self.offer.load().is_none() {
            self.offer.store(Arc::new(Some(offer)));
        }
        self.is_listed.send_replace(true);
    }

    /// Returns true if its tools may still come: it is connecting, or has not listed them yet.
    pub(super) fn is_awaited(&self) -> bool {
        !*self.is_listed.borrow()
            && matches!(self.server.state(), ServerState::Connecting | ServerState::Ready(_))
    }

    /// Status for listings, with the number of tools that the catalog quarantines.
    pub(super) fn status(&self, catalog: &Catalog) -> ServerStatus {
        let spec = self.server.spec();
        let state = self.server.state();
        let label = state.label();
        let needs_login = matches!(state, ServerState::Down { login: true, .. });
        let is_per_caller = self.server.credentials().is_per_caller();
        let login = (is_per_caller || needs_login).then_some(LoginStatus {
            of: if is_per_caller { "caller" } else { "gateway" },
            needed: needs_login,
        });
        let ServerHistory { since, restarts, last_errors, .. } = self.server.history();
        let error = |ServerOutage { at, reason }: ServerOutage| ServerError {
            at: time_text(at),
            reason: reason.to_string(),
        };
        let offer = self.offer.load();
        let offered = |count: fn(&ServerOffer) -> usize| offer.as_ref().as_ref().map_or(0, count);
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
            connections: self.server.open_connections(),
            tools: offered(|offer| offer.tools.len()),
            prompts: offered(|offer| offer.prompts.len()),
            resources: offered(|offer| offer.resources.len()),
            templates: offered(|offer| offer.templates.len()),
            trusted: spec.trusted,
            since: Some(time_text(since)),
            restarts,
            last_errors: last_errors.into_iter().map(error).collect(),
            login,
            held_back: catalog.tools().filter(is_quarantined).count(),
            implementation: peer.map(|peer| format!("{} {}", peer.name, peer.version).trim().to_owned()),
            stderr: connection.as_ref().map(|connection| connection.stderr_tail()).unwrap_or_default(),
        }
    }
}
