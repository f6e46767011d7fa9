//! Parts of a schema that cannot be checked: patterns that the linear-time engine does not support, such as look-ahead.
//!
//! Schemas of other authors have them for e-mail addresses, durations and emoji. A tool is usable without them: the
//! server checks its arguments itself. Invariant: the result accepts every value that the schema accepts, and bounded work
//! finds the patterns.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value};

use super::cost::PatternLimits;

/// Keywords that hold data, not schemas.
const DATA: [&str; 4] = ["enum", "const", "default", "examples"];
/// Keywords that hold schemas by name.
const NAME_MAPS: [&str; 6] =
    ["properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"];
/// Characters of a pattern in a message.
const MAX_SHOWN_CHARS: usize = 80;
/// Nesting and number of values that are looked at. Larger schemas are rejected anyway.
const MAX_DEPTH: usize = 256;
const MAX_VALUES: usize = 20_000;

/// The patterns of a schema that are not checked: at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UncheckedPatterns(pub Vec<String>);

impl fmt::Display for UncheckedPatterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, others @ ..] = &self.0[..] else { return Ok(()) };
        let shown: String = first.chars().take(MAX_SHOWN_CHARS).collect();
        let (more, is) = match others.len() {
            0 => (String::new(), "is"),
            number => (format!(" and {number} more"), "are"),
        };
        write!(f, "the pattern `{shown}`{more} of its schema {is} not checked: invalid or not linear")
    }
}

/// Returns the schema without the patterns that cannot be checked, and those patterns.
pub fn checkable(schema: &Value) -> (Cow<'_, Value>, Option<UncheckedPatterns>) {
    let mut search = PatternSearch { limits: PatternLimits::default(), values: 0 };
    if !search.finds_unchecked(schema, 0) || search.values > MAX_VALUES {
        return (Cow::Borrowed(schema), None);
    }
    let mut copy = schema.clone();
    let mut removal =
        PatternRemoval { limits: PatternLimits::default(), removed: Vec::new(), from_names: false };
    removal.remove_from(&mut copy, 0);
    if removal.from_names {
        remove_unevaluated(&mut copy, 0);
    }
    (Cow::Owned(copy), Some(UncheckedPatterns(removal.removed)))
}

/// Looks for patterns that cannot be checked.
struct PatternSearch {
    limits: PatternLimits,
    values: usize,
}

impl PatternSearch {
    /// Ends at the limit of values, so that a large schema costs little.
    fn finds_unchecked(&mut self, schema: &Value, depth: usize) -> bool {
        self.values += 1;
        match schema {
            _ if depth > MAX_DEPTH || self.values > MAX_VALUES => false,
            Value::Object(members) => members.iter().any(|(key, member)| match (key.as_str(), member) {
                ("pattern", Value::String(pattern)) => !self.limits.admit(pattern),
                (key, _) if DATA.contains(&key) => false,
                (key, Value::Object(named)) if NAME_MAPS.contains(&key) => {
                    key == "patternProperties" && named.keys().any(|pattern| !self.limits.admit(pattern))
                        || named.values().any(|schema| self.finds_unchecked(schema, depth + 1))
                }
                (_, member) => self.finds_unchecked(member, depth + 1),
            }),
            Value::Array(items) => items.iter().any(|item| self.finds_unchecked(item, depth + 1)),
            _ => false,
        }
    }
}

/// Removes patterns that cannot be checked.
struct PatternRemoval {
    limits: PatternLimits,
    removed: Vec<String>,
    /// True if a pattern of names was removed.
    from_names: bool,
}

impl PatternRemoval {
    /// Returns true if the schema, or a part of it, accepts more values now.
    fn remove_from(&mut self, schema: &mut Value, depth: usize) -> bool {
        match schema {
            _ if depth > MAX_DEPTH => false,
            Value::Object(members) => self.remove_from_object(members, depth),
            Value::Array(items) => self.remove_from_all(items.iter_mut(), depth + 1),
            _ => false,
        }
    }

    fn remove_from_all<'a>(&mut self, schemas: impl Iterator<Item = &'a mut Value>, depth: usize) -> bool {
        let mut is_wider = false;
        for schema in schemas {
            is_wider |= self.remove_from(schema, depth);
        }
        is_wider
    }

    fn remove_from_object(&mut self, members: &mut Map<String, Value>, depth: usize) -> bool {
        let mut is_wider = self.remove_name_patterns(members);
        if let Some(Value::String(pattern)) = members.get("pattern")
            && !self.limits.admit(pattern)
        {
            self.removed.push(pattern.clone());
            members.remove("pattern");
            is_wider = true;
        }
        let mut wider_keywords = Vec::new();
        for (key, member) in members.iter_mut() {
            let is_member_wider = match member {
                _ if DATA.contains(&key.as_str()) => false,
                Value::Object(named) if NAME_MAPS.contains(&key.as_str()) => {
                    self.remove_from_all(named.values_mut(), depth + 1)
                }
                // The target of a reference may accept more now.
                member => self.remove_from(member, depth + 1) || has_reference(member, 0),
            };
            if is_member_wider {
                wider_keywords.push(key.clone());
            }
        }
        is_wider |= !wider_keywords.is_empty();
        // Below `not` and its like, a part that accepts more makes the schema accept less: leave the keyword unchecked.
        for keyword in wider_keywords {
            match keyword.as_str() {
                "not" => drop(members.remove("not")),
                "if" => ["if", "then", "else"].into_iter().for_each(|one| drop(members.remove(one))),
                "contains" => drop(members.remove("maxContains")),
                "oneOf" => {
                    let branches = members.remove("oneOf").unwrap_or_default();
                    members.entry("anyOf").or_insert(branches);
                }
                _ => {}
            }
        }
        is_wider
    }

    /// Removes patterns of names. Without them, any member may be an additional one, so those are not checked.
    fn remove_name_patterns(&mut self, members: &mut Map<String, Value>) -> bool {
        let Some(Value::Object(named)) = members.get_mut("patternProperties") else { return false };
        let unchecked: Vec<String> =
            named.keys().filter(|pattern| !self.limits.admit(pattern)).cloned().collect();
        if unchecked.is_empty() {
            return false;
        }
        named.retain(|pattern, _| !unchecked.contains(pattern));
        self.removed.extend(unchecked);
        self.from_names = true;
        members.remove("additionalProperties");
        true
    }
}

