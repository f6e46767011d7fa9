//! MCP over HTTP: `/mcp` for every revision that has it, `/sse` for the first, `/ws` for a WebSocket.

pub(crate) mod sse;
pub(crate) mod ws;

use std::sync::Arc;

use axum::body::Body as HttpBody;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode, Uri};
use toolgate_mcp::serve::{Belongs, Body, Head, Reply};
use toolgate_types::profile::ProfileName;

use crate::admit::Refusal;
use crate::gateway::Visitor;
use crate::rest::{self, Guest};
use crate::{Door, body};

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// Whether an address is that of MCP over HTTP: all of it, or a profile.
pub(crate) fn is_at(path: &str) -> bool {
    path == "/mcp" || path.strip_prefix("/mcp/").is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

/// What can be done there.
pub(crate) const METHODS: [Method; 3] = [Method::GET, Method::POST, Method::DELETE];

/// Answers a request to that address, with one of these methods.
pub(crate) async fn answer(
    door: &Arc<Door>,
    guest: &Guest,
    parts: &Parts,
    body: Incoming,
) -> Result<Response, Refusal> {
    let headers = &parts.headers;
    let visitor = if door.gate.goes_by_scopes(&guest.caller, guest.standing) {
        Visitor::by_scopes(&guest.caller)
    } else {
        Visitor::new(&guest.caller)
    };
    let visitor = visitor.seeing(door.profile(guest, &parts.uri)?);
    let head = head(guest, headers);
    let reply = match parts.method {
        Method::GET => door.mcp.get(&visitor, &head),
        Method::DELETE => door.mcp.delete(&visitor, &head),
        _ => {
            let bytes = body::bytes(headers, body, door.max_body).await?;
            door.mcp.post(&visitor, head, bytes).await
        }
    };
    // Only where this is all there is to say: of a batch other calls were made, and a stream has begun.
    match visitor.lacks() {
        Some(missing) if is_one(&reply) && door.gate.has_scope_for(missing) => {
            Err(Refusal::lacks_all(missing))
        }
        _ => Ok(respond(door, guest, reply)),
    }
}

/// Whether an answer is that to one request.
fn is_one(reply: &Reply) -> bool {
    matches!(&reply.body, Body::Json(parts) if parts.first().is_some_and(|part| part.starts_with(b"{")))
}

impl Door {
    /// The profile that an address names. One that is not for this caller is not there.
    pub(crate) fn profile(&self, guest: &Guest, uri: &Uri) -> Result<Option<ProfileName>, Refusal> {
        let named = uri.path().trim_start_matches('/').split_once('/').map(|(_, name)| name);
        self.runtime.profiles().of(&guest.caller.id, named).map_err(|_| rest::nothing())?;
        named.map(|name| name.parse().map_err(|_| rest::nothing())).transpose()
    }
}

fn head<'a>(guest: &Guest, headers: &'a HeaderMap) -> Head<'a> {
    let trace = guest.trace.clone();
    // Ids that a request did not bring may stand in its `_meta`.
    let trace = if guest.identified || guest.traced { Belongs::To(trace) } else { Belongs::ElseTo(trace) };
    Head { headers, trace }
}

fn respond(door: &Arc<Door>, guest: &Guest, reply: Reply) -> Response {
    let (kind, body) = match reply.body {
        Body::Empty => (None, HttpBody::empty()),
        Body::Json(mut parts) => {
            let body = match parts.as_mut_slice() {
                [only] => HttpBody::from(std::mem::take(only)),
                _ => HttpBody::new(Document::new(parts)),
            };
            (Some("application/json"), body)
        }
        Body::Events(events) => (Some("text/event-stream"), streamed(door, guest, events)),
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if let Some(kind) = kind {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    if reply.status == 405 {
        headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
    }
    if let Some(session) = reply.session.and_then(|session| HeaderValue::from_str(&session).ok()) {
        headers.insert(SESSION_ID, session);
    }
    response
}

/// A stream as a body. What is open for long must not keep the door from closing, and not outlast what let it in.
fn streamed(door: &Arc<Door>, guest: &Guest, events: impl Stream<Item = Bytes> + Send + 'static) -> HttpBody {
    let (door, standing) = (Arc::clone(door), guest.standing);
    let end = async move {
        tokio::select! {
            () = door.running.closing() => {}
            () = door.gate.over(standing) => {}
        }
    };
    HttpBody::from_stream(events.take_until(Box::pin(end)).map(Ok::<_, std::convert::Infallible>))
}

/// A document in parts: sent one after the other, with the length of all.
struct Document {
    parts: std::vec::IntoIter<Bytes>,
    left: u64,
}

impl Document {
    fn new(parts: Vec<Bytes>) -> Self {
        let left = parts.iter().map(|part| part.len() as u64).sum();
        Self { parts: parts.into_iter(), left }
    }
}

impl hyper::body::Body for Document {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
        let part = self.parts.next();
        if let Some(part) = &part {
            self.left -= part.len() as u64;
        }
        std::task::Poll::Ready(part.map(|part| Ok(hyper::body::Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.as_slice().is_empty()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        hyper::body::SizeHint::with_exact(self.left)
    }
}
