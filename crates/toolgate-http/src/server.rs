//! The server side of a connection: reads requests one after the other and writes their responses.
//!
//! [`serve`] reads a head, passes the request to the handler, and writes the response. The handler reads the body when
//! it wants it, so nothing of a body is read before the caller is known. While a request is handled, the connection is
//! watched: if the client disconnects, the handler's future is dropped. Invariant: a response is written only after its
//! request, in order, and a request that was not read to the end ends its connection.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};
use http_body::{Body, Frame};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::chunks::{BodyPart, BodyReader, FramingError};
use crate::client::poll_fill;
use crate::head::{BodyLength, HeadError, HeadSearch, RequestHead, parse_request};

/// Size of a read while no body is expected. Most requests fit.
const READ_SIZE: usize = 2 << 10;
/// Size of a read of a long body.
const LARGE_READ: usize = 128 << 10;
/// Longer bodies of responses are not copied behind their head.
const MAX_COPIED: usize = 16 << 10;
/// Bytes of a response that wait to be written before more of its body is asked for.
const MAX_WAITING: usize = 64 << 10;
/// Buffers above this size are released when the connection becomes idle.
const MAX_IDLE_BUFFER: usize = 16 << 10;
/// Empty lines that may precede a request.
const MAX_EMPTY_LINES: u32 = 4;
/// Rest of a request body that is read and discarded, so that the connection can be used again.
const MAX_DISCARDED: u64 = 64 << 10;
/// Bytes and time that the client can still send after the last response. Closing at once would reset the connection,
/// and the client would lose the response.
const MAX_LINGER_BYTES: usize = 8 << 20;
const LINGER: Duration = Duration::from_secs(2);

/// Limits of a connection.
#[derive(Debug, Clone, Copy)]
pub struct ServerOptions {
    /// Bytes of a request head.
    pub max_head_bytes: usize,
    /// Time for the first head.
    pub first_head_timeout: Duration,
    /// Time from the end of a response to the end of the next head.
    pub head_timeout: Duration,
}

