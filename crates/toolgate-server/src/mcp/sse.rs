//! `/sse`: the transport of the first revision, for clients that know no other.
//!
//! One stream for all that the client is told, an address of our choice for all that it says. Invariant: what it
//! says there counts only from whoever opened the stream, with no less and no more than it had then.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{StatusCode, Uri};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use toolgate_mcp::link::{Incoming, Link, Outgoing, QUEUE};
use toolgate_mcp::serve::{HEARTBEAT, framed, unguessable};
use toolgate_types::Caller;

use super::streamed;
use crate::Door;
use crate::admit::Refusal;
use crate::body;
use crate::gateway::Visitor;
use crate::rest::{Guest, tools};

/// Streams that are open at once.
const MOST: usize = 4_096;

/// Where messages of open streams go, and whose they are.
#[derive(Default)]
pub(crate) struct Streams(Mutex<Open>);

type Open = HashMap<Box<str>, (Arc<Caller>, mpsc::Sender<Incoming>)>;

impl Streams {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream that is open, as long as it lives.
struct Opened {
    door: Arc<Door>,
    id: Box<str>,
    _conversation: JoinSet<()>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.door.streams.lock().remove(&self.id);
    }
}

pub(crate) async fn open(State(door): State<Arc<Door>>, guest: Guest, uri: Uri) -> Result<Response, Refusal> {
    let profile = door.profile(&guest, &uri)?;
    let (outbox, said) = mpsc::channel(QUEUE);
    let (sender, inbox) = mpsc::channel(QUEUE);
    let id: Box<str> = unguessable().into();
    {
        let mut streams = door.streams.lock();
        if streams.len() >= MOST {
            return Err(Refusal::unavailable("too many streams are open"));
        }
        streams.insert(id.clone(), (Arc::clone(&guest.caller), sender));
    }
    let mut conversation = JoinSet::new();
    let (conversing, visitor) = (Arc::clone(&door), Visitor::new(&guest.caller).seeing(profile));
    conversation.spawn(async move {
        let link = Link::new(outbox, inbox, JoinSet::new());
        conversing.mcp.converse(visitor, link).await;
    });
    let begin = Bytes::from(format!("event: endpoint\ndata: /sse/messages?session={id}\n\n"));
    let opened = Opened { door: Arc::clone(&door), id, _conversation: conversation };
    let rest = stream::unfold((said, opened), |(mut said, opened)| async move {
        loop {
            match timeout(HEARTBEAT, said.recv()).await {
                Ok(Some(Outgoing::Other(bytes))) => return Some((framed(&bytes), (said, opened))),
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(_) => return Some((Bytes::from_static(b":\n\n"), (said, opened))),
            }
        }
    });
    let events = stream::once(std::future::ready(begin)).chain(rest);
    let mut response = Response::new(streamed(&door, &guest, events));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(response)
}

/// Which stream a message is for.
#[derive(Deserialize)]
pub(crate) struct Wanted {
    session: String,
}

pub(crate) async fn message(
    State(door): State<Arc<Door>>,
    guest: Guest,
    wanted: Result<Query<Wanted>, QueryRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let Wanted { session } = tools::query(wanted)?;
    let bytes = body::bytes(&headers, body, door.max_body).await?;
    let found = door.streams.lock().get(session.as_str()).cloned();
    let sender = found.filter(|(caller, _)| *caller == guest.caller).map(|(_, sender)| sender);
    let sender =
        sender.ok_or_else(|| Refusal::not_found("there is no such stream").hint("open one at `/sse`"))?;
    let gone = |_| Refusal::not_found("the stream has ended");
    sender.send(Incoming::Message(bytes)).await.map_err(gone)?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    Ok(response)
}
