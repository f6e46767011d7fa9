//! The executions: a list with filters, and one call with its stages and its session.

use http::Method;
use serde_json::Value as Json;
use toolgate_console::escape::json_for_form;
use toolgate_console::frame::Section;
use toolgate_console::pages::{Body, ExecutionPage, ExecutionQuery, ExecutionsPage, waterfall};
use toolgate_console::rest::{Execution, Executions, Figures};
use toolgate_console::text::url;

use super::super::visit::{Visit, read_answer, target};
use crate::auth::HttpError;
use crate::response::Response;

/// Calls per page, and calls of the session around one.
const PAGE: &str = "50";
const AROUND: &str = "40";
/// Longest arguments that are offered for another call.
const MAX_AGAIN: usize = 16 << 10;

pub(crate) async fn list(visit: Visit) -> Result<Response, HttpError> {
    let query: ExecutionQuery = visit.query();
    let filters = query.set();
    let paged = filters.iter().copied().chain([("limit", PAGE), ("cursor", query.cursor.as_str())]);
    let found: Executions = visit.get(&target("/v1/executions", paged)).await?;
    let running: Option<Executions> = match query.cursor.is_empty() && filters.is_empty() {
        true => visit.get_if("listExecutions", "/v1/executions?state=running&bodies=false&limit=20").await,
        false => None,
    };
    let of_figures = filters.iter().copied().filter(|(name, _)| ["tool", "server", "caller"].contains(name));
    let figures: Option<Figures> =
        visit.get_if("figures", &target("/v1/figures", of_figures.chain([("since", "1h")]))).await;
    let next = found
        .next
        .clone()
        .map(|cursor| target("/executions", filters.iter().copied().chain([("cursor", cursor.as_str())])));
    let flags: String = filters.iter().map(|(name, value)| format!(" --{name} {value}")).collect();
    let commands = [format!("toolgate log{flags}"), format!("toolgate log --follow{flags}")];
    // Older pages do not change.
    let live = if query.cursor.is_empty() { "executions" } else { "" };
    let frame = visit.frame(Section::Executions, "Executions", &commands, live).await;
    let running = running.map(|running| running.executions).unwrap_or_default();
    Ok(visit.render(&ExecutionsPage { frame, query, figures, running, calls: found.executions, next }))
}

pub(crate) async fn show(visit: Visit) -> Result<Response, HttpError> {
    let id = visit.parameter().to_owned();
    let call = visit.get::<Execution>(&format!("/v1/executions/{}", url(&id))).await?;
    let around = session_around(&visit, &call).await;
    let (begin, end) = (call.begin.as_ref(), call.end.as_ref());
    let body = |whole: Option<&Json>, cut| Body::of(whole, cut);
    let arguments = begin.and_then(|begin| body(begin.arguments.as_ref(), begin.arguments_cut.as_ref()));
    let output = end.and_then(|end| body(end.output.as_ref(), end.output_cut.as_ref()));
    let again = begin.and_then(|begin| repeatable(&call, begin.arguments.as_ref()?));
    let commands = [format!("toolgate log show {id}")];
    let live = if call.end.is_none() { "executions" } else { "" };
    let frame = visit.frame(Section::Executions, &call.tool, &commands, live).await;
    let steps = waterfall(&call.steps);
    Ok(visit.render(&ExecutionPage { frame, steps, arguments, output, again, around, call }))
}

/// Arguments for another call, if nothing of them was redacted.
fn repeatable(call: &Execution, arguments: &Json) -> Option<String> {
    let text = serde_json::to_string_pretty(arguments).ok()?;
    let is_whole = !text.contains("***") && text.len() <= MAX_AGAIN;
    (call.kind == "tool" && arguments.is_object() && is_whole).then(|| json_for_form(&text))
}

/// The calls of the same session, oldest first.
async fn session_around(visit: &Visit, call: &Execution) -> Vec<Execution> {
    let session = call.begin.as_ref().and_then(|begin| begin.session.as_deref()).unwrap_or_default();
    if session.is_empty() {
        return Vec::new();
    }
    let query = [("session", session), ("bodies", "false"), ("limit", AROUND)];
    let Ok(response) = visit.perform(Method::GET, &target("/v1/executions", query), None, &[]).await else {
        return Vec::new();
    };
    let mut around =
        read_answer::<Executions>(response).await.map(|found| found.executions).unwrap_or_default();
    around.reverse();
    if around.len() < 2 { Vec::new() } else { around }
}
