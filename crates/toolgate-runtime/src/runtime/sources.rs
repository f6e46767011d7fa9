//! Sources of tools: own tools, servers and APIs, as configured now, with the connections behind them.
//!
//! Invariant: the inputs are immutable and swapped as a whole, so a call never sees half of a replacement.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use futures_util::future::join_all;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{MutexGuard, broadcast, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use toolgate_types::{ApiSpec, CallerId, ServerName, ServerSpec};
use toolgate_upstream::offer::OfferKinds;
use toolgate_upstream::openapi::{HttpApi, TextParser};
use toolgate_upstream::scan::ScanLimits as WireLimits;
use toolgate_upstream::{ClientFeatures, LoginOptions, ResourceUpdate, Server, ServerState};

use super::inputs::Inputs;
use super::managed_server::ManagedServer;

/// Notifications buffered for each subscriber. A slower subscriber misses the oldest ones.
const NOTIFICATION_BACKLOG: usize = 256;

/// Options of the connections to all servers.
pub(super) struct ServerOptions {
    pub(super) message_limits: WireLimits,
    /// Concurrent requests to one server over HTTP.
    pub(super) max_requests: usize,
    pub(super) logins: LoginOptions,
    pub(super) features: ClientFeatures,
}

/// The configured inputs of the catalog, and the notifications of their servers.
pub(crate) struct ToolSources {
    /// The parts of the configuration that can be exchanged while calls run.
    inputs: ArcSwap<Inputs>,
    /// Number of replacements so far.
    replacements: watch::Sender<u64>,
    /// Servers that are shutting down. Its lock serializes replacements.
    stopping: tokio::sync::Mutex<JoinSet<()>>,
    options: ServerOptions,
    read_document: TextParser,
    /// APIs whose document took too long at startup.
    pub(super) late_apis: parking_lot::Mutex<Vec<Arc<HttpApi>>>,
    /// Updates of subscribed resources.
    pub(super) updates: broadcast::Sender<(ServerName, ResourceUpdate)>,
    /// Lists that servers reported as changed, sent after they were refreshed, with the caller that they concern, if not
    /// all.
    pub(super) list_changes: broadcast::Sender<(Option<CallerId>, OfferKinds)>,
}

impl ToolSources {
    /// Creates an empty set of sources.
    pub(super) fn new(options: ServerOptions, read_document: TextParser) -> Self {
        Self {
            inputs: ArcSwap::default(),
            replacements: watch::Sender::new(0),
            stopping: tokio::sync::Mutex::default(),
            options,
            read_document,
            late_apis: parking_lot::Mutex::default(),
            updates: broadcast::Sender::new(NOTIFICATION_BACKLOG),
            list_changes: broadcast::Sender::new(NOTIFICATION_BACKLOG),
        }
    }

    pub(crate) fn logins(&self) -> &LoginOptions {
        &self.options.logins
    }

    pub(super) fn load(&self) -> Guard<Arc<Inputs>> {
        self.inputs.load()
    }

    pub(super) fn load_full(&self) -> Arc<Inputs> {
        self.inputs.load_full()
    }

    pub(super) fn store(&self, inputs: Inputs) {
        self.inputs.store(Arc::new(inputs));
    }

    /// Tells the watcher of the servers that there are others now.
    pub(super) fn mark_replaced(&self) {
        self.replacements.send_modify(|times| *times += 1);
    }

    pub(super) fn replacements(&self) -> watch::Receiver<u64> {
        self.replacements.subscribe()
    }

    pub(super) async fn lock_stopping(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.stopping.lock().await
    }

    /// Creates a server. It begins to connect if it starts eagerly.
    pub(super) fn new_server(&self, spec: ServerSpec) -> Arc<ManagedServer> {
        Arc::new(ManagedServer::new(spec, &self.options))
    }

    /// The options of connections, with others for logins and features.
    pub(super) fn test_options(&self, logins: LoginOptions, features: ClientFeatures) -> ServerOptions {
        let ServerOptions { message_limits, max_requests, .. } = self.options;
        ServerOptions { message_limits, max_requests, logins, features }
    }

    /// Creates an API, whose document is not loaded yet.
    pub(super) fn new_api(&self, spec: ApiSpec) -> Arc<HttpApi> {
        Arc::new(HttpApi::new(spec, self.options.message_limits, self.read_document))
    }

    pub(crate) fn server(&self, name: &str) -> Option<Arc<Server>> {
        self.inputs.load().server(name).map(|managed| Arc::clone(&managed.server))
    }

    pub(super) fn api(&self, name: &str) -> Option<Arc<HttpApi>> {
        self.inputs.load().apis.iter().find(|api| api.spec().name.as_str() == name).cloned()
    }

    /// Waits until the offer of a server is in the catalog or the server is down. Returns at once if there is no such
    /// server.
    pub(super) async fn wait_for_server(&self, name: &str) {
        let inputs = self.load_full();
        let Some(managed) = inputs.server(name) else { return };
        let (mut listed, mut states) = (managed.is_listed.subscribe(), managed.server.watch_state());
        tokio::select! {
            _ = listed.wait_for(|listed| *listed) => {}
            _ = states.wait_for(|state| matches!(state, ServerState::Down { .. })) => {}
        }
    }

    /// Waits, up to a timeout, until the catalog contains all changes that connected servers have reported.
    pub(super) async fn wait_for_refresh(&self, max_wait: Duration) {
        let inputs = self.load_full();
        let wait_for_server = async |managed: &Arc<ManagedServer>| {
            if !matches!(managed.server.state(), ServerState::Ready(_)) {
                return;
            }
            if managed.server.watch_stale().borrow().tools {
                managed.refresh_now.notify_one();
                managed.server.wait_until_tools_taken().await;
            }
            // A running refresh holds this lock.
            drop(managed.refreshing.lock().await);
        };
        let _ = timeout(max_wait, join_all(inputs.servers.iter().map(wait_for_server))).await;
    }

    /// Publishes the notifications of a server while it is configured.
    pub(super) async fn publish_notifications(&self, managed: &ManagedServer) {
        let (mut updates, mut list_changes) =
            (managed.server.resource_updates(), managed.server.list_changes());
        let server = &managed.server.spec().name;
        loop {
            // On lag, subscribers learn that they missed updates. Both channels close with the server.
            tokio::select! {
                update = updates.recv() => match update {
                    Ok(update) => drop(self.updates.send((server.clone(), update))),
                    Err(RecvError::Lagged(_)) => drop(self.updates.send((server.clone(), (None, None)))),
                    Err(RecvError::Closed) => return std::future::pending().await,
                },
                changed = list_changes.recv() => match changed {
                    Ok(kinds) => drop(self.list_changes.send(kinds)),
                    Err(RecvError::Lagged(_)) => drop(self.list_changes.send((None, OfferKinds::ALL))),
                    Err(RecvError::Closed) => return std::future::pending().await,
                },
            }
        }
    }

    /// Stops the configured servers, and waits for them to end.
    pub(super) async fn stop(&self) {
        let inputs = self.load_full();
        join_all(inputs.servers.iter().map(|managed| managed.server.stop())).await;
    }

    /// Waits until the servers that were removed have ended.
    pub(super) async fn join_stopping(&self) {
        while self.lock_stopping().await.join_next().await.is_some() {}
    }
}
