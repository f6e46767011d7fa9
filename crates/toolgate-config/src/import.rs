//! Imports the MCP servers of other programs: plans the changes and reports skipped entries.
//!
//! Values are copied as written, with references unresolved. Passwords and tokens in plain text are replaced by
//! references, and their values are moved to the user's `.env`.
//! Invariant: this module plans and edits strings; its caller writes the files.

mod clients;
mod secrets;

use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use toolgate_store::document::{DocumentError, EntryAction, EntryKind, RegistryDocument};
use toolgate_store::text::EntryList;
use toolgate_types::{Secret, ServerName};

use crate::context::{Context, Environment};
use crate::dialect::{Dialect, mcp};
use crate::feature::servers::ServerFile;
use crate::import::clients::DisabledServers;
pub(crate) use crate::import::clients::server_places;
use crate::import::secrets::SecretExtractor;
use crate::keys::{ConfigValue, KeyTable};
use crate::load::{PROJECT_FILES, parse, to_absolute};
use crate::node::{MapEntry, Node, Value};
use crate::problem::{Problem, Report, Severity};
use crate::read::{FileFormat, read};
use crate::self_listing;

/// A program whose servers can be imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientProgram {
    VsCode,
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    Codex,
    Gemini,
    Windsurf,
    Zed,
    Cline,
    Goose,
    HoloDeck,
}

impl ClientProgram {
    /// All programs, with their names on the command line.
    pub const ALL: [(&'static str, Self); 11] = [
        ("vscode", Self::VsCode),
        ("claude-desktop", Self::ClaudeDesktop),
        ("claude-code", Self::ClaudeCode),
        ("cursor", Self::Cursor),
        ("codex", Self::Codex),
        ("gemini", Self::Gemini),
        ("windsurf", Self::Windsurf),
        ("zed", Self::Zed),
        ("cline", Self::Cline),
        ("goose", Self::Goose),
        ("holodeck", Self::HoloDeck),
    ];

    /// Returns the name on the command line.
    pub fn label(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, client)| *client == self).map_or("", |(name, _)| name)
    }

    /// Returns true if it also has a configuration per project, in the first of its files.
    pub(crate) fn has_project_file(self) -> bool {
        !matches!(self, Self::ClaudeDesktop | Self::Windsurf | Self::Cline | Self::Goose)
    }

    /// Returns the files with its servers: those of the project first, then those of the user.
    pub fn files(self, project: &Path, environment: &Environment) -> Vec<PathBuf> {
        let home = environment.home.clone().unwrap_or_default();
        let variable = |name: &str| environment.variables.get(name).map(PathBuf::from);
        // Settings folders of Linux, macOS and Windows.
        let settings = |name: &str| {
            let linux = variable("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
            let windows = variable("APPDATA").unwrap_or_else(|| home.join("AppData/Roaming"));
            [linux, home.join("Library/Application Support"), windows].map(|folder| folder.join(name))
        };
        match self {
            Self::VsCode => {
                let mut files = vec![project.join(".vscode/mcp.json")];
                files.extend(settings("Code/User/mcp.json"));
                // Servers of earlier versions are among the settings, below `mcp`.
                files.push(project.join(".vscode/settings.json"));
                files.extend(settings("Code/User/settings.json"));
                files
            }
            Self::ClaudeDesktop => settings("Claude/claude_desktop_config.json").to_vec(),
            Self::ClaudeCode => vec![project.join(".mcp.json"), home.join(".claude.json")],
            Self::Cursor => vec![project.join(".cursor/mcp.json"), home.join(".cursor/mcp.json")],
            Self::Codex => {
                let own = variable("CODEX_HOME").unwrap_or_else(|| home.join(".codex"));
                vec![project.join(".codex/config.toml"), own.join("config.toml")]
            }
            Self::Gemini => {
                vec![project.join(".gemini/settings.json"), home.join(".gemini/settings.json")]
            }
            Self::Windsurf => vec![home.join(".codeium/windsurf/mcp_config.json")],
            Self::Zed => {
                let [linux, _, windows] = settings("");
                let own = [linux.join("zed"), home.join(".config/zed"), windows.join("Zed")];
                let own = own.map(|folder| folder.join("settings.json"));
                std::iter::once(project.join(".zed/settings.json")).chain(own).collect()
            }
            Self::Cline => {
                let extension = "Code/User/globalStorage/saoudrizwan.claude-dev";
                settings(&format!("{extension}/settings/cline_mcp_settings.json")).to_vec()
            }
            Self::Goose => {
                let [linux, _, windows] = settings("");
                let windows = windows.join("Block/goose/config/config.yaml");
                let mut files =
                    vec![linux.join("goose/config.yaml"), home.join(".config/goose/config.yaml"), windows];
                files.extend(settings("Block/goose/config/config.yaml"));
                files.extend(settings("goose/config.yaml"));
                files
            }
            Self::HoloDeck => vec![project.join("agent.yaml"), home.join(".holodeck/config.yaml")],
        }
    }
}

