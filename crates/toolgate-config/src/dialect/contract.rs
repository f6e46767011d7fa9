//! Tools in the vocabulary of other programs: service manifests (`scopeRequirement`, `capabilities`) and tool
//! contracts (`risk`, `required_scopes`, `constraints`).
//!
//! Such entries of `tools.json` are translated into our keys before anything reads them. Keys without a
//! counterpart get a note, or a warning if the tool is less protected without them.

use crate::context::Context;
use crate::node::{MapEntry, Node, ScalarKind, Value};
use crate::problem::{Problem, Severity};

/// Keys that only these vocabularies have.
const FOREIGN_KEYS: [&str; 7] = [
    "scopeRequirement",
    "capabilities",
    "deprecation",
    "required_scopes",
    "risk",
    "idempotency",
    "constraints",
];

/// Translation of one key.
enum KeyMapping {
    /// Becomes one of our keys.
    Rename(&'static str, Node),
    /// Dropped silently: it states the default, or is used by the translation of another key.
    Ignore,
    /// Dropped with a message and its reason.
    Unused(Severity, &'static str),
    /// Already one of our keys.
    Keep,
}

/// Translates an entry into our keys. Returns `None` if it already uses them.
pub(crate) fn translate(tool: &Node, cx: &mut Context<'_>) -> Option<Node> {
    let Value::Map(entries) = &tool.value else { return None };
    FOREIGN_KEYS.iter().find(|key| tool.get(key).is_some())?;
    let name = tool.get("name").and_then(Node::as_text).unwrap_or_default();
    let mut ours: Vec<MapEntry> = Vec::new();
    for (path, entry) in flatten_keys(entries) {
        let mut unused = |severity, why: &str| {
            let message = format!("`{path}` in tool `{name}` is not used{why}");
            cx.push(Problem { severity, ..Problem::note(entry.key_span, message) });
        };
        match map_key(&path, &entry.node, tool) {
            KeyMapping::Rename(key, _) if has_native_key(tool, key) => {
                unused(Severity::Note, ": Toolgate's own key takes precedence")
            }
            KeyMapping::Rename(key, node) => {
                ours.push(MapEntry { key: key.to_owned(), key_span: entry.key_span, node });
            }
            KeyMapping::Keep => ours.push(entry.clone()),
            KeyMapping::Unused(severity, why) => unused(severity, why),
            KeyMapping::Ignore => {}
        }
    }
    Some(Node { span: tool.span, value: Value::Map(ours) })
}

/// Returns every key with its path. Known maps are expanded into their keys.
fn flatten_keys(entries: &[MapEntry]) -> Vec<(String, &MapEntry)> {
    let mut flat = Vec::new();
    for entry in entries {
        let ours = entry.key == "rateLimit" && entry.node.get("requestsPerMinute").is_none();
        match &entry.node.value {
            Value::Map(inner)
                if !ours && (FOREIGN_KEYS.contains(&entry.key.as_str()) || entry.key == "rateLimit") =>
            {
                flat.extend(inner.iter().map(|inner| (format!("{}.{}", entry.key, inner.key), inner)));
            }
            _ => flat.push((entry.key.clone(), entry)),
        }
    }
    flat
}

fn map_key(path: &str, node: &Node, tool: &Node) -> KeyMapping {
    let text = node.as_text().unwrap_or_default();
    let yes = text == "true" || matches!(&node.value, Value::List(items) if !items.is_empty());
    let category = |word: &str| KeyMapping::Rename("category", Node::string(node.span, word));
    match path {
        "scopeRequirement.requiredScopes" | "required_scopes" => {
            KeyMapping::Rename("permissions", node.clone())
        }
        "scopeRequirement.match" if text != "all" => {
            KeyMapping::Unused(Severity::Note, ": a caller needs every permission")
        }
        "scopeRequirement.deniedScopes" if yes => {
            KeyMapping::Unused(Severity::Warning, ": callers with these scopes are not denied")
        }
        "capabilities.idempotent" => KeyMapping::Rename("idempotent", node.clone()),
        "capabilities.timeoutMs" | "constraints.max_runtime_ms" => {
            KeyMapping::Rename("timeout", Node::string(node.span, format!("{text}ms")))
        }
        "capabilities.sideEffects" if yes => category("mutation"),
        "risk" => match text {
            "read" => category("query"),
            "write" | "admin" => category("mutation"),
            _ => KeyMapping::Unused(Severity::Error, ": it is neither `read` nor `write` nor `admin`"),
        },
        // It requires an idempotency key with every call, which Toolgate does not send.
        "idempotency.required" if yes => {
            KeyMapping::Unused(Severity::Note, ": without an idempotency key it must not be repeated")
        }
        "rateLimit.requestsPerMinute" => {
            let window = Node::scalar(node.span, ScalarKind::Number, "60000");
            KeyMapping::Rename(
                "rate_limit",
                map_node(node, [("max_calls", node.clone()), ("window_ms", window)]),
            )
        }
        "deprecation.deprecated" if yes => match deprecation_node(node, tool) {
            Some(node) => KeyMapping::Rename("deprecated", node),
            None => KeyMapping::Unused(Severity::Note, " without `sunsetAt` and `replacementTool`"),
        },
        "scopeRequirement.match"
        | "scopeRequirement.deniedScopes"
        | "capabilities.sideEffects"
        | "idempotency.required"
        | "deprecation.deprecated"
        | "deprecation.sunsetAt"
        | "deprecation.replacementTool" => KeyMapping::Ignore,
        "permissions" if matches!(node.value, Value::List(_)) => KeyMapping::Keep,
        "permissions" => KeyMapping::Unused(Severity::Warning, ": paths are not limited"),
        "service" | "priority" | "data_handling" | "metadata" => KeyMapping::Unused(Severity::Note, ""),
        _ if path.contains('.') => KeyMapping::Unused(Severity::Note, ""),
        _ => KeyMapping::Keep,
    }
}

/// Returns true if our own key is also present. A map under `permissions` is not ours.
fn has_native_key(tool: &Node, key: &str) -> bool {
    tool.get(key).is_some_and(|own| key != "permissions" || matches!(own.value, Value::List(_)))
}

fn deprecation_node(node: &Node, tool: &Node) -> Option<Node> {
    let section = tool.get("deprecation")?;
    let since = tool.get("version").cloned().unwrap_or_else(|| Node::string(node.span, "1.0.0"));
    let replacement = section.get("replacementTool")?.clone();
    let removal_date = section.get("sunsetAt")?.clone();
    Some(map_node(node, [("since", since), ("replacement", replacement), ("removal_date", removal_date)]))
}

fn map_node<const N: usize>(place: &Node, keys: [(&str, Node); N]) -> Node {
    let entry = |(key, node): (&str, Node)| MapEntry { key: key.to_owned(), key_span: node.span, node };
    Node { span: place.span, value: Value::Map(keys.map(entry).into()) }
}
