//! `toolgate tools list|show|call`. Changes are in [`change`], tests of examples in [`examples`].

use std::borrow::Cow;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Map, Value as Json, json};
use toolgate_app::{parse_json, servers_with_tool};
use toolgate_redact::printable;
use toolgate_runtime::runtime::{LimitsInForce, StartError};
use toolgate_runtime::{
    CallOutcome, Catalog, CatalogTool, Operation, RawJson, StageTime, ToolState, TraceContext,
};
use toolgate_store::document::EntryKind;
use toolgate_types::tool::{Category, RateLimit, ToolContract};
use toolgate_types::{CallError, ErrorCode, ServerName, ToolResult};

use crate::cli::{AnswerMode, CallArgs, ListArgs, ProjectArgs, ToolsCommand};
use crate::command::app::AppChoice;
use crate::command::{app, change, content, examples, profiles, scaffold, search};
use crate::output::{BOLD, DIM, Output, display_json, error_with_hint, first_line, quoted_lines};
use crate::{DONE, FAILED, SERVER_DOWN};

pub(crate) fn run(command: &ToolsCommand, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    match command {
        ToolsCommand::List(args) => list(args, project, output),
        ToolsCommand::Search(args) => search::run(args, project, output),
        ToolsCommand::Show(args) => show(&args.name, project, output),
        ToolsCommand::Call(args) => call(args, project, output),
        ToolsCommand::Add(args) => change::add_tool(args, project, output),
        ToolsCommand::New(args) => scaffold::run(args, project, output),
        ToolsCommand::Test(args) => examples::run(args, project, output),
        ToolsCommand::Update(args) => change::update(EntryKind::Tool, args, project, output),
        ToolsCommand::Remove(args) => change::remove(EntryKind::Tool, args, project, output),
    }
}

fn list(args: &ListArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    if let Some(profile) = &args.profile {
        return profiles::list(profile, args, project, output);
    }
    let ListArgs { server, category, tag, caller: who, .. } = args;
    let is_wanted = |name: &str| server.as_deref().is_none_or(|server| server == name);
    app::with_app(
        project,
        output,
        AppChoice::new(AnswerMode::Ask).with_short_wait().with_servers(is_wanted),
        async |app, errors| {
            let runtime = app.runtime();
            let catalog = runtime.catalog();
            let who = app::find_caller(app, who)?;
            let wanted = |tool: &&Arc<CatalogTool>| {
                let from = tool.server.as_ref().map(ServerName::as_str);
                server.as_deref().is_none_or(|server| from == Some(server))
                    && category.as_deref().is_none_or(|name| tool.category.map(Category::label) == Some(name))
                    && tag.as_ref().is_none_or(|tag| tool.tags.contains(tag))
                    && runtime.may_see(&who, tool)
            };
            let tools: Vec<_> = catalog.tools().filter(wanted).collect();
            if output.json {
                output.document(&tools.iter().map(|tool| tool.as_ref()).collect::<Vec<_>>())?;
            } else if let Some(columns) = output.terminal().columns {
                output.result(&grouped_text(&tools, columns));
            } else {
                let width = tools.iter().map(|tool| tool.name.len()).max().unwrap_or(0);
                for tool in &tools {
                    let line = first_line(&tool.description);
                    output.result(&format!(
                        "{BOLD}{:width$}{BOLD:#}  {line}{}\n",
                        printable(&tool.name),
                        quarantine_note(tool)
                    ));
                }
            }
            app::report_awaited(app, output);
            let code = app::report_errors(&errors, output).max(app::outage_code(app, is_wanted));
            if code == DONE && !output.json {
                output.next_step(
                    "show one with `toolgate tools show NAME`, call it with `toolgate tools call NAME key=value`",
                );
            }
            Ok(code)
        },
    )
}

/// Fewest columns for a description. On a narrower terminal, lines wrap.
const MIN_DESCRIPTION_COLUMNS: usize = 20;

