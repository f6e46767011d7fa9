//! `/v1/policy`: reads, checks, replays and replaces the rules, and shows the decisions for callers and tools.
//!
//! Invariant: a policy is written only after it was checked with the rest of the project, and only over the text that its
//! author saw. Decisions of the matrix are by the rules in use, without arguments; nothing is called.

use std::sync::Arc;

use http::StatusCode;
use http::header::{self, HeaderMap, HeaderValue};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use toolgate_audit::CallFilter;
use toolgate_audit::project::parse_time;
use toolgate_runtime::access_diff::{AccessView, any_member};
use toolgate_runtime::runtime::AccessRules;
use toolgate_runtime::{CatalogTool, Runtime};
use toolgate_types::{Caller, ErrorCode, Group, ServerName};

use super::paging::Paging;
use super::recorded::with_recorded_calls;
use crate::Gateway;
use crate::auth::HttpError;
use crate::project::{
    CandidateAccess, CheckedPolicy, PolicyText, PolicyVersion, PolicyWriteError, ProjectService,
};
use crate::response::{self, ErrorDetails, Response};
use crate::route::AdmittedRequest;

/// Changes in the response of a replay, of each kind.
const MAX_CHANGES: usize = 1_000;
/// Pairs of a caller and a tool that are compared; with more, only recorded calls are.
const MAX_PAIRS: usize = 50_000;
/// Callers and tools in a page of the matrix: default and maximum.
const MATRIX_CALLERS: (usize, usize) = (50, 200);
const MATRIX_TOOLS: (usize, usize) = (100, 250);

/// Rules in Cedar.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyBody {
    text: String,
}

/// Rules in Cedar, and the recorded calls to decide again.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplayBody {
    text: String,
    /// Only calls since then: a time, a date, or an age such as `7d`.
    since: Option<String>,
    tool: Option<String>,
    caller: Option<String>,
}

pub(crate) async fn show(request: AdmittedRequest) -> Result<Response, HttpError> {
    shown_policy(&request.gateway).await
}

