//! `/v1/executions`: what was called, by whom, and how it ended. The questions are those of `toolgate log`.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt as _;
use hyper::StatusCode;
use hyper::header::{self, HeaderValue};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use toolgate_audit::project::{Cursor, Following, moment};
use toolgate_audit::{Filter, ProjectLog};
use toolgate_types::ErrorCode;

use super::{EXECUTIONS_READ, Guest, tools};
use crate::Door;
use crate::admit::{Refusal, demand};
use crate::answer;

/// Calls on a page where nothing is said, and at most.
const PAGE: usize = 50;
const LARGEST_PAGE: usize = 1_000;
/// How often a log that is followed is looked at, and how long a stream may say nothing.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const LIFE_SIGN: Duration = Duration::from_secs(15);

/// Which calls.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    tool: Option<String>,
    caller: Option<String>,
    status: Option<String>,
    since: Option<String>,
    until: Option<String>,
    grep: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

impl Wanted {
    fn filter(self) -> Result<Filter, Refusal> {
        let Self { tool, caller, status, since, until, grep, .. } = self;
        let time = |text: Option<String>| {
            let time = text.map(|text| moment(&text, Timestamp::now())).transpose();
            time.map_err(|error| Refusal::invalid(error.to_string()))
        };
        let (since, until) = (time(since)?, time(until)?);
        Ok(Filter { tool, caller, status, since, until, grep, ..Filter::default() })
    }
}

pub(crate) async fn list(
    State(door): State<Arc<Door>>,
    guest: Guest,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Refusal> {
    demand(&guest.caller, EXECUTIONS_READ)?;
    let wanted = tools::query(wanted)?;
    let (cursor, limit) = (wanted.cursor.clone(), wanted.limit);
    let filter = wanted.filter()?;
    let cursor = cursor.map(|text| text.parse::<Cursor>()).transpose();
    let cursor = cursor.map_err(|error| Refusal::invalid(error.to_string()))?;
    let limit = limit.unwrap_or(PAGE).clamp(1, LARGEST_PAGE);
    let page = door.read_log(move |log, go_on| log.page(&filter, cursor.as_ref(), limit, go_on)).await?;
    let next = page.next.map(|next| next.to_string());
    Ok(answer::document(&json!({ "executions": page.calls, "next": next })))
}

pub(crate) async fn show(
    State(door): State<Arc<Door>>,
    guest: Guest,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    demand(&guest.caller, EXECUTIONS_READ)?;
    let id = tools::path(id)?;
    let wanted = id.clone();
    let call = door.read_log(move |log, _| log.show(&wanted)).await?;
    let absent = || {
        Refusal::not_found(format!("there is no call `{id}`")).hint("`GET /v1/executions` lists the newest")
    };
    call.map(|call| answer::document(&call)).ok_or_else(absent)
}

/// Calls as they end, until the client leaves or the door closes.
pub(crate) async fn stream(
    State(door): State<Arc<Door>>,
    guest: Guest,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Refusal> {
    demand(&guest.caller, EXECUTIONS_READ)?;
    let wanted = tools::query(wanted)?;
    if wanted.limit.is_some() || wanted.cursor.is_some() {
        return Err(Refusal::invalid("a stream has no pages").hint("leave `limit` and `cursor` out"));
    }
    let filter = wanted.filter()?;
    let place = Arc::clone(&door.log_streams).try_acquire_owned().map_err(|_| {
        let code = ErrorCode::Overloaded.label();
        Refusal::new(StatusCode::TOO_MANY_REQUESTS, code, "too many streams are open").after(LIFE_SIGN)
    })?;
    let following = door.read_log(move |log, _| log.follow(&filter)).await?;
    // Whoever reads this knows that nothing is missed from here on.
    let first = futures_util::stream::once(async { Ok::<_, io::Error>(Bytes::from_static(b": open\n\n")) });
    let rest = futures_util::stream::try_unfold((following, place), |(following, place)| async move {
        let (following, events) = events(following).await?;
        Ok(Some((events, (following, place))))
    });
    // It ends with the door, and with the key or token that opened it.
    let (gate, standing) = (Arc::clone(&door), guest.standing);
    let closing = async move {
        tokio::select! {
            () = gate.running.closing() => {}
            () = gate.gate.over(standing) => {}
        }
    };
    let mut response = Response::new(Body::from_stream(first.chain(rest).take_until(Box::pin(closing))));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// What ended next, as events; or a sign of life, so that whoever is gone is noticed.
async fn events(mut following: Following) -> io::Result<(Following, Bytes)> {
    let quiet = Instant::now() + LIFE_SIGN;
    loop {
        let polled = spawn_blocking(move || following.poll().map(|calls| (following, calls)));
        let calls;
        (following, calls) = polled.await.map_err(io::Error::other)?.inspect_err(|error| {
            tracing::error!("the execution log cannot be read: {error}");
        })?;
        let mut text = String::new();
        for call in &calls {
            let data = serde_json::to_string(call).map_err(io::Error::other)?;
            let _ = write!(text, "id: {}\nevent: execution\ndata: {data}\n\n", call.id());
        }
        if text.is_empty() && Instant::now() >= quiet {
            text.push_str(":\n\n");
        }
        if !text.is_empty() {
            return Ok((following, text.into()));
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Says to whoever reads that nobody waits for it any more.
struct Leaving(Arc<AtomicBool>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Door {
    /// Reads files, so it is done where nobody waits for the thread; and not by too many at once.
    async fn read_log<T: Send + 'static>(
        &self,
        read: impl FnOnce(&ProjectLog, &dyn Fn() -> bool) -> io::Result<T> + Send + 'static,
    ) -> Result<T, Refusal> {
        let _one_of_few = self.log_readers.acquire().await;
        let left = Arc::new(AtomicBool::new(false));
        let _leaving = Leaving(Arc::clone(&left));
        let log = self.log.clone();
        let task = tokio::task::spawn_blocking(move || read(&log, &|| !left.load(Ordering::Relaxed)));
        let failed = |error: &dyn std::fmt::Display| {
            tracing::error!("the execution log cannot be read: {error}");
            Refusal::unavailable("the execution log cannot be read")
        };
        task.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
    }
}
