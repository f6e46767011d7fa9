//! Calls with `Accept: text/event-stream`: progress and log messages of the tool as events, then the result.
//!
//! Invariant: a client that reads slowly misses progress, never the result; a client that disconnects cancels the call.

use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::unfold;
use http::header::{self, HeaderMap, HeaderValue};
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;
use tokio::time::sleep;
use toolgate_mcp::{DownstreamClient, RawJson, RpcError};
use toolgate_runtime::Operation;

use super::call::envelope;
use crate::Gateway;
use crate::auth::{Authenticated, HttpError};
use crate::lifecycle::{CallPermit, Phase};
use crate::response::{Response, ResponseBody};
use crate::streams::StreamPermit;

/// Events that wait for a slow client; more are dropped.
const MAX_WAITING: usize = 64;
/// Longest notification that is passed on.
const MAX_EVENT_BYTES: usize = 64 << 10;
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Returns true if the client asks for events, and does not take JSON as well.
pub(super) fn wants_events(headers: &HeaderMap) -> bool {
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let kinds: Vec<_> =
        accept.flat_map(|value| value.split(',')).filter_map(|kind| kind.split(';').next()).collect();
    let has = |wanted: &str| kinds.iter().any(|kind| kind.trim().eq_ignore_ascii_case(wanted));
    has("text/event-stream") && !has("application/json")
}

/// The client of a call with events. It answers no questions.
struct EventClient {
    identity: u64,
    capabilities: Json,
    events: mpsc::Sender<Bytes>,
}

impl DownstreamClient for EventClient {
    fn identity(&self) -> u64 {
        self.identity
    }

    fn capabilities(&self) -> &Json {
        &self.capabilities
    }

    fn wants_progress(&self) -> bool {
        true
    }

    fn log_level(&self) -> Option<Box<str>> {
        None
    }

    fn notify(&self, method: &str, params: Option<&RawJson>) {
        let Some(params) = params.filter(|params| params.as_str().len() <= MAX_EVENT_BYTES) else { return };
        let Ok(params) = params.parse::<Json>() else { return };
        let member = |name: &str| params.get(name).cloned().unwrap_or_default();
        let event = match method {
            "notifications/progress" => {
                let data = json!({
                    "progress": member("progress"), "total": member("total"), "message": member("message") });
                event("progress", &data.to_string())
            }
            "notifications/message" => {
                let data =
                    json!({ "level": member("level"), "logger": member("logger"), "data": member("data") });
                event("log", &data.to_string())
            }
            _ => return,
        };
        // A client that does not keep up misses some.
        let _ = self.events.try_send(event);
    }

    fn ask(&self, method: &str, _: Option<RawJson>) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        let error =
            RpcError::new(RpcError::METHOD_NOT_FOUND, format!("the client does not support {method}"));
        Box::pin(async { Err(error) })
    }

    fn accepts_input_requests(&self) -> bool {
        false
    }

    fn user_wait(&self) -> Duration {
        Duration::ZERO
    }
}

/// Renders an event. Line breaks of the data are those between members of JSON: strings have none.
fn event(name: &str, data: &str) -> Bytes {
    let data = data.replace('\r', " ").replace('\n', "\ndata: ");
    format!("event: {name}\ndata: {data}\n\n").into()
}

/// A call and its events.
struct CallEvents {
    gateway: Arc<Gateway>,
    /// The call; its result is the last event. `None` once it was sent.
    call: Option<BoxFuture<'static, Bytes>>,
    trace: toolgate_mcp::TraceContext,
    events: mpsc::Receiver<Bytes>,
    has_started: bool,
    result: Option<Bytes>,
    _permits: (CallPermit, StreamPermit),
}

impl CallEvents {
    async fn next(&mut self) -> Option<Bytes> {
        if !std::mem::replace(&mut self.has_started, true) {
            // The call gets its id when it is polled first.
            let call = self.call.as_mut()?;
            let polled = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
            if let Poll::Ready(result) = polled {
                (self.call, self.result) = (None, Some(result));
            }
            if let Some(call) = self.gateway.runtime.running_calls().find_by_trace(&self.trace) {
                return Some(event("started", &json!({ "callId": call.id }).to_string()));
            }
        }
        if let Some(call) = &mut self.call {
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => return Some(event),
                result = call => (self.call, self.result) = (None, Some(result)),
                () = sleep(KEEP_ALIVE) => return Some(Bytes::from_static(b":\n\n")),
            }
        }
        match self.events.try_recv() {
            Ok(event) => Some(event),
            Err(_) => self.result.take(),
        }
    }
}

/// Makes a call and streams its events.
pub(super) fn stream(
    gateway: &Arc<Gateway>,
    auth: &Authenticated,
    mut operation: Operation,
    with_steps: Option<bool>,
) -> Result<Response, HttpError> {
    let permit = gateway.streams.acquire(&auth.caller.id)?;
    let call_permit = gateway.lifecycle.begin_owned_call().map_err(|phase| match phase {
        Phase::Starting => HttpError::unavailable("the gateway is starting"),
        _ => HttpError::unavailable("the gateway is stopping and accepts no new calls"),
    })?;
    let (sender, events) = mpsc::channel(MAX_WAITING);
    let mut hasher = DefaultHasher::new();
    auth.caller.id.hash(&mut hasher);
    // Calls with events of one caller are one client, separate from those of other front ends.
    let identity = hasher.finish() | 1 << 63;
    let client = EventClient { identity, capabilities: json!({}), events: sender };
    operation.origin.forwarded.client = Some(Arc::new(client));
    let trace = operation.trace.clone();
    let (shared, caller) = (Arc::clone(gateway), Arc::clone(&auth.caller));
    let call = Box::pin(async move {
        let called = shared.runtime.execute(&caller, operation).await;
        let envelope = envelope(&shared.runtime, &caller, &called, with_steps);
        event("result", &String::from_utf8_lossy(&envelope))
    });
    let call = CallEvents {
        gateway: Arc::clone(gateway),
        call: Some(call),
        trace,
        events,
        has_started: false,
        result: None,
        _permits: (call_permit, permit),
    };
    let stream = unfold(call, |mut call| async move {
        let event = call.next().await?;
        Some((Ok::<_, io::Error>(event), call))
    });
    let mut response = Response::new(ResponseBody::from_stream(stream));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

#[test]
fn events_are_for_clients_that_take_no_json() {
    let wants = |accept: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        wants_events(&headers)
    };
    assert!(wants("text/event-stream") && wants("Text/Event-Stream;q=1, */*"));
    assert!(!wants("application/json, text/event-stream") && !wants("*/*") && !wants("text/html"));
}

#[test]
fn data_of_several_lines_is_one_event() {
    assert_eq!(event("result", "{\n \"a\": 1\r\n}"), "event: result\ndata: {\ndata:  \"a\": 1 \ndata: }\n\n");
}
