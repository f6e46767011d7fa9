//! HTTP as all our HTTP transports speak it: pooled, without redirects, with what we send with
//! every request, and with errors that say what happened.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION,
    WWW_AUTHENTICATE,
};
use reqwest::{Method, StatusCode, redirect};
use tokio::time::timeout;
use url::Url;

use super::super::tls::{self, Stamp};
use super::super::{OpenError, RemoteOptions, redirect as redirect_to, root, shown};
use super::plain::{self, Plain};
use crate::link::LinkError;

/// What is read of an answer that is no success, in bytes and in time.
const REFUSAL_BYTES: usize = 64 << 10;
const REFUSAL_TIME: Duration = Duration::from_secs(5);
/// What is shown of it.
const SHOWN_BYTES: usize = 2 << 10;

/// The kinds of body that we take.
pub(in crate::transport) const EITHER: &str = "application/json, text/event-stream";
pub(in crate::transport) const EVENTS: &str = "text/event-stream";
/// Headers of a request, mostly.
const MOST_HEADERS: usize = 12;
/// What we call ourselves.
pub(super) const AGENT: &str = concat!("toolgate/", env!("CARGO_PKG_VERSION"));

/// A client for one server.
pub(in crate::transport) struct Client {
    pub(in crate::transport) options: RemoteOptions,
    /// Headers of every request.
    fixed: HeaderMap,
    /// The address, as it may be shown.
    pub(in crate::transport) shown: String,
    way: Way,
}

/// How requests get to the server.
enum Way {
    /// Without TLS.
    Plain(Arc<Plain>),
    /// With TLS, or with a name and a password in the address.
    Other(Mutex<Built>),
}

/// The answer to a request.
pub(in crate::transport) enum Response {
    /// Without TLS.
    Plain(plain::Answer),
    /// With TLS.
    Other(reqwest::Response),
}

impl Response {
    pub(in crate::transport) fn status(&self) -> StatusCode {
        match self {
            Self::Plain(answer) => answer.status,
            Self::Other(response) => response.status(),
        }
    }

    pub(in crate::transport) fn headers(&self) -> &HeaderMap {
        match self {
            Self::Plain(answer) => &answer.headers,
            Self::Other(response) => response.headers(),
        }
    }

    /// The next part of the body.
    pub(in crate::transport) async fn chunk(&mut self) -> Result<Option<Bytes>, Broken> {
        match self {
            Self::Plain(answer) => answer.chunk().await.map_err(Broken::Plain),
            Self::Other(response) => response.chunk().await.map_err(Broken::Other),
        }
    }
}

/// A body that could not be read.
pub(in crate::transport) enum Broken {
    /// Without TLS.
    Plain(hyper::Error),
    /// With TLS.
    Other(reqwest::Error),
}

/// A client and the certificates it was made with.
struct Built {
    client: reqwest::Client,
    stamp: Stamp,
}

/// An answer that is no success.
pub(in crate::transport) struct Refusal {
    pub(in crate::transport) status: StatusCode,
    pub(in crate::transport) body: Bytes,
    challenge: Option<String>,
    readable: bool,
}

impl Client {
    pub(in crate::transport) fn new(options: RemoteOptions) -> Result<Self, OpenError> {
        if !matches!(options.url.scheme(), "http" | "https") || options.url.host().is_none() {
            let takes = "`http://` and `https://`";
            return Err(OpenError::Address { url: shown(&options.url), takes });
        }
        let mut fixed = HeaderMap::new();
        for (name, value) in header_pairs(&options)? {
            fixed.append(name, value);
        }
        let way = match Plain::new(&options.url, options.connect_timeout) {
            Some(plain) => Way::Plain(plain),
            None => {
                let stamp = tls::stamp(&options.tls);
                Way::Other(Mutex::new(Built { client: build(&options)?, stamp }))
            }
        };
        Ok(Self { fixed, shown: shown(&options.url), way, options })
    }

