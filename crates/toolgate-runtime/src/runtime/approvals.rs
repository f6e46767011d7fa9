//! Approval of servers and of their tool definitions.

use std::collections::HashSet;
use std::sync::Arc;

use toolgate_types::ServerName;
use toolgate_upstream::offer::canonical_definition;

use super::Runtime;
use crate::catalog::{CatalogTool, QuarantineCause, ToolState};
use crate::pins::{LockError, Pin, PinnedDefinition};

/// A definition that needs a person's approval.
#[derive(Debug, Clone)]
pub struct PendingApproval {
    pub tool: Arc<CatalogTool>,
    /// The pinned definition; `None` if the tool was never pinned.
    pub old_definition: Option<serde_json::Value>,
    /// The definition the server offers now.
    pub new_definition: serde_json::Value,
}

impl Runtime {
    /// Definitions of a server that need approval.
    pub fn pending_approvals(&self, server: &str) -> Vec<PendingApproval> {
        let pins = self.pins.get();
        let is_pending = |tool: &&Arc<CatalogTool>| {
            let approvable = matches!(
                tool.state,
                ToolState::Quarantined { cause: QuarantineCause::NotApproved | QuarantineCause::Changed, .. }
            );
            approvable && tool.server.as_ref().is_some_and(|name| name.as_str() == server)
        };
        let pending = |tool: &Arc<CatalogTool>| {
            let new_definition = canonical_definition(tool.definition.as_ref()?);
            let old_definition =
                pins.get(tool.server.as_ref()?, &tool.original).map(|pin| pin.definition.to_value());
            Some(PendingApproval { tool: Arc::clone(tool), old_definition, new_definition })
        };
        self.catalog.load().tools().filter(is_pending).filter_map(pending).collect()
    }

    /// Returns true if the server as a whole is approved.
    pub fn is_approved(&self, server: &str) -> bool {
        self.sources.api(server).is_some()
            || self.sources.server(server).is_some_and(|server| self.pins.is_approved(server.spec()))
    }

    /// Approves the server as a whole, and these definitions.
    ///
    /// # Errors
    /// If the lock file cannot be written.
    pub async fn approve(&self, server: &ServerName, approved: &[PendingApproval]) -> Result<(), LockError> {
        let pin = |pending: &PendingApproval| {
            let hash = pending.tool.hash.clone()?;
            Some((
                pending.tool.original.clone(),
                Pin { hash, definition: PinnedDefinition::new(&pending.new_definition) },
            ))
        };
        let tools: Vec<_> = approved.iter().filter_map(pin).collect();
        let offered: HashSet<String> = {
            let catalog = self.catalog.load();
            let of_server = catalog.tools().filter(|tool| tool.server.as_ref() == Some(server));
            of_server.map(|tool| tool.original.clone()).collect()
        };
        self.pins.get().approve(server, tools.clone(), &offered);
        let name = server.clone();
        self.pins.update_file(move |pins| pins.approve(&name, tools, &offered)).await?;
        self.rebuild_while_running().await;
        Ok(())
    }
}
