//! Checks if a schema from outside is safe to validate values with.
//!
//! A schema runs on every call, and can refer to other schemas on the network, double its size with every level, or
//! contain a pattern that takes minutes. Such schemas are found here, when the tool is discovered. Invariant: linear in
//! the size of the schema, and nothing is fetched.

use std::collections::HashMap;

use serde_json::Value;

/// Parts of one schema.
const MAX_PARTS: usize = 2_000;
/// Parts of one schema with all references expanded.
const MAX_COST: u64 = 10_000;
/// Nesting with all references expanded.
const MAX_DEPTH: usize = 256;
/// The compiled size of one pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// An unsafe schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaFault {
    /// It refers to another document.
    #[error("its schema refers to `{0}`, which is not part of it")]
    Elsewhere(String),
    /// It refers to a part that does not exist.
    #[error("its schema refers to `{0}`, which does not exist")]
    Missing(String),
    #[error("its schema has more than {MAX_PARTS} parts")]
    TooMany,
    /// It is too large with all references expanded.
    #[error("its schema grows past {MAX_COST} parts when its references are followed")]
    TooCostly,
    /// It contains a pattern that cannot be matched in linear time.
    #[error("its schema contains the pattern `{0}`, which cannot be matched in linear time")]
    Pattern(String),
}

/// Rejects an unsafe schema.
pub fn check(schema: &Value) -> Result<(), SchemaFault> {
    let mut parts = 0;
    walk(schema, &mut parts)?;
    let mut costs = HashMap::new();
    if cost(schema, schema, &mut costs, 0)? > MAX_COST {
        return Err(SchemaFault::TooCostly);
    }
    Ok(())
}

fn walk(value: &Value, parts: &mut usize) -> Result<(), SchemaFault> {
    *parts += 1;
    if *parts > MAX_PARTS {
        return Err(SchemaFault::TooMany);
    }
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                match (key.as_str(), member) {
                    ("pattern", Value::String(pattern)) => pattern_is_linear(pattern)?,
                    ("patternProperties", Value::Object(patterns)) => {
                        patterns.keys().try_for_each(|pattern| pattern_is_linear(pattern))?;
                    }
                    // These hold data, not schemas.
                    ("enum" | "const" | "default" | "examples", _) => continue,
                    _ => {}
                }
                walk(member, parts)?;
            }
            Ok(())
        }
        Value::Array(items) => items.iter().try_for_each(|item| walk(item, parts)),
        _ => Ok(()),
    }
}

pub(crate) fn pattern_is_linear(pattern: &str) -> Result<(), SchemaFault> {
    let built = regex::RegexBuilder::new(pattern)
        .size_limit(MAX_PATTERN_BYTES)
        .dfa_size_limit(MAX_PATTERN_BYTES)
        .build();
    built.map(drop).map_err(|_| SchemaFault::Pattern(pattern.chars().take(80).collect()))
}

/// The number of parts with all references expanded. A reference to a part being counted is a cycle and costs nothing:
/// the depth of the value bounds it.
fn cost<'a>(
    schema: &'a Value,
    root: &'a Value,
    costs: &mut HashMap<&'a str, Option<u64>>,
    depth: usize,
) -> Result<u64, SchemaFault> {
    if depth > MAX_DEPTH {
        return Err(SchemaFault::TooCostly);
    }
    match schema {
        Value::Object(members) => {
            let mut total: u64 = 1;
            for (key, member) in members {
                let more = match (key.as_str(), member) {
                    ("$ref" | "$dynamicRef", Value::String(reference)) => {
                        reference_cost(reference, root, costs, depth)?
                    }
                    ("enum" | "const" | "default" | "examples" | "$defs" | "definitions", _) => 0,
                    _ => cost(member, root, costs, depth + 1)?,
                };
                total = total.saturating_add(more);
            }
            Ok(total)
        }
        Value::Array(items) => items
            .iter()
            .try_fold(0_u64, |total, item| Ok(total.saturating_add(cost(item, root, costs, depth + 1)?))),
        _ => Ok(0),
    }
}

