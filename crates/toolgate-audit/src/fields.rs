//! Which parts of a value its schema calls secret: `format: password`, `writeOnly`, `x-secret`, `x-sensitive`.
//!
//! Made once for each definition of a tool, so that a call only walks along. A part of a schema is a node;
//! where a value can be described by several at once (`allOf`, `anyOf`, a reference), all of them count.
//! Invariant: what cannot be followed hides nothing less, and a circle of references ends.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use toolgate_types::Secret;

/// Parts of one schema that are looked at.
const MOST_NODES: usize = 10_000;
/// The shortest text that is looked for elsewhere: masking every `a` would hide the record.
const SHORTEST: usize = 4;

/// Words of a schema whose parts describe the value itself.
const ALSO: [&str; 6] = ["allOf", "anyOf", "oneOf", "if", "then", "else"];

/// The secret parts of a value.
#[derive(Debug, Default)]
pub struct SecretFields {
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    hidden: bool,
    members: BTreeMap<Box<str>, usize>,
    /// Members that are not named.
    others: Vec<usize>,
    items: Vec<usize>,
    also: Vec<usize>,
}

/// The nodes that describe a value.
pub(crate) type At = Vec<usize>;

impl SecretFields {
    /// Those of a value that a schema describes.
    pub fn of(schema: &Value) -> Self {
        let mut made = Maker { root: schema, nodes: Vec::new(), referred: HashMap::new() };
        made.node(schema);
        made.finish()
    }

    /// Those of what a server answers, where the schema describes its structured content.
    pub fn of_reply(schema: &Value) -> Self {
        let mut made = Maker { root: schema, nodes: vec![Node::default()], referred: HashMap::new() };
        let content = made.node(schema);
        made.nodes[0].members.extend(content.map(|content| ("structuredContent".into(), content)));
        made.finish()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The texts of the secret parts, to be looked for elsewhere: a tool may say back what it was told.
    pub(crate) fn texts(&self, json: &str) -> Vec<Secret> {
        let mut found = Vec::new();
        if !self.is_empty()
            && let Ok(value) = serde_json::from_str(json)
        {
            self.collect(&value, &self.start(), false, &mut found);
        }
        found
    }

    fn collect(&self, value: &Value, at: &At, hidden: bool, found: &mut Vec<Secret>) {
        let hidden = hidden || self.is_hidden(at);
        let text = match value {
            Value::Object(members) => {
                for (name, member) in members {
                    self.collect(member, &self.member(at, name), hidden, found);
                }
                return;
            }
            Value::Array(items) => {
                let at = self.items(at);
                return items.iter().for_each(|item| self.collect(item, &at, hidden, found));
            }
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Null | Value::Bool(_) => return,
        };
        if hidden && text.len() >= SHORTEST {
            found.push(Secret::new(text));
        }
    }

    /// What describes the whole value.
    pub(crate) fn start(&self) -> At {
        if self.is_empty() { At::new() } else { self.with_also(vec![0]) }
    }

    pub(crate) fn is_hidden(&self, at: &At) -> bool {
        at.iter().any(|node| self.nodes[*node].hidden)
    }

    /// What describes a member of an object.
    #[inline]
    pub(crate) fn member(&self, at: &At, name: &str) -> At {
        if at.is_empty() { At::new() } else { self.described(at, name) }
    }

    fn described(&self, at: &At, name: &str) -> At {
        let mut next = At::new();
        for node in at.iter().map(|node| &self.nodes[*node]) {
            match node.members.get(name) {
                Some(member) => next.push(*member),
                None => next.extend(&node.others),
            }
        }
        self.with_also(next)
    }

    /// What describes the entries of a list.
    pub(crate) fn items(&self, at: &At) -> At {
        if at.is_empty() {
            return At::new();
        }
        self.with_also(at.iter().flat_map(|node| self.nodes[*node].items.iter().copied()).collect())
    }

    fn with_also(&self, mut at: At) -> At {
        let mut looked = 0;
        while let Some(node) = at.get(looked) {
            for also in &self.nodes[*node].also {
                if !at.contains(also) {
                    at.push(*also);
                }
            }
            looked += 1;
        }
        at
    }
}

struct Maker<'a> {
    root: &'a Value,
    nodes: Vec<Node>,
    referred: HashMap<&'a str, usize>,
}

