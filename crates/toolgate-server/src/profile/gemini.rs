//! The part of OpenAPI's schemas that Gemini takes, which all others take, too.
//!
//! It knows `type`, `nullable`, `enum` of texts, `anyOf` alone, `properties`, `items` and a few bounds, and refuses what it
//! does not know. What else a schema says is told in words. An object of any shape becomes the text of its JSON, since a
//! model there fills in only what is named.

use serde_json::{Map, Value, json};

use super::dialect::{add, flat, properties, rename_required};
use super::names::safe_argument;
use super::undo::{TextOf, Undo};

/// Keywords that are taken as they are, by type.
const KNOWN: [(&str, &[&str]); 5] = [
    ("string", &["minLength", "maxLength", "pattern"]),
    ("integer", &["minimum", "maximum"]),
    ("number", &["minimum", "maximum"]),
    ("array", &["minItems", "maxItems"]),
    ("object", &[]),
];
/// Keywords that are told in words, where they say something.
const TOLD: [&str; 17] = [
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
/// Formats that are taken.
const FORMATS: [(&str, &[&str]); 3] =
    [("string", &["date-time", "enum"]), ("integer", &["int32", "int64"]), ("number", &["float", "double"])];

/// A schema in this language. The top is an object, whatever is in it.
pub(super) fn gemini(schema: Map<String, Value>, is_top: bool) -> (Map<String, Value>, Undo) {
    let mut told = Vec::new();
    let mut schema = if is_top { schema } else { merged(schema, &mut told) };
    let mut description = schema.remove("description").and_then(text).unwrap_or_default();
    let (kinds, nullable) = kinds(&mut schema);
    let (mut out, undo) = match kinds.as_slice() {
        _ if schema.contains_key("anyOf") => union(schema, &description),
        [one] => typed(schema, one, is_top, &mut told),
        [] => anything(&mut told),
        several => {
            let branches = several.iter().map(|kind| {
                let mut branch = schema.clone();
                branch.insert("type".to_owned(), kind.as_str().into());
                Value::Object(branch)
            });
            union(Map::from_iter([("anyOf".to_owned(), branches.collect())]), &description)
        }
    };
    if !out.contains_key("anyOf") {
        add(&mut description, &told);
        if !description.is_empty() && !is_top {
            out.insert("description".to_owned(), description.into());
        }
        if nullable {
            out.insert("nullable".to_owned(), true.into());
        }
    }
    (out, undo)
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// A schema of one value without `allOf`, with `oneOf` as `anyOf`, and without either around an object.
fn merged(mut schema: Map<String, Value>, told: &mut Vec<String>) -> Map<String, Value> {
    if let Some(value) = schema.remove("const") {
        schema.insert("enum".to_owned(), json!([value]));
    }
    if schema.contains_key("allOf") || schema.contains_key("properties") {
        return flat(Value::Object(schema), told).unwrap_or_default();
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
            // It may itself be made of others.
            merged(schema, told)
        }
        (_, Some(last)) => {
            branches.push(last);
            schema.insert("anyOf".to_owned(), branches.into());
            schema
        }
        (_, None) => schema,
    }
}

/// The types of a value but for null, and whether it may be null.
fn kinds(schema: &mut Map<String, Value>) -> (Vec<String>, bool) {
    let mut nullable = schema.remove("nullable") == Some(Value::Bool(true));
    let mut kinds: Vec<String> = match schema.remove("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.into_iter().filter_map(text).collect(),
        _ => Vec::new(),
    };
    let before = kinds.len();
    kinds.retain(|kind| kind != "null");
    nullable |= kinds.len() < before;
    kinds.retain(|kind| kind == "boolean" || KNOWN.iter().any(|(known, _)| known == kind));
    if kinds.is_empty() {
        let texts = |all: &Vec<Value>| !all.is_empty() && all.iter().all(Value::is_string);
        if schema.contains_key("properties") || schema.contains_key("additionalProperties") {
            kinds.push("object".to_owned());
        } else if schema.contains_key("items") || schema.contains_key("prefixItems") {
            kinds.push("array".to_owned());
        } else if schema.get("enum").and_then(Value::as_array).is_some_and(texts) {
            kinds.push("string".to_owned());
        }
    }
    (kinds, nullable)
}

/// One of several things: nothing else may stand beside them.
fn union(mut schema: Map<String, Value>, description: &str) -> (Map<String, Value>, Undo) {
    let Some(Value::Array(branches)) = schema.remove("anyOf") else { return (schema, Undo::default()) };
    let mut undo = Undo::default();
    let mut out: Vec<Value> = Vec::new();
    for branch in branches {
        let Value::Object(mut branch) = branch else { continue };
        if !description.is_empty() && !branch.contains_key("description") {
            branch.insert("description".to_owned(), description.into());
        }
        let (branch, inner) = gemini(branch, false);
        undo.any.extend((!inner.is_empty()).then_some(inner));
        // A union in a union is one union.
        match branch.get("anyOf") {
            Some(Value::Array(inner)) => out.extend(inner.iter().cloned()),
            _ if !out.iter().any(|known| *known == Value::Object(branch.clone())) => out.push(branch.into()),
            _ => {}
        }
    }
    if out.is_empty() {
        let mut told = vec![description.to_owned()];
        let (mut any, undo) = anything(&mut told);
        any.insert("description".to_owned(), told.join(" ").trim().into());
        return (any, undo);
    }
    if let Some(texts) = all_texts(&out) {
        let mut one = Map::from_iter([("type".to_owned(), "string".into()), ("enum".to_owned(), texts)]);
        if !description.is_empty() {
            one.insert("description".to_owned(), description.into());
        }
        return (one, undo);
    }
    (Map::from_iter([("anyOf".to_owned(), out.into())]), undo)
}

/// The texts of branches that are nothing but texts to choose from, each with the same words or none.
fn all_texts(branches: &[Value]) -> Option<Value> {
    let mut texts = Vec::new();
    for branch in branches {
        let is_text = branch["type"] == "string" && branch.get("title").is_none();
        if !is_text || branch.get("description") != branches[0].get("description") {
            return None;
        }
        texts.extend(branch.get("enum")?.as_array()?.iter().cloned());
    }
    Some(texts.into())
}

/// Any value at all, as the text of its JSON.
fn anything(told: &mut Vec<String>) -> (Map<String, Value>, Undo) {
    told.push("Any value, as the text of its JSON.".to_owned());
    let out = Map::from_iter([("type".to_owned(), "string".into())]);
    (out, Undo { text: Some(TextOf::Any), ..Undo::default() })
}

fn typed(
    mut schema: Map<String, Value>,
    kind: &str,
    is_top: bool,
    told: &mut Vec<String>,
) -> (Map<String, Value>, Undo) {
    let (mut out, mut undo) = (Map::new(), Undo::default());
    out.insert("type".to_owned(), kind.into());
    if let Some(title) = schema.remove("title").filter(|_| !is_top) {
        out.insert("title".to_owned(), title);
    }
    match kind {
        "object" => {
            let all = match schema.remove("properties") {
                Some(Value::Object(all)) => all,
                _ => Map::new(),
            };
            if all.is_empty() && !is_top {
                told.push("A JSON object, as text.".to_owned());
                if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
                    told.push(format!("Its values: {values}."));
                }
                out.insert("type".to_owned(), "string".into());
                return (out, Undo { text: Some(TextOf::Object), ..Undo::default() });
            }
            let shown = properties(all, &mut undo, safe_argument, value);
            if let Some(Value::Array(names)) = schema.remove("required") {
                out.insert("required".to_owned(), names.into());
                rename_required(&mut out, &undo);
                // What is required must be there.
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
            let (items, inner) = value(items);
            undo.items = (!inner.is_empty()).then(|| Box::new(inner));
            out.insert("items".to_owned(), items);
        }
        "string" => texts(&mut schema, &mut out),
        _ => {}
    }
    let of = |table: &[(&str, &'static [&'static str])]| {
        table.iter().find(|(known, _)| *known == kind).map_or(&[][..], |(_, words)| words)
    };
    for keyword in of(&KNOWN) {
        out.extend(schema.remove_entry(*keyword));
    }
    let known_format =
        schema.get("format").and_then(Value::as_str).is_some_and(|it| of(&FORMATS).contains(&it));
    if known_format {
        out.extend(schema.remove_entry("format"));
    }
    tell(&schema, told);
    (out, undo)
}

/// Texts to choose from: only texts, and none that is empty.
fn texts(schema: &mut Map<String, Value>, out: &mut Map<String, Value>) {
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

/// What is not taken, in words.
fn tell(schema: &Map<String, Value>, told: &mut Vec<String>) {
    for keyword in TOLD {
        let Some(value) = schema.get(keyword).filter(|value| **value != Value::Null) else { continue };
        told.push(match (keyword, value) {
            ("enum", Value::Array(all)) => {
                let words: Vec<_> = all.iter().map(ToString::to_string).collect();
                format!("One of {}.", words.join(", "))
            }
            (_, Value::String(text)) => format!("{keyword}: {text}."),
            _ => format!("{keyword}: {value}."),
        });
    }
}

fn value(schema: Value) -> (Value, Undo) {
    let members = match schema {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    let (members, undo) = gemini(members, false);
    (Value::Object(members), undo)
}
