//! Takes over the MCP servers of other programs: what to write, and what could not be taken.
//!
//! Values are taken as they are written, references unresolved. A password or token that stands in
//! plain text becomes a reference, and its value goes to the person's `.env`.
//! Invariant: this module plans and edits texts; the caller writes files.

use std::path::{Path, PathBuf};

use jsonc_parser::cst::{CstInputValue, CstRootNode};
use serde_json::Value as Json;
use toolgate_types::Secret;
use toolgate_types::redact::{looks_secret, secret_ranges};

use crate::context::{Context, Environment};
use crate::dialect::{Dialect, mcp};
use crate::file::ServerFile;
use crate::keys::{Read, Table};
use crate::load::{absolute, parse};
use crate::node::{Entry, Node, Value};
use crate::problem::{Problem, Report};
use crate::read::json::OPTIONS;

/// A program whose servers can be taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// VS Code.
    VsCode,
    /// Claude Desktop.
    ClaudeDesktop,
    /// Claude Code.
    ClaudeCode,
    /// Cursor.
    Cursor,
    /// Codex.
    Codex,
    /// goose.
    Goose,
    /// HoloDeck.
    HoloDeck,
}

impl Client {
    /// All of them, by the names that the command line knows.
    pub const ALL: [(&'static str, Self); 7] = [
        ("vscode", Self::VsCode),
        ("claude-desktop", Self::ClaudeDesktop),
        ("claude-code", Self::ClaudeCode),
        ("cursor", Self::Cursor),
        ("codex", Self::Codex),
        ("goose", Self::Goose),
        ("holodeck", Self::HoloDeck),
    ];

    /// Where it keeps its servers: for this project first, then for this person.
    pub fn files(self, project: &Path, environment: &Environment) -> Vec<PathBuf> {
        let home = environment.home.clone().unwrap_or_default();
        let variable = |name: &str| environment.variables.get(name).map(PathBuf::from);
        // The folder for settings on Linux, macOS and Windows.
        let settings = |name: &str| {
            let linux = variable("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
            let windows = variable("APPDATA").unwrap_or_else(|| home.join("AppData/Roaming"));
            [linux, home.join("Library/Application Support"), windows].map(|folder| folder.join(name))
        };
        match self {
            Self::VsCode => {
                let mut files = vec![project.join(".vscode/mcp.json")];
                files.extend(settings("Code/User/mcp.json"));
                files
            }
            Self::ClaudeDesktop => settings("Claude/claude_desktop_config.json").to_vec(),
            Self::ClaudeCode => vec![project.join(".mcp.json"), home.join(".claude.json")],
            Self::Cursor => vec![project.join(".cursor/mcp.json"), home.join(".cursor/mcp.json")],
            Self::Codex => {
                let own = variable("CODEX_HOME").unwrap_or_else(|| home.join(".codex"));
                vec![project.join(".codex/config.toml"), own.join("config.toml")]
            }
            Self::Goose => {
                let mut files = settings("goose/config.yaml").to_vec();
                files.extend(settings("Block/goose/config/config.yaml"));
                files
            }
            Self::HoloDeck => vec![project.join("agent.yaml"), home.join(".holodeck/config.yaml")],
        }
    }
}

/// What an import would do.
#[derive(Debug)]
pub struct Import {
    /// The servers to add.
    pub servers: Vec<ImportedServer>,
    /// Entries of `inputs` that they refer to.
    pub inputs: Vec<Json>,
    /// Lines for `.env`: values that stood in plain text.
    pub secrets: Vec<(String, Secret)>,
    /// What could not be taken, with its place.
    pub report: Report,
}

/// A server as `mcp.json` has it.
#[derive(Debug)]
pub struct ImportedServer {
    /// Its name.
    pub name: String,
    /// Its keys.
    pub entry: Json,
    /// The file it comes from.
    pub from: String,
}

/// Reads the files of another program. Later files do not replace servers of earlier ones.
pub fn plan_import(project: &Path, files: &[PathBuf], environment: &Environment) -> Import {
    let mut cx = Context::new(absolute(project, environment), environment);
    let mut import =
        Import { servers: Vec::new(), inputs: Vec::new(), secrets: Vec::new(), report: Report::default() };
    for file in files {
        let Some(node) = parse(&absolute(file, environment), &mut cx) else { continue };
        import.add(&node, &mut cx);
    }
    cx.secrets.extend(import.secrets.iter().map(|(_, value)| value.clone()));
    import.report = Report::new(cx.sources, cx.problems, cx.secrets);
    import
}

impl Import {
    fn add(&mut self, node: &Node, cx: &mut Context<'_>) {
        let from = cx.sources.get(node.span.source).name().to_owned();
        let mut servers = entries(node, cx);
        if servers.is_empty() && !cx.problems.iter().any(|problem| problem.severity == crate::Severity::Error)
        {
            cx.push(Problem::nowhere(format!("`{from}` holds no MCP servers that could be taken")));
            if let Some(problem) = cx.problems.last_mut() {
                problem.severity = crate::Severity::Warning;
            }
        }
        if let Some(Value::List(inputs)) = node.get("inputs").map(|inputs| &inputs.value) {
            self.inputs.extend(inputs.iter().map(json));
        }
        for server in &mut servers {
            if self.servers.iter().any(|taken| taken.name == server.key) {
                let message = format!("MCP server `{}` was taken from another file already", server.key);
                cx.push(Problem::note(server.key_span, message));
                continue;
            }
            let known = drop_unknown(server, cx);
            let mut entry = json(&known);
            self.hide_secrets(&server.key, &mut entry);
            self.servers.push(ImportedServer { name: server.key.clone(), entry, from: from.clone() });
        }
    }

    /// Plain secrets become references: in `env` and `headers` by the name they have there, in `args`
    /// by the flag before them, in the address by what is in it.
    fn hide_secrets(&mut self, server: &str, entry: &mut Json) {
        for (place, is_header) in [("env", false), ("headers", true)] {
            let Some(values) = entry.get_mut(place).and_then(Json::as_object_mut) else { continue };
            for (name, value) in values {
                let wanted = if is_header { format!("{server}_{name}") } else { name.clone() };
                if let Json::String(text) = value {
                    let all = looks_secret(name) || !secret_ranges(text, &[]).is_empty();
                    *text = self.hidden(&wanted, all, text);
                }
            }
        }
        if let Some(Json::String(url)) = entry.get_mut("url") {
            *url = self.hidden(&format!("{server}_url"), false, url);
        }
        let mut flag = String::new();
        for argument in entry.get_mut("args").and_then(Json::as_array_mut).into_iter().flatten() {
            let Json::String(text) = argument else { continue };
            let name = text.strip_prefix('-').map(|name| name.trim_start_matches('-').to_owned());
            let named = name.as_deref().unwrap_or(&flag).split('=').next().unwrap_or_default();
            let wanted = format!("{server}_{}", if named.is_empty() { "argument" } else { named });
            *text = self.hidden(&wanted, name.is_none() && looks_secret(&flag), text);
            flag = name.filter(|name| !name.contains('=')).unwrap_or_default();
        }
    }

    /// A text with references in the place of what is secret in it: all of it, or what looks so.
    fn hidden(&mut self, wanted: &str, all: bool, text: &str) -> String {
        if text.is_empty() || text.contains("${") {
            return text.to_owned();
        }
        let ranges = if all { std::iter::once(0..text.len()).collect() } else { secret_ranges(text, &[]) };
        let mut out = String::new();
        let mut end = 0;
        for range in ranges {
            out.push_str(&text[end..range.start]);
            out.push_str(&format!("${{{}}}", self.variable(wanted, &text[range.clone()])));
            end = range.end;
        }
        out.push_str(&text[end..]);
        out
    }

    /// The name of the variable for a value; the same value gets the same name.
    fn variable(&mut self, wanted: &str, value: &str) -> String {
        let mut wanted: String = wanted
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
            .collect();
        if wanted.starts_with(|c: char| c.is_ascii_digit()) {
            wanted.insert(0, '_');
        }
        let mut candidate = wanted.clone();
        let mut number = 2;
        loop {
            match self.secrets.iter().find(|(name, _)| *name == candidate) {
                None => break,
                Some((_, taken)) if taken.expose() == value => return candidate,
                Some(_) => {
                    candidate = format!("{wanted}_{number}");
                    number += 1;
                }
            }
        }
        self.secrets.push((candidate.clone(), Secret::new(value)));
        candidate
    }
}

/// The servers of a file, whatever its shape; those of Claude Code's folders among them.
fn entries(node: &Node, cx: &mut Context<'_>) -> Vec<Entry> {
    let folder = cx.project.display().to_string();
    let of_folder = node.get("projects").and_then(|projects| projects.get(&folder)).map(mcp::servers);
    let path = cx.sources.get(node.span.source).path().unwrap_or(Path::new("")).to_owned();
    let mut entries = match Dialect::of(node, &path) {
        Some(dialect) => dialect.servers(node, cx),
        // HoloDeck's own configuration has a list where others have a map.
        None => Vec::new(),
    };
    if entries.is_empty() && matches!(node.get("mcp_servers").map(|list| &list.value), Some(Value::List(_))) {
        entries = Dialect::Agent.servers(node, cx);
    }
    let mut all = of_folder.unwrap_or_default();
    all.extend(entries);
    all
}

/// The entry without the keys that we do not have, each of which is told.
fn drop_unknown(server: &Entry, cx: &mut Context<'_>) -> Node {
    let mut tables: Vec<Table> = Vec::new();
    ServerFile::tables(&mut tables);
    let keys = &tables[0].keys;
    let mut node = server.node.clone();
    let Value::Map(entries) = &mut node.value else { return node };
    entries.retain(|entry| {
        let known = keys.iter().any(|key| key.name == entry.key || key.aliases.contains(&entry.key.as_str()));
        if !known {
            let message = format!("`{}` of MCP server `{}` was not taken", entry.key, server.key);
            cx.push(Problem::note(entry.key_span, message));
        }
        known
    });
    node
}

fn json(node: &Node) -> Json {
    serde_json::from_str(node.to_json().get()).expect("a node is valid JSON")
}

/// The text of an `mcp.json` cannot be edited.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// It is not JSON.
    #[error("it is not valid JSON")]
    Syntax(#[source] jsonc_parser::errors::ParseError),
    /// It is JSON, but holds something else.
    #[error("it holds no map of servers")]
    Shape,
}

/// The text of `mcp.json` with servers and inputs added. Comments, order and formatting of what is
/// there stay. Servers that are there already are replaced, or left alone; their names are returned.
pub fn add_servers(text: &str, import: &Import, replace: bool) -> Result<(String, Vec<String>), EditError> {
    let root = CstRootNode::parse(text, &OPTIONS).map_err(EditError::Syntax)?;
    let top = root.object_value_or_create().ok_or(EditError::Shape)?;
    let name = mcp::ROOTS.iter().find(|name| top.get(name).is_some()).unwrap_or(&mcp::ROOTS[0]);
    let servers = top.object_value_or_create(name).ok_or(EditError::Shape)?;
    let mut left = Vec::new();
    for ImportedServer { name, entry, .. } in &import.servers {
        match servers.get(name) {
            None => {
                servers.append(name, cst(entry));
            }
            Some(property) if replace => property.set_value(cst(entry)),
            Some(_) => left.push(name.clone()),
        }
    }
    if !import.inputs.is_empty() {
        let inputs = top.array_value_or_create("inputs").ok_or(EditError::Shape)?;
        let known: Vec<_> = inputs.elements().iter().filter_map(|item| item.to_serde_value()).collect();
        for input in &import.inputs {
            if !known.iter().any(|item| item["id"] == input["id"]) {
                inputs.append(cst(input));
            }
        }
    }
    Ok((root.to_string(), left))
}

fn cst(value: &Json) -> CstInputValue {
    match value {
        Json::Null => CstInputValue::Null,
        Json::Bool(flag) => CstInputValue::Bool(*flag),
        Json::Number(number) => CstInputValue::Number(number.to_string()),
        Json::String(text) => CstInputValue::String(text.clone()),
        Json::Array(items) => CstInputValue::Array(items.iter().map(cst).collect()),
        Json::Object(fields) => {
            CstInputValue::Object(fields.iter().map(|(key, value)| (key.clone(), cst(value))).collect())
        }
    }
}
