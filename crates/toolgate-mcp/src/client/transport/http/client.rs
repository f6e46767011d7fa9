//! HTTP client shared by the HTTP transports: pooling, redirects within the origin, fixed headers, descriptive errors.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION,
    WWW_AUTHENTICATE,
};
use reqwest::{Method, StatusCode, redirect};
use tokio::time::timeout;
use toolgate_http::client::ClientError;
use url::Url;

use super::super::tls::{self, FileStamps};
use super::super::{OpenError, RemoteOptions, redacted_url, redirect_error, retry_after, root_cause};
use super::SESSION_ID;
use super::plain::{self, PlainPool};
use crate::client::oauth::{Authorization, DPOP, TokenSource};
use crate::link::LinkError;
use crate::network::BlockedAddress;

/// Redirects of one request that are followed.
const MAX_REDIRECTS: usize = 5;
/// Limits for reading the body of an error response.
const MAX_ERROR_BODY_BYTES: usize = 64 << 10;
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Part of it that errors show.
const MAX_SHOWN_BYTES: usize = 2 << 10;

/// `Accept` values.
pub(in crate::client::transport) const EITHER: &str = "application/json, text/event-stream";
pub(in crate::client::transport) const EVENTS: &str = "text/event-stream";
/// Usual number of headers of a request, besides the configured ones.
const USUAL_HEADERS: usize = 10;
/// `User-Agent` value.
pub(super) const TOOLGATE_AGENT: &str = concat!("toolgate/", env!("CARGO_PKG_VERSION"));

/// HTTP client for one server.
pub(in crate::client::transport) struct HttpClient {
    pub(in crate::client::transport) options: RemoteOptions,
    /// Configured headers, sent with every request.
    configured_headers: HeaderMap,
    /// URL for error messages.
    pub(in crate::client::transport) shown: String,
    pool: ConnectionPool,
}

/// Headers of one request: the configured ones, and those of the protocol. The latter override the former.
#[derive(Default)]
pub(in crate::client::transport) struct RequestHeaders<'a> {
    configured: Option<&'a HeaderMap>,
    /// Each name once. The values are valid header values.
    protocol: Vec<(HeaderName, Cow<'a, [u8]>)>,
}

impl<'a> RequestHeaders<'a> {
    pub(in crate::client::transport) fn set(&mut self, name: HeaderName, value: impl Into<Cow<'a, [u8]>>) {
        let value = value.into();
        match self.protocol.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.protocol.push((name, value)),
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&HeaderName, &[u8])> {
        let is_overridden = |name: &HeaderName| self.protocol.iter().any(|(set, _)| set == name);
        let configured = self.configured.into_iter().flatten().filter(move |(name, _)| !is_overridden(name));
        let protocol = self.protocol.iter().map(|(name, value)| (name, &**value));
        configured.map(|(name, value)| (name, value.as_bytes())).chain(protocol)
    }

    /// Returns all headers, marked as sensitive where they may hold a credential.
    fn to_map(&self) -> HeaderMap {
        let to_header = |(name, value): (&HeaderName, &[u8])| {
            let mut value = HeaderValue::from_bytes(value).ok()?;
            let is_configured = !self.protocol.iter().any(|(set, _)| set == name);
            value.set_sensitive(is_configured || [AUTHORIZATION, SESSION_ID].contains(name));
            Some((name.clone(), value))
        };
        self.all().filter_map(to_header).collect()
    }
}

/// Connection pool of a client.
enum ConnectionPool {
    /// Without TLS.
    Plain(Arc<PlainPool>),
    /// With TLS, or with credentials in the URL.
    Reqwest(Mutex<ReqwestClient>),
}

/// HTTP response.
pub(in crate::client::transport) enum HttpResponse {
    Plain(plain::PlainResponse),
    Reqwest(reqwest::Response),
}

impl HttpResponse {
    pub(in crate::client::transport) fn status(&self) -> StatusCode {
        match self {
            Self::Plain(answer) => answer.status,
            Self::Reqwest(response) => response.status(),
        }
    }

    pub(in crate::client::transport) fn headers(&self) -> &HeaderMap {
        match self {
            Self::Plain(answer) => &answer.headers,
            Self::Reqwest(response) => response.headers(),
        }
    }