fn reference_cost<'a>(
    reference: &'a str,
    root: &'a Value,
    costs: &mut HashMap<&'a str, Option<u64>>,
    depth: usize,
) -> Result<u64, SchemaFault> {
    if let Some(known) = costs.get(reference) {
        return Ok(known.unwrap_or(0));
    }
    let elsewhere = || SchemaFault::Elsewhere(reference.chars().take(80).collect());
    let fragment = reference.strip_prefix('#').ok_or_else(elsewhere)?;
    let target = match fragment {
        "" => Some(root),
        pointer if pointer.starts_with('/') => root.pointer(&pointer.replace("%25", "%")),
        anchor => find_anchor(root, anchor),
    };
    let target = target.ok_or_else(|| SchemaFault::Missing(reference.chars().take(80).collect()))?;
    costs.insert(reference, None);
    let total = cost(target, root, costs, depth + 1)?;
    costs.insert(reference, Some(total));
    Ok(total)
}

/// Finds the part with an `$anchor`.
fn find_anchor<'a>(value: &'a Value, anchor: &str) -> Option<&'a Value> {
    match value {
        Value::Object(members) => {
            let named = |key: &str| members.get(key).and_then(Value::as_str) == Some(anchor);
            if named("$anchor") || named("$dynamicAnchor") {
                return Some(value);
            }
            members.values().find_map(|member| find_anchor(member, anchor))
        }
        Value::Array(items) => items.iter().find_map(|item| find_anchor(item, anchor)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn doubling(levels: usize) -> Value {
        let mut defs = serde_json::Map::new();
        defs.insert("d0".to_owned(), json!({ "type": "string" }));
        for level in 1..=levels {
            let below = json!({ "$ref": format!("#/$defs/d{}", level - 1) });
            defs.insert(format!("d{level}"), json!({ "allOf": [below.clone(), below] }));
        }
        json!({ "$defs": defs, "$ref": format!("#/$defs/d{levels}") })
    }

    #[test]
    fn accepts_safe_schemas() {
        for schema in [
            json!({}),
            json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/a" } }, "$defs": { "a": { "pattern": "^[a-z]+$" } } }),
            json!({ "$defs": { "tree": { "properties": { "left": { "$ref": "#/$defs/tree" } } } }, "$ref": "#/$defs/tree" }),
            json!({ "properties": { "self": { "$ref": "#" } } }),
            json!({ "$defs": { "x": { "$anchor": "here" } }, "$ref": "#here" }),
            json!({ "properties": { "p": { "default": { "$ref": "http://127.0.0.1/" } } } }),
            doubling(8),
        ] {
            assert_eq!(check(&schema), Ok(()), "{schema}");
        }
    }

    #[test]
    fn rejects_external_references() {
        for reference in ["http://127.0.0.1:1/x", "file:///etc/passwd", "other.json", "//host/x"] {
            let schema = json!({ "properties": { "a": { "$ref": reference } } });
            assert_eq!(check(&schema), Err(SchemaFault::Elsewhere(reference.to_owned())));
        }
        assert_eq!(
            check(&json!({ "$ref": "#/$defs/no" })),
            Err(SchemaFault::Missing("#/$defs/no".to_owned()))
        );
    }

    #[test]
    fn rejects_exploding_schemas() {
        assert_eq!(check(&doubling(26)), Err(SchemaFault::TooCostly));
        assert_eq!(check(&doubling(60)), Err(SchemaFault::TooCostly));
        let branches: Vec<_> = (0..10_000).map(|n| json!({ "const": n })).collect();
        assert_eq!(check(&json!({ "anyOf": branches })), Err(SchemaFault::TooMany));
    }

    #[test]
    fn rejects_nonlinear_patterns() {
        assert_eq!(check(&json!({ "pattern": "^(a+)+$" })), Ok(()), "linear with this engine");
        for pattern in [r"(?=a)b", r"(\w+)\1", "a{1000}{1000}{1000}"] {
            assert_eq!(check(&json!({ "pattern": pattern })), Err(SchemaFault::Pattern(pattern.to_owned())));
        }
    }
}