/// A connection that ended in the middle of something.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(transparent)]
    Head(#[from] HeadError),
    #[error("the connection broke")]
    Io(#[from] io::Error),
    #[error("the client sent no complete head in time")]
    TimedOut,
    #[error("the client disconnected")]
    Disconnected,
    #[error("the body of a response failed")]
    Response,
}

/// A request body that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RequestBodyError {
    #[error(transparent)]
    Framing(#[from] FramingError),
    #[error("the connection broke")]
    Io(#[from] io::Error),
    #[error("the client disconnected")]
    Disconnected,
}

/// The body of a response. It may add lines to the head.
pub trait ResponseBody: Body<Data = Bytes> {
    /// Appends header lines, each ended by CR LF, to a head that has these headers. Cheaper than a header in the map, for
    /// values that no other code reads.
    fn write_head_lines(&self, _headers: &HeaderMap, _out: &mut Vec<u8>) {}
}

/// A future that handles one request.
pub type Handling<B> = Pin<Box<dyn Future<Output = Response<B>> + Send>>;

/// Stream, buffers and the position in the current request.
struct ConnectionState<S> {
    stream: S,
    buffer: BytesMut,
    body: BodyReader,
    /// True if the client waits for `100 Continue` before it sends the body.
    owes_continue: bool,
    /// Bytes to write: `out` from `written` on, then `tail`.
    out: Vec<u8>,
    written: usize,
    tail: Bytes,
}

type SharedState<S> = Arc<Mutex<ConnectionState<S>>>;

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionState<S> {
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let expected = usize::try_from(self.body.expected()).unwrap_or(usize::MAX);
        poll_fill(&mut self.stream, &mut self.buffer, expected.clamp(READ_SIZE, LARGE_READ), cx)
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, RequestBodyError>>> {
        loop {
            match self.body.next(&mut self.buffer)? {
                BodyPart::Data(data) => return Poll::Ready(Some(Ok(data))),
                BodyPart::End => return Poll::Ready(None),
                BodyPart::NeedMore => {
                    if std::mem::take(&mut self.owes_continue) {
                        self.out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                    }
                    ready!(self.poll_flush(cx))?;
                    if ready!(self.poll_fill(cx))? == 0 {
                        return Poll::Ready(Some(Err(RequestBodyError::Disconnected)));
                    }
                }
            }
        }
    }

    fn waiting(&self) -> usize {
        self.out.len() - self.written + self.tail.len()
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.waiting() > 0 {
            let parts = [io::IoSlice::new(&self.out[self.written..]), io::IoSlice::new(&self.tail)];
            let wrote = if self.tail.is_empty() {
                ready!(Pin::new(&mut self.stream).poll_write(cx, &parts[0]))?
            } else {
                ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, &parts))?
            };
            if wrote == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_out = wrote.min(self.out.len() - self.written);
            self.written += of_out;
            self.tail.advance(wrote - of_out);
        }
        self.out.clear();
        self.written = 0;
        // A TLS stream has a buffer of its own.
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Returns ready if the client has disconnected. Reads ahead into an empty buffer only.
    fn poll_disconnect(&mut self, cx: &mut Context<'_>) -> Poll<ServerError> {
        if self.body != BodyReader::Done || !self.buffer.is_empty() {
            return Poll::Pending;
        }
        match ready!(self.poll_fill(cx)) {
            Ok(0) => Poll::Ready(ServerError::Disconnected),
            Ok(_) => Poll::Pending,
            Err(error) => Poll::Ready(error.into()),
        }
    }
}

/// The body of a request, read from its connection.
pub struct RequestBody<S> {
    /// `None` if the request has no body.
    state: Option<SharedState<S>>,
    length: Option<u64>,
}

impl<S> std::fmt::Debug for RequestBody<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestBody").field("length", &self.length).finish_non_exhaustive()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Body for RequestBody<S> {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let Some(state) = &self.state else { return Poll::Ready(None) };
        let part = ready!(state.lock().poll_body(cx));
        Poll::Ready(part.map(|part| part.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.state.as_ref().is_none_or(|state| state.lock().body == BodyReader::Done)
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.length.map(http_body::SizeHint::with_exact).unwrap_or_default()
    }
}

/// A byte stream after the protocol was switched.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

/// A connection that has left HTTP: the bytes that were read ahead, then the stream.
pub struct UpgradedStream {
    read_ahead: Bytes,
    stream: Box<dyn ByteStream>,
}

impl AsyncRead for UpgradedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read_ahead.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let part = self.read_ahead.len().min(buffer.remaining());
        buffer.put_slice(&self.read_ahead.split_to(part));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for UpgradedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Receives the connection after a response with status 101. In the extensions of requests with `Upgrade`.
#[derive(Debug, Clone)]
pub struct OnUpgrade(Arc<Mutex<Option<oneshot::Receiver<UpgradedStream>>>>);

impl std::fmt::Debug for UpgradedStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UpgradedStream").finish_non_exhaustive()
    }
}

impl OnUpgrade {
    /// Waits for the connection. `None` if the response did not switch protocols.
    pub async fn stream(self) -> Option<UpgradedStream> {
        let receiver = self.0.lock().take()?;
        receiver.await.ok()
    }
}

/// A deadline that costs a timer only if it is waited for.
struct LazyDeadline {
    at: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl LazyDeadline {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let at = self.at;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        // A timer that fires too early is set again; one that fires too late is moved.
        if timer.deadline() > at {
            timer.as_mut().reset(at);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= at {
                return Poll::Ready(());
            }
            timer.as_mut().reset(at);
        }
        Poll::Pending
    }
}

