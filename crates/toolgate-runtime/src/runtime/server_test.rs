//! Tests a server that is not configured: connects, reads its lists, and stops it.
//!
//! Invariant: nothing of it reaches the catalog, the pins or the log, and it is stopped when the test ends, however it
//! ends. No person is asked, and no login is started.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use serde_json::{Value as Json, json};
use tokio::time::{Instant, timeout};
use toolgate_types::server::StartupMode;
use toolgate_types::{OnCollision, ServerSpec};
use toolgate_upstream::offer::{OfferKinds, OfferedItem, ServerOffer};
use toolgate_upstream::{ClientFeatures, LoginOptions, NoResponder};

use super::Runtime;
use super::managed_server::{ManagedServer, RefreshError};
use crate::catalog::{Catalog, CatalogInputs, CatalogTool};
use crate::date;

/// Items of each list in a report.
const MAX_ITEMS: usize = 1_000;

/// The outcome of a test. `report` has the lists of the server, and its state.
#[derive(Debug)]
pub struct ServerTest {
    pub report: Json,
    /// Last lines of stderr.
    pub stderr: Vec<String>,
}

impl Runtime {
    /// Connects to a server that is not configured, for at most this time, and reports its offer: the definitions that
    /// callers would get, and those that would be held back.
    pub fn test_server(&self, mut spec: ServerSpec, limit: Duration) -> BoxFuture<'_, ServerTest> {
        Box::pin(async move {
            // It connects below, once.
            spec.startup = StartupMode::Lazy;
            let started = Instant::now();
            let managed = Arc::new(self.sources.new_test_server(spec));
            let outcome = timeout(limit, managed.refresh(OfferKinds::ALL)).await;
            let status = managed.status(&Catalog::default());
            let history = managed.server.history();
            let offer = managed.offer.load_full().as_ref().clone();
            let live_stderr = managed.server.live_stderr(usize::MAX);
            managed.server.stop().await;
            let (reason, hint) = match outcome {
                Ok(Ok(_)) => (None, None),
                Ok(Err(RefreshError::Unavailable(error))) => {
                    (Some(error.reason.to_string()), error.hint.map(|hint| hint.to_string()))
                }
                Ok(Err(error)) => (Some(error.to_string()), None),
                Err(_) => {
                    let reason = format!("it did not answer within {} s", limit.as_secs());
                    (Some(reason), Some("a program may download its package first; test it again".to_owned()))
                }
            };
            let offer = offer.unwrap_or_default();
            let tools = self.tested_tools(managed.server.spec(), &offer);
            let held_back = tools.iter().filter(|tool| tool["state"] != "ready").count();
            let items = |items: &[OfferedItem], id: &str| -> Vec<Json> {
                let shown = |item: &OfferedItem| {
                    let mut shown = json!({ "title": item.title, "description": item.description,
                    "definition": item.definition });
                    shown[id] = item.id.as_str().into();
                    shown
                };
                items.iter().take(MAX_ITEMS).map(shown).collect()
            };
            let report = json!({
                "name": status.name,
                "transport": status.transport,
                "connected": reason.is_none(),
                "reason": reason.map(|reason| self.redact(&reason)),
                "hint": hint,
                "tookMs": u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
                "protocolVersion": status.protocol_version,
                "implementation": status.implementation,
                "counts": {
                    "tools": tools.len(),
                    "heldBack": held_back,
                    "prompts": offer.prompts.len(),
                    "resources": offer.resources.len(),
                    "templates": offer.templates.len(),
                },
                "tools": tools.into_iter().take(MAX_ITEMS).collect::<Vec<_>>(),
                "prompts": items(&offer.prompts, "name"),
                "resources": items(&offer.resources, "uri"),
                "templates": items(&offer.templates, "uri"),
            });
            let stderr = if live_stderr.is_empty() { history.stderr } else { live_stderr };
            ServerTest { report, stderr: stderr.iter().map(|line| self.redact(line)).collect() }
        })
    }

    /// The tools of an offer, as the catalog would have them.
    fn tested_tools(&self, spec: &ServerSpec, offer: &ServerOffer) -> Vec<Json> {
        let pins = self.pins.get();
        let inputs = self.sources.load_full();
        let built = Catalog::build(&CatalogInputs {
            builtins: &[],
            own: &[],
            settings: &inputs.settings,
            servers: &[(spec, Some(offer))],
            apis: &[],
            pins: &pins,
            holds_new: false,
            on_collision: OnCollision::Qualify,
            today: &date::today(),
            // Not a start: an unknown tool of a strict server is held back, and is no error.
            previous: Some(&Catalog::default()),
        });
        drop(pins);
        let Ok(built) = built else { return Vec::new() };
        let shown = |tool: &Arc<CatalogTool>| {
            let definition = tool.definition.as_ref().map(|definition| definition.parse::<Json>());
            let annotations = definition.and_then(Result::ok).and_then(|it| it.get("annotations").cloned());
            let mut shown = json!(tool.as_ref());
            shown["original"] = tool.original.as_str().into();
            shown["hash"] = json!(tool.hash);
            shown["annotations"] = json!(annotations);
            shown
        };
        built.catalog.tools().map(shown).collect()
    }
}

impl super::ToolSources {
    /// Creates a server for a test: without a person and without a login in a browser.
    fn new_test_server(&self, spec: ServerSpec) -> ManagedServer {
        let logins = LoginOptions {
            browser: None,
            subjects: Arc::default(),
            tickets: Arc::default(),
            ..self.logins().clone()
        };
        ManagedServer::new(spec, &self.test_options(logins, ClientFeatures::Responder(Arc::new(NoResponder))))
    }
}