impl<'a> Maker<'a> {
    /// `None` where there is nothing to follow, or too much of it.
    fn node(&mut self, schema: &'a Value) -> Option<usize> {
        let schema = schema.as_object().filter(|_| self.nodes.len() < MOST_NODES)?;
        let index = self.nodes.len();
        let is = |word: &str| schema.get(word).and_then(Value::as_bool).unwrap_or_default();
        let password = schema.get("format").and_then(Value::as_str) == Some("password");
        let hidden = password || is("writeOnly") || is("x-secret") || is("x-sensitive");
        self.nodes.push(Node { hidden, ..Node::default() });
        for (name, part) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if let Some(part) = self.node(part) {
                self.nodes[index].members.insert(name.as_str().into(), part);
            }
        }
        // Which names a pattern fits is not worked out: what it hides is hidden under any.
        let patterns = schema.get("patternProperties").and_then(Value::as_object).into_iter().flatten();
        let others = schema.get("additionalProperties").into_iter().chain(patterns.map(|(_, part)| part));
        for part in others {
            let part = self.node(part);
            self.nodes[index].others.extend(part);
        }
        for part in ["items", "prefixItems", "contains"].iter().filter_map(|word| schema.get(*word)) {
            for part in part.as_array().map_or(std::slice::from_ref(part), Vec::as_slice) {
                let part = self.node(part);
                self.nodes[index].items.extend(part);
            }
        }
        for part in ALSO.iter().filter_map(|word| schema.get(*word)) {
            for part in part.as_array().map_or(std::slice::from_ref(part), Vec::as_slice) {
                let part = self.node(part);
                self.nodes[index].also.extend(part);
            }
        }
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let part = self.referred(reference);
            self.nodes[index].also.extend(part);
        }
        Some(index)
    }

    fn referred(&mut self, reference: &'a str) -> Option<usize> {
        if let Some(known) = self.referred.get(reference) {
            return Some(*known);
        }
        let target = self.root.pointer(reference.strip_prefix('#')?)?;
        // Before it is made, so that a circle ends.
        self.referred.insert(reference, self.nodes.len());
        self.node(target)
    }

    /// With nothing to hide, there is nothing to walk along.
    fn finish(self) -> SecretFields {
        if self.nodes.iter().any(|node| node.hidden) {
            SecretFields { nodes: self.nodes }
        } else {
            SecretFields::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: Value, value: Value, expected: &[&str]) {
        let fields = SecretFields::of(&schema);
        let texts = fields.texts(&value.to_string());
        assert_eq!(texts.iter().map(Secret::expose).collect::<Vec<_>>(), expected, "{schema}");
    }

    #[test]
    fn four_ways_to_say_it() {
        for mark in [
            json!({ "format": "password" }),
            json!({ "writeOnly": true }),
            json!({ "x-secret": true }),
            json!({ "x-sensitive": true }),
        ] {
            check(json!({ "properties": { "a": mark } }), json!({ "a": "hush", "b": "loud" }), &["hush"]);
        }
        check(json!({ "properties": { "a": { "x-secret": false } } }), json!({ "a": "loud" }), &[]);
        assert!(SecretFields::of(&json!({ "properties": { "a": { "format": "email" } } })).is_empty());
    }

    #[test]
    fn wherever_it_is() {
        let hush = json!({ "x-secret": true });
        check(
            json!({ "items": { "properties": { "a": hush } } }),
            json!([{ "a": "hush" }, { "b": "loud" }]),
            &["hush"],
        );
        check(
            json!({ "additionalProperties": hush, "properties": { "b": {} } }),
            json!({ "a": "hush", "b": "loud" }),
            &["hush"],
        );
        check(json!({ "patternProperties": { "^a": hush } }), json!({ "a": "hush" }), &["hush"]);
        check(json!({ "anyOf": [{ "properties": { "a": hush } }, {}] }), json!({ "a": "hush" }), &["hush"]);
        check(
            json!({ "properties": { "a": { "properties": { "b": hush } } } }),
            json!({ "a": { "b": "hush", "c": "loud" } }),
            &["hush"],
        );
        check(
            json!({ "properties": { "a": hush } }),
            json!({ "a": { "b": ["hush", 12345, true, null, "x"] } }),
            &["hush", "12345"],
        );
    }

    #[test]
    fn references_and_circles() {
        let tree = json!({
            "$ref": "#/$defs/tree",
            "$defs": { "tree": { "properties": {
                "pin": { "$ref": "#/$defs/pin" }, "next": { "$ref": "#/$defs/tree" }, "self": { "$ref": "#" },
            } }, "pin": { "format": "password" } },
        });
        check(tree, json!({ "next": { "self": { "next": { "pin": "hush", "x": "loud" } } } }), &["hush"]);
        check(
            json!({ "$ref": "#/none", "properties": { "a": { "$ref": "elsewhere" } } }),
            json!({ "a": "loud" }),
            &[],
        );
        let mut circle = json!({ "$ref": "#", "x-secret": true });
        check(circle.clone(), json!("hush"), &["hush"]);
        circle["allOf"] = json!([{ "$ref": "#" }]);
        check(circle, json!("hush"), &["hush"]);
    }

    #[test]
    fn of_what_a_server_answers() {
        let fields = SecretFields::of_reply(
            &json!({ "properties": { "a": { "$ref": "#/$defs/a" } }, "$defs": { "a": { "x-secret": true } } }),
        );
        let texts = fields.texts(r#"{"a":"loud","structuredContent":{"a":"hush"}}"#);
        assert_eq!(texts.iter().map(Secret::expose).collect::<Vec<_>>(), ["hush"]);
    }
}
