//! HTTP requests of a login: metadata documents, client registration, token endpoint.
//!
//! Most of their URLs come from the server or from documents it points to, so it could make us send requests into our
//! own network. Invariant: every request passes [`Fetcher::send`] and its [`UrlPolicy`]; redirects to another origin
//! and proxies are not used, responses are limited, and JSON is scanned before it is parsed.

use std::future::Future;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oauth2::{AsyncHttpClient, HttpRequest, HttpResponse};
use reqwest::dns::{Name, Resolve, Resolving};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use reqwest::{Method, Request, Response, StatusCode, redirect};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toolgate_types::browser_url::is_loopback;
use toolgate_types::server::UpstreamTls;
use url::Url;

use super::challenge::Challenge;
use super::dpop::{DPOP, DpopKey, ServerNonce, USE_NONCE};
use crate::network::{AddressPolicy, BlockedAddress, literal_address};
use crate::revision::Revision;
use crate::scan::{ScanError, ScanLimits, scan};
use crate::transport::{OpenError, redacted_url, tls};

/// Limits of one response.
const RESPONSE_LIMITS: ScanLimits = ScanLimits { size: 1 << 20, depth: 32 };
/// Timeout of one request, including the response body.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Redirects of one document, all within its origin.
const MAX_REDIRECTS: usize = 5;
/// Longest error message of a server that is shown.
const MAX_SHOWN_CHARS: usize = 300;
const USER_AGENT: &str = concat!("toolgate/", env!("CARGO_PKG_VERSION"));
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Reason why a request of a login failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("cannot set up TLS")]
    Tls(#[source] OpenError),
    #[error("cannot set up the HTTP client")]
    Client(#[source] reqwest::Error),
    #[error("`{0}` is not an http or https URL")]
    Scheme(String),
    #[error("`{0}` must be https; plain http is accepted on this machine only")]
    PlainHttp(String),
    #[error("`{url}` is on {network}, which is not allowed for the login to this server")]
    Address { url: String, network: &'static str },
    #[error("the request to `{url}` failed")]
    Request { url: String, source: reqwest::Error },
    #[error("`{from}` redirects to `{to}`; redirects to another origin are not followed")]
    Redirect { from: String, to: String },
    #[error("`{0}` redirects more than {MAX_REDIRECTS} times")]
    Redirects(String),
    #[error("`{url}` responded with {status}{details}")]
    Status { url: String, status: StatusCode, details: String },
    #[error("the response of `{url}` is invalid")]
    Scan { url: String, source: ScanError },
    #[error("the response of `{url}` is invalid")]
    Json { url: String, source: serde_json::Error },
}

/// Allows or refuses the URLs of the login to one server.
///
/// The host of the server may be where the server may be. Other hosts may be on this machine or in a private network only
/// if the server itself is there; link-local addresses (cloud metadata services) and other special ones never.
#[derive(Debug, Clone)]
struct UrlPolicy {
    server: Url,
    own: AddressPolicy,
    others: AddressPolicy,
}

impl UrlPolicy {
    async fn new(server: &Url, own: &AddressPolicy) -> Self {
        Self { server: server.clone(), own: own.clone(), others: own.for_named_urls(server).await }
    }

    fn check(&self, url: &Url) -> Result<(), FetchError> {
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(FetchError::Scheme(redacted_url(url)));
        }
        // The user chose plain http for the server itself, and its tokens are sent over that connection anyway.
        let is_own_origin = url.origin() == self.server.origin();
        if url.scheme() == "http" && !is_own_origin && !is_loopback(url) {
            return Err(FetchError::PlainHttp(redacted_url(url)));
        }
        let host = url.host_str().unwrap_or_default();
        let policy = self.policy_of(host);
        // `localhost` needs no DNS, so it is refused here, with a better message. Names are checked when resolved.
        let checked = match literal_address(url) {
            None if is_loopback(url) => policy.check(host, Ipv4Addr::LOCALHOST.into()),
            _ => policy.check_literal(url),
        };
        checked.map_err(|blocked| FetchError::Address { url: redacted_url(url), network: blocked.network })
    }

    fn policy_of(&self, host: &str) -> &AddressPolicy {
        if self.server.host_str() == Some(host) { &self.own } else { &self.others }
    }
}

/// Checks a URL of the login to a public server, for the fuzz target.
///
/// # Panics
/// If a URL is allowed that is not public.
pub(super) fn fuzz_url(server: &Url, url: &Url) {
    let public = AddressPolicy::listed(&[]);
    let policy = UrlPolicy { server: server.clone(), own: public.clone(), others: public };
    if policy.check(url).is_ok() {
        assert_eq!(url.scheme(), "https", "{url}");
        let network = literal_address(url).and_then(crate::network::non_public_network);
        assert!(network.is_none() && !is_loopback(url), "{url} is on {network:?}");
    }
}

/// Resolves names to the addresses that the policy allows, so that the check and the connection use the same ones.
impl Resolve for UrlPolicy {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.policy_of(name.as_str()).clone();
        Resolve::resolve(&policy, name)
    }
}

