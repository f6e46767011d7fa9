//! `/v1/tools`: the tools a caller may see.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::Response;
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::json;
use toolgate_runtime::{CatalogTool, ChoiceDecision, SearchHit};
use toolgate_types::tool::Category;
use toolgate_types::{ErrorCode, ServerName};

use super::Authenticated;
use crate::Gateway;
use crate::auth::HttpError;
use crate::response;

/// Filters of tools.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolQuery {
    server: Option<String>,
    category: Option<String>,
    tag: Option<String>,
}

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    auth: Authenticated,
    filter: Result<Query<ToolQuery>, QueryRejection>,
) -> Result<Response, HttpError> {
    let ToolQuery { server, category, tag } = query(filter)?;
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

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    auth: Authenticated,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, HttpError> {
    show_tool(&gateway, &auth, &path(name)?)
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

pub(crate) async fn search(
    State(gateway): State<Arc<Gateway>>,
    auth: Authenticated,
    parameters: Result<Query<SearchQuery>, QueryRejection>,
) -> Result<Response, HttpError> {
    let SearchQuery { q, limit } = query(parameters)?;
    let Some(words) = q else { return show_tool(&gateway, &auth, "search") };
    let limit = limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT);
    let searching = Arc::clone(&gateway);
    // The first search builds the index, so it runs on a blocking thread.
    let found = tokio::task::spawn_blocking(move || {
        (
            searching.runtime.search(&auth.caller, &words, limit),
            searching.runtime.choose(&auth.caller, &words),
        )
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

pub(crate) async fn show_execute(
    State(gateway): State<Arc<Gateway>>,
    auth: Authenticated,
) -> Result<Response, HttpError> {
    show_tool(&gateway, &auth, "execute")
}

fn show_tool(gateway: &Gateway, auth: &Authenticated, name: &str) -> Result<Response, HttpError> {
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

pub(crate) fn path(name: Result<Path<String>, PathRejection>) -> Result<String, HttpError> {
    name.map(|Path(name)| name).map_err(|error| HttpError::invalid(error.body_text()))
}

pub(crate) fn query<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, HttpError> {
    query.map(|Query(query)| query).map_err(|error| HttpError::invalid(error.body_text()))
}
