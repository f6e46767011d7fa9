//! `/v1/tools`: the tools a caller may see.

use std::sync::Arc;

use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use toolgate_json::RawJson;
use toolgate_runtime::{CatalogTool, ChoiceDecision, ListFilter, ListRequest, ListViewer, SearchHit};
use toolgate_types::tool::Category;
use toolgate_types::{ErrorCode, ServerName};

use crate::auth::HttpError;
use crate::response::{self, Response};
use crate::rest::items::list_request;
use crate::route::AdmittedRequest;

/// Filters of tools.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolQuery {
    server: Option<String>,
    category: Option<String>,
    tag: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// Tools per page: default and maximum. A page of a thousand is about a megabyte.
const PAGE: usize = 1_000;

pub(crate) async fn list(request: AdmittedRequest) -> Result<Response, HttpError> {
    let ToolQuery { server, category, tag, limit, cursor } = request.query()?;
    let limit = limit.unwrap_or(PAGE).clamp(1, PAGE);
    // A cursor is a position in the catalog: it reveals nothing about the tools before it.
    let start: usize = cursor
        .map(|cursor| cursor.parse())
        .transpose()
        .map_err(|_| HttpError::invalid("invalid `cursor`").hint("use the `next` of the previous page"))?
        .unwrap_or(0);
    let (gateway, auth) = (&request.gateway, &request.auth);
    let lists = list_filter(&request).await;
    let fits = |tool: &CatalogTool| {
        let from = tool.server.as_ref().map(ServerName::as_str);
        server.as_deref().is_none_or(|server| from == Some(server))
            && category.as_deref().is_none_or(|name| tool.category.map(Category::label) == Some(name))
            && tag.as_ref().is_none_or(|tag| tool.tags.contains(tag))
            && lists.shows(tool)
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
    let lists = list_filter(request).await;
    let shown = gateway.runtime.list(&auth.caller, list, || {
        let may_see = |tool: &CatalogTool| lists.shows(tool) && gateway.runtime.may_see(&auth.caller, tool);
        let tool = catalog.resolve(name).filter(|tool| may_see(tool));
        tool.map(|tool| response::json(tool.as_ref())).ok_or_else(|| no_tool(name))
    });
    Ok(gateway.with_etag(shown.await?))
}

/// Reads the lists of the servers that list other items to this caller. Capabilities do not limit them: REST has none.
pub(super) async fn list_filter(request: &AdmittedRequest) -> ListFilter {
    let viewer = ListViewer { caller: &request.auth.caller, session: None, client: None };
    Box::pin(request.gateway.runtime.list_filter(viewer)).await
}

/// A tool the caller may not see gets the same error as a missing one.
pub(crate) fn no_tool(name: &str) -> HttpError {
    let message = format!("there is no tool `{name}`");
    HttpError::new(StatusCode::NOT_FOUND, ErrorCode::ToolNotFound.label(), message)
        .hint("`GET /v1/tools` lists them all")
}
