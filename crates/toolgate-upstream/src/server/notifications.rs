//! Handles messages that a server sends unasked: log messages, change notifications, requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::future::BoxFuture;
use serde::Deserialize;
use tokio::sync::{broadcast, watch};
use toolgate_mcp::{DownstreamClient, Handler, RawJson, RpcError};
use toolgate_redact::mask;
use toolgate_redact::sanitize::sanitize;
use toolgate_types::CallerId;
use tracing::Level;

use super::roots::{LIST_ROOTS, RootsRelay};
use super::{ClientFeatures, LogLimit, mark_stale};
use crate::connect::OwnerCell;
use crate::offer::OfferKinds;

/// Handles notifications and requests of a server.
#[derive(Clone)]
pub(super) struct NotificationHandler {
    pub(super) server: String,
    pub(super) features: ClientFeatures,
    pub(super) stale: Arc<watch::Sender<OfferKinds>>,
    /// True for a connection of the pool: the catalog is not built from its lists, so changes are only forwarded.
    pub(super) is_pooled: bool,
    pub(super) list_changes: broadcast::Sender<(Option<CallerId>, OfferKinds)>,
    pub(super) resource_updates: broadcast::Sender<ResourceUpdate>,
    /// The owner of the connection. Changes concern only this caller.
    pub(super) owner: Arc<OwnerCell>,
    /// True once the server has sent a request of its own.
    pub(super) server_asks: Arc<AtomicBool>,
    pub(super) log_limit: Arc<LogLimit>,
    /// Changes of lists that were announced on connections of the pool.
    pub(super) client_list_changes: Arc<AtomicU64>,
    pub(super) roots: Arc<RootsRelay>,
}

/// An update of a subscribed resource: the caller that it concerns, if not all, and the parameters of the server's
/// notification. Without parameters, updates may have been missed.
pub type ResourceUpdate = (Option<CallerId>, Option<RawJson>);

impl NotificationHandler {
    fn owning_caller(&self) -> Option<CallerId> {
        self.owner.get().map(|owner| owner.caller.clone())
    }

    /// Tells the owner that updates of its resources may have been missed.
    pub(super) fn report_missed_updates(&self) {
        let _ = self.resource_updates.send((self.owning_caller(), None));
    }
}

impl Handler for NotificationHandler {
    fn notification(&self, method: &str, params: Option<&RawJson>) {
        let changed = |kinds| {
            if self.is_pooled {
                self.client_list_changes.fetch_add(1, Ordering::Relaxed);
                let _ = self.list_changes.send((self.owning_caller(), kinds));
            } else {
                mark_stale(&self.stale, kinds);
            }
        };
        match method {
            "notifications/message" => log_server_message(&self.server, &self.log_limit, params),
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
                let _ = params
                    .map(|params| self.resource_updates.send((self.owning_caller(), Some(params.clone()))));
            }
            "notifications/subscriptions/acknowledged" if !self.is_pooled => changed(OfferKinds::ALL),
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

    fn request_received(&self, method: &str) -> Option<Arc<dyn DownstreamClient>> {
        if !self.server_asks.swap(true, Ordering::Relaxed) {
            // From now on, its tools may depend on the capabilities of a client.
            let _ = self.list_changes.send((None, OfferKinds::TOOLS));
        }
        if method == LIST_ROOTS { self.roots.receive_request() } else { None }
    }

    fn request_answered(&self, method: &str) {
        if method == LIST_ROOTS {
            self.roots.receive_answer();
        }
    }

    fn capabilities(&self) -> serde_json::Value {
        self.features.capabilities()
    }

    fn violation(&self, what: &str) {
        tracing::debug!(server = %self.server, what, "protocol violation");
    }
}

/// The longest message of a server that is logged, in bytes.
const MAX_MESSAGE_BYTES: usize = 2_000;

/// Logs a log message of a server at the matching level, within the rate limit of the server.
pub fn log_server_message(server: &str, limit: &LogLimit, params: Option<&RawJson>) {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(default)]
        level: String,
        #[serde(borrow)]
        data: &'a serde_json::value::RawValue,
    }
    let Some(Ok(line)) = params.map(RawJson::parse_borrowed::<Line<'_>>) else { return };
    let level = match line.level.as_str() {
        "emergency" | "alert" | "critical" | "error" => Level::ERROR,
        "warning" => Level::WARN,
        "notice" | "info" => Level::INFO,
        _ => Level::DEBUG,
    };
    // Lines that the log filter drops do not count.
    let is_shown = match level {
        Level::ERROR => tracing::enabled!(Level::ERROR),
        Level::WARN => tracing::enabled!(Level::WARN),
        Level::INFO => tracing::enabled!(Level::INFO),
        _ => tracing::enabled!(Level::DEBUG),
    };
    if !is_shown || !limit.admit() {
        return;
    }
    // Masked before it is truncated: a part of a secret would not be found.
    let mut text = mask(&sanitize(line.data.get()), &[]);
    if text.len() > MAX_MESSAGE_BYTES {
        text.truncate(text.floor_char_boundary(MAX_MESSAGE_BYTES));
        text.push('…');
    }
    match level {
        Level::ERROR => tracing::error!(server, "{text}"),
        Level::WARN => tracing::warn!(server, "{text}"),
        Level::INFO => tracing::info!(server, "{text}"),
        _ => tracing::debug!(server, "{text}"),
    }
}
