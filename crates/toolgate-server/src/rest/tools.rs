//! `/v1/tools`: what a caller may know of.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::Response;
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::json;
use toolgate_runtime::{CatalogTool, Decision, Hit};
use toolgate_types::tool::Category;
use toolgate_types::{ErrorCode, ServerName};

use super::Guest;
use crate::Door;
use crate::admit::Refusal;
use crate::answer;

/// Which tools.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    server: Option<String>,
    category: Option<String>,
    tag: Option<String>,
}

pub(crate) async fn list(
    State(door): State<Arc<Door>>,
    guest: Guest,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Wanted { server, category, tag } = query(wanted)?;
    let fits = |tool: &CatalogTool| {
        let from = tool.server.as_ref().map(ServerName::as_str);
        server.as_deref().is_none_or(|server| from == Some(server))
            && category.as_deref().is_none_or(|name| tool.category.map(Category::label) == Some(name))
            && tag.as_ref().is_none_or(|tag| tool.tags.contains(tag))
            && door.runtime.may_see(&guest.caller, tool)
    };
    let catalog = door.runtime.catalog();
    let tools: Vec<_> = catalog.tools().map(AsRef::as_ref).filter(|tool| fits(tool)).collect();
    Ok(door.tagged(answer::document(&json!({ "tools": tools }))))
}

pub(crate) async fn show(
    State(door): State<Arc<Door>>,
    guest: Guest,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    one(&door, &guest, &path(name)?)
}

/// What is searched for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sought {
    q: Option<String>,
    limit: Option<usize>,
}

/// Tools that a search gives where nothing is said, and at most.
const FOUND: usize = 5;
const MOST_FOUND: usize = 100;

pub(crate) async fn search(
    State(door): State<Arc<Door>>,
    guest: Guest,
    sought: Result<Query<Sought>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Sought { q, limit } = query(sought)?;
    let Some(words) = q else { return one(&door, &guest, "search") };
    let limit = limit.unwrap_or(FOUND).min(MOST_FOUND);
    let looking = Arc::clone(&door);
    // The first search reads all tools, which other requests should not wait for.
    let found = tokio::task::spawn_blocking(move || {
        (looking.runtime.search(&guest.caller, &words, limit), looking.runtime.choose(&guest.caller, &words))
    });
    let (hits, choice) = found.await.map_err(|_| Refusal::invalid("the search could not be finished"))?;
    let rounded = |value: f32| (f64::from(value) * 10_000.0).round() / 10_000.0;
    let shown = |hit: &Hit| json!({ "name": hit.name, "score": rounded(hit.score) });
    let tool = choice.hits.first().filter(|_| choice.decision == Decision::Tool).map(|hit| &hit.name);
    Ok(answer::document(&json!({
        "decision": choice.decision.name(),
        "confidence": rounded(choice.confidence),
        "tool": tool,
        "missing": choice.missing,
        "tools": hits.iter().map(shown).collect::<Vec<_>>(),
    })))
}

pub(crate) async fn show_execute(State(door): State<Arc<Door>>, guest: Guest) -> Result<Response, Refusal> {
    one(&door, &guest, "execute")
}

fn one(door: &Door, guest: &Guest, name: &str) -> Result<Response, Refusal> {
    let catalog = door.runtime.catalog();
    let tool = catalog.resolve(name).filter(|tool| door.runtime.may_see(&guest.caller, tool));
    tool.map(|tool| door.tagged(answer::document(tool.as_ref()))).ok_or_else(|| unknown(name))
}

/// One that a caller may not know of reads like one that is not there.
pub(crate) fn unknown(name: &str) -> Refusal {
    let message = format!("there is no tool `{name}`");
    Refusal::new(StatusCode::NOT_FOUND, ErrorCode::ToolNotFound.label(), message)
        .hint("`GET /v1/tools` lists them all")
}

pub(crate) fn path(name: Result<Path<String>, PathRejection>) -> Result<String, Refusal> {
    name.map(|Path(name)| name).map_err(|error| Refusal::invalid(error.body_text()))
}

pub(crate) fn query<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Refusal> {
    query.map(|Query(query)| query).map_err(|error| Refusal::invalid(error.body_text()))
}
