//! Forwards requests other than tool calls to servers: prompts, resources, completions, tasks, log levels.
//!
//! Invariant: no tool can be called from here; [`Runtime::call`] is the only path.

use std::sync::Arc;

use tokio::sync::broadcast::{self, error::RecvError};
use toolgate_types::ServerName;
use toolgate_upstream::offer::OfferKinds;
use toolgate_upstream::{
    Forwarded, Params, PeerInfo, RawJson, ResourceSubscription, ServerState, TraceContext,
};

use super::{ManagedServer, RequestKind, Runtime, ServerRequestError};

impl Runtime {
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
        let server = self.server(server).ok_or_else(|| ServerRequestError::NoServer(server.to_owned()))?;
        let spec = server.spec();
        if !spec.approved && !self.pins().is_approved(&spec.name) {
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
        let server = self.server(server).ok_or_else(|| ServerRequestError::NoServer(server.to_owned()))?;
        let name = server.spec().name.to_string();
        server
            .subscribe_resource(uri)
            .await
            .map_err(|why| ServerRequestError::Refused { server: name, why: why.to_string() })
    }

    /// Updates of subscribed resources. `None` stands for updates that were missed.
    pub fn resource_updates(&self) -> broadcast::Receiver<(ServerName, Option<RawJson>)> {
        self.updates.subscribe()
    }

    /// Lists that servers reported as changed, after they were refreshed, even if nothing new was found.
    pub fn list_changes(&self) -> broadcast::Receiver<OfferKinds> {
        self.list_changes.subscribe()
    }

    /// Connected and approved servers with the details they sent at initialization, in configuration order.
    pub fn peers(&self) -> Vec<(ServerName, PeerInfo)> {
        let pins = self.pins();
        let inputs = self.inputs.load();
        let peer = |managed: &Arc<ManagedServer>| {
            let spec = managed.server.spec();
            let ServerState::Ready(connection) = managed.server.state() else { return None };
            (spec.approved || pins.is_approved(&spec.name))
                .then(|| (spec.name.clone(), connection.peer.clone()))
        };
        inputs.servers.iter().filter_map(peer).collect()
    }

    /// Publishes the notifications of a server while it is configured.
    pub(super) async fn publish_notifications(&self, managed: &ManagedServer) {
        let (mut updates, mut list_changes) =
            (managed.server.resource_updates(), managed.server.list_changes());
        let server = &managed.server.spec().name;
        loop {
            // On lag, subscribers are told that updates were missed. Both channels close with the server.
            tokio::select! {
                update = updates.recv() => match update {
                    Ok(params) => drop(self.updates.send((server.clone(), Some(params)))),
                    Err(RecvError::Lagged(_)) => drop(self.updates.send((server.clone(), None))),
                    Err(RecvError::Closed) => return std::future::pending().await,
                },
                changed = list_changes.recv() => match changed {
                    Ok(kinds) => drop(self.list_changes.send(kinds)),
                    Err(RecvError::Lagged(_)) => drop(self.list_changes.send(OfferKinds::ALL)),
                    Err(RecvError::Closed) => return std::future::pending().await,
                },
            }
        }
    }
}
