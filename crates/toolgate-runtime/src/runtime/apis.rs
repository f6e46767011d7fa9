//! HTTP APIs of a runtime: their documents are read when it starts, and when what is said of them changes.
//!
//! Invariant: one that cannot be read has no tools, and nobody else notices.

use std::sync::Arc;

use futures_util::future::join_all;
use toolgate_types::ApiSpec;
use toolgate_upstream::openapi::Api;

use super::{Catalog, CatalogTool, Runtime, ServerStatus, ToolState};

impl Runtime {
    /// Reads the documents of these APIs at the same time; `tell` hears of each.
    pub(super) async fn load_apis(&self, apis: &[Arc<Api>], tell: &impl Fn(&ServerStatus)) {
        let load = async |api: &Arc<Api>| {
            read(api).await;
            tell(&api_status(api, &self.catalog.load()));
        };
        join_all(apis.iter().map(load)).await;
    }

    /// APIs for what is said of them now: those that are the same stay, the others are read.
    pub(super) async fn taken_over(&self, specs: Vec<ApiSpec>) -> Vec<Arc<Api>> {
        let before = self.given.load_full();
        let taken = async |spec: ApiSpec| match before.apis.iter().find(|api| *api.spec() == spec) {
            Some(same) => Arc::clone(same),
            None => {
                let api = Arc::new(Api::new(spec, self.wire, self.read_document));
                read(&api).await;
                api
            }
        };
        join_all(specs.into_iter().map(taken)).await
    }

    /// Reads the document of an API anew.
    pub(super) async fn reload_api(&self, api: &Api) {
        read(api).await;
        self.rebuild_now().await;
        self.version.send_modify(|version| *version += 1);
    }

    /// An API by its name.
    pub(super) fn api(&self, name: &str) -> Option<Arc<Api>> {
        self.given.load().apis.iter().find(|api| api.spec().name.as_str() == name).cloned()
    }

    pub(super) fn has_api(&self, name: &str) -> bool {
        self.api(name).is_some()
    }
}

async fn read(api: &Api) {
    if let Err(error) = api.load().await {
        let spec = api.spec();
        tracing::error!("API '{}' has no tools: {}: {error}", spec.name, spec.document.place());
    }
}

pub(super) fn api_status(api: &Api, catalog: &Catalog) -> ServerStatus {
    let (spec, found) = (api.spec(), api.found());
    let held =
        |tool: &&Arc<CatalogTool>| tool.server.as_ref() == Some(&spec.name) && tool.state != ToolState::Ready;
    ServerStatus {
        name: spec.name.to_string(),
        transport: "openapi",
        state: if found.problem.is_none() { "ready" } else { "down" },
        reason: found.problem,
        retry_in_ms: None,
        protocol_version: None,
        tools: found.offer.map_or(0, |offer| offer.tools.len()),
        held_back: catalog.tools().filter(held).count(),
        implementation: None,
        stderr: Vec::new(),
    }
}
