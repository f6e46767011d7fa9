//! HTTP+SSE, the transport of the first revision, which the library no longer supports.
//!
//! `GET /sse` opens a session: its first event names the URL for the client's messages, all others are the server's
//! messages. `POST /messages?session=N` accepts one message. A pair of pipes connects both to the library, one message
//! per line. Invariant: the session ends with its stream.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::stream::unfold;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use rmcp::ServiceExt;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, ReadHalf, SimplexStream, WriteHalf, simplex};
use tokio::task::JoinSet;

use crate::http::{Body, empty_response};
use crate::legacy;
use crate::server::FixtureServer;

/// Capacity of a pipe in each direction; a writer waits when it is full.
const PIPE_BYTES: usize = 1 << 16;

type PipeWriter = Arc<tokio::sync::Mutex<WriteHalf<SimplexStream>>>;
type OpenSessions = Arc<Mutex<HashMap<u64, PipeWriter>>>;

/// Open sessions.
pub(crate) struct SseSessions {
    fixture: FixtureServer,
    open: OpenSessions,
    last: Mutex<u64>,
    running: Mutex<JoinSet<()>>,
}

/// Event stream of a session. Dropping it ends the session.
struct SseEvents {
    id: u64,
    open: OpenSessions,
    first: bool,
    lines: BufReader<ReadHalf<SimplexStream>>,
}

impl Drop for SseEvents {
    fn drop(&mut self) {
        // Without its writer, the server reads the end of its input.
        self.open.lock().expect("the lock is not poisoned").remove(&self.id);
    }
}

impl SseSessions {
    pub(crate) fn new(fixture: FixtureServer) -> Self {
        Self { fixture, open: Arc::default(), last: Mutex::default(), running: Mutex::default() }
    }

    pub(crate) async fn respond(&self, request: Request<Incoming>) -> Response<Body> {
        let id = request.uri().query().and_then(|query| query.strip_prefix("session=")?.parse().ok());
        match (request.method(), request.uri().path(), id) {
            (&Method::GET, "/sse", _) => self.open_session(),
            (&Method::POST, "/messages", Some(id)) => self.post_message(id, request).await,
            _ => empty_response(StatusCode::NOT_FOUND),
        }
    }

    fn open_session(&self) -> Response<Body> {
        let id = {
            let mut last = self.last.lock().expect("the lock is not poisoned");
            *last += 1;
            *last
        };
        let (input, writer) = simplex(PIPE_BYTES);
        let (reader, output) = simplex(PIPE_BYTES);
        let fixture = self.fixture.new_session();
        self.running.lock().expect("the lock is not poisoned").spawn(async move {
            let transport = legacy::LegacyTransport::new(AsyncRwTransport::new_server(input, output));
            // A client that leaves before its handshake is not an error.
            if let Ok(running) = fixture.serve(transport).await {
                let _ = running.waiting().await;
            }
        });
        let writer = Arc::new(tokio::sync::Mutex::new(writer));
        self.open.lock().expect("the lock is not poisoned").insert(id, writer);
        let events =
            SseEvents { id, open: Arc::clone(&self.open), first: true, lines: BufReader::new(reader) };
        let mut response = Response::new(StreamBody::new(unfold(events, next_event)).boxed_unsync());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response
    }

    async fn post_message(&self, id: u64, request: Request<Incoming>) -> Response<Body> {
        let writer = self.open.lock().expect("the lock is not poisoned").get(&id).cloned();
        let Some(writer) = writer else { return empty_response(StatusCode::NOT_FOUND) };
        let Ok(body) = request.into_body().collect().await else {
            return empty_response(StatusCode::BAD_REQUEST);
        };
        // Re-encode the message, so that it is on one line.
        let Ok(message) = serde_json::from_slice::<serde_json::Value>(&body.to_bytes()) else {
            return empty_response(StatusCode::BAD_REQUEST);
        };
        let line = format!("{message}\n");
        match writer.lock().await.write_all(line.as_bytes()).await {
            Ok(()) => empty_response(StatusCode::ACCEPTED),
            Err(_) => empty_response(StatusCode::GONE),
        }
    }
}

/// Returns the next event of a session.
async fn next_event(mut events: SseEvents) -> Option<(Result<Frame<Bytes>, Infallible>, SseEvents)> {
    let event = if events.first {
        events.first = false;
        format!("event: endpoint\ndata: /messages?session={}\n\n", events.id)
    } else {
        let mut line = String::new();
        if events.lines.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        format!("event: message\ndata: {}\n\n", line.trim_end())
    };
    Some((Ok(Frame::data(Bytes::from(event))), events))
}
