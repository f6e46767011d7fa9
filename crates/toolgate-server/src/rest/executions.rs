//! `/v1/executions`: queries of the execution log, with the filters of `toolgate log`.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::StatusCode;
use http::header::{self, HeaderValue};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use toolgate_audit::project::{CallCursor, ProjectFollower, parse_time};
use toolgate_audit::{CallFilter, ProjectLog};
use toolgate_types::ErrorCode;
use toolgate_types::call::OperationKind;

use crate::auth::HttpError;
use crate::response::{self, Response, ResponseBody};
use crate::route::AdmittedRequest;

/// Queries that run at the same time. Each reads files.
const MAX_READERS: usize = 4;
/// Streams open at the same time. Each polls the log several times a second.
const MAX_STREAMS: usize = 32;
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
    limit: Option<usize>,
    cursor: Option<String>,
}

impl ExecutionQuery {
    fn filter(self) -> Result<CallFilter, HttpError> {
        let Self { tool, kind, caller, status, since, until, grep, .. } = self;
        let unknown = |kind: &str| {
            let labels = OperationKind::ALL.map(OperationKind::label).join(", ");
            HttpError::invalid(format!("unknown kind `{kind}`")).hint(format!("the kinds are {labels}"))
        };
        let kind = kind.map(|kind| {
            let known = OperationKind::ALL.into_iter().find(|known| known.label() == kind);
            known.ok_or_else(|| unknown(&kind))
        });
        let kind = kind.transpose()?;
        let time = |text: Option<String>| {
            let time = text.map(|text| parse_time(&text, Timestamp::now())).transpose();
            time.map_err(|error| HttpError::invalid(error.to_string()))
        };
        let (since, until) = (time(since)?, time(until)?);
        Ok(CallFilter { tool, kind, caller, status, since, until, grep, ..CallFilter::default() })
    }
}

pub(crate) async fn list(request: AdmittedRequest) -> Result<Response, HttpError> {
    let query: ExecutionQuery = request.query()?;
    let (cursor, limit) = (query.cursor.clone(), query.limit);
    let filter = query.filter()?;
    let cursor = cursor.map(|text| text.parse::<CallCursor>()).transpose();
    let cursor = cursor.map_err(|error| HttpError::invalid(error.to_string()))?;
    let limit = limit.unwrap_or(DEFAULT_PAGE).clamp(1, MAX_PAGE);
    let page = request
        .gateway
        .log
        .read(move |log, keep_going| log.page(&filter, cursor.as_ref(), limit, keep_going))
        .await?;
    let next = page.next.map(|next| next.to_string());
    Ok(response::json(&json!({ "executions": page.calls, "next": next })))
}

pub(crate) async fn show(request: AdmittedRequest) -> Result<Response, HttpError> {
    let id = request.parameter()?;
    let wanted_id = id.clone();
    let call = request.gateway.log.read(move |log, _| log.show(&wanted_id)).await?;
    let absent = || {
        HttpError::not_found(format!("there is no call `{id}`")).hint("`GET /v1/executions` lists the newest")
    };
    call.map(|call| response::json(&call)).ok_or_else(absent)
}

/// Streams executions as they end, until the client leaves or the gateway closes.
pub(crate) async fn stream(request: AdmittedRequest) -> Result<Response, HttpError> {
    let query: ExecutionQuery = request.query()?;
    let AdmittedRequest { gateway, auth, .. } = request;
    if query.limit.is_some() || query.cursor.is_some() {
        return Err(HttpError::invalid("a stream has no pages").hint("leave `limit` and `cursor` out"));
    }
    let filter = query.filter()?;
    let permit = Arc::clone(&gateway.log.streams).try_acquire_owned().map_err(|_| {
        let code = ErrorCode::Overloaded.label();
        HttpError::new(StatusCode::TOO_MANY_REQUESTS, code, "too many streams are open")
            .retry_after(KEEP_ALIVE)
    })?;
    let permit = (permit, gateway.streams.acquire(&auth.caller.id)?);
    let following = gateway.log.read(move |log, _| log.follow(&filter)).await?;
    // Tells the client that nothing is missed from here on.
    let first = futures_util::stream::once(async { Ok::<_, io::Error>(Bytes::from_static(b": open\n\n")) });
    let rest = futures_util::stream::try_unfold((following, permit), |(following, permit)| async move {
        let (following, events) = events(following).await?;
        Ok(Some((events, (following, permit))))
    });
    // The stream ends with the gateway, and with the credential that opened it.
    let (shared, lifetime) = (Arc::clone(&gateway), auth.lifetime.clone());
    let closing = async move {
        tokio::select! {
            () = shared.lifecycle.closing() => {}
            () = shared.authenticator.wait_for_expiry(lifetime) => {}
        }
    };
    let mut response =
        Response::new(ResponseBody::from_stream(first.chain(rest).take_until(Box::pin(closing))));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// Waits for the next executions and renders them as events. A keep-alive comment detects disconnected clients.
async fn events(mut following: ProjectFollower) -> io::Result<(ProjectFollower, Bytes)> {
    let keep_alive_at = Instant::now() + KEEP_ALIVE;
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
    readers: Semaphore,
    streams: Arc<Semaphore>,
}

impl LogQueries {
    pub(crate) fn new(log: ProjectLog) -> Self {
        let (readers, streams) = (Semaphore::new(MAX_READERS), Arc::new(Semaphore::new(MAX_STREAMS)));
        Self { log, readers, streams }
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
