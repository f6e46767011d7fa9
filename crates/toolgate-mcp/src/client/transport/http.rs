//! Streamable HTTP: each message is a POST, each response a JSON body or an event stream.
//!
//! Idle timeout: a stream without a byte for `sse_read_timeout` is closed. While a request waits, bytes that complete
//! no event (comments, a slow body) keep the stream open for at most ten times that long. There is no limit on the
//! total time of a request here: the caller sends [`LinkCommand::Cancel`], which closes the stream. Invariant: one
//! task per request; a request gets exactly one response or [`LinkEvent::Failed`].

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use parking_lot::Mutex;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use url::Url;

use super::{OpenError, RemoteOptions, with_jitter};
use crate::client::list_size::is_list;
use crate::link::{Link, LinkCommand, LinkError, LinkEvent, OutgoingRequest, QUEUE_CAPACITY};
use crate::message::{Message, RequestId};
use crate::revision::Revision;
use crate::scan::ScanLimits;

pub(super) mod body;
pub(super) mod client;
mod plain;

use body::{EventStream, IdlePolicy, ResponseBody};
use client::{EITHER, EVENTS, ErrorResponse, HttpClient, HttpResponse, RequestHeaders, content_type};

/// Attempts to resume a stream that delivers no events.
const MAX_RESUMES: u32 = 5;
/// Delay before an attempt if the server suggests none, and bounds on its suggestion.
const RESUME_DELAY: Duration = Duration::from_secs(1);
const MIN_RESUME_DELAY: Duration = Duration::from_millis(50);
const MAX_RESUME_DELAY: Duration = Duration::from_secs(30);
/// Requests wait this long for the server to accept `notifications/initialized`.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The first requests wait this long for the GET stream; some servers answer it only with the first event.
const LISTEN_TIMEOUT: Duration = Duration::from_millis(300);
/// Time a server has to accept a notification or a response, or to end a session.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(30);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// After the response, the rest of a stream is read for this long, so that its connection can be reused.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);
/// Longer session ids are ignored.
const MAX_SESSION_ID_BYTES: usize = 1024;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");

/// Opens a link to a URL. Connects on the first message.
pub fn open(options: RemoteOptions, limits: ScanLimits) -> Result<Link, OpenError> {
    let url = options.url.clone();
    let (incoming, inbox) = mpsc::channel(QUEUE_CAPACITY);
    let channel = HttpChannel::new(
        Arc::new(HttpClient::new(options)?),
        url,
        ResponseRouting::PerRequest,
        limits,
        incoming,
    );
    let channel = Arc::new(channel);
    let (outbox, outgoing) = mpsc::channel(QUEUE_CAPACITY);
    let mut tasks = JoinSet::new();
    tasks.spawn(run_channel(Arc::clone(&channel), outgoing));
    Ok(Link { outbox, inbox, channel: Some(channel), lists: Arc::default(), tasks })
}

/// Place where responses arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseRouting {
    /// In the HTTP response of each request.
    PerRequest,
    /// On one event stream that another task reads: HTTP+SSE.
    SharedStream,
}

/// State shared by the tasks of a link.
pub(crate) struct HttpChannel {
    client: Arc<HttpClient>,
    /// URL for POSTs.
    target: Url,
    routing: ResponseRouting,
    limits: ScanLimits,
    inbox: mpsc::Sender<LinkEvent>,
    negotiated: Mutex<NegotiatedSession>,
    slots: Semaphore,
    waiting: AtomicUsize,
    /// Streams that already delivered their response.
    draining: Mutex<JoinSet<()>>,
    /// True once a notification was sent or is about to be; the first one ends the handshake.
    notification_sent: AtomicBool,
    /// True once the server accepted that notification.
    handshake_done: watch::Sender<bool>,
    /// True once the server answered the GET for its stream, or the wait for it timed out.
    listen_ready: watch::Sender<bool>,
}

