//! `toolgate tools list|show|call`; what changes tools is in [`change`], what tests them in [`examples`].

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Map, Value as Json};
use toolgate_mcp::scan::Limits;
use toolgate_mcp::{Raw, Trace};
use toolgate_runtime::catalog::SEPARATOR;
use toolgate_runtime::pins::LockFile;
use toolgate_runtime::runtime::StartError;
use toolgate_runtime::{CallRequest, Called, CatalogTool, Origin, Runtime, Step, ToolState};
use toolgate_store::document::Kind;
use toolgate_types::tool::{Category, Contract};
use toolgate_types::{Caller, ErrorCode, ServerName};

use crate::cli::{Answers, CallArgs, ListArgs, Project, ToolsCommand};
use crate::command::servers::first_line;
use crate::command::{change, content, examples, live, log, profiles, scaffold, search};
use crate::output::{BOLD, DIM, Output, hinted, shown_json};
use crate::{DONE, FAILED};

pub(crate) fn run(command: &ToolsCommand, project: &Project, output: &Output) -> anyhow::Result<u8> {
    match command {
        ToolsCommand::List(args) => list(args, project, output),
        ToolsCommand::Search(args) => search::run(args, project, output),
        ToolsCommand::Show(args) => show(&args.name, project, output),
        ToolsCommand::Call(args) => call(args, project, output),
        ToolsCommand::Add(args) => change::add_tool(args, project, output),
        ToolsCommand::New(args) => scaffold::run(args, project, output),
        ToolsCommand::Test(args) => examples::run(args, project, output),
        ToolsCommand::Update(args) => change::update(Kind::Tool, args, project, output),
        ToolsCommand::Remove(args) => change::remove(Kind::Tool, args, project, output),
    }
}

fn list(args: &ListArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    if let Some(profile) = &args.profile {
        return profiles::list(profile, args, project, output);
    }
    let ListArgs { server, category, tag, caller: who, .. } = args;
    live::with(
        project,
        output,
        Answers::Ask,
        |name| server.as_deref().is_none_or(|server| server == name),
        async |runtime, errors| {
            let catalog = runtime.catalog();
            let who = caller(&runtime, who)?;
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
    live::with(project, output, Answers::Ask, may_have(name, project), async |runtime, errors| {
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
    })
}

fn call(args: &CallArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    live::with(project, output, args.answers, may_have(&args.name, project), async |runtime, errors| {
        let catalog = runtime.catalog();
        // A call of what is not there goes the same way, and is written down.
        let tool = catalog.resolve(&args.name);
        let caller = caller(&runtime, &args.caller)?;
        let request = CallRequest {
            name: args.name.clone(),
            arguments: arguments(args, tool.map(AsRef::as_ref))?.into(),
            trace: trace(args, output),
            origin: Origin::default(),
            whole: args.whole,
        };
        runtime.remember(runtime.keeping.history());
        runtime.log_to(runtime.keeping.open(log::Calls::One)?);
        let called = runtime.call(&caller, request).await;
        if args.trace {
            output.message(&road(&called));
        }
        if tool.is_none() && !(output.json && errors.is_empty()) {
            return Err(absent(&args.name, errors, output));
        }
        shown(&called, args.trace, output)
    })
}

/// The result, as the envelope or as its content.
fn shown(called: &Called, with_steps: bool, output: &Output) -> anyhow::Result<u8> {
    let Called { result, reply, steps, .. } = called;
    let code = if result.error.is_none() { DONE } else { FAILED };
    if output.json {
        let mut document = serde_json::to_value(result)?;
        if with_steps {
            document["trace"] = serde_json::to_value(steps)?;
        }
        output.document(&document)?;
        return Ok(code);
    }
    let Some(reply) = reply else {
        let error = result.error.as_ref().expect("what has no reply has an error");
        let message = error.to_string();
        let hint = error.hint.as_deref();
        return Err(hint.map_or_else(|| anyhow!("{message}"), |hint| hinted(message.clone(), hint)));
    };
    let reply: Json = reply.parse()?;
    let blocks = reply["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    if blocks.is_empty() && !reply["structuredContent"].is_null() {
        output.result(&format!("{}\n", shown_json(&reply["structuredContent"])?));
    } else {
        output.result(&content::shown(blocks)?);
    }
    match &result.error {
        Some(error) if error.code != ErrorCode::ToolExecutionError => Err(anyhow!("{error}")),
        _ => Ok(code),
    }
}

/// The stages that a call passed, a line each.
fn road(called: &Called) -> String {
    let line = |step: &Step| {
        let note = step.note.as_deref().unwrap_or_default();
        format!("{DIM}{:>15}  {:>8} µs  {note}{DIM:#}\n", step.stage.label(), step.micros)
    };
    called.steps.iter().map(line).collect()
}

/// Who calls: a caller of the configuration. Whoever sits at the machine owns what is on it, unless
/// the configuration says what `owner` may do.
pub(crate) fn caller(runtime: &Runtime, id: &str) -> anyhow::Result<Caller> {
    match runtime.caller(id) {
        Some(caller) => Ok(caller.clone()),
        None if id == Caller::OWNER => Ok(Caller::owner()),
        None => Err(hinted(format!("there is no caller `{id}`"), "`callers` in toolgate.yaml names them")),
    }
}

/// The ids of the call, as part of the trace that `TRACEPARENT` names, where it does. A correlation id that
/// cannot be sent is replaced, which is told.
fn trace(args: &CallArgs, output: &Output) -> Trace {
    let parent = std::env::var("TRACEPARENT").unwrap_or_default();
    let Some(given) = &args.correlation_id else { return Trace::fresh().within(&parent) };
    let trace = Trace::new(given).within(&parent);
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
        return match toolgate_runtime::builtins::key(name) {
            Some(key) => hinted(
                format!("there is no tool `{name}`"),
                format!("`{key}` in toolgate.yaml brings it; docs/builtins.md"),
            ),
            None => anyhow!("there is no tool `{name}`; `toolgate tools list` shows them all"),
        };
    };
    live::tell(&errors, output);
    match &last {
        StartError::Server { hint: Some(hint), .. } => hinted(last.to_string(), hint.as_ref()),
        _ => last.into(),
    }
}

/// Which servers a tool can be of: `{server}__{tool}` needs that server only, and a bare name those that
/// had the tool before, or were never seen.
pub(crate) fn may_have<'a>(tool: &'a str, project: &Project) -> impl Fn(&str) -> bool + use<'a> {
    // A file that cannot be read is told about when the servers start.
    let pins = LockFile::of(&project.folder).read().unwrap_or_default();
    move |server| match tool.split_once(SEPARATOR) {
        Some((prefix, _)) => server.parse().is_ok_and(|name: ServerName| name.prefix() == prefix),
        None => !pins.rule_out(server, tool),
    }
}

fn arguments(args: &CallArgs, tool: Option<&CatalogTool>) -> anyhow::Result<Raw> {
    if let Some(text) = &args.args {
        let raw = Raw::new(text.clone().into(), Limits::default()).context("`--args` is not valid JSON")?;
        if !raw.get().trim_start().starts_with('{') {
            bail!("`--args` is a JSON object, such as '{{\"path\": \"README.md\"}}'");
        }
        return Ok(raw);
    }
    let schema: Json = tool.and_then(|tool| tool.input_schema.parse().ok()).unwrap_or_default();
    let whole = |error: anyhow::Error| hinted(error.to_string(), "`--args` takes a whole JSON object");
    Ok(Raw::of(&pairs(&args.pairs, &schema).map_err(whole)?))
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
