//! `/v1/runs`: start, list, follow and stop agent runs.
//!
//! A run acts as the caller that started it, with the permissions of that caller. It continues without a watcher; a
//! watcher reads the journal, so a reconnect misses nothing. Invariant: a caller sees and stops its own runs, and those
//! of others only with `runs:read` and `runs:stop`. A run of another caller looks like a missing one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::StatusCode;
use http::header::{self, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tokio::sync::broadcast;
use tokio::time::{Instant, timeout};
use toolgate_types::ErrorCode;

use crate::auth::{Authenticated, HttpError};
use crate::response::{Response, ResponseBody};
use crate::route::{Access, AdmittedRequest};
use crate::runs::{ActiveRun, RunFollower, RunRequest, RunService, RunStartError};
use crate::streams::StreamPermit;
use crate::{Gateway, response};

/// Maximum size of a task.
const MAX_TASK_BYTES: usize = 256 << 10;
/// Interval at which a run is polled that is quiet, or active in another process.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Keep-alive interval of streams.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Time for a run that ends with the gateway to write its last event.
const FINAL_EVENT_GRACE: Duration = Duration::from_secs(1);

/// A new task, or a run to resume.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunBody {
    /// The task, in natural language.
    task: Option<String>,
    /// Id of a run to resume, instead of a task.
    resume: Option<String>,
}