/// The planned changes of an import.
#[derive(Debug)]
pub struct ImportPlan {
    pub servers: Vec<ImportedServer>,
    /// Entries of `inputs` in the files.
    pub inputs: Vec<Json>,
    /// New lines for `.env`: values that were in plain text.
    pub secrets: Vec<(String, Secret)>,
    /// Registry to add the servers to.
    pub registry: PathBuf,
    /// Project file, if it exists and does not name the registry.
    pub unlinked_project_file: Option<PathBuf>,
    /// Servers that were skipped because an earlier file has them.
    pub duplicates: Vec<DuplicateServer>,
    /// Skipped entries and keys, with their locations.
    pub report: Report,
}

/// A server as an entry of `mcp.json`.
#[derive(Debug)]
pub struct ImportedServer {
    pub name: String,
    /// Keys and values of the entry.
    pub entry: Json,
    /// File it comes from, for messages.
    pub from: String,
    /// Path of that file.
    pub path: PathBuf,
}

/// A server that another file defined before.
#[derive(Debug)]
pub struct DuplicateServer {
    pub name: String,
    pub path: PathBuf,
    /// True if both have the same settings.
    pub is_same: bool,
}

/// A file to import.
#[derive(Debug, Clone)]
pub struct ImportSource {
    pub path: PathBuf,
    /// The program that it belongs to, if that is known.
    pub client: Option<ClientProgram>,
}

/// Reads the files of other programs. If several files define a server, the first one wins. `folders` are the folders
/// that servers may be configured for.
pub fn plan_import(
    project: &Path,
    files: &[ImportSource],
    folders: &[PathBuf],
    environment: &Environment,
) -> ImportPlan {
    let mut cx = Context::new(to_absolute(project, environment), environment);
    let folders: Vec<_> = folders.iter().map(|folder| to_absolute(folder, environment)).collect();
    let has_claude = files.iter().any(|file| file.client == Some(ClientProgram::ClaudeCode));
    let disabled = match has_claude {
        true => DisabledServers::read(&folders, environment, &mut cx),
        false => DisabledServers::default(),
    };
    let dotenv = cx.project.join(".env");
    let dotenv = dotenv.is_file().then(|| cx.read_env_file(&dotenv)).flatten().unwrap_or_default();
    let mut moved = SecretExtractor {
        environment: &environment.variables,
        dotenv: dotenv.into_iter().map(|(name, variable)| (name, variable.value)).collect(),
        lines: Vec::new(),
    };
    let (mut servers, mut inputs) = (Vec::new(), Vec::new());
    let mut duplicates = Vec::new();
    for ImportSource { path, client } in files {
        let Some(node) = parse(&to_absolute(path, environment), &mut cx) else { continue };
        let mut entries = source_entries(&node, path, *client, &folders, &mut cx);
        if *client == Some(ClientProgram::ClaudeCode) {
            let unused = entries.iter_mut().filter(|server| disabled.contains(&server.key, path));
            unused.for_each(clients::disable);
        }
        take_servers(&node, entries, path, &mut servers, &mut duplicates, &mut moved, &mut cx);
        if let Some(Value::List(items)) = node.get("inputs").map(|inputs| &inputs.value) {
            inputs.extend(items.iter().map(to_json_value));
        }
    }
    cx.secrets.extend(moved.lines.iter().map(|(_, value)| value.clone()));
    let (registry, unnamed_in) = find_registry(project, environment);
    let report = Report::new(cx.sources, cx.problems, cx.secrets);
    let secrets = moved.lines;
    ImportPlan { servers, inputs, secrets, registry, unlinked_project_file: unnamed_in, duplicates, report }
}

