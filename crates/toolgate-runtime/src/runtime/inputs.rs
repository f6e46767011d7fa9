//! The configured inputs of the catalog: own tools, settings, servers and APIs. They can be replaced at run time.
//!
//! Invariants: a server with an unchanged configuration keeps its connection, a running call finishes on the server it
//! started with, and the catalog is swapped atomically.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use toolgate_types::{ApiSpec, Caller, Profiles, ServerSpec, ToolDefinition, ToolSettings};
use toolgate_upstream::ServerState;
use toolgate_upstream::openapi::HttpApi;

use super::{ManagedServer, Runtime};
use crate::catalog::CatalogTool;

/// Configured inputs of the catalog.
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
    pub async fn replace(
        &self,
        own: Vec<Arc<ToolDefinition>>,
        settings: Vec<ToolSettings>,
        servers: Vec<ServerSpec>,
        apis: Vec<ApiSpec>,
    ) {
        let apis = self.reuse_or_load_apis(apis).await;
        let mut stopping = self.stopping.lock().await;
        let before = self.inputs.load_full();
        let reused =
            |spec: &ServerSpec| before.servers.iter().find(|managed| managed.server.spec() == spec).cloned();
        let managed = |spec: ServerSpec| {
            reused(&spec).unwrap_or_else(|| {
                Arc::new(ManagedServer::new(spec, self.message_limits, &self.logins, &self.features))
            })
        };
        let servers: Vec<_> = servers.into_iter().map(managed).collect();
        let is_kept =
            |removed: &Arc<ManagedServer>| servers.iter().any(|managed| Arc::ptr_eq(managed, removed));
        let removed: Vec<_> = before.servers.iter().filter(|managed| !is_kept(managed)).cloned().collect();
        self.inputs.store(Arc::new(Inputs::new(own, settings, servers, apis)));
        self.rebuild_while_running().await;
        self.scripts.retain_tools(self.inputs.load().own.iter().map(Arc::as_ref));
        self.drop_unused_states();
        self.replacements.send_modify(|times| *times += 1);
        self.version.send_modify(|version| *version += 1);
        while stopping.try_join_next().is_some() {}
        for managed in removed {
            stopping.spawn(async move { managed.server.stop().await });
        }
    }

    /// Profiles that the front ends show.
    pub fn profiles(&self) -> Arc<Profiles> {
        self.profiles.load_full()
    }

    /// Returns true if the tool is in a profile of the caller. A caller that is bound to profiles has only their tools,
    /// whatever front end it uses.
    pub(crate) fn is_in_profiles(&self, caller: &Caller, tool: &CatalogTool) -> bool {
        match self.profiles.load().bound_profiles(&caller.id) {
            None => true,
            Some(mut profiles) => profiles.any(|profile| tool.is_in_profile(profile)),
        }
    }

    /// Replaces the profiles.
    pub fn set_profiles(&self, profiles: Arc<Profiles>) {
        if *self.profiles.load_full() != *profiles {
            self.profiles.store(profiles);
            self.version.send_modify(|version| *version += 1);
        }
    }

    /// Reconnects to a server. Its tools disappear until it has listed them again. Returns false if there is no such
    /// server.
    pub async fn reconnect(&self, name: &str) -> bool {
        if let Some(api) = self.api(name) {
            self.reload_api(&api).await;
            return true;
        }
        let inputs = self.inputs.load_full();
        let Some(old) = inputs.server(name) else { return false };
        let mut stopping = self.stopping.lock().await;
        // The inputs may have been replaced while this waited for the lock.
        let inputs = self.inputs.load_full();
        let spec = old.server.spec().clone();
        let new = Arc::new(ManagedServer::new(spec, self.message_limits, &self.logins, &self.features));
        let renewed =
            |managed: &Arc<ManagedServer>| Arc::clone(if Arc::ptr_eq(managed, old) { &new } else { managed });
        let servers: Vec<_> = inputs.servers.iter().map(renewed).collect();
        if !servers.iter().any(|managed| Arc::ptr_eq(managed, &new)) {
            return inputs.server(name).is_some();
        }
        let (own, settings, apis) = (inputs.own.clone(), inputs.settings.clone(), inputs.apis.clone());
        self.inputs.store(Arc::new(Inputs::new(own, settings, servers, apis)));
        self.replacements.send_modify(|times| *times += 1);
        let old = Arc::clone(old);
        stopping.spawn(async move { old.server.stop().await });
        true
    }

    /// Waits until the offer of a server is in the catalog or the server is down. Returns at once if there is no such
    /// server. Requires [`Runtime::watch_servers`] to run.
    pub async fn wait_for_server(&self, name: &str) {
        let inputs = self.inputs.load_full();
        let Some(managed) = inputs.servers.iter().find(|managed| managed.server.spec().name.as_str() == name)
        else {
            return;
        };
        let (mut listed, mut states) = (managed.is_listed.subscribe(), managed.server.watch_state());
        tokio::select! {
            _ = listed.wait_for(|listed| *listed) => {}
            _ = states.wait_for(|state| matches!(state, ServerState::Down { .. })) => {}
        }
    }

    /// Drops the shared state of tools that are no longer in the catalog.
    fn drop_unused_states(&self) {
        let catalog = self.catalog();
        let listed: HashSet<_> = catalog.tools().map(|tool| (&tool.server, &tool.original)).collect();
        let mut tool_states = self.tool_states.lock();
        tool_states.retain(|(server, original, ..), _| listed.contains(&(server, original)));
    }
}
