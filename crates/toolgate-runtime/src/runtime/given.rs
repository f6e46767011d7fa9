//! What the configuration gives: own tools, settings, servers. Replaced while the runtime is in use.
//!
//! Invariant: a server whose description is the same stays the same one, connection and all; a call that has begun
//! ends as it began; and the catalog is swapped in one step.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};

use toolgate_types::{ApiSpec, Caller, Profiles, ServerSpec, ToolDefinition, ToolSettings};
use toolgate_upstream::State;
use toolgate_upstream::openapi::Api;

use super::{Live, Runtime};
use crate::catalog::CatalogTool;

/// What a catalog is made of, beside what servers say.
pub(super) struct Given {
    pub(super) own: Vec<Arc<ToolDefinition>>,
    pub(super) settings: Vec<ToolSettings>,
    pub(super) servers: Vec<Arc<Live>>,
    pub(super) apis: Vec<Arc<Api>>,
    /// The same servers, for every call that looks for its own.
    by_name: HashMap<Box<str>, Arc<Live>>,
}

impl Given {
    pub(super) fn new(
        own: Vec<Arc<ToolDefinition>>,
        settings: Vec<ToolSettings>,
        servers: Vec<Arc<Live>>,
        apis: Vec<Arc<Api>>,
    ) -> Self {
        let named = |live: &Arc<Live>| (live.server.spec().name.as_str().into(), Arc::clone(live));
        let by_name = servers.iter().map(named).collect();
        Self { own, settings, servers, apis, by_name }
    }

    pub(super) fn server(&self, name: &str) -> Option<&Arc<Live>> {
        self.by_name.get(name)
    }
}

impl Runtime {
    /// Takes other own tools, settings, servers and APIs from now on. The tools that are known are in use when this
    /// returns. New servers connect by themselves, and their tools follow as long as [`Runtime::keep`] runs;
    /// servers that are gone are stopped, and nobody waits for that.
    pub async fn replace(
        &self,
        own: Vec<Arc<ToolDefinition>>,
        settings: Vec<ToolSettings>,
        servers: Vec<ServerSpec>,
        apis: Vec<ApiSpec>,
    ) {
        let apis = self.taken_over(apis).await;
        let mut leaving = self.leaving.lock().await;
        let before = self.given.load_full();
        let kept = |spec: &ServerSpec| before.servers.iter().find(|live| live.server.spec() == spec).cloned();
        let live = |spec: ServerSpec| {
            kept(&spec).unwrap_or_else(|| Arc::new(Live::new(spec, self.wire, &self.logins, &self.questions)))
        };
        let servers: Vec<_> = servers.into_iter().map(live).collect();
        let stays = |gone: &Arc<Live>| servers.iter().any(|live| Arc::ptr_eq(live, gone));
        let gone: Vec<_> = before.servers.iter().filter(|live| !stays(live)).cloned().collect();
        self.given.store(Arc::new(Given::new(own, settings, servers, apis)));
        self.rebuild_now().await;
        self.scripts.keep(self.given.load().own.iter().map(Arc::as_ref));
        self.forget_guards();
        self.replaced.send_modify(|times| *times += 1);
        self.version.send_modify(|version| *version += 1);
        while leaving.try_join_next().is_some() {}
        for live in gone {
            leaving.spawn(async move { live.server.stop().await });
        }
    }

    /// The views that doors show.
    pub fn profiles(&self) -> Arc<Profiles> {
        self.profiles.load_full()
    }

    /// Whether a tool is part of what a caller is bound to: who may use some profiles only has their tools, whatever
    /// door it comes to.
    pub(crate) fn is_within(&self, caller: &Caller, tool: &CatalogTool) -> bool {
        match self.profiles.load().bound(&caller.id) {
            None => true,
            Some(mut profiles) => profiles.any(|profile| tool.is_part_of(profile)),
        }
    }

    /// Has doors show other views from now on.
    pub fn show(&self, profiles: Arc<Profiles>) {
        if *self.profiles.load_full() != *profiles {
            self.profiles.store(profiles);
            self.version.send_modify(|version| *version += 1);
        }
    }

    /// Ends the connection to a server and begins a new one. Its tools are away until it has said anew what it
    /// offers. `false` where there is no such server.
    pub async fn reconnect(&self, name: &str) -> bool {
        if let Some(api) = self.api(name) {
            self.reload_api(&api).await;
            return true;
        }
        let given = self.given.load_full();
        let Some(old) = given.server(name) else { return false };
        let mut leaving = self.leaving.lock().await;
        // What was given may be another by now; so may the server.
        let given = self.given.load_full();
        let spec = old.server.spec().clone();
        let new = Arc::new(Live::new(spec, self.wire, &self.logins, &self.questions));
        let renewed = |live: &Arc<Live>| Arc::clone(if Arc::ptr_eq(live, old) { &new } else { live });
        let servers: Vec<_> = given.servers.iter().map(renewed).collect();
        if !servers.iter().any(|live| Arc::ptr_eq(live, &new)) {
            return given.server(name).is_some();
        }
        let (own, settings, apis) = (given.own.clone(), given.settings.clone(), given.apis.clone());
        self.given.store(Arc::new(Given::new(own, settings, servers, apis)));
        self.replaced.send_modify(|times| *times += 1);
        let old = Arc::clone(old);
        leaving.spawn(async move { old.server.stop().await });
        true
    }

    /// Waits until what a server offers is in the catalog, or it turns out to be out of reach; only
    /// [`Runtime::keep`] makes it so. Nothing to wait for where there is no such server.
    pub async fn arrived(&self, name: &str) {
        let given = self.given.load_full();
        let Some(live) = given.servers.iter().find(|live| live.server.spec().name.as_str() == name) else {
            return;
        };
        let (mut shown, mut states) = (live.shown.subscribe(), live.server.states());
        tokio::select! {
            _ = shown.wait_for(|shown| *shown) => {}
            _ = states.wait_for(|state| matches!(state, State::Down { .. })) => {}
        }
    }

    /// What stands before tools that are gone is not needed any more.
    fn forget_guards(&self) {
        let catalog = self.catalog();
        let there: HashSet<_> = catalog.tools().map(|tool| (&tool.server, &tool.original)).collect();
        let mut guards = self.guards.lock().unwrap_or_else(PoisonError::into_inner);
        guards.retain(|(server, original, ..), _| there.contains(&(server, original)));
    }
}
