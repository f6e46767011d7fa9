//! `/v1/profiles`: the views of the catalog that a caller may use.
//!
//! Invariant: a caller learns only of profiles that it may use, and the numbers count only tools that it sees.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use toolgate_runtime::ToolState;
use toolgate_types::{Profile, Profiles};

use crate::auth::HttpError;
use crate::response::{self, Response};
use crate::route::{Access, AdmittedRequest};

pub(crate) async fn list(request: AdmittedRequest) -> Result<Response, HttpError> {
    let (runtime, caller) = (&request.gateway.runtime, &request.auth.caller);
    let profiles = runtime.profiles();
    let catalog = runtime.catalog();
    let is_shown = |tool: &&Arc<_>| {
        let tool: &toolgate_runtime::CatalogTool = tool;
        tool.state == ToolState::Ready && runtime.may_see(caller, tool)
    };
    let tools: Vec<_> = catalog.tools().filter(is_shown).collect();
    let resolved = profiles.resolve(&caller.id, None);
    let default = resolved.as_ref().ok().and_then(|profile| profile.map(|profile| &profile.name));
    let may_use = |profile: &&Arc<Profile>| {
        request.access == Access::Full || profiles.resolve(&caller.id, Some(profile.name.as_str())).is_ok()
    };
    let shown = |profile: &Arc<Profile>| -> Json {
        json!({
            "name": profile.name,
            "description": profile.description,
            "path": format!("/mcp/{}", profile.name),
            "tools": tools.iter().filter(|tool| tool.is_in_profile(profile)).count(),
            "exposure": profile.exposure,
            "provider": profile.provider,
            "hints": profile.hints,
            "default": default == Some(&profile.name),
            "callers": (request.access == Access::Full).then(|| bound_callers(&profiles, profile)),
        })
    };
    let shown: Vec<Json> = profiles.all.iter().filter(may_use).map(shown).collect();
    let whole_catalog = matches!(resolved, Ok(None));
    Ok(response::json(&json!({ "profiles": shown, "wholeCatalog": whole_catalog })))
}

/// Ids of the callers that are bound to a profile.
fn bound_callers<'a>(profiles: &'a Profiles, profile: &Profile) -> Vec<&'a str> {
    let is_bound = |only: &Vec<_>| only.contains(&profile.name);
    let bound = profiles.choices.iter().filter(|(_, choice)| choice.only.as_ref().is_some_and(is_bound));
    bound.map(|(caller, _)| caller.as_str()).collect()
}
