//! Entries: the searchable description of a tool.
//!
//! The owner of a tool creates its entry; the index needs only words. Invariant: a schema of any shape is accepted, and
//! yields no parameters in the worst case.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::words::split;

/// Maximum number of parameters read from a schema. More of them say nothing about the purpose of a tool.
const MAX_PARAMETERS: usize = 64;

/// Characters of a description that state the purpose.
const MAX_PURPOSE_CHARS: usize = 80;

/// Maximum depth of nested objects.
const MAX_DEPTH: usize = 4;

/// The searchable description of a tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolEntry {
    /// Unique name that callers use.
    pub name: String,
    pub server: Option<String>,
    /// Human-readable title.
    pub title: Option<String>,
    pub description: String,
    pub parameters: Vec<ToolParameter>,
    /// Example queries for the tool.
    pub examples: Vec<String>,
}

/// A purpose that queries do not name: "Are trains running today?" needs a search and does not say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolPurpose {
    /// Searches the web for a query.
    SearchWeb,
    /// Executes code.
    ExecuteCode,
}

impl ToolEntry {
    /// Returns the purpose, if the tool states it in its name or at the start of its description, and takes a query or
    /// code.
    pub fn purpose(&self) -> Option<ToolPurpose> {
        let about: String = self.description.chars().take(MAX_PURPOSE_CHARS).collect();
        let words: HashSet<String> = [self.name.as_str(), &about].into_iter().flat_map(split).collect();
        let says = |any: &[&str]| any.iter().any(|word| words.contains(*word));
        let takes = |any: &[&str]| {
            let mut required = self.parameters.iter().filter(|parameter| parameter.required);
            required.any(|one| one.kind == ValueKind::Text && any.contains(&one.name.as_str()))
        };
        if says(&["search", "searches"]) && says(&["web", "internet"]) && takes(&["query", "q"]) {
            Some(ToolPurpose::SearchWeb)
        } else if says(&["execute", "executes", "execution", "run", "runs"]) && takes(&["code"]) {
            Some(ToolPurpose::ExecuteCode)
        } else {
            None
        }
    }
}

/// A parameter of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolParameter {
    pub name: String,
    pub description: String,
    /// True if a call without it is invalid.
    pub required: bool,
    pub kind: ValueKind,
}

/// The type of a value, as far as the schema declares it.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueKind {
    Text,
    Integer,
    Number,
    Boolean,
    /// One of these values.
    OneOf(Vec<Value>),
    List(Box<ValueKind>),
    /// An object with these members.
    Group(Vec<ToolParameter>),
    /// Unknown.
    Other,
}

impl ToolParameter {
    /// Reads the parameters from the JSON Schema of a tool's arguments.
    pub fn from_schema(schema: &Value) -> Vec<Self> {
        Self::all_within(schema, MAX_DEPTH)
    }

    fn all_within(schema: &Value, depth: usize) -> Vec<Self> {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
            return Vec::new();
        };
        let required: Vec<&str> = schema
            .get("required")
            .and_then(Value::as_array)
            .map(|names| names.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let read = |(name, about): (&String, &Value)| Self {
            name: name.clone(),
            description: text(about, "description"),
            // A parameter with a default is not needed, even if it is listed as required.
            required: required.contains(&name.as_str()) && about.get("default").is_none(),
            kind: ValueKind::within(about, depth),
        };
        properties.iter().take(MAX_PARAMETERS).map(read).collect()
    }
}

impl ValueKind {
    /// Reads the type from the schema of a value.
    pub fn from_schema(schema: &Value) -> Self {
        Self::within(schema, MAX_DEPTH)
    }

