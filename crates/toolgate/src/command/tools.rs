//! `toolgate tools list|show|call`.

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Map, Value as Json, json};
use toolgate_mcp::scan::Limits;
use toolgate_mcp::{Raw, Trace};
use toolgate_runtime::catalog::SEPARATOR;
use toolgate_runtime::runtime::StartError;
use toolgate_runtime::{CatalogTool, ToolState};
use toolgate_types::ServerName;
use toolgate_types::tool::{Category, Contract};

use crate::cli::{Answers, CallArgs, ListArgs, Project, ToolsCommand};
use crate::command::servers::first_line;
use crate::command::{content, live};
use crate::output::{BOLD, DIM, Output, correlated, hinted, shown_json};
use crate::{DONE, FAILED};

pub(crate) fn run(command: &ToolsCommand, project: &Project, output: &Output) -> anyhow::Result<u8> {
    match command {
        ToolsCommand::List(args) => list(args, project, output),
        ToolsCommand::Show(args) => show(&args.name, project, output),
        ToolsCommand::Call(args) => call(args, project, output),
    }
}

fn list(args: &ListArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let ListArgs { server, category, tag } = args;
    live::with(
        project,
        output,
        Answers::Ask,
        |name| server.as_deref().is_none_or(|server| server == name),
        async |runtime, errors| {
            let catalog = runtime.catalog();
            let wanted = |tool: &&std::sync::Arc<CatalogTool>| {
                let from = tool.server.as_ref().map(ServerName::as_str);
                server.as_deref().is_none_or(|server| from == Some(server))
                    && category.as_deref().is_none_or(|name| tool.category.map(Category::label) == Some(name))
                    && tag.as_ref().is_none_or(|tag| tool.tags.contains(tag))
            };
            let tools: Vec<_> = catalog.tools().filter(wanted).collect();
            if output.json {
                output.document(&tools.iter().map(|tool| tool.as_ref()).collect::<Vec<_>>())?;
            } else {
                let width = tools.iter().map(|tool| tool.name.len()).max().unwrap_or(0);
                for tool in &tools {
                    let line = first_line(&tool.description);
                    output.result(&format!("{BOLD}{:width$}{BOLD:#}  {line}{}\n", tool.name, held(tool)));
                }
            }
            let code = live::tell(&errors, output);
            if code == DONE && !output.json {
                output.next(
                    "`toolgate tools show NAME` tells more, `toolgate tools call NAME key=value` uses one",
                );
            }
            Ok(code)
        },
    )
}

/// Why a tool is held back, to be written behind it.
pub(crate) fn held(tool: &CatalogTool) -> String {
    match &tool.state {
        ToolState::Ready => String::new(),
        ToolState::Quarantined { reason, .. } => format!(" [held back: {reason}]"),
    }
}

fn show(name: &str, project: &Project, output: &Output) -> anyhow::Result<u8> {
    live::with(
        project,
        output,
        Answers::Ask,
        |server| only(name, server),
        async |runtime, errors| {
            let catalog = runtime.catalog();
            let Some(tool) = catalog.resolve(name) else { return Err(absent(name, errors, output)) };
            if output.json {
                output.document(tool.as_ref())?;
                return Ok(DONE);
            }
            let CatalogTool { name, server, title, description, input_schema, contract, .. } = tool.as_ref();
            let from = server.as_ref().map_or_else(|| "your own".to_owned(), |server| format!("of {server}"));
            let title = title.as_ref().map(|title| format!(" · {title}")).unwrap_or_default();
            let schema: Json = input_schema.parse()?;
            let schema = shown_json(&schema)?;
            let Contract { version, risk, idempotent, cacheable } = contract;
            let may = |may: bool| if may { "may" } else { "may not" };
            output.result(&format!(
                "{BOLD}{name}{BOLD:#}{title} {DIM}{from}{DIM:#}{}\n{description}\n\n\
                 version {version}, {} risk, {} be repeated, {} be cached\n{schema}\n",
                held(tool),
                risk.label(),
                may(*idempotent),
                may(*cacheable),
            ));
            Ok(DONE)
        },
    )
}

