//! Schemas in the words of a provider of models, and how arguments come back from them.
//!
//! What a provider refuses is written in another way, or moves into the description, where a model still reads it. The
//! tool's own schema decides when it is called. Invariant: a schema is never refused: one that cannot be written is
//! shown as one that takes any arguments, and the reason is told.

use serde_json::{Map, Value, json};
use toolgate_types::profile::Provider;

use super::gemini::gemini;
use super::inline::inlined;
use super::names::safe_argument;
use super::undo::Undo;

/// The longest description that OpenAI takes.
const LONGEST_DESCRIPTION: usize = 1_024;
/// What of a keyword is told in words.
const LONGEST_NOTE: usize = 200;
/// The argument that holds all, where there is no schema that a provider takes.
const ALL: &str = "arguments";

/// A definition in the words of a provider.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Written {
    /// What the tool does.
    pub(super) description: String,
    /// The schema of its arguments.
    pub(super) schema: Value,
    /// How arguments come back.
    pub(super) undo: Undo,
    /// What people should know of it.
    pub(super) notes: Vec<String>,
}

/// A definition in the words of a provider.
pub(super) fn written(description: &str, schema: &Value, provider: Provider) -> Written {
    let mut out = Written { description: description.to_owned(), ..Written::default() };
    match shaped(schema, provider) {
        Ok((schema, undo, told)) => {
            (out.schema, out.undo) = (schema, undo);
            add(&mut out.description, &told);
        }
        Err(why) => {
            out.notes.push(format!("it is shown as one that takes any arguments: {why}"));
            add(
                &mut out.description,
                &[format!("What it takes is not shown: {why}. It says what is wrong.")],
            );
            if matches!(provider, Provider::Gemini | Provider::Any) {
                // An object without properties would always be empty there.
                let all = json!({ "type": "string", "description": "All arguments, as the text of a JSON object." });
                out.schema = json!({ "type": "object", "properties": { ALL: all } });
                out.undo = Undo { whole: Some(ALL), ..Undo::default() };
            } else {
                out.schema = json!({ "type": "object", "properties": {}, "additionalProperties": true });
            }
        }
    }
    if matches!(provider, Provider::Openai | Provider::Any)
        && out.description.chars().count() > LONGEST_DESCRIPTION
    {
        out.notes.push(format!("its description is cut after {LONGEST_DESCRIPTION} characters"));
        out.description = out.description.chars().take(LONGEST_DESCRIPTION - 1).chain(['…']).collect();
    }
    out
}

fn shaped(schema: &Value, provider: Provider) -> Result<(Value, Undo, Vec<String>), String> {
    let schema = inlined(schema).map_err(|error| error.to_string())?;
    let mut told = Vec::new();
    let root = flat(schema, &mut told).ok_or("it is no schema of an object")?;
    let is_object = match root.get("type") {
        None => true,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        Some(kind) => kind == "object",
    };
    if !is_object {
        return Err("its arguments are no object".to_owned());
    }
    let mut root = root;
    root.insert("type".to_owned(), "object".into());
    root.entry("properties").or_insert_with(|| json!({}));
    let (schema, undo) = match provider {
        Provider::Gemini | Provider::Any => gemini(root, true),
        Provider::Openai | Provider::Anthropic => plain(root, provider),
    };
    Ok((Value::Object(schema), undo, told))
}

/// Adds what moved out of a schema to a description.
pub(super) fn add(description: &mut String, told: &[String]) {
    for note in told.iter().filter(|note| !note.is_empty()) {
        let note: String = if note.chars().count() > LONGEST_NOTE {
            note.chars().take(LONGEST_NOTE - 1).chain(['…']).collect()
        } else {
            note.clone()
        };
        if !description.is_empty() {
            description.push(if description.ends_with('\n') { '\n' } else { ' ' });
        }
        description.push_str(&note);
    }
}

/// An object without `allOf`, `anyOf`, `oneOf` and the like around it: what any of them takes is shown, and the rest is
/// told. `None` where it is no schema.
pub(super) fn flat(schema: Value, told: &mut Vec<String>) -> Option<Map<String, Value>> {
    let mut out = match schema {
        Value::Object(members) => members,
        Value::Bool(true) => Map::new(),
        _ => return None,
    };
    if let Some(Value::Array(all)) = out.remove("allOf") {
        out.remove("additionalProperties");
        for branch in all.into_iter().filter_map(|branch| flat(branch, told)) {
            for name in required(&branch) {
                require(&mut out, &name);
            }
            take_over(&mut out, branch);
        }
    }
    for keyword in ["anyOf", "oneOf"] {
        let Some(Value::Array(branches)) = out.remove(keyword) else { continue };
        let branches: Vec<_> = branches.into_iter().filter_map(|branch| flat(branch, told)).collect();
        let ways: Vec<Vec<String>> = branches.iter().map(required).collect();
        let always = ways.first().cloned().unwrap_or_default();
        for name in always.iter().filter(|name| ways.iter().all(|way| way.contains(name))) {
            require(&mut out, name);
        }
        if branches.iter().any(|branch| branch.contains_key("properties")) {
            out.remove("additionalProperties");
        }
        let listed: Vec<_> = ways.iter().filter(|way| !way.is_empty()).map(|way| way.join(" and ")).collect();
        if listed.len() > 1 {
            told.push(format!("It needs {}.", listed.join(", or ")));
        }
        for branch in branches {
            take_over(&mut out, branch);
        }
    }
    for keyword in ["not", "enum", "const", "if", "then", "else", "dependentSchemas"] {
        if let Some(value) = out.remove(keyword) {
            told.push(format!("{keyword}: {value}."));
        }
    }
    Some(out)
}

