//! Bodies of responses: complete, in parts, or a stream.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _};
use http::header::{self, HeaderMap};
use http_body::{Frame, SizeHint};
use toolgate_mcp::{MessageParts, TraceContext};

use super::{CORRELATION_ID, TRACEPARENT};

/// Body of a response, with the headers that nearly all responses have.
#[derive(Default)]
pub(crate) struct ResponseBody {
    content: BodyContent,
    /// The ids of the request.
    trace: Option<TraceContext>,
    is_json: bool,
}

#[derive(Default)]
enum BodyContent {
    #[default]
    Empty,
    Full(Bytes),
    /// Sent in order, with their total length.
    Parts(VecDeque<Bytes>),
    /// Of unknown length. An error ends the connection.
    Stream(BoxStream<'static, io::Result<Bytes>>),
}

impl ResponseBody {
    /// A JSON document in consecutive parts. The response gets its content type from the body.
    pub(crate) fn json_parts(parts: MessageParts) -> Self {
        let content = match parts {
            MessageParts::Whole(whole) => BodyContent::Full(whole),
            MessageParts::Several(parts) => BodyContent::Parts(parts.into()),
        };
        Self { content, is_json: true, ..Self::default() }
    }

    pub(crate) fn from_stream(stream: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        Self { content: BodyContent::Stream(stream.boxed()), ..Self::default() }
    }

    /// Sets the ids of the request, unless they are set.
    pub(crate) fn set_request_ids(&mut self, trace: &TraceContext) {
        self.trace.get_or_insert_with(|| trace.clone());
    }
}

impl From<Bytes> for ResponseBody {
    fn from(bytes: Bytes) -> Self {
        Self { content: BodyContent::Full(bytes), ..Self::default() }
    }
}

impl From<Vec<u8>> for ResponseBody {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<String> for ResponseBody {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl From<&'static str> for ResponseBody {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl toolgate_http::server::ResponseBody for ResponseBody {
    fn write_head_lines(&self, headers: &HeaderMap, out: &mut Vec<u8>) {
        if self.is_json && !headers.contains_key(header::CONTENT_TYPE) {
            out.extend_from_slice(b"content-type: application/json\r\n");
        }
        // Only the files of the console may be kept: their names contain their hash.
        if !headers.contains_key(header::CACHE_CONTROL) {
            out.extend_from_slice(b"cache-control: no-store\r\n");
        }
        out.extend_from_slice(b"x-content-type-options: nosniff\r\n");
        let Some(trace) = &self.trace else { return };
        for (name, id) in [(CORRELATION_ID, trace.correlation_id()), (TRACEPARENT, trace.traceparent())] {
            // Ids are valid header values.
            out.extend_from_slice(name.as_str().as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(id.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let part = match &mut self.content {
            BodyContent::Empty => None,
            BodyContent::Full(bytes) => Some(std::mem::take(bytes)).filter(|bytes| !bytes.is_empty()),
            BodyContent::Parts(parts) => parts.pop_front(),
            BodyContent::Stream(stream) => {
                return stream.as_mut().poll_next(cx).map_ok(Frame::data);
            }
        };
        Poll::Ready(part.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            BodyContent::Empty => true,
            BodyContent::Full(bytes) => bytes.is_empty(),
            BodyContent::Parts(parts) => parts.is_empty(),
            BodyContent::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            BodyContent::Empty => SizeHint::with_exact(0),
            BodyContent::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            BodyContent::Parts(parts) => {
                SizeHint::with_exact(parts.iter().map(|part| part.len() as u64).sum())
            }
            BodyContent::Stream(_) => SizeHint::default(),
        }
    }
}
