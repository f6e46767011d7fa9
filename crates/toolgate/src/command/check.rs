//! `toolgate check`: whether a project is good, what it means, where each value came from.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use serde_json::Value as Json;
use toolgate_agent::Skills;
use toolgate_config::{
    Checklist, Config, Environment, Loaded, ProblemEntry, Report, Rule, Severity, checklists, load,
};
use toolgate_types::redact::printable;
use toolgate_types::{ApiDocument, Caller, ToolDefinition};
use toolgate_upstream::openapi;

use crate::cli::{CheckArgs, ContractLevel, Project};
use crate::command::profiles;
use crate::output::{BOLD, DIM, Output};
use crate::{DONE, FAILED, REFUSED};

mod agent;

/// The answer for programs.
#[derive(Serialize)]
struct Answer {
    ok: bool,
    problems: Vec<ProblemEntry>,
    /// The checklist of each tool, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    contract: Option<Vec<Checklist>>,
    #[serde(flatten)]
    config: Option<Json>,
}

pub(crate) fn run(args: &CheckArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let Loaded { config, report } =
        load(&project.folder, project.file.as_deref(), &Environment::of_process());
    output.message(&report.render());
    let mut found = config.as_ref().map(|config| of_apis(config, &report)).unwrap_or_default();
    found.extend(config.as_ref().map(profiles::idle).unwrap_or_default());
    let (skills, wrong) = config.as_ref().map(agent::skills).unwrap_or_default();
    found.extend(wrong);
    for ProblemEntry { message, file, line, column, hint, .. } in &found {
        let place = [*line, *column].into_iter().flatten().map(|number| format!(":{number}"));
        let place = std::iter::once(file.clone().unwrap_or_default()).chain(place).collect::<String>();
        let hint = hint.as_ref().map(|hint| format!("hint: {hint}\n")).unwrap_or_default();
        output.message(&format!("{BOLD}warning{BOLD:#}: {message}\n  --> {place}\n{hint}"));
    }
    let full = config.as_ref().filter(|_| args.contract == ContractLevel::Full);
    let contract = full.map(checklists);
    if output.json {
        let mut shown = config.as_ref().map(serialise);
        shown.iter_mut().for_each(|config| hide(config, &report));
        let is_met = contract.iter().flatten().all(Checklist::is_met);
        output.document(&Answer {
            ok: config.is_some() && is_met,
            problems: report.entries().into_iter().chain(found).collect(),
            contract: contract.clone(),
            config: shown,
        })?;
    }
    let Some(config) = config else {
        output.message(&format!("{BOLD}refused{BOLD:#}: {}; nothing was started.\n", counted(&report)));
        output.next("mend what is above and run `toolgate check` again");
        return Ok(REFUSED);
    };
    if let Some(contract) = contract {
        return Ok(on_contract(&contract, &report, output));
    }
    if !output.json {
        output.result(&render(&config, &skills, &report));
    }
    output.message(&format!("{BOLD}good{BOLD:#}: {}{}.\n", holds(&config), besides(&report)));
    let file = config.files.first().map_or("toolgate.yaml", String::as_str);
    output.next(&format!("change {file} and check again, or add MCP servers with `toolgate import CLIENT`"));
    Ok(DONE)
}

/// What is wrong with the documents of APIs that are files: what they mean shows when tools are made of them.
fn of_apis(config: &Config, report: &Report) -> Vec<ProblemEntry> {
    let mut found = Vec::new();
    for api in &config.apis {
        let ApiDocument::File { path, json } = &api.document else { continue };
        let root: Json = serde_json::from_str(json).unwrap_or_default();
        let told = match openapi::read(&root, api, None) {
            Ok(contents) => contents.notes,
            Err(error) => vec![format!("API `{}` has no tools: {error}", api.name)],
        };
        found.extend(told.into_iter().map(|message| ProblemEntry {
            severity: Severity::Warning,
            message: printable(&report.mask_known(&message)),
            file: Some(path.clone()),
            line: None,
            column: None,
            hint: None,
        }));
    }
    found
}

