//! `config.yaml` of goose: `extensions`, some of which are MCP servers.

use crate::context::Context;
use crate::dialect::codex::{entries_or_whole, references};
use crate::keys::report_wrong_kind;
use crate::node::{MapEntry, Node, Scalar, ScalarKind, Value};
use crate::problem::Problem;

/// Returns every extension that is an MCP server, with our keys and unresolved values.
pub(crate) fn servers(node: &Node, cx: &mut Context<'_>) -> Vec<MapEntry> {
    let Value::Map(top) = &node.value else { return Vec::new() };
    let mut servers = Vec::new();
    for entry in top {
        if entry.key != "extensions" {
            cx.push(Problem::note(entry.key_span, format!("`{}` is not used", entry.key)));
            continue;
        }
        let Value::Map(extensions) = &entry.node.value else {
            report_wrong_kind(&entry.node, "a map of extensions by name is expected", cx);
            continue;
        };
        for extension in extensions {
            match extension.node.get("type").and_then(Node::as_text) {
                Some("stdio" | "sse" | "streamable_http") => {
                    servers.push(MapEntry { node: translate(extension, cx), ..extension.clone() });
                }
                kind => {
                    let kind = kind.unwrap_or("unknown");
                    let message = format!("extension `{}` is part of goose (type `{kind}`)", extension.key);
                    cx.push(Problem::note(extension.key_span, message));
                }
            }
        }
    }
    servers
}

fn translate(extension: &MapEntry, cx: &mut Context<'_>) -> Node {
    let span = extension.node.span;
    let Value::Map(keys) = &extension.node.value else { return extension.node.clone() };
    let mut ours: Vec<MapEntry> = Vec::new();
    let mut env: Vec<MapEntry> = Vec::new();
    for key in keys {
        let same =
            |name: &str| MapEntry { key: name.to_owned(), node: with_braces(&key.node), ..key.clone() };
        match &key.key[..] {
            "type" => ours.push(same("transport")),
            "cmd" => ours.push(same("command")),
            "args" | "headers" | "cwd" | "enabled" | "description" => ours.push(same(&key.key)),
            "uri" => ours.push(same("url")),
            "envs" => entries_or_whole(&same("env"), "env", &mut env, &mut ours),
            "env_keys" => env.extend(references(&key.node)),
            "timeout" => ours.push(same("request_timeout")),
            "available_tools" => ours.push(same("tool_allowlist")),
            // Display names, and the flag of bundled extensions.
            "name" | "display_name" | "bundled" => {}
            other => {
                let message = format!("`{other}` in extension `{}` is not used", extension.key);
                cx.push(Problem::note(key.key_span, message));
            }
        }
    }
    if !env.is_empty() {
        ours.push(MapEntry {
            key: "env".to_owned(),
            key_span: span,
            node: Node { span, value: Value::Map(env) },
        });
    }
    // In goose an empty list of available tools means all tools; in Toolgate it means none.
    ours.retain(|key| {
        key.key != "tool_allowlist" || !matches!(&key.node.value, Value::List(names) if names.is_empty())
    });
    Node { span, value: Value::Map(ours) }
}

/// Writes `$NAME`, which goose accepts, as `${NAME}`.
pub(crate) fn with_braces(node: &Node) -> Node {
    let value = match &node.value {
        Value::Scalar(scalar) if scalar.kind == ScalarKind::String => {
            Value::Scalar(Scalar { kind: ScalarKind::String, text: add_braces(&scalar.text) })
        }
        Value::Scalar(scalar) => Value::Scalar(scalar.clone()),
        Value::List(items) => Value::List(items.iter().map(with_braces).collect()),
        Value::Map(entries) => Value::Map(
            entries
                .iter()
                .map(|entry| MapEntry { node: with_braces(&entry.node), ..entry.clone() })
                .collect(),
        ),
    };
    Node { span: node.span, value }
}

fn add_braces(text: &str) -> String {
    let mut parts = text.split('$');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(part.len());
        let (name, rest) = part.split_at(end);
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            out.push('$');
            out.push_str(part);
        } else {
            out.push_str(&format!("${{{name}}}{rest}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_braces_to_bare_references() {
        assert_eq!(add_braces("a $HOME/x ${B} $5 $"), "a ${HOME}/x ${B} $5 $");
    }
}