    fn within(schema: &Value, depth: usize) -> Self {
        let (Some(members), Some(depth)) = (schema.as_object(), depth.checked_sub(1)) else {
            return Self::Other;
        };
        if let Some(values) = members.get("enum").and_then(Value::as_array) {
            return Self::OneOf(values.clone());
        }
        if let Some(value) = members.get("const") {
            return Self::OneOf(vec![value.clone()]);
        }
        match named_type(members) {
            // Many handwritten schemas use the names of Python types.
            Some("string" | "str") => Self::Text,
            Some("integer" | "int") => Self::Integer,
            Some("number" | "float") => Self::Number,
            Some("boolean" | "bool") => Self::Boolean,
            Some("array" | "list") => {
                Self::List(Box::new(members.get("items").map_or(Self::Other, |one| Self::within(one, depth))))
            }
            _ if members.contains_key("properties") => Self::Group(ToolParameter::all_within(schema, depth)),
            Some(_) => Self::Other,
            None => one_of_many(members, depth).unwrap_or(Self::Other),
        }
    }

    /// Returns the members of the object, or of the objects in the list.
    pub fn members(&self) -> &[ToolParameter] {
        match self {
            Self::Group(members) => members,
            Self::List(one) => one.members(),
            _ => &[],
        }
    }
}

/// Returns the declared type, ignoring `null`.
fn named_type(schema: &Map<String, Value>) -> Option<&str> {
    match schema.get("type")? {
        Value::String(one) => Some(one),
        Value::Array(many) => many.iter().filter_map(Value::as_str).find(|one| *one != "null"),
        _ => None,
    }
}

/// Returns the type of a value declared as "this or null", as many generators declare optional values.
fn one_of_many(schema: &Map<String, Value>, depth: usize) -> Option<ValueKind> {
    let many = ["anyOf", "oneOf"].iter().find_map(|key| schema.get(*key)?.as_array())?;
    let mut kinds = many
        .iter()
        .filter(|one| one.get("type") != Some(&Value::from("null")))
        .map(|one| ValueKind::within(one, depth));
    kinds.next().filter(|_| kinds.next().is_none())
}

fn text(of: &Value, key: &str) -> String {
    of.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: Value, kind: ValueKind) {
        assert_eq!(ValueKind::from_schema(&schema), kind, "{schema}");
    }

    #[test]
    fn reads_types_from_schemas() {
        check(json!({"type": "string"}), ValueKind::Text);
        check(json!({"type": ["null", "integer"]}), ValueKind::Integer);
        check(json!({"anyOf": [{"type": "boolean"}, {"type": "null"}]}), ValueKind::Boolean);
        check(json!({"anyOf": [{"type": "boolean"}, {"type": "string"}]}), ValueKind::Other);
        check(json!({"type": "string", "enum": ["a", "b"]}), ValueKind::OneOf(vec![json!("a"), json!("b")]));
        check(json!({"const": 4}), ValueKind::OneOf(vec![json!(4)]));
        check(
            json!({"type": "array", "items": {"type": "number"}}),
            ValueKind::List(Box::new(ValueKind::Number)),
        );
        check(json!({"type": "array"}), ValueKind::List(Box::new(ValueKind::Other)));
        check(json!({"type": "object"}), ValueKind::Other);
        check(json!(true), ValueKind::Other);
        let group =
            ValueKind::from_schema(&json!({"properties": {"a": {"properties": {"b": {"type": "string"}}}}}));
        assert_eq!(group.members()[0].kind.members()[0].kind, ValueKind::Text);
        let mut deep = json!({"type": "string"});
        for _ in 0..100 {
            deep = json!({"type": "array", "items": deep});
        }
        assert_ne!(ValueKind::from_schema(&deep), ValueKind::Text);
    }

    #[test]
    fn reads_parameters_from_schemas() {
        let schema = json!({
            "properties": {
                "city": {"type": "string", "description": "The city"},
                "unit": {"type": "string", "default": "metric"},
                "days": {"type": "integer"},
            },
            "required": ["city", "unit"],
        });
        let all = ToolParameter::from_schema(&schema);
        let shown: Vec<_> = all.iter().map(|one| (one.name.as_str(), one.required)).collect();
        assert_eq!(shown, [("city", true), ("unit", false), ("days", false)]);
        assert_eq!(all[0].description, "The city");
        for odd in [json!(null), json!([]), json!({"properties": 3}), json!({"required": {}})] {
            assert_eq!(ToolParameter::from_schema(&odd), []);
        }
    }
}
