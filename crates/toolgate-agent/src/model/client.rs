//! Bytes to and from a model: one request, one answer, whole or piece by piece.
//!
//! Invariant: an answer has at most [`LONGEST_ANSWER`] bytes and is scanned before it is parsed; nothing is redirected,
//! since a key must not follow; no error holds the key, or more than a line of what the other side wrote.

use std::time::{Duration, SystemTime};

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde_json::Value as Json;
use toolgate_mcp::transport::events::{Event, Parser};
use toolgate_types::Secret;
use toolgate_types::clean::clean;
use toolgate_types::json::Raw;
use toolgate_types::json::scan::Limits;
use toolgate_types::redact::mask_known;
use url::Url;

use super::{ModelError, ModelErrorKind};

/// Bytes of an answer, decompressed.
const LONGEST_ANSWER: usize = 16 << 20;
/// Bytes of one event of an answer.
const LONGEST_EVENT: usize = 4 << 20;
/// Bytes of the words with which a request is refused.
const LONGEST_REFUSAL: usize = 64 << 10;
/// Characters of those words that are shown.
const SHOWN: usize = 300;
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// Waiting longer than this for a model is for whoever asked to decide.
const LONGEST_PAUSE: Duration = Duration::from_secs(120);

/// The way to one model.
pub(super) struct Client {
    http: reqwest::Client,
    /// What must not be in an error.
    secrets: Vec<Secret>,
    /// What to call it in errors.
    whom: String,
}

/// A request.
pub(super) struct Post {
    pub(super) url: Url,
    pub(super) headers: Vec<(&'static str, Secret)>,
    pub(super) body: Vec<u8>,
}

impl Client {
    pub(super) fn new(url: &Url, key: Option<&Secret>, whom: String) -> Result<Self, ModelError> {
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("toolgate/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            // What may be reached is said by the configuration, never by the environment.
            .no_proxy()
            .connect_timeout(CONNECT);
        if url.scheme() == "http" {
            builder = builder.tls_certs_only([]);
        }
        let http = builder.build().map_err(|error| {
            ModelError::new(ModelErrorKind::Unreachable, format!("no request can be made: {error}"))
        })?;
        Ok(Self { http, secrets: key.cloned().into_iter().collect(), whom })
    }

    /// Sends a request; the answer is one that says yes.
    pub(super) async fn send(&self, post: Post) -> Result<Response, ModelError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in post.headers {
            let mut value = HeaderValue::from_str(value.expose()).map_err(|_| {
                ModelError::new(
                    ModelErrorKind::Unauthorized,
                    "the key of the model holds characters that no key has",
                )
            })?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(name), value);
        }
        let request = self.http.post(post.url).headers(headers).body(post.body);
        let response = request.send().await.map_err(|error| self.unreachable(error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.refused(response).await)
    }

    /// An answer as a whole.
    pub(super) async fn whole(&self, response: Response) -> Result<(Json, usize), ModelError> {
        let body = self.read(response, LONGEST_ANSWER).await?;
        let size = body.len();
        Ok((self.json(body.into(), LONGEST_ANSWER)?, size))
    }

    /// An answer piece by piece, until `take` has seen its end. Returns how many bytes came.
    pub(super) async fn events(
        &self,
        mut response: Response,
        mut take: impl FnMut(Json) -> Result<bool, ModelError>,
    ) -> Result<usize, ModelError> {
        let (mut parser, mut events, mut size) = (Parser::new(LONGEST_EVENT), Vec::new(), 0);
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unreachable(error))? {
            size += chunk.len();
            if size > LONGEST_ANSWER {
                return Err(self.too_large(LONGEST_ANSWER));
            }
            parser.feed(&chunk, &mut events).map_err(|error| self.unreadable(&error.to_string()))?;
            for Event { data, .. } in events.drain(..) {
                if data.is_empty() {
                    continue;
                }
                if &*data == b"[DONE]" || take(self.json(data, LONGEST_EVENT)?)? {
                    return Ok(size);
                }
            }
        }
        Ok(size)
    }

