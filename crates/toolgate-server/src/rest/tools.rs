//! `/v1/tools`: the tools a caller may see.

use axum::response::Response;
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::json;
use toolgate_runtime::{CatalogTool, ChoiceDecision, SearchHit};
use toolgate_types::tool::Category;
use toolgate_types::{ErrorCode, ServerName};

use crate::auth::HttpError;
use crate::response;
use crate::route::AdmittedRequest;

/// Filters of tools.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolQuery {
    server: Option<String>,
    category: Option<String>,
    tag: Option<String>,
}

pub(crate) async fn list(request: AdmittedRequest) -> Result<Response, HttpError> {
    let ToolQuery { server, category, tag } = request.query()?;
    let (gateway, auth) = (&request.gateway, &request.auth);
    let fits = |tool: &CatalogTool| {
        let from = tool.server.as_ref().map(ServerName::as_str);
        server.as_deref().is_none_or(|server| from == Some(server))
            && category.as_deref().is_none_or(|name| tool.category.map(Category::label) == Some(name))
            && tag.as_ref().is_none_or(|tag| tool.tags.contains(tag))
            && gateway.runtime.may_see(&auth.caller, tool)
    };
    let catalog = gateway.runtime.catalog();
    let tools: Vec<_> = catalog.tools().map(AsRef::as_ref).filter(|tool| fits(tool)).collect();
    Ok(gateway.with_etag(response::json(&json!({ "tools": tools }))))
}

pub(crate) async fn show(request: AdmittedRequest) -> Result<Response, HttpError> {
    show_tool(&request, &request.parameter()?)
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
    let Some(words) = q else { return show_tool(&request, "search") };
    let limit = limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT);
    let AdmittedRequest { gateway, auth, .. } = request;
    // The first search builds the index, so it runs on a blocking thread.
    let found = tokio::task::spawn_blocking(move || {
        (gateway.runtime.search(&auth.caller, &words, limit), gateway.runtime.choose(&auth.caller, &words))
    });
    let (hits, choice) = found.await.map_err(|_| HttpError::invalid("the search failed"))?;
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
    show_tool(&request, "execute")
}

fn show_tool(request: &AdmittedRequest, name: &str) -> Result<Response, HttpError> {
    let (gateway, auth) = (&request.gateway, &request.auth);
    let catalog = gateway.runtime.catalog();
    let tool = catalog.resolve(name).filter(|tool| gateway.runtime.may_see(&auth.caller, tool));
    tool.map(|tool| gateway.with_etag(response::json(tool.as_ref()))).ok_or_else(|| no_tool(name))
}

/// A tool the caller may not see gets the same error as a missing one.
pub(crate) fn no_tool(name: &str) -> HttpError {
    let message = format!("there is no tool `{name}`");
    HttpError::new(StatusCode::NOT_FOUND, ErrorCode::ToolNotFound.label(), message)
        .hint("`GET /v1/tools` lists them all")
}