fn required(schema: &Map<String, Value>) -> Vec<String> {
    let names = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    names.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn require(schema: &mut Map<String, Value>, name: &str) {
    let names = schema.entry("required").or_insert_with(|| json!([]));
    if let Value::Array(names) = names
        && names.iter().all(|known| known != name)
    {
        names.push(name.into());
    }
}

/// Adds what another schema of the same value says, but for what it demands.
fn take_over(out: &mut Map<String, Value>, other: Map<String, Value>) {
    for (keyword, value) in other {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(new)) => {
                let known = out.entry("properties").or_insert_with(|| json!({}));
                let Value::Object(known) = known else { continue };
                for (name, schema) in new {
                    match known.get_mut(&name) {
                        None => drop(known.insert(name, schema)),
                        Some(same) if *same == schema => {}
                        Some(other) => *other = either(other.take(), schema),
                    }
                }
            }
            ("required" | "additionalProperties", _) => {}
            (_, value) => drop(out.entry(keyword).or_insert(value)),
        }
    }
}

/// What one schema or the other takes.
fn either(one: Value, other: Value) -> Value {
    let mut all = match one {
        Value::Object(mut members) if members.len() == 1 && members.contains_key("anyOf") => {
            match members.remove("anyOf") {
                Some(Value::Array(all)) => all,
                _ => Vec::new(),
            }
        }
        one => vec![one],
    };
    if !all.contains(&other) {
        all.push(other);
    }
    json!({ "anyOf": all })
}

/// What OpenAI and Anthropic take: JSON Schema, with names of arguments that they know and lists that say of what.
fn plain(schema: Map<String, Value>, provider: Provider) -> (Map<String, Value>, Undo) {
    let (mut out, mut undo) = (Map::new(), Undo::default());
    let is_list = schema.get("type").is_some_and(|kind| match kind {
        Value::Array(kinds) => kinds.iter().any(|kind| kind == "array"),
        kind => kind == "array",
    });
    if is_list && provider == Provider::Openai && !schema.contains_key("items") {
        out.insert("items".to_owned(), json!({}));
    }
    for (keyword, value) in schema {
        let value = match (keyword.as_str(), value) {
            ("properties", Value::Object(all)) => {
                let rename = |name: &str| {
                    if provider == Provider::Anthropic { safe_argument(name) } else { name.to_owned() }
                };
                Value::Object(properties(all, &mut undo, rename, |schema| plain_value(schema, provider)))
            }
            ("items", Value::Array(all)) => {
                // As the oldest drafts have it.
                out.insert("prefixItems".to_owned(), all.into());
                json!({})
            }
            ("items", schema) => {
                let (schema, inner) = plain_value(schema, provider);
                undo.items = (!inner.is_empty()).then(|| Box::new(inner));
                schema
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(all)) => all
                .into_iter()
                .map(|branch| {
                    let (branch, inner) = plain_value(branch, provider);
                    undo.any.extend((!inner.is_empty()).then_some(inner));
                    branch
                })
                .collect(),
            (_, value) => value,
        };
        out.insert(keyword, value);
    }
    rename_required(&mut out, &undo);
    (out, undo)
}

fn plain_value(schema: Value, provider: Provider) -> (Value, Undo) {
    match schema {
        Value::Object(members) => {
            let (members, undo) = plain(members, provider);
            (Value::Object(members), undo)
        }
        other => (other, Undo::default()),
    }
}

/// Properties under names that are taken, each in the words of the provider.
pub(super) fn properties(
    all: Map<String, Value>,
    undo: &mut Undo,
    rename: impl Fn(&str) -> String,
    inner: impl Fn(Value) -> (Value, Undo),
) -> Map<String, Value> {
    let mut out = Map::new();
    for (name, schema) in all {
        if schema == Value::Bool(false) {
            continue;
        }
        let shown = rename(&name);
        let (schema, of) = inner(schema);
        undo.put(&shown, of);
        if shown != name {
            undo.names.insert(shown.clone(), name);
        }
        out.insert(shown, schema);
    }
    out
}

/// What is required goes by the names that are shown.
pub(super) fn rename_required(out: &mut Map<String, Value>, undo: &Undo) {
    if undo.names.is_empty() {
        return;
    }
    let shown = |name: &Value| {
        let found = undo.names.iter().find(|(_, own)| name == own.as_str());
        found.map_or_else(|| name.clone(), |(shown, _)| shown.as_str().into())
    };
    if let Some(Value::Array(names)) = out.get_mut("required") {
        *names = names.iter().map(shown).collect();
    }
}

#[cfg(test)]
mod tests;
