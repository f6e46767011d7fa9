//! A call of the form of a tool, live: progress and log messages as events, then the page with the result.
//!
//! The events are those of a REST call with `Accept: text/event-stream`; the last one, `page`, is in place of `result`.
//! Invariant: a browser that leaves cancels the call.

use std::future::Future;
use std::io;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use http::header::{self, HeaderMap, HeaderValue};
use http_body_util::BodyExt as _;
use toolgate_console::rest::Outcome;

use super::visit::MAX_ANSWER;
use crate::auth::HttpError;
use crate::response::{Response, ResponseBody};

/// Returns true if the script of the page sent the form.
pub(super) fn wants_events(headers: &HeaderMap) -> bool {
    headers.get(header::ACCEPT).is_some_and(|accept| accept == "text/event-stream")
}

/// The events of a call that are not sent yet.
struct LiveCall<F> {
    events: http_body_util::BodyDataStream<ResponseBody>,
    buffer: Vec<u8>,
    /// Renders the page; `None` once it was sent.
    render: Option<F>,
}

/// Streams the events of a call. `render` makes the page of its result.
pub(super) fn stream<F, R>(call: Response, render: F) -> Response
where
    F: FnOnce(Result<Outcome, HttpError>) -> R + Send + 'static,
    R: Future<Output = Result<Response, HttpError>> + Send,
{
    let call =
        LiveCall { events: call.into_body().into_data_stream(), buffer: Vec::new(), render: Some(render) };
    let events = unfold(call, |mut call| async move {
        let event = call.next().await?;
        Some((Ok::<_, io::Error>(event), call))
    });
    let mut response = Response::new(ResponseBody::from_stream(events));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

impl<F, R> LiveCall<F>
where
    F: FnOnce(Result<Outcome, HttpError>) -> R + Send,
    R: Future<Output = Result<Response, HttpError>> + Send,
{
    async fn next(&mut self) -> Option<Bytes> {
        self.render.as_ref()?;
        let outcome = loop {
            if let Some(event) = self.take_event() {
                match result_of(&event) {
                    Some(outcome) => break outcome,
                    None => return Some(event.into()),
                }
            }
            match self.events.next().await {
                Some(Ok(bytes)) if self.buffer.len() + bytes.len() <= MAX_ANSWER => {
                    self.buffer.extend_from_slice(&bytes);
                }
                _ => break Err(HttpError::unavailable("the call ended without a result that can be shown")),
            }
        };
        let page = match (self.render.take()?)(outcome).await {
            Ok(page) => page.into_body().collect().await.ok()?.to_bytes(),
            Err(error) => {
                tracing::error!("the page of a call cannot be shown: {}", error.message);
                return None;
            }
        };
        let page = String::from_utf8_lossy(&page).replace('\n', "\ndata: ");
        Some(format!("event: page\ndata: {page}\n\n").into())
    }

    /// Takes one event out of the buffer.
    fn take_event(&mut self) -> Option<Vec<u8>> {
        let end = self.buffer.windows(2).position(|pair| pair == b"\n\n")? + 2;
        Some(self.buffer.drain(..end).collect())
    }
}

/// Reads the result of the call out of its event. `None` for other events.
fn result_of(event: &[u8]) -> Option<Result<Outcome, HttpError>> {
    let lines = std::str::from_utf8(event).ok()?.strip_prefix("event: result\n")?.lines();
    let data: Vec<&str> = lines.filter_map(|line| line.strip_prefix("data: ")).collect();
    Some(serde_json::from_str(&data.join("\n")).map_err(|error| {
        tracing::error!("the result of a call cannot be shown: {error}");
        HttpError::unavailable("the result of the call cannot be shown")
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events that arrive in pieces come out whole, and the result becomes a page.
    #[tokio::test]
    async fn the_result_becomes_a_page() {
        let pieces = [
            "event: progress\nda",
            "ta: {\"progress\":1}\n\nevent: result\n",
            "data: {\"status\":\ndata: \"success\"}\n\n",
        ];
        let body = futures_util::stream::iter(pieces.map(|piece| Ok(Bytes::from(piece))));
        let page = |outcome: Result<Outcome, HttpError>| async move {
            let status = outcome.unwrap_or_default().status;
            Ok(Response::new(ResponseBody::from(format!("<p>\n{status}"))))
        };
        let streamed = stream(Response::new(ResponseBody::from_stream(body)), page);
        let text = streamed.into_body().collect().await.unwrap().to_bytes();
        let expected = "event: progress\ndata: {\"progress\":1}\n\nevent: page\ndata: <p>\ndata: success\n\n";
        assert_eq!(std::str::from_utf8(&text).unwrap(), expected);
    }
}
