//! A form from the JSON Schema of a tool, and the arguments from the fields that it sends back.
//!
//! Objects become groups of fields up to a depth; types that a field cannot express are entered as JSON. Invariant: a
//! field that is left empty is left out of the arguments, and the content of a field has the type that the schema demands.

use serde_json::{Map, Value as Json};

use crate::escape::{is_hidden, json_for_form};
use crate::text::brief;

/// Nested objects that become groups of fields; deeper ones are entered as JSON.
const MAX_DEPTH: usize = 4;
/// Fields of a form; a schema with more is entered as JSON.
pub const MAX_FIELDS: usize = 120;
/// Prefix of the names of fields, before the JSON pointer of the argument.
pub const PREFIX: &str = "a";

/// Input of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The heading of an object.
    Group,
    Text,
    LongText,
    Integer,
    Number,
    /// A value of a list: an enumeration, a boolean, or `null` and others.
    Choice,
    /// One string per line.
    Lines,
    Json,
}

/// A field of the form.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Names from the arguments to this value.
    pub path: Vec<String>,
    pub label: String,
    pub about: String,
    pub kind: Kind,
    pub required: bool,
    /// Type, as the schema has it.
    pub kind_label: String,
    /// Values of a choice as JSON, with their labels.
    pub choices: Vec<(String, String)>,
    /// The entered text.
    pub value: String,
    pub name: String,
    pub id: String,
}

impl Field {
    pub fn is_wide(&self) -> bool {
        self.is_area()
    }

    pub fn is_area(&self) -> bool {
        matches!(self.kind, Kind::LongText | Kind::Lines | Kind::Json)
    }

    pub fn is_number(&self) -> bool {
        matches!(self.kind, Kind::Integer | Kind::Number)
    }

    /// Type and duty, beside the name.
    pub fn hint(&self) -> String {
        let how = match self.kind {
            Kind::Lines => ", one per line",
            Kind::Json => ", as JSON",
            _ => "",
        };
        format!("{}{how}{}", self.kind_label, if self.required { ", required" } else { "" })
    }
}

/// Fields of a schema, with its defaults as values.
pub fn fields(schema: &Json) -> Vec<Field> {
    let mut all = Vec::new();
    collect(schema, &[], true, &mut all);
    all
}

fn collect(schema: &Json, path: &[String], required: bool, all: &mut Vec<Field>) {
    let needed: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if all.len() >= MAX_FIELDS {
            return;
        }
        let path: Vec<String> = path.iter().cloned().chain([name.clone()]).collect();
        let is_required = required && needed.contains(&name.as_str());
        let kind = kind_of(property, path.len());
        let pointer: String =
            path.iter().map(|part| format!("/{}", part.replace('~', "~0").replace('/', "~1"))).collect();
        let is_group = kind == Kind::Group;
        all.push(Field {
            label: path.join("."),
            about: property["description"].as_str().map(|text| brief(text, 300)).unwrap_or_default(),
            kind,
            required: is_required,
            kind_label: kind_label(property),
            choices: choices_of(property),
            value: value_of(kind, &property["default"]),
            id: format!("{PREFIX}{}", all.len()),
            name: format!("{PREFIX}{pointer}"),
            path: path.clone(),
        });
        if is_group {
            collect(property, &path, is_required, all);
        }
    }
}

fn kind_of(schema: &Json, depth: usize) -> Kind {
    if schema["enum"].is_array() {
        return Kind::Choice;
    }
    match schema["type"].as_str() {
        Some("boolean") => Kind::Choice,
        Some("integer") => Kind::Integer,
        Some("number") => Kind::Number,
        Some("string") if schema["maxLength"].as_u64().is_some_and(|length| length > 200) => Kind::LongText,
        Some("string") => Kind::Text,
        Some("array") if schema["items"]["type"] == "string" && !schema["items"]["enum"].is_array() => {
            Kind::Lines
        }
        Some("object")
            if depth < MAX_DEPTH && schema["properties"].as_object().is_some_and(|it| !it.is_empty()) =>
        {
            Kind::Group
        }
        _ => Kind::Json,
    }
}