    /// The bytes of the body that are still to be read, if they can be read in one piece.
    pub(in crate::client::transport) fn body_length(&self) -> Option<u64> {
        match self {
            Self::Plain(answer) => answer.body_length(),
            Self::Reqwest(_) => None,
        }
    }

    /// Reads more of a body of [known length](Self::body_length). Returns the body when it is complete.
    pub(in crate::client::transport) async fn buffer_body(&mut self) -> Result<Option<Bytes>, BodyError> {
        match self {
            Self::Plain(answer) => answer.buffer_body().await.map_err(BodyError::Plain),
            Self::Reqwest(response) => response.chunk().await.map_err(BodyError::Reqwest),
        }
    }

    /// Reads the next chunk of the body.
    pub(in crate::client::transport) async fn chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        match self {
            Self::Plain(answer) => answer.chunk().await.map_err(BodyError::Plain),
            Self::Reqwest(response) => response.chunk().await.map_err(BodyError::Reqwest),
        }
    }
}

/// Failure while reading a body.
pub(in crate::client::transport) enum BodyError {
    Plain(ClientError),
    Reqwest(reqwest::Error),
}

/// HTTPS client and the version of the certificate files it was built with.
struct ReqwestClient {
    client: reqwest::Client,
    stamp: FileStamps,
}

/// Response with an error status.
pub(in crate::client::transport) struct ErrorResponse {
    pub(in crate::client::transport) status: StatusCode,
    pub(in crate::client::transport) body: Bytes,
    challenge: Option<String>,
    retry_after: Option<Duration>,
    is_text: bool,
}

impl HttpClient {
    pub(in crate::client::transport) fn new(options: RemoteOptions) -> Result<Self, OpenError> {
        if !matches!(options.url.scheme(), "http" | "https") || options.url.host().is_none() {
            let schemes = "`http://` or `https://`";
            return Err(OpenError::UnsupportedUrl { url: redacted_url(&options.url), schemes });
        }
        let mut configured_headers = HeaderMap::new();
        for (name, value) in header_pairs(&options)? {
            configured_headers.append(name, value);
        }
        let pool = match PlainPool::new(&options) {
            Some(plain) => ConnectionPool::Plain(plain),
            None => {
                let stamp = tls::file_stamps(&options.tls);
                ConnectionPool::Reqwest(Mutex::new(ReqwestClient { client: build(&options)?, stamp }))
            }
        };
        Ok(Self { configured_headers, shown: redacted_url(&options.url), pool, options })
    }

    /// Maximum number of concurrent requests.
    pub(super) fn max_concurrent(&self) -> usize {
        self.options.max_concurrent
    }