/// Serves requests until the connection ends, or until `closing` and no request is being handled.
///
/// # Errors
/// If the connection did not end between two requests.
pub async fn serve<S, B>(
    stream: S,
    options: ServerOptions,
    handle: impl Fn(Request<RequestBody<S>>) -> Handling<B>,
    closing: impl Future<Output = ()>,
) -> Result<(), ServerError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: ResponseBody,
{
    let mut closing = pin!(closing);
    let mut is_closing = false;
    let state = Arc::new(Mutex::new(ConnectionState {
        stream,
        buffer: BytesMut::new(),
        body: BodyReader::Done,
        owes_continue: false,
        out: Vec::new(),
        written: 0,
        tail: Bytes::new(),
    }));
    let mut deadline = LazyDeadline { at: Instant::now() + options.first_head_timeout, timer: None };
    loop {
        let is_stopping = |cx: &mut Context<'_>| {
            is_closing = is_closing || closing.as_mut().poll(cx).is_ready();
            is_closing
        };
        let head = match read_head(&state, options, &mut deadline, is_stopping).await {
            Ok(Some(head)) => head,
            Ok(None) => return Ok(()),
            Err(ServerError::Head(error)) => {
                state.lock().out.extend_from_slice(refusal(error).as_bytes());
                close(&state).await?;
                return Err(error.into());
            }
            Err(error) => return Err(error),
        };
        let (facts, mut request) = start_request(&state, head);
        let upgrade = request.headers().contains_key(header::UPGRADE).then(|| {
            let (sender, receiver) = oneshot::channel();
            request.extensions_mut().insert(OnUpgrade(Arc::new(Mutex::new(Some(receiver)))));
            sender
        });
        let response = {
            let mut handling = handle(request);
            poll_fn(|cx| {
                if let Poll::Ready(response) = handling.as_mut().poll(cx) {
                    return Poll::Ready(Ok(response));
                }
                state.lock().poll_disconnect(cx).map(Err)
            })
            .await?
        };
        if !is_closing {
            is_closing = poll_fn(|cx| Poll::Ready(closing.as_mut().poll(cx).is_ready())).await;
        }
        let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let keep_alive = facts.keep_alive && !is_closing && !switches && state.lock().can_discard_body();
        let keep_alive = write_response(&state, &facts, response, keep_alive || switches).await?;
        if let Some(upgrade) = upgrade.filter(|_| switches) {
            let Some(state) = Arc::into_inner(state) else { return Err(ServerError::Response) };
            let ConnectionState { stream, buffer, .. } = state.into_inner();
            let upgraded = UpgradedStream { read_ahead: buffer.freeze(), stream: Box::new(stream) };
            // If the receiver is gone, the connection is closed.
            let _ = upgrade.send(upgraded);
            return Ok(());
        }
        if !keep_alive || switches {
            return close(&state).await;
        }
        if !discard_body(&state, options.head_timeout).await? {
            return Ok(());
        }
        state.lock().release_buffers();
        deadline.at = Instant::now() + options.head_timeout;
    }
}

impl<S> ConnectionState<S> {
    /// Returns true if the rest of the request body is short enough to be read and discarded.
    fn can_discard_body(&self) -> bool {
        match self.body {
            BodyReader::Done => true,
            BodyReader::Length(left) => left <= MAX_DISCARDED && !self.owes_continue,
            _ => false,
        }
    }

    fn release_buffers(&mut self) {
        if self.buffer.is_empty() && self.buffer.capacity() > MAX_IDLE_BUFFER {
            self.buffer = BytesMut::new();
        }
        if self.out.capacity() > MAX_IDLE_BUFFER {
            self.out = Vec::new();
        }
    }
}

/// Facts about a request that its response depends on.
struct RequestFacts {
    is_head: bool,
    version: Version,
    keep_alive: bool,
}

/// Builds the request of a head, and prepares to read its body.
fn start_request<S>(state: &SharedState<S>, head: RequestHead) -> (RequestFacts, Request<RequestBody<S>>) {
    let RequestHead { method, uri, version, headers, length, keep_alive, expects_continue } = head;
    let facts = RequestFacts { is_head: method == Method::HEAD, version, keep_alive };
    let (has_body, length) = match length {
        BodyLength::Empty | BodyLength::Length(0) => (false, Some(0)),
        BodyLength::Length(length) => (true, Some(length)),
        BodyLength::Chunked | BodyLength::UntilClose => (true, None),
    };
    if has_body {
        let mut state = state.lock();
        state.body = length.map_or(BodyReader::ChunkSize, BodyReader::Length);
        state.owes_continue = expects_continue;
    }
    let mut request = Request::new(RequestBody { state: has_body.then(|| Arc::clone(state)), length });
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.version_mut() = version;
    *request.headers_mut() = headers;
    (facts, request)
}