/// Result of the handshake.
#[derive(Debug, Clone, Default)]
struct NegotiatedSession {
    session: Option<HeaderValue>,
    revision: Option<Revision>,
}

/// Outcome of a task.
enum TaskOutcome {
    Request(i64),
    Untracked,
    /// The link is unusable.
    Link(LinkError),
}

/// Response to a request.
pub(crate) enum ChannelReply {
    /// Complete response.
    Whole(Bytes),
    /// The response is in the queue, behind the messages before it.
    Queued,
}

/// Outcome of relaying a stream.
enum RelayOutcome {
    Response(ChannelReply),
    /// The stream ended before the response, for this reason.
    EndedEarly(String),
}

/// Failure of a request.
pub(crate) enum ChannelFailure {
    /// Concerns only this request.
    Request(LinkError),
    /// The server no longer knows the session.
    Session(LinkError),
}

impl From<LinkError> for ChannelFailure {
    fn from(error: LinkError) -> Self {
        Self::Request(error)
    }
}

/// Executes commands until the link closes.
pub(super) async fn run_channel(channel: Arc<HttpChannel>, mut outgoing: mpsc::Receiver<LinkCommand>) {
    let mut tasks = JoinSet::new();
    let mut requests: HashMap<i64, AbortHandle> = HashMap::new();
    let (mut untracked, mut any_untracked, mut listening) = (0, false, false);
    let end = loop {
        tokio::select! {
            next = outgoing.recv() => match next {
                Some(LinkCommand::Request(request)) => {
                    requests.insert(request.id, tasks.spawn(Arc::clone(&channel).request(request)));
                }
                Some(LinkCommand::Message(bytes)) => {
                    if untracked >= QUEUE_CAPACITY {
                        break LinkError::Io("the server does not accept notifications and responses".to_owned());
                    }
                    untracked += 1;
                    channel.expect_notification();
                    tasks.spawn(Arc::clone(&channel).send_untracked(bytes, !any_untracked));
                    any_untracked = true;
                }
                Some(LinkCommand::Cancel(id)) => {
                    requests.remove(&id).inspect(AbortHandle::abort);
                }
                Some(LinkCommand::Revision(revision)) => {
                    channel.set_revision(revision);
                    if revision.has_handshake() && channel.routing == ResponseRouting::PerRequest && !listening {
                        listening = true;
                        let channel = Arc::clone(&channel);
                        tasks.spawn(async move { channel.listen().await.map_or(TaskOutcome::Request(0), TaskOutcome::Link) });
                    }
                }
                Some(LinkCommand::Close) | None => break LinkError::Closed,
            },
            Some(done) = tasks.join_next() => match done {
                Ok(TaskOutcome::Request(id)) => drop(requests.remove(&id)),
                Ok(TaskOutcome::Untracked) => untracked -= 1,
                Ok(TaskOutcome::Link(error)) => break error,
                Err(error) => if error.is_panic() {
                    break LinkError::Io("internal error in the transport".to_owned());
                }
            }
        }
    };
    tasks.shutdown().await;
    if matches!(end, LinkError::Closed) {
        channel.end_session().await;
    }
    let _ = channel.inbox.send(LinkEvent::Closed(end)).await;
}

impl HttpChannel {
    pub(super) fn new(
        client: Arc<HttpClient>,
        target: Url,
        routing: ResponseRouting,
        limits: ScanLimits,
        inbox: mpsc::Sender<LinkEvent>,
    ) -> Self {
        let (handshake_done, listen_ready) = (watch::Sender::new(false), watch::Sender::new(false));
        let (slots, waiting) = (Semaphore::new(client.max_concurrent()), AtomicUsize::new(0));
        Self {
            client,
            target,
            routing,
            limits,
            inbox,
            negotiated: Mutex::default(),
            slots,
            waiting,
            draining: Mutex::default(),
            notification_sent: AtomicBool::new(false),
            handshake_done,
            listen_ready,
        }
    }

