//! Adapts schemas to the OpenAPI subset of Gemini. All other providers accept it, too.
//!
//! Gemini supports `type`, `nullable`, `enum` of strings, `anyOf` without siblings, `properties`, `items` and a few
//! bounds, and rejects all other keywords. Those are described in the description. An object of any shape becomes a
//! JSON string, because the model fills in named properties only.

use serde_json::{Map, Value, json};

use super::arguments::{ArgumentMapping, JsonText};
use super::names::safe_argument;
use super::{append_notes, flatten, properties, rename_required};

/// Supported keywords, by type.
const KEYWORDS_BY_TYPE: [(&str, &[&str]); 5] = [
    ("string", &["minLength", "maxLength", "pattern"]),
    ("integer", &["minimum", "maximum"]),
    ("number", &["minimum", "maximum"]),
    ("array", &["minItems", "maxItems"]),
    ("object", &[]),
];
/// Keywords to describe in the description.
const DESCRIBED_KEYWORDS: [&str; 17] = [
    "format",
    "default",
    "examples",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "uniqueItems",
    "contentEncoding",
    "contentMediaType",
    "minProperties",
    "maxProperties",
    "propertyNames",
    "dependentRequired",
    "prefixItems",
    "contains",
    "not",
    "enum",
];
/// Supported formats, by type.
const FORMATS_BY_TYPE: [(&str, &[&str]); 3] =
    [("string", &["date-time", "enum"]), ("integer", &["int32", "int64"]), ("number", &["float", "double"])];

/// Adapts a schema. The top level is always an object.
pub(super) fn gemini(schema: Map<String, Value>, is_top: bool) -> (Map<String, Value>, ArgumentMapping) {
    let mut notes = Vec::new();
    let mut schema = if is_top { schema } else { merge_branches(schema, &mut notes) };
    let mut description = schema.remove("description").and_then(into_string).unwrap_or_default();
    let (types, nullable) = take_types(&mut schema);
    let (mut out, mapping) = match types.as_slice() {
        _ if schema.contains_key("anyOf") => union(schema, &description),
        [one] => typed_schema(schema, one, is_top, &mut notes),
        [] => any_value(&mut notes),
        several => {
            let branches = several.iter().map(|type_name| {
                let mut branch = schema.clone();
                branch.insert("type".to_owned(), type_name.as_str().into());
                Value::Object(branch)
            });
            union(Map::from_iter([("anyOf".to_owned(), branches.collect())]), &description)
        }
    };
    if !out.contains_key("anyOf") {
        append_notes(&mut description, &notes);
        if !description.is_empty() && !is_top {
            out.insert("description".to_owned(), description.into());
        }
        if nullable {
            out.insert("nullable".to_owned(), true.into());
        }
    }
    (out, mapping)
}

