//! HTTP client of a model: one request, one response, whole or streamed.
//!
//! Invariant: a response has at most [`MAX_RESPONSE`] bytes and is validated before it is parsed; redirects are not
//! followed, so that the key does not leak; no error contains the key, or more than one line of the provider's text.

use std::time::{Duration, SystemTime};

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde_json::Value as Json;
use toolgate_json::RawJson;
use toolgate_json::scan::ScanLimits;
use toolgate_mcp::transport::events::{SseEvent, SseParser};
use toolgate_mcp::with_jitter;
use toolgate_redact::mask_known;
use toolgate_redact::sanitize::sanitize;
use toolgate_types::Secret;
use url::Url;

use super::{ModelError, ModelErrorKind};

/// Bytes of a response, decompressed.
const MAX_RESPONSE: usize = 16 << 20;
/// Bytes of one event of a streamed response.
const MAX_EVENT: usize = 4 << 20;
/// Bytes of an error response.
const MAX_ERROR_BODY: usize = 64 << 10;
/// Characters of the provider's error message that are shown.
const MAX_MESSAGE_CHARS: usize = 300;
/// Backoff before the first retry, before jitter. It doubles with every attempt.
const FIRST_BACKOFF: Duration = Duration::from_millis(400);
/// Timeout of the TCP and TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest delay before a retry. If the provider requests more, the error is returned instead.
const MAX_BACKOFF: Duration = Duration::from_secs(120);

/// HTTP client of one model.
pub(super) struct ModelClient {
    http: reqwest::Client,
    /// Secrets to mask in errors.
    secrets: Vec<Secret>,
    /// Name of the model in errors.
    label: String,
}

pub(super) struct HttpRequest {
    pub(super) url: Url,
    pub(super) headers: Vec<(&'static str, Secret)>,
    pub(super) body: Vec<u8>,
}

impl ModelClient {
    pub(super) fn new(url: &Url, key: Option<&Secret>, label: String) -> Result<Self, ModelError> {
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("toolgate/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            // The configuration decides what may be reached, not the proxy variables of the environment.
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT);
        if url.scheme() == "http" {
            builder = builder.tls_certs_only([]);
        }
        let http = builder.build().map_err(|error| {
            ModelError::new(ModelErrorKind::Unreachable, format!("cannot create the HTTP client: {error}"))
        })?;
        Ok(Self { http, secrets: key.cloned().into_iter().collect(), label })
    }

    /// Sends a request. Returns the response if its status is a success.
    pub(super) async fn send(&self, post: HttpRequest) -> Result<Response, ModelError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in post.headers {
            let mut value = HeaderValue::from_str(value.expose()).map_err(|_| {
                ModelError::new(
                    ModelErrorKind::Unauthorized,
                    "the key of the model contains characters that an HTTP header cannot carry",
                )
            })?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(name), value);
        }
        let request = self.http.post(post.url).headers(headers).body(post.body);
        let response = request.send().await.map_err(|error| self.connection_error(error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.error_response(response).await)
    }

    /// Reads a response that is not streamed; also returns its size in bytes.
    pub(super) async fn read_json(&self, response: Response) -> Result<(Json, usize), ModelError> {
        let body = self.read_body(response, MAX_RESPONSE).await?;
        let size = body.len();
        Ok((self.parse(body.into(), MAX_RESPONSE)?, size))
    }

    /// Passes the events of a streamed response to `take` until it returns true. Returns the bytes read.
    pub(super) async fn read_events(
        &self,
        mut response: Response,
        mut take: impl FnMut(Json) -> Result<bool, ModelError>,
    ) -> Result<usize, ModelError> {
        let (mut parser, mut events, mut size) = (SseParser::new(MAX_EVENT), Vec::new(), 0);
        while let Some(chunk) = response.chunk().await.map_err(|error| self.connection_error(error))? {
            size += chunk.len();
            if size > MAX_RESPONSE {
                return Err(self.too_large(MAX_RESPONSE));
            }
            parser.feed(&chunk, &mut events).map_err(|error| self.malformed(&error.to_string()))?;
            for SseEvent { data, .. } in events.drain(..) {
                if data.is_empty() {
                    continue;
                }
                if &*data == b"[DONE]" || take(self.parse(data, MAX_EVENT)?)? {
                    return Ok(size);
                }
            }
        }
        Ok(size)
    }

    fn parse(&self, bytes: bytes::Bytes, size: usize) -> Result<Json, ModelError> {
        let raw = RawJson::new(bytes, ScanLimits { size, depth: 64 });
        let raw = raw.map_err(|error| self.malformed(&error.to_string()))?;
        raw.parse().map_err(|error| self.malformed(&error.to_string()))
    }

