//! `/v1/executions`: queries of the execution log, with the filters of `toolgate log`, and the calls that run now.
//!
//! Invariant: a caller cancels its own calls, and those of others only with `executions:cancel`. A call that it may not
//! know of looks like a missing one.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::StatusCode;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use toolgate_audit::project::{CallCursor, ProjectFollower, parse_time};
use toolgate_audit::read::{EndRecord, StageRecord};
use toolgate_audit::{BeginRecord, CallFilter, LoggedCall, ProjectLog};
use toolgate_runtime::{RunningCall, Runtime};
use toolgate_types::HumanDuration;
use toolgate_types::call::{OperationKind, Stage};

use super::figures::Verification;
use super::questions::SOCKET_USER;
use crate::Gateway;
use crate::auth::HttpError;
use crate::log_work::LogWork;
use crate::response::{self, Response};
use crate::route::{Access, AdmittedRequest};
use crate::routes::EXECUTIONS_READ;
use crate::streams::StreamSlots;

/// Queries that run at the same time. Each reads files.
const MAX_READERS: usize = 4;
/// Streams open at the same time. Each polls the log several times a second.
const MAX_STREAMS: u16 = 32;
/// Executions per page: default and maximum.
const DEFAULT_PAGE: usize = 50;
const MAX_PAGE: usize = 1_000;
/// Interval at which a followed log is polled, and the keep-alive interval of streams.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Filters of executions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExecutionQuery {
    tool: Option<String>,
    kind: Option<String>,
    caller: Option<String>,
    status: Option<String>,
    since: Option<String>,
    until: Option<String>,
    grep: Option<String>,
    server: Option<String>,
    code: Option<String>,
    decision: Option<String>,
    rule: Option<String>,
    session: Option<String>,
    trace: Option<String>,
    correlation: Option<String>,
    slower: Option<String>,
    bodies: Option<bool>,
    state: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

impl ExecutionQuery {
    fn filter(self) -> Result<CallFilter, HttpError> {
        let Self { kind, since, until, slower, .. } = &self;
        let unknown = |kind: &str| {
            let labels = OperationKind::ALL.map(OperationKind::label).join(", ");
            HttpError::invalid(format!("unknown kind `{kind}`")).hint(format!("the kinds are {labels}"))
        };
        let kind = kind.as_ref().map(|kind| {
            let known = OperationKind::ALL.into_iter().find(|known| known.label() == kind);
            known.ok_or_else(|| unknown(kind))
        });
        let kind = kind.transpose()?;
        let time = |text: &Option<String>| {
            let time = text.as_ref().map(|text| parse_time(text, Timestamp::now())).transpose();
            time.map_err(|error| HttpError::invalid(error.to_string()))
        };
        let (since, until) = (time(since)?, time(until)?);
        let slower = slower.as_ref().map(|slower| parse_duration("slower", slower)).transpose()?;
        let Self {
            tool,
            caller,
            status,
            grep,
            server,
            code,
            decision,
            rule,
            session,
            trace,
            correlation,
            ..
        } = self;
        Ok(CallFilter {
            tool,
            kind,
            caller,
            status,
            since,
            until,
            grep,
            server,
            code,
            decision,
            rule,
            session,
            trace,
            correlation,
            slower_micros: slower.map(|slower| u64::try_from(slower.as_micros()).unwrap_or(u64::MAX)),
            ..CallFilter::default()
        })
    }
}

/// Parses a duration in the query.
pub(crate) fn parse_duration(name: &str, text: &str) -> Result<Duration, HttpError> {
    let parsed = text.parse::<HumanDuration>();
    let invalid = |_| {
        let message = format!("`{name}` is not a duration: `{text}`");
        HttpError::invalid(message).hint("write a number and a unit, such as `500ms`, `15s` or `2h`")
    };
    parsed.map(HumanDuration::get).map_err(invalid)
}

/// A call, in lists and alone.
#[derive(Serialize)]
struct ExecutionView<'a> {
    id: &'a str,
    time: Timestamp,
    kind: &'a str,
    tool: &'a str,
    server: Option<&'a str>,
    caller: &'a str,
    session: Option<&'a str>,
    status: &'a str,
    /// `running`, `ended`, or `lost`: it has no end, and does not run here.
    state: &'static str,
    /// The last completed stage of a running call.
    stage: Option<Stage>,
    code: Option<&'a str>,
    micros: Option<u64>,
    steps: Vec<StepView<'a>>,
    begin: Option<&'a BeginRecord>,
    end: Option<&'a EndRecord>,
}

