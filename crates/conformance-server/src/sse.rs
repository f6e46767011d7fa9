//! HTTP+SSE, the transport of the first revision, which the library has dropped.
//!
//! `GET /sse` opens a session: its first event names the address for the client's messages, all others are
//! the server's. `POST /messages?session=N` takes one message. Between the two and the library is a pipe,
//! with a message per line. Invariant: the session ends with its stream.

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

use crate::http::{Body, empty};
use crate::legacy;
use crate::server::Fixture;

/// How much may be on its way in one direction, before whoever writes waits.
const PIPE_BYTES: usize = 1 << 16;

type Writer = Arc<tokio::sync::Mutex<WriteHalf<SimplexStream>>>;
type Open = Arc<Mutex<HashMap<u64, Writer>>>;

/// The sessions there are.
pub(crate) struct Sessions {
    fixture: Fixture,
    open: Open,
    last: Mutex<u64>,
    running: Mutex<JoinSet<()>>,
}

/// The stream of a session, which takes the session with it when it goes.
struct Events {
    id: u64,
    open: Open,
    first: bool,
    lines: BufReader<ReadHalf<SimplexStream>>,
}

impl Drop for Events {
    fn drop(&mut self) {
        // Without its writer, the server reads the end of its input.
        self.open.lock().expect("nobody panics with it").remove(&self.id);
    }
}

impl Sessions {
    pub(crate) fn new(fixture: Fixture) -> Self {
        Self { fixture, open: Arc::default(), last: Mutex::default(), running: Mutex::default() }
    }

    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let id = request.uri().query().and_then(|query| query.strip_prefix("session=")?.parse().ok());
        match (request.method(), request.uri().path(), id) {
            (&Method::GET, "/sse", _) => self.open(),
            (&Method::POST, "/messages", Some(id)) => self.take(id, request).await,
            _ => empty(StatusCode::NOT_FOUND),
        }
    }

    fn open(&self) -> Response<Body> {
        let id = {
            let mut last = self.last.lock().expect("nobody panics with it");
            *last += 1;
            *last
        };
        let (input, writer) = simplex(PIPE_BYTES);
        let (reader, output) = simplex(PIPE_BYTES);
        let fixture = self.fixture.another();
        self.running.lock().expect("nobody panics with it").spawn(async move {
            let transport = legacy::Transport::new(AsyncRwTransport::new_server(input, output));
            // A client that leaves before its handshake is none of our business.
            if let Ok(running) = fixture.serve(transport).await {
                let _ = running.waiting().await;
            }
        });
        let writer = Arc::new(tokio::sync::Mutex::new(writer));
        self.open.lock().expect("nobody panics with it").insert(id, writer);
        let events = Events { id, open: Arc::clone(&self.open), first: true, lines: BufReader::new(reader) };
        let mut response = Response::new(StreamBody::new(unfold(events, next)).boxed_unsync());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response
    }

    async fn take(&self, id: u64, request: Request<Incoming>) -> Response<Body> {
        let writer = self.open.lock().expect("nobody panics with it").get(&id).cloned();
        let Some(writer) = writer else { return empty(StatusCode::NOT_FOUND) };
        let Ok(body) = request.into_body().collect().await else { return empty(StatusCode::BAD_REQUEST) };
        // A message of many lines is one of one line here.
        let Ok(message) = serde_json::from_slice::<serde_json::Value>(&body.to_bytes()) else {
            return empty(StatusCode::BAD_REQUEST);
        };
        let line = format!("{message}\n");
        match writer.lock().await.write_all(line.as_bytes()).await {
            Ok(()) => empty(StatusCode::ACCEPTED),
            Err(_) => empty(StatusCode::GONE),
        }
    }
}

/// The next event of a session.
async fn next(mut events: Events) -> Option<(Result<Frame<Bytes>, Infallible>, Events)> {
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
