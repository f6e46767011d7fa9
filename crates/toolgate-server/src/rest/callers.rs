//! `/v1/callers`: list, create and remove callers.

use std::sync::Arc;

use http::StatusCode;
use http::header::{self, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use toolgate_types::Caller;

use crate::auth::HttpError;
use crate::response::{self, Response};
use crate::route::AdmittedRequest;

/// Limits of a caller: number of permission patterns, length of the description.
const MAX_PERMISSIONS: usize = 1000;
const MAX_DESCRIPTION: usize = 1000;

/// A new caller.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewCaller {
    id: String,
    #[schemars(length(max = MAX_DESCRIPTION))]
    description: Option<String>,
    #[serde(default)]
    #[schemars(length(max = MAX_PERMISSIONS))]
    permissions: Vec<String>,
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
    let NewCaller { id, description, permissions } = request.json()?;
    let AdmittedRequest { gateway, auth, .. } = request;
    let unprocessable =
        |message: String| HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message);
    let id = id.parse().map_err(|error| unprocessable(format!("invalid caller id `{id}`: {error}")))?;
    if permissions.len() > MAX_PERMISSIONS
        || description.as_ref().is_some_and(|it| it.len() > MAX_DESCRIPTION)
    {
        let message = format!(
            "a caller can have at most {MAX_PERMISSIONS} permissions and {MAX_DESCRIPTION} bytes of description"
        );
        return Err(unprocessable(message));
    }
    let pattern = |text: &String| text.parse().map_err(|error| unprocessable(format!("`{text}`: {error}")));
    let permissions = permissions.iter().map(pattern).collect::<Result<_, _>>()?;
    let caller = Caller::new(id, permissions);
    let runtime = Arc::clone(&gateway.runtime);
    let (created, key) =
        run_blocking(move || gateway.authenticator.create_caller(&auth, &caller, description)).await?;
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