fn has_reference(schema: &Value, depth: usize) -> bool {
    match schema {
        _ if depth > MAX_DEPTH => false,
        Value::Object(members) => members.iter().any(|(key, member)| {
            matches!(key.as_str(), "$ref" | "$dynamicRef" | "$recursiveRef")
                || has_reference(member, depth + 1)
        }),
        Value::Array(items) => items.iter().any(|item| has_reference(item, depth + 1)),
        _ => false,
    }
}

/// Removes the keyword that depends on the members covered by other parts, wherever those are.
fn remove_unevaluated(schema: &mut Value, depth: usize) {
    match schema {
        _ if depth > MAX_DEPTH => {}
        Value::Object(members) => {
            members.remove("unevaluatedProperties");
            members.values_mut().for_each(|member| remove_unevaluated(member, depth + 1));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| remove_unevaluated(item, depth + 1)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::SchemaValidator;

    const EMAIL: &str =
        r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$";

    #[test]
    fn removes_only_patterns_that_cannot_be_checked() {
        let plain = json!({ "properties": { "pattern": { "pattern": "^[a-z]+$" } }, "default": { "pattern": "(?=a)" } });
        let (schema, removed) = checkable(&plain);
        assert!(matches!(schema, Cow::Borrowed(_)) && removed.is_none());
        let schema = json!({
            "type": "object", "additionalProperties": false,
            "properties": { "to": { "type": "string", "format": "email", "pattern": EMAIL }, "n": { "pattern": "^a$" } },
            "patternProperties": { "^(?!x)": { "type": "string" }, "^y": { "type": "integer" } },
        });
        let (schema, removed) = checkable(&schema);
        let removed = removed.unwrap();
        assert_eq!(removed, UncheckedPatterns(vec!["^(?!x)".to_owned(), EMAIL.to_owned()]));
        insta::assert_snapshot!(removed, @"the pattern `^(?!x)` and 1 more of its schema are not checked: invalid or not linear");
        let expected = json!({
            "type": "object",
            "properties": { "to": { "type": "string", "format": "email" }, "n": { "pattern": "^a$" } },
            "patternProperties": { "^y": { "type": "integer" } },
        });
        assert_eq!(*schema, expected);
    }

    /// A part that accepts more inside `not` would make the schema accept less, and hold back values that are right.
    #[test]
    fn accepts_every_value_that_the_schema_accepts() {
        let look = json!({ "type": "string", "pattern": "^(?!a)" });
        for (schema, value) in [
            (json!({ "not": look }), json!("a")),
            (json!({ "not": { "$ref": "#/$defs/look" }, "$defs": { "look": look } }), json!("a")),
            (json!({ "if": look, "then": { "maxLength": 1 }, "else": true }), json!("ab")),
            (json!({ "oneOf": [look, { "type": "string", "pattern": "^a" }] }), json!("ab")),
            (json!({ "oneOf": [look, { "const": "a" }], "anyOf": [{ "maxLength": 1 }] }), json!("a")),
            (json!({ "contains": look, "maxContains": 1 }), json!(["a", "b"])),
            (
                json!({ "patternProperties": { "^(?!a)": true }, "additionalProperties": false }),
                json!({ "b": 1 }),
            ),
            (
                json!({ "allOf": [{ "patternProperties": { "^(?!a)": true } }], "unevaluatedProperties": false }),
                json!({ "b": 1 }),
            ),
            (
                json!({ "propertyNames": look, "additionalProperties": { "not": { "not": look } } }),
                json!({ "b": "b" }),
            ),
        ] {
            let (checked, removed) = checkable(&schema);
            assert!(removed.is_some(), "{schema}");
            let found = SchemaValidator::new(&checked).unwrap().check(&value);
            assert!(found.is_ok(), "{schema} {checked} {value}: {found:?}");
        }
        let rest = json!({ "allOf": [{ "pattern": "(?=a)" }, { "not": { "maxLength": 1 } }] });
        let (schema, _) = checkable(&rest);
        assert!(SchemaValidator::new(&schema).unwrap().check(&json!("a")).is_err(), "the rest is checked");
    }

    /// Patterns that take long to compile are limited, as in the check of the schema.
    #[test]
    fn many_large_patterns_cost_little() {
        let large = |number: usize| json!({ "pattern": format!("^\\w{{20}}x{{{}}}$", number + 1) });
        let all: Vec<_> = (0..1_000).map(large).collect();
        let all = json!({ "anyOf": all });
        let (schema, removed) = checkable(&all);
        assert_eq!(removed.map(|removed| removed.0.len()), Some(1_000 - 32));
        assert_eq!(super::super::check(&schema), Ok(()));
        let huge = json!({ "anyOf": vec![json!({ "pattern": "(?=a)" }); 30_000] });
        let huge = json!({ "allOf": [vec![json!({ "maxLength": 1 }); 30_000], huge] });
        assert!(checkable(&huge).1.is_none(), "such a schema is rejected for its size");
    }
}
