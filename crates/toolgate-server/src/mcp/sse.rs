//! `/sse`: HTTP+SSE transport of the first revision, for clients that support no other.
//!
//! One stream carries all messages to the client; the client posts its messages to a URL from the stream. Invariant:
//! messages count only from the caller that opened the stream, with the same permissions as then.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use http::StatusCode;
use http::header::{self, HeaderValue};
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use toolgate_mcp::link::{Link, LinkCommand, LinkEvent, QUEUE_CAPACITY};
use toolgate_mcp::server::{KEEPALIVE_INTERVAL, random_id, sse_event};
use toolgate_types::Caller;

use super::expiring_body;
use crate::Gateway;
use crate::auth::{HttpError, LinkClient};
use crate::mcp_service::McpCaller;
use crate::response::{self, Response};
use crate::route::AdmittedRequest;
use crate::streams::StreamPermit;

/// Open streams at the same time.
const MAX_STREAMS: usize = 4_096;

/// Open streams, with their callers.
#[derive(Default)]
pub(crate) struct SseSessions(Mutex<SessionMap>);

type SessionMap = HashMap<Box<str>, (Arc<Caller>, mpsc::Sender<LinkEvent>)>;

impl SseSessions {
    fn lock(&self) -> MutexGuard<'_, SessionMap> {
        self.0.lock()
    }
}

/// Removes the stream from the open ones when dropped.
struct SseGuard {
    gateway: Arc<Gateway>,
    id: Box<str>,
    _session: JoinSet<()>,
    _permit: StreamPermit,
}

impl Drop for SseGuard {
    fn drop(&mut self) {
        self.gateway.mcp.sse_sessions.lock().remove(&self.id);
    }
}

pub(crate) async fn open(request: AdmittedRequest) -> Result<Response, HttpError> {
    let profile = request.profile()?;
    let AdmittedRequest { gateway, auth, .. } = request;
    let permit = gateway.streams.acquire(&auth.caller.id)?;
    let (outbox, outgoing) = mpsc::channel(QUEUE_CAPACITY);
    let (sender, inbox) = mpsc::channel(QUEUE_CAPACITY);
    let id: Box<str> = random_id().into();
    {
        let mut streams = gateway.mcp.sse_sessions.lock();
        if streams.len() >= MAX_STREAMS {
            return Err(HttpError::unavailable("too many streams are open"));
        }
        streams.insert(id.clone(), (Arc::clone(&auth.caller), sender));
    }
    let mut session_task = JoinSet::new();
    let (serving, mcp_caller) = (Arc::clone(&gateway), McpCaller::new(&auth.caller).with_profile(profile));
    let client = LinkClient {
        gateway: Arc::clone(&gateway),
        caller: auth.caller.id.clone(),
        address: auth.address,
        // Each frame is an HTTP request, and counted as one.
        counts_batches_only: true,
        lifetime: auth.lifetime.clone(),
    };
    session_task.spawn(async move {
        let link = Link::new(outbox, inbox, JoinSet::new());
        serving.mcp.serve_link(mcp_caller, link, Some(client)).await;
    });
    let begin = Bytes::from(format!("event: endpoint\ndata: /sse/messages?session={id}\n\n"));
    let guard = SseGuard { gateway: Arc::clone(&gateway), id, _session: session_task, _permit: permit };
    let rest = stream::unfold((outgoing, guard), |(mut outgoing, guard)| async move {
        loop {
            match timeout(KEEPALIVE_INTERVAL, outgoing.recv()).await {
                Ok(Some(LinkCommand::Message(bytes))) => return Some((sse_event(&bytes), (outgoing, guard))),
                Ok(Some(LinkCommand::Close) | None) => return None,
                Ok(Some(_)) => {}
                Err(_) => return Some((Bytes::from_static(b":\n\n"), (outgoing, guard))),
            }
        }
    });
    let events = stream::once(std::future::ready(begin)).chain(rest);
    let mut response = Response::new(expiring_body(&gateway, &auth, events));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(response)
}

/// Query of a posted message.
#[derive(Deserialize)]
pub(crate) struct MessageQuery {
    session: String,
}

pub(crate) async fn message(request: AdmittedRequest) -> Result<Response, HttpError> {
    let MessageQuery { session } = request.query()?;
    let found = request.gateway.mcp.sse_sessions.lock().get(session.as_str()).cloned();
    let sender = found.filter(|(caller, _)| *caller == request.auth.caller).map(|(_, sender)| sender);
    let sender =
        sender.ok_or_else(|| HttpError::not_found("there is no such stream").hint("open one at `/sse`"))?;
    let gone = |_| HttpError::not_found("the stream has ended");
    sender.send(LinkEvent::Message(request.body)).await.map_err(gone)?;
    Ok(response::empty(StatusCode::ACCEPTED))
}