/// Returns the policy, with its hash as the `ETag`.
async fn shown_policy(gateway: &Gateway) -> Result<Response, HttpError> {
    let policy = gateway.with_project(|project| project.read_policy()).await?.map_err(unreadable)?;
    let PolicyText { file, text, hash, exists } = policy;
    let in_use = gateway.runtime.access_rules().policy.version().to_owned();
    let tag = HeaderValue::from_str(&format!("\"{hash}\""));
    let mut response = response::json(&json!({
        "file": file,
        "text": text,
        "hash": hash,
        "exists": exists,
        "version": in_use,
        "inUse": if exists { in_use == hash } else { in_use == "permissions" },
    }));
    if let Ok(tag) = tag {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}

/// Replaces the policy. It is in use when this returns.
pub(crate) async fn replace(request: AdmittedRequest) -> Result<Response, HttpError> {
    let PolicyBody { text } = request.json()?;
    let gateway = &request.gateway;
    let _call = gateway.begin_call()?;
    if gateway.cluster.is_some() {
        let message = "the policy of a cluster is changed in the files of its replicas, not over HTTP";
        let error = HttpError::new(StatusCode::CONFLICT, "conflict", message);
        return Err(error.hint(
            "write the same `policy.cedar` for every replica; `toolgate cluster status` compares them",
        ));
    }
    let registry = gateway.registry.clone().ok_or_else(no_project)?;
    let expected = expected_hash(&request.parts.headers)?;
    let author = request.auth.caller.id.to_string();
    let by = author.clone();
    let write = move |project: &dyn ProjectService| project.write_policy(&text, expected.as_deref(), &author);
    gateway.with_project(write).await?.map_err(write_error)?;
    let state = registry.reload().await;
    tracing::info!(%by, policy = gateway.runtime.access_rules().policy.version(), "policy replaced");
    if let Some(problems) = &state.rejection {
        // Another file of the project was changed since the check.
        tracing::warn!("the new policy is not in use: {problems}");
    }
    shown_policy(gateway).await
}

/// Reads the hash in `If-Match`.
fn expected_hash(headers: &HeaderMap) -> Result<Option<String>, HttpError> {
    let mut given = headers.get_all(header::IF_MATCH).iter();
    let Some(value) = given.next() else { return Ok(None) };
    let tag = value.to_str().unwrap_or_default().trim();
    if tag == "*" {
        return Ok(None);
    }
    let hash = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
    match hash.filter(|_| given.next().is_none()) {
        Some(hash) => Ok(Some(hash.to_owned())),
        None => Err(HttpError::invalid("`If-Match` is not one tag")
            .hint("send the `ETag` of `GET /v1/policy`, with its quotes")),
    }
}

pub(crate) async fn check(request: AdmittedRequest) -> Result<Response, HttpError> {
    let PolicyBody { text } = request.json()?;
    let CheckedPolicy { problems, access } =
        request.gateway.with_project(move |project| project.check_policy(&text)).await?;
    Ok(response::json(&json!({
        "ok": access.is_some(),
        "version": access.as_ref().map(|access| &access.version),
        "rules": access.as_ref().map(|access| access.rule_count),
        "problems": problems,
    })))
}

/// Decides recorded calls again with other rules.
pub(crate) async fn replay(request: AdmittedRequest) -> Result<Response, HttpError> {
    let ReplayBody { text, since, tool, caller } = request.json()?;
    let since = since.map(|text| parse_time(&text, Timestamp::now())).transpose();
    let since = since.map_err(|error| HttpError::invalid(error.to_string()))?;
    let gateway = Arc::clone(&request.gateway);
    let CheckedPolicy { problems, access } =
        gateway.with_project(move |project| project.check_policy(&text)).await?;
    let Some(mut candidate) = access else {
        return Ok(response::json(&json!({ "ok": false, "problems": problems, "version": null })));
    };
    let filter = CallFilter { tool, caller, since, ..CallFilter::default() };
    let runtime = Arc::clone(&gateway.runtime);
    let (groups, version) = (gateway.authenticator.groups(), candidate.version.clone());
    let callers = gateway.authenticator.all_callers().iter().map(|caller| Caller::clone(caller)).collect();
    let current = AccessRules { callers, policy: runtime.access_rules().policy.clone() };
    add_created_callers(&gateway, &mut candidate.rules.callers);
    let (access, calls, complete) = gateway
        .log
        .read(move |log, keep_going| {
            let access = compare_access(&runtime, &current, &candidate, &groups);
            let (report, is_complete) = with_recorded_calls(log, filter, keep_going, |calls| {
                runtime.replay(&candidate.rules, calls)
            })?;
            Ok((access, report, is_complete))
        })
        .await?;
    let (access, changes) = (access.as_deref(), calls.flips.len());
    Ok(response::json(&json!({
        "ok": true,
        "problems": problems,
        "version": version,
        "access": access.map(|access| &access[..access.len().min(MAX_CHANGES)]),
        "accessChanges": access.map(<[Json]>::len),
        "calls": {
            "replayed": calls.replayed,
            "uncertain": calls.uncertain,
            "gone": calls.gone,
            "flips": &calls.flips[..changes.min(MAX_CHANGES)],
            "changes": changes,
        },
        "complete": complete,
    })))
}

/// Adds the callers that were created while the gateway runs: no file of the project has them.
fn add_created_callers(gateway: &Gateway, callers: &mut Vec<Caller>) {
    for created in gateway.authenticator.created_callers() {
        if callers.iter().all(|caller| caller.id != created.id) {
            callers.push(Caller::clone(&created));
        }
    }
}

/// Compares the access of all callers under the rules in use and under others. `None` if there are too many pairs.
fn compare_access(
    runtime: &Runtime,
    current: &AccessRules,
    candidate: &CandidateAccess,
    groups: &[Arc<Group>],
) -> Option<Vec<Json>> {
    let profiles = runtime.profiles();
    let subjects = candidate.rules.callers.len() + 1 + groups.len();
    if subjects.saturating_mul(runtime.catalog().tools().count()) > MAX_PAIRS {
        return None;
    }
    let before = AccessView { rules: current, profiles: &profiles, groups };
    let changes = runtime.compare_access(before, candidate.view());
    Some(changes.iter().map(|change| json!(change)).collect())
}

/// Part of the matrix.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct MatrixQuery {
    tool: Option<String>,
    server: Option<String>,
    caller: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
    tools: Option<usize>,
    tools_cursor: Option<String>,
}