    fn negotiated(&self) -> parking_lot::MutexGuard<'_, NegotiatedSession> {
        self.negotiated.lock()
    }

    /// Sets the negotiated revision.
    pub(crate) fn set_revision(&self, revision: Revision) {
        self.negotiated().revision = Some(revision);
    }

    /// Announces a notification. Later requests wait until the first one is accepted.
    pub(crate) fn expect_notification(&self) {
        self.notification_sent.store(true, Ordering::Relaxed);
    }

    /// Sends a request and delivers its response through the queue.
    async fn request(self: Arc<Self>, request: OutgoingRequest) -> TaskOutcome {
        let id = request.id;
        let sent = match self.send_request(request).await {
            Ok(ChannelReply::Queued) => return TaskOutcome::Request(id),
            Ok(ChannelReply::Whole(bytes)) => {
                self.enqueue_response(id, bytes).await.map_err(ChannelFailure::Request)
            }
            Err(failure) => Err(failure),
        };
        let (error, outcome) = match sent {
            Ok(()) => return TaskOutcome::Request(id),
            Err(ChannelFailure::Request(error)) => (error, TaskOutcome::Request(id)),
            Err(ChannelFailure::Session(error)) => (error.clone(), TaskOutcome::Link(error)),
        };
        let _ = self.inbox.send(LinkEvent::Failed(id, error)).await;
        outcome
    }

    /// Puts the response to a request into the queue.
    pub(crate) async fn enqueue_response(&self, id: i64, bytes: Bytes) -> Result<(), LinkError> {
        if self.deliver(bytes, id).await {
            return Ok(());
        }
        Err(LinkError::Io("the server returned a response to another request".to_owned()))
    }

    /// Sends a request on the caller's task.
    pub(crate) async fn send_request(
        self: &Arc<Self>,
        request: OutgoingRequest,
    ) -> Result<ChannelReply, ChannelFailure> {
        let after_handshake = self.notification_sent.load(Ordering::Relaxed);
        if after_handshake && !*self.handshake_done.borrow() {
            let mut handshake_done = self.handshake_done.subscribe();
            let _ =
                timeout(HANDSHAKE_TIMEOUT, handshake_done.wait_for(|handshake_done| *handshake_done)).await;
        }
        // Servers send requests on the GET stream; before it is open they would be lost.
        let listens = self.negotiated().revision.is_some_and(Revision::has_handshake)
            && self.routing == ResponseRouting::PerRequest;
        if after_handshake && listens && !*self.listen_ready.borrow() {
            let mut listen_ready = self.listen_ready.subscribe();
            let _ = timeout(LISTEN_TIMEOUT, listen_ready.wait_for(|listen_ready| *listen_ready)).await;
            self.listen_ready.send_replace(true);
        }
        let slot = self.acquire_slot().await?;
        let had_session = self.negotiated().session.is_some() && &*request.method != "initialize";
        let headers = || self.headers(Some(&request));
        let sending = self.client.send(Method::POST, &self.target, EITHER, headers, Some(&request.bytes));
        let response = sending.await?;
        if !response.status().is_success() {
            return Box::pin(self.handle_error_status(request.id, response, had_session)).await;
        }
        if self.routing == ResponseRouting::SharedStream {
            drain(response).await;
            return Ok(ChannelReply::Queued);
        }
        if &*request.method == "initialize" {
            self.negotiated().session = session_id(response.headers());
        }
        let (status, is_list) = (response.status(), is_list(&request.method));
        match &*content_type(response.headers()) {
            EVENTS => {
                // A change stream is silent until something changes.
                let listens = &*request.method == "subscriptions/listen";
                let idle_policy = if listens { IdlePolicy::Listening } else { IdlePolicy::Request };
                let mut stream = self.stream(response, idle_policy, is_list);
                let reply = loop {
                    match self.relay(&mut stream, request.id).await? {
                        RelayOutcome::Response(reply) => break reply,
                        RelayOutcome::EndedEarly(early) => {
                            stream = Box::pin(self.resume(&stream, &early, is_list)).await?
                        }
                    }
                };
                drop(slot);
                // Messages after the response do not belong to the request.
                self.drain_stream(stream);
                Ok(reply)
            }
            "application/json" => {
                let body = ResponseBody::new(&self.client, response, IdlePolicy::Request);
                Ok(ChannelReply::Whole(body.whole(self.limits.size, is_list).await?))
            }
            _ if status != StatusCode::OK => Err(request_failure(format!(
                "the server accepted the request without a response (status {})",
                status.as_u16()
            ))),
            kind => {
                let kind =
                    if kind.is_empty() { "nothing".to_owned() } else { client::excerpt(kind.as_bytes()) };
                let shown = &self.client.shown;
                let reason = format!(
                    "`{shown}` answers with `{kind}` instead of JSON or events; is this the URL of an MCP server?"
                );
                Err(request_failure(reason))
            }
        }
    }

    /// Reads the rest of a stream in the background, for a short time.
    fn drain_stream(self: &Arc<Self>, mut stream: EventStream) {
        let channel = Arc::clone(self);
        let mut draining = self.draining.lock();
        while draining.try_join_next().is_some() {}
        draining.spawn(async move {
            let _ = timeout(DRAIN_TIMEOUT, channel.relay_all(&mut stream)).await;
        });
    }

    async fn acquire_slot(&self) -> Result<tokio::sync::SemaphorePermit<'_>, LinkError> {
        if let Ok(slot) = self.slots.try_acquire() {
            return Ok(slot);
        }
        let waiting = SlotWaiter::new(&self.waiting);
        if waiting.before >= QUEUE_CAPACITY {
            return Err(LinkError::Io(format!(
                "more than {} requests are waiting for the server",
                self.client.max_concurrent() + QUEUE_CAPACITY
            )));
        }
        Ok(self.slots.acquire().await.expect("the slots are never closed"))
    }

    /// Handles an error status: a JSON-RPC error is the response, anything else a failure.
    async fn handle_error_status(
        &self,
        id: i64,
        response: HttpResponse,
        had_session: bool,
    ) -> Result<ChannelReply, ChannelFailure> {
        let error = ErrorResponse::read(response).await;
        let code = error_code_for(&error.body, id, self.limits);
        if had_session && is_session_lost(error.status, code, &error.body) {
            return Err(ChannelFailure::Session(LinkError::SessionLost { status: error.status.as_u16() }));
        }
        if code.is_some() && !error.wants_login() {
            return Ok(ChannelReply::Whole(error.body));
        }
        Err(ChannelFailure::Request(error.into()))
    }

    fn stream(&self, response: HttpResponse, idle_policy: IdlePolicy, is_list: bool) -> EventStream {
        EventStream::new(ResponseBody::new(&self.client, response, idle_policy), self.limits.size, is_list)
    }

    /// Relays messages until the response. If messages were queued before it, the response is queued too, so that the
    /// client sees them first.
    async fn relay(&self, stream: &mut EventStream, id: i64) -> Result<RelayOutcome, LinkError> {
        loop {
            match stream.next().await {
                Ok(Some(event)) if event.data.is_empty() || event.kind.is_some() => {}
                Ok(Some(event)) => {
                    if !stream.has_queued && answers_request(&event.data, id) {
                        return Ok(RelayOutcome::Response(ChannelReply::Whole(event.data)));
                    }
                    stream.has_queued = true;
                    if self.deliver(event.data, id).await {
                        return Ok(RelayOutcome::Response(ChannelReply::Queued));
                    }
                }
                Ok(None) => {
                    let early = "the server ended the stream before its response";
                    return Ok(RelayOutcome::EndedEarly(early.to_owned()));
                }
                Err(LinkError::Io(broken)) => return Ok(RelayOutcome::EndedEarly(broken)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Relays all messages of a stream.
    pub(super) async fn relay_all(&self, stream: &mut EventStream) -> Result<(), LinkError> {
        while let Some(event) = stream.next().await? {
            if !event.data.is_empty() && event.kind.is_none() {
                let _ = self.inbox.send(LinkEvent::Message(event.data)).await;
            }
        }
        Ok(())
    }

    /// Queues a message; returns true if it is the response to this request.
    async fn deliver(&self, bytes: Bytes, id: i64) -> bool {
        let is_response = answers_request(&bytes, id);
        let _ = self.inbox.send(LinkEvent::StreamMessage(id, bytes)).await;
        is_response
    }

    /// Resumes a stream after its last event, if the server sends event ids.
    async fn resume(
        &self,
        ended: &EventStream,
        early: &str,
        is_list: bool,
    ) -> Result<EventStream, ChannelFailure> {
        let modern = self.negotiated().revision.is_some_and(|revision| !revision.has_handshake());
        let Some(id) = ended.resume_id().filter(|_| !modern) else {
            return Err(request_failure(early));
        };
        let delay = ended.retry().unwrap_or(RESUME_DELAY).clamp(MIN_RESUME_DELAY, MAX_RESUME_DELAY);
        for _ in ended.empty_streams..MAX_RESUMES {
            sleep(delay).await;
            match self.get(Some(&id)).await {
                Ok(response) => {
                    let mut stream = self.stream(response, IdlePolicy::Request, is_list);
                    stream.continue_from(Some(id), ended);
                    return Ok(stream);
                }
                Err(LinkError::Io(_)) => {}
                Err(error) => {
                    return Err(request_failure(format!("{early}, and it cannot be resumed: {error}")));
                }
            }
        }
        Err(request_failure(format!("{early}, and it could not be resumed")))
    }

    /// Opens a stream of messages that belong to no request, or resumes a stream.
    async fn get(&self, after: Option<&HeaderValue>) -> Result<HttpResponse, LinkError> {
        let headers = || {
            let mut headers = self.headers(None);
            if let Some(id) = after {
                headers.set(LAST_EVENT_ID, id.as_bytes());
            }
            headers
        };
        let response = self.client.send(Method::GET, &self.target, EVENTS, headers, None).await?;
        if !response.status().is_success() {
            return Err(ErrorResponse::read(response).await.into());
        }
        if content_type(response.headers()) != EVENTS {
            return Err(LinkError::Status {
                status: response.status().as_u16(),
                body: None,
                challenge: None,
                retry_after: None,
            });
        }
        Ok(response)
    }

    /// Keeps the stream of server-initiated messages open. Many servers do not offer it. Returns an error if the link
    /// is unusable.
    async fn listen(&self) -> Option<LinkError> {
        let _ = self.handshake_done.subscribe().wait_for(|handshake_done| *handshake_done).await;
        let (mut before, mut failures, mut delay): (Option<EventStream>, _, _) = (None, 0, RESUME_DELAY);
        loop {
            let last_id = before.as_ref().and_then(EventStream::resume_id);
            let opened = self.get(last_id.as_ref()).await;
            self.listen_ready.send_replace(true);
            match opened {
                Ok(response) => {
                    failures = 0;
                    let since = Instant::now();
                    let mut stream = self.stream(response, IdlePolicy::Listening, false);
                    if let Some(before) = &before {
                        stream.continue_from(last_id, before);
                    }
                    if let Err(error @ LinkError::TooLarge(_)) = self.relay_all(&mut stream).await {
                        return Some(error);
                    }
                    let asked =
                        stream.retry().unwrap_or(RESUME_DELAY).clamp(MIN_RESUME_DELAY, MAX_RESUME_DELAY);
                    // Exponential backoff for streams that end soon and deliver nothing.
                    let short = since.elapsed() < MAX_RESUME_DELAY && stream.empty_streams > 0;
                    delay = if short { (delay * 2).clamp(asked, MAX_RESUME_DELAY) } else { asked };
                    before = Some(stream);
                }
                Err(LinkError::Status { status: status @ 404, .. })
                    if before.is_some() && self.negotiated().session.is_some() =>
                {
                    return Some(LinkError::SessionLost { status });
                }
                // The server may have dropped that event; start without an id.
                Err(LinkError::Status { status: 400..=499, .. }) if last_id.is_some() => before = None,
                Err(LinkError::Io(_) | LinkError::Status { status: 500.., .. }) if failures < MAX_RESUMES => {
                    failures += 1;
                    delay = (delay * 2).min(MAX_RESUME_DELAY);
                }
                Err(_) => return None,
            }
            sleep(with_jitter(delay)).await;
        }
    }

    /// Sends a message without a response. The first one ends the handshake.
    async fn send_untracked(self: Arc<Self>, bytes: Bytes, first: bool) -> TaskOutcome {
        let had_session = self.negotiated().session.is_some();
        let headers = || self.headers(None);
        let sending = self.client.send(Method::POST, &self.target, EITHER, headers, Some(&bytes));
        let response = timeout(NOTIFY_TIMEOUT, sending).await;
        if first {
            self.handshake_done.send_replace(true);
        }
        // Errors are ignored here: the next request will fail and report them.
        let Ok(Ok(response)) = response else { return TaskOutcome::Untracked };
        if had_session && matches!(response.status(), StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST) {
            let ErrorResponse { status, body, .. } = ErrorResponse::read(response).await;
            return if is_session_lost(status, None, &body) {
                TaskOutcome::Link(LinkError::SessionLost { status: status.as_u16() })
            } else {
                TaskOutcome::Untracked
            };
        }
        drain(response).await;
        TaskOutcome::Untracked
    }

    /// Ends the session on the server, within a short time.
    async fn end_session(&self) {
        if self.client.options.terminate_on_close && self.negotiated().session.is_some() {
            let headers = || self.headers(None);
            let sending = self.client.send(Method::DELETE, &self.target, EITHER, headers, None);
            let _ = timeout(CLOSE_TIMEOUT, sending).await;
        }
    }

    /// Builds the protocol headers. Headers of single requests belong here too.
    fn headers<'a>(&'a self, request: Option<&'a OutgoingRequest>) -> RequestHeaders<'a> {
        let NegotiatedSession { mut session, mut revision } = self.negotiated().clone();
        match request.map(|request| &*request.method) {
            // Both are sent before anything is negotiated, and may be in flight together.
            Some("initialize") => (session, revision) = (None, None),
            Some("server/discover") => revision = Some(Revision::NEWEST),
            _ => {}
        }
        let mut headers = self.client.headers();
        if let Some(OutgoingRequest { trace, .. }) = request {
            headers.set(TRACEPARENT, trace.traceparent().as_bytes());
            headers.set(CORRELATION_ID, trace.correlation_id().as_bytes());
        }
        let newest = revision.is_some_and(|revision| !revision.has_handshake());
        if let Some(revision) = revision.filter(|revision| revision.has_header()) {
            headers.set(PROTOCOL_VERSION, revision.name().as_bytes());
        }
        if let Some(session) = session.filter(|_| !newest) {
            headers.set(SESSION_ID, session.as_bytes().to_vec());
        }
        if let Some(request) = request.filter(|_| newest) {
            headers.set(METHOD, header_value(&request.method));
            if let Some(name) = &request.name {
                headers.set(NAME, header_value(name));
            }
            for (name, value) in &request.mirror_headers {
                // The name was validated when the tool was listed.
                if let Ok(name) = HeaderName::try_from(name) {
                    headers.set(name, header_value(value));
                }
            }
        }
        headers
    }
}

/// Counts a request that waits for a slot.
struct SlotWaiter<'a> {
    count: &'a AtomicUsize,
    before: usize,
}

impl<'a> SlotWaiter<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        Self { before: count.fetch_add(1, Ordering::Relaxed), count }
    }
}

