//! A connection to somebody who may have stopped to listen, or may never come to say anything.
//!
//! The first head is waited for here, in a buffer as small as what came of it: the reader of HTTP holds 16 KiB from its
//! first byte on, and whoever opens thousands of connections and drips is to get none of that. Reading has its limits
//! where a head and a body are read; writing has its own here. Invariant: what waits to be written waits a while, and
//! not for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::lines::{BareLine, Lines};

/// How long nothing may be taken of what is written.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most first requests are no longer than this.
const FIRST: usize = 1 << 10;

/// Whether a client has begun to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    /// There is a head to be read, or the beginning of one that is too long.
    Yes,
    /// Nothing more comes, or not in time.
    No,
    /// Two readers could understand it differently.
    Unclear,
}

/// A stream whose writes fail when nothing moves for long, and whose reads fail where a line of a head has no proper
/// end.
pub(crate) struct Paced<S> {
    stream: S,
    lines: Lines,
    /// What was read already, and not taken yet.
    before: BytesMut,
    /// Runs while something waits to be written.
    waiting: bool,
    limit: Pin<Box<Sleep>>,
}

impl<S> Paced<S> {
    pub(crate) fn new(stream: S) -> Self {
        let lines = Lines::default();
        Self { stream, lines, before: BytesMut::new(), waiting: false, limit: Box::pin(sleep(PATIENCE)) }
    }

    /// Waits for a whole head, or so many bytes that somebody else shall say that they are too many.
    pub(crate) async fn begun(&mut self, most: usize, within: Duration) -> Begun
    where
        S: AsyncRead + Unpin,
    {
        // One time for all of it: what comes byte by byte earns no more.
        timeout(within, self.head(most)).await.unwrap_or(Begun::No)
    }

    async fn head(&mut self, most: usize) -> Begun
    where
        S: AsyncRead + Unpin,
    {
        let mut began = BytesMut::with_capacity(FIRST);
        let mut looked = 0;
        while !has_end(&began[looked..]) && began.len() < most {
            // The end may have come in parts.
            looked = began.len().saturating_sub(2);
            if !matches!(self.stream.read_buf(&mut began).await, Ok(1..)) {
                return Begun::No;
            }
        }
        if self.lines.follow(&began).is_err() {
            return Begun::Unclear;
        }
        self.before = began;
        Begun::Yes
    }

    /// What became of a write, or that it took too long.
    fn paced<T>(&mut self, cx: &mut Context<'_>, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.waiting = false;
            return wrote;
        }
        if !self.waiting {
            self.waiting = true;
            self.limit.as_mut().reset(Instant::now() + PATIENCE);
        }
        ready!(self.limit.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Whether a line is followed by an empty one, which is the end of a head.
fn has_end(bytes: &[u8]) -> bool {
    let empty = |rest: &[u8]| rest.starts_with(b"\n") || rest.starts_with(b"\r\n");
    bytes.iter().enumerate().any(|(at, byte)| *byte == b'\n' && empty(&bytes[at + 1..]))
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.before.is_empty() {
            let length = self.before.len().min(buffer.remaining());
            buffer.put_slice(&self.before[..length]);
            self.before.advance(length);
            if self.before.is_empty() {
                self.before = BytesMut::new();
            }
            return Poll::Ready(Ok(()));
        }
        let start = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let unclear =
            |BareLine| io::Error::new(io::ErrorKind::InvalidData, "where a line or a body ends is not clear");
        Poll::Ready(self.lines.follow(&buffer.filled()[start..]).map_err(unclear))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.paced(cx, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.paced(cx, wrote)
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
async fn who_does_not_listen_is_left() {
    use tokio::io::AsyncWriteExt as _;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let deaf = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let mut paced = Paced::new(listener.accept().await.unwrap().0);
    // From here on time passes where nothing else can happen: when the buffers of the system are full.
    tokio::time::pause();
    let bytes = vec![0; 64 << 20];
    let error = paced.write_all(&bytes).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    drop(deaf);
}

#[tokio::test]
async fn a_head_is_waited_for_and_read_again() {
    use tokio::io::AsyncWriteExt as _;
    let check = async |parts: &[&str], begun: Begun| {
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
            let mut paced = Paced::new(server);
            assert_eq!(paced.begun(32, PATIENCE).await, begun, "{whole}");
            let mut text = String::new();
            paced.read_to_string(&mut text).await.unwrap();
            assert_eq!(text, if begun == Begun::Yes { whole.as_str() } else { "" });
        };
        tokio::join!(sends, reads);
    };
    check(&["GET / HTTP/1.1\r\n\r\n"], Begun::Yes).await;
    check(&["GET / HTTP/1.1\r", "\n", "\r", "\nand more"], Begun::Yes).await;
    check(&["GET / HTTP/1.1\n\n"], Begun::Unclear).await;
    check(&["GET / HTTP/1.1\r\nHost: x"], Begun::No).await;
    check(&[""], Begun::No).await;
    // Too long a head is for the reader of heads to refuse.
    check(&["GET / HTTP/1.1\r\nX-Long: ", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"], Begun::Yes).await;
}

/// However many drip, each of them is closed at its time: not earlier, and not later because it went on sending.
#[tokio::test(start_paused = true)]
async fn who_drips_is_closed_in_time() {
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
                assert_eq!(Paced::new(server).begun(1 << 10, TIME).await, Begun::No);
                opened.elapsed()
            };
            tokio::join!(held, drips).0
        });
    }
    let held = all.join_all().await;
    let late = Duration::from_millis(2);
    assert!(held.iter().all(|held| (TIME..TIME + late).contains(held)), "{:?}", held.iter().max());
}
