//! `/v1/me`: the caller of the request, as the gateway knows it.

use serde_json::{Value as Json, json};

use crate::auth::HttpError;
use crate::response::{self, Response};
use crate::route::AdmittedRequest;
use crate::routes::MANAGEMENT_PERMISSIONS;

pub(crate) async fn show(request: AdmittedRequest) -> Result<Response, HttpError> {
    let (gateway, auth) = (&request.gateway, &request.auth);
    let caller = &auth.caller;
    let management: Vec<&str> =
        MANAGEMENT_PERMISSIONS.into_iter().filter(|permission| auth.require(permission).is_ok()).collect();
    let profiles = gateway.runtime.profiles();
    let bound = profiles.bound_profiles(&caller.id);
    let bound = bound.map(|bound| bound.map(|profile| profile.name.clone()).collect::<Vec<_>>());
    let groups: Vec<Json> = caller
        .groups
        .iter()
        .map(|group| json!({ "name": group.name, "permissions": group.permissions }))
        .collect();
    let described = gateway.authenticator.describe_caller(caller.id.as_str());
    Ok(response::json(&json!({
        "id": caller.id,
        "authenticatedBy": auth.lifetime.credential_kind(),
        "credential": caller.credential,
        "expires": auth.lifetime.expires().map(|time| time.strftime("%FT%TZ").to_string()),
        "person": caller.person,
        "description": described.and_then(|known| known.get("description").cloned()),
        "permissions": caller.permissions,
        "groups": groups,
        "management": management,
        "profiles": bound,
    })))
}
