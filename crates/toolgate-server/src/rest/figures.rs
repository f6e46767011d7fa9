//! `/v1/figures`: calls over time. `/v1/log`: the state of the execution log, and its verification.
//!
//! Invariant: without `executions:read`, a caller sees figures of its own calls only.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;
use toolgate_audit::figures::{FigureGroup, FigureQuery, FigureReport, MAX_AGE};
use toolgate_audit::project::parse_time;
use toolgate_audit::{ExecutionLog, ProjectLog, verify};
use toolgate_types::tool::Permission;

use super::executions::parse_duration;
use crate::Gateway;
use crate::auth::HttpError;
use crate::response::{self, Response};
use crate::route::{Access, AdmittedRequest};
use crate::routes::EXECUTIONS_READ;

/// Age of the oldest calls if the query does not tell.
const DEFAULT_AGE: Duration = Duration::from_secs(15 * 60);
/// Faults that are shown.
const MAX_SHOWN_FAULTS: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FiguresQuery {
    tool: Option<String>,
    server: Option<String>,
    caller: Option<String>,
    since: Option<String>,
    step: Option<String>,
    by: Option<String>,
}

#[derive(Serialize)]
struct FiguresView {
    /// The caller that the figures are limited to.
    caller: Option<String>,
    /// Calls that run now.
    running: usize,
    #[serde(flatten)]
    report: FigureReport,
}

pub(crate) async fn show(request: AdmittedRequest) -> Result<Response, HttpError> {
    let FiguresQuery { tool, server, caller, since, step, by } = request.query()?;
    let own = request.auth.caller.id.as_str();
    let caller = match (request.access, caller) {
        (Access::Full, caller) => caller,
        (Access::Limited, Some(other)) if other != own => {
            let needed: Permission = EXECUTIONS_READ.parse().expect("a valid permission");
            return Err(HttpError::missing_permission(&needed)
                .hint("without `caller`, the figures are those of your own calls"));
        }
        (Access::Limited, _) => Some(own.to_owned()),
    };
    let now = Timestamp::now();
    let age = match since {
        None => DEFAULT_AGE,
        Some(since) => {
            let since = parse_time(&since, now).map_err(|error| HttpError::invalid(error.to_string()))?;
            Duration::try_from(now.duration_since(since)).unwrap_or_default().min(MAX_AGE)
        }
    };
    let group = match by.as_deref() {
        None => None,
        Some("tool") => Some(FigureGroup::Tool),
        Some("server") => Some(FigureGroup::Server),
        Some("caller") => Some(FigureGroup::Caller),
        Some(other) => {
            let message = format!("figures cannot be grouped by `{other}`");
            return Err(HttpError::invalid(message).hint("`by` is `tool`, `server` or `caller`"));
        }
    };
    let step = step.map(|step| parse_duration("step", &step)).transpose()?;
    let is = |wanted: &Option<String>, value: &str| {
        wanted.as_ref().is_none_or(|wanted| match wanted.strip_suffix('*') {
            Some(start) => value.starts_with(start),
            None => wanted == value,
        })
    };
    let runtime = &request.gateway.runtime;
    let running = runtime.running_calls().list();
    let running = running.iter().filter(|call| {
        is(&tool, call.tool())
            && server.as_deref().is_none_or(|wanted| call.server() == Some(wanted))
            && caller.as_deref().is_none_or(|wanted| call.caller.as_str() == wanted)
    });
    let running = running.count();
    let query = FigureQuery { tool, server, caller: caller.clone(), age, step, group };
    let report = runtime.figures().report(&query, now);
    Ok(response::json(&FiguresView { caller, running, report }))
}

/// Result of the last verification.
#[derive(Clone, Serialize)]
pub(crate) struct Verification {
    /// `never`, `running`, `intact` or `damaged`.
    state: &'static str,
    records: u64,
    at: Option<Timestamp>,
    faults: Vec<String>,
    /// Last verified record of each writer.
    #[serde(skip)]
    verified: Vec<(usize, u64)>,
}

impl Default for Verification {
    fn default() -> Self {
        Self { state: "never", records: 0, at: None, faults: Vec::new(), verified: Vec::new() }
    }
}

fn run_verification(log: &ProjectLog) -> std::io::Result<Verification> {
    let mut found = Verification { at: Some(Timestamp::now()), ..Verification::default() };
    for folder in log.folders() {
        let writer = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let report = verify::verify(&folder)?;
        found.records += report.records;
        found.faults.extend(report.faults.iter().map(|fault| format!("{writer}/{fault}")));
        if let (Ok(writer), Some((seq, _))) = (writer.parse(), report.last) {
            found.verified.push((writer, seq));
        }
    }
    found.state = if found.faults.is_empty() { "intact" } else { "damaged" };
    found.faults.truncate(MAX_SHOWN_FAULTS);
    Ok(found)
}

async fn document(gateway: &Arc<Gateway>) -> Result<serde_json::Value, HttpError> {
    let status = gateway.log.read(|log, _| log.status()).await?;
    let verification = gateway.log.verification.lock().clone();
    let writers = status.writers.iter().map(|writer| {
        let verified = verification.verified.iter().find(|(number, _)| *number == writer.writer);
        let mut shown = json!(writer);
        shown["verifiedSeq"] = json!(verified.map(|(_, seq)| *seq));
        shown
    });
    let last =
        status.writers.iter().filter(|writer| writer.last_seq > 0).max_by_key(|writer| writer.last_time);
    let last = last.map(|last| {
        json!({ "writer": last.writer, "seq": last.last_seq, "hash": last.last_hash, "time": last.last_time })
    });
    Ok(json!({
        "writable": gateway.runtime.log().is_some_and(ExecutionLog::is_available),
        "records": status.writers.iter().map(|writer| writer.records).sum::<u64>(),
        "bytes": status.writers.iter().map(|writer| writer.bytes).sum::<u64>(),
        "indexedBytes": gateway.log.indexed_bytes(),
        "days": status.days,
        "last": last,
        "writers": writers.collect::<Vec<_>>(),
        "verified": verification,
    }))
}

pub(crate) async fn log(request: AdmittedRequest) -> Result<Response, HttpError> {
    Ok(response::json(&document(&request.gateway).await?))
}

/// Starts a verification of the whole log, unless one runs.
pub(crate) async fn verify_log(request: AdmittedRequest) -> Result<Response, HttpError> {
    let gateway = &request.gateway;
    let is_first = {
        let mut verification = gateway.log.verification.lock();
        std::mem::replace(&mut verification.state, "running") != "running"
    };
    if is_first {
        let (log, result) = (gateway.log.project().clone(), Arc::clone(&gateway.log.verification));
        drop(tokio::task::spawn_blocking(move || finish_verification(&log, &result)));
    }
    let document = document(gateway).await?;
    Ok(response::json_with_status(StatusCode::ACCEPTED, &document))
}

fn finish_verification(log: &ProjectLog, result: &Mutex<Verification>) {
    let found = run_verification(log);
    *result.lock() = found.unwrap_or_else(|error| {
        tracing::error!("the execution log cannot be verified: {error}");
        Verification {
            faults: vec!["the log cannot be read".to_owned()],
            state: "damaged",
            ..Default::default()
        }
    });
}
