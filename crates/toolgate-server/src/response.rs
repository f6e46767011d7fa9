//! HTTP responses: results and errors in one shape.
//!
//! Invariant: an error is always the member `error` of an object, with a code, a class, a message, and the correlation
//! id of its request. Errors that allow a retry later say when.

mod body;

use std::time::Duration;

use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use serde_json::json;
use toolgate_mcp::TraceContext;
use toolgate_runtime::{CallOutcome, Runtime};
use toolgate_store::registry::RegistryProblem;
use toolgate_store::store::Revision;
use toolgate_types::call::ErrorClass;
use toolgate_types::tool::Permission;
use toolgate_types::{CallError, Caller, ErrorCode};

pub(crate) use body::ResponseBody;

/// A response of the gateway.
pub(crate) type Response = http::Response<ResponseBody>;

/// Header with the id that correlates requests, log records and audit entries.
pub(crate) const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");
/// W3C Trace Context header.
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// An error response.
#[derive(Debug, Clone)]
pub struct HttpError {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    pub(crate) retry_after: Option<Duration>,
    /// `WWW-Authenticate` challenge.
    pub(crate) challenge: Option<String>,
    pub(crate) details: Option<Box<ErrorDetails>>,
}

/// Details of a rejected registry change, or of a method that a path does not have.
#[derive(Debug, Clone, Default)]
pub(crate) struct ErrorDetails {
    /// All problems found.
    pub(crate) problems: Vec<RegistryProblem>,
    /// The same, with their positions in a text that was sent.
    pub(crate) positions: Vec<serde_json::Value>,
    /// Current revision, if the client expected another one.
    pub(crate) revision: Option<Revision>,
    /// `Allow` header: the methods of the path.
    pub(crate) allowed_methods: Option<String>,
}

impl HttpError {
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
    pub(crate) fn retry_after(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }

    /// 400: the request is invalid.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// 403: the caller is authenticated, but lacks a permission.
    pub(crate) fn missing_permission(permission: &Permission) -> Self {
        Self::missing_permissions(std::slice::from_ref(permission))
    }

    /// 403: the caller is authenticated, but lacks permissions.
    pub(crate) fn missing_permissions(missing: &[Permission]) -> Self {
        let named: Vec<_> = missing.iter().map(|permission| format!("`{permission}`")).collect();
        let message = format!("the caller lacks {}", named.join(", "));
        let error = Self::new(StatusCode::FORBIDDEN, ErrorCode::Unauthorized.label(), message);
        Self { challenge: Some(insufficient_scope(missing)), ..error }
    }

    /// 503: a dependency is temporarily unavailable.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::ServiceUnavailable.label(), message)
    }

    pub(crate) fn class(&self) -> ErrorClass {
        match self.status.as_u16() {
            401 | 403 | 429 => ErrorClass::Business,
            400..=499 => ErrorClass::Validation,
            _ => ErrorClass::System,
        }
    }

    /// The error as a part of a response, such as the outcome of one item of several.
    pub(crate) fn summary(&self) -> serde_json::Value {
        let problems = self.details.as_ref().map(|details| &details.problems);
        json!({ "code": self.code, "message": self.message, "hint": self.hint, "problems": problems })
    }

    pub(crate) fn is_retryable(&self) -> bool {
        matches!(self.status.as_u16(), 408 | 429 | 503)
    }

    /// Renders the error with the ids of its request.
    pub(crate) fn render(self, trace: &TraceContext) -> Response {
        let class = self.class();
        let retryable = self.is_retryable();
        let Self { status, code, message, hint, retry_after, challenge, details } = self;
        let ErrorDetails { problems, positions, revision, allowed_methods } =
            details.map(|details| *details).unwrap_or_default();
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
        if !positions.is_empty() {
            error["problems"] = json!(positions);
        }
        if let Some(revision) = revision {
            error["revision"] = json!(revision);
        }
        let mut response = json_with_status(status, &json!({ "status": "error", "error": error }));
        set_error_headers(response.headers_mut(), retry_after, challenge);
        if let Some(revision) = revision {
            set_etag(&mut response, revision);
        }
        if let Some(allowed) = allowed_methods.and_then(|allowed| HeaderValue::from_str(&allowed).ok()) {
            response.headers_mut().insert(header::ALLOW, allowed);
        }
        response
    }
}