impl Drop for SlotWaiter<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

fn request_failure(what: impl Into<String>) -> ChannelFailure {
    ChannelFailure::Request(LinkError::Io(what.into()))
}

/// Reads the short rest of a response, so that its connection can be reused.
async fn drain(mut response: HttpResponse) {
    let mut left: usize = 16 << 10;
    let _ = timeout(DRAIN_TIMEOUT, async {
        while let Ok(Some(chunk)) = response.chunk().await {
            left = left.saturating_sub(chunk.len());
            if left == 0 {
                break;
            }
        }
    })
    .await;
}

fn session_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut id = headers.get(SESSION_ID)?.clone();
    id.set_sensitive(true);
    (id.len() <= MAX_SESSION_ID_BYTES && id.as_bytes().iter().all(u8::is_ascii_graphic)).then_some(id)
}

/// Encodes a header value: unchanged if unambiguous, otherwise in base64.
fn header_value(text: &str) -> Cow<'_, [u8]> {
    let visible = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let mistakable = text.starts_with("=?base64?") && text.ends_with("?=");
    if visible && !mistakable && text.trim_matches(' ') == text {
        text.as_bytes().into()
    } else {
        format!("=?base64?{}?=", STANDARD.encode(text)).into_bytes().into()
    }
}

/// Returns true if an error status means that the server does not know the session. The protocol requires 404; some
/// servers answer 400 and say so in the body. `code` is the code of a JSON-RPC error for the request: no revision
/// defines the ones here, but servers use them for unknown sessions.
fn is_session_lost(status: StatusCode, code: Option<i64>, body: &[u8]) -> bool {
    match (status, code) {
        (StatusCode::NOT_FOUND, None | Some(-32001)) => true,
        (StatusCode::BAD_REQUEST, None) if body.is_empty() => true,
        (StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND, None | Some(-32600 | -32001 | -32000)) => {
            body.to_ascii_lowercase().windows(7).any(|word| word == b"session")
        }
        _ => false,
    }
}