/// Reads the next head. `None` if the connection ends between two requests.
async fn read_head<S: AsyncRead + AsyncWrite + Unpin>(
    state: &SharedState<S>,
    options: ServerOptions,
    deadline: &mut LazyDeadline,
    mut is_stopping: impl FnMut(&mut Context<'_>) -> bool,
) -> Result<Option<RequestHead>, ServerError> {
    let (mut search, mut empty_lines) = (HeadSearch::default(), 0);
    poll_fn(|cx| {
        let mut state = state.lock();
        loop {
            match search.find_end(&state.buffer)? {
                // An empty line before the request.
                Some(2) => {
                    state.buffer.advance(2);
                    search = HeadSearch::default();
                    empty_lines += 1;
                    if empty_lines > MAX_EMPTY_LINES {
                        return Poll::Ready(Err(HeadError::Invalid.into()));
                    }
                    continue;
                }
                Some(end) if end > options.max_head_bytes => {
                    return Poll::Ready(Err(HeadError::TooLarge.into()));
                }
                Some(end) => {
                    let head = state.buffer.split_to(end).freeze();
                    return Poll::Ready(Ok(Some(parse_request(&head)?)));
                }
                None if state.buffer.len() > options.max_head_bytes => {
                    return Poll::Ready(Err(HeadError::TooLarge.into()));
                }
                None => {}
            }
            match state.poll_fill(cx) {
                Poll::Ready(Ok(0)) if state.buffer.is_empty() => return Poll::Ready(Ok(None)),
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(ServerError::Disconnected)),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => break,
            }
        }
        if is_stopping(cx) {
            return Poll::Ready(Ok(None));
        }
        deadline.poll(cx).map(|()| Err(ServerError::TimedOut))
    })
    .await
}

/// Writes a response. Returns true if the connection can be used again.
async fn write_response<S, B>(
    state: &SharedState<S>,
    facts: &RequestFacts,
    response: Response<B>,
    keep_alive: bool,
) -> Result<bool, ServerError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: ResponseBody,
{
    let (parts, body) = response.into_parts();
    let mut body = pin!(body);
    let exact = body.size_hint().exact();
    let has_no_body = parts.status.is_informational() || matches!(parts.status.as_u16(), 204 | 304);
    let framing = match exact {
        _ if has_no_body => ResponseFraming::None,
        Some(length) => ResponseFraming::Length(length),
        None if facts.version == Version::HTTP_11 => ResponseFraming::Chunked,
        None => ResponseFraming::UntilClose,
    };
    let keep_alive = keep_alive && framing != ResponseFraming::UntilClose;
    {
        let out = &mut state.lock().out;
        write_head(out, parts.status, &parts.headers, framing, keep_alive, facts.version);
        body.write_head_lines(&parts.headers, out);
        out.extend_from_slice(b"\r\n");
    }
    let mut is_done = has_no_body || facts.is_head;
    poll_fn(|cx| {
        loop {
            let mut body_waits = false;
            while !is_done && state.lock().waiting() < MAX_WAITING {
                if body.is_end_stream() {
                    is_done = true;
                    end_body(&mut state.lock().out, framing);
                    break;
                }
                // Not under the lock: the body is code of the handler.
                match body.as_mut().poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) => {
                        if let Ok(data) = frame.into_data() {
                            state.lock().add_data(data, framing);
                        }
                    }
                    Poll::Ready(None) => {
                        is_done = true;
                        end_body(&mut state.lock().out, framing);
                    }
                    Poll::Ready(Some(Err(_))) => return Poll::Ready(Err(ServerError::Response)),
                    Poll::Pending => {
                        body_waits = true;
                        break;
                    }
                }
            }
            let mut state = state.lock();
            ready!(state.poll_flush(cx))?;
            if is_done {
                return Poll::Ready(Ok(keep_alive));
            }
            if body_waits {
                return state.poll_disconnect(cx).map(Err);
            }
        }
    })
    .await
}

/// Framing of a response body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResponseFraming {
    None,
    Length(u64),
    Chunked,
    UntilClose,
}

impl<S> ConnectionState<S> {
    fn add_data(&mut self, data: Bytes, framing: ResponseFraming) {
        if data.is_empty() {
            return;
        }
        if framing == ResponseFraming::Chunked {
            // The tail must stay the last part, so chunks are copied.
            self.out.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
            self.out.extend_from_slice(&data);
            self.out.extend_from_slice(b"\r\n");
        } else if data.len() <= MAX_COPIED && self.tail.is_empty() {
            self.out.extend_from_slice(&data);
        } else if self.tail.is_empty() {
            self.tail = data;
        } else {
            let tail = std::mem::take(&mut self.tail);
            self.out.extend_from_slice(&tail);
            self.tail = data;
        }
    }
}

