//! The endpoint over HTTP: one address for every revision from the second on.
//!
//! A request is answered with JSON where nothing is said during it, else with a stream of events. In the newest
//! revision every request stands alone and headers say what it is about; before it there are sessions. Invariant:
//! a header that does not say what the body says is refused. Whoever closes the stream of a request cancels it, in the
//! newest revision; the streams of sessions can be come back to.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use memchr::memchr2;
use reqwest::header::{HeaderMap, HeaderName};
use serde_json::json;
use tokio::time::timeout;
use toolgate_types::json::unquoted;

use super::begin::{Came, Face, Initialize, Keeping, check_meta};
use super::exchange::{Exchange, Next};
use super::meta::Meta;
use super::resumable::{Owner, Rest};
use super::session::Ticket;
use super::soon::{Soon, soon, streamed};
use super::{
    Endpoint, Guest as _, HEADER_MISMATCH, Service, UNSUPPORTED_REVISION, negotiated, unsupported,
    was_removed,
};
use crate::message::{Id, Message, RpcError};
use crate::revision::Revision;
use crate::trace::Trace;

/// How often a silent stream says that it lives.
pub const HEARTBEAT: Duration = Duration::from_secs(15);
/// Messages of a batch.
const MOST_IN_BATCH: usize = 100;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// What a request says beside its body.
pub struct Head<'a> {
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// The call that it belongs to.
    pub trace: Belongs,
}

/// What a transport knows of the call that a request belongs to.
pub enum Belongs {
    /// It says so.
    To(Trace),
    /// It does not say; where the request does not either, it is this one.
    ElseTo(Trace),
    /// Nothing.
    Unknown,
}

/// The answer to a request.
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The id of the session that begins with it.
    pub session: Option<String>,
    /// What it says.
    pub body: Body,
}

/// What an answer says.
pub enum Body {
    /// Nothing.
    Empty,
    /// One document, in parts that follow each other.
    Json(Vec<Bytes>),
    /// Events, as they come.
    Events(BoxStream<'static, Bytes>),
}

impl Reply {
    fn empty(status: u16) -> Self {
        Self { status, session: None, body: Body::Empty }
    }

    pub(super) fn events(events: BoxStream<'static, Bytes>) -> Self {
        Self { status: 200, session: None, body: Body::Events(events) }
    }

    pub(super) fn message(status: u16, message: &Message) -> Self {
        Self { status, session: None, body: Body::Json(message.to_parts()) }
    }

    /// An error that answers this request, or nobody knows which.
    pub(super) fn error(status: u16, id: Option<&Id>, error: RpcError) -> Self {
        let Some(id) = id else {
            let body = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": error.code, "message": error.message } });
            return Self { status, session: None, body: Body::Json(vec![body.to_string().into()]) };
        };
        Self::message(status, &Message::Response { id: id.clone(), outcome: Err(error) })
    }
}

impl Head<'_> {
    fn text(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
    }

    fn takes_events(&self) -> bool {
        let accept = self.headers.get_all(reqwest::header::ACCEPT);
        accept.iter().filter_map(|value| value.to_str().ok()).any(|value| {
            value.split(',').any(|kind| {
                let kind = kind.split(';').next().unwrap_or_default().trim();
                kind.eq_ignore_ascii_case("text/event-stream") || kind == "*/*" || kind == "text/*"
            })
        })
    }
}

impl<S: Service> Endpoint<S> {
    /// Answers a POST.
    pub async fn post(self: &Arc<Self>, guest: &S::Guest, head: Head<'_>, body: Bytes) -> Reply {
        let is_batch = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
        let messages = match Message::read_of_client(&body, self.limits) {
            Ok(messages) => messages,
            Err(error) => {
                let id = error.whose(&body);
                return Reply::error(400, id.as_ref(), RpcError::new(error.code(), error.to_string()));
            }
        };
        let version = head.text(&PROTOCOL_VERSION);
        let known = version.map(str::parse::<Revision>);
        let newest = match (&known, messages.as_slice()) {
            (Some(Ok(revision)), _) if !revision.has_handshake() => true,
            (Some(Err(_)), _) => true,
            // One that says of itself what only the newest revision says is of that.
            (_, [Message::Request { params, method, .. }]) if &**method != "initialize" => {
                Meta::of(&params.as_ref().map(crate::Raw::parts).unwrap_or_default()).version.is_some()
            }
            _ => false,
        };
        if newest {
            return match <[Message; 1]>::try_from(messages) {
                Ok([message]) if !is_batch => self.post_newest(guest, &head, message).await,
                _ => Reply::error(400, None, RpcError::new(-32600, "this revision has no batches")),
            };
        }
        self.post_session(guest, &head, messages, is_batch).await
    }

