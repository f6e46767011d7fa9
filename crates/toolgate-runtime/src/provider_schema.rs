//! Adapts tool schemas to the schema dialect of a model provider, and maps arguments back.
//!
//! Unsupported keywords are rewritten, or moved to the description, where the model still reads them. The tool's own
//! schema is checked at the call. Invariant: adapting never fails. A schema that cannot be adapted is shown as one that
//! accepts any arguments, with the reason.

use serde_json::{Map, Value, json};
use toolgate_types::profile::SchemaDialect;

mod arguments;
mod gemini;
mod inline;
mod names;
mod openai;

pub use arguments::ArgumentMapping;
use gemini::gemini;
use inline::inline_refs;
use names::safe_argument;
pub use names::{safe_name, short_hash};
use openai::openai;

/// Longest description OpenAI accepts.
const MAX_DESCRIPTION: usize = 1_024;
/// Maximum length of a keyword described in the description.
const MAX_NOTE: usize = 200;
/// Argument that holds all arguments, if the schema cannot be adapted.
const ARGUMENTS: &str = "arguments";

/// A definition adapted to a provider.
#[derive(Debug, Default, PartialEq)]
pub struct ProviderDefinition {
    pub description: String,
    /// Schema of the arguments.
    pub schema: Value,
    /// Maps arguments back.
    pub mapping: ArgumentMapping,
    /// Notes for operators.
    pub notes: Vec<String>,
}

/// Adapts a definition to a provider.
pub fn adapt_definition(description: &str, schema: &Value, provider: SchemaDialect) -> ProviderDefinition {
    let mut out = ProviderDefinition { description: description.to_owned(), ..ProviderDefinition::default() };
    match shape_schema(schema, provider) {
        Ok((schema, mapping, notes)) => {
            (out.schema, out.mapping) = (schema, mapping);
            append_notes(&mut out.description, &notes);
        }
        Err(reason) => {
            out.notes.push(format!("it is shown with a schema that accepts any arguments: {reason}"));
            append_notes(
                &mut out.description,
                &[format!("Its input schema is not shown: {reason}. Its errors describe invalid arguments.")],
            );
            if provider != SchemaDialect::Anthropic {
                // Gemini, and OpenAI in strict mode, fill in named properties only: an object without any would always
                // be empty.
                let all = json!({ "type": "string", "description": "All arguments, as a string that holds a JSON object." });
                out.schema = json!({ "type": "object", "properties": { ARGUMENTS: all } });
                out.mapping = ArgumentMapping { whole: Some(ARGUMENTS), ..ArgumentMapping::default() };
            } else {
                out.schema = json!({ "type": "object", "properties": {}, "additionalProperties": true });
            }
        }
    }
    if matches!(provider, SchemaDialect::Openai | SchemaDialect::Any)
        && out.description.chars().count() > MAX_DESCRIPTION
    {
        out.notes.push(format!("its description is truncated to {MAX_DESCRIPTION} characters"));
        out.description = out.description.chars().take(MAX_DESCRIPTION - 1).chain(['…']).collect();
    }
    out
}

fn shape_schema(
    schema: &Value,
    provider: SchemaDialect,
) -> Result<(Value, ArgumentMapping, Vec<String>), String> {
    let schema = inline_refs(schema).map_err(|error| error.to_string())?;
    let mut notes = Vec::new();
    let root = flatten(schema, &mut notes).ok_or("its schema does not describe an object")?;
    let is_object = match root.get("type") {
        None => true,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        Some(kind) => kind == "object",
    };
    if !is_object {
        return Err("its arguments are not an object".to_owned());
    }
    let mut root = root;
    root.insert("type".to_owned(), "object".into());
    root.entry("properties").or_insert_with(|| json!({}));
    let (schema, mapping) = match provider {
        SchemaDialect::Gemini | SchemaDialect::Any => gemini(root, true),
        SchemaDialect::Openai => openai(root, true),
        SchemaDialect::Anthropic => plain_schema(root),
    };
    Ok((Value::Object(schema), mapping, notes))
}

/// Appends notes to a description, each truncated.
pub(super) fn append_notes(description: &mut String, notes: &[String]) {
    for note in notes.iter().filter(|note| !note.is_empty()) {
        let note: String = if note.chars().count() > MAX_NOTE {
            note.chars().take(MAX_NOTE - 1).chain(['…']).collect()
        } else {
            note.clone()
        };
        if !description.is_empty() {
            description.push(if description.ends_with('\n') { '\n' } else { ' ' });
        }
        description.push_str(&note);
    }
}

