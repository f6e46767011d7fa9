//! Tools of HTTP APIs in the catalog.
//!
//! The category of a tool follows from its HTTP method, not from its description. Documents loaded from a URL are
//! pinned like the definitions of a server; documents in the project are trusted like the configuration.

use std::sync::{Arc, OnceLock};

use toolgate_types::tool::{Permission, ToolContract};
use toolgate_types::{ApiDocument, ApiSpec, ToolLimits};
use toolgate_upstream::offer::OfferedTool;
use toolgate_upstream::openapi::{ApiOperation, LoadedApi};

use super::build::{CatalogBuilder, quarantined, required_permissions};
use super::{CatalogTool, EventLevel, QuarantineCause, SEPARATOR, ToolState, Upstream};

impl CatalogBuilder<'_> {
    pub(super) fn add_api(&mut self, spec: &ApiSpec, found: &LoadedApi) {
        let Some(offer) = &found.offer else { return };
        if offer.tools.is_empty() {
            let place = spec.document.location();
            self.add_event(EventLevel::Warning, format!("API '{}' ({place}) has no operations", spec.name));
        }
        for (offered, operation) in offer.tools.iter().zip(&found.operations) {
            self.add_operation(spec, offered, operation, &offer.version);
        }
    }

    fn add_operation(
        &mut self,
        spec: &ApiSpec,
        offered: &OfferedTool,
        operation: &Arc<ApiOperation>,
        version: &str,
    ) {
        let (api, name) = (&spec.name, &offered.name);
        let state = match (&offered.fault, &spec.document) {
            (Some(fault), _) => quarantined(QuarantineCause::Faulty, fault.clone()),
            (None, ApiDocument::Url(_)) => self.check_pin(api, offered, true, false),
            (None, ApiDocument::File { .. }) => ToolState::Ready,
        };
        if let ToolState::Quarantined { reason, .. } = &state {
            self.add_event(
                EventLevel::Error,
                format!("Tool '{name}' of API '{api}' is quarantined: {reason}"),
            );
        }
        let settings = self.settings_for(name);
        let category = settings.category.unwrap_or_else(|| operation.category());
        let default = ToolLimits { timeout: spec.timeout, ..ToolLimits::default() };
        let tool = CatalogTool {
            source: None,
            name: format!("{}{SEPARATOR}{name}", api.prefix()),
            server: Some(api.clone()),
            original: name.clone(),
            distinct_name: None,
            title: offered.title.clone(),
            description: offered.description.clone(),
            input_schema: offered.input_schema.clone(),
            output_schema: offered.output_schema.clone(),
            contract: ToolContract {
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
            permissions: required_permissions(
                &settings.permissions,
                &api.prefix(),
                &Permission::tool_action(name),
            ),
            rate_limit: settings.rate_limit,
            cache_ttl: settings.cache_ttl,
            response_time: None,
            deprecated: None,
            follow_ups: settings.follow_ups.into(),
            // Results of an API are third-party content.
            trusted: false,
            declared_read_only: false,
            strict_output: spec.strict_output,
            upstream: Upstream::OpenApi(Arc::clone(operation)),
            compiled: Arc::default(),
            shared_state: OnceLock::new(),
            state,
        };
        self.add_tool(name.clone(), Arc::new(tool));
    }
}
