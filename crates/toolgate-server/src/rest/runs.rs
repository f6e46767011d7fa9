//! `/v1/runs`: tasks for the agent, and what became of them.
//!
//! A run acts as the caller who began it, so it may do what that caller may. Invariant: a caller sees its own runs, and
//! those of others with `runs:read`; a run ends with the connection that began it, and can be taken up again.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use hyper::header::{self, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use toolgate_types::ErrorCode;

use super::{Guest, RUNS_READ, RUNS_START, tools};
use crate::Door;
use crate::admit::{Refusal, demand};
use crate::runs::{NoRun, Runs, Task};
use crate::{answer, body};

/// Bytes of a task.
const LONGEST_TASK: usize = 256 << 10;

/// What to do.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    task: Option<String>,
    resume: Option<String>,
}

/// Begins a run, or goes on with one; its events come as they happen.
pub(crate) async fn start(
    State(door): State<Arc<Door>>,
    guest: Guest,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    guest.demand(RUNS_START)?;
    let raw = body::read(&headers, body, door.max_body).await?;
    let wanted: Wanted =
        raw.parse().map_err(|error| Refusal::invalid(format!("the body is no task: {error}")))?;
    let task = match wanted {
        Wanted { task: Some(task), resume: None }
            if !task.trim().is_empty() && task.len() <= LONGEST_TASK =>
        {
            Task::New(task)
        }
        Wanted { task: None, resume: Some(id) } => Task::Resume(id),
        _ => {
            let hint = r#"send `{"task": "…"}`, or `{"resume": "ID"}`"#;
            return Err(
                Refusal::invalid("the body has either a `task` that says something, or `resume`").hint(hint)
            );
        }
    };
    let runs = agent(&door)?;
    let place = Arc::clone(&door.run_places).try_acquire_owned().map_err(|_| {
        let code = ErrorCode::Overloaded.label();
        Refusal::new(StatusCode::TOO_MANY_REQUESTS, code, "too many runs go on")
    })?;
    let (tell, events) = mpsc::unbounded_channel();
    let caller = guest.caller.as_ref().clone();
    let work = runs.start(caller, task, Arc::new(move |event| drop(tell.send(event)))).map_err(refused)?;
    let going = Going { work: Some(work), events, _place: place };
    let stream = futures_util::stream::unfold(going, |mut going| async move {
        let event = going.next().await?;
        Some((Ok::<_, std::io::Error>(told(&event)), going))
    });
    // It ends with the door, and with the key or token that opened it.
    let (gate, standing) = (Arc::clone(&door), guest.standing);
    let closing = async move {
        tokio::select! {
            () = gate.running.closing() => {}
            () = gate.gate.over(standing) => {}
        }
    };
    let mut response = Response::new(Body::from_stream(stream.take_until(Box::pin(closing))));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// A run while it goes on: whoever drops it stops it.
struct Going {
    work: Option<BoxFuture<'static, ()>>,
    events: mpsc::UnboundedReceiver<Json>,
    _place: OwnedSemaphorePermit,
}

impl Going {
    async fn next(&mut self) -> Option<Json> {
        loop {
            let Some(work) = &mut self.work else { return self.events.recv().await };
            tokio::select! {
                biased;
                event = self.events.recv() => return event,
                () = work.as_mut() => self.work = None,
            }
        }
    }
}

fn told(event: &Json) -> Bytes {
    let name = event["event"].as_str().unwrap_or("event");
    format!("event: {name}\ndata: {event}\n\n").into()
}

pub(crate) async fn list(State(door): State<Arc<Door>>, guest: Guest) -> Result<Response, Refusal> {
    let runs = agent(&door)?;
    let mut all = read(move || runs.list()).await?;
    if demand(&guest.caller, RUNS_READ).is_err() && !guest.at_machine {
        all.retain(|run| run["caller"] == guest.caller.id.as_str());
    }
    Ok(answer::document(&json!({ "runs": all })))
}

pub(crate) async fn show(
    State(door): State<Arc<Door>>,
    guest: Guest,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let id = tools::path(id)?;
    let runs = agent(&door)?;
    let wanted = id.clone();
    let run = read(move || runs.show(&wanted)).await?;
    let all = guest.at_machine || demand(&guest.caller, RUNS_READ).is_ok();
    // One that is somebody else's reads like one that is not there.
    let run = run.filter(|run| all || run["caller"] == guest.caller.id.as_str());
    let absent = || Refusal::not_found(format!("there is no run `{id}`")).hint("`GET /v1/runs` lists them");
    run.map(|run| answer::document(&run)).ok_or_else(absent)
}

fn agent(door: &Door) -> Result<Arc<dyn Runs>, Refusal> {
    let none = || Refusal::unavailable("there is no agent here").hint("the log of the server says why");
    door.runs().cloned().ok_or_else(none)
}

fn refused(error: NoRun) -> Refusal {
    match error {
        NoRun::Absent(message) => Refusal::not_found(message).hint("`GET /v1/runs` lists them"),
        NoRun::Busy(message) => Refusal::new(StatusCode::CONFLICT, "conflict", message),
        NoRun::Failed(message) => Refusal::unavailable(message),
    }
}

/// Reads files, so it is done where nobody waits for the thread.
async fn read<T: Send + 'static>(
    read: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, Refusal> {
    let failed = |error: &dyn std::fmt::Display| {
        tracing::error!("the runs cannot be read: {error}");
        Refusal::unavailable("the runs cannot be read")
    };
    let task = tokio::task::spawn_blocking(read);
    task.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
}
