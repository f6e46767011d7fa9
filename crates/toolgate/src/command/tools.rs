//! `toolgate tools list|show|call`. Changes are in [`change`], tests of examples in [`examples`].

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Map, Value as Json};
use toolgate_app::{LogMode, parse_json, servers_with_tool};
use toolgate_redact::printable;
use toolgate_runtime::runtime::StartError;
use toolgate_runtime::{CallOutcome, CallStep, CatalogTool, Operation, RawJson, ToolState, TraceContext};
use toolgate_store::document::EntryKind;
use toolgate_types::tool::{Category, ToolContract};
use toolgate_types::{CallError, ErrorCode, ServerName, ToolResult};

use crate::cli::{AnswerMode, CallArgs, ListArgs, ProjectArgs, ToolsCommand};
use crate::command::{app, change, content, examples, profiles, scaffold, search};
use crate::output::{BOLD, DIM, Output, display_json, error_with_hint, first_line, quoted_lines};
use crate::{DONE, FAILED};

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
    app::with_app_within(
        app::SHORT_WAIT,
        project,
        output,
        AnswerMode::Ask,
        |builder| builder.servers(|name| server.as_deref().is_none_or(|server| server == name)),
        async |app, errors| {
            let runtime = app.runtime();
            let catalog = runtime.catalog();
            let who = app::find_caller(app, who)?;
            let wanted = |tool: &&std::sync::Arc<CatalogTool>| {
                let from = tool.server.as_ref().map(ServerName::as_str);
                server.as_deref().is_none_or(|server| from == Some(server))
                    && category.as_deref().is_none_or(|name| tool.category.map(Category::label) == Some(name))
                    && tag.as_ref().is_none_or(|tag| tool.tags.contains(tag))
                    && runtime.may_see(&who, tool)
            };
            let tools: Vec<_> = catalog.tools().filter(wanted).collect();
            if output.json {
                output.document(&tools.iter().map(|tool| tool.as_ref()).collect::<Vec<_>>())?;
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
            let code = app::report_errors(&errors, output);
            if code == DONE && !output.json {
                output.next_step(
                    "show one with `toolgate tools show NAME`, call it with `toolgate tools call NAME key=value`",
                );
            }
            Ok(code)
        },
    )
}

/// Formats the reason for a quarantine, to append to a tool.
pub(crate) fn quarantine_note(tool: &CatalogTool) -> String {
    match &tool.state {
        ToolState::Ready => String::new(),
        ToolState::Quarantined { reason, .. } => format!(" [quarantined: {}]", printable(reason)),
    }
}

fn show(name: &str, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    app::with_app(
        project,
        output,
        AnswerMode::Ask,
        |builder| builder.servers(servers_with_tool(name, &project.folder)),
        async |app, errors| {
            let runtime = app.runtime();
            let catalog = runtime.catalog();
            let Some(tool) = catalog.resolve(name) else {
                return Err(missing_tool_error(name, errors, output));
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
                 version {version}, {} risk, {} be repeated, {} be cached\n{schema}\n",
                quarantine_note(tool),
                risk.label(),
                may(*idempotent),
                may(*cacheable),
            ));
            Ok(DONE)
        },
    )
}

fn call(args: &CallArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    app::with_app_within(
        app::SHORT_WAIT,
        project,
        output,
        args.answers,
        |builder| builder.servers(servers_with_tool(&args.name, &project.folder)).log(LogMode::OneCall),
        async |app, mut errors| {
            let runtime = app.runtime();
            if runtime.catalog().resolve(&args.name).is_none() && !runtime.awaited_servers().is_empty() {
                // Only a server that has not answered yet can have the tool.
                match app.discover_late().await {
                    Ok(more) => errors.extend(more),
                    Err(failure) => return Ok(app::report_failure(&failure, output)),
                }
            }
            let catalog = runtime.catalog();
            // A call of an unknown tool goes through the pipeline too, so it is recorded.
            let tool = catalog.resolve(&args.name);
            let caller = app::find_caller(app, &args.caller)?;
            let arguments = parse_arguments(args, tool.map(AsRef::as_ref))?;
            let operation =
                Operation::tool(args.name.clone(), arguments).with_trace(call_trace(args, output));
            let operation = Operation { full_result: args.whole, ..operation };
            let called = runtime.execute(&caller, operation).await;
            if args.trace {
                output.message(&stages_text(&called));
            }
            if tool.is_none() && !(output.json && errors.is_empty()) {
                return Err(missing_tool_error(&args.name, errors, output));
            }
            if output.json {
                let envelope = runtime.envelope(&caller, &called);
                return print_envelope(&envelope, args.trace.then_some(&called.steps), output);
            }
            print_content(&called, output)
        },
    )
}

/// Prints the result envelope, with the pipeline stages if they are given.
fn print_envelope(
    envelope: &ToolResult<&RawJson, &CallError>,
    steps: Option<&Vec<CallStep>>,
    output: &Output,
) -> anyhow::Result<u8> {
    let mut document = serde_json::to_value(envelope)?;
    if let Some(steps) = steps {
        document["trace"] = serde_json::to_value(steps)?;
    }
    output.document(&document)?;
    Ok(if envelope.error.is_none() { DONE } else { FAILED })
}

/// Prints the content of the result.
fn print_content(called: &CallOutcome, output: &Output) -> anyhow::Result<u8> {
    let CallOutcome { result, reply, .. } = called;
    let code = if result.error.is_none() { DONE } else { FAILED };
    let Some(reply) = reply else {
        let error = result.error.as_ref().expect("what has no reply has an error");
        let message = error.to_string();
        let hint = error.hint.as_deref();
        return Err(hint.map_or_else(|| anyhow!("{message}"), |hint| error_with_hint(message.clone(), hint)));
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
    let line = |step: &CallStep| {
        let note = printable(step.note.as_deref().unwrap_or_default());
        format!("{DIM}{:>15}  {:>8} µs  {note}{DIM:#}\n", step.stage.label(), step.micros)
    };
    called.steps.iter().map(line).collect()
}

/// Returns the trace of the call, as part of the trace in `TRACEPARENT`. An invalid correlation id is replaced, with a
/// note.
fn call_trace(args: &CallArgs, output: &Output) -> TraceContext {
    let parent = std::env::var("TRACEPARENT").unwrap_or_default();
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

/// Explains why a tool does not exist: its server may have failed to start.
fn missing_tool_error(name: &str, mut errors: Vec<StartError>, output: &Output) -> anyhow::Error {
    let Some(last) = errors.pop() else {
        return match toolgate_runtime::builtins::config_key(name) {
            Some(key) => error_with_hint(
                format!("there is no tool `{name}`"),
                format!("enable it with `{key}` in toolgate.yaml; see docs/builtins.md"),
            ),
            None => anyhow!("there is no tool `{name}`; `toolgate tools list` shows them all"),
        };
    };
    app::report_errors(&errors, output);
    match &last {
        StartError::Server { hint: Some(hint), .. } => error_with_hint(last.to_string(), hint.as_ref()),
        _ => last.into(),
    }
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