    /// Headers for a request: the configured ones, with room for more.
    pub(in crate::client::transport) fn headers(&self) -> RequestHeaders<'_> {
        let configured = Some(&self.configured_headers).filter(|configured| !configured.is_empty());
        RequestHeaders { configured, protocol: Vec::with_capacity(USUAL_HEADERS) }
    }

    /// Sends a request with [headers](Self::headers), waits for the head of the response, and follows redirects within
    /// the origin: those cannot carry credentials to another host.
    pub(in crate::client::transport) async fn send<'a>(
        &self,
        method: Method,
        url: &Url,
        accept: &'static str,
        headers: impl Fn() -> RequestHeaders<'a>,
        body: Option<&Bytes>,
    ) -> Result<HttpResponse, LinkError> {
        let mut url = Cow::Borrowed(url);
        for _ in 0..=MAX_REDIRECTS {
            let response = match &self.options.tokens {
                None => self.send_once(method.clone(), &url, accept, headers(), body).await?,
                Some(tokens) => {
                    let sending = self.send_authorized(tokens, &method, &url, accept, &headers, body);
                    Box::pin(sending).await?
                }
            };
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                // Decompression removes the header, so a remaining one is an encoding we did not offer.
                return match response.headers().get(CONTENT_ENCODING).map(|value| excerpt(value.as_bytes())) {
                    Some(encoding) if !encoding.eq_ignore_ascii_case("identity") => {
                        Err(LinkError::Encoding(encoding.chars().take(64).collect()))
                    }
                    _ => Ok(response),
                };
            }
            let location = response.headers().get(LOCATION).map(HeaderValue::as_bytes);
            // A 303 refers to the result of a request that was executed; sent again, it would be executed twice.
            let may_follow = response.status() != StatusCode::SEE_OTHER || method == Method::GET;
            match same_origin_target(&url, location).filter(|_| may_follow) {
                Some(target) => url = Cow::Owned(target),
                None => return Err(redirect_error(&url, location)),
            }
        }
        Err(LinkError::Io(format!("`{}` redirects more than {MAX_REDIRECTS} times", self.shown)))
    }

    /// Sends a request with a token to one URL. If the server requires another token that can be obtained without a
    /// browser, the request is sent a second time.
    async fn send_authorized<'a>(
        &self,
        tokens: &TokenSource,
        method: &Method,
        url: &Url,
        accept: &'static str,
        headers: impl Fn() -> RequestHeaders<'a>,
        body: Option<&Bytes>,
    ) -> Result<HttpResponse, LinkError> {
        let (mut retried, mut has_new_nonce) = (false, false);
        loop {
            let Authorization { token, proof, generation } = tokens.authorize(method.as_str(), url).await?;
            let mut headers = headers();
            if let Some(token) = token {
                headers.set(AUTHORIZATION, token.as_bytes().to_vec());
            }
            let is_bound = proof.is_some();
            if let Some(proof) = proof {
                headers.set(DPOP, proof.as_bytes().to_vec());
            }
            let sending = self.send_once(method.clone(), url, accept, headers, body);
            let response = sending.await?;
            let is_success = response.status().is_success();
            if is_success && !is_bound {
                return Ok(response);
            }
            let challenge = challenge(response.headers());
            let wants_nonce = is_bound && tokens.take_nonce(response.headers(), challenge.as_deref());
            if is_success {
                return Ok(response);
            }
            // The token is good; the server wants its own nonce in the proof.
            if wants_nonce && !std::mem::replace(&mut has_new_nonce, true) {
                continue;
            }
            match tokens.demand(response.status().as_u16(), challenge, generation) {
                None => return Ok(response),
                Some(demand) if retried => return Err(LinkError::LoginRequired(demand)),
                Some(demand) => Box::pin(tokens.renew(&demand)).await?,
            }
            retried = true;
        }
    }

    async fn send_once(
        &self,
        method: Method,
        url: &Url,
        accept: &'static str,
        mut headers: RequestHeaders<'_>,
        body: Option<&Bytes>,
    ) -> Result<HttpResponse, LinkError> {
        headers.set(ACCEPT, accept.as_bytes());
        if body.is_some() {
            headers.set(CONTENT_TYPE, &b"application/json"[..]);
        }
        Ok(match &self.pool {
            ConnectionPool::Plain(plain) => {
                let sent = plain.send(method, url, &headers, body).await;
                HttpResponse::Plain(sent.map_err(|failure| self.describe_plain_error(&failure))?)
            }
            ConnectionPool::Reqwest(client) => {
                self.options.addresses.check_literal(url).map_err(|blocked| self.blocked_error(&blocked))?;
                let request = self.current(client).request(method, url.clone()).headers(headers.to_map());
                let request = match body {
                    Some(body) => request.body(body.clone()),
                    None => request,
                };
                let sent = request.send().await;
                HttpResponse::Reqwest(sent.map_err(|error| self.describe_error(&BodyError::Reqwest(error)))?)
            }
        })
    }

    /// Returns the client, rebuilt if certificate files changed.
    fn current(&self, cached: &Mutex<ReqwestClient>) -> reqwest::Client {
        let mut cached = cached.lock();
        if !self.options.tls.is_default() {
            let stamp = tls::file_stamps(&self.options.tls);
            // Files that are being replaced may be inconsistent; the next request tries again.
            if stamp != cached.stamp
                && let Ok(client) = build(&self.options)
            {
                *cached = ReqwestClient { client, stamp };
            }
        }
        cached.client.clone()
    }

    /// Converts an error, with the URL redacted.
    pub(in crate::client::transport) fn describe_error(&self, broken: &BodyError) -> LinkError {
        let shown = &self.shown;
        let error = match broken {
            BodyError::Plain(error) => return self.broken_connection_error(error),
            BodyError::Reqwest(error) => error,
        };
        if let Some(blocked) = BlockedAddress::find(error) {
            self.blocked_error(blocked)
        } else if let Some(failure) = tls::tls_error(error, shown) {
            failure
        } else if error.is_connect() && error.is_timeout() {
            self.connect_timeout_error()
        } else if error.is_connect() {
            LinkError::Unreachable(format!("cannot connect to `{shown}`: {}", root_cause(error)))
        } else if error.is_decode() {
            LinkError::Io(format!("`{shown}` sent a body that cannot be decompressed: {}", root_cause(error)))
        } else {
            self.broken_connection_error(error)
        }
    }

    fn describe_plain_error(&self, failure: &plain::PlainError) -> LinkError {
        match failure {
            plain::PlainError::Unreachable(why) => {
                LinkError::Unreachable(format!("cannot connect to `{}`: {why}", self.shown))
            }
            plain::PlainError::Blocked(blocked) => self.blocked_error(blocked),
            plain::PlainError::ConnectTimeout => self.connect_timeout_error(),
            plain::PlainError::Broken(error) => self.broken_connection_error(error),
        }
    }

    fn blocked_error(&self, blocked: &BlockedAddress) -> LinkError {
        LinkError::Blocked { url: self.shown.clone(), blocked: blocked.clone() }
    }

    fn connect_timeout_error(&self) -> LinkError {
        let within = self.options.connect_timeout;
        LinkError::Unreachable(format!("cannot connect to `{}` within {within:?}", self.shown))
    }

    fn broken_connection_error(&self, error: &(dyn std::error::Error + 'static)) -> LinkError {
        LinkError::Io(format!("the connection to `{}` broke: {}", self.shown, root_cause(error)))
    }
}

