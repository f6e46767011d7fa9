//! The way to an API: one request, one answer, bounded.
//!
//! Invariant: a connection is made to no address but one that was looked at after it was found: on the internet, or
//! in a network that the operator allows. Redirects are not followed, and no proxy is asked.

use std::error::Error as StdError;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{Client, Method};
use toolgate_types::network::{Network, inside};
use url::{Host, Url};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// The longest wait that an API is believed to ask for.
const LONGEST_WAIT: u64 = 86_400;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The address is one that must not be reached. Nothing was sent.
    #[error("{0}")]
    Blocked(#[from] Blocked),
    /// Nobody is there. Nothing was sent.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// The connection broke; what was done is not known.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// It gave more than may be given.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    /// It wants the request elsewhere.
    #[error("it redirects to `{0}`, which is not followed")]
    Redirect(String),
}

/// An address that must not be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("its host `{host}` leads to {what}, which is not allowed")]
pub struct Blocked {
    host: String,
    what: &'static str,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// What the status is called.
    pub(super) reason: &'static str,
    pub(super) kind: String,
    pub(super) retry_after: Option<Duration>,
    pub(super) bytes: Vec<u8>,
}

/// What makes connections, and to whom.
#[derive(Debug, Clone)]
pub(super) struct Sender {
    client: Client,
    allowed: Arc<[Network]>,
}

impl Sender {
    pub(super) fn new(allowed: &[Network]) -> Result<Self, reqwest::Error> {
        let allowed: Arc<[Network]> = allowed.into();
        let client = Client::builder()
            .dns_resolver(Arc::new(Guard { allowed: Arc::clone(&allowed) }))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT)
            .pool_idle_timeout(Duration::from_secs(20))
            .build()?;
        Ok(Self { client, allowed })
    }

    /// Sends a request and reads the answer, up to so many bytes.
    pub(super) async fn send(
        &self,
        method: &str,
        url: Url,
        headers: HeaderMap,
        body: Option<Vec<u8>>,
        most: usize,
    ) -> Result<Answer, SendError> {
        self.literal(&url)?;
        let method = Method::from_bytes(method.as_bytes())
            .map_err(|_| SendError::Unreachable("no method".to_owned()))?;
        let mut request = self.client.request(method, url).headers(headers);
        if let Some(body) = body {
            request = request.body(body);
        }
        let mut response = request.send().await.map_err(failed)?;
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
        let seconds = text(RETRY_AFTER).and_then(|wait| seconds(wait.trim()));
        let retry_after = seconds.map(|seconds| Duration::from_secs(seconds.min(LONGEST_WAIT)));
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            if bytes.len() + chunk.len() > most {
                return Err(SendError::TooLarge(most));
            }
            bytes.extend_from_slice(&chunk);
        }
        let reason = status.canonical_reason().unwrap_or_default();
        Ok(Answer { status: status.as_u16(), reason, kind, retry_after, bytes })
    }

    /// An address that is written as numbers is not asked for by name.
    fn literal(&self, url: &Url) -> Result<(), Blocked> {
        let address = match url.host() {
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            Some(Host::Domain(_)) | None => return Ok(()),
        };
        admit(url.host_str().unwrap_or_default(), address, &self.allowed)
    }
}

/// A wait as seconds or as a date.
fn seconds(text: &str) -> Option<u64> {
    if let Ok(seconds) = text.parse() {
        return Some(seconds);
    }
    let at = httpdate::parse_http_date(text).ok()?;
    Some(at.duration_since(std::time::SystemTime::now()).unwrap_or_default().as_secs())
}

fn admit(host: &str, address: IpAddr, allowed: &[Network]) -> Result<(), Blocked> {
    match inside(address).filter(|_| !allowed.iter().any(|network| network.contains(address))) {
        Some(what) => Err(Blocked { host: host.to_owned(), what }),
        None => Ok(()),
    }
}

/// The addresses of a name, where every one of them may be reached.
fn all_admitted(name: &str, found: Vec<SocketAddr>, allowed: &[Network]) -> Result<Vec<SocketAddr>, Blocked> {
    found.iter().try_for_each(|address| admit(name, address.ip(), allowed))?;
    Ok(found)
}

