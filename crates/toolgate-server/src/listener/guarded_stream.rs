//! A connection stream with protection against slow clients and ambiguous requests.
//!
//! Reads the first request head into a small buffer: the HTTP parser allocates 16 KiB at the first byte, and thousands
//! of dripping (slowloris) connections must not get that. Later heads and bodies have their own read timeouts; writes
//! time out here. Invariant: no write stalls forever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::framing::{FramingCheck, FramingError};

/// Time without progress after which a write fails.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Initial buffer size; enough for most first requests.
const INITIAL_CAPACITY: usize = 1 << 10;

/// Outcome of reading the first request head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstHead {
    /// A complete head, or the beginning of one over the size limit.
    Complete,
    /// The client closed the connection or timed out.
    Closed,
    /// Two parsers could read the head differently.
    Ambiguous,
}

/// Stream that fails stalled writes, and reads with ambiguous framing.
pub(crate) struct GuardedStream<S> {
    stream: S,
    framing: FramingCheck,
    /// Bytes of the first head that the HTTP parser has not read yet.
    buffered: BytesMut,
    /// True while a write waits; `write_deadline` runs meanwhile.
    write_pending: bool,
    write_deadline: Pin<Box<Sleep>>,
}

impl<S> GuardedStream<S> {
    pub(crate) fn new(stream: S) -> Self {
        let framing = FramingCheck::default();
        Self {
            stream,
            framing,
            buffered: BytesMut::new(),
            write_pending: false,
            write_deadline: Box::pin(sleep(WRITE_TIMEOUT)),
        }
    }

    /// Reads until the head is complete, or too long. The HTTP parser rejects heads that are too long.
    pub(crate) async fn read_first_head(&mut self, max_bytes: usize, time_limit: Duration) -> FirstHead
    where
        S: AsyncRead + Unpin,
    {
        // One timeout for the whole head, so that single bytes do not extend it.
        timeout(time_limit, self.read_head(max_bytes)).await.unwrap_or(FirstHead::Closed)
    }

    async fn read_head(&mut self, max_bytes: usize) -> FirstHead
    where
        S: AsyncRead + Unpin,
    {
        let mut head = BytesMut::with_capacity(INITIAL_CAPACITY);
        let mut searched = 0;
        while !has_head_end(&head[searched..]) && head.len() < max_bytes {
            // The end may be split across reads.
            searched = head.len().saturating_sub(2);
            if !matches!(self.stream.read_buf(&mut head).await, Ok(1..)) {
                return FirstHead::Closed;
            }
        }
        if self.framing.check(&head).is_err() {
            return FirstHead::Ambiguous;
        }
        self.buffered = head;
        FirstHead::Complete
    }

    /// Passes the result of a write through, or fails it if it stalled for too long.
    fn check_write_timeout<T>(
        &mut self,
        cx: &mut Context<'_>,
        wrote: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.write_pending = false;
            return wrote;
        }
        if !self.write_pending {
            self.write_pending = true;
            self.write_deadline.as_mut().reset(Instant::now() + WRITE_TIMEOUT);
        }
        ready!(self.write_deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Returns true if a line is followed by an empty one, which ends a head.
fn has_head_end(bytes: &[u8]) -> bool {
    let empty = |rest: &[u8]| rest.starts_with(b"\n") || rest.starts_with(b"\r\n");
    bytes.iter().enumerate().any(|(at, byte)| *byte == b'\n' && empty(&bytes[at + 1..]))
}

impl<S: AsyncRead + Unpin> AsyncRead for GuardedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.buffered.is_empty() {
            let length = self.buffered.len().min(buffer.remaining());
            buffer.put_slice(&self.buffered[..length]);
            self.buffered.advance(length);
            if self.buffered.is_empty() {
                self.buffered = BytesMut::new();
            }
            return Poll::Ready(Ok(()));
        }
        let start = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let ambiguous =
            |FramingError| io::Error::new(io::ErrorKind::InvalidData, "ambiguous request framing");
        Poll::Ready(self.framing.check(&buffer.filled()[start..]).map_err(ambiguous))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for GuardedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check_write_timeout(cx, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.check_write_timeout(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn stalled_writes_time_out() {
    use tokio::io::AsyncWriteExt as _;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let deaf = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let mut stream = GuardedStream::new(listener.accept().await.unwrap().0);
    // From here on, time advances only when nothing else can happen: when the socket buffers are full.
    tokio::time::pause();
    let bytes = vec![0; 64 << 20];
    let error = stream.write_all(&bytes).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    drop(deaf);
}

#[tokio::test]
async fn first_head_is_buffered_and_replayed() {
    use tokio::io::AsyncWriteExt as _;
    let check = async |parts: &[&str], expected: FirstHead| {
        let (mut client, server) = tokio::io::duplex(4);
        let whole = parts.concat();
        let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
        let sends = async {
            for part in parts {
                client.write_all(part.as_bytes()).await.unwrap();
            }
            drop(client);
        };
        let reads = async {
            let mut stream = GuardedStream::new(server);
            assert_eq!(stream.read_first_head(32, WRITE_TIMEOUT).await, expected, "{whole}");
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            assert_eq!(text, if expected == FirstHead::Complete { whole.as_str() } else { "" });
        };
        tokio::join!(sends, reads);
    };
    check(&["GET / HTTP/1.1\r\n\r\n"], FirstHead::Complete).await;
    check(&["GET / HTTP/1.1\r", "\n", "\r", "\nand more"], FirstHead::Complete).await;
    check(&["GET / HTTP/1.1\n\n"], FirstHead::Ambiguous).await;
    check(&["GET / HTTP/1.1\r\nHost: x"], FirstHead::Closed).await;
    check(&[""], FirstHead::Closed).await;
    // The HTTP parser rejects a head that is too long.
    check(&["GET / HTTP/1.1\r\nX-Long: ", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"], FirstHead::Complete).await;
}

/// Each of many dripping clients is closed on time: not earlier, and not later because it kept sending.
#[tokio::test(start_paused = true)]
async fn dripping_clients_are_closed_on_time() {
    use tokio::io::AsyncWriteExt as _;
    const TIME: Duration = Duration::from_secs(10);
    let mut all = tokio::task::JoinSet::new();
    for number in 0..5_000 {
        all.spawn(async move {
            sleep(Duration::from_millis(number)).await;
            let (mut client, server) = tokio::io::duplex(64);
            let opened = Instant::now();
            let drips = async {
                while client.write_all(b"x").await.is_ok() {
                    sleep(Duration::from_secs(3)).await;
                }
            };
            let held = async {
                assert_eq!(
                    GuardedStream::new(server).read_first_head(1 << 10, TIME).await,
                    FirstHead::Closed
                );
                opened.elapsed()
            };
            tokio::join!(held, drips).0
        });
    }
    let held = all.join_all().await;
    let late = Duration::from_millis(2);
    assert!(held.iter().all(|held| (TIME..TIME + late).contains(held)), "{:?}", held.iter().max());
}