/// A stage of a call, in microseconds from the request.
#[derive(Serialize)]
struct StepView<'a> {
    stage: &'a str,
    start: u64,
    micros: u64,
    note: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    failed: bool,
}

/// Lays the stages of a call out in time. The stage that failed, or that was not completed, is marked.
fn steps(end: &EndRecord) -> Vec<StepView<'_>> {
    let mut start = 0;
    let mut steps: Vec<_> = end
        .stages
        .iter()
        .map(|stage| {
            let (stage, micros, note) = match stage {
                StageRecord::Plain(stage, micros) => (stage.as_str(), *micros, None),
                StageRecord::Noted(stage, micros, note) => (stage.as_str(), *micros, Some(note.as_str())),
            };
            let step = StepView { stage, start, micros, note, failed: false };
            start += micros;
            step
        })
        .collect();
    let Some(failed) = end.error.as_ref().map(|error| error.stage.as_str()) else { return steps };
    let hints = Stage::Hints.label();
    if let Some(step) = steps.iter_mut().find(|step| step.stage == failed) {
        step.failed = true;
    } else if let Some(step) = steps.last_mut().filter(|step| step.stage == hints) {
        // A stage that fails is not completed: its time is part of the hints, the next stage.
        (step.stage, step.failed) = (failed, true);
    } else {
        let micros = end.micros.saturating_sub(start);
        steps.push(StepView { stage: failed, start, micros, note: None, failed: true });
    }
    steps
}

impl<'a> ExecutionView<'a> {
    fn logged(call: &'a LoggedCall, running: Option<&RunningCall>) -> Self {
        let (begin, end) = (call.begin.as_ref(), call.end.as_ref());
        Self {
            id: call.id(),
            time: call.time(),
            kind: call.operation(),
            tool: call.tool(),
            server: begin.and_then(|begin| begin.server.as_deref()),
            caller: call.caller(),
            session: call.session(),
            status: call.status(),
            state: match (end, running) {
                (Some(_), _) => "ended",
                (None, Some(_)) => "running",
                (None, None) => "lost",
            },
            stage: running.filter(|_| end.is_none()).and_then(RunningCall::stage),
            code: call.error_code(),
            micros: end.map(|end| end.micros).or(running.map(elapsed_micros)),
            steps: end.map(steps).unwrap_or_default(),
            begin,
            end,
        }
    }

    /// A call without a record so far, or with one that is not read.
    fn running(call: &'a RunningCall) -> Self {
        Self {
            id: &call.id,
            time: call.began(),
            kind: call.kind.label(),
            tool: call.tool(),
            server: call.server(),
            caller: call.caller.as_str(),
            session: call.session.as_deref(),
            status: "open",
            state: "running",
            stage: call.stage(),
            code: None,
            micros: Some(elapsed_micros(call)),
            steps: Vec::new(),
            begin: None,
            end: None,
        }
    }
}

