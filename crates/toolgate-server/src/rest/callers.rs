//! `/v1/callers`: list, create and remove callers, and their keys.

use std::sync::Arc;

use http::StatusCode;
use http::header::{self, HeaderValue};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use toolgate_store::callers::{DEFAULT_KEY, NewCaller, parse_expiry, parse_overlap};
use toolgate_types::{CallerId, GroupName, Secret};

use crate::auth::HttpError;
use crate::response::{self, Response};
use crate::route::AdmittedRequest;

/// Limits of a caller: number of permission patterns and groups, length of the description.
const MAX_PERMISSIONS: usize = 1000;
const MAX_DESCRIPTION: usize = 1000;

/// A new caller.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallerBody {
    id: String,
    #[schemars(length(max = MAX_DESCRIPTION))]
    description: Option<String>,
    #[serde(default)]
    #[schemars(length(max = MAX_PERMISSIONS))]
    permissions: Vec<String>,
    /// Groups of the caller. The author must be in them, too.
    #[serde(default)]
    #[schemars(length(max = MAX_PERMISSIONS))]
    groups: Vec<String>,
    /// Expiry of its key: a time, a date, or a duration such as `90d`.
    expires: Option<String>,
}

/// A new key of a caller.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyBody {
    /// Name of the key, unique among the keys of the caller. Default: `default`.
    name: Option<String>,
    /// Expiry of the key: a time, a date, or a duration such as `90d`.
    expires: Option<String>,
}

/// A key to replace.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RotateBody {
    /// Name of the key.
    name: String,
    /// Time that the old key stays valid, such as `24h`. Default: `0`, revoked at once.
    overlap: Option<String>,
    /// Expiry of the new key: a time, a date, or a duration. Default: the lifetime of the old key.
    expires: Option<String>,
}

/// A key to revoke.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RevokeBody {
    /// Name of the key.
    name: String,
}

pub(crate) async fn list(request: AdmittedRequest) -> Result<Response, HttpError> {
    Ok(response::json(&json!({ "callers": request.gateway.authenticator.list_callers() })))
}

pub(crate) async fn show(request: AdmittedRequest) -> Result<Response, HttpError> {
    let id = request.parameter()?;
    let found = request.gateway.authenticator.describe_caller(&id);
    Ok(response::json(&found.ok_or_else(|| HttpError::not_found(format!("there is no caller `{id}`")))?))
}

