//! Adapts schemas to the subset of JSON Schema that OpenAI accepts in strict mode, so that strict converters accept them.
//!
//! In strict mode an object has named properties only, and few keywords are known. Others are described in the
//! description. An object of any shape, and a value of any type, become a JSON string. Properties stay optional: a
//! converter that makes them required makes them nullable too, and `null` counts as absent when the tool is called.

use serde_json::{Map, Value, json};

use super::arguments::{ArgumentMapping, JsonText};
use super::{append_notes, flatten, properties};

/// Keywords that strict mode knows, besides those with schemas.
const KEYWORDS: [&str; 14] = [
    "type",
    "enum",
    "const",
    "description",
    "title",
    "required",
    "pattern",
    "multipleOf",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minItems",
    "maxItems",
];
/// Formats that strict mode knows.
const FORMATS: [&str; 9] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];
/// Keywords that say nothing about values.
const SILENT: [&str; 7] =
    ["$schema", "$id", "$comment", "$defs", "definitions", "$anchor", "additionalProperties"];

/// Adapts a schema. The top level is always an object.
pub(super) fn openai(schema: Map<String, Value>, is_top: bool) -> (Map<String, Value>, ArgumentMapping) {
    let mut notes = Vec::new();
    let schema = if is_top { schema } else { merge_branches(schema, &mut notes) };
    let (mut out, mapping) = if schema.get("anyOf").is_some_and(Value::is_array) {
        union(schema, &mut notes)
    } else {
        typed_schema(schema, is_top, &mut notes)
    };
    if !notes.is_empty() {
        let mut description = out.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
        append_notes(&mut description, &notes);
        out.insert("description".to_owned(), description.into());
    }
    (out, mapping)
}

fn inner(schema: Value) -> (Value, ArgumentMapping) {
    match schema {
        Value::Object(members) => {
            let (members, mapping) = openai(members, false);
            (Value::Object(members), mapping)
        }
        // `true` accepts any value.
        _ => {
            let (members, mapping) = openai(Map::new(), false);
            (Value::Object(members), mapping)
        }
    }
}

/// Merges `allOf`, and turns `oneOf` into `anyOf`.
fn merge_branches(mut schema: Map<String, Value>, notes: &mut Vec<String>) -> Map<String, Value> {
    if schema.contains_key("allOf") {
        schema = flatten(Value::Object(schema), notes).unwrap_or_default();
    }
    if let Some(Value::Array(more)) = schema.remove("oneOf") {
        let known = schema.entry("anyOf").or_insert_with(|| json!([]));
        if let Value::Array(known) = known {
            known.extend(more);
        }
    }
    schema
}

/// Adapts a union. Keywords beside it are described.
fn union(mut schema: Map<String, Value>, notes: &mut Vec<String>) -> (Map<String, Value>, ArgumentMapping) {
    let Some(Value::Array(branches)) = schema.remove("anyOf") else {
        return (schema, ArgumentMapping::default());
    };
    let mut mapping = ArgumentMapping::default();
    let mut out = Vec::new();
    for branch in branches {
        let (branch, of) = inner(branch);
        mapping.any.extend((!of.is_empty()).then_some(of));
        if !out.contains(&branch) {
            out.push(branch);
        }
    }
    let mut shown = Map::from_iter([("anyOf".to_owned(), Value::Array(out))]);
    for (keyword, value) in schema {
        match keyword.as_str() {
            "description" | "title" => drop(shown.insert(keyword, value)),
            "type" => {}
            keyword => note(keyword, &value, notes),
        }
    }
    (shown, mapping)
}

/// Adapts a schema without branches.
fn typed_schema(
    mut schema: Map<String, Value>,
    is_top: bool,
    notes: &mut Vec<String>,
) -> (Map<String, Value>, ArgumentMapping) {
    let has_type = |schema: &Map<String, Value>, name: &str| match schema.get("type") {
        Some(Value::Array(types)) => types.iter().any(|one| one == name),
        Some(one) => one == name,
        None => false,
    };
    if !schema.contains_key("type") {
        let guessed = if schema.contains_key("properties") {
            Some("object")
        } else if schema.contains_key("items") || schema.contains_key("prefixItems") {
            Some("array")
        } else {
            let values = schema.get("enum").and_then(Value::as_array);
            let is_strings = values.is_some_and(|all| !all.is_empty() && all.iter().all(Value::is_string));
            let is_string = is_strings || schema.get("const").is_some_and(Value::is_string);
            is_string.then_some("string")
        };
        match guessed {
            Some(guessed) => drop(schema.insert("type".to_owned(), guessed.into())),
            None if !schema.contains_key("enum") && !schema.contains_key("const") => {
                return json_text(schema, JsonText::Any, notes);
            }
            None => {}
        }
    }
    let is_object = has_type(&schema, "object");
    let names_members =
        schema.get("properties").and_then(Value::as_object).is_some_and(|all| !all.is_empty());
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    if is_object && !names_members && !is_closed && !is_top {
        return json_text(schema, JsonText::Object, notes);
    }
    let (mut out, mut mapping) = (Map::new(), ArgumentMapping::default());
    let is_array = has_type(&schema, "array");
    let mut has_items = false;
    for (keyword, value) in schema {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(all)) => {
                let all = properties(all, &mut mapping, str::to_owned, inner);
                out.insert(keyword, Value::Object(all));
            }
            ("items", value) if !value.is_array() => {
                let (items, of) = inner(value);
                mapping.items = (!of.is_empty()).then(|| Box::new(of));
                has_items = true;
                out.insert(keyword, items);
            }
            ("format", value) if value.as_str().is_some_and(|format| FORMATS.contains(&format)) => {
                out.insert(keyword, value);
            }
            (known, value) if KEYWORDS.contains(&known) => drop(out.insert(keyword, value)),
            (other, value) => note(other, &value, notes),
        }
    }
    if is_array && !has_items {
        let (items, of) = inner(Value::Bool(true));
        mapping.items = (!of.is_empty()).then(|| Box::new(of));
        out.insert("items".to_owned(), items);
    }
    if is_object {
        out.insert("additionalProperties".to_owned(), false.into());
        out.entry("properties").or_insert_with(|| json!({}));
    }
    (out, mapping)
}

