//! Bodies of responses: complete, in parts, or a stream.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _};
use http_body::{Frame, SizeHint};

/// Body of a response.
pub(crate) enum ResponseBody {
    Empty,
    Full(Bytes),
    /// Sent in order, with their total length.
    Parts(VecDeque<Bytes>),
    /// Of unknown length. An error ends the connection.
    Stream(BoxStream<'static, io::Result<Bytes>>),
}

impl ResponseBody {
    pub(crate) fn from_parts(parts: Vec<Bytes>) -> Self {
        match <[Bytes; 1]>::try_from(parts) {
            Ok([only]) => Self::Full(only),
            Err(parts) => Self::Parts(parts.into()),
        }
    }

    pub(crate) fn from_stream(stream: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        Self::Stream(stream.boxed())
    }
}

impl From<Vec<u8>> for ResponseBody {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Full(bytes.into())
    }
}

impl From<String> for ResponseBody {
    fn from(text: String) -> Self {
        Self::Full(text.into())
    }
}

impl From<&'static str> for ResponseBody {
    fn from(text: &'static str) -> Self {
        Self::Full(Bytes::from_static(text.as_bytes()))
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let part = match &mut *self {
            Self::Empty => None,
            Self::Full(bytes) => Some(std::mem::take(bytes)).filter(|bytes| !bytes.is_empty()),
            Self::Parts(parts) => parts.pop_front(),
            Self::Stream(stream) => {
                return stream.as_mut().poll_next(cx).map_ok(Frame::data);
            }
        };
        Poll::Ready(part.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Full(bytes) => bytes.is_empty(),
            Self::Parts(parts) => parts.is_empty(),
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Parts(parts) => SizeHint::with_exact(parts.iter().map(|part| part.len() as u64).sum()),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}