/// Merges `allOf`, `anyOf`, `oneOf` and similar keywords into one object schema. It accepts values of any branch;
/// the rest becomes notes. `None` if the value is not a schema.
pub(super) fn flatten(schema: Value, notes: &mut Vec<String>) -> Option<Map<String, Value>> {
    let mut out = match schema {
        Value::Object(members) => members,
        Value::Bool(true) => Map::new(),
        _ => return None,
    };
    if let Some(Value::Array(all)) = out.remove("allOf") {
        out.remove("additionalProperties");
        for branch in all.into_iter().filter_map(|branch| flatten(branch, notes)) {
            for name in required(&branch) {
                require(&mut out, &name);
            }
            merge_schema(&mut out, branch);
        }
    }
    for keyword in ["anyOf", "oneOf"] {
        let Some(Value::Array(branches)) = out.remove(keyword) else { continue };
        let branches: Vec<_> = branches.into_iter().filter_map(|branch| flatten(branch, notes)).collect();
        let alternatives: Vec<Vec<String>> = branches.iter().map(required).collect();
        let always = alternatives.first().cloned().unwrap_or_default();
        for name in
            always.iter().filter(|name| alternatives.iter().all(|alternative| alternative.contains(name)))
        {
            require(&mut out, name);
        }
        if branches.iter().any(|branch| branch.contains_key("properties")) {
            out.remove("additionalProperties");
        }
        let listed: Vec<_> = alternatives
            .iter()
            .filter(|alternative| !alternative.is_empty())
            .map(|alternative| alternative.join(" and "))
            .collect();
        if listed.len() > 1 {
            notes.push(format!("It needs {}.", listed.join(", or ")));
        }
        for branch in branches {
            merge_schema(&mut out, branch);
        }
    }
    for keyword in ["not", "enum", "const", "if", "then", "else", "dependentSchemas"] {
        if let Some(value) = out.remove(keyword) {
            notes.push(format!("{keyword}: {value}."));
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

/// Merges another schema of the same value, except for its required properties.
fn merge_schema(out: &mut Map<String, Value>, other: Map<String, Value>) {
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

/// A schema for the values of either of two.
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

/// JSON Schema for Anthropic: valid argument names.
fn plain_schema(schema: Map<String, Value>) -> (Map<String, Value>, ArgumentMapping) {
    let (mut out, mut mapping) = (Map::new(), ArgumentMapping::default());
    for (keyword, value) in schema {
        let value = match (keyword.as_str(), value) {
            ("properties", Value::Object(all)) => {
                Value::Object(properties(all, &mut mapping, safe_argument, plain_value))
            }
            ("items", Value::Array(all)) => {
                // Tuple form of older drafts.
                out.insert("prefixItems".to_owned(), all.into());
                json!({})
            }
            ("items", schema) => {
                let (schema, inner) = plain_value(schema);
                mapping.items = (!inner.is_empty()).then(|| Box::new(inner));
                schema
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(all)) => all
                .into_iter()
                .map(|branch| {
                    let (branch, inner) = plain_value(branch);
                    mapping.any.extend((!inner.is_empty()).then_some(inner));
                    branch
                })
                .collect(),
            (_, value) => value,
        };
        out.insert(keyword, value);
    }
    rename_required(&mut out, &mapping);
    (out, mapping)
}

fn plain_value(schema: Value) -> (Value, ArgumentMapping) {
    match schema {
        Value::Object(members) => {
            let (members, mapping) = plain_schema(members);
            (Value::Object(members), mapping)
        }
        other => (other, ArgumentMapping::default()),
    }
}

/// Adapts properties under valid names.
pub(super) fn properties(
    all: Map<String, Value>,
    mapping: &mut ArgumentMapping,
    rename: impl Fn(&str) -> String,
    inner: impl Fn(Value) -> (Value, ArgumentMapping),
) -> Map<String, Value> {
    let mut out = Map::new();
    for (name, schema) in all {
        if schema == Value::Bool(false) {
            continue;
        }
        let shown = rename(&name);
        let (schema, of) = inner(schema);
        mapping.put(&shown, of);
        if shown != name {
            mapping.names.insert(shown.clone(), name);
        }
        out.insert(shown, schema);
    }
    out
}

/// Replaces original names by shown names in `required`.
pub(super) fn rename_required(out: &mut Map<String, Value>, mapping: &ArgumentMapping) {
    if mapping.names.is_empty() {
        return;
    }
    let shown = |name: &Value| {
        let found = mapping.names.iter().find(|(_, own)| name == own.as_str());
        found.map_or_else(|| name.clone(), |(shown, _)| shown.as_str().into())
    };
    if let Some(Value::Array(names)) = out.get_mut("required") {
        *names = names.iter().map(shown).collect();
    }
}

#[cfg(test)]
mod tests;
