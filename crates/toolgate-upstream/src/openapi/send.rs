//! Sends one request to an API and reads its bounded response.
//!
//! Invariant: every address is checked after DNS resolution, and connections are made only to the internet or to a
//! network that the operator allows. Redirects are not followed, and no proxy is used.

use std::error::Error as StdError;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{Client, Method};
use toolgate_types::network::Network;

use toolgate_mcp::network::non_public_network;
use url::{Host, Url};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest `Retry-After` that is honored, in seconds.
const MAX_RETRY_AFTER_SECONDS: u64 = 86_400;

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

/// An address that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("its host `{host}` leads to {what}, which is not allowed")]
pub struct BlockedAddress {
    host: String,
    what: &'static str,
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
    allowed: Arc<[Network]>,
}

impl HttpSender {
    pub(super) fn new(allowed: &[Network]) -> Result<Self, reqwest::Error> {
        let allowed: Arc<[Network]> = allowed.into();
        let client = Client::builder()
            .dns_resolver(Arc::new(GuardedResolver { allowed: Arc::clone(&allowed) }))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(Duration::from_secs(20))
            .build()?;
        Ok(Self { client, allowed })
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
        self.admit_literal(&url)?;
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
        let seconds = text(RETRY_AFTER).and_then(|wait| retry_after_seconds(wait.trim()));
        let retry_after = seconds.map(|seconds| Duration::from_secs(seconds.min(MAX_RETRY_AFTER_SECONDS)));
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

    /// Checks an IP address in the URL: it does not pass through the resolver.
    fn admit_literal(&self, url: &Url) -> Result<(), BlockedAddress> {
        let address = match url.host() {
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            Some(Host::Domain(_)) | None => return Ok(()),
        };
        check_address(url.host_str().unwrap_or_default(), address, &self.allowed)
    }
}

/// Parses `Retry-After`: seconds or a date.
fn retry_after_seconds(text: &str) -> Option<u64> {
    if let Ok(seconds) = text.parse() {
        return Some(seconds);
    }
    let at = httpdate::parse_http_date(text).ok()?;
    Some(at.duration_since(std::time::SystemTime::now()).unwrap_or_default().as_secs())
}

fn check_address(host: &str, address: IpAddr, allowed: &[Network]) -> Result<(), BlockedAddress> {
    match non_public_network(address).filter(|_| !allowed.iter().any(|network| network.contains(address))) {
        Some(what) => Err(BlockedAddress { host: host.to_owned(), what }),
        None => Ok(()),
    }
}

/// Returns the addresses of a name if all of them are allowed.
fn check_addresses(
    name: &str,
    found: Vec<SocketAddr>,
    allowed: &[Network],
) -> Result<Vec<SocketAddr>, BlockedAddress> {
    found.iter().try_for_each(|address| check_address(name, address.ip(), allowed))?;
    Ok(found)
}

/// Resolves names to allowed addresses only. A name with one disallowed address is rejected as a whole, which prevents
/// DNS rebinding.
struct GuardedResolver {
    allowed: Arc<[Network]>,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = Arc::clone(&self.allowed);
        Box::pin(async move {
            let name = name.as_str();
            let bare = name.trim_end_matches('.').to_ascii_lowercase();
            let found = if bare == "localhost" || bare.ends_with(".localhost") {
                // Always this machine, no matter what DNS says. Uses the address family that is allowed.
                let both = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), (Ipv6Addr::LOCALHOST, 0).into()];
                let is_allowed = |address: &SocketAddr| check_address(name, address.ip(), &allowed).is_ok();
                let found: Vec<_> = both.into_iter().filter(is_allowed).collect();
                if found.is_empty() {
                    check_address(name, both[0].ip(), &allowed)?;
                }
                found
            } else {
                check_addresses(name, tokio::net::lookup_host((name, 0)).await?.collect(), &allowed)?
            };
            let addresses: Addrs = Box::new(found.into_iter());
            Ok(addresses)
        })
    }
}

/// Converts an error, without its URL, which may contain a credential.
fn send_error(error: reqwest::Error) -> SendError {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(&error);
    while let Some(error) = cause {
        if let Some(blocked) = error.downcast_ref::<BlockedAddress>() {
            return SendError::Blocked(blocked.clone());
        }
        cause = error.source();
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

    /// A name is judged by all of its addresses.
    #[test]
    fn blocks_names_with_an_internal_address() {
        let admitted = |addresses: &[&str]| {
            let found =
                addresses.iter().map(|address| SocketAddr::new(address.parse().unwrap(), 0)).collect();
            check_addresses("rebind.test", found, &["10.1.0.0/16".parse().unwrap()]).map(|found| found.len())
        };
        assert_eq!(admitted(&["8.8.8.8", "2606:4700::1111", "10.1.2.3"]), Ok(3));
        let blocked = |what| Err(BlockedAddress { host: "rebind.test".to_owned(), what });
        assert_eq!(admitted(&["8.8.8.8", "10.2.0.1"]), blocked("a private network"));
        assert_eq!(admitted(&["::ffff:169.254.169.254"]), blocked("a cloud metadata service"));
        assert_eq!(admitted(&["8.8.8.8", "::1"]), blocked("this machine"));
    }

    #[test]
    fn parses_retry_after() {
        assert_eq!(retry_after_seconds("7"), Some(7));
        assert_eq!(retry_after_seconds("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(retry_after_seconds("soon"), None);
    }
}
