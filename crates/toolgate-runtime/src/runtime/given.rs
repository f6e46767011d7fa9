//! What the configuration gives: own tools, settings, servers. Replaced while the runtime is in use.
//!
//! Invariant: a server whose description is the same stays the same one, connection and all; a call that has begun
//! ends as it began; and the catalog is swapped in one step.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};

use toolgate_types::{ServerSpec, ToolDefinition, ToolSettings};

use super::{Live, Runtime};

/// What a catalog is made of, beside what servers say.
pub(super) struct Given {
    pub(super) own: Vec<Arc<ToolDefinition>>,
    pub(super) settings: Vec<ToolSettings>,
    pub(super) servers: Vec<Arc<Live>>,
}

impl Runtime {
    /// Takes other own tools, settings and servers from now on. The tools that are known are in use when this
    /// returns. New servers connect by themselves, and their tools follow as long as [`Runtime::keep`] runs;
    /// servers that are gone are stopped, and nobody waits for that.
    pub async fn replace(
        &self,
        own: Vec<Arc<ToolDefinition>>,
        settings: Vec<ToolSettings>,
        servers: Vec<ServerSpec>,
    ) {
        let mut leaving = self.leaving.lock().await;
        let before = self.given.load_full();
        let kept = |spec: &ServerSpec| before.servers.iter().find(|live| live.server.spec() == spec).cloned();
        let live = |spec: ServerSpec| {
            kept(&spec).unwrap_or_else(|| Arc::new(Live::new(spec, self.wire, &self.logins, &self.questions)))
        };
        let servers: Vec<_> = servers.into_iter().map(live).collect();
        let stays = |gone: &Arc<Live>| servers.iter().any(|live| Arc::ptr_eq(live, gone));
        let gone: Vec<_> = before.servers.iter().filter(|live| !stays(live)).cloned().collect();
        self.given.store(Arc::new(Given { own, settings, servers }));
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

    /// What stands before tools that are gone is not needed any more.
    fn forget_guards(&self) {
        let catalog = self.catalog();
        let there: HashSet<_> = catalog.tools().map(|tool| (&tool.server, &tool.original)).collect();
        let mut guards = self.guards.lock().unwrap_or_else(PoisonError::into_inner);
        guards.retain(|(server, original, ..), _| there.contains(&(server, original)));
    }
}
