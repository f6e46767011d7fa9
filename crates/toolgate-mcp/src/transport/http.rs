//! Streamable HTTP: every message is a POST of its own, every answer a body or a stream of events.
//!
//! Silence: a stream on which no byte comes for `sse_read_timeout` is given up. While a request
//! waits, bytes that complete no event (comments, a body that drips) count as signs of life for ten
//! times that long and no longer. There is no bound on the whole of a request here: whoever asked
//! says [`Outgoing::Cancel`], which closes the stream.
//! Invariant: one task per request; a request gets its answer, or [`Incoming::Failed`], once.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use url::Url;

use super::{OpenError, RemoteOptions, spread};
use crate::link::{Incoming, Link, LinkError, Outgoing, QUEUE, Request};
use crate::message::{Id, Message};
use crate::revision::Revision;
use crate::scan::Limits;

pub(super) mod body;
pub(super) mod client;
mod plain;

use body::{Body, Patience, Stream};
use client::{Client, EITHER, EVENTS, Refusal, Response, content_type};

/// Requests on their way at once; more of them wait their turn.
const AT_ONCE: usize = 64;
/// How often a stream that brings nothing new is taken up again.
const RESUMPTIONS: u32 = 5;
/// The pause before that, where the server names none, and the bounds of what it may name.
const PAUSE: Duration = Duration::from_secs(1);
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Requests wait this long for the notification that ends the handshake to arrive before them.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(5);
/// How long the first requests wait for the server to let us listen. Some answer with the first event only.
const LISTEN_PATIENCE: Duration = Duration::from_millis(300);
/// A server may take this long to take a notification or an answer, or to end a session.
const NOTIFY_TIME: Duration = Duration::from_secs(30);
const FAREWELL_TIME: Duration = Duration::from_secs(2);
/// A stream whose answer has come is read to its end for so long, to keep its connection.
const LINGER: Duration = Duration::from_millis(50);
/// An id of a session is a token; longer ones are not carried around.
const SESSION_ID_BYTES: usize = 1024;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");

/// Speaks to the server at an address. Connects with the first message, not before.
pub fn open(options: RemoteOptions, limits: Limits) -> Result<Link, OpenError> {
    let url = options.url.clone();
    let (incoming, inbox) = mpsc::channel(QUEUE);
    let wire = Wire::new(Arc::new(Client::new(options)?), url, Answers::OnTheirStream, limits, incoming);
    let wire = Arc::new(wire);
    let (outbox, outgoing) = mpsc::channel(QUEUE);
    let mut tasks = JoinSet::new();
    tasks.spawn(drive(Arc::clone(&wire), outgoing));
    Ok(Link { outbox, inbox, wire: Some(wire), tasks })
}

/// Where answers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answers {
    /// Each with its own request.
    OnTheirStream,
    /// All on one stream that somebody else reads: the first revision.
    Elsewhere,
}

/// What all tasks of a link share.
pub(crate) struct Wire {
    client: Arc<Client>,
    /// Where messages are sent to.
    target: Url,
    answers: Answers,
    limits: Limits,
    inbox: mpsc::Sender<Incoming>,
    agreed: Mutex<Agreed>,
    slots: Semaphore,
    waiting: AtomicUsize,
    /// Streams whose answer has come.
    lingering: Mutex<JoinSet<()>>,
    /// Whether there is a notification that ends the handshake, sent or about to be.
    noted: AtomicBool,
    /// Whether it has arrived.
    settled: watch::Sender<bool>,
    /// Whether the server has answered our wish to listen, or had the time to.
    heard: watch::Sender<bool>,
}

/// What was agreed with the server.
#[derive(Debug, Clone, Default)]
struct Agreed {
    session: Option<HeaderValue>,
    revision: Option<Revision>,
}

/// How a task of the link ended.
enum Finished {
    Request(i64),
    Other,
    /// The link is of no use any more.
    Link(LinkError),
}

