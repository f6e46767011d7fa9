//! `/v1/runs`: tasks for the agent, and what became of them.
//!
//! A run acts as the caller who began it, so it may do what that caller may. It goes on whether somebody watches or not:
//! what is watched is its journal, so whoever comes back misses nothing. Invariant: a caller sees and stops its own runs,
//! those of others with `runs:read` and `runs:stop`; one that is somebody else's reads like one that is not there.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt as _;
use hyper::header::{self, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tokio::sync::broadcast;
use tokio::time::{Instant, timeout};
use toolgate_types::ErrorCode;

use super::{Guest, RUNS_READ, RUNS_START, RUNS_STOP, tools};
use crate::Door;
use crate::admit::{Refusal, demand};
use crate::runs::{Followed, Live, NoRun, Runs, Task};
use crate::{answer, body};

/// Bytes of a task.
const LONGEST_TASK: usize = 256 << 10;
/// How often a run is looked at that goes on somewhere else, or says nothing.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long nothing is said, before it is shown that somebody is there.
const LIFE_SIGN: Duration = Duration::from_secs(15);
/// How long a run that ends with the door has to say so.
const LAST_WORD: Duration = Duration::from_secs(1);

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
    let place = door.going.place().ok_or_else(|| {
        let code = ErrorCode::Overloaded.label();
        Refusal::new(StatusCode::TOO_MANY_REQUESTS, code, "too many runs go on")
    })?;
    let (caller, live) = (guest.caller.as_ref().clone(), Live::default());
    // It ends when it is told to, with the door, and with the key or token that began it.
    let (gate, standing, told) = (Arc::clone(&door), guest.standing, Arc::clone(&live.stop));
    let stop = Box::pin(async move {
        tokio::select! {
            () = told.notified() => {}
            () = gate.running.closing() => {}
            () = gate.gate.over(standing) => {}
        }
    });
    let events = live.heard.subscribe();
    let started = runs.start(caller, task, live.ear(), stop).map_err(refused)?;
    // Nobody works on it yet: turns that have ended are those of before.
    let run = started.run.clone();
    let (followed, turns, before) = read(move || {
        let gone = || std::io::Error::other("it is gone");
        let before = runs.follow(&run)?.ok_or_else(gone)?.news()?;
        let turns = before.iter().filter(|(_, event)| event["event"] == "said").count();
        let last = before.last().map_or(0, |(number, _)| *number);
        Ok((runs.follow(&run)?.ok_or_else(gone)?, turns as u64, last))
    })
    .await?;
    live.turns.store(turns, Ordering::Relaxed);
    live.before.store(before, Ordering::Relaxed);
    let place_of = format!("/v1/runs/{}", started.run);
    door.going.add(started, live, door.running.last_words(), place);
    let watching = Watching { before, ..Watching::new(followed, 0, Some(events)) };
    let mut response = watched(&door, &guest, watching);
    if let Ok(place) = HeaderValue::from_str(&place_of) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

/// What happens in a run: from its beginning, or after the event that a client saw last.
pub(crate) async fn events(
    State(door): State<Arc<Door>>,
    guest: Guest,
    headers: HeaderMap,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let id = tools::path(id)?;
    let after = match headers.get("last-event-id").map(HeaderValue::to_str) {
        None => 0,
        Some(given) => given.ok().and_then(|given| given.trim().parse().ok()).ok_or_else(|| {
            Refusal::invalid("`Last-Event-ID` is no number of an event")
                .hint("leave it out to begin with the first")
        })?,
    };
    // Before anything is read, so that nothing is missed in between.
    let live = door.going.get(&id);
    let heard = live.as_ref().map(|live| live.heard.subscribe());
    let before = live.map_or(0, |live| live.before.load(Ordering::Relaxed));
    let followed = own(&door, &guest, &id, RUNS_READ).await?;
    let watching = Watching { before, ..Watching::new(followed, after, heard) };
    Ok(watched(&door, &guest, watching))
}

/// Ends a run. What it had done stays, and it can go on.
pub(crate) async fn stop(
    State(door): State<Arc<Door>>,
    guest: Guest,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let id = tools::path(id)?;
    own(&door, &guest, &id, RUNS_STOP).await?;
    let idle = || {
        let message = format!("nobody works on run `{id}` here");
        Refusal::new(StatusCode::CONFLICT, "conflict", message).hint("`GET /v1/runs` says which go on")
    };
    door.going.get(&id).ok_or_else(idle)?.stop.notify_one();
    let mut response = answer::document(&json!({ "run": id, "state": "stopping" }));
    *response.status_mut() = StatusCode::ACCEPTED;
    Ok(response)
}

/// A run that a caller may have: its own, or with a permission that of anybody.
async fn own(
    door: &Door,
    guest: &Guest,
    id: &str,
    others: &'static str,
) -> Result<Box<dyn Followed>, Refusal> {
    let (runs, wanted) = (agent(door)?, id.to_owned());
    let all = guest.at_machine || demand(&guest.caller, others).is_ok();
    let mine = |run: &dyn Followed| all || run.caller() == guest.caller.id.as_str();
    let absent = || Refusal::not_found(format!("there is no run `{id}`")).hint("`GET /v1/runs` lists them");
    read(move || runs.follow(&wanted)).await?.filter(|run| mine(&**run)).ok_or_else(absent)
}

/// Somebody who watches a run.
struct Watching {
    /// None while it is read.
    followed: Option<Box<dyn Followed>>,
    /// Events up to this one were seen.
    after: u64,
    /// Ends up to this one are those of before it was taken up again.
    before: u64,
    /// What is told as it happens, where the run goes on here.
    heard: Option<broadcast::Receiver<(u64, Json)>>,
    /// Turns whose end was told.
    turns: u64,
    /// Whether there is nothing more to come.
    over: bool,
}

/// An answer that tells as it happens, as long as the door is open and the key counts.
fn watched(door: &Arc<Door>, guest: &Guest, watching: Watching) -> Response {
    let stream = futures_util::stream::try_unfold(watching, |watching| async move {
        Ok::<_, std::io::Error>(watching.next().await?.map(|(text, watching)| (Bytes::from(text), watching)))
    });
    let (gate, standing) = (Arc::clone(door), guest.standing);
    let closing = async move {
        tokio::select! {
            () = gate.running.closing() => {}
            () = gate.gate.over(standing) => {}
        }
        // Whatever ends with it has a last word.
        tokio::time::sleep(LAST_WORD).await;
    };
    let mut response = Response::new(Body::from_stream(stream.take_until(Box::pin(closing))));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

impl Watching {
    fn new(followed: Box<dyn Followed>, after: u64, heard: Option<broadcast::Receiver<(u64, Json)>>) -> Self {
        Self { followed: Some(followed), after, before: 0, heard, turns: 0, over: false }
    }

    /// What there is to tell next; nothing at the end.
    async fn next(mut self) -> std::io::Result<Option<(String, Self)>> {
        let quiet = Instant::now() + LIFE_SIGN;
        loop {
            if self.over {
                return Ok(None);
            }
            let text = self.news().await?;
            if !text.is_empty() || self.over {
                return Ok(Some((text, self)));
            }
            if Instant::now() >= quiet {
                return Ok(Some((":\n\n".to_owned(), self)));
            }
            // Words as they come have no number: they are told again with the whole turn, and not after it.
            match timeout(LOOK_EVERY, heard(&mut self.heard)).await {
                Ok((turn, event)) if !is_kept(&event) && turn >= self.turns => {
                    return Ok(Some((told(None, &event), self)));
                }
                _ => {}
            }
        }
    }

    /// What was written down since.
    async fn news(&mut self) -> std::io::Result<String> {
        let mut followed = self.followed.take().expect("it is put back");
        let read = tokio::task::spawn_blocking(move || {
            // Asked first: what is written after this is read then.
            let goes_on = followed.goes_on();
            let news = followed.news();
            (followed, goes_on, news)
        });
        let (followed, goes_on, news) = read.await.map_err(std::io::Error::other)?;
        self.followed = Some(followed);
        let news = news.inspect_err(|error| tracing::error!("a run cannot be read: {error}"))?;
        let is_end = |(number, event): &(u64, Json)| event["event"] == "ended" && *number > self.before;
        let ended = news.last().is_some_and(is_end);
        self.over = ended || !goes_on;
        self.turns += news.iter().filter(|(_, event)| event["event"] == "said").count() as u64;
        let new = news.iter().filter(|(number, _)| *number > self.after);
        Ok(new.map(|(number, event)| told(Some(*number), event)).collect())
    }
}

/// The next of what is told as it happens; never where nothing is.
async fn heard(from: &mut Option<broadcast::Receiver<(u64, Json)>>) -> (u64, Json) {
    loop {
        let Some(receiver) = from else { return std::future::pending().await };
        match receiver.recv().await {
            Ok(event) => return event,
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => *from = None,
        }
    }
}

/// Whether an event is written down.
fn is_kept(event: &Json) -> bool {
    !matches!(event["event"].as_str(), Some("text" | "again" | "note"))
}

fn told(number: Option<u64>, event: &Json) -> String {
    let name = event["event"].as_str().unwrap_or("event");
    let id = number.map(|number| format!("id: {number}\n")).unwrap_or_default();
    format!("{id}event: {name}\ndata: {event}\n\n")
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
