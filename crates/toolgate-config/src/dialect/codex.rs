//! `config.toml` of Codex: `[mcp_servers.NAME]` tables with Codex's own keys.

use crate::context::Context;
use crate::keys::report_wrong_kind;
use crate::node::{MapEntry, Node, ScalarKind, Value};
use crate::problem::Problem;
use crate::source::Span;

/// Returns every server, with our keys and unresolved values.
pub(crate) fn servers(node: &Node, cx: &mut Context<'_>) -> Vec<MapEntry> {
    let Value::Map(top) = &node.value else { return Vec::new() };
    let mut servers = Vec::new();
    for entry in top {
        match (&entry.key[..], &entry.node.value) {
            ("mcp_servers", Value::Map(entries)) => {
                servers.extend(
                    entries.iter().map(|server| MapEntry { node: translate(server, cx), ..server.clone() }),
                );
            }
            ("mcp_servers", _) => {
                report_wrong_kind(&entry.node, "a table of servers by name is expected", cx)
            }
            _ => cx.push(Problem::note(entry.key_span, format!("`{}` is not used", entry.key))),
        }
    }
    servers
}

fn translate(server: &MapEntry, cx: &mut Context<'_>) -> Node {
    let span = server.node.span;
    let Value::Map(keys) = &server.node.value else { return server.node.clone() };
    let mut ours: Vec<MapEntry> = Vec::new();
    let mut env: Vec<MapEntry> = Vec::new();
    let mut headers: Vec<MapEntry> = Vec::new();
    let mut defaults: Vec<MapEntry> = Vec::new();
    for key in keys {
        let same = |name: &str| MapEntry { key: name.to_owned(), ..key.clone() };
        match &key.key[..] {
            "command" | "args" | "cwd" | "url" | "enabled" => ours.push(key.clone()),
            "env" => entries_or_whole(key, "env", &mut env, &mut ours),
            "env_vars" => env.extend(references(&key.node)),
            "http_headers" => entries_or_whole(key, "headers", &mut headers, &mut ours),
            "env_http_headers" => headers.extend(map_entries(&key.node).map(|header| reference(&header, ""))),
            "bearer_token_env_var" => {
                headers.push(MapEntry { key: "Authorization".to_owned(), ..reference(key, "Bearer ") })
            }
            "startup_timeout_sec" => ours.push(same("timeout")),
            "tool_timeout_sec" => {
                ours.push(same("request_timeout"));
                defaults.push(same("timeout"));
            }
            "supports_parallel_tool_calls" => defaults.push(same("parallel_capable")),
            "enabled_tools" => ours.push(same("tool_allowlist")),
            "disabled_tools" => ours.push(same("tool_denylist")),
            "required" => {
                let word = if key.node.as_text() == Some("true") { "required" } else { "optional" };
                ours.push(MapEntry {
                    key: "startup".to_owned(),
                    node: Node::string(key.node.span, word),
                    ..key.clone()
                });
            }
            other => {
                let message = format!("`{other}` in MCP server `{}` is not used", server.key);
                cx.push(Problem::note(key.key_span, message));
            }
        }
    }
    for (key, entries) in [("env", env), ("headers", headers), ("default_tool_config", defaults)] {
        if !entries.is_empty() {
            ours.push(MapEntry {
                key: key.to_owned(),
                key_span: span,
                node: Node { span, value: Value::Map(entries) },
            });
        }
    }
    Node { span, value: Value::Map(ours) }
}

/// Collects the entries of a map. Any other value is passed on as it is, so that it is reported later.
pub(crate) fn entries_or_whole(
    key: &MapEntry,
    name: &str,
    entries: &mut Vec<MapEntry>,
    ours: &mut Vec<MapEntry>,
) {
    match &key.node.value {
        Value::Map(found) => entries.extend(found.iter().cloned()),
        _ => ours.push(MapEntry { key: name.to_owned(), ..key.clone() }),
    }
}

pub(crate) fn map_entries(node: &Node) -> impl Iterator<Item = MapEntry> + use<> {
    match &node.value {
        Value::Map(entries) => entries.clone().into_iter(),
        _ => Vec::new().into_iter(),
    }
}

/// Converts `["A", "B"]` to `{A: ${A}, B: ${B}}`. Codex also accepts `{name = "A"}` as a name.
pub(crate) fn references(node: &Node) -> Vec<MapEntry> {
    let Value::List(names) = &node.value else { return Vec::new() };
    let entry = |name: &Node| {
        let text = name.get("name").unwrap_or(name).as_text()?;
        Some(MapEntry { key: text.to_owned(), key_span: name.span, node: variable(name.span, "", text) })
    };
    names.iter().filter_map(entry).collect()
}

/// Replaces the value `NAME` of an entry by `${NAME}`.
fn reference(entry: &MapEntry, before: &str) -> MapEntry {
    let name = entry.node.as_text().unwrap_or_default();
    MapEntry { node: variable(entry.node.span, before, name), ..entry.clone() }
}

fn variable(span: Span, before: &str, name: &str) -> Node {
    Node::scalar(span, ScalarKind::String, format!("{before}${{{name}}}"))
}