/// Formats tools for a terminal: grouped by server, with descriptions cut at its width.
fn grouped_text(tools: &[&Arc<CatalogTool>], columns: usize) -> String {
    let width = tools.iter().map(|tool| tool.name.chars().count()).max().unwrap_or(0);
    let left = columns.saturating_sub(width + 4).max(MIN_DESCRIPTION_COLUMNS);
    let mut groups: Vec<(Option<&ServerName>, Vec<&Arc<CatalogTool>>)> = Vec::new();
    for tool in tools {
        match groups.iter_mut().find(|(server, _)| *server == tool.server.as_ref()) {
            Some((_, group)) => group.push(tool),
            None => groups.push((tool.server.as_ref(), vec![tool])),
        }
    }
    let mut text = String::new();
    for (index, (server, group)) in groups.iter().enumerate() {
        let gap = if index == 0 { "" } else { "\n" };
        let title = server.map_or_else(|| "your own".to_owned(), ToString::to_string);
        let count = if group.len() == 1 { "1 tool".to_owned() } else { format!("{} tools", group.len()) };
        text.push_str(&format!("{gap}{BOLD}{title}{BOLD:#} {DIM}{count}{DIM:#}\n"));
        for tool in group {
            let about = format!("{}{}", first_line(&tool.description), quarantine_note(tool));
            let name = printable(&tool.name);
            text.push_str(&format!("  {name:width$}  {DIM}{}{DIM:#}\n", cut(&about, left)));
        }
    }
    text
}

/// Cuts a text at a number of columns.
fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(columns.saturating_sub(1)).collect();
    cut.truncate(cut.trim_end().len());
    cut.push('…');
    cut
}

/// Formats the reason why a tool cannot be called, to append to the tool.
pub(crate) fn quarantine_note(tool: &CatalogTool) -> String {
    match &tool.state {
        ToolState::Ready => String::new(),
        ToolState::Quarantined { reason, .. } => format!(" [quarantined: {}]", printable(reason)),
        ToolState::Removed { reason } => format!(" [removed: {}]", printable(reason)),
    }
}

fn show(name: &str, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    app::with_app(
        project,
        output,
        AppChoice::new(AnswerMode::Ask).with_servers(servers_with_tool(name, &project.folder)),
        async |app, errors| {
            let runtime = app.runtime();
            let catalog = runtime.catalog();
            let Some(tool) = catalog.resolve(name) else {
                return missing_tool(name, &catalog, errors, output);
            };
            if output.json {
                output.document(tool.as_ref())?;
                return Ok(DONE);
            }
            let CatalogTool { name, server, title, description, input_schema, contract, .. } = tool.as_ref();
            let from = server.as_ref().map_or_else(|| "your own".to_owned(), |server| format!("of {server}"));
            let title = title.as_ref().map(|title| format!(" · {}", printable(title))).unwrap_or_default();
            let (name, description) = (printable(name), quoted_lines(description));
            let schema: Json = input_schema.parse()?;
            let schema = display_json(&schema)?;
            let ToolContract { version, risk, idempotent, cacheable } = contract;
            let version = printable(&version.to_string());
            let may = |may: bool| if may { "may" } else { "may not" };
            output.result(&format!(
                "{BOLD}{name}{BOLD:#}{title} {DIM}{from}{DIM:#}{}\n{description}\n\n\
                 version {version}, {} risk, {} be repeated, {} be cached\n{}{}\n{schema}\n",
                quarantine_note(tool),
                risk.label(),
                may(*idempotent),
                may(*cacheable),
                limits_text(&runtime.limits_in_force(tool), tool),
                tool.unchecked()
                    .iter()
                    .map(|note| format!("\nnote: {}", printable(note)))
                    .collect::<String>(),
            ));
            Ok(DONE)
        },
    )
}

/// Formats the limits of a tool, and the permissions that its callers need.
fn limits_text(limits: &LimitsInForce, tool: &CatalogTool) -> String {
    let LimitsInForce { timeout, max_instances, max_output, rate_limit, cache_ttl } = limits;
    let mut parts = vec![
        format!("timeout {timeout}"),
        match max_instances.get() {
            1 => "1 call at a time".to_owned(),
            most => format!("{most} calls at a time"),
        },
        format!("output up to {max_output}"),
    ];
    if let Some(RateLimit { max_calls, window }) = rate_limit {
        parts.push(format!("{max_calls} calls per {window} and caller"));
    }
    if let Some(time) = cache_ttl {
        parts.push(format!("cached for {time}"));
    }
    let mut text = parts.join(", ");
    if !tool.permissions.is_empty() {
        let needed: Vec<_> = tool.permissions.iter().map(|permission| format!("`{permission}`")).collect();
        text.push_str(&format!("\nneeds {}", needed.join(", ")));
    }
    text
}

