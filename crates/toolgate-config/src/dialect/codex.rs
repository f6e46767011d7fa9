//! `config.toml` of Codex: `[mcp_servers.NAME]` tables with keys of its own.

use crate::context::Context;
use crate::keys::wrong_kind;
use crate::node::{Entry, Kind, Node, Value};
use crate::problem::Problem;
use crate::source::Span;

/// Every server in our own keys, values as they were written.
pub(crate) fn servers(node: &Node, cx: &mut Context<'_>) -> Vec<Entry> {
    let Value::Map(top) = &node.value else { return Vec::new() };
    let mut servers = Vec::new();
    for entry in top {
        match (&entry.key[..], &entry.node.value) {
            ("mcp_servers", Value::Map(entries)) => {
                servers.extend(
                    entries.iter().map(|server| Entry { node: translate(server, cx), ..server.clone() }),
                );
            }
            ("mcp_servers", _) => wrong_kind(&entry.node, "a table of servers by name is expected", cx),
            _ => cx.push(Problem::note(entry.key_span, format!("`{}` is not used", entry.key))),
        }
    }
    servers
}

fn translate(server: &Entry, cx: &mut Context<'_>) -> Node {
    let span = server.node.span;
    let Value::Map(keys) = &server.node.value else { return server.node.clone() };
    let mut ours: Vec<Entry> = Vec::new();
    let mut env: Vec<Entry> = Vec::new();
    let mut headers: Vec<Entry> = Vec::new();
    let mut defaults: Vec<Entry> = Vec::new();
    for key in keys {
        let same = |name: &str| Entry { key: name.to_owned(), ..key.clone() };
        match &key.key[..] {
            "command" | "args" | "cwd" | "url" | "enabled" => ours.push(key.clone()),
            "env" => entries_or_whole(key, "env", &mut env, &mut ours),
            "env_vars" => env.extend(references(&key.node)),
            "http_headers" => entries_or_whole(key, "headers", &mut headers, &mut ours),
            "env_http_headers" => headers.extend(map_entries(&key.node).map(|header| reference(&header, ""))),
            "bearer_token_env_var" => {
                headers.push(Entry { key: "Authorization".to_owned(), ..reference(key, "Bearer ") })
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
                ours.push(Entry {
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
            ours.push(Entry {
                key: key.to_owned(),
                key_span: span,
                node: Node { span, value: Value::Map(entries) },
            });
        }
    }
    Node { span, value: Value::Map(ours) }
}

/// The entries of a map; what is none goes on as it is, to be told.
pub(crate) fn entries_or_whole(key: &Entry, name: &str, entries: &mut Vec<Entry>, ours: &mut Vec<Entry>) {
    match &key.node.value {
        Value::Map(found) => entries.extend(found.iter().cloned()),
        _ => ours.push(Entry { key: name.to_owned(), ..key.clone() }),
    }
}

pub(crate) fn map_entries(node: &Node) -> impl Iterator<Item = Entry> + use<> {
    match &node.value {
        Value::Map(entries) => entries.clone().into_iter(),
        _ => Vec::new().into_iter(),
    }
}

/// `["A", "B"]` becomes `{A: ${A}, B: ${B}}`. Codex takes `{name = "A"}` for a name as well.
pub(crate) fn references(node: &Node) -> Vec<Entry> {
    let Value::List(names) = &node.value else { return Vec::new() };
    let entry = |name: &Node| {
        let text = name.get("name").unwrap_or(name).as_text()?;
        Some(Entry { key: text.to_owned(), key_span: name.span, node: variable(name.span, "", text) })
    };
    names.iter().filter_map(entry).collect()
}

/// The entry with `${VALUE}` in the place of `VALUE`.
fn reference(entry: &Entry, before: &str) -> Entry {
    let name = entry.node.as_text().unwrap_or_default();
    Entry { node: variable(entry.node.span, before, name), ..entry.clone() }
}

fn variable(span: Span, before: &str, name: &str) -> Node {
    Node::scalar(span, Kind::String, format!("{before}${{{name}}}"))
}