fn into_string(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// Merges `allOf`, turns `oneOf` into `anyOf`, and flattens both around objects.
fn merge_branches(mut schema: Map<String, Value>, notes: &mut Vec<String>) -> Map<String, Value> {
    if let Some(value) = schema.remove("const") {
        schema.insert("enum".to_owned(), json!([value]));
    }
    if schema.contains_key("allOf") || schema.contains_key("properties") {
        return flatten(Value::Object(schema), notes).unwrap_or_default();
    }
    if let Some(Value::Array(more)) = schema.remove("oneOf") {
        let known = schema.entry("anyOf").or_insert_with(|| json!([]));
        if let Value::Array(known) = known {
            known.extend(more);
        }
    }
    let Some(Value::Array(branches)) = schema.remove("anyOf") else { return schema };
    let is_null = |branch: &Value| branch["type"] == "null" || branch["enum"] == json!([null]);
    let (nulls, mut branches): (Vec<_>, Vec<_>) = branches.into_iter().partition(is_null);
    if !nulls.is_empty() {
        schema.insert("nullable".to_owned(), true.into());
    }
    match (branches.len(), branches.pop()) {
        (1, Some(Value::Object(only))) => {
            for (keyword, value) in only {
                schema.entry(keyword).or_insert(value);
            }
            // The branch may contain further branches.
            merge_branches(schema, notes)
        }
        (_, Some(last)) => {
            branches.push(last);
            schema.insert("anyOf".to_owned(), branches.into());
            schema
        }
        (_, None) => schema,
    }
}

/// Types of a value except null, and true if it may be null.
fn take_types(schema: &mut Map<String, Value>) -> (Vec<String>, bool) {
    let mut nullable = schema.remove("nullable") == Some(Value::Bool(true));
    let mut types: Vec<String> = match schema.remove("type") {
        Some(Value::String(type_name)) => vec![type_name],
        Some(Value::Array(types)) => types.into_iter().filter_map(into_string).collect(),
        _ => Vec::new(),
    };
    let before = types.len();
    types.retain(|type_name| type_name != "null");
    nullable |= types.len() < before;
    types.retain(|type_name| {
        type_name == "boolean" || KEYWORDS_BY_TYPE.iter().any(|(known, _)| known == type_name)
    });
    if types.is_empty() {
        let is_strings = |all: &Vec<Value>| !all.is_empty() && all.iter().all(Value::is_string);
        if schema.contains_key("properties") || schema.contains_key("additionalProperties") {
            types.push("object".to_owned());
        } else if schema.contains_key("items") || schema.contains_key("prefixItems") {
            types.push("array".to_owned());
        } else if schema.get("enum").and_then(Value::as_array).is_some_and(is_strings) {
            types.push("string".to_owned());
        }
    }
    (types, nullable)
}

/// Adapts a union. `anyOf` must not have siblings.
fn union(mut schema: Map<String, Value>, description: &str) -> (Map<String, Value>, ArgumentMapping) {
    let Some(Value::Array(branches)) = schema.remove("anyOf") else {
        return (schema, ArgumentMapping::default());
    };
    let mut mapping = ArgumentMapping::default();
    let mut out: Vec<Value> = Vec::new();
    for branch in branches {
        let Value::Object(mut branch) = branch else { continue };
        if !description.is_empty() && !branch.contains_key("description") {
            branch.insert("description".to_owned(), description.into());
        }
        let (branch, inner) = gemini(branch, false);
        mapping.any.extend((!inner.is_empty()).then_some(inner));
        // Flatten nested unions.
        match branch.get("anyOf") {
            Some(Value::Array(inner)) => out.extend(inner.iter().cloned()),
            _ if !out.iter().any(|known| *known == Value::Object(branch.clone())) => out.push(branch.into()),
            _ => {}
        }
    }
    if out.is_empty() {
        let mut notes = vec![description.to_owned()];
        let (mut any, mapping) = any_value(&mut notes);
        any.insert("description".to_owned(), notes.join(" ").trim().into());
        return (any, mapping);
    }
    if let Some(choices) = string_choices(&out) {
        let mut one = Map::from_iter([("type".to_owned(), "string".into()), ("enum".to_owned(), choices)]);
        if !description.is_empty() {
            one.insert("description".to_owned(), description.into());
        }
        return (one, mapping);
    }
    (Map::from_iter([("anyOf".to_owned(), out.into())]), mapping)
}

/// Choices of all branches, if every branch is an `enum` of strings with the same description.
fn string_choices(branches: &[Value]) -> Option<Value> {
    let mut choices = Vec::new();
    for branch in branches {
        let is_text = branch["type"] == "string" && branch.get("title").is_none();
        if !is_text || branch.get("description") != branches[0].get("description") {
            return None;
        }
        choices.extend(branch.get("enum")?.as_array()?.iter().cloned());
    }
    Some(choices.into())
}

/// Any value, as a JSON string.
fn any_value(notes: &mut Vec<String>) -> (Map<String, Value>, ArgumentMapping) {
    notes.push("Any value, as a string that holds JSON.".to_owned());
    let out = Map::from_iter([("type".to_owned(), "string".into())]);
    (out, ArgumentMapping { text: Some(JsonText::Any), ..ArgumentMapping::default() })
}

fn typed_schema(
    mut schema: Map<String, Value>,
    type_name: &str,
    is_top: bool,
    notes: &mut Vec<String>,
) -> (Map<String, Value>, ArgumentMapping) {
    let (mut out, mut mapping) = (Map::new(), ArgumentMapping::default());
    out.insert("type".to_owned(), type_name.into());
    if let Some(title) = schema.remove("title").filter(|_| !is_top) {
        out.insert("title".to_owned(), title);
    }
    match type_name {
        "object" => {
            let all = match schema.remove("properties") {
                Some(Value::Object(all)) => all,
                _ => Map::new(),
            };
            if all.is_empty() && !is_top {
                notes.push("A JSON object, as a string.".to_owned());
                if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
                    notes.push(format!("Its values: {values}."));
                }
                out.insert("type".to_owned(), "string".into());
                return (out, ArgumentMapping { text: Some(JsonText::Object), ..ArgumentMapping::default() });
            }
            let shown = properties(all, &mut mapping, safe_argument, value_schema);
            if let Some(Value::Array(names)) = schema.remove("required") {
                out.insert("required".to_owned(), names.into());
                rename_required(&mut out, &mapping);
                // Required properties must exist.
                if let Some(Value::Array(names)) = out.get_mut("required") {
                    names.retain(|name| name.as_str().is_some_and(|name| shown.contains_key(name)));
                    if names.is_empty() {
                        out.remove("required");
                    }
                }
            }
            out.insert("properties".to_owned(), shown.into());
        }
        "array" => {
            let items = match schema.remove("items") {
                Some(items @ Value::Object(_)) => items,
                Some(Value::Array(all)) => json!({ "anyOf": all }),
                _ => match schema.remove("prefixItems") {
                    Some(Value::Array(all)) if !all.is_empty() => json!({ "anyOf": all }),
                    _ => json!({}),
                },
            };
            let (items, inner) = value_schema(items);
            mapping.items = (!inner.is_empty()).then(|| Box::new(inner));
            out.insert("items".to_owned(), items);
        }
        "string" => string_enum(&mut schema, &mut out),
        _ => {}
    }
    let of = |table: &[(&str, &'static [&'static str])]| {
        table.iter().find(|(known, _)| *known == type_name).map_or(&[][..], |(_, words)| words)
    };
    for keyword in of(&KEYWORDS_BY_TYPE) {
        out.extend(schema.remove_entry(*keyword));
    }
    let known_format =
        schema.get("format").and_then(Value::as_str).is_some_and(|it| of(&FORMATS_BY_TYPE).contains(&it));
    if known_format {
        out.extend(schema.remove_entry("format"));
    }
    describe_keywords(&schema, notes);
    (out, mapping)
}

