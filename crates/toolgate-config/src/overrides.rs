//! Environment variables that override the project file: `TOOLGATE__TOOLBOX__MCPS__0__MODE=dynamic`,
//! and `APP_MYAI__TOOLBOX__…` for a `myai` tree.
//!
//! They change the tree before anything reads it, so every key can be overridden and a wrong value
//! is told like any other, with the variable as its place.

use crate::context::Context;
use crate::node::{Entry, Kind, Node, Value, plain_kind};
use crate::problem::Problem;
use crate::read::{Format, read};
use crate::source::Span;

/// What stands between the names of nested keys.
const SEPARATOR: &str = "__";

/// Applies every variable with the prefix. An `APP_` variable must lead to the `myai` tree, since
/// other programs use the prefix too.
pub(crate) fn apply(root: &mut Node, prefix: &str, cx: &mut Context<'_>) {
    let environment = cx.environment;
    for (name, value) in environment.variables.iter().filter(|(name, _)| name.starts_with(prefix)) {
        let path: Vec<&str> = name[prefix.len()..].split(SEPARATOR).collect();
        if prefix == "APP_" && !path[0].eq_ignore_ascii_case("myai") {
            continue;
        }
        let id = cx.sources.add(format!("environment variable {name}"), value.clone(), None);
        let span = Span::new(id, 0, value.len());
        // `[…]` and `{…}` are lists and maps; anything else is one value.
        let node = if value.starts_with(['[', '{']) {
            match read(&cx.sources, id, Format::Yaml) {
                Ok(node) => node,
                Err(problem) => {
                    cx.push(problem);
                    continue;
                }
            }
        } else {
            Node::scalar(span, plain_kind(value), value.clone())
        };
        if let Err(wrong) = set(root, &path, node) {
            let message = format!("environment variable `{name}` leads nowhere: {wrong}");
            cx.push(
                Problem::error(span, message)
                    .hint("its parts are the keys of the project file, joined by `__`"),
            );
        }
    }
}

fn set(node: &mut Node, path: &[&str], value: Node) -> Result<(), String> {
    let Some((step, rest)) = path.split_first() else {
        *node = value;
        return Ok(());
    };
    if step.is_empty() {
        return Err("a part of it is empty".to_owned());
    }
    match &mut node.value {
        Value::Map(entries) => {
            let at = entries.iter().position(|entry| entry.key.eq_ignore_ascii_case(step));
            let at = at.unwrap_or_else(|| {
                let empty = Node { span: value.span, value: Value::Map(Vec::new()) };
                entries.push(Entry { key: step.to_lowercase(), key_span: value.span, node: empty });
                entries.len() - 1
            });
            set(&mut entries[at].node, rest, value)
        }
        Value::List(items) => {
            let named = |item: &Node| {
                let name = item.get("name").and_then(Node::as_text).unwrap_or_default();
                name.replace(|c: char| !c.is_ascii_alphanumeric(), "_").eq_ignore_ascii_case(step)
            };
            let at =
                step.parse().ok().filter(|at| *at <= items.len()).or_else(|| items.iter().position(named));
            let Some(at) = at else {
                return Err(format!("the list has {} entries and none is called `{step}`", items.len()));
            };
            if at == items.len() {
                items.push(Node { span: value.span, value: Value::Map(Vec::new()) });
            }
            set(&mut items[at], rest, value)
        }
        Value::Scalar(scalar) if scalar.kind == Kind::Null => {
            node.value = Value::Map(Vec::new());
            set(node, path, value)
        }
        Value::Scalar(_) => Err(format!("there is nothing below `{step}`'s parent, which is a single value")),
    }
}