/// The type of a schema in words.
pub fn kind_label(schema: &Json) -> String {
    let one = |kind: &Json| kind.as_str().unwrap_or("any").to_owned();
    match (&schema["type"], schema["enum"].as_array()) {
        (_, Some(values)) => format!("one of {}", values.len()),
        (Json::Array(kinds), _) => kinds.iter().map(one).collect::<Vec<_>>().join(" or "),
        (Json::String(kind), _) if kind == "array" && schema["items"]["type"].is_string() => {
            format!("list of {}", one(&schema["items"]["type"]))
        }
        (kind @ Json::String(_), _) => one(kind),
        _ => match ["oneOf", "anyOf"].into_iter().find_map(|name| schema[name].as_array()) {
            Some(variants) => variants.iter().take(6).map(kind_label).collect::<Vec<_>>().join(" or "),
            None => "any".to_owned(),
        },
    }
}

fn choices_of(schema: &Json) -> Vec<(String, String)> {
    let label = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let pair = |value: &Json| (json_for_form(&value.to_string()), label(value));
    match (schema["enum"].as_array(), schema["type"].as_str()) {
        (Some(values), _) => values.iter().map(pair).collect(),
        (None, Some("boolean")) => [Json::Bool(true), Json::Bool(false)].iter().map(pair).collect(),
        _ => Vec::new(),
    }
}

/// The text of a value in a field.
fn value_of(kind: Kind, value: &Json) -> String {
    match (kind, value) {
        (_, Json::Null) => String::new(),
        // A page shows hidden characters as marks, and the field would send the marks back.
        (Kind::Text | Kind::LongText | Kind::Lines, value) if has_hidden(value) => String::new(),
        (Kind::Text | Kind::LongText, Json::String(text)) => text.clone(),
        (Kind::Lines, Json::Array(lines)) => {
            lines.iter().filter_map(Json::as_str).collect::<Vec<_>>().join("\n")
        }
        (_, value) => json_for_form(&value.to_string()),
    }
}

/// The content of a field does not have its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    pub label: String,
    pub message: String,
}

/// Builds the arguments from the fields. The values stay in the fields.
///
/// # Errors
/// If a value does not have the type of its field.
pub fn arguments(fields: &mut [Field], sent: impl Fn(&str) -> Option<String>) -> Result<Json, FieldError> {
    let mut arguments = Json::Object(Map::new());
    for field in fields.iter_mut() {
        field.value = sent(&field.name).unwrap_or_default();
    }
    for field in fields.iter().filter(|field| field.kind != Kind::Group && !field.value.is_empty()) {
        let failed = |message: String| FieldError { label: field.label.clone(), message };
        let text = field.value.replace("\r\n", "\n");
        let value = match field.kind {
            Kind::Text | Kind::LongText => Json::String(text),
            Kind::Lines => text.lines().map(Json::from).collect(),
            Kind::Integer | Kind::Number => match serde_json::from_str::<Json>(text.trim()) {
                Ok(number @ Json::Number(_)) => number,
                _ => return Err(failed(format!("`{}` is not a number", brief(&text, 40)))),
            },
            Kind::Group | Kind::Choice | Kind::Json => {
                serde_json::from_str(&text).map_err(|error| failed(format!("invalid JSON: {error}")))?
            }
        };
        insert(&mut arguments, &field.path, value);
    }
    Ok(arguments)
}

fn insert(into: &mut Json, path: &[String], value: Json) {
    let Some((name, rest)) = path.split_first() else {
        *into = value;
        return;
    };
    if !into.is_object() {
        *into = Json::Object(Map::new());
    }
    insert(&mut into[name.as_str()], rest, value);
}

/// Returns true if a value has characters that only JSON can show.
fn has_hidden(value: &Json) -> bool {
    match value {
        Json::String(text) => text.contains(is_hidden),
        Json::Array(items) => items.iter().any(has_hidden),
        Json::Object(members) => members.values().any(has_hidden),
        _ => false,
    }
}