/// The answer to a request.
pub(crate) enum Reply {
    /// Here it is.
    Whole(Bytes),
    /// It goes by the queue, behind what came before it.
    Queued,
}

/// How a stream did.
enum Relayed {
    Answer(Reply),
    /// It ended without an answer, for this reason.
    Early(String),
}

/// Why a request came to nothing.
pub(crate) enum Failure {
    /// It alone.
    Request(LinkError),
    /// The server does not know the session any more.
    Session(LinkError),
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Self {
        Self::Request(error)
    }
}

/// Sends what is to be sent until the link ends.
pub(super) async fn drive(wire: Arc<Wire>, mut outgoing: mpsc::Receiver<Outgoing>) {
    let mut tasks = JoinSet::new();
    let mut requests: HashMap<i64, AbortHandle> = HashMap::new();
    let (mut others, mut any_other, mut listening) = (0, false, false);
    let end = loop {
        tokio::select! {
            next = outgoing.recv() => match next {
                Some(Outgoing::Request(request)) => {
                    requests.insert(request.id, tasks.spawn(Arc::clone(&wire).request(request)));
                }
                Some(Outgoing::Other(bytes)) => {
                    if others >= QUEUE {
                        break LinkError::Io("the server does not take our notifications and answers".to_owned());
                    }
                    others += 1;
                    wire.will_note();
                    tasks.spawn(Arc::clone(&wire).other(bytes, !any_other));
                    any_other = true;
                }
                Some(Outgoing::Cancel(id)) => {
                    requests.remove(&id).inspect(AbortHandle::abort);
                }
                Some(Outgoing::Revision(revision)) => {
                    wire.agree(revision);
                    if revision.has_handshake() && wire.answers == Answers::OnTheirStream && !listening {
                        listening = true;
                        let wire = Arc::clone(&wire);
                        tasks.spawn(async move { wire.listen().await.map_or(Finished::Request(0), Finished::Link) });
                    }
                }
                Some(Outgoing::Close) | None => break LinkError::Closed,
            },
            Some(done) = tasks.join_next() => match done {
                Ok(Finished::Request(id)) => drop(requests.remove(&id)),
                Ok(Finished::Other) => others -= 1,
                Ok(Finished::Link(error)) => break error,
                Err(error) => if error.is_panic() {
                    break LinkError::Io("the transport failed; this is a mistake of ours".to_owned());
                }
            }
        }
    };
    tasks.shutdown().await;
    if matches!(end, LinkError::Closed) {
        wire.farewell().await;
    }
    let _ = wire.inbox.send(Incoming::Closed(end)).await;
}

impl Wire {
    pub(super) fn new(
        client: Arc<Client>,
        target: Url,
        answers: Answers,
        limits: Limits,
        inbox: mpsc::Sender<Incoming>,
    ) -> Self {
        let (settled, heard) = (watch::Sender::new(false), watch::Sender::new(false));
        let (slots, waiting) = (Semaphore::new(AT_ONCE), AtomicUsize::new(0));
        Self {
            client,
            target,
            answers,
            limits,
            inbox,
            agreed: Mutex::default(),
            slots,
            waiting,
            lingering: Mutex::default(),
            noted: AtomicBool::new(false),
            settled,
            heard,
        }
    }

    fn agreed(&self) -> std::sync::MutexGuard<'_, Agreed> {
        self.agreed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the server speaks this revision.
    pub(crate) fn agree(&self, revision: Revision) {
        self.agreed().revision = Some(revision);
    }

    /// A notification is about to be sent. Requests that follow wait for the first to arrive.
    pub(crate) fn will_note(&self) {
        self.noted.store(true, Ordering::Relaxed);
    }

