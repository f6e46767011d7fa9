//! `/v1/executions`: what was called, by whom, and how it ended. The questions are those of `toolgate log`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::Response;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use toolgate_audit::project::{Cursor, moment};
use toolgate_audit::{Filter, ProjectLog};

use super::{EXECUTIONS_READ, Guest, tools};
use crate::Door;
use crate::admit::{Refusal, demand};
use crate::answer;

/// Calls on a page where nothing is said, and at most.
const PAGE: usize = 50;
const LARGEST_PAGE: usize = 1_000;

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

pub(crate) async fn list(
    State(door): State<Arc<Door>>,
    guest: Guest,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Refusal> {
    demand(&guest.caller, EXECUTIONS_READ)?;
    let Wanted { tool, caller, status, since, until, grep, limit, cursor } = tools::query(wanted)?;
    let invalid = |error: &dyn std::fmt::Display| Refusal::invalid(error.to_string());
    let time = |text: Option<String>| {
        text.map(|text| moment(&text, Timestamp::now())).transpose().map_err(|error| invalid(&error))
    };
    let filter =
        Filter { tool, caller, status, since: time(since)?, until: time(until)?, grep, ..Filter::default() };
    let cursor = cursor.map(|text| text.parse::<Cursor>()).transpose().map_err(|error| invalid(&error))?;
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
