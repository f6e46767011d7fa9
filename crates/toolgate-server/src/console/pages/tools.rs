//! The tools: search and list, and one tool with its contract and a form to try it.

use http::{Method, header};
use serde_json::{Value as Json, json};
use toolgate_console::form::{Field, ToolForm};
use toolgate_console::frame::{Notice, Section};
use toolgate_console::pages::{NewToolPage, ToolPage, ToolQuery, ToolRow, ToolsPage, form_json};
use toolgate_console::rest::{Executions, Figures, Found, Outcome, Servers, Tool, ToolCallers, Tools, Why};
use toolgate_console::schema::table;
use toolgate_console::text::url;

use super::super::form::parse_json;
use super::super::live_call;
use super::super::visit::{Visit, notice_of, read_answer, shown_request, target};
use crate::auth::HttpError;
use crate::response::Response;

/// Tools per page, and results of a search.
const PAGE: &str = "100";
const HITS: &str = "20";

pub(crate) async fn list(visit: Visit) -> Result<Response, HttpError> {
    let query: ToolQuery = visit.query();
    let filters = [
        ("server", query.server.as_str()),
        ("category", query.category.as_str()),
        ("tag", query.tag.as_str()),
        ("state", query.state.as_str()),
        ("risk", query.risk.as_str()),
    ];
    let (mut found, mut next) = (None, None);
    let rows = if query.q.trim().is_empty() {
        let more = [("limit", PAGE), ("cursor", query.cursor.as_str())];
        let listed: Tools = visit.get(&target("/v1/tools", filters.into_iter().chain(more))).await?;
        next = listed
            .next
            .map(|cursor| target("/tools", filters.into_iter().chain([("cursor", cursor.as_str())])));
        listed.tools.into_iter().map(|tool| ToolRow { tool, score: None, best: 1.0 }).collect()
    } else {
        let words = [("q", query.q.trim()), ("limit", HITS)];
        let hits: Found = visit.get(&target("/v1/tools/search", words)).await?;
        let rows = search_rows(&visit, &hits, &query).await;
        found = Some(hits);
        rows
    };
    let servers: Option<Servers> = visit.get_if("listServers", "/v1/servers").await;
    let servers = servers.into_iter().flat_map(|listed| listed.servers).map(|server| server.name).collect();
    let command = match query.q.trim() {
        "" => "toolgate tools list".to_owned(),
        words => format!("toolgate tools search {words:?}"),
    };
    let frame = visit.frame(Section::Tools, "Tools", &[command], "tool").await;
    Ok(visit.render(&ToolsPage { frame, query, servers, found, rows, next }))
}

/// The tools of the results that fit the filters.
async fn search_rows(visit: &Visit, found: &Found, query: &ToolQuery) -> Vec<ToolRow> {
    let best = found.tools.first().map_or(1.0, |hit| hit.score);
    let mut rows = Vec::new();
    for hit in &found.tools {
        let path = format!("/v1/tools/{}", url(&hit.name));
        let Ok(response) = visit.perform(Method::GET, &path, None, &[]).await else { continue };
        let Ok(tool) = read_answer::<Tool>(response).await else { continue };
        let fits = |wanted: &str, value: &str| wanted.is_empty() || wanted == value;
        if fits(&query.server, tool.server.as_deref().unwrap_or_default())
            && fits(&query.category, tool.category.as_deref().unwrap_or_default())
            && fits(&query.state, &tool.state)
            && fits(&query.risk, &tool.risk)
            && (query.tag.is_empty() || tool.tags.contains(&query.tag))
        {
            rows.push(ToolRow { tool, score: Some(hit.score), best });
        }
    }
    rows
}

pub(crate) async fn new(visit: Visit) -> Result<Response, HttpError> {
    let commands = ["toolgate tools new NAME".to_owned(), "toolgate tools add FILE".to_owned()];
    let frame = visit.frame(Section::Tools, "Register a script", &commands, "").await;
    Ok(visit.render(&NewToolPage { frame }))
}

/// Content of the form of a tool, and the result.
#[derive(Default)]
struct Trial {
    as_json: bool,
    arguments: String,
    fields: Vec<Field>,
    why_for: String,
    failure: Option<Notice>,
    why: Option<Why>,
    outcome: Option<Outcome>,
}

pub(crate) async fn show(visit: Visit) -> Result<Response, HttpError> {
    let tool = read_tool(&visit).await?;
    let fields = ToolForm::new(&tool.input_schema).fields();
    let trial = Trial { fields, arguments: "{}".to_owned(), ..Trial::default() };
    page(&visit, tool, trial).await
}

