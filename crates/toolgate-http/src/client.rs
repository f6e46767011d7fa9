//! The client side of a connection: sends one request at a time and reads its response.
//!
//! The task that sends a request drives the connection itself. Invariant: a request is reported as unsent only if no
//! byte of it was written, and a connection is reused only after its response was read to the end.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::Method;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

use crate::chunks::{BodyPart, BodyReader, FramingError};
use crate::head::{HeadError, HeadSearch, parse_response};

pub use crate::head::ResponseHead;

/// Maximum size of a response head.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Informational responses before the final one.
const MAX_INFORMATIONAL: usize = 8;
/// Size of the first read. Most responses fit.
const FIRST_READ: usize = 4 << 10;
/// Size of further reads of a long body.
const LARGE_READ: usize = 128 << 10;
/// The buffer of a whole body has room for at most this many times the bytes that were received: an announced length may
/// be a lie.
const MAX_GROWTH: usize = 16;

/// A response that did not arrive.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection was closed before a byte of the request was written.
    #[error("the connection was closed before the request was sent")]
    Unsent(#[source] io::Error),
    #[error("the connection broke")]
    Broken(#[source] io::Error),
    #[error("the connection was closed before the response was complete")]
    Closed,
    #[error("invalid response")]
    Head(#[from] HeadError),
    #[error("invalid response")]
    Body(#[from] FramingError),
}

/// A connection to a server.
#[derive(Debug)]
pub struct ClientConnection<S> {
    stream: S,
    buffer: BytesMut,
    body: BodyReader,
    /// False if the connection cannot take another request.
    reusable: bool,
}

/// The bytes of a request that are not written yet.
struct Outgoing<'a> {
    head: &'a [u8],
    body: &'a [u8],
    written: bool,
}

impl Outgoing<'_> {
    fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.head.is_empty() || !self.body.is_empty() {
            let parts = [io::IoSlice::new(self.head), io::IoSlice::new(self.body)];
            let wrote = ready!(Pin::new(&mut *stream).poll_write_vectored(cx, &parts))?;
            if wrote == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written = true;
            let of_head = wrote.min(self.head.len());
            self.head.advance(of_head);
            self.body.advance(wrote - of_head);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> ClientConnection<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, buffer: BytesMut::new(), body: BodyReader::Done, reusable: true }
    }

    /// Returns true if another request can be sent: the response was read and neither side closes the connection.
    pub fn is_reusable(&self) -> bool {
        self.reusable && self.body == BodyReader::Done && self.buffer.is_empty()
    }

    /// Returns true if the body of the response was read to the end.
    pub fn is_complete(&self) -> bool {
        self.body == BodyReader::Done
    }

    /// Sends a request and waits for the head of its response. `head` ends with an empty line.
    pub async fn send(
        &mut self,
        method: &Method,
        head: &[u8],
        body: &[u8],
    ) -> Result<ResponseHead, ClientError> {
        debug_assert!(self.is_reusable(), "the connection is free");
        let mut outgoing = Outgoing { head, body, written: false };
        let (mut search, mut informational) = (HeadSearch::default(), 0);
        // Until the response was read, the connection is of no use to others.
        self.reusable = false;
        let head = poll_fn(|cx| {
            // Reads first: a server that closed the idle connection must not get the request.
            loop {
                match search.find_end(&self.buffer)? {
                    Some(end) => {
                        search = HeadSearch::default();
                        let head = parse_response(&self.buffer.split_to(end).freeze(), method)?;
                        if !head.status.is_informational() {
                            return Poll::Ready(Ok(head));
                        }
                        informational += 1;
                        // A switch of protocols was not asked for.
                        if informational > MAX_INFORMATIONAL || head.status.as_u16() == 101 {
                            return Poll::Ready(Err(HeadError::Invalid.into()));
                        }
                    }
                    None if self.buffer.len() >= MAX_HEAD_BYTES => {
                        return Poll::Ready(Err(HeadError::TooLarge.into()));
                    }
                    None => match poll_fill(&mut self.stream, &mut self.buffer, FIRST_READ, cx) {
                        Poll::Ready(Ok(0)) if outgoing.written => {
                            return Poll::Ready(Err(ClientError::Closed));
                        }
                        Poll::Ready(Ok(0)) => {
                            let closed = io::ErrorKind::ConnectionAborted.into();
                            return Poll::Ready(Err(ClientError::Unsent(closed)));
                        }
                        Poll::Ready(Ok(_)) => {}
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(outgoing.failure(error))),
                        Poll::Pending => break,
                    },
                }
            }
            match outgoing.poll_write(&mut self.stream, cx) {
                // The response may have arrived before the server closed its side.
                Poll::Ready(Err(error)) if !outgoing.written => Poll::Ready(Err(ClientError::Unsent(error))),
                Poll::Ready(Err(_)) | Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
            }
        })
        .await?;
        let is_sent = outgoing.head.is_empty() && outgoing.body.is_empty();
        self.body = head.length.into();
        self.reusable = head.keep_alive && is_sent;
        Ok(head)
    }

    /// The bytes of the body that are still to be read, if the response announced a length.
    pub fn body_length(&self) -> Option<u64> {
        match self.body {
            BodyReader::Length(left) => Some(left),
            _ => None,
        }
    }

    /// Reads more of a body of a [known length](Self::body_length) into one buffer. Returns the body when it is
    /// complete; nothing of it is copied.
    pub async fn buffer_body(&mut self) -> Result<Option<Bytes>, ClientError> {
        poll_fn(|cx| self.poll_buffer_body(cx)).await
    }

    fn poll_buffer_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ClientError>> {
        let length = self.body_length().and_then(|length| usize::try_from(length).ok()).unwrap_or_default();
        if self.buffer.len() < length {
            let received = self.buffer.len();
            if self.buffer.capacity() == received {
                // Of this size exactly: `reserve` would double the buffer for the last few bytes.
                let room = received.saturating_mul(MAX_GROWTH).max(LARGE_READ).min(length);
                let mut larger = BytesMut::with_capacity(room);
                larger.extend_from_slice(&self.buffer);
                self.buffer = larger;
            }
            let read = ready!(pin!(self.stream.read_buf(&mut self.buffer)).poll(cx));
            if read.map_err(ClientError::Broken)? == 0 {
                return Poll::Ready(Err(ClientError::Closed));
            }
        }
        if self.buffer.len() < length {
            return Poll::Ready(Ok(None));
        }
        self.body = BodyReader::Done;
        Poll::Ready(Ok(Some(self.buffer.split_to(length).freeze())))
    }

    /// Reads the next part of the body. `None` at its end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        poll_fn(|cx| self.poll_chunk(cx)).await
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ClientError>> {
        loop {
            match self.body.next(&mut self.buffer)? {
                BodyPart::Data(data) => return Poll::Ready(Ok(Some(data))),
                BodyPart::End => return Poll::Ready(Ok(None)),
                BodyPart::NeedMore => {
                    let expected = usize::try_from(self.body.expected()).unwrap_or(usize::MAX);
                    let size = expected.clamp(FIRST_READ, LARGE_READ);
                    let read = ready!(poll_fill(&mut self.stream, &mut self.buffer, size, cx));
                    match (read.map_err(ClientError::Broken)?, self.body) {
                        (0, BodyReader::UntilClose) => self.body = BodyReader::Done,
                        (0, _) => return Poll::Ready(Err(ClientError::Closed)),
                        _ => {}
                    }
                }
            }
        }
    }
}

