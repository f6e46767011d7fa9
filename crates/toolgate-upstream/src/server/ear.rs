//! What a server says on its own: lines of its log, changes, questions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use serde::Deserialize;
use tokio::sync::{broadcast, watch};
use toolgate_mcp::{Handler, Raw, RpcError};
use toolgate_types::clean::clean;
use toolgate_types::redact::mask;

use super::{Questions, mark};
use crate::offer::Kinds;

/// Hears what a server says on its own, and passes on what it asks for.
#[derive(Clone)]
pub(super) struct Ear {
    pub(super) server: String,
    pub(super) questions: Arc<dyn Questions>,
    pub(super) stale: Arc<watch::Sender<Kinds>>,
    /// Whether it hears on a connection that the lists do not come from: then there is nothing to look at.
    pub(super) aside: bool,
    pub(super) told: broadcast::Sender<Kinds>,
    pub(super) updates: broadcast::Sender<Raw>,
    /// Whether the server has ever asked for something.
    pub(super) asks: Arc<AtomicBool>,
}

impl Handler for Ear {
    fn notification(&self, method: &str, params: Option<&Raw>) {
        let changed = |kinds| {
            if self.aside {
                let _ = self.told.send(kinds);
            } else {
                mark(&self.stale, kinds);
            }
        };
        match method {
            "notifications/message" => log(&self.server, params),
            "notifications/tools/list_changed" => changed(Kinds { tools: true, ..Kinds::default() }),
            "notifications/prompts/list_changed" => changed(Kinds { prompts: true, ..Kinds::default() }),
            "notifications/resources/list_changed" => changed(Kinds { resources: true, ..Kinds::default() }),
            "notifications/resources/updated" => {
                let _ = params.map(|params| self.updates.send(params.clone()));
            }
            "notifications/subscriptions/acknowledged" if !self.aside => changed(Kinds::ALL),
            _ => tracing::trace!(server = %self.server, method, "notification"),
        }
    }

    fn request(&self, method: &str, params: Option<Raw>) -> BoxFuture<'static, Result<Raw, RpcError>> {
        self.questions.answer(&self.server, method, params)
    }

    fn asked(&self) {
        self.asks.store(true, Ordering::Relaxed);
    }

    fn capabilities(&self) -> serde_json::Value {
        self.questions.capabilities()
    }

    fn violation(&self, what: &str) {
        tracing::debug!(server = %self.server, what, "protocol violation");
    }
}

/// A line of the server's log, at our level for it.
pub fn log(server: &str, params: Option<&Raw>) {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(default)]
        level: String,
        #[serde(borrow)]
        data: &'a serde_json::value::RawValue,
    }
    let Some(Ok(line)) = params.map(Raw::look::<Line<'_>>) else { return };
    let text = mask(&clean(line.data.get()), &[]);
    match line.level.as_str() {
        "emergency" | "alert" | "critical" | "error" => tracing::error!(server, "{text}"),
        "warning" => tracing::warn!(server, "{text}"),
        "notice" | "info" => tracing::info!(server, "{text}"),
        _ => tracing::debug!(server, "{text}"),
    }
}
