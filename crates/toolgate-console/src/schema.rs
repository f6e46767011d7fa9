//! Reading of JSON Schemas: references, types in words, and the table of a contract.
//!
//! Invariant: only references within the schema are followed, and only a few of them in a row.

use serde_json::Value as Json;

use crate::text::brief;

/// References that are followed in a row.
const MAX_REFERENCES: usize = 8;
/// Rows of the table, and nested objects in it.
const MAX_ROWS: usize = 120;
const MAX_DEPTH: usize = 3;

/// Follows `$ref` within the document, and an `allOf` with one schema. A reference that leads nowhere stays.
pub(crate) fn resolve<'a>(root: &'a Json, schema: &'a Json) -> &'a Json {
    let mut found = schema;
    for _ in 0..MAX_REFERENCES {
        let pointer = found["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
        found = match (pointer, found["allOf"].as_array().map(Vec::as_slice)) {
            (Some(pointer), _) => match root.pointer(pointer) {
                Some(target) => target,
                None => return found,
            },
            (None, Some([only])) if found["properties"].is_null() => only,
            _ => return found,
        };
    }
    found
}

/// The schemas of a choice between several.
pub(crate) fn alternatives(schema: &Json) -> &[Json] {
    ["oneOf", "anyOf"].into_iter().find_map(|name| schema[name].as_array()).map_or(&[], Vec::as_slice)
}

/// The type of a schema in words.
pub(crate) fn kind_label(root: &Json, schema: &Json) -> String {
    let schema = resolve(root, schema);
    let one = |kind: &Json| kind.as_str().unwrap_or("any").to_owned();
    match (&schema["type"], schema["enum"].as_array()) {
        (_, Some(values)) => format!("one of {}", values.len()),
        (Json::Array(kinds), _) => kinds.iter().map(one).collect::<Vec<_>>().join(" or "),
        (Json::String(kind), _) if kind == "array" => {
            match resolve(root, &schema["items"])["type"].as_str() {
                Some(item) => format!("list of {item}"),
                None => "list".to_owned(),
            }
        }
        (kind @ Json::String(_), _) => one(kind),
        _ if !schema["const"].is_null() => schema["const"].to_string(),
        _ => match alternatives(schema) {
            [] => "any".to_owned(),
            several => {
                let label = |one: &Json| resolve(root, one)["type"].as_str().unwrap_or("any").to_owned();
                several.iter().take(6).map(label).collect::<Vec<_>>().join(" or ")
            }
        },
    }
}

/// A row of the table that shows a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaRow {
    pub name: String,
    pub kind: String,
    pub about: String,
    pub required: bool,
    pub depth: usize,
}

/// The properties of a schema as rows.
pub fn table(schema: &Json) -> Vec<SchemaRow> {
    let mut rows = Vec::new();
    add_rows(schema, schema, 0, &mut rows);
    rows
}

fn add_rows(root: &Json, schema: &Json, depth: usize, rows: &mut Vec<SchemaRow>) {
    let schema = resolve(root, schema);
    let needed = |name: &str| {
        schema["required"].as_array().is_some_and(|names| names.iter().any(|needed| needed == name))
    };
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if rows.len() >= MAX_ROWS {
            return;
        }
        let resolved = resolve(root, property);
        let described = [property, resolved].into_iter().find_map(|one| one["description"].as_str());
        let mut about = described.map(|text| brief(text, 400)).unwrap_or_default();
        if let Some(values) = resolved["enum"].as_array() {
            let values: Vec<_> = values.iter().take(20).map(ToString::to_string).collect();
            about = format!("{about} One of {}.", values.join(", ")).trim().to_owned();
        }
        if !property["default"].is_null() {
            let default = brief(&property["default"].to_string(), 80);
            about = format!("{about} Default: {default}.").trim().to_owned();
        }
        let (name, kind, required) = (name.clone(), kind_label(root, property), needed(name));
        rows.push(SchemaRow { name, kind, about, required, depth });
        if depth < MAX_DEPTH {
            let inner = if resolved["type"] == "array" { &resolved["items"] } else { property };
            add_rows(root, inner, depth + 1, rows);
        }
    }
}

#[test]
fn references_are_followed_within_the_schema() {
    let schema = serde_json::json!({
        "properties": {
            "where": { "$ref": "#/$defs/Place", "description": "Here." },
            "all": { "type": "array", "items": { "$ref": "#/$defs/Place" } },
            "other": { "allOf": [{ "$ref": "#/$defs/Place" }] },
            "gone": { "$ref": "#/$defs/Gone" },
            "far": { "$ref": "https://a.test/schema" },
            "maybe": { "anyOf": [{ "type": "string" }, { "type": "null" }], "default": 1 },
        },
        "$defs": {
            "Place": { "type": "object", "required": ["x"], "properties": { "x": { "type": "number" } } },
            "Loop": { "$ref": "#/$defs/Loop" },
        },
    });
    let rows: Vec<_> = table(&schema)
        .iter()
        .map(|row| format!("{}{}: {} {}", " ".repeat(row.depth), row.name, row.kind, row.about))
        .collect();
    assert_eq!(
        rows,
        [
            "where: object Here.",
            " x: number ",
            "all: list of object ",
            " x: number ",
            "other: object ",
            " x: number ",
            "gone: any ",
            "far: any ",
            "maybe: string or null Default: 1.",
        ]
    );
    resolve(&schema, &schema["$defs"]["Loop"]);
}
