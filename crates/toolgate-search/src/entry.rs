//! Entries: what the index knows of a tool.
//!
//! Whoever has a tool makes an entry of it; the index asks for no more than words. Invariant: a schema of any
//! shape gives parameters, if only none.

use serde_json::{Map, Value};

/// Parameters that are read of one schema. The words of more than these say nothing of what a tool is for.
const MOST_PARAMETERS: usize = 64;

/// How deep objects in objects are read.
const MOST_DEPTH: usize = 4;

/// What the index knows of a tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Entry {
    /// The name that callers use; one entry has it.
    pub name: String,
    /// The server it comes from.
    pub server: Option<String>,
    /// Its title for people.
    pub title: Option<String>,
    /// What it does.
    pub description: String,
    /// What it takes.
    pub parameters: Vec<Parameter>,
    /// Things people say when they mean it.
    pub examples: Vec<String>,
}

/// One parameter of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// What it means.
    pub description: String,
    /// Whether no call can be made without it.
    pub required: bool,
    /// What its value is.
    pub kind: Kind,
}

/// What a value is, as far as the schema says so.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// A text.
    Text,
    /// A number without fraction.
    Integer,
    /// A number.
    Number,
    /// Yes or no.
    Boolean,
    /// One of these.
    OneOf(Vec<Value>),
    /// A list of such values.
    List(Box<Kind>),
    /// An object of these.
    Group(Vec<Parameter>),
    /// What is not known.
    Other,
}

impl Parameter {
    /// The parameters that the schema of a tool's arguments declares.
    pub fn all_of(schema: &Value) -> Vec<Self> {
        Self::all_within(schema, MOST_DEPTH)
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
            // What has a default is not missed, whatever the list says.
            required: required.contains(&name.as_str()) && about.get("default").is_none(),
            kind: Kind::within(about, depth),
        };
        properties.iter().take(MOST_PARAMETERS).map(read).collect()
    }
}

impl Kind {
    /// What the schema of one value says that it is.
    pub fn of(schema: &Value) -> Self {
        Self::within(schema, MOST_DEPTH)
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
            // Names of Python's types stand in many schemas that were written by hand.
            Some("string" | "str") => Self::Text,
            Some("integer" | "int") => Self::Integer,
            Some("number" | "float") => Self::Number,
            Some("boolean" | "bool") => Self::Boolean,
            Some("array" | "list") => {
                Self::List(Box::new(members.get("items").map_or(Self::Other, |one| Self::within(one, depth))))
            }
            _ if members.contains_key("properties") => Self::Group(Parameter::all_within(schema, depth)),
            Some(_) => Self::Other,
            None => one_of_many(members, depth).unwrap_or(Self::Other),
        }
    }

    /// The parameters of the object, or of the objects of the list, that it is.
    pub fn members(&self) -> &[Parameter] {
        match self {
            Self::Group(members) => members,
            Self::List(one) => one.members(),
            _ => &[],
        }
    }
}

/// The type of a value, `null` aside.
fn named_type(schema: &Map<String, Value>) -> Option<&str> {
    match schema.get("type")? {
        Value::String(one) => Some(one),
        Value::Array(many) => many.iter().filter_map(Value::as_str).find(|one| *one != "null"),
        _ => None,
    }
}

/// What a value is that may be this or nothing, as many generators write what is optional.
fn one_of_many(schema: &Map<String, Value>, depth: usize) -> Option<Kind> {
    let many = ["anyOf", "oneOf"].iter().find_map(|key| schema.get(*key)?.as_array())?;
    let mut kinds = many
        .iter()
        .filter(|one| one.get("type") != Some(&Value::from("null")))
        .map(|one| Kind::within(one, depth));
    kinds.next().filter(|_| kinds.next().is_none())
}

fn text(of: &Value, key: &str) -> String {
    of.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: Value, kind: Kind) {
        assert_eq!(Kind::of(&schema), kind, "{schema}");
    }

    #[test]
    fn kinds_are_read_of_schemas() {
        check(json!({"type": "string"}), Kind::Text);
        check(json!({"type": ["null", "integer"]}), Kind::Integer);
        check(json!({"anyOf": [{"type": "boolean"}, {"type": "null"}]}), Kind::Boolean);
        check(json!({"anyOf": [{"type": "boolean"}, {"type": "string"}]}), Kind::Other);
        check(json!({"type": "string", "enum": ["a", "b"]}), Kind::OneOf(vec![json!("a"), json!("b")]));
        check(json!({"const": 4}), Kind::OneOf(vec![json!(4)]));
        check(json!({"type": "array", "items": {"type": "number"}}), Kind::List(Box::new(Kind::Number)));
        check(json!({"type": "array"}), Kind::List(Box::new(Kind::Other)));
        check(json!({"type": "object"}), Kind::Other);
        check(json!(true), Kind::Other);
        let group = Kind::of(&json!({"properties": {"a": {"properties": {"b": {"type": "string"}}}}}));
        assert_eq!(group.members()[0].kind.members()[0].kind, Kind::Text);
        let mut deep = json!({"type": "string"});
        for _ in 0..100 {
            deep = json!({"type": "array", "items": deep});
        }
        assert_ne!(Kind::of(&deep), Kind::Text);
    }

    #[test]
    fn parameters_are_read_of_schemas() {
        let schema = json!({
            "properties": {
                "city": {"type": "string", "description": "The city"},
                "unit": {"type": "string", "default": "metric"},
                "days": {"type": "integer"},
            },
            "required": ["city", "unit"],
        });
        let all = Parameter::all_of(&schema);
        let shown: Vec<_> = all.iter().map(|one| (one.name.as_str(), one.required)).collect();
        assert_eq!(shown, [("city", true), ("unit", false), ("days", false)]);
        assert_eq!(all[0].description, "The city");
        for odd in [json!(null), json!([]), json!({"properties": 3}), json!({"required": {}})] {
            assert_eq!(Parameter::all_of(&odd), []);
        }
    }
}