    async fn read_body(&self, mut response: Response, most: usize) -> Result<Vec<u8>, ModelError> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.connection_error(error))? {
            if body.len() + chunk.len() > most {
                return Err(self.too_large(most));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    async fn error_response(&self, response: Response) -> ModelError {
        let (status, headers) = (response.status(), response.headers().clone());
        let body = self.read_body(response, MAX_ERROR_BODY).await.unwrap_or_default();
        let body: Json = serde_json::from_slice(&body).unwrap_or_default();
        // Gemini wraps the error in a list of one.
        let error = body.get(0).unwrap_or(&body).get("error").cloned().unwrap_or(body);
        self.classify_error(Some(status), &error, retry_after(&headers))
    }

    /// Classifies an error of the provider, from an error response or from within a stream.
    pub(super) fn classify_error(
        &self,
        status: Option<StatusCode>,
        error: &Json,
        wait: Option<Duration>,
    ) -> ModelError {
        let text = error["message"].as_str().or_else(|| error.as_str()).unwrap_or_default();
        let code = ["code", "type", "status"].map(|key| error[key].as_str().unwrap_or_default()).join(" ");
        let kind = error_kind(status.map(|status| status.as_u16()), &code, text);
        let message =
            if text.is_empty() { String::new() } else { format!(": {}", self.mask_and_truncate(text)) };
        let answered = status.map_or_else(|| "failed".to_owned(), |status| format!("answered {status}"));
        let mut model_error = ModelError::new(kind, format!("{} {answered}{message}", self.label));
        model_error.retry_after = wait.or_else(|| gemini_delay(&error["details"]));
        model_error.hint = error_hint(kind, status).map(str::to_owned);
        model_error
    }

    fn mask_and_truncate(&self, text: &str) -> String {
        let line: Vec<_> = text.split_whitespace().collect();
        let masked = mask_known(&line.join(" "), &self.secrets);
        let cleaned = sanitize(&masked);
        match cleaned.char_indices().nth(MAX_MESSAGE_CHARS) {
            Some((end, _)) => format!("{}…", &cleaned[..end]),
            None => cleaned.into_owned(),
        }
    }

    pub(super) fn malformed(&self, why: &str) -> ModelError {
        ModelError::new(ModelErrorKind::Malformed, format!("invalid response of {}: {why}", self.label))
    }

    fn too_large(&self, most: usize) -> ModelError {
        let message = format!("{} answered with more than {most} bytes", self.label);
        ModelError::new(ModelErrorKind::Malformed, message)
    }

    /// Error of a stream that ended before the reply was complete.
    pub(super) fn incomplete(&self) -> ModelError {
        ModelError::new(ModelErrorKind::Unreachable, format!("the response of {} broke off", self.label))
    }

    pub(super) fn timed_out(&self, after: Duration) -> ModelError {
        let message = format!("{} did not answer within {} s", self.label, after.as_secs_f64());
        ModelError::new(ModelErrorKind::Timeout, message).with_hint("raise `model.timeout`")
    }

    fn connection_error(&self, error: reqwest::Error) -> ModelError {
        let error = error.without_url();
        let mut causes = String::new();
        let mut cause = std::error::Error::source(&error);
        while let Some(inner) = cause {
            causes = format!(": {inner}");
            cause = inner.source();
        }
        let message = format!("{} cannot be reached: {error}{causes}", self.label);
        ModelError::new(ModelErrorKind::Unreachable, message).with_hint("check `model.url` and the network")
    }
}

fn error_kind(status: Option<u16>, code: &str, text: &str) -> ModelErrorKind {
    use ModelErrorKind::{Overloaded, RateLimited, Rejected, TooLong, Unauthorized};
    let (code, text) = (code.to_ascii_lowercase(), text.to_ascii_lowercase());
    let too_long = code.contains("context_length")
        || text.contains("context window")
        || text.contains("context length")
        || text.contains("prompt is too long")
        || text.contains("exceeds the maximum number of tokens");
    match status {
        // No credit left: a retry cannot succeed.
        _ if code.contains("insufficient_quota") => Rejected,
        Some(401 | 403) => Unauthorized,
        Some(413) => TooLong,
        Some(429) => RateLimited,
        Some(408 | 409 | 500..) => Overloaded,
        _ if too_long => TooLong,
        None if code.contains("rate_limit") || code.contains("resource_exhausted") => RateLimited,
        // Within a stream: the request itself was accepted.
        None => Overloaded,
        Some(_) => Rejected,
    }
}

fn error_hint(kind: ModelErrorKind, status: Option<StatusCode>) -> Option<&'static str> {
    match kind {
        ModelErrorKind::Unauthorized => Some("check that `model.key` is right and may use this model"),
        ModelErrorKind::RateLimited => Some("wait, or raise the limits of your plan"),
        ModelErrorKind::TooLong => {
            Some("the conversation is too long for this model; start a new one, or lower `model.max_result`")
        }
        ModelErrorKind::Rejected if status == Some(StatusCode::NOT_FOUND) => {
            Some("check `model.name` and `model.url`")
        }
        _ => None,
    }
}