/// Sends the requests of one login.
pub(super) struct Fetcher {
    client: reqwest::Client,
    policy: UrlPolicy,
    /// Key that requests for tokens prove to have.
    dpop: Option<Arc<DpopKey>>,
    /// Nonce of the token endpoint.
    nonce: ServerNonce,
}

impl Fetcher {
    pub(super) async fn new(
        server: &Url,
        tls: &UpstreamTls,
        addresses: &AddressPolicy,
    ) -> Result<Self, FetchError> {
        let policy = UrlPolicy::new(server, addresses).await;
        let tls = rustls::ClientConfig::clone(&*tls::load(tls).map_err(FetchError::Tls)?);
        let client = reqwest::Client::builder()
            .user_agent(USER_AGENT)
            .tls_backend_preconfigured(tls)
            .redirect(redirect::Policy::none())
            // Network access is defined by the configuration; and a proxy would resolve names without the policy.
            .no_proxy()
            .dns_resolver(Arc::new(policy.clone()))
            .timeout(REQUEST_TIMEOUT)
            .build();
        let client = client.map_err(FetchError::Client)?;
        Ok(Self { client, policy, dpop: None, nonce: ServerNonce::default() })
    }

    /// Binds the tokens of all later requests to a key.
    pub(super) fn bind_tokens(&mut self, key: Arc<DpopKey>) {
        self.dpop = Some(key);
    }

    /// Returns an error if a URL must not be used. Requests are checked again when they are sent.
    pub(super) fn check(&self, url: &Url) -> Result<(), FetchError> {
        self.policy.check(url)
    }

    /// Requests the MCP server without a token and returns its challenge.
    pub(super) async fn probe(&self, server: &Url) -> Result<Option<Challenge>, FetchError> {
        // The body may be an endless event stream, so it is not read.
        let response = self.send(get(server)).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(None);
        }
        let headers = response.headers().get_all(WWW_AUTHENTICATE).iter();
        let headers: Vec<_> = headers.filter_map(|value| value.to_str().ok()).collect();
        Ok(Some(Challenge::parse(&headers.join(", "))))
    }

    /// Gets a metadata document; `None` if there is no such document at this URL.
    pub(super) async fn get<T: DeserializeOwned>(&self, url: &Url) -> Result<Option<T>, FetchError> {
        let mut current = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send(get(&current)).await?;
            let status = response.status();
            if let Some(to) = redirect_target(&response, &current) {
                if to.origin() != current.origin() {
                    return Err(FetchError::Redirect { from: redacted_url(&current), to: redacted_url(&to) });
                }
                current = to;
                continue;
            }
            // Temporary: the document may exist, so another one must not take its place.
            let is_temporary = matches!(status.as_u16(), 408 | 425 | 429 | 500..);
            if is_temporary {
                let url = redacted_url(&current);
                return Err(FetchError::Status { url, status, details: String::new() });
            }
            if status != StatusCode::OK {
                return Ok(None);
            }
            let body = read(response).await?;
            let document = parse(&current, &body);
            return Ok(document.inspect_err(|error| tracing::debug!(%error, "not a metadata document")).ok());
        }
        Err(FetchError::Redirects(redacted_url(url)))
    }

    /// Posts JSON and returns the JSON of the response.
    pub(super) async fn post<T: DeserializeOwned>(&self, url: Url, body: Vec<u8>) -> Result<T, FetchError> {
        let mut request = Request::new(Method::POST, url.clone());
        request.headers_mut().insert(ACCEPT, JSON);
        request.headers_mut().insert(CONTENT_TYPE, JSON);
        *request.body_mut() = Some(body.into());
        let response = self.send(request).await?;
        let status = response.status();
        let body = read(response).await?;
        if !status.is_success() {
            let details = error_details(&url, &body);
            return Err(FetchError::Status { url: redacted_url(&url), status, details });
        }
        parse(&url, &body)
    }

    /// Sends a request. The only function that does.
    async fn send(&self, request: Request) -> Result<Response, FetchError> {
        let url = redacted_url(request.url());
        self.policy.check(request.url())?;
        let response = self.client.execute(request).await;
        response.map_err(|error| match BlockedAddress::find(&error) {
            Some(blocked) => FetchError::Address { url, network: blocked.network },
            None => FetchError::Request { url, source: error.without_url() },
        })
    }
}

impl<'c> AsyncHttpClient<'c> for Fetcher {
    type Error = FetchError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, FetchError>> + Send + 'c>>;

    /// Sends a request to the token endpoint. If it wants a nonce in the proof, the request is sent a second time.
    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(async move {
            let response = self.send_token_request(request.clone()).await?;
            let is_new = self.nonce.update(response.headers());
            let wants_nonce = || error_code(response.body()).as_deref() == Some(USE_NONCE);
            if is_new && self.dpop.is_some() && !response.status().is_success() && wants_nonce() {
                return self.send_token_request(request).await;
            }
            Ok(response)
        })
    }
}