fn call(args: &CallArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    live::with(
        project,
        output,
        args.answers,
        |server| only(&args.name, server),
        async |runtime, errors| {
            let catalog = runtime.catalog();
            let Some(tool) = catalog.resolve(&args.name) else {
                return Err(absent(&args.name, errors, output));
            };
            let arguments = arguments(args, tool)?;
            let trace = trace(args, output);
            let called = runtime.call(&args.name, arguments, &trace).await;
            let result = called.map_err(|error| correlated(error, trace.correlation_id()))?;
            let result: Json = result.parse()?;
            let failed = result["isError"].as_bool().unwrap_or(false);
            let blocks = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
            if output.json {
                let data = if result["structuredContent"].is_null() {
                    &result["content"]
                } else {
                    &result["structuredContent"]
                };
                let error = failed.then(|| {
                    json!({
                        "code": "tool_execution_error",
                        "message": blocks.first().map(|block| &block["text"]),
                        "correlationId": trace.correlation_id(),
                    })
                });
                let status = if failed { "error" } else { "success" };
                output.document(
                    &json!({ "status": status, "data": (!failed).then_some(data), "error": error }),
                )?;
            } else if blocks.is_empty() && !result["structuredContent"].is_null() {
                output.result(&format!("{}\n", shown_json(&result["structuredContent"])?));
            } else {
                output.result(&content::shown(blocks)?);
            }
            Ok(if failed { FAILED } else { DONE })
        },
    )
}

/// The ids of the call. A correlation id that cannot be sent is replaced, which is told.
fn trace(args: &CallArgs, output: &Output) -> Trace {
    let Some(given) = &args.correlation_id else { return Trace::fresh() };
    let trace = Trace::new(given);
    if trace.correlation_id() != given {
        let id = trace.correlation_id();
        output.message(&format!(
            "note: the correlation id is `{id}`; one of your own has up to 128 letters, digits, `.`, `_` and `-`\n"
        ));
    }
    trace
}

/// Why a tool is not there: its server may not be.
fn absent(name: &str, mut errors: Vec<StartError>, output: &Output) -> anyhow::Error {
    let Some(last) = errors.pop() else {
        return anyhow!("there is no tool `{name}`; `toolgate tools list` shows them all");
    };
    live::tell(&errors, output);
    match &last {
        StartError::Server { hint: Some(hint), .. } => hinted(last.to_string(), hint.as_ref()),
        _ => last.into(),
    }
}

/// `{server}__{tool}` needs that server only.
fn only(tool: &str, server: &str) -> bool {
    match tool.split_once(SEPARATOR) {
        Some((prefix, _)) => {
            server.parse().is_ok_and(|name: toolgate_types::ServerName| name.prefix() == prefix)
        }
        None => true,
    }
}

fn arguments(args: &CallArgs, tool: &CatalogTool) -> anyhow::Result<Raw> {
    if let Some(text) = &args.args {
        let raw = Raw::new(text.clone().into(), Limits::default()).context("`--args` is not valid JSON")?;
        if !raw.get().trim_start().starts_with('{') {
            bail!("`--args` is a JSON object, such as '{{\"path\": \"README.md\"}}'");
        }
        return Ok(raw);
    }
    let schema: Json = tool.input_schema.parse().unwrap_or_default();
    Ok(Raw::of(&pairs(&args.pairs, &schema)?))
}

/// `key=value` pairs, read as the schema says: a number where it wants a number.
pub(crate) fn pairs(pairs: &[String], schema: &Json) -> anyhow::Result<Map<String, Json>> {
    let mut object = Map::new();
    for pair in pairs {
        let Some((key, value)) = pair.split_once('=') else {
            bail!("`{pair}` is not `key=value`");
        };
        let text = match &schema["properties"][key]["type"] {
            Json::String(kind) => kind == "string",
            Json::Array(kinds) => kinds.iter().any(|kind| kind == "string"),
            // Without a type: what reads as JSON is JSON.
            _ => false,
        };
        let parsed = if text { None } else { serde_json::from_str(value).ok() };
        object.insert(key.to_owned(), parsed.unwrap_or_else(|| Json::String(value.to_owned())));
    }
    Ok(object)
}
