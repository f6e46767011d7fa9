//! `toolgate check`: validates the configuration, shows its values and where each comes from.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use serde_json::Value as Json;
use toolgate_agent::SkillSet;
use toolgate_app::project_warnings;
use toolgate_config::{
    Checklist, Config, ContractRule, LoadOutcome, ProblemEntry, Report, Severity, checklists, load,
};
use toolgate_redact::printable;
use toolgate_types::caller::PermissionPattern;
use toolgate_types::{Caller, Group, ToolDefinition};

use crate::cli::{CheckArgs, ContractLevel, ProjectArgs};
use crate::output::{BOLD, DIM, Output};
use crate::owner_key;
use crate::{DONE, FAILED, INVALID_CONFIG};

mod agent;
mod running;

/// Result for `--json`.
#[derive(Serialize)]
struct CheckReport {
    ok: bool,
    problems: Vec<ProblemEntry>,
    /// Checklist per tool, with `--contract full`.
    #[serde(skip_serializing_if = "Option::is_none")]
    contract: Option<Vec<Checklist>>,
    #[serde(flatten)]
    config: Option<Json>,
}

pub(crate) fn run(args: &CheckArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    if args.running {
        return running::run(project, output);
    }
    let LoadOutcome { config, report } =
        load(&project.folder, project.file.as_deref(), &owner_key::environment());
    output.message(&report.render());
    let mut found = config.as_ref().map(|config| project_warnings(config, &report)).unwrap_or_default();
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
        shown.iter_mut().for_each(|config| mask_values(config, &report));
        let is_met = contract.iter().flatten().all(Checklist::is_met);
        output.document(&CheckReport {
            ok: config.is_some() && is_met,
            problems: report.entries().into_iter().chain(found).collect(),
            contract: contract.clone(),
            config: shown,
        })?;
    }
    let Some(config) = config else {
        output
            .message(&format!("{BOLD}refused{BOLD:#}: {}; nothing was started.\n", count_problems(&report)));
        output.next_step("fix the problems above and run `toolgate check` again");
        return Ok(INVALID_CONFIG);
    };
    if let Some(contract) = contract {
        return Ok(report_contract(&contract, &report, output));
    }
    if !output.json {
        let (text, hidden) = render(&config, &skills, &report, args.all);
        output.result(&text);
        if hidden > 0 {
            output.message(&format!("{} not shown; use `--all`\n", are(hidden, "default")));
        }
    }
    output.message(&format!("{BOLD}good{BOLD:#}: {}{}.\n", count_entries(&config), problem_suffix(&report)));
    let file = config.files.first().map_or("toolgate.yaml", String::as_str);
    output.next_step(&format!(
        "change {file} and check again, or add MCP servers with `toolgate import CLIENT`"
    ));
    Ok(DONE)
}

/// Prints the checklists and a summary. Returns the exit code.
fn report_contract(contract: &[Checklist], report: &Report, output: &Output) -> u8 {
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
            problem_suffix(report)
        ));
        return DONE;
    }
    output.message(&format!(
        "{BOLD}not met{BOLD:#}: {not_met} of {} in {}{}.\n",
        plural(count, "rule"),
        plural(contract.len(), "tool"),
        problem_suffix(report)
    ));
    output.next_step("fix the unmet rules and run `toolgate check --contract full` again");
    FAILED
}

fn render_contract(contract: &[Checklist], report: &Report) -> String {
    let mut out = String::new();
    for Checklist { tool, rules } in contract {
        let met = rules.iter().filter(|rule| rule.met).count();
        let _ = writeln!(out, "{BOLD}{}{BOLD:#} {DIM}{met} of {} met{DIM:#}", printable(tool), rules.len());
        for ContractRule { rule, met, detail, place } in rules {
            let (mark, detail) =
                (if *met { "met" } else { "not met" }, printable(&report.mask_known(detail)));
            let style = if *met { DIM } else { BOLD };
            let _ = writeln!(out, "  {style}{mark:7}{style:#}  {rule:13}  {detail}  {DIM}{place}{DIM:#}");
        }
        out.push('\n');
    }
    out
}

fn count_problems(report: &Report) -> String {
    let kinds = [(Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Note, "note")];
    let count = |(severity, name): &(Severity, &str)| {
        let count = report.count(*severity);
        (count > 0).then(|| plural(count, name))
    };
    kinds.iter().filter_map(count).collect::<Vec<_>>().join(", ")
}