/// Copies an `enum` of strings, without empty ones.
fn string_enum(schema: &mut Map<String, Value>, out: &mut Map<String, Value>) {
    let Some(Value::Array(all)) = schema.get("enum") else { return };
    let good: Vec<Value> =
        all.iter().filter(|one| one.as_str().is_some_and(|one| !one.is_empty())).cloned().collect();
    if good.is_empty() {
        return;
    }
    if good.len() == all.len() {
        schema.remove("enum");
    }
    out.insert("enum".to_owned(), good.into());
}

/// Describes unsupported keywords as text.
fn describe_keywords(schema: &Map<String, Value>, notes: &mut Vec<String>) {
    for keyword in DESCRIBED_KEYWORDS {
        let Some(value) = schema.get(keyword).filter(|value| **value != Value::Null) else { continue };
        notes.push(match (keyword, value) {
            ("enum", Value::Array(all)) => {
                let words: Vec<_> = all.iter().map(ToString::to_string).collect();
                format!("One of {}.", words.join(", "))
            }
            (_, Value::String(text)) => format!("{keyword}: {text}."),
            _ => format!("{keyword}: {value}."),
        });
    }
}

fn value_schema(schema: Value) -> (Value, ArgumentMapping) {
    let members = match schema {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    let (members, mapping) = gemini(members, false);
    (Value::Object(members), mapping)
}
