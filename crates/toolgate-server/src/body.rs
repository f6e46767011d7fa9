//! Bodies: read within a size and at a pace, and scanned before anything else is done with them.
//!
//! Invariant: what leaves here is JSON that every reader understands in the same way.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::StatusCode;
use hyper::header::{self, HeaderMap};
use tokio::time::{Instant, timeout_at};
use toolgate_types::gather::Gather;
use toolgate_types::json::Raw;
use toolgate_types::json::scan::{Limits, ScanError};

use crate::answer::Refusal;

/// Levels of nesting.
pub(crate) const DEPTH: usize = 64;
/// How long a body may take, whatever its size; and for how many bytes more a second more is given.
const GRACE: Duration = Duration::from_secs(10);
const BYTES_PER_SECOND: usize = 1024;

/// The body of a request, as JSON.
pub(crate) async fn read(headers: &HeaderMap, body: Body, limit: usize) -> Result<Raw, Refusal> {
    let bytes = bytes(headers, body, limit).await?;
    Raw::new(bytes, Limits { size: limit, depth: DEPTH }).map_err(|error| match error {
        ScanError::TooLarge(_) => too_large(limit),
        error => Refusal::invalid(format!("the body is not JSON that can be taken: {error}")),
    })
}

fn too_large(limit: usize) -> Refusal {
    let message = format!("the body has more than {limit} bytes");
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
        .hint("`serve.max_body` in toolgate.yaml says how much is taken")
}

/// The body of a request, as it came.
pub(crate) async fn bytes(
    headers: &HeaderMap,
    mut body: impl hyper::body::Body<Data = Bytes> + Unpin,
    limit: usize,
) -> Result<Bytes, Refusal> {
    if !is_json(headers) {
        return Err(Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            "a body is JSON here",
        )
        .hint("send `Content-Type: application/json`"));
    }
    let announced =
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|announced| announced > limit) {
        return Err(too_large(limit));
    }
    let start = Instant::now();
    let mut whole = Gather::new(limit);
    while !body.is_end_stream() {
        let earned = Duration::from_secs((whole.len() / BYTES_PER_SECOND) as u64);
        let Ok(frame) = timeout_at(start + GRACE + earned, body.frame()).await else {
            return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the body came too slowly"));
        };
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|_| Refusal::invalid("the body ended too early"))?;
        if let Ok(data) = frame.into_data() {
            whole.add(data).map_err(|_| too_large(limit))?;
        }
    }
    Ok(whole.finish())
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn status(kind: &str, body: Body) -> Option<u16> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
        read(&headers, body, 20).await.err().map(|refusal| refusal.status.as_u16())
    }

    #[tokio::test]
    async fn what_is_taken() {
        assert_eq!(status("application/json; charset=utf-8", Body::from("{}")).await, None);
        assert_eq!(status("text/plain", Body::from("{}")).await, Some(415));
        assert_eq!(status("application/json", Body::from("[0,0,0,0,0,0,0,0,0,0]")).await, Some(413));
        for bad in ["", "{", "nope", r#"{"a":1,"a":2}"#, "1e400", "NaN", r#""\ud800""#] {
            assert_eq!(status("application/json", Body::from(bad)).await, Some(400), "{bad}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come() {
        struct Never;
        impl hyper::body::Body for Never {
            type Data = bytes::Bytes;
            type Error = std::convert::Infallible;
            fn poll_frame(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Option<Result<hyper::body::Frame<bytes::Bytes>, Self::Error>>> {
                std::task::Poll::Pending
            }
        }
        assert_eq!(status("application/json", Body::new(Never)).await, Some(408));
    }
}
