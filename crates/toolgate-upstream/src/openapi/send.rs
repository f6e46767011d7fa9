//! Sends one request to an API and reads its bounded response.
//!
//! Invariant: every address is checked after DNS resolution, and connections are made only to the internet or to a
//! network that the operator allows. Redirects are not followed, and no proxy is used.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Client, Method};
use toolgate_types::network::Network;

use toolgate_mcp::network::{AddressPolicy, BlockedAddress};
use toolgate_mcp::transport::retry_after;
use url::Url;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A request without a response.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The address is not allowed. Nothing was sent.
    #[error("{0}")]
    Blocked(#[from] BlockedAddress),
    /// The host cannot be reached. Nothing was sent.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// The connection broke. The request may have been executed.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The response is too large.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    /// The API redirects.
    #[error("it redirects to `{0}`, which is not followed")]
    Redirect(String),
}

/// A response.
#[derive(Debug)]
pub(super) struct HttpResponse {
    pub(super) status: u16,
    /// The reason phrase of the status.
    pub(super) reason: &'static str,
    pub(super) kind: String,
    pub(super) retry_after: Option<Duration>,
    pub(super) bytes: Vec<u8>,
}

/// An HTTP client that connects only to allowed networks.
#[derive(Debug, Clone)]
pub(super) struct HttpSender {
    client: Client,
    addresses: AddressPolicy,
}

impl HttpSender {
    pub(super) fn new(allowed: &[Network]) -> Result<Self, reqwest::Error> {
        let addresses = AddressPolicy::listed(allowed);
        let client = Client::builder()
            .dns_resolver(Arc::new(addresses.clone()))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(Duration::from_secs(20))
            .build()?;
        Ok(Self { client, addresses })
    }

    /// Sends a request and reads the response, up to `max_bytes` bytes.
    pub(super) async fn send(
        &self,
        method: &str,
        url: Url,
        headers: HeaderMap,
        body: Option<Vec<u8>>,
        max_bytes: usize,
    ) -> Result<HttpResponse, SendError> {
        self.addresses.check_literal(&url)?;
        let method = Method::from_bytes(method.as_bytes())
            .map_err(|_| SendError::Unreachable("invalid method".to_owned()))?;
        let mut request = self.client.request(method, url).headers(headers);
        if let Some(body) = body {
            request = request.body(body);
        }
        let mut response = request.send().await.map_err(send_error)?;
        let status = response.status();
        let text = |name: HeaderName| {
            response.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        if status.is_redirection() {
            let to = text(LOCATION)
                .and_then(|to| Some(response.url().join(&to).ok()?.origin().ascii_serialization()));
            return Err(SendError::Redirect(to.unwrap_or_else(|| "nowhere".to_owned())));
        }
        let kind = text(reqwest::header::CONTENT_TYPE).unwrap_or_default();
        let retry_after = retry_after(response.headers());
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broken_error)? {
            if bytes.len() + chunk.len() > max_bytes {
                return Err(SendError::TooLarge(max_bytes));
            }
            bytes.extend_from_slice(&chunk);
        }
        let reason = status.canonical_reason().unwrap_or_default();
        Ok(HttpResponse { status: status.as_u16(), reason, kind, retry_after, bytes })
    }
}

/// Converts an error, without its URL, which may contain a credential.
fn send_error(error: reqwest::Error) -> SendError {
    if let Some(blocked) = BlockedAddress::find(&error) {
        return SendError::Blocked(blocked.clone());
    }
    if error.is_connect() { SendError::Unreachable(root_cause(error)) } else { broken_error(error) }
}

fn broken_error(error: reqwest::Error) -> SendError {
    SendError::Broken(root_cause(error))
}

/// The innermost cause, usually the best explanation.
fn root_cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn StdError = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Builds a header; `None` if name or value is illegal.
pub(super) fn header(name: &str, value: &str, secret: bool) -> Option<(HeaderName, HeaderValue)> {
    let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(secret);
    Some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refused(address: &str, allowed: &[&str]) -> String {
        let allowed: Vec<Network> = allowed.iter().map(|network| network.parse().unwrap()).collect();
        let sender = HttpSender::new(&allowed).unwrap();
        let url = Url::parse(address).unwrap();
        let outcome = sender.send("GET", url, HeaderMap::new(), None, 1 << 10).await;
        match outcome {
            Err(SendError::Blocked(_)) => "blocked".to_owned(),
            Err(SendError::Unreachable(_)) => "unreachable".to_owned(),
            other => format!("{other:?}"),
        }
    }

    /// No spelling of a loopback or private address gets through.
    #[tokio::test]
    async fn blocks_internal_addresses() {
        for address in [
            "http://127.0.0.1:1/",
            "http://127.1:1/",
            "http://0x7f.1:1/",
            "http://2130706433:1/",
            "http://017700000001:1/",
            "http://0:1/",
            "http://localhost:1/",
            "http://LOCALHOST.:1/",
            "http://[::1]:1/",
            "http://[::ffff:127.0.0.1]:1/",
            "http://[::ffff:7f00:1]:1/",
            "http://[64:ff9b::7f00:1]:1/",
            "http://169.254.169.254/",
            "http://10.0.0.1/",
            "http://[fd00:ec2::254]/",
        ] {
            assert_eq!(refused(address, &[]).await, "blocked", "{address}");
        }
    }

    #[tokio::test]
    async fn allows_only_configured_networks() {
        assert_eq!(refused("http://127.0.0.1:1/", &["127.0.0.0/8"]).await, "unreachable");
        assert_eq!(refused("http://127.0.0.1:1/", &["10.0.0.0/8"]).await, "blocked");
        assert_eq!(refused("http://localhost:1/", &["127.0.0.0/8"]).await, "unreachable");
        assert_eq!(refused("http://localhost:1/", &["10.0.0.0/8"]).await, "blocked");
        assert_eq!(refused("http://[::ffff:127.0.0.1]:1/", &["127.0.0.0/8"]).await, "unreachable");
    }
}