    async fn post_newest(&self, guest: &S::Guest, head: &Head<'_>, message: Message) -> Reply {
        let (id, method, params) = match message {
            Message::Request { id, method, params } => (id, method, params),
            Message::Notification { .. } => return Reply::empty(202),
            Message::Response { id, .. } => {
                return Reply::error(400, Some(&id), RpcError::new(-32600, "answers have no place here"));
            }
        };
        let came = Came::new(id, method, params, &head.trace);
        if let Err(error) = check_meta(&came.meta).and_then(|()| self.check_head(guest, head, &came)) {
            return Reply::error(400, Some(&came.id), error);
        }
        if &*came.method == "subscriptions/listen" {
            return match self.listen(guest, &came.id, came.params.as_ref()).await {
                Ok(messages) => Reply::events(events(messages)),
                Err(error) => Reply::error(400, Some(&came.id), error),
            };
        }
        match soon(self.begin(guest, came), head.takes_events(), std::future::pending()).await {
            Soon::Reply(reply) => reply,
            Soon::Stream(first, exchange, _) => streamed(first, exchange),
        }
    }

    /// Whether the headers say what the body says.
    fn check_head(&self, guest: &S::Guest, head: &Head<'_>, came: &Came) -> Result<(), RpcError> {
        let mismatch = |name: &str| {
            RpcError::new(HEADER_MISMATCH, format!("the header `{name}` does not say what the body says"))
        };
        let version = came.meta.version.as_deref().unwrap_or_default();
        if head.text(&PROTOCOL_VERSION) != Some(version) {
            return Err(mismatch("MCP-Protocol-Version"));
        }
        if version != Revision::NEWEST.name() {
            return Err(unsupported(version));
        }
        if head.text(&METHOD) != Some(&*came.method) {
            return Err(mismatch("Mcp-Method"));
        }
        // What there is no more has nothing that a header could name.
        if was_removed(&came.method) {
            return Ok(());
        }
        let member = match &*came.method {
            "tools/call" | "prompts/get" => "name",
            "resources/read" => "uri",
            method if method.starts_with("tasks/") => "taskId",
            _ => return Ok(()),
        };
        let find =
            |name: &str| came.members.iter().find(|(member, _)| *member == name).map(|(_, value)| value);
        let named = find(member).and_then(|value| unquoted(value.get()));
        let header = head.text(&NAME).map(plain).transpose().map_err(|()| mismatch("Mcp-Name"))?;
        if header.as_deref() != named.as_deref() {
            return Err(mismatch("Mcp-Name"));
        }
        if &*came.method != "tools/call" {
            return Ok(());
        }
        let mirrors = self.service.mirrors(guest, named.as_deref().unwrap_or_default());
        if mirrors.is_empty() {
            return Ok(());
        }
        let arguments = find("arguments").and_then(|value| value.parse().ok()).unwrap_or_default();
        for mirror in &mirrors {
            let name = mirror.header();
            let said = self::header(head, &name).map_err(|()| mismatch(&name))?;
            let agrees = mirror.agrees(said.as_deref(), &arguments);
            if !agrees.map_err(|large| RpcError::new(RpcError::INVALID_PARAMS, large.to_string()))? {
                return Err(mismatch(&name));
            }
        }
        Ok(())
    }

