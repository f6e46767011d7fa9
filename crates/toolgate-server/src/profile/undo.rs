//! Arguments as a model was shown them become the arguments that the tool takes.
//!
//! Invariant: what was not written in another way is left alone, and undoing never fails: what does not fit is refused
//! by the tool's own schema.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// How arguments differ from what the tool takes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Undo {
    /// The names of arguments that have others, by those that are shown.
    pub(super) names: BTreeMap<String, String>,
    /// What is inside of arguments, by the names that are shown.
    pub(super) fields: BTreeMap<String, Undo>,
    /// What is inside of a list.
    pub(super) items: Option<Box<Undo>>,
    /// What a value may be, where it may be one of several things.
    pub(super) any: Vec<Undo>,
    /// What a text stands for, where one stands for something else.
    pub(super) text: Option<TextOf>,
    /// The one argument that holds all of them as text.
    pub(super) whole: Option<&'static str>,
}

/// What is written as the text of its JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextOf {
    /// An object.
    Object,
    /// Anything.
    Any,
}

impl Undo {
    /// Whether there is nothing to undo.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Puts the undoing of something inside in its place, where there is something to undo.
    pub(super) fn put(&mut self, field: &str, inner: Undo) {
        if !inner.is_empty() {
            self.fields.insert(field.to_owned(), inner);
        }
    }

    /// The value that the tool takes.
    pub(super) fn undone(&self, value: Value) -> Value {
        let value = self.read(value);
        let value = match value {
            Value::Object(members) => Value::Object(self.members(members)),
            Value::Array(items) => match &self.items {
                Some(inner) => items.into_iter().map(|item| inner.undone(item)).collect(),
                None => Value::Array(items),
            },
            other => other,
        };
        self.any.iter().fold(value, |value, one| one.undone(value))
    }

    /// What a text stands for.
    fn read(&self, value: Value) -> Value {
        let value = match (self.whole, value) {
            (Some(name), Value::Object(mut members)) if members.len() == 1 && members.contains_key(name) => {
                members.remove(name).unwrap_or_default()
            }
            (_, value) => value,
        };
        let of = if self.whole.is_some() { Some(TextOf::Object) } else { self.text };
        let (Some(of), Value::String(text)) = (of, &value) else { return value };
        match serde_json::from_str::<Value>(text) {
            Ok(read) if of == TextOf::Any || read.is_object() => read,
            _ => value,
        }
    }

    fn members(&self, members: Map<String, Value>) -> Map<String, Value> {
        let mut out = Map::new();
        for (name, value) in members {
            let value = match self.fields.get(&name) {
                Some(inner) => inner.undone(value),
                None => value,
            };
            out.insert(self.names.get(&name).cloned().unwrap_or(name), value);
        }
        out
    }
}

#[test]
fn only_what_was_changed_is_undone() {
    use serde_json::json;
    let text = |of| Undo { text: Some(of), ..Undo::default() };
    let inner = Undo { names: [("a_b".to_owned(), "a b".to_owned())].into(), ..Undo::default() };
    let mut undo = Undo { names: [("x_1".to_owned(), "x[1]".to_owned())].into(), ..Undo::default() };
    undo.put("x_1", inner.clone());
    undo.put("map", text(TextOf::Object));
    undo.put("free", text(TextOf::Any));
    undo.put("list", Undo { items: Some(Box::new(inner)), ..Undo::default() });
    undo.put("same", Undo::default());
    assert!(!undo.fields.contains_key("same"));
    for (shown, due) in [
        (json!({ "x_1": { "a_b": 1, "a_c": 2 } }), json!({ "x[1]": { "a b": 1, "a_c": 2 } })),
        (json!({ "map": "{\"k\":[1.5]}" }), json!({ "map": { "k": [1.5] } })),
        (json!({ "map": "[1]", "free": "[1]" }), json!({ "map": "[1]", "free": [1] })),
        (json!({ "map": { "k": 1 }, "free": "plain" }), json!({ "map": { "k": 1 }, "free": "plain" })),
        (json!({ "list": [{ "a_b": 1 }, 2] }), json!({ "list": [{ "a b": 1 }, 2] })),
        (json!({ "a_b": 1, "other": "{}" }), json!({ "a_b": 1, "other": "{}" })),
    ] {
        assert_eq!(undo.undone(shown.clone()), due, "{shown}");
    }
    let whole = Undo { whole: Some("arguments"), ..Undo::default() };
    assert_eq!(whole.undone(json!({ "arguments": "{\"a\":1}" })), json!({ "a": 1 }));
    assert_eq!(whole.undone(json!({ "a": 1 })), json!({ "a": 1 }));
}