fn call(args: &CallArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let may_have_tool = servers_with_tool(&args.name, &project.folder);
    app::with_app(
        project,
        output,
        AppChoice::new(args.answers).with_short_wait().with_servers(may_have_tool).with_log(),
        async |app, mut errors| {
            let runtime = app.runtime();
            if runtime.catalog().resolve(&args.name).is_none() && !runtime.awaited_servers().is_empty() {
                // Only a server that has not answered yet can have the tool.
                match app::wait_for_late_servers(app, project, output).await {
                    Ok(more) => errors.extend(more),
                    Err(code) => return Ok(code),
                }
            }
            let catalog = runtime.catalog();
            // A call of an unknown tool goes through the pipeline too, so it is recorded.
            let tool = catalog.resolve(&args.name);
            let caller = app::find_caller(app, &args.caller)?;
            let arguments = parse_arguments(args, tool.map(AsRef::as_ref))?;
            let has_server = tool.is_some_and(|tool| tool.server.is_some());
            let unknown = tool.and_then(|tool| misspelt_argument(&args.pairs, tool));
            let operation =
                Operation::tool(args.name.clone(), arguments).with_trace(call_trace(args, project, output));
            let asks =
                tool.and_then(|tool| tool.server.as_ref()).map_or(args.caller.as_str(), ServerName::as_str);
            let (origin, progress) = app::call_origin(project, args.answers, asks, output);
            let operation = Operation { full_result: args.whole, ..operation.with_origin(origin) };
            let called = runtime.execute_boxed(&caller, operation).await;
            drop(progress);
            if args.trace {
                output.message(&stages_text(&called));
            }
            if tool.is_none() && !(output.json && errors.is_empty()) {
                return missing_tool(&args.name, &catalog, errors, output);
            }
            if let Some(note) = unknown {
                output.message(&format!("note: {note}\n"));
            }
            if output.json {
                let envelope = runtime.envelope(&caller, &called);
                return print_envelope(&envelope, args.trace.then_some(&called.steps), has_server, output);
            }
            print_content(&called, has_server, output)
        },
    )
}

/// Prints the result envelope, with the pipeline stages if they are given.
fn print_envelope(
    envelope: &ToolResult<Cow<'_, RawJson>, &CallError>,
    steps: Option<&Vec<StageTime>>,
    has_server: bool,
    output: &Output,
) -> anyhow::Result<u8> {
    let mut document = serde_json::to_value(envelope)?;
    if let Some(steps) = steps {
        document["trace"] = steps.iter().map(stage_json).collect();
    }
    output.document(&document)?;
    Ok(exit_code(envelope.error, has_server))
}

fn stage_json(step: &StageTime) -> Json {
    let mut stage = json!({ "stage": step.stage.label() });
    if let Some(note) = &step.note {
        stage["note"] = json!(note);
    }
    stage["micros"] = json!(step.micros());
    stage
}

/// Returns the exit code of a call. A built-in tool has no server that could be down.
fn exit_code(error: Option<&CallError>, has_server: bool) -> u8 {
    match error {
        None => DONE,
        Some(error) if has_server && error.code == ErrorCode::ServiceUnavailable => SERVER_DOWN,
        Some(_) => FAILED,
    }
}

/// Prints the content of the result.
fn print_content(called: &CallOutcome, has_server: bool, output: &Output) -> anyhow::Result<u8> {
    let CallOutcome { result, reply, .. } = called;
    let code = exit_code(result.error.as_ref(), has_server);
    let Some(reply) = reply else {
        let error = result.error.as_ref().expect("what has no reply has an error");
        let message = error.to_string();
        let hint = error.hint.as_deref();
        output
            .error(&hint.map_or_else(|| anyhow!("{message}"), |hint| error_with_hint(message.clone(), hint)));
        return Ok(code);
    };
    let reply: Json = reply.parse()?;
    let blocks = reply["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    if blocks.is_empty() && !reply["structuredContent"].is_null() {
        output.result(&format!("{}\n", display_json(&reply["structuredContent"])?));
    } else {
        output.result(&content::blocks_text(blocks)?);
    }
    match &result.error {
        Some(error) if error.code != ErrorCode::ToolExecutionError => Err(anyhow!("{error}")),
        _ => Ok(code),
    }
}

/// Formats the pipeline stages of a call, one line each.
fn stages_text(called: &CallOutcome) -> String {
    let line = |step: &StageTime| {
        let note = printable(step.note.as_deref().unwrap_or_default());
        format!("{DIM}{:>15}  {:>8} µs  {note}{DIM:#}\n", step.stage.label(), step.micros())
    };
    called.steps.iter().map(line).collect()
}