/// Challenge that names the missing permissions as scopes.
fn insufficient_scope(missing: &[Permission]) -> String {
    let scope: Vec<_> = missing.iter().map(ToString::to_string).collect();
    format!("Bearer error=\"insufficient_scope\", scope=\"{}\"", scope.join(" "))
}

pub(crate) fn set_error_headers(
    headers: &mut HeaderMap,
    retry_after: Option<Duration>,
    challenge: Option<String>,
) {
    if let Some(time) = retry_after {
        // Round up, so that a client that waits this long is not too early.
        let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if let Some(challenge) = challenge.and_then(|text| HeaderValue::from_str(&text).ok()) {
        headers.insert(header::WWW_AUTHENTICATE, challenge);
    }
}

/// Sets the `ETag` to a registry revision.
pub(crate) fn set_etag(response: &mut Response, revision: Revision) {
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{revision}\"")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
}

/// Creates a response without a body.
pub(crate) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(ResponseBody::default());
    *response.status_mut() = status;
    response
}

pub(crate) fn json(value: &impl Serialize) -> Response {
    json_with_status(StatusCode::OK, value)
}

pub(crate) fn json_with_status(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => {
            let mut response = Response::new(ResponseBody::from(bytes));
            *response.status_mut() = status;
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => {
            tracing::error!("a response cannot be serialised as JSON: {error}");
            empty(StatusCode::SERVICE_UNAVAILABLE)
        }
    }
}

/// Renders the result envelope of a call, with all hints.
pub(crate) fn envelope(runtime: &Runtime, caller: &Caller, called: &CallOutcome) -> Vec<u8> {
    serde_json::to_vec(&runtime.envelope(caller, called)).unwrap_or_else(|error| {
        tracing::error!("a result cannot be serialised as JSON: {error}");
        b"{}".to_vec()
    })
}

/// Creates the response to a call from its envelope.
pub(crate) fn call_result(called: &CallOutcome, envelope: Vec<u8>) -> Response {
    let error = called.result.error.as_ref();
    let mut response = Response::new(ResponseBody::from(envelope));
    *response.status_mut() = error.map_or(StatusCode::OK, status_of);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(error) = error {
        set_error_headers(
            response.headers_mut(),
            error.retry_after,
            missing_permissions(called).map(insufficient_scope),
        );
    }
    response
}

/// Permissions a denied call lacked. None for a tool the caller may not know: its denial lists no permissions.
pub(crate) fn missing_permissions(called: &CallOutcome) -> Option<&[Permission]> {
    let error = called.result.error.as_ref().filter(|error| error.code == ErrorCode::Unauthorized)?;
    Some(error.denial.as_ref()?.missing.as_slice()).filter(|missing| !missing.is_empty())
}

pub(crate) fn status_of(error: &CallError) -> StatusCode {
    status_of_code(error.code)
}

pub(crate) fn status_of_code(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::InvalidArguments | ErrorCode::ToolExecutionError => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorCode::ToolNotFound | ErrorCode::NotFound | ErrorCode::DeprecatedRemoved => StatusCode::NOT_FOUND,
        ErrorCode::Unauthorized => StatusCode::FORBIDDEN,
        ErrorCode::RateLimited | ErrorCode::Overloaded => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::Timeout => StatusCode::GATEWAY_TIMEOUT,
        ErrorCode::OutputTooLarge => StatusCode::INSUFFICIENT_STORAGE,
        ErrorCode::ServiceUnavailable
        | ErrorCode::ProviderFailure
        | ErrorCode::ToolUnusable
        | ErrorCode::InvalidOutput
        | ErrorCode::Cancelled
        | ErrorCode::StorageUnavailable => StatusCode::SERVICE_UNAVAILABLE,
    }
}
