//! `/v1/tools`: the tools a caller may see.

use std::sync::Arc;

use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};
use toolgate_json::{CallArguments, RawJson};
use toolgate_runtime::catalog::Upstream;
use toolgate_runtime::runtime::LimitsInForce;
use toolgate_runtime::{
    CatalogTool, ChoiceDecision, ListFilter, ListRequest, ListViewer, Operation, SearchHit,
};
use toolgate_store::document::EntryKind;
use toolgate_types::tool::{Category, ContractLevel, FollowUp, Permission, ResponseTime, ToolExample};
use toolgate_types::{Caller, ErrorCode, HumanDuration, ServerName};

use super::callers::CallerPage;
use super::paging::Paging;
use crate::Gateway;
use crate::auth::HttpError;
use crate::response::{self, Response};
use crate::rest::items::list_request;
use crate::route::{Access, AdmittedRequest};

/// Filters of tools.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolQuery {
    server: Option<String>,
    category: Option<String>,
    tag: Option<String>,
    state: Option<String>,
    risk: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// Values of the filters `state` and `risk`.
const STATES: [&str; 3] = ["ready", "quarantined", "removed"];
const RISKS: [&str; 3] = ["low", "medium", "high"];

/// Checks the value of a filter: with a misspelt one, the list would look empty.
fn check_filter(name: &str, value: Option<&str>, known: &[&str]) -> Result<(), HttpError> {
    let unknown = value.filter(|value| !known.contains(value));
    unknown.map_or(Ok(()), |value| {
        let value: String = value.chars().take(64).collect();
        Err(HttpError::invalid(format!("unknown `{name}`: `{value}`"))
            .hint(format!("the values are {}", known.join(", "))))
    })
}

/// Tools per page: default and maximum. A page of a thousand is about a megabyte.
const PAGE: usize = 1_000;

pub(crate) async fn list(request: AdmittedRequest) -> Result<Response, HttpError> {
    let ToolQuery { server, category, tag, state, risk, limit, cursor } = request.query()?;
    check_filter("state", state.as_deref(), &STATES)?;
    check_filter("risk", risk.as_deref(), &RISKS)?;
    // The cursor is a position in the catalog.
    let Paging { start, limit } = Paging::new(limit, cursor.as_deref(), (PAGE, PAGE))?;
    let (gateway, auth) = (&request.gateway, &request.auth);
    let lists = list_filter(&request).await;
    let fits = |tool: &CatalogTool| {
        let from = tool.server.as_ref().map(ServerName::as_str);
        server.as_deref().is_none_or(|server| from == Some(server))
            && category.as_deref().is_none_or(|name| tool.category.map(Category::label) == Some(name))
            && tag.as_ref().is_none_or(|tag| tool.tags.contains(tag))
            && lists.shows(tool)
            && state.as_deref().is_none_or(|state| tool.state.label() == state)
            && risk.as_deref().is_none_or(|risk| tool.contract.risk.label() == risk)
            && gateway.runtime.may_see(&auth.caller, tool)
    };
    let catalog = gateway.runtime.catalog();
    let list = gateway.runtime.list(&auth.caller, list_request(&request, "tools/list"), || {
        let mut tools = catalog.tools().enumerate().skip(start).filter(|(_, tool)| fits(tool));
        let page: Vec<&CatalogTool> = tools.by_ref().take(limit).map(|(_, tool)| tool.as_ref()).collect();
        let next = tools.next().map(|(at, _)| at.to_string());
        response::json(&json!({ "tools": page, "next": next }))
    });
    Ok(gateway.with_etag(list.await))
}

pub(crate) async fn show(request: AdmittedRequest) -> Result<Response, HttpError> {
    show_tool(&request, &request.parameter()?).await
}

/// Query of a tool search.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchQuery {
    q: Option<String>,
    limit: Option<usize>,
}

/// Number of search results: default and maximum.
const DEFAULT_LIMIT: usize = 5;
const MAX_LIMIT: usize = 100;

pub(crate) async fn search(request: AdmittedRequest) -> Result<Response, HttpError> {
    let SearchQuery { q, limit } = request.query()?;
    let Some(words) = q else { return show_tool(&request, "search").await };
    let limit = limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT);
    let list = ListRequest {
        arguments: RawJson::from_value(&json!({ "query": words })),
        ..list_request(&request, "tools/search")
    };
    let (runtime, caller) = (Arc::clone(&request.gateway.runtime), Arc::clone(&request.auth.caller));
    let lists = list_filter(&request).await;
    // The first search may build the index, so it runs on a blocking thread.
    let found = tokio::task::spawn_blocking(move || {
        (runtime.search(&caller, &lists, &words, limit), runtime.choose(&caller, &lists, &words))
    });
    let found = found.await.map_err(|_| HttpError::invalid("the search failed"))?;
    let (hits, choice) = request.gateway.runtime.list(&request.auth.caller, list, || found).await;
    let rounded = |value: f32| (f64::from(value) * 10_000.0).round() / 10_000.0;
    let shown = |hit: &SearchHit| json!({ "name": hit.name, "score": rounded(hit.score) });
    let tool = choice.hits.first().filter(|_| choice.decision == ChoiceDecision::Tool).map(|hit| &hit.name);
    Ok(response::json(&json!({
        "decision": choice.decision.name(),
        "confidence": rounded(choice.confidence),
        "tool": tool,
        "missing": choice.missing,
        "tools": hits.iter().map(shown).collect::<Vec<_>>(),
    })))
}

pub(crate) async fn show_execute(request: AdmittedRequest) -> Result<Response, HttpError> {
    show_tool(&request, "execute").await
}

