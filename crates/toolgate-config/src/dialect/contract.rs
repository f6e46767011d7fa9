//! Tools in the words of other programs: service manifests (`scopeRequirement`, `capabilities`) and
//! tool contracts (`risk`, `required_scopes`, `constraints`).
//!
//! An entry of `tools.json` that is written so gets our keys before anything reads it. What has no
//! counterpart here is a note; where a tool would be less guarded without it, a warning.

use crate::context::Context;
use crate::node::{Entry, Kind, Node, Value};
use crate::problem::{Problem, Severity};

/// Keys that only these vocabularies have.
const OWN: [&str; 7] = [
    "scopeRequirement",
    "capabilities",
    "deprecation",
    "required_scopes",
    "risk",
    "idempotency",
    "constraints",
];

/// What becomes of a key.
enum Turned {
    /// A key of ours.
    Into(&'static str, Node),
    /// Nothing, since it says what is so anyway, or belongs to another key.
    Nothing,
    /// Nothing, which is told, with the reason.
    Unused(Severity, &'static str),
    /// It is one of ours already.
    Same,
}

/// The entry in our own keys, where it is not in them already.
pub(crate) fn translate(tool: &Node, cx: &mut Context<'_>) -> Option<Node> {
    let Value::Map(entries) = &tool.value else { return None };
    OWN.iter().find(|key| tool.get(key).is_some())?;
    let name = tool.get("name").and_then(Node::as_text).unwrap_or_default();
    let mut ours: Vec<Entry> = Vec::new();
    for (path, entry) in flattened(entries) {
        let mut unused = |severity, why: &str| {
            let message = format!("`{path}` in tool `{name}` is not used{why}");
            cx.push(Problem { severity, ..Problem::note(entry.key_span, message) });
        };
        match turned(&path, &entry.node, tool) {
            Turned::Into(key, _) if has_own(tool, key) => unused(Severity::Note, ": our own key counts more"),
            Turned::Into(key, node) => {
                ours.push(Entry { key: key.to_owned(), key_span: entry.key_span, node });
            }
            Turned::Same => ours.push(entry.clone()),
            Turned::Unused(severity, why) => unused(severity, why),
            Turned::Nothing => {}
        }
    }
    Some(Node { span: tool.span, value: Value::Map(ours) })
}

/// Every key with its path; those of the maps that we know one by one.
fn flattened(entries: &[Entry]) -> Vec<(String, &Entry)> {
    let mut flat = Vec::new();
    for entry in entries {
        let ours = entry.key == "rateLimit" && entry.node.get("requestsPerMinute").is_none();
        match &entry.node.value {
            Value::Map(inner) if !ours && (OWN.contains(&entry.key.as_str()) || entry.key == "rateLimit") => {
                flat.extend(inner.iter().map(|inner| (format!("{}.{}", entry.key, inner.key), inner)));
            }
            _ => flat.push((entry.key.clone(), entry)),
        }
    }
    flat
}

fn turned(path: &str, node: &Node, tool: &Node) -> Turned {
    let text = node.as_text().unwrap_or_default();
    let yes = text == "true" || matches!(&node.value, Value::List(items) if !items.is_empty());
    let category = |word: &str| Turned::Into("category", Node::string(node.span, word));
    match path {
        "scopeRequirement.requiredScopes" | "required_scopes" => Turned::Into("permissions", node.clone()),
        "scopeRequirement.match" if text != "all" => {
            Turned::Unused(Severity::Note, ": a caller needs every permission")
        }
        "scopeRequirement.deniedScopes" if yes => {
            Turned::Unused(Severity::Warning, ": callers who have them are not kept away")
        }
        "capabilities.idempotent" => Turned::Into("idempotent", node.clone()),
        "capabilities.timeoutMs" | "constraints.max_runtime_ms" => {
            Turned::Into("timeout", Node::string(node.span, format!("{text}ms")))
        }
        "capabilities.sideEffects" if yes => category("mutation"),
        "risk" => match text {
            "read" => category("query"),
            "write" | "admin" => category("mutation"),
            _ => Turned::Unused(Severity::Error, ": it is neither `read` nor `write` nor `admin`"),
        },
        // It wants a key to be called twice with, which nobody gives it here.
        "idempotency.required" if yes => {
            Turned::Unused(Severity::Note, ": without a key it must not be called twice")
        }
        "rateLimit.requestsPerMinute" => {
            let window = Node::scalar(node.span, Kind::Number, "60000");
            Turned::Into("rate_limit", map(node, [("max_calls", node.clone()), ("window_ms", window)]))
        }
        "deprecation.deprecated" if yes => match deprecated(node, tool) {
            Some(node) => Turned::Into("deprecated", node),
            None => Turned::Unused(Severity::Note, " without `sunsetAt` and `replacementTool`"),
        },
        "scopeRequirement.match"
        | "scopeRequirement.deniedScopes"
        | "capabilities.sideEffects"
        | "idempotency.required"
        | "deprecation.deprecated"
        | "deprecation.sunsetAt"
        | "deprecation.replacementTool" => Turned::Nothing,
        "permissions" if matches!(node.value, Value::List(_)) => Turned::Same,
        "permissions" => Turned::Unused(Severity::Warning, ": paths are not limited"),
        "service" | "priority" | "data_handling" | "metadata" => Turned::Unused(Severity::Note, ""),
        _ if path.contains('.') => Turned::Unused(Severity::Note, ""),
        _ => Turned::Same,
    }
}

/// Whether a key is written in our own words as well. Paths under `permissions` are not ours.
fn has_own(tool: &Node, key: &str) -> bool {
    tool.get(key).is_some_and(|own| key != "permissions" || matches!(own.value, Value::List(_)))
}

fn deprecated(node: &Node, tool: &Node) -> Option<Node> {
    let section = tool.get("deprecation")?;
    let since = tool.get("version").cloned().unwrap_or_else(|| Node::string(node.span, "1.0.0"));
    let replacement = section.get("replacementTool")?.clone();
    let removal_date = section.get("sunsetAt")?.clone();
    Some(map(node, [("since", since), ("replacement", replacement), ("removal_date", removal_date)]))
}

fn map<const N: usize>(place: &Node, keys: [(&str, Node); N]) -> Node {
    let entry = |(key, node): (&str, Node)| Entry { key: key.to_owned(), key_span: node.span, node };
    Node { span: place.span, value: Value::Map(keys.map(entry).into()) }
}