    /// A request whose answer goes by the queue.
    async fn request(self: Arc<Self>, request: Request) -> Finished {
        let id = request.id;
        let asked = match self.ask(request).await {
            Ok(Reply::Queued) => return Finished::Request(id),
            Ok(Reply::Whole(bytes)) => self.queue(id, bytes).await.map_err(Failure::Request),
            Err(failure) => Err(failure),
        };
        let (error, finished) = match asked {
            Ok(()) => return Finished::Request(id),
            Err(Failure::Request(error)) => (error, Finished::Request(id)),
            Err(Failure::Session(error)) => (error.clone(), Finished::Link(error)),
        };
        let _ = self.inbox.send(Incoming::Failed(id, error)).await;
        finished
    }

    /// Puts what answers a request into the queue.
    pub(crate) async fn queue(&self, id: i64, bytes: Bytes) -> Result<(), LinkError> {
        if self.deliver(bytes, id).await {
            return Ok(());
        }
        Err(LinkError::Io("the server answered, but not to this request".to_owned()))
    }

    /// Sends a request on the task of whoever waits for its answer.
    pub(crate) async fn ask(self: &Arc<Self>, request: Request) -> Result<Reply, Failure> {
        let after_handshake = self.noted.load(Ordering::Relaxed);
        if after_handshake && !*self.settled.borrow() {
            let mut settled = self.settled.subscribe();
            let _ = timeout(HANDSHAKE_PATIENCE, settled.wait_for(|settled| *settled)).await;
        }
        // A server may ask back on the stream we listen on; one that is not there yet loses the question.
        let listens = self.agreed().revision.is_some_and(Revision::has_handshake)
            && self.answers == Answers::OnTheirStream;
        if after_handshake && listens && !*self.heard.borrow() {
            let mut heard = self.heard.subscribe();
            let _ = timeout(LISTEN_PATIENCE, heard.wait_for(|heard| *heard)).await;
            self.heard.send_replace(true);
        }
        let slot = self.slot().await?;
        let had_session = self.agreed().session.is_some() && &*request.method != "initialize";
        let (headers, body) = (|| self.headers(Some(&request)), Some(request.bytes.clone()));
        let response = self.client.send(Method::POST, &self.target, EITHER, headers, body).await?;
        if !response.status().is_success() {
            return Box::pin(self.refused(request.id, response, had_session)).await;
        }
        if self.answers == Answers::Elsewhere {
            drain(response).await;
            return Ok(Reply::Queued);
        }
        if &*request.method == "initialize" {
            self.agreed().session = session_id(response.headers());
        }
        let status = response.status();
        match &*content_type(response.headers()) {
            EVENTS => {
                // Nothing is due on a stream that tells of changes, so silence on it says little.
                let listens = &*request.method == "subscriptions/listen";
                let patience = if listens { Patience::Listening } else { Patience::Request };
                let mut stream = self.stream(response, patience);
                let reply = loop {
                    match self.relay(&mut stream, request.id).await? {
                        Relayed::Answer(reply) => break reply,
                        Relayed::Early(early) => stream = Box::pin(self.resume(&stream, &early)).await?,
                    }
                };
                drop(slot);
                // What comes behind the answer is of no concern to the request any more.
                self.linger(stream);
                Ok(reply)
            }
            "application/json" => {
                let body = Body::new(&self.client, response, Patience::Request);
                Ok(Reply::Whole(body.whole(self.limits.size).await?))
            }
            _ if status != StatusCode::OK => Err(unexpected(format!(
                "the server took the request without an answer (status {})",
                status.as_u16()
            ))),
            kind => {
                let kind =
                    if kind.is_empty() { "nothing".to_owned() } else { client::excerpt(kind.as_bytes()) };
                let shown = &self.client.shown;
                let what = format!(
                    "`{shown}` answers with `{kind}` where JSON or events are due; is it the address of an MCP server?"
                );
                Err(unexpected(what))
            }
        }
    }

    /// Reads the rest of a stream, for a moment.
    fn linger(self: &Arc<Self>, mut stream: Stream) {
        let wire = Arc::clone(self);
        let mut lingering = self.lingering.lock().unwrap_or_else(PoisonError::into_inner);
        while lingering.try_join_next().is_some() {}
        lingering.spawn(async move {
            let _ = timeout(LINGER, wire.relay_all(&mut stream)).await;
        });
    }