impl Outgoing<'_> {
    fn failure(&self, error: io::Error) -> ClientError {
        if self.written { ClientError::Broken(error) } else { ClientError::Unsent(error) }
    }
}

/// Reads into the buffer. 0 at the end of the stream.
pub(crate) fn poll_fill<S: AsyncRead + Unpin>(
    stream: &mut S,
    buffer: &mut BytesMut,
    size: usize,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    if buffer.capacity() - buffer.len() < size / 2 {
        buffer.reserve(size);
    }
    pin!(stream.read_buf(buffer)).poll(cx)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt as _, duplex};

    use super::*;

    const HEAD: &[u8] = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n";

    /// Sends a request to a server that answers with these bytes and closes. Returns status and body.
    async fn exchange(answer: &str) -> Result<(u16, Vec<u8>, bool), ClientError> {
        let (near, mut far) = duplex(64);
        let answer = answer.to_owned();
        let server = async move {
            let mut request = vec![0; HEAD.len() + 2];
            far.read_exact(&mut request).await.unwrap();
            assert!(request.ends_with(b"\r\n\r\n{}"));
            far.write_all(answer.as_bytes()).await.unwrap();
        };
        let client = async move {
            let mut connection = ClientConnection::new(near);
            let head = connection.send(&Method::POST, HEAD, b"{}").await?;
            let mut body = Vec::new();
            while let Some(part) = connection.chunk().await? {
                body.extend_from_slice(&part);
            }
            Ok((head.status.as_u16(), body, connection.is_reusable()))
        };
        tokio::join!(server, client).1
    }

    #[tokio::test]
    async fn reads_responses() {
        let ok = |answer: &'static str| async move { exchange(answer).await.unwrap() };
        let body = b"hello".to_vec();
        assert_eq!(ok("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await, (200, body.clone(), true));
        assert_eq!(
            ok("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 N\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello").await,
            (404, body.clone(), false)
        );
        assert_eq!(
            ok("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n").await,
            (200, body.clone(), true)
        );
        assert_eq!(ok("HTTP/1.1 200 OK\r\n\r\nhello").await, (200, body.clone(), false));
        assert_eq!(ok("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n").await, (202, vec![], true));
        // Bytes after the response: the connection is not used again.
        assert_eq!(ok("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1").await, (200, body, false));
    }

    #[tokio::test]
    async fn reports_broken_responses() {
        for (bad, expected) in [
            ("", "the connection was closed before the response was complete"),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
                "the connection was closed before the response was complete",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello",
                "the connection was closed before the response was complete",
            ),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", "invalid response"),
            ("HTTP/1.1 200 OK\nContent-Length: 0\n\n", "invalid response"),
            ("HTTP/1.1 101 Switching\r\n\r\n", "invalid response"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "invalid response"),
            ("nonsense\r\n\r\n", "invalid response"),
        ] {
            assert_eq!(exchange(bad).await.unwrap_err().to_string(), expected, "{bad:?}");
        }
    }

    /// A body of known length arrives in parts and is read in one piece.
    #[tokio::test]
    async fn long_body_is_read_into_one_buffer() {
        for (length, part) in [(1, 1), (100, 7), (300_000, 40_000), (2_000_000, 100_000)] {
            let (near, mut far) = duplex(part);
            let body: Vec<u8> = (0..length).map(|at| b'a' + (at % 23) as u8).collect();
            let server = async {
                far.read_exact(&mut vec![0; HEAD.len() + 2]).await.unwrap();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                far.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
                far
            };
            let mut connection = ClientConnection::new(near);
            let client = async {
                connection.send(&Method::POST, HEAD, b"{}").await.unwrap();
                assert_eq!(connection.body_length(), Some(length));
                loop {
                    if let Some(body) = connection.buffer_body().await.unwrap() {
                        return (body, connection.is_complete());
                    }
                    let (received, room) = (connection.buffer.len(), connection.buffer.capacity());
                    assert!(room <= LARGE_READ.max(MAX_GROWTH * received), "{room} for {received}");
                    assert!(room <= body.len().max(FIRST_READ), "{room} for {length}");
                }
            };
            let (_far, (read, is_complete)) = tokio::join!(server, client);
            assert!(read == body && is_complete, "{length} in parts of {part}");
        }
    }

    #[tokio::test]
    async fn a_truncated_body_is_reported() {
        let (near, mut far) = duplex(64);
        let server = async move {
            far.read_exact(&mut vec![0; HEAD.len() + 2]).await.unwrap();
            far.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nabc").await.unwrap();
        };
        let client = async move {
            let mut connection = ClientConnection::new(near);
            connection.send(&Method::POST, HEAD, b"{}").await.unwrap();
            loop {
                match connection.buffer_body().await {
                    Ok(body) => assert_eq!(body, None),
                    Err(error) => return error,
                }
            }
        };
        assert!(matches!(tokio::join!(server, client).1, ClientError::Closed));
    }

    #[tokio::test]
    async fn a_closed_connection_gets_no_request() {
        let (near, far) = duplex(64);
        drop(far);
        let mut connection = ClientConnection::new(near);
        let sent = connection.send(&Method::POST, HEAD, b"{}").await;
        assert!(matches!(sent, Err(ClientError::Unsent(_))), "{sent:?}");
    }

    /// A server that answers before it has read the whole body is heard.
    #[tokio::test]
    async fn an_early_response_is_read() {
        let (near, mut far) = duplex(64);
        let body = vec![b'x'; 10_000];
        let server = async {
            far.read_exact(&mut [0; 10]).await.unwrap();
            far.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        };
        let mut connection = ClientConnection::new(near);
        let (sent, ()) = tokio::join!(connection.send(&Method::POST, HEAD, &body), server);
        assert_eq!(sent.unwrap().status, 413);
        assert!(!connection.is_reusable(), "the request was not sent to its end");
    }
}
