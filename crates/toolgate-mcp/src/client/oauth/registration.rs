//! Dynamic client registration (RFC 7591).
//!
//! Registers a public client: the redirect goes to a port of this machine, where no secret would be safe.

use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::fetch::{FetchError, Fetcher};
use super::token_record::OAuthClient;

const CLIENT_NAME: &str = "Toolgate";

/// Reason why the client was not registered.
#[derive(Debug, thiserror::Error)]
pub(super) enum RegistrationError {
    #[error("the authorization server does not support dynamic client registration")]
    NotSupported,
    #[error("invalid registration endpoint `{0}`")]
    Endpoint(String),
    #[error("the registration failed")]
    Fetch(#[from] FetchError),
}

/// Registers a client for one redirect URI.
pub(super) async fn register(
    fetcher: &Fetcher,
    endpoint: Option<&str>,
    redirect_uri: String,
    scopes: &[String],
) -> Result<OAuthClient, RegistrationError> {
    #[derive(Deserialize)]
    struct RegistrationResponse {
        client_id: String,
        client_secret: Option<String>,
    }
    let endpoint = endpoint.ok_or(RegistrationError::NotSupported)?;
    let url = Url::parse(endpoint).map_err(|_| RegistrationError::Endpoint(endpoint.to_owned()))?;
    let mut request = json!({
        "client_name": CLIENT_NAME,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_method": "none",
        "response_types": ["code"],
        "application_type": "native",
    });
    if !scopes.is_empty() {
        request["scope"] = scopes.join(" ").into();
    }
    let response: RegistrationResponse = fetcher.post(url, request.to_string().into_bytes()).await?;
    // Some servers send an empty secret to public clients.
    let secret = response.client_secret.filter(|secret| !secret.is_empty());
    Ok(OAuthClient { id: response.client_id, secret, redirect_uri, registered: true })
}