/// Returns the target of a redirect if it has the same origin. It gets the credentials of the URL, and no others.
fn same_origin_target(from: &Url, location: Option<&[u8]>) -> Option<Url> {
    let mut target = from.join(std::str::from_utf8(location?).ok()?).ok()?;
    target.set_username(from.username()).ok()?;
    target.set_password(from.password()).ok()?;
    (target.origin() == from.origin()).then_some(target)
}

#[test]
fn redirects_keep_the_credentials_of_the_url() {
    let target = |from: &str, to: &str| {
        same_origin_target(&Url::parse(from).unwrap(), Some(to.as_bytes())).map(String::from)
    };
    let of_ann = Some("http://ann:p@h/mcp/".to_owned());
    assert_eq!(target("http://ann:p@h/mcp", "/mcp/"), of_ann);
    assert_eq!(target("http://ann:p@h/mcp", "http://h:80/mcp/"), of_ann);
    assert_eq!(target("http://ann:p@h/mcp", "http://bob:q@h/mcp/"), of_ann);
    for other in ["https://h/mcp", "http://other/mcp", "http://h:81/mcp", "//other/mcp", "file:///etc/passwd"]
    {
        assert_eq!(target("http://ann:p@h/mcp", other), None, "{other}");
    }
}

fn build(options: &RemoteOptions) -> Result<reqwest::Client, OpenError> {
    let mut builder = reqwest::Client::builder()
        .user_agent(TOOLGATE_AGENT)
        .redirect(redirect::Policy::none())
        // Network access is defined by the configuration, never by proxy environment variables.
        .no_proxy()
        .dns_resolver(Arc::new(options.addresses.clone()))
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(30))
        .connect_timeout(options.connect_timeout)
        .pool_idle_timeout(Duration::from_secs(60))
        .http2_max_header_list_size(64 << 10);
    let tls = if options.url.scheme() == "https" {
        let mut tls = rustls::ClientConfig::clone(&*tls::load(&options.tls)?);
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Some(tls)
    } else {
        None
    };
    builder = match tls {
        Some(tls) => builder.tls_backend_preconfigured(tls),
        // Redirects are not followed, so a client for `http://` never needs the platform's root certificates.
        None => builder.tls_certs_only([]),
    };
    builder.build().map_err(|error| OpenError::Tls(error.into()))
}