fn end_body(out: &mut Vec<u8>, framing: ResponseFraming) {
    if framing == ResponseFraming::Chunked {
        out.extend_from_slice(b"0\r\n\r\n");
    }
}

/// Writes the head without the empty line that ends it.
fn write_head(
    out: &mut Vec<u8>,
    status: StatusCode,
    headers: &HeaderMap,
    framing: ResponseFraming,
    keep_alive: bool,
    version: Version,
) {
    if status == StatusCode::OK {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    } else {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(status.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    for (name, value) in headers {
        // The framing is decided here.
        if *name == header::CONTENT_LENGTH || *name == header::TRANSFER_ENCODING {
            continue;
        }
        write_header(out, name.as_str(), value);
    }
    match framing {
        ResponseFraming::Length(length) => {
            out.extend_from_slice(b"content-length: ");
            out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        ResponseFraming::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        ResponseFraming::None | ResponseFraming::UntilClose => {}
    }
    if !headers.contains_key(header::CONNECTION) {
        match (keep_alive, version) {
            (false, _) => out.extend_from_slice(b"connection: close\r\n"),
            (true, Version::HTTP_10) => out.extend_from_slice(b"connection: keep-alive\r\n"),
            (true, _) => {}
        }
    }
    out.extend_from_slice(b"date: ");
    out.extend_from_slice(&date());
    out.extend_from_slice(b"\r\n");
}

fn write_header(out: &mut Vec<u8>, name: &str, value: &HeaderValue) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Length of a date in a header.
const DATE_LENGTH: usize = 29;

thread_local! {
    /// The last second and its text.
    static DATE: Cell<(u64, [u8; DATE_LENGTH])> = const { Cell::new((0, [b' '; DATE_LENGTH])) };
}

/// The current time for the header `Date`, formatted once per second.
fn date() -> [u8; DATE_LENGTH] {
    let now = SystemTime::now();
    let second = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (last, text) = DATE.get();
    if last == second {
        return text;
    }
    let mut text = [b' '; DATE_LENGTH];
    let formatted = httpdate::fmt_http_date(now);
    if formatted.len() == DATE_LENGTH {
        text.copy_from_slice(formatted.as_bytes());
    }
    DATE.set((second, text));
    text
}

/// Reads and discards the rest of a request body. Returns false if the client disconnected or sends too slowly.
async fn discard_body<S: AsyncRead + AsyncWrite + Unpin>(
    state: &SharedState<S>,
    within: Duration,
) -> Result<bool, ServerError> {
    if state.lock().body == BodyReader::Done {
        return Ok(true);
    }
    let reading = poll_fn(|cx| {
        loop {
            match ready!(state.lock().poll_body(cx)) {
                Some(Ok(_)) => {}
                Some(Err(_)) => return Poll::Ready(false),
                None => return Poll::Ready(true),
            }
        }
    });
    Ok(timeout(within, reading).await.unwrap_or(false))
}

/// Writes all output, ends the stream, and discards the bytes that the client still sends.
async fn close<S: AsyncRead + AsyncWrite + Unpin>(state: &SharedState<S>) -> Result<(), ServerError> {
    poll_fn(|cx| state.lock().poll_flush(cx)).await?;
    poll_fn(|cx| {
        let mut state = state.lock();
        Pin::new(&mut state.stream).poll_shutdown(cx)
    })
    .await?;
    let mut left = MAX_LINGER_BYTES;
    let reading = poll_fn(|cx| {
        let mut state = state.lock();
        loop {
            state.buffer.clear();
            match ready!(state.poll_fill(cx)) {
                Ok(1..) if left > 0 => left = left.saturating_sub(state.buffer.len()),
                _ => return Poll::Ready(()),
            }
        }
    });
    let _ = timeout(LINGER, reading).await;
    Ok(())
}

/// The response to a head that cannot be read.
fn refusal(error: HeadError) -> String {
    let status = match error {
        HeadError::Ambiguous | HeadError::Invalid => StatusCode::BAD_REQUEST,
        HeadError::TooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        HeadError::Url => StatusCode::BAD_REQUEST,
        HeadError::Version => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
    };
    let text = error.to_string();
    format!(
        "HTTP/1.1 {} {}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}\n",
        status.as_str(),
        status.canonical_reason().unwrap_or_default(),
        text.len() + 1
    )
}

#[cfg(test)]
mod tests;