/// Starts or resumes a run, and streams its events.
pub(crate) async fn start(request: AdmittedRequest) -> Result<Response, HttpError> {
    let raw = request.raw_json()?;
    let body: RunBody =
        raw.parse().map_err(|error| HttpError::invalid(format!("the request body is invalid: {error}")))?;
    let AdmittedRequest { gateway, auth, .. } = request;
    let task = match body {
        RunBody { task: Some(task), resume: None }
            if !task.trim().is_empty() && task.len() <= MAX_TASK_BYTES =>
        {
            RunRequest::New(task)
        }
        RunBody { task: None, resume: Some(id) } => RunRequest::Resume(id),
        _ => {
            let hint = r#"send `{"task": "…"}`, or `{"resume": "ID"}`"#;
            return Err(HttpError::invalid("the body needs either a non-empty `task` or `resume`").hint(hint));
        }
    };
    let runs = require_agent(&gateway)?;
    let permit = gateway.streams.acquire(&auth.caller.id)?;
    let slot = gateway.runs.active.acquire_slot(&auth.caller.id).ok_or_else(|| {
        let code = ErrorCode::Overloaded.label();
        HttpError::new(StatusCode::TOO_MANY_REQUESTS, code, "too many runs are active")
    })?;
    let (caller, handle) = (auth.caller.as_ref().clone(), ActiveRun::default());
    // The run stops on request, with the gateway, and with the credential that started it.
    let (shared, lifetime, stopped) = (Arc::clone(&gateway), auth.lifetime.clone(), Arc::clone(&handle.stop));
    let stop = Box::pin(async move {
        tokio::select! {
            () = stopped.notified() => {}
            () = shared.lifecycle.closing() => {}
            () = shared.authenticator.wait_for_expiry(lifetime) => {}
        }
    });
    let events = handle.events.subscribe();
    let started = runs.start(caller, task, handle.event_sink(), stop).map_err(run_error)?;
    // The run is not executed yet, so all turns in the journal are from before.
    let run = started.run.clone();
    let (follower, turns, resumed_after) = read(move || {
        let missing = || std::io::Error::other("the run is gone");
        let earlier = runs.follow(&run)?.ok_or_else(missing)?.new_events()?;
        let turns = earlier.iter().filter(|(_, event)| event["event"] == "said").count();
        let last = earlier.last().map_or(0, |(number, _)| *number);
        Ok((runs.follow(&run)?.ok_or_else(missing)?, turns as u64, last))
    })
    .await?;
    handle.turns.store(turns, Ordering::Relaxed);
    handle.resumed_after.store(resumed_after, Ordering::Relaxed);
    let location = format!("/v1/runs/{}", started.run);
    gateway.runs.active.add(started, handle, gateway.lifecycle.delay_shutdown(), slot);
    let watcher = RunWatcher { resumed_after, ..RunWatcher::new(follower, 0, Some(events)) };
    let mut response = stream_response(&gateway, &auth, watcher, permit);
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Streams the events of a run, from the first one, or after `Last-Event-ID`.
pub(crate) async fn events(request: AdmittedRequest) -> Result<Response, HttpError> {
    let id = request.parameter()?;
    let (gateway, auth) = (&request.gateway, &request.auth);
    let after = match request.parts.headers.get("last-event-id").map(HeaderValue::to_str) {
        None => 0,
        Some(given) => given.ok().and_then(|given| given.trim().parse().ok()).ok_or_else(|| {
            HttpError::invalid("`Last-Event-ID` is not an event number")
                .hint("leave it out to start with the first event")
        })?,
    };
    // Subscribe before the journal is read, so that no event is missed in between.
    let handle = gateway.runs.active.get(&id);
    let (live_events, partial_text) = handle.as_ref().map(ActiveRun::subscribe).unzip();
    let resumed_after = handle.map_or(0, |handle| handle.resumed_after.load(Ordering::Relaxed));
    let follower = accessible_run(&request, &id).await?;
    let permit = gateway.streams.acquire(&auth.caller.id)?;
    let watcher = RunWatcher { resumed_after, partial_text, ..RunWatcher::new(follower, after, live_events) };
    Ok(stream_response(gateway, auth, watcher, permit))
}

/// Stops a run. Its journal stays, and it can be resumed.
pub(crate) async fn stop(request: AdmittedRequest) -> Result<Response, HttpError> {
    let id = request.parameter()?;
    accessible_run(&request, &id).await?;
    let not_active = || {
        let message = format!("run `{id}` is not active on this gateway");
        HttpError::new(StatusCode::CONFLICT, "conflict", message)
            .hint("`GET /v1/runs` shows which runs are active")
    };
    request.gateway.runs.active.get(&id).ok_or_else(not_active)?.stop.notify_one();
    let mut response = response::json(&json!({ "run": id, "state": "stopping" }));
    *response.status_mut() = StatusCode::ACCEPTED;
    Ok(response)
}

/// Returns true if a request may use a run of this caller: its own, or any with full access.
fn may_use(request: &AdmittedRequest, owner: Option<&str>) -> bool {
    request.access == Access::Full || owner == Some(request.auth.caller.id.as_str())
}

/// Returns the run with an id, if the request may use it.
async fn accessible_run(request: &AdmittedRequest, id: &str) -> Result<Box<dyn RunFollower>, HttpError> {
    let (runs, run_id) = (require_agent(&request.gateway)?, id.to_owned());
    let is_accessible = |run: &dyn RunFollower| may_use(request, Some(run.caller()));
    let absent = || HttpError::not_found(format!("there is no run `{id}`")).hint("`GET /v1/runs` lists them");
    read(move || runs.follow(&run_id)).await?.filter(|run| is_accessible(&**run)).ok_or_else(absent)
}

/// State of a client that follows a run.
struct RunWatcher {
    /// `None` only during a read on a blocking thread.
    follower: Option<Box<dyn RunFollower>>,
    /// Number of the last event the client has seen.
    after: u64,
    /// `ended` events up to this number are from before the run was resumed.
    resumed_after: u64,
    /// Live events, if the run is active here.
    live_events: Option<broadcast::Receiver<(u64, Json)>>,
    /// Text of the turn before the live events, with its number. `None` once it was sent.
    partial_text: Option<(u64, String)>,
    /// Number of finished turns sent to the client.
    turns: u64,
    /// True if no more events will follow.
    ended: bool,
}

/// Streams events until the run ends, the gateway closes, or the credential expires.
fn stream_response(
    gateway: &Arc<Gateway>,
    auth: &Authenticated,
    watcher: RunWatcher,
    permit: StreamPermit,
) -> Response {
    let stream = futures_util::stream::try_unfold((watcher, permit), |(watcher, permit)| async move {
        let next = watcher.next().await?;
        Ok::<_, std::io::Error>(next.map(|(text, watcher)| (Bytes::from(text), (watcher, permit))))
    });
    let (shared, lifetime) = (Arc::clone(gateway), auth.lifetime.clone());
    let closing = async move {
        tokio::select! {
            () = shared.lifecycle.closing() => {}
            () = shared.authenticator.wait_for_expiry(lifetime) => {}
        }
        // Give the run time to write its last event.
        tokio::time::sleep(FINAL_EVENT_GRACE).await;
    };
    let mut response = Response::new(ResponseBody::from_stream(stream.take_until(Box::pin(closing))));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

impl RunWatcher {
    fn new(
        follower: Box<dyn RunFollower>,
        after: u64,
        live_events: Option<broadcast::Receiver<(u64, Json)>>,
    ) -> Self {
        let follower = Some(follower);
        Self { follower, after, resumed_after: 0, live_events, partial_text: None, turns: 0, ended: false }
    }

    /// Waits for the next events and renders them. `None` at the end.
    async fn next(mut self) -> std::io::Result<Option<(String, Self)>> {
        let keep_alive_at = Instant::now() + KEEP_ALIVE;
        loop {
            if self.ended {
                return Ok(None);
            }
            let text = self.read_events().await?;
            if !text.is_empty() || self.ended {
                return Ok(Some((text, self)));
            }
            if let Some(text) = self.take_partial_text() {
                return Ok(Some((text, self)));
            }
            if Instant::now() >= keep_alive_at {
                return Ok(Some((":\n\n".to_owned(), self)));
            }
            // Partial text has no number. It is sent live, again with the whole turn, and never after that turn.
            match timeout(POLL_INTERVAL, next_live_event(&mut self.live_events)).await {
                Ok((turn, event)) if !is_persisted(&event) && turn >= self.turns => {
                    return Ok(Some((sse_event(None, &event), self)));
                }
                _ => {}
            }
        }
    }

    /// Renders the text of the turn that was unfinished when the watcher joined. If it joins again, the
    /// part that it has is void.
    fn take_partial_text(&mut self) -> Option<String> {
        let (turn, text) = self.partial_text.take()?;
        if text.is_empty() || turn < self.turns {
            return None;
        }
        let event = sse_event(None, &json!({ "event": "text", "text": text }));
        let void = || sse_event(None, &json!({ "event": "again", "why": "the stream was opened again" }));
        Some(if self.after > 0 { void() + &event } else { event })
    }

    /// Reads new journal entries.
    async fn read_events(&mut self) -> std::io::Result<String> {
        let mut follower = self.follower.take().expect("it is put back after each read");
        let reading = tokio::task::spawn_blocking(move || {
            // Ask first: entries written after this check are still read below.
            let is_active = follower.is_active();
            let events = follower.new_events();
            (follower, is_active, events)
        });
        let (follower, is_active, events) = reading.await.map_err(std::io::Error::other)?;
        self.follower = Some(follower);
        let events = events.inspect_err(|error| tracing::error!("a run cannot be read: {error}"))?;
        let is_end =
            |(number, event): &(u64, Json)| event["event"] == "ended" && *number > self.resumed_after;
        let ended = events.last().is_some_and(is_end);
        self.ended = ended || !is_active;
        self.turns += events.iter().filter(|(_, event)| event["event"] == "said").count() as u64;
        let unseen = events.iter().filter(|(number, _)| *number > self.after);
        Ok(unseen.map(|(number, event)| sse_event(Some(*number), event)).collect())
    }
}

/// Waits for the next live event. Pending forever if the run is not active here.
async fn next_live_event(from: &mut Option<broadcast::Receiver<(u64, Json)>>) -> (u64, Json) {
    loop {
        let Some(receiver) = from else { return std::future::pending().await };
        match receiver.recv().await {
            Ok(event) => return event,
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => *from = None,
        }
    }
}

/// Returns true if an event is written to the journal.
fn is_persisted(event: &Json) -> bool {
    !matches!(event["event"].as_str(), Some("text" | "again" | "note"))
}

fn sse_event(number: Option<u64>, event: &Json) -> String {
    let name = event["event"].as_str().unwrap_or("event");
    let id = number.map(|number| format!("id: {number}\n")).unwrap_or_default();
    format!("{id}event: {name}\ndata: {event}\n\n")
}

/// Runs in a page: default and maximum.
const RUN_PAGE: (usize, usize) = (100, 1_000);

/// Selection of runs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunQuery {
    state: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

pub(crate) async fn list(request: AdmittedRequest) -> Result<Response, HttpError> {
    let RunQuery { state, limit, cursor } = request.query()?;
    let runs = require_agent(&request.gateway)?;
    let mut all = read(move || runs.list()).await?;
    let limit = limit.unwrap_or(RUN_PAGE.0).clamp(1, RUN_PAGE.1);
    all.retain(|run| {
        may_use(&request, run["caller"].as_str())
            && state.as_deref().is_none_or(|state| run["state"] == state)
            // Newest first: the page begins after the run in the cursor.
            && cursor.as_deref().is_none_or(|cursor| run["run"].as_str().is_some_and(|id| id < cursor))
    });
    let has_more = all.len() > limit;
    all.truncate(limit);
    let next = all.last().filter(|_| has_more).map(|run| run["run"].clone());
    Ok(response::json(&json!({ "runs": all, "next": next })))
}

pub(crate) async fn show(request: AdmittedRequest) -> Result<Response, HttpError> {
    let id = request.parameter()?;
    let runs = require_agent(&request.gateway)?;
    let wanted_id = id.clone();
    let run = read(move || runs.show(&wanted_id)).await?;
    // A run of another caller looks like a missing one.
    let run = run.filter(|run| may_use(&request, run["caller"].as_str()));
    let absent = || HttpError::not_found(format!("there is no run `{id}`")).hint("`GET /v1/runs` lists them");
    run.map(|run| response::json(&run)).ok_or_else(absent)
}

fn require_agent(gateway: &Gateway) -> Result<Arc<dyn RunService>, HttpError> {
    let none =
        || HttpError::unavailable("no agent is configured").hint("see the log of the gateway for the reason");
    gateway.runs.service.clone().ok_or_else(none)
}

fn run_error(error: RunStartError) -> HttpError {
    match error {
        RunStartError::NotFound(message) => HttpError::not_found(message).hint("`GET /v1/runs` lists them"),
        RunStartError::Busy(message) => HttpError::new(StatusCode::CONFLICT, "conflict", message),
        RunStartError::Failed(message) => HttpError::unavailable(message),
    }
}

/// Reads files on a blocking thread.
async fn read<T: Send + 'static>(
    read: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, HttpError> {
    let failed = |error: &dyn std::fmt::Display| {
        tracing::error!("the runs cannot be read: {error}");
        HttpError::unavailable("the runs cannot be read")
    };
    let task = tokio::task::spawn_blocking(read);
    task.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
}
