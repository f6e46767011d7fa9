//! Differences between the files of clients: where each has its servers, and keys of its own.

use std::path::{Path, PathBuf};

use super::ClientProgram;
use crate::context::{Context, Environment};
use crate::dialect::goose::with_braces;
use crate::load::parse;
use crate::node::{MapEntry, Node, ScalarKind, Value};

/// Servers that Claude Code does not use.
#[derive(Default)]
pub(super) struct DisabledServers {
    /// Names in any file.
    everywhere: Vec<String>,
    /// Names in `.mcp.json`.
    in_mcp_json: Vec<String>,
}

impl DisabledServers {
    /// Reads the lists of Claude Code for these folders.
    pub(super) fn read(folders: &[PathBuf], environment: &Environment, cx: &mut Context<'_>) -> Self {
        let mut lists = Self::default();
        let home = environment.home.clone().unwrap_or_default();
        let names = |node: &Node, key: &str| -> Vec<String> {
            match node.get(key).map(|list| &list.value) {
                Some(Value::List(items)) => {
                    items.iter().filter_map(|item| item.as_text().map(str::to_owned)).collect()
                }
                _ => Vec::new(),
            }
        };
        let mut settings = vec![home.join(".claude/settings.json")];
        for folder in folders {
            settings.push(folder.join(".claude/settings.json"));
            settings.push(folder.join(".claude/settings.local.json"));
        }
        for node in settings.iter().filter(|path| path.is_file()).filter_map(|path| parse(path, cx)) {
            lists.in_mcp_json.extend(names(&node, "disabledMcpjsonServers"));
        }
        let own = home.join(".claude.json");
        let Some(node) = own.is_file().then(|| parse(&own, cx)).flatten() else { return lists };
        for folder in folders {
            let key = folder.display().to_string();
            let Some(project) = node.get("projects").and_then(|projects| projects.get(&key)) else {
                continue;
            };
            lists.everywhere.extend(names(project, "disabledMcpServers"));
            lists.in_mcp_json.extend(names(project, "disabledMcpjsonServers"));
        }
        lists
    }

    /// Returns true if Claude Code does not use the server of this name in this file.
    pub(super) fn contains(&self, name: &str, file: &Path) -> bool {
        let has = |list: &[String]| list.iter().any(|known| known == name);
        has(&self.everywhere) || file.ends_with(".mcp.json") && has(&self.in_mcp_json)
    }
}

/// Returns the places of the servers in a file of a client, each as the keys that lead there.
pub(crate) fn server_places(client: ClientProgram, folders: &[PathBuf]) -> Vec<Vec<String>> {
    let place = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
    match client {
        ClientProgram::VsCode => {
            vec![place(&["servers"]), place(&["mcp", "servers"]), place(&["mcp.servers"])]
        }
        ClientProgram::ClaudeCode => {
            let of_folder =
                |folder: &PathBuf| place(&["projects", &folder.display().to_string(), "mcpServers"]);
            folders.iter().map(of_folder).chain([place(&["mcpServers"])]).collect()
        }
        ClientProgram::Codex => vec![place(&["mcp_servers"])],
        ClientProgram::Zed => vec![place(&["context_servers"])],
        ClientProgram::Goose => vec![place(&["extensions"])],
        _ => vec![place(&["mcpServers"])],
    }
}

/// Returns the servers in a JSON file of a client, with the keys of Toolgate.
pub(super) fn servers(node: &Node, client: ClientProgram, folders: &[PathBuf]) -> Vec<MapEntry> {
    let mut all = Vec::new();
    for place in server_places(client, folders) {
        let found = place.iter().try_fold(node, |node, key| node.get(key));
        if let Some(Value::Map(entries)) = found.map(|found| &found.value) {
            all.extend(entries.iter().map(|entry| normalize(entry, Some(client))));
        }
    }
    all
}

/// Renames the keys that clients have for ours.
pub(super) fn normalize(server: &MapEntry, client: Option<ClientProgram>) -> MapEntry {
    let mut server = server.clone();
    if client == Some(ClientProgram::Gemini) {
        server.node = with_braces(&server.node);
    }
    let Value::Map(keys) = &mut server.node.value else { return server };
    // Earlier versions of Zed have the program below `command`.
    if let Some(at) = keys.iter().position(|entry| entry.key == "command")
        && let Value::Map(program) = keys[at].node.value.clone()
    {
        keys.remove(at);
        keys.extend(program);
    }
    for entry in keys.iter_mut() {
        let name = match (entry.key.as_str(), client) {
            ("httpUrl" | "serverUrl", _) => "url",
            ("path", Some(ClientProgram::Zed)) => "command",
            ("includeTools", _) => "tool_allowlist",
            ("excludeTools" | "disabledTools", _) => "tool_denylist",
            ("auth", _) => {
                rename_auth(&mut entry.node);
                "oauth"
            }
            ("disabled", _) => {
                negate(&mut entry.node);
                "enabled"
            }
            ("timeout", Some(ClientProgram::Gemini)) => {
                add_unit(&mut entry.node, "ms");
                "request_timeout"
            }
            ("timeout", Some(ClientProgram::Cline)) => {
                add_unit(&mut entry.node, "s");
                "request_timeout"
            }
            _ => continue,
        };
        name.clone_into(&mut entry.key);
    }
    server
}

/// Translates the OAuth client of Cursor.
fn rename_auth(auth: &mut Node) {
    let Value::Map(keys) = &mut auth.value else { return };
    for entry in keys {
        let name = match entry.key.as_str() {
            "CLIENT_ID" => "client_id",
            "CLIENT_SECRET" => "client_secret",
            _ => continue,
        };
        name.clone_into(&mut entry.key);
    }
}

fn negate(node: &mut Node) {
    if let Value::Scalar(scalar) = &mut node.value
        && scalar.kind == ScalarKind::Bool
    {
        scalar.text = (scalar.text != "true").to_string();
    }
}

fn add_unit(node: &mut Node, unit: &str) {
    if let Value::Scalar(scalar) = &mut node.value
        && scalar.kind == ScalarKind::Number
    {
        *node = Node::string(node.span, format!("{}{unit}", scalar.text));
    }
}

/// Marks a server as disabled.
pub(super) fn disable(server: &mut MapEntry) {
    let span = server.node.span;
    let Value::Map(keys) = &mut server.node.value else { return };
    keys.retain(|entry| entry.key != "enabled");
    let node = Node::scalar(span, ScalarKind::Bool, "false");
    keys.push(MapEntry { key: "enabled".to_owned(), key_span: span, node });
}