fn elapsed_micros(call: &RunningCall) -> u64 {
    u64::try_from(call.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// Removes arguments and output, because they can be large.
fn remove_bodies(call: &mut LoggedCall) {
    if let Some(begin) = &mut call.begin {
        (begin.arguments, begin.arguments_cut) = (None, None);
    }
    if let Some(end) = &mut call.end {
        (end.output, end.output_cut) = (None, None);
    }
}

/// Lists the calls that run now.
fn running(gateway: &Gateway, filter: &CallFilter, limit: usize) -> Response {
    let is = |wanted: &Option<String>, value: Option<&str>| wanted.is_none() || wanted.as_deref() == value;
    let tool = |call: &RunningCall| {
        filter.tool.as_ref().is_none_or(|wanted| match wanted.strip_suffix('*') {
            Some(start) => call.tool().starts_with(start),
            None => call.tool() == wanted,
        })
    };
    let accepts = |call: &&Arc<RunningCall>| {
        tool(call)
            && filter.kind.is_none_or(|kind| call.kind == kind)
            && is(&filter.caller, Some(call.caller.as_str()))
            && is(&filter.server, call.server())
            && is(&filter.session, call.session.as_deref())
            && is(&filter.trace, Some(call.trace.trace_id()))
            && is(&filter.correlation, Some(call.trace.correlation_id()))
            && filter.slower_micros.is_none_or(|micros| elapsed_micros(call) >= micros)
    };
    let calls = gateway.runtime.running_calls().list();
    let shown: Vec<_> =
        calls.iter().rev().filter(accepts).take(limit).map(|call| ExecutionView::running(call)).collect();
    response::json(&json!({ "executions": shown, "next": null }))
}

pub(crate) async fn list(request: AdmittedRequest) -> Result<Response, HttpError> {
    let query: ExecutionQuery = request.query()?;
    let (cursor, limit, state) = (query.cursor.clone(), query.limit, query.state.clone());
    let bodies = query.bodies.unwrap_or(true);
    let filter = query.filter()?;
    let limit = limit.unwrap_or(DEFAULT_PAGE).clamp(1, MAX_PAGE);
    match state.as_deref() {
        None => {}
        Some("running") => return Ok(running(&request.gateway, &filter, limit)),
        Some(other) => {
            return Err(HttpError::invalid(format!("unknown state `{other}`"))
                .hint("the only state is `running`; `status` selects others"));
        }
    }
    let cursor = cursor.map(|text| text.parse::<CallCursor>()).transpose();
    let cursor = cursor.map_err(|error| HttpError::invalid(error.to_string()))?;
    let mut page = request
        .gateway
        .log
        .read(move |log, keep_going| log.page(&filter, cursor.as_ref(), limit, keep_going))
        .await?;
    if !bodies {
        page.calls.iter_mut().for_each(remove_bodies);
    }
    let running = request.gateway.runtime.running_calls();
    let find = |call: &LoggedCall| call.end.is_none().then(|| running.find(call.id())).flatten();
    let shown: Vec<_> = page.calls.iter().map(|call| (call, find(call))).collect();
    let shown: Vec<_> =
        shown.iter().map(|(call, running)| ExecutionView::logged(call, running.as_deref())).collect();
    let next = page.next.map(|next| next.to_string());
    Ok(response::json(&json!({ "executions": shown, "next": next })))
}

fn no_call(id: &str) -> HttpError {
    HttpError::not_found(format!("there is no call `{id}`")).hint("`GET /v1/executions` lists the newest")
}

pub(crate) async fn show(request: AdmittedRequest) -> Result<Response, HttpError> {
    let id = request.parameter()?;
    // Before the log is read: a call that ends meanwhile is found there.
    let running = request.gateway.runtime.running_calls().find(&id);
    let wanted_id = id.clone();
    let call = request.gateway.log.read(move |log, _| log.show(&wanted_id)).await?;
    match (&call, &running) {
        (Some(call), running) => Ok(response::json(&ExecutionView::logged(call, running.as_deref()))),
        (None, Some(running)) => Ok(response::json(&ExecutionView::running(running))),
        (None, None) => Err(no_call(&id)),
    }
}

/// Cancels a running call. Its caller gets an error, and its server is notified.
pub(crate) async fn cancel(request: AdmittedRequest) -> Result<Response, HttpError> {
    let id = request.parameter()?;
    let (gateway, auth) = (&request.gateway, &request.auth);
    let may_cancel =
        |call: &Arc<RunningCall>| request.access == Access::Full || call.caller == auth.caller.id;
    let Some(call) = gateway.runtime.running_calls().find(&id).filter(may_cancel) else {
        // Only those that may read the log learn that there was such a call.
        if auth.require(EXECUTIONS_READ).is_ok() {
            let wanted_id = id.clone();
            if let Some(call) = gateway.log.read(move |log, _| log.show(&wanted_id)).await? {
                let state = if call.end.is_some() { "has ended" } else { "does not run on this gateway" };
                let message = format!("call `{id}` {state}");
                return Err(HttpError::new(StatusCode::CONFLICT, "conflict", message)
                    .hint("`GET /v1/executions?state=running` lists the calls that run"));
            }
        }
        return Err(no_call(&id));
    };
    call.cancel(if auth.via_socket { SOCKET_USER } else { auth.caller.id.as_str() });
    let mut response = response::json(&json!({ "id": id, "state": "cancelling" }));
    *response.status_mut() = StatusCode::ACCEPTED;
    Ok(response)
}

/// Streams executions as they end, until the client leaves or the gateway closes.
pub(crate) async fn stream(request: AdmittedRequest) -> Result<Response, HttpError> {
    let query: ExecutionQuery = request.query()?;
    let AdmittedRequest { gateway, auth, .. } = request;
    if query.limit.is_some() || query.cursor.is_some() || query.state.is_some() {
        return Err(HttpError::invalid("a stream has no pages, and no calls that run")
            .hint("leave `limit`, `cursor` and `state` out"));
    }
    let bodies = query.bodies.unwrap_or(true);
    let filter = query.filter()?;
    let permit = gateway.reserve_stream(&gateway.log.streams, &auth.caller.id)?;
    let following = gateway.log.read(move |log, _| log.follow(&filter)).await?;
    // Tells the client that nothing is missed from here on.
    let first = futures_util::stream::once(async { Ok::<_, io::Error>(Bytes::from_static(b": open\n\n")) });
    let rest = futures_util::stream::try_unfold((following, permit), move |(following, permit)| async move {
        let (following, events) = events(following, bodies).await?;
        Ok(Some((events, (following, permit))))
    });
    Ok(gateway.event_stream(&auth, first.chain(rest)))
}

/// Waits for the next executions and renders them as events. A keep-alive comment detects disconnected clients.
async fn events(mut following: ProjectFollower, bodies: bool) -> io::Result<(ProjectFollower, Bytes)> {
    let keep_alive_at = Instant::now() + KEEP_ALIVE;
    loop {
        let polled = spawn_blocking(move || following.poll().map(|calls| (following, calls)));
        let calls;
        (following, calls) = polled.await.map_err(io::Error::other)?.inspect_err(|error| {
            tracing::error!("the execution log cannot be read: {error}");
        })?;
        let mut text = String::new();
        for mut call in calls {
            if !bodies {
                remove_bodies(&mut call);
            }
            let data =
                serde_json::to_string(&ExecutionView::logged(&call, None)).map_err(io::Error::other)?;
            let _ = write!(text, "id: {}\nevent: execution\ndata: {data}\n\n", call.id());
        }
        if text.is_empty() && Instant::now() >= keep_alive_at {
            text.push_str(":\n\n");
        }
        if !text.is_empty() {
            return Ok((following, text.into()));
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Cancels a blocking log query when its request is dropped.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The execution log, and the limits of its queries.
pub(crate) struct LogQueries {
    log: ProjectLog,
    work: LogWork,
    pub(crate) verification: Arc<Mutex<Verification>>,
    readers: Semaphore,
    streams: StreamSlots,
}

impl LogQueries {
    pub(crate) fn new(runtime: &Arc<Runtime>, log: ProjectLog) -> Self {
        let work = LogWork::start(runtime, log.clone());
        let (readers, streams) = (Semaphore::new(MAX_READERS), StreamSlots::new(MAX_STREAMS));
        Self { log, work, verification: Arc::default(), readers, streams }
    }

    pub(crate) fn project(&self) -> &ProjectLog {
        &self.log
    }

    /// Bytes of the log that are indexed.
    pub(crate) fn indexed_bytes(&self) -> u64 {
        self.work.indexed_bytes.load(Ordering::Relaxed)
    }

    /// Queries the log on a blocking thread, limited to a few at a time.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&ProjectLog, &dyn Fn() -> bool) -> io::Result<T> + Send + 'static,
    ) -> Result<T, HttpError> {
        let _permit = self.readers.acquire().await;
        let cancelled = Arc::new(AtomicBool::new(false));
        let _cancel = CancelOnDrop(Arc::clone(&cancelled));
        let log = self.log.clone();
        let task = tokio::task::spawn_blocking(move || read(&log, &|| !cancelled.load(Ordering::Relaxed)));
        let failed = |error: &dyn std::fmt::Display| {
            tracing::error!("the execution log cannot be read: {error}");
            HttpError::unavailable("the execution log cannot be read")
        };
        task.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
    }
}
