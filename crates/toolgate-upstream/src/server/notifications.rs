//! Handles messages that a server sends unasked: log messages, change notifications, requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use serde::Deserialize;
use tokio::sync::{broadcast, watch};
use toolgate_mcp::{Handler, RawJson, RpcError};
use toolgate_redact::mask;
use toolgate_redact::sanitize::sanitize;

use super::{ClientFeatures, mark_stale};
use crate::offer::OfferKinds;

/// Handles notifications and requests of a server.
#[derive(Clone)]
pub(super) struct NotificationHandler {
    pub(super) server: String,
    pub(super) features: ClientFeatures,
    pub(super) stale: Arc<watch::Sender<OfferKinds>>,
    /// True for an extra connection: the catalog is not built from its lists, so changes are only forwarded.
    pub(super) is_extra: bool,
    pub(super) list_changes: broadcast::Sender<OfferKinds>,
    pub(super) resource_updates: broadcast::Sender<RawJson>,
    /// True once the server has sent a request of its own.
    pub(super) server_asks: Arc<AtomicBool>,
}

impl Handler for NotificationHandler {
    fn notification(&self, method: &str, params: Option<&RawJson>) {
        let changed = |kinds| {
            if self.is_extra {
                let _ = self.list_changes.send(kinds);
            } else {
                mark_stale(&self.stale, kinds);
            }
        };
        match method {
            "notifications/message" => log_server_message(&self.server, params),
            "notifications/tools/list_changed" => {
                changed(OfferKinds { tools: true, ..OfferKinds::default() })
            }
            "notifications/prompts/list_changed" => {
                changed(OfferKinds { prompts: true, ..OfferKinds::default() })
            }
            "notifications/resources/list_changed" => {
                changed(OfferKinds { resources: true, ..OfferKinds::default() })
            }
            "notifications/resources/updated" => {
                let _ = params.map(|params| self.resource_updates.send(params.clone()));
            }
            "notifications/subscriptions/acknowledged" if !self.is_extra => changed(OfferKinds::ALL),
            _ => tracing::trace!(server = %self.server, method, "notification"),
        }
    }

    fn request(
        &self,
        method: &str,
        params: Option<RawJson>,
    ) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        Box::pin(self.features.clone().answer(self.server.clone(), method.to_owned(), params))
    }

    fn request_received(&self) {
        self.server_asks.store(true, Ordering::Relaxed);
    }

    fn capabilities(&self) -> serde_json::Value {
        self.features.capabilities()
    }

    fn violation(&self, what: &str) {
        tracing::debug!(server = %self.server, what, "protocol violation");
    }
}

/// Logs a log message of a server at the matching level.
pub fn log_server_message(server: &str, params: Option<&RawJson>) {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(default)]
        level: String,
        #[serde(borrow)]
        data: &'a serde_json::value::RawValue,
    }
    let Some(Ok(line)) = params.map(RawJson::parse_borrowed::<Line<'_>>) else { return };
    let text = mask(&sanitize(line.data.get()), &[]);
    match line.level.as_str() {
        "emergency" | "alert" | "critical" | "error" => tracing::error!(server, "{text}"),
        "warning" => tracing::warn!(server, "{text}"),
        "notice" | "info" => tracing::info!(server, "{text}"),
        _ => tracing::debug!(server, "{text}"),
    }
}
