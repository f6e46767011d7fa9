//! Whether a schema from outside is safe to check values against.
//!
//! A schema is a program that runs on every call: it can name other schemas on the network, double
//! its own size with every level, or hold a pattern that takes minutes. What could do so is found
//! here, when the tool is discovered. Invariant: linear in the schema, and nothing is fetched.

use std::collections::HashMap;

use serde_json::Value;

/// Parts of one schema.
const MOST_PARTS: usize = 2_000;
/// Parts of one schema when every reference in it is followed.
const MOST_COST: u64 = 10_000;
/// Levels of nesting when every reference is followed.
const DEEPEST: usize = 256;
/// The compiled size of one pattern.
const LARGEST_PATTERN: usize = 1 << 20;

/// Why a schema is not safe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaFault {
    /// It refers to a schema that is elsewhere.
    #[error("its schema refers to `{0}`, which is not part of it")]
    Elsewhere(String),
    /// It refers to a part that it does not have.
    #[error("its schema refers to `{0}`, which it does not have")]
    Missing(String),
    /// It has too many parts.
    #[error("its schema has more than {MOST_PARTS} parts")]
    TooMany,
    /// It grows too large when its references are followed.
    #[error("its schema grows past {MOST_COST} parts when its references are followed")]
    TooCostly,
    /// It holds a pattern that cannot be matched in linear time.
    #[error("its schema holds the pattern `{0}`, which cannot be matched in linear time")]
    Pattern(String),
}

/// Looks for what makes a schema unsafe.
pub fn check(schema: &Value) -> Result<(), SchemaFault> {
    let mut parts = 0;
    walk(schema, &mut parts)?;
    let mut costs = HashMap::new();
    if cost(schema, schema, &mut costs, 0)? > MOST_COST {
        return Err(SchemaFault::TooCostly);
    }
    Ok(())
}

fn walk(value: &Value, parts: &mut usize) -> Result<(), SchemaFault> {
    *parts += 1;
    if *parts > MOST_PARTS {
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
                    // Data, not schemas.
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
    let built =
        regex::RegexBuilder::new(pattern).size_limit(LARGEST_PATTERN).dfa_size_limit(LARGEST_PATTERN).build();
    built.map(drop).map_err(|_| SchemaFault::Pattern(pattern.chars().take(80).collect()))
}

/// How many parts a schema has when its references are followed. A reference to a part that is
/// being counted is a circle, which values bound.
fn cost<'a>(
    schema: &'a Value,
    root: &'a Value,
    costs: &mut HashMap<&'a str, Option<u64>>,
    depth: usize,
) -> Result<u64, SchemaFault> {
    if depth > DEEPEST {
        return Err(SchemaFault::TooCostly);
    }
    match schema {
        Value::Object(members) => {
            let mut total: u64 = 1;
            for (key, member) in members {
                let more = match (key.as_str(), member) {
                    ("$ref" | "$dynamicRef", Value::String(reference)) => {
                        referred(reference, root, costs, depth)?
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

fn referred<'a>(
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
        anchor => anchored(root, anchor),
    };
    let target = target.ok_or_else(|| SchemaFault::Missing(reference.chars().take(80).collect()))?;
    costs.insert(reference, None);
    let total = cost(target, root, costs, depth + 1)?;
    costs.insert(reference, Some(total));
    Ok(total)
}

/// The part with an `$anchor`.
fn anchored<'a>(value: &'a Value, anchor: &str) -> Option<&'a Value> {
    match value {
        Value::Object(members) => {
            let named = |key: &str| members.get(key).and_then(Value::as_str) == Some(anchor);
            if named("$anchor") || named("$dynamicAnchor") {
                return Some(value);
            }
            members.values().find_map(|member| anchored(member, anchor))
        }
        Value::Array(items) => items.iter().find_map(|item| anchored(item, anchor)),
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
    fn what_is_safe() {
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
    fn references_that_lead_out() {
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
    fn schemas_that_explode() {
        assert_eq!(check(&doubling(26)), Err(SchemaFault::TooCostly));
        assert_eq!(check(&doubling(60)), Err(SchemaFault::TooCostly));
        let branches: Vec<_> = (0..10_000).map(|n| json!({ "const": n })).collect();
        assert_eq!(check(&json!({ "anyOf": branches })), Err(SchemaFault::TooMany));
    }

    #[test]
    fn patterns_that_hang() {
        assert_eq!(
            check(&json!({ "pattern": "^(a+)+$" })),
            Ok(()),
            "linear here, whatever others do with it"
        );
        for pattern in [r"(?=a)b", r"(\w+)\1", "a{1000}{1000}{1000}"] {
            assert_eq!(check(&json!({ "pattern": pattern })), Err(SchemaFault::Pattern(pattern.to_owned())));
        }
    }
}