/// Returns the servers of a text in any dialect, with their values as they are written. Reads no file.
pub fn parse_servers(text: &str, project: &Path, environment: &Environment) -> (Vec<ImportedServer>, Report) {
    let mut cx = Context::new(to_absolute(project, environment), environment);
    let mut servers = Vec::new();
    let format = FileFormat::guess(text);
    // The format follows from the extension.
    let name = Path::new(match format {
        FileFormat::Json => "pasted.json",
        FileFormat::Toml => "pasted.toml",
        FileFormat::Yaml => "pasted.yaml",
    });
    let id = cx.sources.add(name.display().to_string(), text.to_owned(), Some(name.to_owned()));
    match read(&cx.sources, id, format) {
        Err(problem) => cx.push(problem),
        Ok(node) => {
            let entries = source_entries(&node, name, None, &[], &mut cx);
            for server in entries {
                if let Some(why) = rejection_reason(&server).or_else(|| self_listing_reason(&server, &cx)) {
                    let message = format!("MCP server `{}` was not imported: {why}", server.key);
                    cx.push(Problem::warning(server.key_span, message));
                    continue;
                }
                let entry = to_json_value(&drop_unknown(&server, &mut cx));
                let from = name.display().to_string();
                servers.push(ImportedServer { name: server.key, entry, from, path: PathBuf::new() });
            }
        }
    }
    (servers, Report::new(cx.sources, cx.problems, cx.secrets))
}

/// Returns the servers of a file, with the keys of Toolgate.
fn source_entries(
    node: &Node,
    path: &Path,
    client: Option<ClientProgram>,
    folders: &[PathBuf],
    cx: &mut Context<'_>,
) -> Vec<MapEntry> {
    use ClientProgram::{Codex, Goose, HoloDeck};
    match client {
        // Detected by their keys, as any other file is.
        None | Some(Codex | Goose | HoloDeck) => {
            let entries = entries(node, cx);
            entries.iter().map(|entry| clients::normalize(entry, None)).collect()
        }
        Some(client) => {
            let entries = clients::servers(node, client, folders);
            // Other settings of an editor are no reason for a warning.
            if entries.is_empty() && !path.ends_with("settings.json") {
                let from = cx.sources.get(node.span.source).name().to_owned();
                let nothing = Problem::without_span(format!("`{from}` holds no MCP servers"));
                cx.push(Problem { severity: Severity::Warning, ..nothing });
            }
            entries
        }
    }
}

/// Returns the project's registry, and the project file if it does not name the registry.
fn find_registry(project: &Path, environment: &Environment) -> (PathBuf, Option<PathBuf>) {
    let default_file = project.join("mcp.json");
    let Some(file) = PROJECT_FILES.iter().map(|name| project.join(name)).find(|path| path.is_file()) else {
        return (default_file, None);
    };
    // `check` reports problems of the project itself.
    let mut cx = Context::new(to_absolute(project, environment), environment);
    let node = parse(&to_absolute(&file, environment), &mut cx);
    let named = node.as_ref().and_then(|node| node.get("registries")?.get("mcp")?.as_text());
    match named {
        Some(named) if !named.contains("${") => (project.join(named), None),
        Some(_) => (default_file, None),
        None => (default_file, Some(file)),
    }
}

/// Takes the servers of one file and reports skipped entries.
fn take_servers(
    node: &Node,
    entries: Vec<MapEntry>,
    path: &Path,
    servers: &mut Vec<ImportedServer>,
    duplicates: &mut Vec<DuplicateServer>,
    moved: &mut SecretExtractor<'_>,
    cx: &mut Context<'_>,
) {
    let from = cx.sources.get(node.span.source).name().to_owned();
    // A key of VS Code, next to the servers.
    if let Value::Map(top) = &node.value
        && let Some(sandbox) = top.iter().find(|entry| entry.key == "sandbox")
    {
        cx.push(Problem::note(sandbox.key_span, "`sandbox` was not imported"));
    }
    for server in entries {
        cx.add_server_secrets(&server.node);
        if let Some(taken) = servers.iter().find(|taken| taken.name == server.key) {
            let message = format!("MCP server `{}` was already imported from {}", server.key, taken.from);
            cx.push(Problem::note(server.key_span, message));
            let mut entry = to_json_value(&drop_unknown(&server, cx));
            moved.extract(&server.key, &mut entry);
            let is_same = entry == taken.entry;
            duplicates.push(DuplicateServer { name: server.key, path: path.to_owned(), is_same });
            continue;
        }
        if let Some(why) = rejection_reason(&server).or_else(|| self_listing_reason(&server, cx)) {
            let message = format!("MCP server `{}` was not imported: {why}", server.key);
            cx.push(Problem::warning(server.key_span, message));
            continue;
        }
        let mut entry = to_json_value(&drop_unknown(&server, cx));
        moved.extract(&server.key, &mut entry);
        servers.push(ImportedServer { name: server.key, entry, from: from.clone(), path: path.to_owned() });
    }
}

/// Returns the reason why `check` would reject an entry in any environment.
fn rejection_reason(server: &MapEntry) -> Option<String> {
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
    other.map(|scheme| format!("`{scheme}://` URLs are not supported"))
}