/// Returns the delay of the retry headers: milliseconds, seconds, or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(millis) = text("retry-after-ms").and_then(|text| text.parse().ok()) {
        return Some(Duration::from_millis(millis));
    }
    let text = text(RETRY_AFTER.as_str())?;
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let at = httpdate::parse_http_date(text).ok()?;
    Some(at.duration_since(SystemTime::now()).unwrap_or_default())
}

/// Returns the delay that Gemini gives in the details of an error: `"retryDelay": "34s"`.
fn gemini_delay(details: &Json) -> Option<Duration> {
    let texts = details.as_array()?.iter().filter_map(|detail| detail["retryDelay"].as_str());
    let seconds = texts.filter_map(|text| text.strip_suffix('s')?.parse::<f64>().ok()).next()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Returns the backoff before the next attempt, with jitter; `None` if there is none.
pub(super) fn backoff(error: &ModelError, attempt: u32, retries: u32) -> Option<Duration> {
    if attempt >= retries || !error.is_transient() {
        return None;
    }
    match error.retry_after {
        Some(wait) => (wait <= MAX_BACKOFF).then_some(wait),
        None => Some(with_jitter(FIRST_BACKOFF * (1 << attempt.min(6)))),
    }
}

#[test]
fn classifies_errors() {
    use ModelErrorKind::{Overloaded, RateLimited, Rejected, TooLong, Unauthorized};
    for (status, code, text, is) in [
        (Some(401), "invalid_api_key", "Incorrect API key", Unauthorized),
        (Some(429), "rate_limit_exceeded", "slow down", RateLimited),
        (Some(429), "insufficient_quota", "You exceeded your current quota", Rejected),
        (Some(529), "overloaded_error", "Overloaded", Overloaded),
        (Some(400), "context_length_exceeded", "", TooLong),
        (Some(400), "invalid_request_error", "prompt is too long: 210000 tokens", TooLong),
        (Some(400), "invalid_request_error", "messages: roles must alternate", Rejected),
        (Some(404), "model_not_found", "no such model", Rejected),
        (None, "overloaded_error", "Overloaded", Overloaded),
        (None, "rate_limit_error", "slow down", RateLimited),
    ] {
        assert_eq!(error_kind(status, code, text), is, "{status:?} {code}");
    }
}

#[test]
fn backoff_follows_retry_after() {
    let mut error = ModelError::new(ModelErrorKind::RateLimited, "");
    error.retry_after = Some(Duration::from_secs(7));
    assert_eq!(backoff(&error, 0, 3), Some(Duration::from_secs(7)));
    assert_eq!(backoff(&error, 3, 3), None, "no attempts left");
    error.retry_after = Some(Duration::from_secs(3_600));
    assert_eq!(backoff(&error, 0, 3), None, "longer than the limit");
    error.retry_after = None;
    let pauses = [0, 1, 2].map(|attempt| backoff(&error, attempt, 3).unwrap().as_millis());
    for (pause, within) in pauses.into_iter().zip([400..=600, 800..=1_200, 1_600..=2_400]) {
        assert!(within.contains(&pause), "{pause} {within:?}");
    }
    error.kind = ModelErrorKind::Rejected;
    assert_eq!(backoff(&error, 0, 3), None);
    let header = |name: &'static str, value: &'static str| {
        let name = HeaderName::from_static(name);
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    };
    assert_eq!(retry_after(&header("retry-after-ms", "1500")), Some(Duration::from_millis(1_500)));
    assert_eq!(retry_after(&header("retry-after", "2")), Some(Duration::from_secs(2)));
    let past = retry_after(&header("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT"));
    assert_eq!(past, Some(Duration::ZERO));
    assert_eq!(
        gemini_delay(&serde_json::json!([{ "@type": "x" }, { "retryDelay": "34s" }])),
        Some(Duration::from_secs(34))
    );
}