/// Parses the configured headers and marks their values as sensitive.
pub(in crate::client::transport) fn header_pairs(
    options: &RemoteOptions,
) -> Result<Vec<(HeaderName, HeaderValue)>, OpenError> {
    let pairs = options.headers.iter().map(|(name, value)| {
        let wrong = || OpenError::Header(name.chars().take(64).collect());
        let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        let mut value = HeaderValue::from_str(value.expose()).map_err(|_| wrong())?;
        value.set_sensitive(true);
        Ok((parsed, value))
    });
    pairs.collect()
}

impl ErrorResponse {
    /// Reads the start of the body.
    pub(in crate::client::transport) async fn read(mut response: HttpResponse) -> Self {
        let status = response.status();
        let kind = content_type(response.headers());
        let is_text = kind == "text/plain" || kind.ends_with("/json") || kind.ends_with("+json");
        let challenge = challenge(response.headers());
        let retry_after = retry_after(response.headers());
        let mut body = Vec::new();
        let _ = timeout(ERROR_BODY_TIMEOUT, async {
            while let Ok(Some(chunk)) = response.chunk().await {
                body.extend_from_slice(&chunk[..chunk.len().min(MAX_ERROR_BODY_BYTES - body.len())]);
                if body.len() >= MAX_ERROR_BODY_BYTES {
                    break;
                }
            }
        })
        .await;
        Self { status, body: body.into(), challenge, retry_after, is_text }
    }

    pub(in crate::client::transport) fn wants_login(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED || self.challenge.is_some()
    }
}

impl From<ErrorResponse> for LinkError {
    fn from(error: ErrorResponse) -> Self {
        let start = &error.body[..error.body.len().min(MAX_SHOWN_BYTES)];
        let body = error.is_text.then(|| excerpt(start)).filter(|body| !body.is_empty());
        let ErrorResponse { status, challenge, retry_after, .. } = error;
        Self::Status { status: status.as_u16(), body, challenge, retry_after }
    }
}

/// Joins the `WWW-Authenticate` headers.
fn challenge(headers: &HeaderMap) -> Option<String> {
    let challenges = headers.get_all(WWW_AUTHENTICATE).iter();
    let challenges: Vec<_> = challenges.filter_map(|value| value.to_str().ok()).collect();
    Some(challenges.join(", ")).filter(|challenge| !challenge.is_empty())
}

/// Removes control characters from a server's text, so that it can be shown.
pub(in crate::client::transport) fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text =
        text.trim_end_matches('\u{fffd}').replace(|c: char| c.is_control() && c != '\n' && c != '\t', "");
    text.trim().to_owned()
}

/// Media type in lower case, without parameters.
pub(in crate::client::transport) fn content_type(headers: &HeaderMap) -> Cow<'_, str> {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = value.split(';').next().unwrap_or_default().trim();
    if kind.bytes().any(|byte| byte.is_ascii_uppercase()) {
        kind.to_ascii_lowercase().into()
    } else {
        kind.into()
    }
}

#[test]
fn protocol_headers_override_configured_ones() {
    let mut configured = HeaderMap::new();
    for (name, value) in [("accept", "text/html"), ("authorization", "Bearer k"), ("x-team", "ops")] {
        configured.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let mut headers = RequestHeaders { configured: Some(&configured), ..Default::default() };
    headers.set(ACCEPT, EVENTS.as_bytes());
    headers.set(ACCEPT, EITHER.as_bytes());
    headers.set(SESSION_ID, &b"s"[..]);
    let mut sent: Vec<_> = headers.all().map(|(name, value)| (name.as_str(), value)).collect();
    sent.sort_unstable();
    let expected: [(&str, &[u8]); 4] = [
        ("accept", EITHER.as_bytes()),
        ("authorization", b"Bearer k"),
        ("mcp-session-id", b"s"),
        ("x-team", b"ops"),
    ];
    assert_eq!(sent, expected);
    let map = headers.to_map();
    assert_eq!(map.len(), expected.len());
    assert!(
        map[AUTHORIZATION].is_sensitive() && map[SESSION_ID].is_sensitive() && !map[ACCEPT].is_sensitive()
    );
}