    async fn post_session(
        self: &Arc<Self>,
        guest: &S::Guest,
        head: &Head<'_>,
        messages: Vec<Message>,
        is_batch: bool,
    ) -> Reply {
        if let [Message::Request { id, method, params }] = messages.as_slice()
            && &**method == "initialize"
        {
            return self.welcome(guest, id, params.as_ref());
        }
        let face = match self.face(guest, head) {
            Ok(face) => face,
            Err(status) => {
                let id = messages.iter().find_map(|message| match message {
                    Message::Request { id, .. } => Some(id),
                    _ => None,
                });
                let error = if status == 404 {
                    RpcError::new(-32001, "there is no such session; begin with `initialize`")
                } else {
                    RpcError::new(-32600, "the request has no `Mcp-Session-Id`; begin with `initialize`")
                };
                return Reply::error(status, id, error);
            }
        };
        if is_batch && (!face.revision.has_batches() || messages.len() > MOST_IN_BATCH) {
            let why = if face.revision.has_batches() {
                "the batch is too long"
            } else {
                "this revision has no batches"
            };
            return Reply::error(400, None, RpcError::new(-32600, why));
        }
        let takes_events = head.takes_events();
        let mut exchanges = Vec::new();
        for message in messages {
            match message {
                Message::Request { id, method, params } => {
                    let mut face = face.clone();
                    if !takes_events {
                        // Whoever cannot hear a question is asked none.
                        face.capabilities = json!({});
                    }
                    let came = Came::new(id, method, params, &head.trace);
                    exchanges.push(self.begin_with(guest, &face, came));
                }
                Message::Response { id, outcome } => {
                    if let Some(kept) = face.keeping.find() {
                        kept.pending.answered(&id, outcome);
                    }
                }
                Message::Notification { method, params } if &*method == "notifications/cancelled" => {
                    if let Some(id) = params.as_ref().and_then(cancelled) {
                        self.sessions.cancel(face.session.as_deref().unwrap_or_default(), &id);
                    }
                }
                Message::Notification { .. } => {}
            }
        }
        if !is_batch && let Some(exchange) = exchanges.pop() {
            let session = face.session.unwrap_or_default();
            let (guard, left) = self.sessions.may_cancel(&session, &exchange.id);
            return match soon(exchange, takes_events, Box::pin(left)).await {
                Soon::Reply(reply) => reply,
                Soon::Stream(first, exchange, left) => {
                    let owner = Owner { guest: guest.id().into(), session };
                    Reply::events(self.streams.begin(owner, first, *exchange, left, guard))
                }
            };
        }
        if exchanges.is_empty() { Reply::empty(202) } else { all(exchanges).await }
    }

    fn welcome(&self, guest: &S::Guest, id: &Id, params: Option<&crate::Raw>) -> Reply {
        let asked = match Initialize::read(params) {
            Ok(asked) => asked,
            Err(error) => return Reply::error(200, Some(id), error),
        };
        let revision = negotiated(asked.protocol_version.as_deref());
        let ticket = Ticket::new(guest.id(), revision, asked.capabilities);
        let Some(session) = self.sealer.seal(&ticket) else {
            let error =
                RpcError::new(RpcError::INVALID_PARAMS, "the client declares more than fits into a session");
            return Reply::error(200, Some(id), error);
        };
        let result = Message::Response { id: id.clone(), outcome: Ok(self.initialized(guest, revision)) };
        Reply { session: Some(session), ..Reply::message(200, &result) }
    }

    /// The client of a session, or the status that says why there is none.
    fn face(&self, guest: &S::Guest, head: &Head<'_>) -> Result<Face, u16> {
        let id = head.text(&SESSION_ID).ok_or(400_u16)?;
        let ticket = self.sealer.open(id, guest.id()).ok_or(404_u16)?;
        if self.sessions.has_ended(&ticket.number) {
            return Err(404);
        }
        Ok(Face {
            revision: ticket.revision(),
            identity: ticket.identity(),
            keeping: Keeping::Books(Arc::clone(&self.sessions), ticket.number.clone()),
            session: Some(ticket.number),
            capabilities: ticket.capabilities,
        })
    }

    /// Answers a GET: what a session hears that belongs to no request, or what it missed of one that does.
    pub fn get(&self, guest: &S::Guest, head: &Head<'_>) -> Reply {
        let newest = head.text(&PROTOCOL_VERSION) == Some(Revision::NEWEST.name());
        if newest || !head.takes_events() {
            return Reply::empty(405);
        }
        match self.face(guest, head) {
            Ok(face) => match head.text(&LAST_EVENT_ID) {
                Some(last) => {
                    let owner = Owner { guest: guest.id().into(), session: face.session.unwrap_or_default() };
                    match self.streams.resume(&owner, last) {
                        Some(Rest::Events(events)) => Reply::events(events),
                        // This is how a stream says that nobody has to come back.
                        Some(Rest::Nothing) => Reply::empty(204),
                        // With 404 the client would give its session up.
                        None => Reply::empty(400),
                    }
                }
                None => Reply::events(events(self.heard(guest, face.keeping))),
            },
            Err(status) => Reply::empty(if status == 404 { 404 } else { 405 }),
        }
    }