async fn show_tool(request: &AdmittedRequest, name: &str) -> Result<Response, HttpError> {
    let (gateway, auth) = (&request.gateway, &request.auth);
    let list = ListRequest {
        arguments: RawJson::from_value(&json!({ "name": name })),
        ..list_request(request, "tools/show")
    };
    let catalog = gateway.runtime.catalog();
    let is_full = request.access == Access::Full;
    let lists = list_filter(request).await;
    let shown = gateway.runtime.list(&auth.caller, list, || {
        let may_see = |tool: &CatalogTool| lists.shows(tool) && gateway.runtime.may_see(&auth.caller, tool);
        let tool = catalog.resolve(name).filter(|tool| may_see(tool));
        tool.map(|tool| response::json(&ToolPage::new(gateway, tool, is_full))).ok_or_else(|| no_tool(name))
    });
    Ok(gateway.with_etag(shown.await?))
}

/// Reads the lists of the servers that list other items to this caller. Capabilities do not limit them: REST has none.
pub(super) async fn list_filter(request: &AdmittedRequest) -> ListFilter {
    let viewer = ListViewer { caller: &request.auth.caller, session: None, client: None };
    Box::pin(request.gateway.runtime.list_filter(viewer)).await
}

/// A tool with its whole contract.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolPage<'a> {
    #[serde(flatten)]
    tool: &'a CatalogTool,
    names: Vec<String>,
    original: &'a str,
    hash: Option<&'a str>,
    trusted: bool,
    permissions: &'a [Permission],
    limits: Json,
    response_time: Option<ResponseTime>,
    follow_ups: &'a [FollowUp],
    examples: &'a [ToolExample],
    strict_output: bool,
    contract: Option<ContractLevel>,
    source: Json,
    /// The entry that `PUT` takes, with secrets masked.
    entry: Option<Map<String, Json>>,
}

impl<'a> ToolPage<'a> {
    fn new(gateway: &Gateway, tool: &'a CatalogTool, is_full: bool) -> Self {
        let LimitsInForce { timeout, max_instances, max_output, rate_limit, cache_ttl } =
            gateway.runtime.limits_in_force(tool);
        let millis = |time: HumanDuration| json!(u64::try_from(time.get().as_millis()).unwrap_or(u64::MAX));
        let limits = json!({
            "timeoutMs": millis(timeout),
            "maxInstances": max_instances,
            "maxOutputBytes": max_output.bytes(),
            "rateLimit": rate_limit.map(|limit| {
                json!({ "maxCalls": limit.max_calls, "windowMs": millis(limit.window) })
            }),
            "cacheTtlMs": cache_ttl.map(millis),
        });
        let own = tool.own_definition();
        let entry = gateway.stored_entry(EntryKind::Tool, &tool.original).filter(|_| own.is_some());
        let kind = match &tool.upstream {
            Upstream::Builtin(_) => "builtin",
            Upstream::Script(_) => "script",
            Upstream::OpenApi(_) => "openapi",
            _ => "server",
        };
        Self {
            names: tool.names(),
            original: &tool.original,
            hash: tool.hash.as_deref(),
            trusted: tool.trusted,
            permissions: &tool.permissions,
            limits,
            response_time: tool.response_time,
            follow_ups: tool.declared_steps(),
            examples: own.map(|own| own.examples.as_slice()).unwrap_or_default(),
            strict_output: tool.strict_output,
            contract: own.map(|own| own.contract),
            source: json!({ "kind": kind, "server": tool.server, "editable": entry.is_some() }),
            entry: entry.filter(|_| is_full).map(|entry| gateway.runtime.masked_entry(&entry)),
            tool,
        }
    }
}

/// Callers in a page of [`callers`]: default and maximum.
const CALLER_PAGE: usize = 100;
const MAX_CALLER_PAGE: usize = 500;

/// Explains for each caller if it may call a tool, without arguments.
pub(crate) async fn callers(request: AdmittedRequest) -> Result<Response, HttpError> {
    let name = request.parameter()?;
    let CallerPage { limit, cursor } = request.query()?;
    let paging = Paging::new(limit, cursor.as_deref(), (CALLER_PAGE, MAX_CALLER_PAGE))?;
    let gateway = &request.gateway;
    let tool = gateway.runtime.catalog().resolve(&name).map(|tool| tool.name.clone());
    let tool = tool.ok_or_else(|| no_tool(&name))?;
    let (page, next) = paging.take(gateway.authenticator.all_callers().into_iter());
    let runtime = Arc::clone(&gateway.runtime);
    let wanted = tool.clone();
    let explain = move || {
        let operation = Operation::tool(wanted, CallArguments::empty());
        let explain = |caller: &Arc<Caller>| {
            let mut document = json!(runtime.explain(caller, &operation)?);
            document["caller"] = json!(caller.id);
            Some(document)
        };
        page.iter().filter_map(explain).collect::<Vec<Json>>()
    };
    // Rules are evaluated for each caller.
    let explained = tokio::task::spawn_blocking(explain).await;
    let explained = explained.map_err(|_| HttpError::unavailable("the policy cannot be evaluated"))?;
    Ok(response::json(&json!({ "tool": tool, "callers": explained, "next": next })))
}

/// A tool the caller may not see gets the same error as a missing one.
pub(crate) fn no_tool(name: &str) -> HttpError {
    let message = format!("there is no tool `{name}`");
    HttpError::new(StatusCode::NOT_FOUND, ErrorCode::ToolNotFound.label(), message)
        .hint("`GET /v1/tools` lists them all")
}