    fn json(&self, bytes: bytes::Bytes, size: usize) -> Result<Json, ModelError> {
        let raw = Raw::new(bytes, Limits { size, depth: 64 });
        let raw = raw.map_err(|error| self.unreadable(&error.to_string()))?;
        raw.parse().map_err(|error| self.unreadable(&error.to_string()))
    }

    async fn read(&self, mut response: Response, most: usize) -> Result<Vec<u8>, ModelError> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unreachable(error))? {
            if body.len() + chunk.len() > most {
                return Err(self.too_large(most));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    async fn refused(&self, response: Response) -> ModelError {
        let (status, headers) = (response.status(), response.headers().clone());
        let body = self.read(response, LONGEST_REFUSAL).await.unwrap_or_default();
        let body: Json = serde_json::from_slice(&body).unwrap_or_default();
        // A list of one, at times.
        let error = body.get(0).unwrap_or(&body).get("error").cloned().unwrap_or(body);
        self.error(Some(status), &error, retry_after(&headers))
    }

    /// What an error of the other side means, whether it came with a status or in the middle of an answer.
    pub(super) fn error(
        &self,
        status: Option<StatusCode>,
        error: &Json,
        wait: Option<Duration>,
    ) -> ModelError {
        let text = error["message"].as_str().or_else(|| error.as_str()).unwrap_or_default();
        let code = ["code", "type", "status"].map(|key| error[key].as_str().unwrap_or_default()).join(" ");
        let kind = kind(status.map(|status| status.as_u16()), &code, text);
        let said = if text.is_empty() { String::new() } else { format!(": {}", self.shown(text)) };
        let answered = status.map_or_else(|| "failed".to_owned(), |status| format!("answered {status}"));
        let mut told = ModelError::new(kind, format!("{} {answered}{said}", self.whom));
        told.retry_after = wait.or_else(|| delay(&error["details"]));
        told.hint = hint(kind, status).map(str::to_owned);
        told
    }

    fn shown(&self, text: &str) -> String {
        let line: Vec<_> = text.split_whitespace().collect();
        let masked = mask_known(&line.join(" "), &self.secrets);
        let cleaned = clean(&masked);
        match cleaned.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}…", &cleaned[..end]),
            None => cleaned.into_owned(),
        }
    }

    pub(super) fn unreadable(&self, why: &str) -> ModelError {
        ModelError::new(ModelErrorKind::Malformed, format!("what {} says cannot be read: {why}", self.whom))
    }

    fn too_large(&self, most: usize) -> ModelError {
        let message = format!("{} answered with more than {most} bytes", self.whom);
        ModelError::new(ModelErrorKind::Malformed, message)
    }

    /// An answer that came to no end.
    pub(super) fn broken_off(&self) -> ModelError {
        ModelError::new(ModelErrorKind::Unreachable, format!("the answer of {} broke off", self.whom))
    }

    pub(super) fn late(&self, after: Duration) -> ModelError {
        let message = format!("{} did not answer within {} s", self.whom, after.as_secs_f64());
        ModelError::new(ModelErrorKind::Timeout, message).hint("`model.timeout` gives it more time")
    }

    fn unreachable(&self, error: reqwest::Error) -> ModelError {
        let error = error.without_url();
        let mut causes = String::new();
        let mut cause = std::error::Error::source(&error);
        while let Some(inner) = cause {
            causes = format!(": {inner}");
            cause = inner.source();
        }
        let message = format!("{} cannot be reached: {error}{causes}", self.whom);
        ModelError::new(ModelErrorKind::Unreachable, message)
            .hint("see whether `model.url` is right and the network is there")
    }
}

