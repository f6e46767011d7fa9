//! Finds the parts of a value that its JSON Schema marks as secret: `format: password`, `writeOnly`, `x-secret`,
//! `x-sensitive`.
//!
//! Compiled once per tool definition, so that a call only walks the compiled nodes. A subschema is a node; if several
//! subschemas apply to a value (`allOf`, `anyOf`, a reference), the value is secret if any of them says so.
//! Invariant: an unresolvable subschema never makes less secret, and reference cycles terminate.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use toolgate_types::Secret;

/// Maximum number of subschemas compiled per schema.
const MAX_NODES: usize = 10_000;
/// Shortest secret value to search for elsewhere: masking every `a` would hide the whole record.
const MIN_SECRET_LENGTH: usize = 4;

/// In-place applicators: keywords whose subschemas apply to the same value.
const IN_PLACE_APPLICATORS: [&str; 6] = ["allOf", "anyOf", "oneOf", "if", "then", "else"];

/// The secret parts of the values that a schema describes.
#[derive(Debug, Default)]
pub struct SecretFields {
    nodes: Vec<SchemaNode>,
}

#[derive(Debug, Default)]
struct SchemaNode {
    hidden: bool,
    members: BTreeMap<Box<str>, usize>,
    /// Nodes for members without a name of their own (`additionalProperties`, `patternProperties`).
    others: Vec<usize>,
    items: Vec<usize>,
    also: Vec<usize>,
}

/// Nodes that apply to one value.
pub(crate) type NodeSet = Vec<usize>;

impl SecretFields {
    /// Compiles the schema of a value.
    pub fn from_schema(schema: &Value) -> Self {
        let mut made = FieldsBuilder { root: schema, nodes: Vec::new(), referred: HashMap::new() };
        made.node(schema);
        made.finish()
    }

    /// Compiles an output schema, which describes the `structuredContent` of a tool result.
    pub fn from_output_schema(schema: &Value) -> Self {
        let mut made =
            FieldsBuilder { root: schema, nodes: vec![SchemaNode::default()], referred: HashMap::new() };
        let content = made.node(schema);
        made.nodes[0].members.extend(content.map(|content| ("structuredContent".into(), content)));
        made.finish()
    }

    /// Returns true if nothing is secret.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the values of the secret parts, to be masked elsewhere too: a tool may echo its arguments.
    pub(crate) fn secret_values(&self, json: &str) -> Vec<Secret> {
        let mut found = Vec::new();
        if !self.is_empty()
            && let Ok(value) = serde_json::from_str(json)
        {
            self.collect(&value, &self.root(), false, &mut found);
        }
        found
    }

    fn collect(&self, value: &Value, at: &NodeSet, hidden: bool, found: &mut Vec<Secret>) {
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
        if hidden && text.len() >= MIN_SECRET_LENGTH {
            found.push(Secret::new(text));
        }
    }

    /// Returns the nodes for the whole value.
    pub(crate) fn root(&self) -> NodeSet {
        if self.is_empty() { NodeSet::new() } else { self.with_applied(vec![0]) }
    }

    pub(crate) fn is_hidden(&self, at: &NodeSet) -> bool {
        at.iter().any(|node| self.nodes[*node].hidden)
    }

    /// Returns the nodes for a member of an object.
    #[inline]
    pub(crate) fn member(&self, at: &NodeSet, name: &str) -> NodeSet {
        if at.is_empty() { NodeSet::new() } else { self.member_nodes(at, name) }
    }

    fn member_nodes(&self, at: &NodeSet, name: &str) -> NodeSet {
        let mut next = NodeSet::new();
        for node in at.iter().map(|node| &self.nodes[*node]) {
            match node.members.get(name) {
                Some(member) => next.push(*member),
                None => next.extend(&node.others),
            }
        }
        self.with_applied(next)
    }

    /// Returns the nodes for the items of an array.
    pub(crate) fn items(&self, at: &NodeSet) -> NodeSet {
        if at.is_empty() {
            return NodeSet::new();
        }
        self.with_applied(at.iter().flat_map(|node| self.nodes[*node].items.iter().copied()).collect())
    }

    fn with_applied(&self, mut at: NodeSet) -> NodeSet {
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

struct FieldsBuilder<'a> {
    root: &'a Value,
    nodes: Vec<SchemaNode>,
    referred: HashMap<&'a str, usize>,
}

impl<'a> FieldsBuilder<'a> {
    /// Compiles a schema. Returns `None` if it is not an object or the node limit is reached.
    fn node(&mut self, schema: &'a Value) -> Option<usize> {
        let schema = schema.as_object().filter(|_| self.nodes.len() < MAX_NODES)?;
        let index = self.nodes.len();
        let is = |word: &str| schema.get(word).and_then(Value::as_bool).unwrap_or_default();
        let password = schema.get("format").and_then(Value::as_str) == Some("password");
        let hidden = password || is("writeOnly") || is("x-secret") || is("x-sensitive");
        self.nodes.push(SchemaNode { hidden, ..SchemaNode::default() });
        for (name, part) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if let Some(part) = self.node(part) {
                self.nodes[index].members.insert(name.as_str().into(), part);
            }
        }
        // Patterns are not evaluated: a secret behind a pattern is secret under any name.
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
        for part in IN_PLACE_APPLICATORS.iter().filter_map(|word| schema.get(*word)) {
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
        // Registered before it is compiled, so that reference cycles terminate.
        self.referred.insert(reference, self.nodes.len());
        self.node(target)
    }

    /// Drops all nodes if nothing is secret, so that nothing has to be walked.
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
        let fields = SecretFields::from_schema(&schema);
        let texts = fields.secret_values(&value.to_string());
        assert_eq!(texts.iter().map(Secret::expose).collect::<Vec<_>>(), expected, "{schema}");
    }

    #[test]
    fn every_secret_keyword_is_recognised() {
        for mark in [
            json!({ "format": "password" }),
            json!({ "writeOnly": true }),
            json!({ "x-secret": true }),
            json!({ "x-sensitive": true }),
        ] {
            check(json!({ "properties": { "a": mark } }), json!({ "a": "hush", "b": "loud" }), &["hush"]);
        }
        check(json!({ "properties": { "a": { "x-secret": false } } }), json!({ "a": "loud" }), &[]);
        assert!(
            SecretFields::from_schema(&json!({ "properties": { "a": { "format": "email" } } })).is_empty()
        );
    }

    #[test]
    fn secrets_are_found_at_any_depth() {
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
    fn follows_references_and_cycles() {
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
    fn output_schema_applies_to_structured_content() {
        let fields = SecretFields::from_output_schema(
            &json!({ "properties": { "a": { "$ref": "#/$defs/a" } }, "$defs": { "a": { "x-secret": true } } }),
        );
        let texts = fields.secret_values(r#"{"a":"loud","structuredContent":{"a":"hush"}}"#);
        assert_eq!(texts.iter().map(Secret::expose).collect::<Vec<_>>(), ["hush"]);
    }
}
