//! Environment variables that override the project file: `TOOLGATE__TOOLBOX__MCPS__0__MODE=dynamic`,
//! and `APP_MYAI__TOOLBOX__…` for a `myai` tree.
//!
//! They change the tree before anything reads it, so every key can be overridden and a wrong value
//! is told like any other, with the variable as its place.

use toolgate_types::redact::looks_secret;

use crate::context::Context;
use crate::node::{Entry, Kind, Node, Value, plain_kind};
use crate::problem::Problem;
use crate::read::{Format, read};
use crate::source::{Shows, Span};

/// What the variables for a project file start with.
pub(crate) const PREFIX: &str = "TOOLGATE__";
/// What stands between the names of nested keys.
const SEPARATOR: &str = "__";
/// The most parts of a name: far more than any key is deep, and no danger to a walk over the tree.
const LONGEST_PATH: usize = 16;

/// Applies every variable with the prefix. An `APP_` variable must lead to the `myai` tree, since
/// other programs use the prefix too.
pub(crate) fn apply(root: &mut Node, prefix: &str, cx: &mut Context<'_>) {
    let environment = cx.environment;
    for (name, value) in environment.variables.iter().filter(|(name, _)| name.starts_with(prefix)) {
        let path: Vec<&str> = name[prefix.len()..].split(SEPARATOR).collect();
        if prefix != PREFIX && !path[0].eq_ignore_ascii_case("myai") {
            continue;
        }
        // Variables for a child, headers, keys: not to be shown, even where the path to them is wrong.
        let is_secret = |step: &&str| {
            looks_secret(step)
                || matches!(&*step.to_lowercase(), "auth" | "env" | "headers" | "config" | "canaries")
        };
        let id = cx.sources.add(format!("environment variable {name}"), value.clone(), None);
        let span = Span::new(id, 0, value.len());
        if path.iter().any(is_secret) {
            cx.hide(value);
            cx.sources.restrict(id, Shows::Nothing);
        }
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
        let set = match path.len() {
            _ if path.contains(&"") => Err("a part of it is empty".to_owned()),
            ..=LONGEST_PATH => set(root, &path, node, false),
            _ => Err(format!("it has more than {LONGEST_PATH} parts")),
        };
        if let Err(wrong) = set {
            let message = format!("this variable leads nowhere: {wrong}");
            cx.error(span, message, "its parts are the keys of the project file, joined by `__`");
        }
    }
}

/// Tells that there is no project file which the variables could override.
pub(crate) fn tell_unused(cx: &mut Context<'_>) {
    let environment = cx.environment;
    for (name, value) in environment.variables.iter().filter(|(name, _)| name.starts_with(PREFIX)) {
        cx.hide(value);
        let id = cx.sources.add(format!("environment variable {name}"), value.clone(), None);
        let message = format!("environment variable `{name}` overrides nothing");
        let problem = Problem::warning(Span::new(id, 0, value.len()), message);
        cx.push(problem.hint("only a project file can be overridden; for a `myai` tree write `APP_MYAI__…`"));
    }
}

fn set(node: &mut Node, path: &[&str], value: Node, verbatim: bool) -> Result<(), String> {
    let Some((step, rest)) = path.split_first() else {
        *node = value;
        return Ok(());
    };
    match &mut node.value {
        Value::Map(entries) => {
            let at = entries.iter().position(|entry| entry.key.eq_ignore_ascii_case(step));
            let at = at.unwrap_or_else(|| {
                // Keys are small letters; the variables for a child are written as they are here.
                let key = if verbatim { (*step).to_owned() } else { step.to_lowercase() };
                entries.push(Entry {
                    key,
                    key_span: value.span,
                    node: Node::scalar(value.span, Kind::Null, ""),
                });
                entries.len() - 1
            });
            let verbatim = entries[at].key == "env";
            set(&mut entries[at].node, rest, value, verbatim)
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
                items.push(Node::scalar(value.span, Kind::Null, ""));
            }
            set(&mut items[at], rest, value, false)
        }
        Value::Scalar(scalar) if scalar.kind == Kind::Null => {
            // What is not there yet becomes what the name says: an entry of a list has a number.
            node.value = if *step == "0" { Value::List(Vec::new()) } else { Value::Map(Vec::new()) };
            set(node, path, value, verbatim)
        }
        Value::Scalar(_) => Err(format!("`{step}` would be below a single value")),
    }
}
