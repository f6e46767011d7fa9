//! Answers: results and refusals as HTTP, in one shape.
//!
//! Invariant: an error is always the member `error` of an object, with a code, a class, a message and the
//! correlation id of its request; and whoever may try again later is told when.

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use serde_json::json;
use toolgate_mcp::Trace;
use toolgate_runtime::Called;
use toolgate_store::registry::Problem;
use toolgate_store::store::Rev;
use toolgate_types::call::ErrorClass;
use toolgate_types::tool::Permission;
use toolgate_types::{CallError, ErrorCode};

/// The header that joins what belongs together.
pub(crate) const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");
/// The header of the W3C.
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Why a request is not answered with what it asks for.
#[derive(Debug, Clone)]
pub struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    pub(crate) retry_after: Option<Duration>,
    /// What to send to get in.
    pub(crate) challenge: Option<String>,
    /// What there is to say of the registry.
    pub(crate) details: Option<Box<Details>>,
}

/// What more there is to say of a change that was refused.
#[derive(Debug, Clone, Default)]
pub(crate) struct Details {
    /// All that is wrong.
    pub(crate) problems: Vec<Problem>,
    /// Where the registry is, where something else was expected.
    pub(crate) revision: Option<Rev>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, code, message, hint: None, retry_after: None, challenge: None, details: None }
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub(crate) fn after(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }

    /// The request is not one.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// There is no such thing.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// Whoever asks is known, and may not.
    pub(crate) fn lacks(permission: &Permission) -> Self {
        Self::lacks_all(std::slice::from_ref(permission))
    }

    /// Whoever asks is known, and may not.
    pub(crate) fn lacks_all(missing: &[Permission]) -> Self {
        let named: Vec<_> = missing.iter().map(|permission| format!("`{permission}`")).collect();
        let message = format!("the caller lacks {}", named.join(", "));
        let refusal = Self::new(StatusCode::FORBIDDEN, ErrorCode::Unauthorized.label(), message);
        Self { challenge: Some(lacking(missing)), ..refusal }
    }

    /// Something that should work does not.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::ServiceUnavailable.label(), message)
    }

    fn class(&self) -> ErrorClass {
        match self.status.as_u16() {
            401 | 403 | 429 => ErrorClass::Business,
            400..=499 => ErrorClass::Validation,
            _ => ErrorClass::System,
        }
    }

    /// With the ids of its request.
    pub(crate) fn told(self, trace: &Trace) -> Response {
        let class = self.class();
        let retryable = matches!(self.status.as_u16(), 408 | 429 | 503);
        let Self { status, code, message, hint, retry_after, challenge, details } = self;
        let Details { problems, revision } = details.map(|details| *details).unwrap_or_default();
        let mut error = json!({
            "code": code,
            "class": class,
            "message": message,
            "retryable": retryable,
            "correlationId": trace.correlation_id(),
        });
        if let Some(hint) = hint {
            error["hint"] = hint.into();
        }
        if let Some(time) = retry_after {
            error["retryAfterMs"] = json!(time.as_millis());
        }
        if !problems.is_empty() {
            error["problems"] = json!(problems);
        }
        if let Some(revision) = revision {
            error["revision"] = json!(revision);
        }
        let mut response = with_status(status, &json!({ "status": "error", "error": error }));
        beside(response.headers_mut(), retry_after, challenge);
        if let Some(revision) = revision {
            tagged(&mut response, revision);
        }
        response
    }
}

/// Its request is not known here: it is put beside the answer, for whoever knows it to tell.
impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status;
        response.extensions_mut().insert(self);
        response
    }
}

/// The challenge that names what is missing, and nothing else.
fn lacking(missing: &[Permission]) -> String {
    let scope: Vec<_> = missing.iter().map(ToString::to_string).collect();
    format!("Bearer error=\"insufficient_scope\", scope=\"{}\"", scope.join(" "))
}

fn beside(headers: &mut HeaderMap, retry_after: Option<Duration>, challenge: Option<String>) {
    if let Some(time) = retry_after {
        // Rounded up: who comes at that time must not be too early.
        let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if let Some(challenge) = challenge.and_then(|text| HeaderValue::from_str(&text).ok()) {
        headers.insert(header::WWW_AUTHENTICATE, challenge);
    }
}

/// With the revision of the registry that it tells of.
pub(crate) fn tagged(response: &mut Response, revision: Rev) {
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{revision}\"")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
}

/// A document.
pub(crate) fn document(value: &impl Serialize) -> Response {
    with_status(StatusCode::OK, value)
}

pub(crate) fn with_status(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => {
            let mut response = Response::new(Body::from(bytes));
            *response.status_mut() = status;
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => {
            tracing::error!("an answer has no JSON form: {error}");
            Refusal::unavailable("the answer cannot be written").into_response()
        }
    }
}

/// How a call ended, as the envelope.
pub(crate) fn called(called: &Called) -> Response {
    let error = called.result.error.as_ref();
    let mut response = with_status(error.map_or(StatusCode::OK, status), &called.result);
    if let Some(error) = error {
        beside(response.headers_mut(), error.retry_after, missing(called).map(lacking));
    }
    response
}

/// The permissions for which a call was refused. What a caller may not know of lacks nothing.
pub(crate) fn missing(called: &Called) -> Option<&[Permission]> {
    let error = called.result.error.as_ref().filter(|error| error.code == ErrorCode::Unauthorized)?;
    Some(error.denial.as_ref()?.missing.as_slice()).filter(|missing| !missing.is_empty())
}

/// The status of an error, by its code.
pub(crate) fn status(error: &CallError) -> StatusCode {
    match error.code {
        ErrorCode::InvalidArguments | ErrorCode::ToolExecutionError => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorCode::ToolNotFound | ErrorCode::DeprecatedRemoved => StatusCode::NOT_FOUND,
        ErrorCode::Unauthorized => StatusCode::FORBIDDEN,
        ErrorCode::RateLimited | ErrorCode::Overloaded => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::Timeout => StatusCode::GATEWAY_TIMEOUT,
        ErrorCode::OutputTooLarge => StatusCode::INSUFFICIENT_STORAGE,
        ErrorCode::ServiceUnavailable
        | ErrorCode::ProviderFailure
        | ErrorCode::InvalidOutput
        | ErrorCode::Cancelled
        | ErrorCode::StorageUnavailable => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// The ids of a request, where its answer does not have them yet.
pub(crate) fn identified(response: &mut Response, trace: &Trace) {
    let ids = [(CORRELATION_ID, trace.correlation_id()), (TRACEPARENT, trace.traceparent())];
    for (name, id) in ids {
        if let Ok(value) = HeaderValue::from_str(id) {
            response.headers_mut().entry(name).or_insert(value);
        }
    }
}
