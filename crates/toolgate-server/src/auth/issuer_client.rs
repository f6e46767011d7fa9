//! Requests to a token issuer: its metadata, its keys, and its token endpoint.
//!
//! Invariant: requests go only to places that the configuration, or the metadata of an issuer in it, names. They are
//! bounded in time and size, follow no redirect, and reach internal addresses only if the configuration names them.

use std::sync::Arc;
use std::time::Duration;

use http::header;
use reqwest::{RequestBuilder, StatusCode};
use serde::Deserialize;
use toolgate_mcp::network::{AddressPolicy, BlockedAddress};
use url::Url;

/// Limits of a response from an issuer: time and size.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_BYTES: usize = 1 << 20;

/// Metadata document of an issuer.
#[derive(Debug, Deserialize)]
pub(super) struct IssuerMetadata {
    issuer: String,
    pub(super) jwks_uri: Option<String>,
    pub(super) authorization_endpoint: Option<String>,
    pub(super) token_endpoint: Option<String>,
    pub(super) token_endpoint_auth_methods_supported: Option<Vec<String>>,
    /// RFC 9207: responses of the authorization endpoint name the issuer.
    pub(super) authorization_response_iss_parameter_supported: Option<bool>,
}

/// HTTP client for one issuer.
pub(super) struct IssuerClient {
    issuer: String,
    client: reqwest::Client,
    /// Addresses of the issuer; checked on every connection.
    addresses: AddressPolicy,
}

impl IssuerClient {
    /// Creates a client. `named` is the URL in the configuration: it decides about internal addresses.
    pub(super) fn new(issuer: &str, named: &str) -> Result<Self, String> {
        let addresses = Url::parse(named).map(|url| AddressPolicy::of_server(&url, None)).unwrap_or_default();
        let client = reqwest::Client::builder()
            .dns_resolver(Arc::new(addresses.clone()))
            .redirect(reqwest::redirect::Policy::none())
            .timeout(FETCH_TIMEOUT)
            .no_proxy()
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { issuer: issuer.to_owned(), client, addresses })
    }

    /// Finds the metadata: OpenID Connect discovery, then RFC 8414.
    pub(super) async fn metadata(&self) -> Result<IssuerMetadata, String> {
        let base = self.base()?;
        let path = base.path().trim_end_matches('/');
        let mut last = Err("no metadata was fetched".to_owned());
        for path_suffix in [
            format!("{path}/.well-known/openid-configuration"),
            format!("/.well-known/oauth-authorization-server{path}"),
        ] {
            let mut url = base.clone();
            url.set_path(&path_suffix);
            last = self.get(url.as_str()).await;
            if last.is_ok() {
                break;
            }
        }
        let document: IssuerMetadata = serde_json::from_slice(&last?).map_err(|error| error.to_string())?;
        if document.issuer != self.issuer {
            return Err("its metadata names another issuer".to_owned());
        }
        Ok(document)
    }

    /// Checks a URL of the metadata: it uses TLS, or has the origin of the issuer.
    pub(super) fn endpoint(&self, name: &str, url: Option<&str>) -> Result<Url, String> {
        let url = url.ok_or_else(|| format!("its metadata has no `{name}`"))?;
        let url = Url::parse(url).map_err(|error| error.to_string())?;
        if url.scheme() != "https" && url.origin() != self.base()?.origin() {
            return Err(format!("the `{name}` in its metadata does not use TLS"));
        }
        Ok(url)
    }

    fn base(&self) -> Result<Url, String> {
        Url::parse(&self.issuer).map_err(|error| error.to_string())
    }

    /// Fetches a document.
    pub(super) async fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        let url = Url::parse(url).map_err(|error| error.to_string())?;
        let (status, bytes) = self.send(&url, self.client.get(url.clone())).await?;
        if status == StatusCode::OK { Ok(bytes) } else { Err(format!("the response status is {status}")) }
    }

    /// Sends a form, with the id and the secret of the client as Basic authentication if they are given.
    pub(super) async fn post_form(
        &self,
        url: &Url,
        basic: Option<(&str, &str)>,
        form: &[(&str, &str)],
    ) -> Result<(StatusCode, Vec<u8>), String> {
        let body = serde_urlencoded::to_string(form).map_err(|error| error.to_string())?;
        let mut request = self.client.post(url.clone()).body(body);
        request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        request = request.header(header::ACCEPT, "application/json");
        if let Some((id, secret)) = basic {
            request = request.basic_auth(id, Some(secret));
        }
        self.send(url, request).await
    }

    async fn send(&self, url: &Url, request: RequestBuilder) -> Result<(StatusCode, Vec<u8>), String> {
        let without_url = |error: reqwest::Error| match BlockedAddress::find(&error) {
            Some(blocked) => blocked.to_string(),
            None => error.without_url().to_string(),
        };
        self.addresses.check_literal(url).map_err(|blocked| blocked.to_string())?;
        let mut response = request.send().await.map_err(without_url)?;
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(without_url)? {
            if bytes.len() + chunk.len() > MAX_BYTES {
                return Err(format!("the response has more than {MAX_BYTES} bytes"));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok((response.status(), bytes))
    }
}
