//! Transports: bytes on one side, a [`Link`](crate::Link) on the other.
//!
//! All four behave alike to the owner of the link. Invariant: memory per message is bounded by the scan limits on every
//! transport, a reader never waits for a writer, redirects to another origin are not followed, and errors show URLs only as
//! [`redacted_url`] returns them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use toolgate_types::Secret;
use toolgate_types::server::UpstreamTls;
use url::Url;

use crate::link::LinkError;
use crate::network::AddressPolicy;
use crate::oauth::TokenSource;

pub mod events;
pub mod http;
pub mod lines;
pub mod sse;
pub(crate) mod tls;
pub mod websocket;

/// Maximum length of a URL from a server in an error message.
const MAX_SHOWN_CHARS: usize = 256;

/// Adds up to 50 % random jitter to a delay, so that clients that start to wait together do not reconnect together. The
/// only definition of jitter for delays before another attempt.
pub fn with_jitter(pause: Duration) -> Duration {
    pause.mul_f64(1.0 + fastrand::f64() / 2.0)
}

/// The longest `Retry-After` that is honored.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(86_400);

/// Parses the `Retry-After` header of a response: seconds or a date.
pub fn retry_after(headers: &reqwest::header::HeaderMap) -> Option<Duration> {
    let text = headers.get(reqwest::header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = httpdate::parse_http_date(text).ok()?;
            at.duration_since(std::time::SystemTime::now()).unwrap_or_default()
        }
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

#[test]
fn parses_retry_after() {
    let parse = |text: &'static str| {
        let value = reqwest::header::HeaderValue::from_static(text);
        retry_after(&[(reqwest::header::RETRY_AFTER, value)].into_iter().collect())
    };
    assert_eq!(parse(" 7 "), Some(Duration::from_secs(7)));
    assert_eq!(parse("999999999"), Some(MAX_RETRY_AFTER));
    assert_eq!(parse("Thu, 01 Jan 1970 00:00:00 GMT"), Some(Duration::ZERO));
    assert_eq!((parse("soon"), parse("-1")), (None, None));
}

/// URL of a server and connection settings.
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    pub url: Url,
    /// Headers of every request.
    pub headers: Vec<(String, Secret)>,
    /// Limit for connecting, including everything before the first message can be sent.
    pub connect_timeout: Duration,
    /// Concurrent requests over HTTP, each on its own connection; further ones wait.
    pub max_concurrent: usize,
    /// Limit for silence on a stream; see [`http`] for its definition.
    pub sse_read_timeout: Duration,
    /// End the session on the server when closing.
    pub terminate_on_close: bool,
    /// Private CA, client certificate, revocation list.
    pub tls: UpstreamTls,
    /// Addresses that connections may use.
    pub addresses: AddressPolicy,
    /// OAuth tokens for every HTTP request; not used if the headers contain credentials.
    pub tokens: Option<Arc<TokenSource>>,
}

impl RemoteOptions {
    /// Default options for a URL.
    pub fn new(url: Url) -> Self {
        Self {
            addresses: AddressPolicy::of_server(&url, None),
            url,
            headers: Vec::new(),
            connect_timeout: Duration::from_secs(10),
            max_concurrent: 64,
            sse_read_timeout: Duration::from_secs(300),
            terminate_on_close: true,
            tls: UpstreamTls::default(),
            tokens: None,
        }
    }
}

/// Failure to open a connection.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The transport does not support the URL.
    #[error("unsupported URL `{url}`: this transport needs {schemes}")]
    UnsupportedUrl {
        url: String,
        /// Supported schemes.
        schemes: &'static str,
    },
    #[error("header `{0}` has an invalid name or value")]
    Header(String),
    #[error("cannot load certificates from `{}`", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("the certificates cannot be used")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection failed, or the server rejected it.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// Formats a URL without user, password, query and fragment, which may hold secrets.
pub fn redacted_url(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
}

/// Creates the error for a redirect; `to` is the `Location` header.
fn redirect_error(from: &Url, to: Option<&[u8]>) -> LinkError {
    let to = to.and_then(|to| std::str::from_utf8(to).ok()).and_then(|to| from.join(to).ok());
    LinkError::Redirect(to.map(|to| redacted_url(&to).chars().take(MAX_SHOWN_CHARS).collect()))
}

/// Returns the innermost error message, which is the most useful one.
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod testing;

#[test]
fn jitter_adds_up_to_half() {
    let delay = Duration::from_secs(2);
    let range = delay..=delay.mul_f64(1.5);
    assert!((0..1_000).map(|_| with_jitter(delay)).all(|delay| range.contains(&delay)));
}

#[test]
fn redacts_secrets_in_urls() {
    let url = Url::parse("https://ann:pass@example.com:8443/mcp?token=t#f").unwrap();
    assert_eq!(redacted_url(&url), "https://example.com:8443/mcp");
}