/// Creates a caller. Its key is shown only in this response.
pub(crate) async fn add(request: AdmittedRequest) -> Result<Response, HttpError> {
    let CallerBody { id, description, permissions, groups, expires } = request.json()?;
    let AdmittedRequest { gateway, auth, .. } = request;
    let id: CallerId =
        id.parse().map_err(|error| unprocessable(format!("invalid caller id `{id}`: {error}")))?;
    if permissions.len() > MAX_PERMISSIONS
        || groups.len() > MAX_PERMISSIONS
        || description.as_ref().is_some_and(|it| it.len() > MAX_DESCRIPTION)
    {
        let message = format!(
            "a caller can have at most {MAX_PERMISSIONS} permissions and {MAX_DESCRIPTION} bytes of description"
        );
        return Err(unprocessable(message));
    }
    let pattern = |text: &String| text.parse().map_err(|error| unprocessable(format!("`{text}`: {error}")));
    let permissions = permissions.iter().map(pattern).collect::<Result<Vec<_>, _>>()?;
    let group = |text: &String| {
        text.parse::<GroupName>().map_err(|error| unprocessable(format!("`{text}`: {error}")))
    };
    let groups = groups.iter().map(group).collect::<Result<Vec<_>, _>>()?;
    let expires = expiry(expires.as_deref())?;
    let runtime = Arc::clone(&gateway.runtime);
    let create = move || {
        let (permissions, groups, description) = (&permissions, &groups, description.as_deref());
        let new = NewCaller { id: &id, permissions, groups, description, expires };
        gateway.authenticator.create_caller(&auth, new)
    };
    let (created, key) = run_blocking(create).await?;
    // Only the hash is stored, so this is the only chance to register the key for redaction.
    runtime.add_secrets(std::slice::from_ref(&key));
    let place = created["id"].as_str().map(|id| format!("/v1/callers/{}", percent_encode(id)));
    let mut response =
        response::json_with_status(StatusCode::CREATED, &json!({ "caller": created, "key": key.expose() }));
    if let Some(place) = place.and_then(|place| HeaderValue::from_str(&place).ok()) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

/// Removes a caller. Its key becomes invalid.
pub(crate) async fn remove(request: AdmittedRequest) -> Result<Response, HttpError> {
    let id = request.parameter()?;
    let AdmittedRequest { gateway, auth, .. } = request;
    run_blocking(move || gateway.authenticator.remove_caller(&auth, &id)).await?;
    Ok(response::empty(StatusCode::NO_CONTENT))
}

/// Lists the stored keys of a caller.
pub(crate) async fn keys(request: AdmittedRequest) -> Result<Response, HttpError> {
    let id = request.parameter()?;
    Ok(response::json(&json!({ "keys": request.gateway.authenticator.list_keys(&id)? })))
}

/// Adds a key of a caller. It is shown only in this response.
pub(crate) async fn add_key(request: AdmittedRequest) -> Result<Response, HttpError> {
    let id = request.parameter()?;
    let KeyBody { name, expires } = request.json()?;
    let expires = expiry(expires.as_deref())?;
    let name = name.unwrap_or_else(|| DEFAULT_KEY.to_owned());
    let AdmittedRequest { gateway, auth, .. } = request;
    let runtime = Arc::clone(&gateway.runtime);
    let add = move || gateway.authenticator.add_key(&auth, &id, (&name, expires));
    let (added, key) = run_blocking(add).await?;
    runtime.add_secrets(std::slice::from_ref(&key));
    Ok(created_key(json!({ "record": added }), &key))
}

/// Replaces a key of a caller. The new key is shown only in this response.
pub(crate) async fn rotate_key(request: AdmittedRequest) -> Result<Response, HttpError> {
    let id = request.parameter()?;
    let RotateBody { name, overlap, expires } = request.json()?;
    let expires = expiry(expires.as_deref())?;
    let overlap = overlap.as_deref().map(parse_overlap).transpose();
    let overlap = overlap.map_err(|error| unprocessable(error.to_string()).hint(error.hint()))?;
    let overlap = overlap.unwrap_or_default();
    let AdmittedRequest { gateway, auth, .. } = request;
    let runtime = Arc::clone(&gateway.runtime);
    let rotate = move || gateway.authenticator.rotate_key(&auth, &id, (&name, expires), overlap);
    let (rotated, key) = run_blocking(rotate).await?;
    runtime.add_secrets(std::slice::from_ref(&key));
    Ok(created_key(json!({ "record": rotated["new"], "old": rotated["old"] }), &key))
}

/// Revokes a key of a caller.
pub(crate) async fn revoke_key(request: AdmittedRequest) -> Result<Response, HttpError> {
    let id = request.parameter()?;
    let RevokeBody { name } = request.json()?;
    let AdmittedRequest { gateway, auth, .. } = request;
    run_blocking(move || gateway.authenticator.revoke_key(&auth, &id, &name)).await?;
    Ok(response::empty(StatusCode::NO_CONTENT))
}

fn created_key(mut document: Json, key: &Secret) -> Response {
    document["key"] = json!(key.expose());
    response::json_with_status(StatusCode::CREATED, &document)
}

fn unprocessable(message: String) -> HttpError {
    HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message)
}

/// Parses the expiry of a key.
fn expiry(text: Option<&str>) -> Result<Option<Timestamp>, HttpError> {
    let parsed = text.map(|text| parse_expiry(text, Timestamp::now())).transpose();
    parsed.map_err(|error| unprocessable(error.to_string()).hint(error.hint()))
}

/// Runs blocking file operations outside of the async threads.
async fn run_blocking<T: Send + 'static>(
    change: impl FnOnce() -> Result<T, HttpError> + Send + 'static,
) -> Result<T, HttpError> {
    match tokio::task::spawn_blocking(change).await {
        Ok(done) => done,
        Err(error) => {
            tracing::error!("a change of callers failed: {error}");
            Err(HttpError::unavailable("callers cannot be changed"))
        }
    }
}

/// Encodes an id as a path segment.
fn percent_encode(id: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    id.bytes().map(byte).collect()
}