impl Fetcher {
    async fn send_token_request(&self, request: HttpRequest) -> Result<HttpResponse, FetchError> {
        let mut request = Request::try_from(request).map_err(FetchError::Client)?;
        let url = request.url().clone();
        if let Some(key) = &self.dpop {
            let proof = key.proof(request.method().as_str(), &url, self.nonce.get().as_deref(), None);
            let proof = HeaderValue::try_from(proof).expect("base64 is a header value");
            request.headers_mut().insert(DPOP, proof);
        }
        let response = self.send(request).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read(response).await?;
        if let Err(source) = scan(&body, RESPONSE_LIMITS) {
            let url = redacted_url(&url);
            return Err(if status.is_success() {
                FetchError::Scan { url, source }
            } else {
                FetchError::Status { url, status, details: String::new() }
            });
        }
        let mut response = HttpResponse::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }

    /// Posts a form to a token endpoint, with the client's credentials in a header if they are given. Returns the JSON
    /// of the response.
    pub(super) async fn post_form<T: DeserializeOwned>(
        &self,
        url: &Url,
        form: &[(&str, &str)],
        client: Option<(&str, &str)>,
    ) -> Result<T, FetchError> {
        let response = self.call(form_request(url, form, client)).await?;
        if !response.status().is_success() {
            let details = error_details(url, response.body());
            return Err(FetchError::Status { url: redacted_url(url), status: response.status(), details });
        }
        parse(url, response.body())
    }

    /// Posts a form to a revocation endpoint, whose successful response has no content.
    pub(super) async fn post_revocation(
        &self,
        url: &Url,
        form: &[(&str, &str)],
        client: Option<(&str, &str)>,
    ) -> Result<(), FetchError> {
        let request = Request::try_from(form_request(url, form, client)).map_err(FetchError::Client)?;
        let response = self.send(request).await?;
        match response.status() {
            status if status.is_success() => Ok(()),
            status => {
                let (url, details) = (redacted_url(url), String::new());
                Err(FetchError::Status { url, status, details })
            }
        }
    }
}

fn form_request(url: &Url, form: &[(&str, &str)], client: Option<(&str, &str)>) -> HttpRequest {
    let encode = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let mut body = url::form_urlencoded::Serializer::new(String::new());
    body.extend_pairs(form);
    let mut request = HttpRequest::new(body.finish().into_bytes());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = url.as_str().parse().unwrap_or_default();
    let headers = request.headers_mut();
    headers.insert(ACCEPT, JSON);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    if let Some((id, secret)) = client {
        let pair = STANDARD.encode(format!("{}:{}", encode(id), encode(secret)));
        let mut value = HeaderValue::try_from(format!("Basic {pair}")).expect("base64 is a header value");
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    request
}

fn get(url: &Url) -> Request {
    let mut request = Request::new(Method::GET, url.clone());
    request.headers_mut().insert(ACCEPT, JSON);
    // Revision 2025-03-26 requires the header in discovery. No revision is negotiated yet.
    let revision = HeaderValue::from_static(Revision::V2025_03_26.name());
    request.headers_mut().insert("mcp-protocol-version", revision);
    request
}

fn redirect_target(response: &Response, from: &Url) -> Option<Url> {
    if !response.status().is_redirection() {
        return None;
    }
    from.join(response.headers().get(LOCATION)?.to_str().ok()?).ok()
}

/// Reads a body up to the limit.
async fn read(mut response: Response) -> Result<Vec<u8>, FetchError> {
    let url = redacted_url(response.url());
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() <= RESPONSE_LIMITS.size => {
                body.extend_from_slice(&chunk);
            }
            Ok(Some(_)) => {
                return Err(FetchError::Scan { url, source: ScanError::TooLarge(RESPONSE_LIMITS.size) });
            }
            Ok(None) => return Ok(body),
            Err(error) => return Err(FetchError::Request { url, source: error.without_url() }),
        }
    }
}

pub(super) fn parse<T: DeserializeOwned>(url: &Url, body: &[u8]) -> Result<T, FetchError> {
    let url = || redacted_url(url);
    scan(body, RESPONSE_LIMITS).map_err(|source| FetchError::Scan { url: url(), source })?;
    serde_json::from_slice(body).map_err(|source| FetchError::Json { url: url(), source })
}

/// Returns the code of an OAuth error response.
fn error_code(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct ErrorCode {
        error: String,
    }
    serde_json::from_slice::<ErrorCode>(body).ok().map(|body| body.error)
}

/// Describes an OAuth error response, if it is one.
fn error_details(url: &Url, body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct ErrorBody {
        error: String,
        error_description: Option<String>,
    }
    let Ok(ErrorBody { error, error_description }) = parse(url, body) else { return String::new() };
    let description = error_description.map(|text| format!(": {text}")).unwrap_or_default();
    let details = format!(": {error}{description}");
    details.chars().filter(|c| !c.is_control()).take(MAX_SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests;