/// Fills fields with arguments. Returns false if the arguments have members or characters that no field can show.
pub fn fill(fields: &mut [Field], arguments: &Json) -> bool {
    let mut shown = 0;
    for field in fields.iter_mut() {
        let value = field.path.iter().try_fold(arguments, |value, name| value.get(name));
        field.value = value.map_or_else(String::new, |value| value_of(field.kind, value));
        shown += usize::from(value.is_some() && field.path.len() == 1);
    }
    shown == arguments.as_object().map_or(0, Map::len) && !has_hidden(arguments)
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
    add_rows(schema, 0, &mut rows);
    rows
}

fn add_rows(schema: &Json, depth: usize, rows: &mut Vec<SchemaRow>) {
    let needed = |name: &str| {
        schema["required"].as_array().is_some_and(|names| names.iter().any(|needed| needed == name))
    };
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if rows.len() >= MAX_FIELDS {
            return;
        }
        let mut about = property["description"].as_str().map(|text| brief(text, 400)).unwrap_or_default();
        if let Some(values) = property["enum"].as_array() {
            let values: Vec<_> = values.iter().take(20).map(ToString::to_string).collect();
            about = format!("{about} One of {}.", values.join(", ")).trim().to_owned();
        }
        if !property["default"].is_null() {
            about = format!("{about} Default: {}", property["default"]).trim().to_owned();
        }
        rows.push(SchemaRow {
            name: name.clone(),
            kind: kind_label(property),
            about,
            required: needed(name),
            depth,
        });
        if depth + 1 < MAX_DEPTH {
            let nested = if property["type"] == "array" { &property["items"] } else { property };
            add_rows(nested, depth + 1, rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Json {
        json!({ "type": "object", "required": ["to", "size"], "properties": {
            "to": { "type": "string", "description": "Address." },
            "size": { "type": "integer" },
            "loud": { "type": "boolean", "default": false },
            "mode": { "enum": ["a", 2, null] },
            "tags": { "type": "array", "items": { "type": "string" } },
            "place": { "type": "object", "required": ["x"], "properties": { "x": { "type": "number" }, "n/m": { "type": "string" } } },
            "what": { "oneOf": [{ "type": "string" }, { "type": "object" }] },
        } })
    }

    #[test]
    fn fields_have_the_types_of_the_schema() {
        let fields = fields(&schema());
        let shown: Vec<_> = fields.iter().map(|field| format!("{} {}", field.name, field.hint())).collect();
        assert_eq!(
            shown,
            [
                "a/to string, required",
                "a/size integer, required",
                "a/loud boolean",
                "a/mode one of 3",
                "a/tags list of string, one per line",
                "a/place object",
                "a/place/x number",
                "a/place/n~1m string",
                "a/what string or object, as JSON",
            ]
        );
    }

    #[test]
    fn arguments_come_back_with_their_types() {
        let sent = [
            ("a/to", "ann\r\nbob"),
            ("a/size", " 12 "),
            ("a/loud", "true"),
            ("a/mode", "null"),
            ("a/tags", "x\r\ny"),
            ("a/place/n~1m", "1"),
            ("a/what", r#"{"k":[1]}"#),
        ];
        let mut all = fields(&schema());
        let find =
            |name: &str| sent.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let built = arguments(&mut all, find);
        let expected = json!({ "to": "ann\nbob", "size": 12, "loud": true, "mode": null, "tags": ["x", "y"],
            "place": { "n/m": "1" }, "what": { "k": [1] } });
        assert_eq!(built, Ok(expected.clone()));
        let mut other = fields(&schema());
        assert!(fill(&mut other, &expected));
        assert_eq!(other[6].value, "");
        assert_eq!(other[7].value, "1");
        assert!(!fill(&mut other, &json!({ "unknown": 1 })), "a member without a field");
        assert!(!fill(&mut other, &json!({ "to": "a\u{202E}b" })), "the field would change it");
        assert_eq!(other[0].value, "");
        let bad = arguments(&mut all, |name| (name == "a/size").then(|| "many".to_owned()));
        assert_eq!(bad.map_err(|error| error.message), Err("`many` is not a number".to_owned()));
    }

    #[test]
    fn empty_fields_are_left_out() {
        assert_eq!(arguments(&mut fields(&schema()), |_| None), Ok(json!({})));
    }
}