    /// Answers a DELETE: the session ends.
    pub fn delete(&self, guest: &S::Guest, head: &Head<'_>) -> Reply {
        if head.text(&PROTOCOL_VERSION) == Some(Revision::NEWEST.name()) {
            return Reply::empty(405);
        }
        match self.face(guest, head) {
            Ok(face) => {
                let session = face.session.unwrap_or_default();
                self.sessions.end(&session);
                self.streams.end(&session);
                Reply::empty(204)
            }
            Err(status) => Reply::empty(if status == 404 { 404 } else { 405 }),
        }
    }
}

/// The value of a header as it is meant.
fn header(head: &Head<'_>, name: &str) -> Result<Option<String>, ()> {
    let Ok(name) = HeaderName::try_from(name) else { return Err(()) };
    match head.headers.get(&name) {
        None => Ok(None),
        Some(value) => plain(value.to_str().map_err(drop)?.trim()).map(Some),
    }
}

/// What a value says that may be in base64.
fn plain(value: &str) -> Result<String, ()> {
    let Some(coded) = value.strip_prefix("=?base64?").and_then(|value| value.strip_suffix("?=")) else {
        return Ok(value.to_owned());
    };
    String::from_utf8(STANDARD.decode(coded).map_err(drop)?).map_err(drop)
}

/// The request that whoever made it does not wait for any more.
pub(crate) fn cancelled(params: &crate::Raw) -> Option<Id> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Cancelled {
        request_id: serde_json::Value,
    }
    match params.parse::<Cancelled>().ok()?.request_id {
        serde_json::Value::String(text) => Some(Id::Text(text.into())),
        number => number.as_i64().map(Id::Number),
    }
}

/// The status of an answer, by the revision and the code of its error.
pub(super) fn status(revision: Revision, code: Option<i64>) -> u16 {
    match code {
        _ if revision.has_handshake() => 200,
        Some(RpcError::METHOD_NOT_FOUND) => 404,
        Some(HEADER_MISMATCH | RpcError::MISSING_CAPABILITY | UNSUPPORTED_REVISION) => 400,
        _ => 200,
    }
}

/// All answers of a batch, as one.
async fn all(exchanges: Vec<Exchange>) -> Reply {
    let answers = futures_util::future::join_all(exchanges.into_iter().map(|mut exchange| async move {
        loop {
            if let Next::End(message, _) = exchange.next().await {
                return message.to_bytes();
            }
        }
    }));
    let mut parts = Vec::new();
    for (at, answer) in answers.await.into_iter().enumerate() {
        parts.push(Bytes::from_static(if at == 0 { b"[" } else { b"," }));
        parts.push(answer);
    }
    parts.push(Bytes::from_static(b"]"));
    Reply { status: 200, session: None, body: Body::Json(parts) }
}

/// Messages as events, with a sign of life where there are none.
fn events(messages: BoxStream<'static, Message>) -> BoxStream<'static, Bytes> {
    let begin = stream::once(std::future::ready(Bytes::from_static(b":\n\n")));
    let rest = stream::unfold(messages, |mut messages| async move {
        match timeout(HEARTBEAT, messages.next()).await {
            Ok(Some(message)) => Some((event(&message), messages)),
            Ok(None) => None,
            Err(_) => Some((Bytes::from_static(b":\n\n"), messages)),
        }
    });
    Box::pin(begin.chain(rest))
}

pub(super) fn event(message: &Message) -> Bytes {
    framed(&message.to_bytes())
}

/// A message as an event.
pub fn framed(bytes: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(bytes.len() + 32);
    out.extend_from_slice(b"event: message\ndata: ");
    if memchr2(b'\n', b'\r', bytes).is_none() {
        out.extend_from_slice(bytes);
    } else {
        // Between the values of JSON a space says the same.
        out.extend(bytes.iter().map(|&byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
    }
    out.extend_from_slice(b"\n\n");
    out.into()
}