/// Finds addresses by name, and lets none through that is not allowed: a name with one good and one bad address is
/// refused as a whole.
struct Guard {
    allowed: Arc<[Network]>,
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = Arc::clone(&self.allowed);
        Box::pin(async move {
            let name = name.as_str();
            let bare = name.trim_end_matches('.').to_ascii_lowercase();
            let found = if bare == "localhost" || bare.ends_with(".localhost") {
                // This machine, whatever the network says of the name; by the address that is allowed.
                let both = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), (Ipv6Addr::LOCALHOST, 0).into()];
                let may = |address: &SocketAddr| admit(name, address.ip(), &allowed).is_ok();
                let found: Vec<_> = both.into_iter().filter(may).collect();
                if found.is_empty() {
                    admit(name, both[0].ip(), &allowed)?;
                }
                found
            } else {
                all_admitted(name, tokio::net::lookup_host((name, 0)).await?.collect(), &allowed)?
            };
            let addresses: Addrs = Box::new(found.into_iter());
            Ok(addresses)
        })
    }
}

/// Why nothing came back. The address stays out of it: it may hold a credential.
fn failed(error: reqwest::Error) -> SendError {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(&error);
    while let Some(error) = cause {
        if let Some(blocked) = error.downcast_ref::<Blocked>() {
            return SendError::Blocked(blocked.clone());
        }
        cause = error.source();
    }
    if error.is_connect() { SendError::Unreachable(told(error)) } else { broken(error) }
}

fn broken(error: reqwest::Error) -> SendError {
    SendError::Broken(told(error))
}

/// The innermost cause, which says the most.
fn told(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn StdError = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// A header, if it can be sent.
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
        let sender = Sender::new(&allowed).unwrap();
        let url = Url::parse(address).unwrap();
        let outcome = sender.send("GET", url, HeaderMap::new(), None, 1 << 10).await;
        match outcome {
            Err(SendError::Blocked(_)) => "blocked".to_owned(),
            Err(SendError::Unreachable(_)) => "unreachable".to_owned(),
            other => format!("{other:?}"),
        }
    }

    /// However this machine and inner networks are spelled, no packet goes there.
    #[tokio::test]
    async fn addresses_that_lead_inside() {
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
    async fn networks_that_are_allowed_and_no_other() {
        assert_eq!(refused("http://127.0.0.1:1/", &["127.0.0.0/8"]).await, "unreachable");
        assert_eq!(refused("http://127.0.0.1:1/", &["10.0.0.0/8"]).await, "blocked");
        assert_eq!(refused("http://localhost:1/", &["127.0.0.0/8"]).await, "unreachable");
        assert_eq!(refused("http://localhost:1/", &["10.0.0.0/8"]).await, "blocked");
        assert_eq!(refused("http://[::ffff:127.0.0.1]:1/", &["127.0.0.0/8"]).await, "unreachable");
    }

    /// A name counts by all that it leads to.
    #[test]
    fn names_that_lead_inside() {
        let admitted = |addresses: &[&str]| {
            let found =
                addresses.iter().map(|address| SocketAddr::new(address.parse().unwrap(), 0)).collect();
            all_admitted("rebind.test", found, &["10.1.0.0/16".parse().unwrap()]).map(|found| found.len())
        };
        assert_eq!(admitted(&["8.8.8.8", "2606:4700::1111", "10.1.2.3"]), Ok(3));
        let blocked = |what| Err(Blocked { host: "rebind.test".to_owned(), what });
        assert_eq!(admitted(&["8.8.8.8", "10.2.0.1"]), blocked("a private network"));
        assert_eq!(admitted(&["::ffff:169.254.169.254"]), blocked("a cloud's metadata"));
        assert_eq!(admitted(&["8.8.8.8", "::1"]), blocked("this machine"));
    }

    #[test]
    fn waits() {
        assert_eq!(seconds("7"), Some(7));
        assert_eq!(seconds("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(seconds("soon"), None);
    }
}
