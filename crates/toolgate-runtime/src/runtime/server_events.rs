//! Events of servers, and the log level that they log at.
//!
//! Invariant: nothing that a caller uses is here; [`Runtime::execute`] is the only path to tools, resources and prompts.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::broadcast;
use toolgate_types::{CallerId, ServerName};
use toolgate_upstream::offer::OfferKinds;
use toolgate_upstream::{PeerInfo, Requester, ResourceUpdate, ServerState};

use super::{ManagedServer, Runtime};

impl Runtime {
    /// Sets the log level of a caller on its connections to every server. The level of each client is applied where
    /// messages are sent to it.
    pub async fn set_log_level(&self, caller: &CallerId, session: Option<&str>, level: &str) {
        let inputs = self.sources.load_full();
        let requester = Requester { caller, session, client: None };
        join_all(inputs.servers.iter().map(|managed| managed.server.set_log_level(requester, level))).await;
    }

    /// Closes the connections to servers of a session that has ended, and forgets the answers to approvals that hold for it.
    pub fn end_session(&self, caller: &CallerId, session: &str) {
        self.access.session_approvals.forget(caller, session);
        for managed in &self.sources.load().servers {
            managed.server.end_session(caller, session);
        }
    }

    /// Updates of subscribed resources.
    pub fn resource_updates(&self) -> broadcast::Receiver<(ServerName, ResourceUpdate)> {
        self.sources.updates.subscribe()
    }

    /// Lists that servers reported as changed, after they were refreshed, even if nothing new was found, with the caller
    /// that they concern, if not all.
    pub fn list_changes(&self) -> broadcast::Receiver<(Option<CallerId>, OfferKinds)> {
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
