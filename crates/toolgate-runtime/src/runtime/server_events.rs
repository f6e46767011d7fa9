//! Events of servers, and the log level that they log at.
//!
//! Invariant: nothing that a caller uses is here; [`Runtime::execute`] is the only path to tools, resources and prompts.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::broadcast;
use toolgate_types::ServerName;
use toolgate_upstream::offer::OfferKinds;
use toolgate_upstream::{Params, PeerInfo, RawJson, ServerState};

use super::{ManagedServer, Runtime};

impl Runtime {
    /// Sets the log level of every server that logs. The level of each client is applied where messages are sent to it.
    pub async fn set_log_level(&self, level: &str) {
        let peers = self.peers();
        let logging =
            peers.iter().filter(|(_, peer)| peer.revision.has_handshake() && peer.has_capability("logging"));
        let servers = logging.filter_map(|(name, _)| self.sources.server(name.as_str()));
        let requests = servers.map(async |server| {
            let ServerState::Ready(connection) = server.state() else { return };
            let params = Params::none().with("level", &level);
            let timeout = server.spec().request_timeout.get();
            if let Err(error) = connection.session.request("logging/setLevel", params, timeout).await {
                tracing::debug!("MCP server '{}' rejected the log level: {error}", server.spec().name);
            }
        });
        join_all(requests).await;
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
