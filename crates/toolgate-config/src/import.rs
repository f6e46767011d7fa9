//! Takes over the MCP servers of other programs: what to write, and what could not be taken.
//!
//! Values are taken as they are written, references unresolved. A password or token that stands in
//! plain text becomes a reference, and its value goes to the person's `.env`.
//! Invariant: this module plans and edits texts; the caller writes files.

mod secrets;

use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use toolgate_store::document::{Act, Document, DocumentError, Kind};
use toolgate_store::text::List;
use toolgate_types::{Secret, ServerName};

use crate::context::{Context, Environment};
use crate::dialect::{Dialect, mcp};
use crate::file::ServerFile;
use crate::import::secrets::Moved;
use crate::keys::{Read, Table};
use crate::load::{PROJECT_FILES, absolute, parse};
use crate::node::{Entry, Node, Value};
use crate::problem::{Problem, Report, Severity};

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

    /// The name that the command line knows.
    pub fn label(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, client)| *client == self).map_or("", |(name, _)| name)
    }

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
    /// The file's entries of `inputs`.
    pub inputs: Vec<Json>,
    /// Lines for `.env`: values that stood in plain text.
    pub secrets: Vec<(String, Secret)>,
    /// The registry to add them to, and whether the project file names it.
    pub registry: PathBuf,
    /// The project file that does not name the registry, where there is one.
    pub unnamed_in: Option<PathBuf>,
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
    let dotenv = cx.project.join(".env");
    let dotenv = dotenv.is_file().then(|| cx.read_env_file(&dotenv)).flatten().unwrap_or_default();
    let mut moved = Moved {
        environment: &environment.variables,
        dotenv: dotenv.into_iter().map(|(name, variable)| (name, variable.value)).collect(),
        lines: Vec::new(),
    };
    let (mut servers, mut inputs) = (Vec::new(), Vec::new());
    for file in files {
        let Some(node) = parse(&absolute(file, environment), &mut cx) else { continue };
        take(&node, &mut servers, &mut moved, &mut cx);
        if let Some(Value::List(items)) = node.get("inputs").map(|inputs| &inputs.value) {
            inputs.extend(items.iter().map(json));
        }
    }
    cx.secrets.extend(moved.lines.iter().map(|(_, value)| value.clone()));
    let (registry, unnamed_in) = registry(project, environment);
    let report = Report::new(cx.sources, cx.problems, cx.secrets);
    Import { servers, inputs, secrets: moved.lines, registry, unnamed_in, report }
}

/// The registry of the project, and the project file where that does not name it.
fn registry(project: &Path, environment: &Environment) -> (PathBuf, Option<PathBuf>) {
    let usual = project.join("mcp.json");
    let Some(file) = PROJECT_FILES.iter().map(|name| project.join(name)).find(|path| path.is_file()) else {
        return (usual, None);
    };
    // What is wrong with the project is for `check` to tell.
    let mut cx = Context::new(absolute(project, environment), environment);
    let node = parse(&absolute(&file, environment), &mut cx);
    let named = node.as_ref().and_then(|node| node.get("registries")?.get("mcp")?.as_text());
    match named {
        Some(named) if !named.contains("${") => (project.join(named), None),
        Some(_) => (usual, None),
        None => (usual, Some(file)),
    }
}

/// Takes the servers of one file over, and tells what stays behind.
fn take(node: &Node, servers: &mut Vec<ImportedServer>, moved: &mut Moved<'_>, cx: &mut Context<'_>) {
    let from = cx.sources.get(node.span.source).name().to_owned();
    let told = cx.problems.len();
    let entries = entries(node, cx);
    if entries.is_empty() && cx.problems.len() == told {
        let nothing = Problem::nowhere(format!("`{from}` holds no MCP servers"));
        cx.push(Problem { severity: Severity::Warning, ..nothing });
    }
    // VS Code's own, beside the servers.
    if let Value::Map(top) = &node.value
        && let Some(sandbox) = top.iter().find(|entry| entry.key == "sandbox")
    {
        cx.push(Problem::note(sandbox.key_span, "`sandbox` was not taken"));
    }
    for server in entries {
        cx.keep_secrets_of_server(&server.node);
        if let Some(taken) = servers.iter().find(|taken| taken.name == server.key) {
            let message = format!("MCP server `{}` was taken from {} already", server.key, taken.from);
            cx.push(Problem::note(server.key_span, message));
            continue;
        }
        if let Some(why) = unfit(&server) {
            let message = format!("MCP server `{}` was not taken: {why}", server.key);
            cx.push(Problem::warning(server.key_span, message));
            continue;
        }
        let mut entry = json(&drop_unknown(&server, cx));
        moved.out_of(&server.key, &mut entry);
        servers.push(ImportedServer { name: server.key, entry, from: from.clone() });
    }
}

/// Why an entry would be refused by `check`, whatever the environment.
fn unfit(server: &Entry) -> Option<String> {
    if let Err(error) = server.key.parse::<ServerName>() {
        return Some(error.to_string());
    }
    if !matches!(server.node.value, Value::Map(_)) {
        return Some("it is not a map".to_owned());
    }
    let text = |key: &str| server.node.get(key).and_then(Node::as_text);
    let Some(url) = text("url") else {
        let nothing = text("command").or_else(|| text("server")).is_none();
        return nothing.then(|| "it has neither a `command` nor a `url`".to_owned());
    };
    let known = ["http://", "https://", "ws://", "wss://", "${"];
    let other = url
        .split_once("://")
        .map(|(scheme, _)| scheme)
        .filter(|_| !known.iter().any(|start| url.starts_with(start)));
    other.map(|scheme| format!("`{scheme}://` is not an address that we can connect to"))
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

/// The text of `mcp.json` with servers and inputs added. Comments, order and formatting of what is
/// there stay. Servers that are there already are replaced, or left alone; their names are returned.
pub fn add_servers(
    text: &str,
    import: &Import,
    replace: bool,
) -> Result<(String, Vec<String>), DocumentError> {
    let mut document = Document::parse(Kind::Server, text)?;
    let mut left = Vec::new();
    for ImportedServer { name, entry, .. } in &import.servers {
        let entry = entry.as_object().cloned().unwrap_or_default();
        let act = match document.entry(name) {
            None => Act::Add(entry),
            Some(_) if replace => Act::Replace(entry),
            Some(_) => {
                left.push(name.clone());
                continue;
            }
        };
        document.apply(name, &act).expect("what is there is replaced, what is not is added");
    }
    let referred = |input: &&Json| {
        let reference = format!("${{input:{}}}", input["id"].as_str().unwrap_or_default());
        let taken = import.servers.iter().filter(|server| !left.contains(&server.name));
        taken.into_iter().any(|server| server.entry.to_string().contains(&reference))
    };
    let new_inputs: Vec<_> = import.inputs.iter().filter(referred).collect();
    if new_inputs.is_empty() {
        return Ok((document.text(), left));
    }
    let mut top = List::parse(&document.text())?;
    if top.get("inputs").is_none() {
        top.push(Some("inputs"), &Json::Array(Vec::new()));
    }
    let shape = || DocumentError::Shape("inputs".to_owned());
    let mut inputs = top.inner("inputs").ok_or_else(shape)?.map_err(|_| shape())?;
    let id = |input: &str| List::parse(input).ok().and_then(|input| Some(input.get("id")?.to_owned()));
    for input in new_inputs {
        let own = Some(input["id"].to_string());
        if !inputs.values().any(|known| id(known) == own) {
            inputs.push(None, input);
        }
    }
    top.put_inner("inputs", &inputs);
    Ok((top.text(), left))
}