/// Returns the reason to skip an entry that runs Toolgate on this project, as `toolgate connect` writes it.
fn self_listing_reason(server: &MapEntry, cx: &Context<'_>) -> Option<String> {
    let command = server.node.get("command").and_then(Node::as_text)?;
    let args = match server.node.get("args").map(|args| &args.value) {
        Some(Value::List(args)) => args.iter().filter_map(Node::as_text).collect(),
        _ => Vec::new(),
    };
    let cwd = server.node.get("cwd").and_then(Node::as_text).map_or_else(PathBuf::new, PathBuf::from);
    let runs = self_listing::runs_project(command, &args, &cx.project.join(cwd), &cx.project);
    runs.then(|| "it runs Toolgate on this project".to_owned())
}

/// Returns the servers of a file of any dialect, including Claude Code's servers per folder. Warns if there are none.
fn entries(node: &Node, cx: &mut Context<'_>) -> Vec<MapEntry> {
    let problems_before = cx.problems.len();
    let folder = cx.project.display().to_string();
    let of_folder = node.get("projects").and_then(|projects| projects.get(&folder)).map(mcp::servers);
    let path = cx.sources.get(node.span.source).path().unwrap_or(Path::new("")).to_owned();
    let mut entries = match Dialect::detect(node, &path) {
        Some(dialect) => dialect.servers(node, cx),
        // HoloDeck's own configuration has a list of servers, not a map.
        None => Vec::new(),
    };
    if entries.is_empty() && matches!(node.get("mcp_servers").map(|list| &list.value), Some(Value::List(_))) {
        entries = Dialect::Agent.servers(node, cx);
    }
    let mut all = of_folder.unwrap_or_default();
    all.extend(entries);
    if all.is_empty() && cx.problems.len() == problems_before {
        let from = cx.sources.get(node.span.source).name().to_owned();
        let nothing = Problem::without_span(format!("`{from}` holds no MCP servers"));
        cx.push(Problem { severity: Severity::Warning, ..nothing });
    }
    all
}

/// Removes keys that Toolgate does not have, and reports each of them.
fn drop_unknown(server: &MapEntry, cx: &mut Context<'_>) -> Node {
    let mut tables: Vec<KeyTable> = Vec::new();
    ServerFile::tables(&mut tables);
    let keys = &tables[0].keys;
    let mut node = server.node.clone();
    let Value::Map(entries) = &mut node.value else { return node };
    entries.retain(|entry| {
        let known = keys.iter().any(|key| key.name == entry.key || key.aliases.contains(&entry.key.as_str()));
        if !known {
            let message = format!("`{}` of MCP server `{}` was not imported", entry.key, server.key);
            cx.push(Problem::note(entry.key_span, message));
        }
        known
    });
    node
}

fn to_json_value(node: &Node) -> Json {
    serde_json::from_str(node.to_json().get()).expect("a node is valid JSON")
}

/// Adds servers and inputs to the text of `mcp.json`. Comments, order and formatting of the rest are preserved.
/// Existing servers are replaced if `replace` is set; otherwise they are kept and their names returned.
pub fn add_servers(
    text: &str,
    import: &ImportPlan,
    replace: bool,
) -> Result<(String, Vec<String>), DocumentError> {
    let mut document = RegistryDocument::parse(EntryKind::Server, text)?;
    let mut left = Vec::new();
    for ImportedServer { name, entry, .. } in &import.servers {
        let entry = entry.as_object().cloned().unwrap_or_default();
        let act = match document.entry(name) {
            None => EntryAction::Add(entry),
            Some(_) if replace => EntryAction::Replace(entry),
            Some(_) => {
                left.push(name.clone());
                continue;
            }
        };
        document.apply(name, &act).expect("existing entries are replaced, missing ones are added");
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
    let mut top = EntryList::parse(&document.text())?;
    if top.get("inputs").is_none() {
        top.push(Some("inputs"), &Json::Array(Vec::new()));
    }
    let shape = || DocumentError::Shape("inputs".to_owned());
    let mut inputs = top.inner("inputs").ok_or_else(shape)?.map_err(|_| shape())?;
    let id = |input: &str| EntryList::parse(input).ok().and_then(|input| Some(input.get("id")?.to_owned()));
    for input in new_inputs {
        let own = Some(input["id"].to_string());
        if !inputs.values().any(|known| id(known) == own) {
            inputs.push(None, input);
        }
    }
    top.put_inner("inputs", &inputs);
    Ok((top.text(), left))
}