/// The checklists, and what they come to.
fn on_contract(contract: &[Checklist], report: &Report, output: &Output) -> u8 {
    if !output.json {
        output.result(&render_contract(contract, report));
    }
    let rules = contract.iter().flat_map(|list| &list.rules);
    let (count, not_met) = (rules.clone().count(), rules.filter(|rule| !rule.met).count());
    if not_met == 0 {
        output.message(&format!(
            "{BOLD}met{BOLD:#}: all {} of {}{}.\n",
            plural(count, "rule"),
            plural(contract.len(), "tool"),
            besides(report)
        ));
        return DONE;
    }
    output.message(&format!(
        "{BOLD}not met{BOLD:#}: {not_met} of {} in {}{}.\n",
        plural(count, "rule"),
        plural(contract.len(), "tool"),
        besides(report)
    ));
    output.next("mend what is not met and run `toolgate check --contract full` again");
    FAILED
}

fn render_contract(contract: &[Checklist], report: &Report) -> String {
    let mut out = String::new();
    for Checklist { tool, rules } in contract {
        let met = rules.iter().filter(|rule| rule.met).count();
        let _ = writeln!(out, "{BOLD}{}{BOLD:#} {DIM}{met} of {} met{DIM:#}", printable(tool), rules.len());
        for Rule { rule, met, detail, place } in rules {
            let (mark, detail) =
                (if *met { "met" } else { "not met" }, printable(&report.mask_known(detail)));
            let style = if *met { DIM } else { BOLD };
            let _ = writeln!(out, "  {style}{mark:7}{style:#}  {rule:13}  {detail}  {DIM}{place}{DIM:#}");
        }
        out.push('\n');
    }
    out
}

fn counted(report: &Report) -> String {
    let kinds = [(Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Note, "note")];
    let count = |(severity, name): &(Severity, &str)| {
        let count = report.count(*severity);
        (count > 0).then(|| plural(count, name))
    };
    kinds.iter().filter_map(count).collect::<Vec<_>>().join(", ")
}

fn besides(report: &Report) -> String {
    match counted(report) {
        counted if counted.is_empty() => String::new(),
        counted => format!(", with {counted}"),
    }
}

fn holds(config: &Config) -> String {
    let (servers, tools) = (plural(config.servers.len(), "MCP server"), plural(config.tools.len(), "tool"));
    match config.apis.len() {
        0 => format!("{servers} and {tools}"),
        apis => format!("{servers}, {} and {tools}", plural(apis, "API")),
    }
}

fn plural(count: usize, name: &str) -> String {
    if count == 1 { format!("1 {name}") } else { format!("{count} {name}s") }
}

/// A value with where it came from.
struct Row {
    key: String,
    value: String,
    origin: String,
}

fn serialise(value: &impl Serialize) -> Json {
    serde_json::to_value(value).expect("a configuration has a JSON form")
}

/// Names and places: nothing could be found again without them, and no secret is called by its value.
const OPEN: [&str; 8] =
    ["name", "project", "files", "origins", "variables", "script_path", "entrypoint", "input_schema"];

/// The document without secrets. Most are hidden by their type; a variable can stand in any text.
fn hide(json: &mut Json, report: &Report) {
    match json {
        Json::String(text) => *text = report.mask_known(text),
        Json::Array(items) => items.iter_mut().for_each(|item| hide(item, report)),
        Json::Object(fields) => {
            let closed = fields.iter_mut().filter(|(key, _)| !OPEN.contains(&key.as_str()));
            closed.for_each(|(_, value)| hide(value, report));
        }
        _ => {}
    }
}

