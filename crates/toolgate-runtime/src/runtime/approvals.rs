//! Approval of servers and of their tool definitions.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use jiff::Timestamp;
use toolgate_types::ServerName;
use toolgate_upstream::offer::canonical_definition;

use super::Runtime;
use crate::catalog::{CatalogTool, QuarantineCause, ToolState};
use crate::pins::{Drift, LockError, Pin, PinnedDefinition, Rejection};

/// A definition that needs a person's approval.
#[derive(Debug, Clone)]
pub struct PendingApproval {
    pub tool: Arc<CatalogTool>,
    /// The pinned definition; `None` if the tool was never pinned.
    pub old_definition: Option<serde_json::Value>,
    /// The definition the server offers now.
    pub new_definition: serde_json::Value,
    /// Set if a person rejected it.
    pub rejection: Option<Rejection>,
}

impl PendingApproval {
    /// The difference to the pinned definition, if there is one.
    pub fn drift(&self) -> Option<Drift> {
        self.old_definition.as_ref().map(|old| Drift::between(old, &self.new_definition))
    }
}

impl Runtime {
    /// Definitions of a server that need approval.
    pub fn pending_approvals(&self, server: &str) -> Vec<PendingApproval> {
        self.held_back(server, &[QuarantineCause::NotApproved, QuarantineCause::Changed])
    }

    /// Definitions of a server that a person rejected. They can still be approved.
    pub fn rejected_definitions(&self, server: &str) -> Vec<PendingApproval> {
        self.held_back(server, &[QuarantineCause::Rejected])
    }

    /// Definitions of a server that are held back for one of these causes.
    fn held_back(&self, server: &str, causes: &[QuarantineCause]) -> Vec<PendingApproval> {
        let pins = self.pins.get();
        let is_pending = |tool: &&Arc<CatalogTool>| {
            let is_held_back =
                matches!(&tool.state, ToolState::Quarantined { cause, .. } if causes.contains(cause));
            is_held_back && tool.server.as_ref().is_some_and(|name| name.as_str() == server)
        };
        let pending = |tool: &Arc<CatalogTool>| {
            let new_definition = canonical_definition(tool.definition.as_ref()?);
            let old_definition =
                pins.get(tool.server.as_ref()?, &tool.original).map(|pin| pin.definition.to_value());
            let (server, hash) = (tool.server.as_ref()?, tool.hash.as_deref()?);
            let rejection = pins.rejection(server, &tool.original, hash).cloned();
            Some(PendingApproval { tool: Arc::clone(tool), old_definition, new_definition, rejection })
        };
        self.catalog.load().tools().filter(is_pending).filter_map(pending).collect()
    }

    /// Returns true if the server as a whole is approved.
    pub fn is_approved(&self, server: &str) -> bool {
        self.sources.api(server).is_some()
            || self.sources.server(server).is_some_and(|server| self.pins.is_approved(server.spec()))
    }

    /// Rejects these definitions, until their server changes them again.
    ///
    /// # Errors
    /// If the lock file cannot be written.
    pub fn reject<'a>(
        &'a self,
        server: &'a ServerName,
        rejected: &'a [PendingApproval],
        by: &'a str,
    ) -> BoxFuture<'a, Result<(), LockError>> {
        Box::pin(async move {
            let at = format!("{:.0}", Timestamp::now());
            let rejection = |one: &PendingApproval| {
                let hash = one.tool.hash.clone()?;
                Some((one.tool.original.clone(), Rejection { hash, at: at.clone(), by: by.to_owned() }))
            };
            let tools: Vec<_> = rejected.iter().filter_map(rejection).collect();
            self.pins.get().reject(server, tools.clone());
            let name = server.clone();
            self.pins.update_file(move |pins| pins.reject(&name, tools.clone())).await?;
            self.rebuild_while_running().await;
            Ok(())
        })
    }

    /// Approves the server as a whole, and these definitions.
    ///
    /// # Errors
    /// If the lock file cannot be written.
    pub fn approve<'a>(
        &'a self,
        server: &'a ServerName,
        approved: &'a [PendingApproval],
    ) -> BoxFuture<'a, Result<(), LockError>> {
        Box::pin(async move {
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
            self.pins.update_file(move |pins| pins.approve(&name, tools.clone(), &offered)).await?;
            self.rebuild_while_running().await;
            Ok(())
        })
    }
}