    /// Headers of every request, to which those of one are added.
    pub(in crate::transport) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(MOST_HEADERS);
        if !self.fixed.is_empty() {
            headers.extend(self.fixed.clone());
        }
        headers
    }

    /// Sends one request with [headers](Self::headers) and waits for the start of its answer. One that is refused for want of a
    /// token is sent again where a token can be had without a person.
    pub(in crate::transport) async fn send(
        &self,
        method: Method,
        url: &Url,
        accept: &'static str,
        headers: impl Fn() -> HeaderMap,
        body: Option<Bytes>,
    ) -> Result<Response, LinkError> {
        let Some(tokens) = &self.options.tokens else {
            return self.send_once(method, url, accept, headers(), body).await;
        };
        let mut renewed = false;
        loop {
            let (authorization, generation) = tokens.authorization().await;
            let mut headers = headers();
            if let Some(token) = authorization {
                headers.insert(AUTHORIZATION, token);
            }
            let sending = self.send_once(method.clone(), url, accept, headers, body.clone());
            let response = sending.await?;
            if response.status().is_success() {
                return Ok(response);
            }
            let challenge = challenge(response.headers());
            match tokens.demand(response.status().as_u16(), challenge, generation) {
                None => return Ok(response),
                Some(demand) if renewed => return Err(LinkError::Login(demand)),
                Some(demand) => Box::pin(tokens.renew(&demand)).await?,
            }
            renewed = true;
        }
    }

    async fn send_once(
        &self,
        method: Method,
        url: &Url,
        accept: &'static str,
        mut headers: HeaderMap,
        body: Option<Bytes>,
    ) -> Result<Response, LinkError> {
        // What the protocol says is said by us, whatever the configuration says.
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let response = match &self.way {
            Way::Plain(plain) => {
                let sent = plain.send(method, url, headers, body).await;
                Response::Plain(sent.map_err(|failure| self.explain_plain(&failure))?)
            }
            Way::Other(built) => {
                let request = self.current(built).request(method, url.clone()).headers(headers);
                let request = match body {
                    Some(body) => request.body(body),
                    None => request,
                };
                let sent = request.send().await;
                Response::Other(sent.map_err(|error| self.explain(&Broken::Other(error)))?)
            }
        };
        if matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
            return Err(redirect_to(url, response.headers().get(LOCATION).map(HeaderValue::as_bytes)));
        }
        // What was decompressed has no such header any more.
        match response.headers().get(CONTENT_ENCODING).map(|value| excerpt(value.as_bytes())) {
            Some(encoding) if !encoding.eq_ignore_ascii_case("identity") => {
                Err(LinkError::Encoding(encoding.chars().take(64).collect()))
            }
            _ => Ok(response),
        }
    }

    /// The client, made anew where certificates were renewed.
    fn current(&self, built: &Mutex<Built>) -> reqwest::Client {
        let mut built = built.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.options.tls.is_default() {
            let stamp = tls::stamp(&self.options.tls);
            // Files that are being written may not fit together yet; the next request tries again.
            if stamp != built.stamp
                && let Ok(client) = build(&self.options)
            {
                *built = Built { client, stamp };
            }
        }
        built.client.clone()
    }

    /// What happened, in words, without the address in full.
    pub(in crate::transport) fn explain(&self, broken: &Broken) -> LinkError {
        let shown = &self.shown;
        let error = match broken {
            Broken::Plain(error) => return self.broke(error),
            Broken::Other(error) => error,
        };
        if let Some(failure) = tls::failure(error, shown) {
            failure
        } else if error.is_connect() && error.is_timeout() {
            self.late()
        } else if error.is_connect() {
            LinkError::Unreachable(format!("cannot connect to `{shown}`: {}", root(error)))
        } else if error.is_decode() {
            LinkError::Io(format!("`{shown}` sent what cannot be decompressed: {}", root(error)))
        } else {
            self.broke(error)
        }
    }

    fn explain_plain(&self, failure: &plain::Failure) -> LinkError {
        match failure {
            plain::Failure::Unreachable(why) => {
                LinkError::Unreachable(format!("cannot connect to `{}`: {why}", self.shown))
            }
            plain::Failure::Late => self.late(),
            plain::Failure::Broken(error) => self.broke(error),
        }
    }

    fn late(&self) -> LinkError {
        let within = self.options.connect_timeout;
        LinkError::Unreachable(format!("cannot connect to `{}` within {within:?}", self.shown))
    }

    fn broke(&self, error: &(dyn std::error::Error + 'static)) -> LinkError {
        LinkError::Io(format!("the connection to `{}` broke: {}", self.shown, root(error)))
    }
}

fn build(options: &RemoteOptions) -> Result<reqwest::Client, OpenError> {
    let mut builder = reqwest::Client::builder()
        .user_agent(AGENT)
        .redirect(redirect::Policy::none())
        // What a call may reach is said by the configuration, never by the environment.
        .no_proxy()
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
        // Nothing is redirected, so a client for `http://` never needs the roots of the platform.
        None => builder.tls_certs_only([]),
    };
    builder.build().map_err(|error| OpenError::Tls(error.into()))
}

/// The headers of the options; their values are never shown.
pub(in crate::transport) fn header_pairs(
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

impl Refusal {
    /// Reads as much of a refusal as is of use.
    pub(in crate::transport) async fn read(mut response: Response) -> Self {
        let status = response.status();
        let kind = content_type(response.headers());
        let readable = kind == "text/plain" || kind.ends_with("/json") || kind.ends_with("+json");
        let challenge = challenge(response.headers());
        let mut body = Vec::new();
        let _ = timeout(REFUSAL_TIME, async {
            while let Ok(Some(chunk)) = response.chunk().await {
                body.extend_from_slice(&chunk[..chunk.len().min(REFUSAL_BYTES - body.len())]);
                if body.len() >= REFUSAL_BYTES {
                    break;
                }
            }
        })
        .await;
        Self { status, body: body.into(), challenge, readable }
    }

    pub(in crate::transport) fn wants_login(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED || self.challenge.is_some()
    }
}

impl From<Refusal> for LinkError {
    fn from(refusal: Refusal) -> Self {
        let start = &refusal.body[..refusal.body.len().min(SHOWN_BYTES)];
        let body = refusal.readable.then(|| excerpt(start)).filter(|body| !body.is_empty());
        Self::Status { status: refusal.status.as_u16(), body, challenge: refusal.challenge }
    }
}

/// What a server wants of whoever asks.
fn challenge(headers: &HeaderMap) -> Option<String> {
    let challenges = headers.get_all(WWW_AUTHENTICATE).iter();
    let challenges: Vec<_> = challenges.filter_map(|value| value.to_str().ok()).collect();
    Some(challenges.join(", ")).filter(|challenge| !challenge.is_empty())
}

/// Text of a server, fit to be shown in a line.
pub(in crate::transport) fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text =
        text.trim_end_matches('\u{fffd}').replace(|c: char| c.is_control() && c != '\n' && c != '\t', "");
    text.trim().to_owned()
}

/// The kind of a body, in lower case and without parameters.
pub(in crate::transport) fn content_type(headers: &HeaderMap) -> Cow<'_, str> {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = value.split(';').next().unwrap_or_default().trim();
    if kind.bytes().any(|byte| byte.is_ascii_uppercase()) {
        kind.to_ascii_lowercase().into()
    } else {
        kind.into()
    }
}