/// The same as people read it.
fn render(config: &Config, skills: &Skills, report: &Report) -> String {
    let mut out = String::new();
    let shown = |text: &str| printable(&report.mask_known(text));
    let rows = |mut entries: Vec<Row>, out: &mut String| {
        for row in entries.iter_mut().filter(|row| row.key != "script") {
            row.value = shown(&row.value);
        }
        rows(&entries, out);
    };
    let name = printable(config.name.as_deref().unwrap_or("project"));
    let _ = writeln!(out, "{BOLD}{name}{BOLD:#} {DIM}{}{DIM:#}", config.project.display());
    if let Some(description) = &config.description {
        let _ = writeln!(out, "{}", shown(description));
    }
    let _ = writeln!(out, "read from {}", printable(&config.files.join(", ")));
    heading("limits", &mut out);
    rows(serialised(&config.limits, "limits", config, &[]), &mut out);
    if !config.callers.is_empty() {
        heading("callers", &mut out);
        rows(config.callers.iter().map(|caller| caller_row(caller, config)).collect(), &mut out);
    }
    if !config.egress.is_off() {
        heading("egress", &mut out);
        rows(serialised(&config.egress, "egress", config, &[]), &mut out);
    }
    if !config.agent.is_default() {
        heading("agent", &mut out);
        rows(agent::rows(skills, config), &mut out);
    }
    if let Some(telemetry) = &config.telemetry {
        heading("telemetry", &mut out);
        rows(serialised(telemetry, "telemetry", config, &[]), &mut out);
    }
    if let Some(results) = &config.results {
        heading("results", &mut out);
        rows(serialised(results, "results", config, &[]), &mut out);
    }
    if !config.audit.is_default() {
        heading("audit", &mut out);
        rows(serialised(&config.audit, "audit", config, &[]), &mut out);
    }
    if !config.profiles.is_empty() {
        heading("profiles", &mut out);
    }
    for profile in &config.profiles.all {
        title(profile.name.as_str(), profile.description.as_deref().map(&shown), &mut out);
        let path = format!("profiles.{}", profile.name);
        rows(serialised(&**profile, &path, config, &["name", "description"]), &mut out);
    }
    if !config.servers.is_empty() {
        heading("MCP servers", &mut out);
    }
    for server in &config.servers {
        title(server.name.as_str(), server.description.as_deref().map(&shown), &mut out);
        let path = format!("servers.{}", server.name);
        rows(serialised(server, &path, config, &["name", "description"]), &mut out);
    }
    if !config.apis.is_empty() {
        heading("APIs", &mut out);
    }
    for api in &config.apis {
        title(api.name.as_str(), None, &mut out);
        rows(serialised(api, &format!("apis.{}", api.name), config, &["name"]), &mut out);
    }
    if !config.tools.is_empty() {
        heading("tools", &mut out);
    }
    for tool in &config.tools {
        title(tool.name.as_str(), Some(shown(&tool.description)), &mut out);
        rows(tool_rows(tool, config), &mut out);
    }
    let others = config
        .tool_settings
        .iter()
        .filter(|settings| !config.tools.iter().any(|tool| tool.name == settings.name));
    for (index, settings) in others.enumerate() {
        if index == 0 {
            heading("settings for tools of servers", &mut out);
        }
        title(settings.name.as_str(), None, &mut out);
        rows(serialised(settings, &format!("tool_settings.{}", settings.name), config, &["name"]), &mut out);
    }
    if !config.inputs.is_empty() {
        heading("asked for when servers start", &mut out);
        let row = |input: &toolgate_config::InputSpec| Row {
            key: input.id.clone(),
            value: input.description.clone(),
            origin: if input.answered {
                "answered".to_owned()
            } else {
                format!("or set {}", input.variable())
            },
        };
        rows(config.inputs.iter().map(row).collect(), &mut out);
    }
    if !config.variables.is_empty() {
        heading("variables", &mut out);
        let row = |(name, origin): (&String, &String)| Row {
            key: name.clone(),
            value: toolgate_types::secret::MASK.to_owned(),
            origin: origin.clone(),
        };
        rows(config.variables.iter().map(row).collect(), &mut out);
    }
    out.push('\n');
    out
}

fn heading(text: &str, out: &mut String) {
    let _ = writeln!(out, "\n{BOLD}{text}{BOLD:#}");
}

fn title(name: &str, description: Option<String>, out: &mut String) {
    let _ = writeln!(
        out,
        "  {BOLD}{}{BOLD:#}{}",
        printable(name),
        description.map(|text| format!(" · {text}")).unwrap_or_default()
    );
}

fn rows(rows: &[Row], out: &mut String) {
    let width = |text: fn(&Row) -> &String, most: usize| {
        rows.iter().map(|row| text(row).chars().count()).filter(|width| *width <= most).max().unwrap_or(0)
    };
    let (key_width, value_width) = (width(|row| &row.key, 40), width(|row| &row.value, 60));
    for Row { key, value, origin } in rows {
        let key = printable(key);
        let _ = writeln!(out, "    {DIM}{key:key_width$}{DIM:#}  {value:value_width$}  {DIM}{origin}{DIM:#}");
    }
}

/// Every field of a value, so that none can be forgotten here.
fn serialised(value: &impl Serialize, path: &str, config: &Config, without: &[&str]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (key, value) in
        serialise(value).as_object().into_iter().flatten().filter(|(key, _)| !without.contains(&key.as_str()))
    {
        flatten(key, value, path, config, &mut rows);
    }
    rows
}

