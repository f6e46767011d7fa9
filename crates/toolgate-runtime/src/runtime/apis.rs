//! HTTP APIs: their OpenAPI documents are loaded at startup and when their configuration changes.
//!
//! Invariant: an API whose document cannot be loaded has no tools, and affects no other API or server.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use toolgate_types::ApiSpec;
use toolgate_upstream::openapi::HttpApi;

use super::{Runtime, ServerStatus};
use crate::catalog::{Catalog, CatalogTool, ToolState};

impl Runtime {
    /// Loads the documents of all APIs concurrently. Calls `report` for each. Documents that take longer than `grace` are
    /// left to [`Runtime::watch_servers`].
    pub(super) async fn load_apis(
        &self,
        apis: &[Arc<HttpApi>],
        grace: Duration,
        report: &impl Fn(&ServerStatus),
    ) {
        let load = async |api: &Arc<HttpApi>| {
            if timeout(grace, read(api)).await.is_err() {
                self.sources.late_apis.lock().push(Arc::clone(api));
            }
            report(&api_status(api, &self.catalog.load()));
        };
        join_all(apis.iter().map(load)).await;
    }

    /// Loads the documents that took too long at startup.
    pub(super) async fn load_late_apis(&self) {
        let late = std::mem::take(&mut *self.sources.late_apis.lock());
        join_all(late.iter().map(|api| self.reload_api(api))).await;
    }

    /// Reuses the APIs whose configuration is unchanged and loads the others.
    pub(super) async fn reuse_or_load_apis(&self, specs: Vec<ApiSpec>) -> Vec<Arc<HttpApi>> {
        let before = self.sources.load_full();
        let load_or_reuse = async |spec: ApiSpec| match before.apis.iter().find(|api| *api.spec() == spec) {
            Some(same) => Arc::clone(same),
            None => {
                let api = self.sources.new_api(spec);
                read(&api).await;
                api
            }
        };
        join_all(specs.into_iter().map(load_or_reuse)).await
    }

    /// Reloads the document of an API.
    pub(super) async fn reload_api(&self, api: &HttpApi) {
        read(api).await;
        self.rebuild_while_running().await;
        self.catalog.mark_changed();
    }
}

async fn read(api: &HttpApi) {
    if let Err(error) = api.load().await {
        let spec = api.spec();
        tracing::error!("API '{}' has no tools: {}: {error}", spec.name, spec.document.location());
    }
}

pub(super) fn api_status(api: &HttpApi, catalog: &Catalog) -> ServerStatus {
    let (spec, found) = (api.spec(), api.loaded());
    let is_quarantined =
        |tool: &&Arc<CatalogTool>| tool.server.as_ref() == Some(&spec.name) && tool.state != ToolState::Ready;
    ServerStatus {
        name: spec.name.to_string(),
        transport: "openapi",
        state: if found.problem.is_none() { "ready" } else { "down" },
        reason: found.problem,
        retry_in_ms: None,
        protocol_version: None,
        connections: 0,
        tools: found.offer.map_or(0, |offer| offer.tools.len()),
        held_back: catalog.tools().filter(is_quarantined).count(),
        implementation: None,
        prompts: 0,
        resources: 0,
        templates: 0,
        trusted: false,
        since: None,
        restarts: 0,
        last_errors: Vec::new(),
        login: None,
        stderr: Vec::new(),
    }
}