/// Calls the tool, explains the decision, or changes the form.
pub(crate) async fn submit(visit: Visit) -> Result<Response, HttpError> {
    let tool = read_tool(&visit).await?;
    let mut trial = Trial {
        as_json: visit.form.text("form") == "json",
        arguments: visit.form.text("arguments").to_owned(),
        why_for: visit.form.text("for").trim().to_owned(),
        ..Trial::default()
    };
    match run(&visit, &tool, &mut trial).await {
        Ok(Some(call)) if live_call::wants_events(visit.headers()) => {
            return live_call(visit, tool, trial, call).await;
        }
        Ok(Some(Call { path, body })) => match visit.post(&path, &body).await {
            Ok(outcome) => trial.outcome = Some(outcome),
            Err(error) => trial.failure = Some(notice_of(&error)),
        },
        Ok(None) => {}
        Err(error) => trial.failure = Some(notice_of(&error)),
    }
    page(&visit, tool, trial).await
}

/// A call to make.
struct Call {
    path: String,
    body: Json,
}

/// Reads the entered arguments into the trial, and does everything but the call.
async fn run(visit: &Visit, tool: &Tool, trial: &mut Trial) -> Result<Option<Call>, HttpError> {
    let action = visit.form.text("do");
    let entered = if trial.as_json {
        let text = trial.arguments.trim();
        let parsed = if text.is_empty() { json!({}) } else { parse_json("arguments", text)? };
        if !parsed.is_object() {
            return Err(HttpError::invalid("the arguments are not an object"));
        }
        parsed
    } else {
        let mut form = ToolForm::sent(&tool.input_schema, &|name| visit.form.get(name).map(str::to_owned));
        form.change(action);
        // Before anything can fail: the entered text must not be lost.
        trial.fields = form.fields();
        if action == "form" || action.starts_with("add:") || action.starts_with("remove:") {
            return Ok(None);
        }
        form.arguments()
            .map_err(|error| HttpError::invalid(format!("`{}`: {}", error.label, error.message)))?
    };
    trial.arguments = form_json(&entered);
    let form = ToolForm::filled(&tool.input_schema, &entered);
    let is_whole = form.can_show(&entered);
    trial.fields = form.fields();
    trial.as_json |= !is_whole;
    match action {
        "call" => {
            let path = format!("/v1/tools/{}/call?trace=true", url(&tool.name));
            return Ok(Some(Call { path, body: json!({ "arguments": entered }) }));
        }
        "why" => {
            let caller = if trial.why_for.is_empty() { visit.caller() } else { &trial.why_for };
            let body = json!({ "caller": caller, "tool": tool.name, "arguments": entered });
            trial.why = Some(visit.post("/v1/policy/why", &body).await?);
        }
        "json" => trial.as_json = true,
        "fields" if is_whole => trial.as_json = false,
        "fields" => {
            let error = HttpError::invalid(
                "the arguments have members, empty values or characters that the form cannot show",
            );
            return Err(error.hint("leave them out, or stay with JSON"));
        }
        _ => {}
    }
    Ok(None)
}

/// Makes a call, and streams its events to the page.
async fn live_call(visit: Visit, tool: Tool, mut trial: Trial, call: Call) -> Result<Response, HttpError> {
    let Call { path, body } = call;
    visit.note_request(&Method::POST, &path, Some(&body));
    let accept = [(header::ACCEPT, "text/event-stream")];
    match visit.perform(Method::POST, &path, Some(&body), &accept).await {
        Ok(events) => Ok(live_call::stream(events, |outcome| async move {
            match outcome {
                Ok(outcome) => trial.outcome = Some(outcome),
                Err(error) => trial.failure = Some(notice_of(&error)),
            }
            page(&visit, tool, trial).await
        })),
        Err(error) => {
            trial.failure = Some(notice_of(&error));
            page(&visit, tool, trial).await
        }
    }
}

async fn read_tool(visit: &Visit) -> Result<Tool, HttpError> {
    visit.get(&format!("/v1/tools/{}", url(visit.parameter()))).await
}

async fn page(visit: &Visit, tool: Tool, trial: Trial) -> Result<Response, HttpError> {
    let name = tool.name.as_str();
    let figures: Option<Figures> =
        visit.get_if("figures", &target("/v1/figures", [("tool", name), ("since", "6h")])).await;
    let callers: Option<ToolCallers> =
        visit.get_if("listToolCallers", &format!("/v1/tools/{}/callers?limit=100", url(name))).await;
    let calls: Option<Executions> =
        visit.get_if("listExecutions", &target("/v1/executions", [("tool", name), ("limit", "8")])).await;
    let commands = [format!("toolgate tools show {name}"), format!("toolgate tools call {name}")];
    let mut frame = visit.frame(Section::Tools, name, &commands, "tool executions").await;
    let call = shown_request(
        &Method::POST,
        &format!("/v1/tools/{}/call", url(name)),
        Some(&json!({ "arguments": {} })),
    );
    if trial.outcome.is_none() {
        frame.rest.push(call);
    }
    let Trial { as_json, arguments, fields, why_for, failure, why, outcome } = trial;
    let schema = table(&tool.input_schema);
    Ok(visit.render(&ToolPage {
        frame,
        figures,
        failure,
        as_json,
        arguments,
        fields,
        schema,
        why_for,
        why,
        outcome,
        callers: callers.map(|callers| callers.callers),
        calls: calls.map(|calls| calls.executions),
        tool,
    }))
}
