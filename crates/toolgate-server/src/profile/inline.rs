//! A schema without references: what they refer to stands in their place.
//!
//! Invariant: the result is bounded in size and depth, whatever refers to whatever; nothing outside of the schema is
//! looked at.

use serde_json::{Map, Value, json};

/// Schemas in one schema, with those that references stand for.
const MOST: usize = 4_000;
/// Levels of nesting.
const DEEPEST: usize = 48;
/// Keywords that say nothing once there are no references.
const GONE: [&str; 9] = [
    "$ref",
    "$defs",
    "definitions",
    "$schema",
    "$id",
    "$anchor",
    "$dynamicRef",
    "$dynamicAnchor",
    "$comment",
];

/// Why a schema cannot be written without references.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum InlineError {
    /// It would be too large.
    #[error("its schema is too large")]
    TooLarge,
    /// It would be too deep.
    #[error("its schema is nested too deeply")]
    TooDeep,
}

/// The schema with what its references refer to in their place. Where one leads back to itself, any value is taken.
pub(super) fn inlined(root: &Value) -> Result<Value, InlineError> {
    Inlining { root, left: MOST, on_the_way: Vec::new() }.schema(root, 0)
}

struct Inlining<'a> {
    root: &'a Value,
    left: usize,
    /// The references that are being followed.
    on_the_way: Vec<String>,
}

impl Inlining<'_> {
    fn schema(&mut self, schema: &Value, depth: usize) -> Result<Value, InlineError> {
        self.left = self.left.checked_sub(1).ok_or(InlineError::TooLarge)?;
        if depth > DEEPEST {
            return Err(InlineError::TooDeep);
        }
        let Value::Object(members) = schema else { return Ok(schema.clone()) };
        let mut out = match members.get("$ref").and_then(Value::as_str) {
            Some(to) => self.referred(to, depth)?,
            None => Map::new(),
        };
        for (name, value) in members.iter().filter(|(name, _)| !GONE.contains(&name.as_str())) {
            let value = self.keyword(name, value, depth)?;
            out.insert(name.clone(), value);
        }
        Ok(Value::Object(out))
    }

    /// The value of a keyword, with the schemas in it.
    fn keyword(&mut self, name: &str, value: &Value, depth: usize) -> Result<Value, InlineError> {
        match (name, value) {
            ("properties" | "patternProperties" | "dependentSchemas", Value::Object(all)) => {
                let mut out = Map::new();
                for (name, schema) in all {
                    out.insert(name.clone(), self.schema(schema, depth + 1)?);
                }
                Ok(Value::Object(out))
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(all)) => {
                all.iter().map(|schema| self.schema(schema, depth + 1)).collect()
            }
            (
                "items"
                | "additionalProperties"
                | "not"
                | "if"
                | "then"
                | "else"
                | "contains"
                | "propertyNames"
                | "additionalItems"
                | "unevaluatedProperties"
                | "unevaluatedItems",
                schema,
            ) => self.schema(schema, depth + 1),
            _ => Ok(value.clone()),
        }
    }

    fn referred(&mut self, to: &str, depth: usize) -> Result<Map<String, Value>, InlineError> {
        let any = |what: String| {
            let Value::Object(any) = json!({ "description": what }) else { unreachable!("it is an object") };
            any
        };
        let name = to.rsplit('/').next().unwrap_or(to);
        if self.on_the_way.iter().any(|one| one == to) {
            return Ok(any(format!("Again the same as `{name}` around it.")));
        }
        let pointer = to.strip_prefix('#').map(|pointer| pointer.replace("%24", "$"));
        let Some(target) = pointer.and_then(|pointer| self.root.pointer(&pointer)).cloned() else {
            return Ok(any(String::new()));
        };
        self.on_the_way.push(to.to_owned());
        let found = self.schema(&target, depth + 1);
        self.on_the_way.pop();
        Ok(match found? {
            Value::Object(found) => found,
            _ => Map::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schema: Value, due: &str) {
        let said = match inlined(&schema) {
            Ok(schema) => schema.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(said, due);
    }

    #[test]
    fn references_are_replaced() {
        check(
            json!({ "$schema": "x", "properties": { "a": { "$ref": "#/$defs/A", "description": "An a." }, "$ref": { "type": "string" } },
                "$defs": { "A": { "type": "integer", "description": "Any." } } }),
            r#"{"properties":{"a":{"type":"integer","description":"An a."},"$ref":{"type":"string"}}}"#,
        );
        check(
            json!({ "$ref": "#/definitions/B", "definitions": { "B": { "allOf": [{ "$ref": "#/definitions/C" }] }, "C": { "const": { "$ref": "#" } } } }),
            r##"{"allOf":[{"const":{"$ref":"#"}}]}"##,
        );
        check(json!({ "items": { "$ref": "https://example.com/x" } }), r#"{"items":{"description":""}}"#);
    }

    #[test]
    fn what_leads_back_ends() {
        check(
            json!({ "properties": { "next": { "$ref": "#/$defs/Node" } },
                "$defs": { "Node": { "type": "object", "properties": { "next": { "$ref": "#/$defs/Node" } } } } }),
            r#"{"properties":{"next":{"type":"object","properties":{"next":{"description":"Again the same as `Node` around it."}}}}}"#,
        );
    }

    #[test]
    fn what_grows_is_refused() {
        // Each doubles the one before.
        let defs: Map<String, Value> = (0..15)
            .map(|n| {
                let next = json!({ "$ref": format!("#/$defs/D{}", n + 1) });
                (format!("D{n}"), json!({ "properties": { "a": next, "b": next } }))
            })
            .collect();
        check(json!({ "$ref": "#/$defs/D0", "$defs": defs }), "its schema is too large");
        let mut deep = json!({});
        for _ in 0..60 {
            deep = json!({ "items": deep });
        }
        check(deep, "its schema is nested too deeply");
    }
}