/// Decisions for callers, and for members of groups, on calls of tools without arguments.
pub(crate) async fn matrix(request: AdmittedRequest) -> Result<Response, HttpError> {
    let MatrixQuery { tool, server, caller, limit, cursor, tools, tools_cursor } = request.query()?;
    let rows = Paging::new(limit, cursor.as_deref(), MATRIX_CALLERS)?;
    let columns = Paging::new(tools, tools_cursor.as_deref(), MATRIX_TOOLS)?;
    let gateway = &request.gateway;
    let callers = gateway.authenticator.all_callers().into_iter();
    let callers = callers.map(|caller| ("caller", caller.id.to_string(), Caller::clone(&caller)));
    let groups = gateway.authenticator.groups().into_iter();
    let groups = groups.map(|group| ("group", group.name.to_string(), any_member(&group)));
    let is_wanted = |(_, id, _): &(&str, String, Caller)| caller.as_ref().is_none_or(|wanted| wanted == id);
    let (subjects, next) = rows.take(callers.chain(groups).filter(is_wanted));
    let catalog = gateway.runtime.catalog();
    fn of_server(tool: &CatalogTool) -> Option<&str> {
        tool.server.as_ref().map(ServerName::as_str)
    }
    let all = catalog.tools().filter(|one| {
        tool.as_ref().is_none_or(|wanted| one.name == *wanted)
            && server.as_deref().is_none_or(|wanted| of_server(one) == Some(wanted))
    });
    let (tools, tools_next) = columns.take(all.map(Arc::clone));
    let runtime = Arc::clone(&gateway.runtime);
    let decide = move || {
        let (labels, callers): (Vec<_>, Vec<Caller>) =
            subjects.into_iter().map(|(kind, id, caller)| ((kind, id), caller)).unzip();
        let columns: Vec<_> = tools.iter().map(AsRef::as_ref).collect();
        let decisions = runtime.access_matrix(&callers, &columns);
        let row = |((kind, id), decisions)| json!({ "caller": id, "kind": kind, "decisions": decisions });
        let rows: Vec<Json> = labels.into_iter().zip(decisions).map(row).collect();
        let tools: Vec<_> = tools.iter().map(|tool| tool.name.clone()).collect();
        json!({ "policy": runtime.access_rules().policy.version(), "tools": tools, "rows": rows })
    };
    let decided = tokio::task::spawn_blocking(decide).await;
    let mut document = decided.map_err(|_| HttpError::unavailable("the policy cannot be evaluated"))?;
    (document["next"], document["toolsNext"]) = (json!(next), json!(tools_next));
    Ok(response::json(&document))
}

/// Lists the policies that were replaced over HTTP.
pub(crate) async fn versions(request: AdmittedRequest) -> Result<Response, HttpError> {
    let versions = read_versions(&request.gateway).await?;
    let summary = |version: &PolicyVersion| json!({ "hash": version.hash, "at": version.at, "by": version.by, "bytes": version.text.len() });
    let versions: Vec<Json> = versions.iter().map(summary).collect();
    Ok(response::json(&json!({ "versions": versions })))
}

pub(crate) async fn version(request: AdmittedRequest) -> Result<Response, HttpError> {
    let hash = request.parameter()?;
    let versions = read_versions(&request.gateway).await?;
    let found = versions.into_iter().find(|version| version.hash == hash);
    let found = found.ok_or_else(|| {
        let hash: String = hash.chars().take(80).collect();
        HttpError::not_found(format!("there is no earlier policy `{hash}`"))
            .hint("`GET /v1/policy/versions` lists them")
    });
    Ok(response::json(&found?))
}

async fn read_versions(gateway: &Gateway) -> Result<Vec<PolicyVersion>, HttpError> {
    gateway.with_project(|project| project.policy_versions()).await?.map_err(unreadable)
}

impl Gateway {
    /// Uses the files of the project on a blocking thread, a few uses at a time.
    pub(crate) async fn with_project<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn ProjectService) -> T + Send + 'static,
    ) -> Result<T, HttpError> {
        let project = self.project.clone().ok_or_else(no_project)?;
        let _permit = self.project_uses.acquire().await;
        let done = tokio::task::spawn_blocking(move || work(&*project)).await;
        done.map_err(|error| {
            tracing::error!("the files of the project cannot be used: {error}");
            HttpError::unavailable("the files of the project cannot be used")
        })
    }
}

fn no_project() -> HttpError {
    HttpError::unavailable("the files of the project cannot be used on this gateway")
        .hint("see the output of `toolgate serve` for the reason")
}

fn unreadable(error: std::io::Error) -> HttpError {
    tracing::error!("the policy cannot be read: {error}");
    HttpError::unavailable("the policy cannot be read")
}

fn write_error(error: PolicyWriteError) -> HttpError {
    let message = error.to_string();
    match error {
        PolicyWriteError::Conflict { .. } => {
            HttpError::new(StatusCode::PRECONDITION_FAILED, "conflict", message)
                .hint("read the policy again, and repeat the change")
        }
        PolicyWriteError::Invalid(problems) => {
            let problems = problems.iter().map(|problem| json!(problem)).collect();
            let details = Some(Box::new(ErrorDetails { positions: problems, ..ErrorDetails::default() }));
            let error = HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message);
            HttpError { details, ..error }
        }
        PolicyWriteError::Io(cause) => {
            tracing::error!("the policy cannot be written: {cause}");
            let code = ErrorCode::StorageUnavailable.label();
            HttpError::new(StatusCode::SERVICE_UNAVAILABLE, code, message)
        }
    }
}
