//! `/v1/callers`: list, create, change and remove callers, and their keys.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use http::StatusCode;
use http::header::{self, HeaderValue};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use toolgate_store::callers::{CallerChange, DEFAULT_KEY, NewCaller, parse_expiry, parse_overlap};
use toolgate_types::caller::PermissionPattern;
use toolgate_types::{CallerId, GroupName, Secret};

use super::paging::Paging;
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

/// Members of a caller to change. `null` removes the description.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallerPatch {
    #[serde(default, deserialize_with = "some")]
    #[schemars(with = "Option<String>", length(max = MAX_DESCRIPTION))]
    description: Option<Option<String>>,
    /// All permissions of the caller from now on.
    #[schemars(length(max = MAX_PERMISSIONS))]
    permissions: Option<Vec<String>>,
    /// All groups of the caller from now on.
    #[schemars(length(max = MAX_PERMISSIONS))]
    groups: Option<Vec<String>>,
}

/// Tells `null` from a member that is left out.
fn some<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
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

/// A page of callers. Without a limit, all of them: their number is bounded.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallerPage {
    pub(super) limit: Option<usize>,
    pub(super) cursor: Option<String>,
}

pub(crate) async fn list(request: AdmittedRequest) -> Result<Response, HttpError> {
    let CallerPage { limit, cursor } = request.query()?;
    let paging = Paging::new(limit, cursor.as_deref(), (usize::MAX, usize::MAX))?;
    let (page, next) = paging.take(request.gateway.authenticator.list_callers().into_iter());
    Ok(response::json(&json!({ "callers": page, "next": next })))
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
    check_description(description.as_deref())?;
    let (permissions, groups): (Vec<PermissionPattern>, Vec<GroupName>) =
        (parse_all(&permissions)?, parse_all(&groups)?);
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

/// Changes a caller. Members that are left out stay as they are.
pub(crate) async fn change(request: AdmittedRequest) -> Result<Response, HttpError> {
    let id = request.parameter()?;
    let CallerPatch { description, permissions, groups } = request.json()?;
    check_description(description.as_ref().and_then(Option::as_deref))?;
    let permissions = permissions.as_deref().map(parse_all).transpose()?;
    let groups = groups.as_deref().map(parse_all).transpose()?;
    let AdmittedRequest { gateway, auth, .. } = request;
    let change = move || {
        let change = CallerChange {
            permissions: permissions.as_deref(),
            groups: groups.as_deref(),
            description: description.as_ref().map(Option::as_deref),
        };
        gateway.authenticator.change_caller(&auth, &id, change)
    };
    Ok(response::json(&run_blocking(change).await?))
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

fn check_description(description: Option<&str>) -> Result<(), HttpError> {
    if description.is_some_and(|it| it.len() > MAX_DESCRIPTION) {
        return Err(unprocessable(format!("`description` has more than {MAX_DESCRIPTION} bytes")));
    }
    Ok(())
}

/// Parses permission patterns or names of groups.
fn parse_all<T: FromStr<Err: Display>>(texts: &[String]) -> Result<Vec<T>, HttpError> {
    if texts.len() > MAX_PERMISSIONS {
        let message = format!("a caller can have at most {MAX_PERMISSIONS} permissions and groups");
        return Err(unprocessable(message));
    }
    let parse = |text: &String| text.parse().map_err(|error| unprocessable(format!("`{text}`: {error}")));
    texts.iter().map(parse).collect()
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