/// A value that is passed as a JSON string.
fn json_text(
    mut schema: Map<String, Value>,
    of: JsonText,
    notes: &mut Vec<String>,
) -> (Map<String, Value>, ArgumentMapping) {
    let mut out = Map::from_iter([("type".to_owned(), "string".into())]);
    for keyword in ["description", "title"] {
        if let Some(value) = schema.remove(keyword) {
            out.insert(keyword.to_owned(), value);
        }
    }
    notes.push(match of {
        JsonText::Object => "A string that holds a JSON object.".to_owned(),
        JsonText::Any => "Any value, as a string that holds JSON.".to_owned(),
    });
    schema.remove("type");
    // The values of the object are worth a description, unlike in an object with named members.
    match schema.remove("additionalProperties") {
        Some(values @ Value::Object(_)) if values != json!({}) => {
            notes.push(format!("Its values: {values}."))
        }
        _ => {}
    }
    for (keyword, value) in &schema {
        note(keyword, value, notes);
    }
    (out, ArgumentMapping { text: Some(of), ..ArgumentMapping::default() })
}

fn note(keyword: &str, value: &Value, notes: &mut Vec<String>) {
    if !SILENT.contains(&keyword) && *value != Value::Null && *value != json!({}) {
        notes.push(format!("{keyword}: {value}."));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapted(schema: Value) -> (Value, ArgumentMapping) {
        let Value::Object(schema) = schema else { panic!("an object") };
        let (schema, mapping) = openai(schema, true);
        (Value::Object(schema), mapping)
    }

    /// The rules of strict mode, for a schema and all below it.
    fn check_strict(schema: &Value) {
        let members = schema.as_object().expect("a schema is an object");
        if schema["type"] == "object" {
            assert_eq!(schema["additionalProperties"], false, "{schema}");
        }
        assert!(
            members.contains_key("type") || members.contains_key("anyOf") || members.contains_key("enum"),
            "{schema}"
        );
        for keyword in ["default", "patternProperties", "oneOf", "allOf", "not", "minLength", "prefixItems"] {
            assert!(!members.contains_key(keyword), "{schema}");
        }
        members
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .for_each(|(_, one)| check_strict(one));
        members.get("items").into_iter().for_each(check_strict);
        members.get("anyOf").and_then(Value::as_array).into_iter().flatten().for_each(check_strict);
    }

    #[test]
    fn adapts_to_strict_mode() {
        let (schema, mapping) = adapted(json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object", "additionalProperties": true,
            "required": ["path"],
            "properties": {
                "path": { "type": "string", "minLength": 1, "format": "uri", "description": "A path." },
                "when": { "type": "string", "format": "date-time", "default": "now" },
                "labels": { "type": "object", "additionalProperties": { "type": "string" } },
                "value": {},
                "list": { "type": "array" },
                "pair": { "type": "array", "items": [{ "type": "string" }, { "type": "integer" }] },
                "choice": { "oneOf": [{ "type": "string" }, { "type": "object", "properties": { "n": { "type": "integer" } } }] },
                "both": { "allOf": [{ "type": "object", "properties": { "a": { "type": "string" } } }, { "required": ["a"] }] },
                "kind": { "enum": ["a", "b"] },
            },
        }));
        check_strict(&schema);
        let shown = &schema["properties"];
        assert_eq!(schema["required"], json!(["path"]), "the others stay optional");
        assert_eq!(shown["path"]["description"], "A path. minLength: 1. format: \"uri\".");
        assert_eq!(
            shown["when"],
            json!({ "type": "string", "format": "date-time", "description": "default: \"now\"." })
        );
        assert_eq!(
            shown["labels"]["description"],
            "A string that holds a JSON object. Its values: {\"type\":\"string\"}."
        );
        assert_eq!(shown["kind"], json!({ "type": "string", "enum": ["a", "b"] }));
        let arguments =
            json!({ "path": "x", "labels": "{\"a\":\"b\"}", "value": "[1]", "list": ["1", "\"s\""] });
        let restored = json!({ "path": "x", "labels": { "a": "b" }, "value": [1], "list": [1, "s"] });
        assert_eq!(mapping.restore(arguments), restored);
    }
}
