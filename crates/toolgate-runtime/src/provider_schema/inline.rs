//! Inlines the references of a JSON Schema.
//!
//! Invariant: the result is bounded in size and depth, even for recursive references, and nothing outside the schema is
//! read.

use serde_json::{Map, Value, json};

/// Subschemas in one schema, including inlined ones.
const MAX_SCHEMAS: usize = 4_000;
/// Levels of nesting.
const MAX_DEPTH: usize = 48;
/// Keywords without a meaning once references are inlined.
const DROPPED_KEYWORDS: [&str; 9] = [
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

/// Errors of schemas that cannot be inlined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum InlineError {
    #[error("its schema is too large")]
    TooLarge,
    #[error("its schema is nested too deeply")]
    TooDeep,
}

/// Replaces references by their targets. A recursive reference becomes a schema that accepts any value.
pub(super) fn inline_refs(root: &Value) -> Result<Value, InlineError> {
    RefInliner { root, remaining: MAX_SCHEMAS, active_refs: Vec::new() }.schema(root, 0)
}

struct RefInliner<'a> {
    root: &'a Value,
    remaining: usize,
    /// References being resolved, to detect recursion.
    active_refs: Vec<String>,
}

impl RefInliner<'_> {
    fn schema(&mut self, schema: &Value, depth: usize) -> Result<Value, InlineError> {
        self.remaining = self.remaining.checked_sub(1).ok_or(InlineError::TooLarge)?;
        if depth > MAX_DEPTH {
            return Err(InlineError::TooDeep);
        }
        let Value::Object(members) = schema else { return Ok(schema.clone()) };
        let mut out = match members.get("$ref").and_then(Value::as_str) {
            Some(to) => self.resolve_ref(to, depth)?,
            None => Map::new(),
        };
        for (name, value) in members.iter().filter(|(name, _)| !DROPPED_KEYWORDS.contains(&name.as_str())) {
            let value = self.keyword(name, value, depth)?;
            out.insert(name.clone(), value);
        }
        Ok(Value::Object(out))
    }

    /// Inlines the subschemas of a keyword.
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

    fn resolve_ref(&mut self, to: &str, depth: usize) -> Result<Map<String, Value>, InlineError> {
        let any = |description: String| {
            let Value::Object(any) = json!({ "description": description }) else {
                unreachable!("it is an object")
            };
            any
        };
        let name = to.rsplit('/').next().unwrap_or(to);
        if self.active_refs.iter().any(|one| one == to) {
            return Ok(any(format!("Same as the enclosing `{name}`.")));
        }
        let pointer = to.strip_prefix('#').map(|pointer| pointer.replace("%24", "$"));
        let Some(target) = pointer.and_then(|pointer| self.root.pointer(&pointer)).cloned() else {
            return Ok(any(String::new()));
        };
        self.active_refs.push(to.to_owned());
        let found = self.schema(&target, depth + 1);
        self.active_refs.pop();
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
        let result = match inline_refs(&schema) {
            Ok(schema) => schema.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(result, due);
    }

    #[test]
    fn inlines_references() {
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
    fn recursive_references_end() {
        check(
            json!({ "properties": { "next": { "$ref": "#/$defs/Node" } },
                "$defs": { "Node": { "type": "object", "properties": { "next": { "$ref": "#/$defs/Node" } } } } }),
            r#"{"properties":{"next":{"type":"object","properties":{"next":{"description":"Same as the enclosing `Node`."}}}}}"#,
        );
    }

    #[test]
    fn rejects_schemas_that_grow_too_large() {
        // Each definition doubles the next one.
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
