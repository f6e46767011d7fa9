//! Environment variables that override the project file: `TOOLGATE__TOOLBOX__MCPS__0__MODE=dynamic`, and
//! `APP_MYAI__TOOLBOX__…` for a `myai` tree.
//!
//! They change the tree before it is read. So every key can be overridden, and an invalid value is reported like
//! any other, with the variable as its location.

use toolgate_redact::looks_secret;

use crate::context::Context;
use crate::node::{MapEntry, Node, ScalarKind, Value, plain_kind};
use crate::problem::Problem;
use crate::read::{FileFormat, read};
use crate::source::{SourceVisibility, Span};

/// Prefix of variables that override a project file.
pub(crate) const PREFIX: &str = "TOOLGATE__";
/// Separator between nested keys.
const SEPARATOR: &str = "__";
/// Maximum number of parts in a name: deeper than any key, and low enough for safe recursion.
const MAX_PATH_PARTS: usize = 16;

/// Applies every variable with the prefix. `APP_` variables must address the `myai` tree, since other programs use
/// that prefix too.
pub(crate) fn apply(root: &mut Node, prefix: &str, cx: &mut Context<'_>) {
    let environment = cx.environment;
    for (name, value) in environment.variables.iter().filter(|(name, _)| name.starts_with(prefix)) {
        let path: Vec<&str> = name[prefix.len()..].split(SEPARATOR).collect();
        if prefix != PREFIX && !path[0].eq_ignore_ascii_case("myai") {
            continue;
        }
        // Environment variables of child processes, headers and keys are never shown, even if the path is invalid.
        let is_secret = |step: &&str| {
            looks_secret(step)
                || matches!(&*step.to_lowercase(), "auth" | "env" | "headers" | "config" | "canaries")
        };
        let id = cx.sources.add(format!("environment variable {name}"), value.clone(), None);
        let span = Span::new(id, 0, value.len());
        if path.iter().any(is_secret) {
            cx.hide(value);
            cx.sources.set_visibility(id, SourceVisibility::Nothing);
        }
        // `[…]` and `{…}` are parsed as lists and maps; anything else is a scalar.
        let node = if value.starts_with(['[', '{']) {
            match read(&cx.sources, id, FileFormat::Yaml) {
                Ok(node) => node,
                Err(problem) => {
                    cx.push(problem);
                    continue;
                }
            }
        } else {
            Node::scalar(span, plain_kind(value), value.clone())
        };
        let set = match path.len() {
            _ if path.contains(&"") => Err("a part of it is empty".to_owned()),
            ..=MAX_PATH_PARTS => set_path(root, &path, node, false),
            _ => Err(format!("it has more than {MAX_PATH_PARTS} parts")),
        };
        if let Err(wrong) = set {
            let message = format!("this variable has no target: {wrong}");
            cx.error(span, message, "its parts are the keys of the project file, joined by `__`");
        }
    }
}

/// Warns about override variables if there is no project file to override.
pub(crate) fn warn_unused(cx: &mut Context<'_>) {
    let environment = cx.environment;
    for (name, value) in environment.variables.iter().filter(|(name, _)| name.starts_with(PREFIX)) {
        cx.hide(value);
        let id = cx.sources.add(format!("environment variable {name}"), value.clone(), None);
        let message = format!("environment variable `{name}` overrides nothing");
        let problem = Problem::warning(Span::new(id, 0, value.len()), message);
        cx.push(problem.hint("only a project file can be overridden; for a `myai` tree write `APP_MYAI__…`"));
    }
}

fn set_path(node: &mut Node, path: &[&str], value: Node, verbatim: bool) -> Result<(), String> {
    let Some((step, rest)) = path.split_first() else {
        *node = value;
        return Ok(());
    };
    match &mut node.value {
        Value::Map(entries) => {
            let at = entries.iter().position(|entry| entry.key.eq_ignore_ascii_case(step));
            let at = at.unwrap_or_else(|| {
                // Keys are lower case; names of environment variables for a child process keep their case.
                let key = if verbatim { (*step).to_owned() } else { step.to_lowercase() };
                entries.push(MapEntry {
                    key,
                    key_span: value.span,
                    node: Node::scalar(value.span, ScalarKind::Null, ""),
                });
                entries.len() - 1
            });
            let verbatim = entries[at].key == "env";
            set_path(&mut entries[at].node, rest, value, verbatim)
        }
        Value::List(items) => {
            let named = |item: &Node| {
                let name = item.get("name").and_then(Node::as_text).unwrap_or_default();
                name.replace(|c: char| !c.is_ascii_alphanumeric(), "_").eq_ignore_ascii_case(step)
            };
            let at =
                step.parse().ok().filter(|at| *at <= items.len()).or_else(|| items.iter().position(named));
            let Some(at) = at else {
                let count = items.len();
                let entries = if count == 1 { "entry" } else { "entries" };
                return Err(format!("the list has {count} {entries} and none is called `{step}`"));
            };
            if at == items.len() {
                items.push(Node::scalar(value.span, ScalarKind::Null, ""));
            }
            set_path(&mut items[at], rest, value, false)
        }
        Value::Scalar(scalar) if scalar.kind == ScalarKind::Null => {
            // A missing value becomes a list if the next part is `0`, otherwise a map.
            node.value = if *step == "0" { Value::List(Vec::new()) } else { Value::Map(Vec::new()) };
            set_path(node, path, value, verbatim)
        }
        Value::Scalar(_) => Err(format!("`{step}` would be below a single value")),
    }
}