/// Returns the error code if the body is an error response to this request.
fn error_code_for(body: &Bytes, id: i64, limits: ScanLimits) -> Option<i64> {
    let messages = Message::read(body, limits).ok()?;
    messages.into_iter().find_map(|message| match message {
        Message::Response { id: RequestId::Number(to), outcome: Err(error) } if to == id => Some(error.code),
        _ => None,
    })
}

/// Returns true if a message, or one of a batch, is the response to this request.
///
/// Reads only the top level, without recursion or allocation, so it is safe before the scan. It only decides when a
/// stream is complete.
fn answers_request(bytes: &[u8], id: i64) -> bool {
    if bytes.trim_ascii_start().first() != Some(&b'[') {
        return serde_json::from_slice::<MessageProbe<'_>>(bytes).is_ok_and(|probe| probe.answers(id));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    serde::Deserializer::deserialize_seq(&mut deserializer, BatchProbe(id)).unwrap_or(false)
}

#[derive(Deserialize)]
struct MessageProbe<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<IgnoredAny>,
}

impl MessageProbe<'_> {
    fn answers(&self, id: i64) -> bool {
        self.method.is_none() && self.id.is_some_and(|raw| raw.get().parse() == Ok(id))
    }
}

struct BatchProbe(i64);

impl<'de> Visitor<'de> for BatchProbe {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a batch")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut messages: A) -> Result<bool, A::Error> {
        let mut found = false;
        while let Some(message) = messages.next_element::<MessageProbe<'de>>()? {
            found |= message.answers(self.0);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests;