/// Returns the trace of the call, as part of the trace in `TRACEPARENT`. An invalid correlation id is replaced, with a
/// note.
fn call_trace(args: &CallArgs, project: &ProjectArgs, output: &Output) -> TraceContext {
    let parent = match &project.host {
        Some(host) => host.trace_parent(),
        None => std::env::var("TRACEPARENT").ok(),
    };
    let parent = parent.unwrap_or_default();
    let Some(given) = &args.correlation_id else { return TraceContext::generate().with_parent(&parent) };
    let trace = TraceContext::new(given).with_parent(&parent);
    if trace.correlation_id() != given {
        let id = trace.correlation_id();
        output.message(&format!(
            "note: invalid correlation id, using `{id}`; allowed are up to 128 letters, digits, `.`, `_` and `-`\n"
        ));
    }
    trace
}

/// Explains why a tool does not exist: its server may have failed to start. Returns the exit code.
fn missing_tool(
    name: &str,
    catalog: &Catalog,
    mut errors: Vec<StartError>,
    output: &Output,
) -> anyhow::Result<u8> {
    let Some(last) = errors.pop() else {
        return Err(unknown_tool(name, catalog));
    };
    app::report_errors(&errors, output);
    output.error(&match &last {
        StartError::Server { hint: Some(hint), .. } => error_with_hint(last.to_string(), hint.as_ref()),
        _ => last.into(),
    });
    Ok(SERVER_DOWN)
}

/// Returns the error for a name that no tool has.
pub(crate) fn unknown_tool(name: &str, catalog: &Catalog) -> anyhow::Error {
    let meant = toolgate_config::closest_match(name, catalog.tools().map(|tool| tool.name.as_str()));
    let hint = match (toolgate_runtime::builtins::config_key(name), meant) {
        (Some(key), _) => format!("enable it with `{key}` in toolgate.yaml; see docs/builtins.md"),
        (None, Some(meant)) => format!("did you mean `{}`?", printable(meant)),
        (None, None) => "list all with `toolgate tools list`".to_owned(),
    };
    error_with_hint(format!("there is no tool `{name}`"), hint)
}

/// Returns a note about an argument that the tool does not have, if it has a similar one.
fn misspelt_argument(pairs: &[String], tool: &CatalogTool) -> Option<String> {
    let schema: Json = tool.input_schema.parse().ok()?;
    let known = schema["properties"].as_object()?;
    let keys = pairs.iter().filter_map(|pair| pair.split_once('=')).map(|(key, _)| key);
    keys.filter(|key| !known.contains_key(*key)).find_map(|key| {
        let meant = toolgate_config::closest_match(key, known.keys().map(String::as_str))?;
        let (tool, key, meant) = (printable(&tool.name), printable(key), printable(meant));
        Some(format!("`{tool}` has no argument `{key}`; did you mean `{meant}`?"))
    })
}

fn parse_arguments(args: &CallArgs, tool: Option<&CatalogTool>) -> anyhow::Result<RawJson> {
    if let Some(text) = &args.args {
        let raw = parse_json(text).context("`--args` is not valid JSON")?;
        if !raw.as_str().trim_start().starts_with('{') {
            bail!("`--args` must be a JSON object, for example '{{\"path\": \"README.md\"}}'");
        }
        return Ok(raw);
    }
    let schema: Json = tool.and_then(|tool| tool.input_schema.parse().ok()).unwrap_or_default();
    let whole =
        |error: anyhow::Error| error_with_hint(error.to_string(), "pass a whole JSON object with `--args`");
    Ok(RawJson::from_value(&parse_pairs(&args.pairs, &schema).map_err(whole)?))
}

/// Parses `key=value` pairs by the types of the schema.
pub(crate) fn parse_pairs(pairs: &[String], schema: &Json) -> anyhow::Result<Map<String, Json>> {
    let mut object = Map::new();
    for pair in pairs {
        let Some((key, value)) = pair.split_once('=') else {
            bail!("`{pair}` is not `key=value`");
        };
        let text = match &schema["properties"][key]["type"] {
            Json::String(kind) => kind == "string",
            Json::Array(kinds) => kinds.iter().any(|kind| kind == "string"),
            // Without a type, a value that parses as JSON is JSON.
            _ => false,
        };
        let parsed = if text { None } else { serde_json::from_str(value).ok() };
        object.insert(key.to_owned(), parsed.unwrap_or_else(|| Json::String(value.to_owned())));
    }
    Ok(object)
}
