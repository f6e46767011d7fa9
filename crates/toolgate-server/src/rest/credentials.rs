//! `/v1/credentials`: the credentials of the caller for servers with `auth: caller`. A secret is never returned.

use std::sync::Arc;

use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use toolgate_runtime::credentials::{CredentialChangeError, ServerCredentials};
use toolgate_types::Caller;
use toolgate_types::tool::Permission;

use crate::auth::HttpError;
use crate::response::{self, Response};
use crate::route::AdmittedRequest;

/// A credential that a caller stores.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewCredential {
    /// A token or key, as the server expects it.
    secret: String,
}

pub(crate) async fn list(request: AdmittedRequest) -> Result<Response, HttpError> {
    let all = request.gateway.runtime.credentials_of(&request.auth.caller.id).await.map_err(to_error)?;
    Ok(response::json(&json!({ "credentials": all })))
}

pub(crate) async fn set(request: AdmittedRequest) -> Result<Response, HttpError> {
    let credentials = server_credentials(&request)?;
    let NewCredential { secret } = request.json()?;
    // Not added to the secrets that are masked for all callers: with a common word, one caller could mask the records of
    // all others, or let egress refuse their calls.
    credentials.set_static(&request.auth.caller.id, &secret).await.map_err(to_error)?;
    request.gateway.runtime.announce_lists_of(&request.auth.caller.id);
    Ok(response::empty(StatusCode::NO_CONTENT))
}

pub(crate) async fn remove(request: AdmittedRequest) -> Result<Response, HttpError> {
    let credentials = server_credentials(&request)?;
    if Box::pin(credentials.remove(&request.auth.caller.id)).await.map_err(to_error)?.removed {
        request.gateway.runtime.announce_lists_of(&request.auth.caller.id);
        return Ok(response::empty(StatusCode::NO_CONTENT));
    }
    let message = format!("no credential is stored for MCP server `{}`", credentials.server());
    Err(HttpError::not_found(message))
}

/// Returns the credentials of the server in the path, if its callers have their own and this one may use it.
pub(super) fn server_credentials(request: &AdmittedRequest) -> Result<Arc<ServerCredentials>, HttpError> {
    let (name, caller) = (request.parameter()?, &request.auth.caller);
    let may_use = |credentials: &Arc<ServerCredentials>| {
        let resource = credentials.server().prefix();
        let permission: Result<Permission, _> = format!("{resource}:resources").parse();
        permission.is_ok_and(|permission| caller.has_any_permission_on(&permission))
    };
    let is_person = caller.id.as_str() != Caller::ANONYMOUS;
    let credentials = request.gateway.runtime.server_credentials(&name);
    let found = credentials.filter(|it| is_person && it.is_per_caller() && may_use(it));
    found.ok_or_else(|| HttpError::not_found(format!("there is no MCP server `{name}` with `auth: caller`")))
}

fn to_error(error: CredentialChangeError) -> HttpError {
    match &error {
        CredentialChangeError::NoPlace(_) | CredentialChangeError::InvalidSecret => {
            HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", error.to_string())
        }
        // The causes are for the operator.
        CredentialChangeError::Store(cause) => {
            tracing::error!(error = %cause, "cannot use the credential store");
            HttpError::unavailable("credentials cannot be stored now")
        }
        CredentialChangeError::Login(cause) => {
            tracing::error!(error = %cause, "cannot remove a login");
            HttpError::unavailable("the credential cannot be removed now")
        }
    }
}