fn problem_suffix(report: &Report) -> String {
    match count_problems(report) {
        counted if counted.is_empty() => String::new(),
        counted => format!(", with {counted}"),
    }
}

fn count_entries(config: &Config) -> String {
    let (servers, tools) = (plural(config.servers.len(), "MCP server"), plural(config.tools.len(), "tool"));
    match config.apis.len() {
        0 => format!("{servers} and {tools}"),
        apis => format!("{servers}, {} and {tools}", plural(apis, "API")),
    }
}

fn plural(count: usize, name: &str) -> String {
    if count == 1 { format!("1 {name}") } else { format!("{count} {name}s") }
}

fn are(count: usize, name: &str) -> String {
    format!("{} {}", plural(count, name), if count == 1 { "is" } else { "are" })
}

/// A value with its origin.
struct ValueRow {
    key: String,
    value: String,
    origin: String,
}

impl ValueRow {
    /// Returns true if no file sets the value.
    fn is_default(&self) -> bool {
        [DEFAULT, DEFAULT_TIMEOUT].contains(&self.origin.as_str())
    }
}

/// Origins of values that no file sets.
const DEFAULT: &str = "default";
const DEFAULT_TIMEOUT: &str = "default_timeout";

fn serialise(value: &impl Serialize) -> Json {
    serde_json::to_value(value).expect("a configuration has a JSON form")
}

/// Keys that are not masked: names and locations, which are needed to find things and are never secrets.
const UNMASKED_KEYS: [&str; 8] =
    ["name", "project", "files", "origins", "variables", "script_path", "entrypoint", "input_schema"];

/// Masks secrets in a document. Most are masked by their type; a variable can be part of any string.
fn mask_values(json: &mut Json, report: &Report) {
    match json {
        Json::String(text) => *text = report.mask_known(text),
        Json::Array(items) => items.iter_mut().for_each(|item| mask_values(item, report)),
        Json::Object(fields) => {
            let closed = fields.iter_mut().filter(|(key, _)| !UNMASKED_KEYS.contains(&key.as_str()));
            closed.for_each(|(_, value)| mask_values(value, report));
        }
        _ => {}
    }
}