fn flatten(key: &str, value: &Json, path: &str, config: &Config, rows: &mut Vec<Row>) {
    match value {
        Json::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                flatten(&format!("{key}.{name}"), value, path, config, rows);
            }
        }
        // An empty map or list that nobody wrote is not worth a line.
        Json::Object(_) if !config.origins.contains_key(&format!("{path}.{key}")) => {}
        Json::Array(items) if items.is_empty() && !config.origins.contains_key(&format!("{path}.{key}")) => {}
        _ => {
            let value = if key == "cwd" { within(Path::new(&plain(value)), config) } else { plain(value) };
            rows.push(Row { key: key.to_owned(), value, origin: origin(path, key, config) });
        }
    }
}

/// A path as seen from the project folder, where it is inside.
fn within(path: &Path, config: &Config) -> String {
    match path.strip_prefix(&config.project) {
        Ok(inside) if inside.as_os_str().is_empty() => ".".to_owned(),
        Ok(inside) => inside.display().to_string(),
        Err(_) => path.display().to_string(),
    }
}

/// The place of the value, or of the map around it; what nobody wrote is a default.
fn origin(path: &str, key: &str, config: &Config) -> String {
    let mut path = format!("{path}.{key}");
    let top = path.split('.').count() - key.split('.').count();
    while path.split('.').count() > top {
        if let Some(origin) = config.origins.get(&path) {
            return origin.clone();
        }
        path.truncate(path.rfind('.').unwrap_or(0));
    }
    "default".to_owned()
}

fn plain(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Null => "(kept away)".to_owned(),
        Json::Array(items) if items.is_empty() => "(none)".to_owned(),
        Json::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

/// `owner  *:*  toolgate.yaml:14:18`.
fn caller_row(caller: &Caller, config: &Config) -> Row {
    let permissions: Vec<_> = caller.permissions.iter().map(ToString::to_string).collect();
    let given = if permissions.is_empty() { "(nothing)".to_owned() } else { permissions.join(" ") };
    let value = match config.caller_descriptions.get(&caller.id) {
        Some(description) => format!("{given} · {description}"),
        None => given,
    };
    let path = format!("callers.{}", caller.id);
    Row { key: caller.id.to_string(), value, origin: origin(&path, "permissions", config) }
}

fn tool_rows(tool: &ToolDefinition, config: &Config) -> Vec<Row> {
    let path = format!("tools.{}", tool.name);
    let place = config.origins.get(&format!("{path}.name")).cloned().unwrap_or_default();
    let row = |key: &str, value: String, origin: String| Row { key: key.to_owned(), value, origin };
    let mut rows = vec![
        row("script", shown_path(tool, config), place),
        row("arguments", arguments(tool), origin(&path, "input_schema", config)),
    ];
    let timeout = tool.timeout(config.limits.default_timeout).to_string();
    let from = match (tool.limits.timeout, tool.response_time) {
        (Some(_), _) => origin(&path, "timeout", config),
        (None, Some(_)) => "response_time".to_owned(),
        (None, None) => "default_timeout".to_owned(),
    };
    rows.push(row("timeout", timeout, from));
    let shown = [
        "name",
        "description",
        "script_path",
        "entrypoint",
        "input_schema",
        "output_schema",
        "timeout",
        "examples",
    ];
    rows.extend(serialised(tool, &path, config, &shown));
    rows
}

fn shown_path(tool: &ToolDefinition, config: &Config) -> String {
    let path = within(&tool.script.script_path, config);
    if path.ends_with(".py") { format!("{path} {}()", tool.script.entrypoint) } else { path }
}

/// `text: string, folder?: string`.
fn arguments(tool: &ToolDefinition) -> String {
    let schema: Json = serde_json::from_str(tool.input_schema.get()).unwrap_or_default();
    let required =
        |name: &String| schema["required"].as_array().is_some_and(|names| names.iter().any(|n| n == name));
    let argument = |(name, schema): (&String, &Json)| {
        let kind = schema["type"].as_str().unwrap_or("any");
        format!("{name}{}: {kind}", if required(name) { "" } else { "?" })
    };
    match schema["properties"].as_object() {
        Some(properties) if !properties.is_empty() => {
            properties.iter().map(argument).collect::<Vec<_>>().join(", ")
        }
        _ => "(none)".to_owned(),
    }
}
