//! Maps arguments from the schema shown to a model back to the schema of the tool.
//!
//! Invariant: only changed parts are mapped, and mapping never fails; the tool's own schema rejects invalid arguments.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Differences between shown and original arguments.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ArgumentMapping {
    /// Original names by shown names, if different.
    pub(super) names: BTreeMap<String, String>,
    /// Mappings of properties, by shown name.
    pub(super) fields: BTreeMap<String, ArgumentMapping>,
    /// Mapping of array items.
    pub(super) items: Option<Box<ArgumentMapping>>,
    /// Mappings of the branches of a union.
    pub(super) any: Vec<ArgumentMapping>,
    /// Type of the value that a string encodes as JSON.
    pub(super) text: Option<JsonText>,
    /// Name of the single argument that holds all arguments as a JSON string.
    pub(super) whole: Option<&'static str>,
}

/// Type of a value encoded as a JSON string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JsonText {
    Object,
    Any,
}

impl ArgumentMapping {
    /// Returns true if arguments need no mapping.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the mapping of a property, unless it is empty.
    pub(super) fn put(&mut self, field: &str, inner: ArgumentMapping) {
        if !inner.is_empty() {
            self.fields.insert(field.to_owned(), inner);
        }
    }

    /// Converts a value to the original schema.
    pub fn restore(&self, value: Value) -> Value {
        let value = self.parse_json_text(value);
        let value = match value {
            Value::Object(members) => Value::Object(self.members(members)),
            Value::Array(items) => match &self.items {
                Some(inner) => items.into_iter().map(|item| inner.restore(item)).collect(),
                None => Value::Array(items),
            },
            other => other,
        };
        self.any.iter().fold(value, |value, one| one.restore(value))
    }

    /// Parses a value that is encoded as a JSON string.
    fn parse_json_text(&self, value: Value) -> Value {
        let value = match (self.whole, value) {
            (Some(name), Value::Object(mut members)) if members.len() == 1 && members.contains_key(name) => {
                members.remove(name).unwrap_or_default()
            }
            (_, value) => value,
        };
        let encodes = if self.whole.is_some() { Some(JsonText::Object) } else { self.text };
        let (Some(encodes), Value::String(text)) = (encodes, &value) else { return value };
        match serde_json::from_str::<Value>(text) {
            Ok(parsed) if encodes == JsonText::Any || parsed.is_object() => parsed,
            _ => value,
        }
    }

    fn members(&self, members: Map<String, Value>) -> Map<String, Value> {
        let mut out = Map::new();
        for (name, value) in members {
            let value = match self.fields.get(&name) {
                Some(inner) => inner.restore(value),
                None => value,
            };
            out.insert(self.names.get(&name).cloned().unwrap_or(name), value);
        }
        out
    }
}

#[test]
fn restores_only_mapped_arguments() {
    use serde_json::json;
    let text = |of| ArgumentMapping { text: Some(of), ..ArgumentMapping::default() };
    let inner = ArgumentMapping {
        names: [("a_b".to_owned(), "a b".to_owned())].into(),
        ..ArgumentMapping::default()
    };
    let mut mapping = ArgumentMapping {
        names: [("x_1".to_owned(), "x[1]".to_owned())].into(),
        ..ArgumentMapping::default()
    };
    mapping.put("x_1", inner.clone());
    mapping.put("map", text(JsonText::Object));
    mapping.put("free", text(JsonText::Any));
    mapping.put("list", ArgumentMapping { items: Some(Box::new(inner)), ..ArgumentMapping::default() });
    mapping.put("same", ArgumentMapping::default());
    assert!(!mapping.fields.contains_key("same"));
    for (shown, due) in [
        (json!({ "x_1": { "a_b": 1, "a_c": 2 } }), json!({ "x[1]": { "a b": 1, "a_c": 2 } })),
        (json!({ "map": "{\"k\":[1.5]}" }), json!({ "map": { "k": [1.5] } })),
        (json!({ "map": "[1]", "free": "[1]" }), json!({ "map": "[1]", "free": [1] })),
        (json!({ "map": { "k": 1 }, "free": "plain" }), json!({ "map": { "k": 1 }, "free": "plain" })),
        (json!({ "list": [{ "a_b": 1 }, 2] }), json!({ "list": [{ "a b": 1 }, 2] })),
        (json!({ "a_b": 1, "other": "{}" }), json!({ "a_b": 1, "other": "{}" })),
    ] {
        assert_eq!(mapping.restore(shown.clone()), due, "{shown}");
    }
    let whole = ArgumentMapping { whole: Some("arguments"), ..ArgumentMapping::default() };
    assert_eq!(whole.restore(json!({ "arguments": "{\"a\":1}" })), json!({ "a": 1 }));
    assert_eq!(whole.restore(json!({ "a": 1 })), json!({ "a": 1 }));
}