/// Formats the configuration for people: the values that differ from the defaults, or all of them. Also returns the number
/// of values that are not shown.
fn render(config: &Config, skills: &SkillSet, report: &Report, all: bool) -> (String, usize) {
    let (mut out, mut hidden) = (String::new(), 0);
    let shown = |text: &str| printable(&report.mask_known(text));
    let rows = |heading_text: &str, mut entries: Vec<ValueRow>, hidden: &mut usize, out: &mut String| {
        let count = entries.len();
        entries.retain(|row| all || !row.is_default());
        *hidden += count - entries.len();
        for row in entries.iter_mut().filter(|row| row.key != "script") {
            row.value = shown(&row.value);
        }
        if !heading_text.is_empty() && !entries.is_empty() {
            heading(heading_text, out);
        }
        rows(&entries, out);
    };
    let name = printable(config.name.as_deref().unwrap_or("project"));
    let _ = writeln!(out, "{BOLD}{name}{BOLD:#} {DIM}{}{DIM:#}", config.project.display());
    if let Some(description) = &config.description {
        let _ = writeln!(out, "{}", shown(description));
    }
    let _ = writeln!(out, "read from {}", printable(&config.files.join(", ")));
    rows("limits", value_rows(&config.limits, "limits", config, &[]), &mut hidden, &mut out);
    rows("serve", serve_rows(config), &mut hidden, &mut out);
    let groups = config.groups.iter().map(|group| group_row(group, config)).collect();
    rows("groups", groups, &mut hidden, &mut out);
    let callers = config.callers.iter().map(|caller| caller_row(caller, config)).collect();
    rows("callers", callers, &mut hidden, &mut out);
    rows("policy", policy_row(config).into_iter().collect(), &mut hidden, &mut out);
    if !config.egress.is_off() {
        rows("egress", value_rows(&config.egress, "egress", config, &[]), &mut hidden, &mut out);
    }
    if !config.agent.is_default() {
        rows("agent", agent::rows(skills, config), &mut hidden, &mut out);
    }
    if let Some(telemetry) = &config.telemetry {
        rows("telemetry", value_rows(telemetry, "telemetry", config, &[]), &mut hidden, &mut out);
    }
    if let Some(results) = &config.results {
        rows("results", value_rows(results, "results", config, &[]), &mut hidden, &mut out);
    }
    if !config.audit.is_default() {
        rows("audit", value_rows(&config.audit, "audit", config, &[]), &mut hidden, &mut out);
    }
    if !config.profiles.is_empty() {
        heading("profiles", &mut out);
    }
    for profile in &config.profiles.all {
        title(profile.name.as_str(), profile.description.as_deref().map(&shown), &mut out);
        let path = format!("profiles.{}", profile.name);
        rows("", value_rows(&**profile, &path, config, &["name", "description"]), &mut hidden, &mut out);
    }
    if !config.servers.is_empty() {
        heading("MCP servers", &mut out);
    }
    for server in &config.servers {
        title(server.name.as_str(), server.description.as_deref().map(&shown), &mut out);
        let path = format!("servers.{}", server.name);
        rows("", value_rows(server, &path, config, &["name", "description"]), &mut hidden, &mut out);
    }
    if !config.apis.is_empty() {
        heading("APIs", &mut out);
    }
    for api in &config.apis {
        title(api.name.as_str(), None, &mut out);
        let path = format!("apis.{}", api.name);
        rows("", value_rows(api, &path, config, &["name"]), &mut hidden, &mut out);
    }
    if !config.tools.is_empty() {
        heading("tools", &mut out);
    }
    for tool in &config.tools {
        title(tool.name.as_str(), Some(shown(&tool.description)), &mut out);
        rows("", tool_rows(tool, config), &mut hidden, &mut out);
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
        let path = format!("tool_settings.{}", settings.name);
        rows("", value_rows(settings, &path, config, &["name"]), &mut hidden, &mut out);
    }
    let input_row = |input: &toolgate_config::InputSpec| ValueRow {
        key: input.id.clone(),
        value: input.description.clone(),
        origin: if input.answered { "answered".to_owned() } else { format!("or set {}", input.variable()) },
    };
    let inputs = config.inputs.iter().map(input_row).collect();
    rows("asked for when servers start", inputs, &mut hidden, &mut out);
    let variable_row = |(name, origin): (&String, &String)| ValueRow {
        key: name.clone(),
        value: toolgate_types::secret::MASK.to_owned(),
        origin: origin.clone(),
    };
    let variables = config.variables.iter().map(variable_row).collect();
    rows("variables", variables, &mut hidden, &mut out);
    out.push('\n');
    (out, hidden)
}

/// Returns the values of `serve`. The address is always shown, because every client needs it.
fn serve_rows(config: &Config) -> Vec<ValueRow> {
    let mut rows = value_rows(&config.serve, "serve", config, &[]);
    for row in rows.iter_mut().filter(|row| row.key == "listen" && row.is_default()) {
        row.origin = "default address".to_owned();
    }
    rows
}

/// Formats the policy: `policy.cedar  3 rules`.
fn policy_row(config: &Config) -> Option<ValueRow> {
    let policy = config.policy.as_ref()?;
    let origin = config.origins.get("policy").cloned().unwrap_or_else(|| "found by its name".to_owned());
    let value = plural(policy.rules.rule_count(), "rule");
    Some(ValueRow { key: policy.path.clone(), value, origin })
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

fn rows(rows: &[ValueRow], out: &mut String) {
    let width = |text: fn(&ValueRow) -> &String, most: usize| {
        rows.iter().map(|row| text(row).chars().count()).filter(|width| *width <= most).max().unwrap_or(0)
    };
    let (key_width, value_width) = (width(|row| &row.key, 40), width(|row| &row.value, 60));
    for ValueRow { key, value, origin } in rows {
        let key = printable(key);
        let _ = writeln!(out, "    {DIM}{key:key_width$}{DIM:#}  {value:value_width$}  {DIM}{origin}{DIM:#}");
    }
}

/// Returns one row per field. Generic, so that no new field is forgotten.
fn value_rows(value: &impl Serialize, path: &str, config: &Config, without: &[&str]) -> Vec<ValueRow> {
    let mut rows = Vec::new();
    for (key, value) in
        serialise(value).as_object().into_iter().flatten().filter(|(key, _)| !without.contains(&key.as_str()))
    {
        flatten(key, value, path, config, &mut rows);
    }
    rows
}

fn flatten(key: &str, value: &Json, path: &str, config: &Config, rows: &mut Vec<ValueRow>) {
    match value {
        Json::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                flatten(&format!("{key}.{name}"), value, path, config, rows);
            }
        }
        // Skip an empty map or list that is not written in any file.
        Json::Object(_) if !config.origins.contains_key(&format!("{path}.{key}")) => {}
        Json::Array(items) if items.is_empty() && !config.origins.contains_key(&format!("{path}.{key}")) => {}
        _ => {
            let value = if key == "cwd" {
                relative_path(Path::new(&plain_value(value)), config)
            } else {
                plain_value(value)
            };
            rows.push(ValueRow { key: key.to_owned(), value, origin: origin(path, key, config) });
        }
    }
}

