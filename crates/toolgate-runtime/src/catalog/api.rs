//! Tools of HTTP APIs in the catalog.
//!
//! What a tool may do follows from its method, not from words. A document that came from an address is pinned as what
//! a server says is; a file of the project is the operator's own word.

use std::sync::{Arc, OnceLock};

use toolgate_types::tool::Contract;
use toolgate_types::{ApiDocument, ApiSpec, ToolLimits};
use toolgate_upstream::offer::OfferedTool;
use toolgate_upstream::openapi::{Found, Operation};

use super::build::{Builder, demanded, held};
use super::{CatalogTool, Level, SEPARATOR, ToolState, Upstream, Why};

impl Builder<'_> {
    pub(super) fn api(&mut self, spec: &ApiSpec, found: &Found) {
        let Some(offer) = &found.offer else { return };
        if offer.tools.is_empty() {
            let place = spec.document.place();
            self.event(Level::Warning, format!("API '{}' ({place}) has no operations", spec.name));
        }
        for (offered, operation) in offer.tools.iter().zip(&found.operations) {
            self.operation(spec, offered, operation, &offer.version);
        }
    }

    fn operation(
        &mut self,
        spec: &ApiSpec,
        offered: &OfferedTool,
        operation: &Arc<Operation>,
        version: &str,
    ) {
        let (api, name) = (&spec.name, &offered.name);
        let state = match (&offered.fault, &spec.document) {
            (Some(fault), _) => held(Why::Faulty, fault.clone()),
            (None, ApiDocument::Url(_)) => self.trusted(api, offered, true, false),
            (None, ApiDocument::File { .. }) => ToolState::Ready,
        };
        if let ToolState::Quarantined { reason, .. } = &state {
            self.event(Level::Error, format!("Tool '{name}' of API '{api}' is held back: {reason}"));
        }
        let settings = self.settings(name);
        let category = settings.category.unwrap_or_else(|| operation.category());
        let default = ToolLimits { timeout: spec.timeout, ..ToolLimits::default() };
        let tool = CatalogTool {
            source: None,
            name: format!("{}{SEPARATOR}{name}", api.prefix()),
            server: Some(api.clone()),
            original: name.clone(),
            title: offered.title.clone(),
            description: offered.description.clone(),
            input_schema: offered.input_schema.clone(),
            output_schema: offered.output_schema.clone(),
            contract: Contract {
                version: version.to_owned(),
                risk: Some(category).into(),
                idempotent: settings.idempotent.unwrap_or_else(|| operation.is_idempotent()),
                cacheable: settings.cache_ttl.is_some(),
            },
            category: Some(category),
            tags: settings.tags,
            definition: Some(offered.definition.clone()),
            hash: Some(offered.hash.clone()),
            limits: settings.limits.or(default),
            permissions: demanded(&settings.permissions, &api.prefix(), name),
            rate_limit: settings.rate_limit,
            cache_ttl: settings.cache_ttl,
            response_time: None,
            deprecated: None,
            follow_ups: settings.follow_ups,
            // What comes back was written by others.
            trusted: false,
            strict_output: spec.strict_output,
            upstream: Upstream::OpenApi(Arc::clone(operation)),
            compiled: Arc::default(),
            guard: OnceLock::new(),
            state,
        };
        self.claim(name.clone(), Arc::new(tool));
    }
}
