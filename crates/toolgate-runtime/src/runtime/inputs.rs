//! The configured inputs of the catalog: own tools, settings, servers and APIs. They can be replaced at run time.
//!
//! Invariants: a server with an unchanged configuration keeps its connection, a running call finishes on the server it
//! started with, and the catalog is swapped atomically.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use toolgate_types::{ApiSpec, ServerSpec, ToolDefinition, ToolSettings};
use toolgate_upstream::openapi::HttpApi;

use super::{ManagedServer, Runtime};

/// Configured inputs of the catalog.
#[derive(Default)]
pub(super) struct Inputs {
    pub(super) own: Vec<Arc<ToolDefinition>>,
    pub(super) settings: Vec<ToolSettings>,
    pub(super) servers: Vec<Arc<ManagedServer>>,
    pub(super) apis: Vec<Arc<HttpApi>>,
    /// The same servers by name, for the lookup in every call.
    by_name: HashMap<Box<str>, Arc<ManagedServer>>,
}

impl Inputs {
    pub(super) fn new(
        own: Vec<Arc<ToolDefinition>>,
        settings: Vec<ToolSettings>,
        servers: Vec<Arc<ManagedServer>>,
        apis: Vec<Arc<HttpApi>>,
    ) -> Self {
        let named =
            |managed: &Arc<ManagedServer>| (managed.server.spec().name.as_str().into(), Arc::clone(managed));
        let by_name = servers.iter().map(named).collect();
        Self { own, settings, servers, apis, by_name }
    }

    pub(super) fn server(&self, name: &str) -> Option<&Arc<ManagedServer>> {
        self.by_name.get(name)
    }
}

impl Runtime {
    /// Replaces own tools, settings, servers and APIs. When this returns, the catalog has all tools known so far. New
    /// servers connect in the background if [`Runtime::watch_servers`] runs. Removed servers stop in the background.
    pub fn replace(
        &self,
        own: Vec<Arc<ToolDefinition>>,
        settings: Vec<ToolSettings>,
        servers: Vec<ServerSpec>,
        apis: Vec<ApiSpec>,
    ) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let apis = self.reuse_or_load_apis(apis).await;
            let mut stopping = self.sources.lock_stopping().await;
            let before = self.sources.load_full();
            let reused = |spec: &ServerSpec| {
                before.servers.iter().find(|managed| managed.server.spec() == spec).cloned()
            };
            let managed = |spec: ServerSpec| reused(&spec).unwrap_or_else(|| self.sources.new_server(spec));
            let servers: Vec<_> = servers.into_iter().map(managed).collect();
            let is_kept =
                |removed: &Arc<ManagedServer>| servers.iter().any(|managed| Arc::ptr_eq(managed, removed));
            let removed: Vec<_> =
                before.servers.iter().filter(|managed| !is_kept(managed)).cloned().collect();
            self.sources.store(Inputs::new(own, settings, servers, apis));
            self.rebuild_while_running().await;
            self.scripts.retain_tools(self.sources.load().own.iter().map(Arc::as_ref));
            self.tool_states.retain_listed(&self.catalog());
            self.sources.mark_replaced();
            self.catalog.mark_changed();
            while stopping.try_join_next().is_some() {}
            for managed in removed {
                stopping.spawn(async move { managed.server.stop().await });
            }
        })
    }

    /// Reconnects to a server. Its tools disappear until it has listed them again. Returns false if there is no such
    /// server.
    pub fn reconnect<'a>(&'a self, name: &'a str) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            if let Some(api) = self.sources.api(name) {
                self.reload_api(&api).await;
                return true;
            }
            let inputs = self.sources.load_full();
            let Some(old) = inputs.server(name) else { return false };
            let mut stopping = self.sources.lock_stopping().await;
            // The inputs may have been replaced while this waited for the lock.
            let inputs = self.sources.load_full();
            let spec = old.server.spec().clone();
            let new = self.sources.new_server(spec);
            let renewed = |managed: &Arc<ManagedServer>| {
                Arc::clone(if Arc::ptr_eq(managed, old) { &new } else { managed })
            };
            let servers: Vec<_> = inputs.servers.iter().map(renewed).collect();
            if !servers.iter().any(|managed| Arc::ptr_eq(managed, &new)) {
                return inputs.server(name).is_some();
            }
            let (own, settings, apis) = (inputs.own.clone(), inputs.settings.clone(), inputs.apis.clone());
            self.sources.store(Inputs::new(own, settings, servers, apis));
            self.sources.mark_replaced();
            let old = Arc::clone(old);
            stopping.spawn(async move { old.server.stop().await });
            true
        })
    }

    /// Waits until the offer of a server is in the catalog or the server is down. Returns at once if there is no such
    /// server. Requires [`Runtime::watch_servers`] to run.
    pub async fn wait_for_server(&self, name: &str) {
        self.sources.wait_for_server(name).await;
    }
}