    async fn slot(&self) -> Result<tokio::sync::SemaphorePermit<'_>, LinkError> {
        if let Ok(slot) = self.slots.try_acquire() {
            return Ok(slot);
        }
        let waiting = Waiting::new(&self.waiting);
        if waiting.before >= QUEUE {
            return Err(LinkError::Io(format!("more than {} requests wait for the server", AT_ONCE + QUEUE)));
        }
        Ok(self.slots.acquire().await.expect("the slots are never closed"))
    }

    /// An answer that is no success: an error of the protocol where it is one, else a failure.
    async fn refused(&self, id: i64, response: Response, had_session: bool) -> Result<Reply, Failure> {
        let refusal = Refusal::read(response).await;
        let code = answered_error(&refusal.body, id, self.limits);
        // This code, which no revision defines, is what servers say of sessions they do not know.
        let lost =
            had_session && refusal.status == StatusCode::NOT_FOUND && code.is_none_or(|code| code == -32001);
        if code.is_some() && !lost && !refusal.wants_login() {
            return Ok(Reply::Whole(refusal.body));
        }
        Err(if lost { Failure::Session(refusal.into()) } else { Failure::Request(refusal.into()) })
    }

    fn stream(&self, response: Response, patience: Patience) -> Stream {
        Stream::new(Body::new(&self.client, response, patience), self.limits.size)
    }

    /// Passes messages on until the answer is among them. What a client hears comes before its answer, so where
    /// something came before it, the answer takes the same way.
    async fn relay(&self, stream: &mut Stream, id: i64) -> Result<Relayed, LinkError> {
        loop {
            match stream.next().await {
                Ok(Some(event)) if event.data.is_empty() || event.kind.is_some() => {}
                Ok(Some(event)) => {
                    if !stream.has_passed && answers(&event.data, id) {
                        return Ok(Relayed::Answer(Reply::Whole(event.data)));
                    }
                    stream.has_passed = true;
                    if self.deliver(event.data, id).await {
                        return Ok(Relayed::Answer(Reply::Queued));
                    }
                }
                Ok(None) => {
                    let early = "the server ended the stream before its answer";
                    return Ok(Relayed::Early(early.to_owned()));
                }
                Err(LinkError::Io(broken)) => return Ok(Relayed::Early(broken)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Passes messages on to the end of a stream.
    pub(super) async fn relay_all(&self, stream: &mut Stream) -> Result<(), LinkError> {
        while let Some(event) = stream.next().await? {
            if !event.data.is_empty() && event.kind.is_none() {
                let _ = self.inbox.send(Incoming::Message(event.data)).await;
            }
        }
        Ok(())
    }

    /// Passes a message on; says whether it is the answer to this request.
    async fn deliver(&self, bytes: Bytes, id: i64) -> bool {
        let answer = answers(&bytes, id);
        let _ = self.inbox.send(Incoming::During(id, bytes)).await;
        answer
    }

    /// Takes a stream up again behind its last event, where the server gives its events ids.
    async fn resume(&self, ended: &Stream, early: &str) -> Result<Stream, Failure> {
        let modern = self.agreed().revision.is_some_and(|revision| !revision.has_handshake());
        let Some(id) = ended.resume_id().filter(|_| !modern) else {
            return Err(unexpected(early));
        };
        let pause = ended.retry().unwrap_or(PAUSE).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        for _ in ended.barren..RESUMPTIONS {
            sleep(pause).await;
            match self.get(Some(&id)).await {
                Ok(response) => {
                    let mut stream = self.stream(response, Patience::Request);
                    stream.continues(Some(id), ended);
                    return Ok(stream);
                }
                Err(LinkError::Io(_)) => {}
                Err(error) => {
                    return Err(unexpected(format!("{early}, and it cannot be taken up again: {error}")));
                }
            }
        }
        Err(unexpected(format!("{early}, and it could not be taken up again")))
    }

    /// A stream of messages that belong to no request.
    async fn get(&self, after: Option<&HeaderValue>) -> Result<Response, LinkError> {
        let headers = || {
            let mut headers = self.headers(None);
            if let Some(id) = after {
                headers.insert(LAST_EVENT_ID, id.clone());
            }
            headers
        };
        let response = self.client.send(Method::GET, &self.target, EVENTS, headers, None).await?;
        if !response.status().is_success() {
            return Err(Refusal::read(response).await.into());
        }
        if content_type(response.headers()) != EVENTS {
            return Err(LinkError::Status {
                status: response.status().as_u16(),
                body: None,
                challenge: None,
            });
        }
        Ok(response)
    }

    /// Listens for what the server says unasked. Many servers offer no such stream, which is fine;
    /// an error is returned where the link is of no use any more.
    async fn listen(&self) -> Option<LinkError> {
        let _ = self.settled.subscribe().wait_for(|settled| *settled).await;
        let (mut before, mut failures, mut pause): (Option<Stream>, _, _) = (None, 0, PAUSE);
        loop {
            let last_id = before.as_ref().and_then(Stream::resume_id);
            let got = self.get(last_id.as_ref()).await;
            self.heard.send_replace(true);
            match got {
                Ok(response) => {
                    failures = 0;
                    let since = Instant::now();
                    let mut stream = self.stream(response, Patience::Listening);
                    if let Some(before) = &before {
                        stream.continues(last_id, before);
                    }
                    if let Err(error @ LinkError::TooLarge(_)) = self.relay_all(&mut stream).await {
                        return Some(error);
                    }
                    let asked = stream.retry().unwrap_or(PAUSE).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
                    // A stream that ends soon and brings nothing is asked for less and less often.
                    let short = since.elapsed() < LONGEST_PAUSE && stream.barren > 0;
                    pause = if short { (pause * 2).clamp(asked, LONGEST_PAUSE) } else { asked };
                    before = Some(stream);
                }
                Err(error @ LinkError::Status { status: 404, .. })
                    if before.is_some() && self.agreed().session.is_some() =>
                {
                    return Some(error);
                }
                // The server may not know the event any more; it is asked for what comes from now on.
                Err(LinkError::Status { status: 400..=499, .. }) if last_id.is_some() => before = None,
                Err(LinkError::Io(_) | LinkError::Status { status: 500.., .. }) if failures < RESUMPTIONS => {
                    failures += 1;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(_) => return None,
            }
            sleep(spread(pause)).await;
        }
    }

    /// Sends what wants no answer. The first of its kind ends the handshake.
    async fn other(self: Arc<Self>, bytes: Bytes, first: bool) -> Finished {
        let had_session = self.agreed().session.is_some();
        let headers = || self.headers(None);
        let sending = self.client.send(Method::POST, &self.target, EITHER, headers, Some(bytes));
        let response = timeout(NOTIFY_TIME, sending).await;
        if first {
            self.settled.send_replace(true);
        }
        // What went wrong on the way is found out by the next request, which has somebody to tell.
        let Ok(Ok(response)) = response else { return Finished::Other };
        if response.status() == StatusCode::NOT_FOUND && had_session {
            return Finished::Link(Refusal::read(response).await.into());
        }
        drain(response).await;
        Finished::Other
    }

    /// Ends the session on the server, as far as it can be done in a short time.
    async fn farewell(&self) {
        if self.client.options.terminate_on_close && self.agreed().session.is_some() {
            let headers = || self.headers(None);
            let sending = self.client.send(Method::DELETE, &self.target, EITHER, headers, None);
            let _ = timeout(FAREWELL_TIME, sending).await;
        }
    }

    /// What the protocol says in headers. Headers of single requests are to be added here.
    fn headers(&self, request: Option<&Request>) -> HeaderMap {
        let Agreed { mut session, mut revision } = self.agreed().clone();
        match request.map(|request| &*request.method) {
            // These two come before anything is agreed, and may cross each other.
            Some("initialize") => (session, revision) = (None, None),
            Some("server/discover") => revision = Some(Revision::NEWEST),
            _ => {}
        }
        let mut headers = self.client.headers();
        if let Some(Request { trace, .. }) = request {
            headers.insert(TRACEPARENT, header_value(trace.traceparent()));
            headers.insert(CORRELATION_ID, header_value(trace.correlation_id()));
        }
        let newest = revision.is_some_and(|revision| !revision.has_handshake());
        if let Some(revision) = revision.filter(|revision| revision.has_header()) {
            headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(revision.name()));
        }
        if let Some(session) = session.filter(|_| !newest) {
            headers.insert(SESSION_ID, session);
        }
        if let Some(request) = request.filter(|_| newest) {
            headers.insert(METHOD, header_value(&request.method));
            if let Some(name) = &request.name {
                headers.insert(NAME, header_value(name));
            }
            for (name, value) in &request.mirrored {
                // Names were checked when the tool was discovered.
                if let Ok(name) = HeaderName::try_from(name) {
                    headers.insert(name, header_value(value));
                }
            }
        }
        headers
    }
}

/// One more who waits for a slot, as long as it lives.
struct Waiting<'a> {
    count: &'a AtomicUsize,
    before: usize,
}

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        Self { before: count.fetch_add(1, Ordering::Relaxed), count }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

fn unexpected(what: impl Into<String>) -> Failure {
    Failure::Request(LinkError::Io(what.into()))
}

/// Reads the little that is left of an answer, so that its connection can be used again.
async fn drain(mut response: Response) {
    let mut left: usize = 16 << 10;
    let _ = timeout(LINGER, async {
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
    (id.len() <= SESSION_ID_BYTES && id.as_bytes().iter().all(u8::is_ascii_graphic)).then_some(id)
}

/// A value as a header: as it is where every reader takes it for the same, else in base64.
fn header_value(text: &str) -> HeaderValue {
    let visible = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let mistakable = text.starts_with("=?base64?") && text.ends_with("?=");
    let plain = visible && !mistakable && text.trim_matches(' ') == text;
    let value = if plain {
        HeaderValue::from_str(text)
    } else {
        HeaderValue::try_from(format!("=?base64?{}?=", STANDARD.encode(text)))
    };
    value.expect("visible ASCII is a header value")
}

/// The code of the error with which a body answers a request.
fn answered_error(body: &Bytes, id: i64, limits: Limits) -> Option<i64> {
    let messages = Message::read(body, limits).ok()?;
    messages.into_iter().find_map(|message| match message {
        Message::Response { id: Id::Number(to), outcome: Err(error) } if to == id => Some(error.code),
        _ => None,
    })
}

/// Whether a message, or one of a batch, answers this request.
///
/// Looks at the outermost level alone, without recursion and without keeping anything, so it may
/// come before the scan: all that depends on it is when a stream has done its work.
fn answers(bytes: &[u8], id: i64) -> bool {
    if bytes.trim_ascii_start().first() != Some(&b'[') {
        return serde_json::from_slice::<Envelope<'_>>(bytes).is_ok_and(|envelope| envelope.answers(id));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    serde::Deserializer::deserialize_seq(&mut deserializer, Batch(id)).unwrap_or(false)
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<IgnoredAny>,
}

impl Envelope<'_> {
    fn answers(&self, id: i64) -> bool {
        self.method.is_none() && self.id.is_some_and(|raw| raw.get().parse() == Ok(id))
    }
}

struct Batch(i64);

impl<'de> Visitor<'de> for Batch {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a batch")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut messages: A) -> Result<bool, A::Error> {
        let mut found = false;
        while let Some(message) = messages.next_element::<Envelope<'de>>()? {
            found |= message.answers(self.0);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests;