fn kind(status: Option<u16>, code: &str, text: &str) -> ModelErrorKind {
    use ModelErrorKind::{Overloaded, RateLimited, Rejected, TooLong, Unauthorized};
    let (code, text) = (code.to_ascii_lowercase(), text.to_ascii_lowercase());
    let too_long = code.contains("context_length")
        || text.contains("context window")
        || text.contains("context length")
        || text.contains("prompt is too long")
        || text.contains("exceeds the maximum number of tokens");
    match status {
        // Nothing helps but paying.
        _ if code.contains("insufficient_quota") => Rejected,
        Some(401 | 403) => Unauthorized,
        Some(413) => TooLong,
        Some(429) => RateLimited,
        Some(408 | 409 | 500..) => Overloaded,
        _ if too_long => TooLong,
        None if code.contains("rate_limit") || code.contains("resource_exhausted") => RateLimited,
        // In the middle of an answer, where the request was good.
        None => Overloaded,
        Some(_) => Rejected,
    }
}

fn hint(kind: ModelErrorKind, status: Option<StatusCode>) -> Option<&'static str> {
    match kind {
        ModelErrorKind::Unauthorized => Some("see whether `model.key` is right and may use this model"),
        ModelErrorKind::RateLimited => Some("wait, or have a plan that allows more"),
        ModelErrorKind::TooLong => Some(
            "the conversation is too long for this model; begin a new one, or cut results with `model.max_result`",
        ),
        ModelErrorKind::Rejected if status == Some(StatusCode::NOT_FOUND) => {
            Some("see whether `model.name` and `model.url` are right")
        }
        _ => None,
    }
}

/// When to come back, where the other side says so: in milliseconds, seconds, or as a date.
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

/// The same as Google says it, in the details of an error: `"retryDelay": "34s"`.
fn delay(details: &Json) -> Option<Duration> {
    let texts = details.as_array()?.iter().filter_map(|detail| detail["retryDelay"].as_str());
    let seconds = texts.filter_map(|text| text.strip_suffix('s')?.parse::<f64>().ok()).next()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// How long to wait before another attempt; `None` where there is none to be made.
pub(super) fn pause(error: &ModelError, attempt: u32, retries: u32) -> Option<Duration> {
    if attempt >= retries || !error.passes() {
        return None;
    }
    match error.retry_after {
        Some(wait) => (wait <= LONGEST_PAUSE).then_some(wait),
        None => {
            let most = 500_u64.saturating_mul(1 << attempt.min(6));
            Some(Duration::from_millis(most / 2 + fastrand::u64(0..=most / 2)))
        }
    }
}

#[test]
fn errors_are_told_apart() {
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
        assert_eq!(kind(status, code, text), is, "{status:?} {code}");
    }
}

#[test]
fn pauses_are_those_that_were_asked_for() {
    let mut error = ModelError::new(ModelErrorKind::RateLimited, "");
    error.retry_after = Some(Duration::from_secs(7));
    assert_eq!(pause(&error, 0, 3), Some(Duration::from_secs(7)));
    assert_eq!(pause(&error, 3, 3), None, "three are enough");
    error.retry_after = Some(Duration::from_secs(3_600));
    assert_eq!(pause(&error, 0, 3), None, "nobody waits an hour without knowing");
    error.retry_after = None;
    let pauses = [0, 1, 2].map(|attempt| pause(&error, attempt, 3).unwrap().as_millis());
    for (pause, within) in pauses.into_iter().zip([250..=500, 500..=1_000, 1_000..=2_000]) {
        assert!(within.contains(&pause), "{pause} {within:?}");
    }
    error.kind = ModelErrorKind::Rejected;
    assert_eq!(pause(&error, 0, 3), None);
    let header = |name: &'static str, value: &'static str| {
        let name = HeaderName::from_static(name);
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    };
    assert_eq!(retry_after(&header("retry-after-ms", "1500")), Some(Duration::from_millis(1_500)));
    assert_eq!(retry_after(&header("retry-after", "2")), Some(Duration::from_secs(2)));
    let past = retry_after(&header("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT"));
    assert_eq!(past, Some(Duration::ZERO));
    assert_eq!(
        delay(&serde_json::json!([{ "@type": "x" }, { "retryDelay": "34s" }])),
        Some(Duration::from_secs(34))
    );
}