/// Returns a path relative to the project folder, if it is inside.
fn relative_path(path: &Path, config: &Config) -> String {
    match path.strip_prefix(&config.project) {
        Ok(inside) if inside.as_os_str().is_empty() => ".".to_owned(),
        Ok(inside) => inside.display().to_string(),
        Err(_) => path.display().to_string(),
    }
}

/// Returns the origin of a value, or of the map around it; `default` if no file sets it.
fn origin(path: &str, key: &str, config: &Config) -> String {
    let mut path = format!("{path}.{key}");
    let top = path.split('.').count() - key.split('.').count();
    while path.split('.').count() > top {
        if let Some(origin) = config.origins.get(&path) {
            return origin.clone();
        }
        path.truncate(path.rfind('.').unwrap_or(0));
    }
    DEFAULT.to_owned()
}

fn plain_value(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Null => "(unset)".to_owned(),
        Json::Array(items) if items.is_empty() => "(none)".to_owned(),
        Json::Array(items) => items.iter().map(plain_value).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

/// Formats a group: `support  mail:*  toolgate.yaml:14:18`.
fn group_row(group: &Group, config: &Config) -> ValueRow {
    let path = format!("groups.{}", group.name);
    let value = permission_list(&group.permissions);
    ValueRow { key: group.name.to_string(), value, origin: origin(&path, "permissions", config) }
}

/// Formats a caller: `owner  *:*  toolgate.yaml:14:18`, or with its groups: `ann  in support  toolgate.yaml:15:18`.
fn caller_row(caller: &Caller, config: &Config) -> ValueRow {
    let groups: Vec<_> = caller.groups.iter().map(|group| group.name.to_string()).collect();
    let mut value = match (caller.permissions.is_empty(), groups.is_empty()) {
        (true, false) => String::new(),
        _ => permission_list(&caller.permissions),
    };
    if !groups.is_empty() {
        let gap = if value.is_empty() { "" } else { " · " };
        value = format!("{value}{gap}in {}", groups.join(" "));
    }
    if let Some(description) = config.caller_descriptions.get(&caller.id) {
        value = format!("{value} · {description}");
    }
    let path = format!("callers.{}", caller.id);
    let key = if caller.permissions.is_empty() && !groups.is_empty() { "groups" } else { "permissions" };
    ValueRow { key: caller.id.to_string(), value, origin: origin(&path, key, config) }
}

fn permission_list(permissions: &[PermissionPattern]) -> String {
    let permissions: Vec<_> = permissions.iter().map(ToString::to_string).collect();
    if permissions.is_empty() { "(nothing)".to_owned() } else { permissions.join(" ") }
}

fn tool_rows(tool: &ToolDefinition, config: &Config) -> Vec<ValueRow> {
    let path = format!("tools.{}", tool.name);
    let place = config.origins.get(&format!("{path}.name")).cloned().unwrap_or_default();
    let row = |key: &str, value: String, origin: String| ValueRow { key: key.to_owned(), value, origin };
    let mut rows = vec![
        row("script", script_path(tool, config), place),
        row("arguments", arguments(tool), origin(&path, "input_schema", config)),
    ];
    let timeout = tool.timeout(config.limits.default_timeout).to_string();
    let from = match (tool.limits.timeout, tool.response_time) {
        (Some(_), _) => origin(&path, "timeout", config),
        (None, Some(_)) => "response_time".to_owned(),
        (None, None) => DEFAULT_TIMEOUT.to_owned(),
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
    rows.extend(value_rows(tool, &path, config, &shown));
    rows
}

fn script_path(tool: &ToolDefinition, config: &Config) -> String {
    let path = relative_path(&tool.script.script_path, config);
    if path.ends_with(".py") { format!("{path} {}()", tool.script.entrypoint) } else { path }
}

/// Formats the arguments of a tool: `text: string, folder?: string`.
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
