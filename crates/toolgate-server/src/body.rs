//! Request bodies: read within a size and a time limit, and scanned before any other use.
//!
//! Invariant: JSON returned from here has one meaning for every parser.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderMap};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};
use toolgate_json::RawJson;
use toolgate_json::scan::{ScanError, ScanLimits};
use toolgate_mcp::body_buffer::BodyBuffer;

use crate::response::HttpError;

/// Maximum nesting depth of JSON.
pub(crate) const MAX_DEPTH: usize = 64;
/// Time allowed for any body, plus one second per `BYTES_PER_SECOND` received.
const GRACE: Duration = Duration::from_secs(10);
const BYTES_PER_SECOND: usize = 1024;

/// Scans a request body as JSON.
pub(crate) fn scan(bytes: Bytes, limit: usize) -> Result<RawJson, HttpError> {
    RawJson::new(bytes, ScanLimits { size: limit, depth: MAX_DEPTH }).map_err(|error| match error {
        ScanError::TooLarge(_) => too_large(limit),
        error => HttpError::invalid(format!("the request body is invalid: {error}")),
    })
}

fn too_large(limit: usize) -> HttpError {
    let message = format!("the body has more than {limit} bytes");
    HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
        .hint("`serve.max_body` in toolgate.yaml sets the limit")
}

/// Reads a request body as raw bytes. Requires the JSON content type.
pub(crate) async fn read_bytes(
    headers: &HeaderMap,
    body: impl http_body::Body<Data = Bytes> + Unpin,
    limit: usize,
) -> Result<Bytes, HttpError> {
    if !has_type(headers, "application/json") {
        return Err(HttpError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            "the request body must be JSON",
        )
        .hint("send `Content-Type: application/json`"));
    }
    collect(headers, body, limit).await
}

/// Reads the body of a form of a page.
pub(crate) async fn read_form(
    headers: &HeaderMap,
    body: impl http_body::Body<Data = Bytes> + Unpin,
    limit: usize,
) -> Result<Bytes, HttpError> {
    if !has_type(headers, "application/x-www-form-urlencoded") {
        return Err(HttpError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            "the request body must be a form",
        ));
    }
    collect(headers, body, limit).await
}

async fn collect(
    headers: &HeaderMap,
    mut body: impl http_body::Body<Data = Bytes> + Unpin,
    limit: usize,
) -> Result<Bytes, HttpError> {
    let declared_length =
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if declared_length.is_some_and(|declared_length| declared_length > limit) {
        return Err(too_large(limit));
    }
    let start = Instant::now();
    let mut collected = BodyBuffer::new(limit);
    while !body.is_end_stream() {
        let extra = Duration::from_secs((collected.len() / BYTES_PER_SECOND) as u64);
        let Ok(frame) = timeout_at(start + GRACE + extra, body.frame()).await else {
            return Err(HttpError::new(
                StatusCode::REQUEST_TIMEOUT,
                "timeout",
                "the request body arrived too slowly",
            ));
        };
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|_| HttpError::invalid("the body ended too early"))?;
        if let Ok(data) = frame.into_data() {
            collected.push(data).map_err(|_| too_large(limit))?;
        }
    }
    Ok(collected.finish())
}

fn has_type(headers: &HeaderMap, wanted: &str) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case(wanted)
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::response::ResponseBody;

    async fn status(kind: &str, body: impl http_body::Body<Data = Bytes> + Unpin) -> Option<u16> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
        let scanned = read_bytes(&headers, body, 20).await.and_then(|bytes| scan(bytes, 20));
        scanned.err().map(|error| error.status.as_u16())
    }

    #[tokio::test]
    async fn accepts_only_valid_json_within_the_limit() {
        assert_eq!(status("application/json; charset=utf-8", ResponseBody::from("{}")).await, None);
        assert_eq!(status("text/plain", ResponseBody::from("{}")).await, Some(415));
        assert_eq!(status("application/json", ResponseBody::from("[0,0,0,0,0,0,0,0,0,0]")).await, Some(413));
        for bad in ["", "{", "nope", r#"{"a":1,"a":2}"#, "1e400", "NaN", r#""\ud800""#] {
            assert_eq!(status("application/json", ResponseBody::from(bad)).await, Some(400), "{bad}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn times_out_when_the_body_stalls() {
        struct Never;
        impl http_body::Body for Never {
            type Data = bytes::Bytes;
            type Error = std::convert::Infallible;
            fn poll_frame(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, Self::Error>>> {
                std::task::Poll::Pending
            }
        }
        assert_eq!(status("application/json", Never).await, Some(408));
    }
}
