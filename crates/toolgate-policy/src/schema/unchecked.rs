//! Parts of a schema that cannot be checked: patterns that the linear-time engine does not support, such as look-ahead.
//!
//! Schemas of other authors have them for e-mail addresses, durations and emoji. A tool is usable without them: the
//! server checks its arguments itself. Invariant: everything else of the schema stays as it is.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value};

use super::cost::pattern_is_linear;

/// Keywords that hold data, not schemas.
const DATA: [&str; 4] = ["enum", "const", "default", "examples"];
/// Keywords that hold schemas by name.
const NAME_MAPS: [&str; 6] =
    ["properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"];
/// Characters of a pattern in a message.
const MAX_SHOWN_CHARS: usize = 80;
/// Nesting that is looked at. Deeper schemas are rejected anyway.
const MAX_DEPTH: usize = 256;

/// A pattern that is not checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UncheckedPattern(pub String);

impl fmt::Display for UncheckedPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: String = self.0.chars().take(MAX_SHOWN_CHARS).collect();
        write!(f, "the pattern `{shown}` of its schema is not checked: it is invalid or not linear")
    }
}

/// Returns the schema without the patterns that cannot be checked, and those patterns.
pub fn checkable(schema: &Value) -> (Cow<'_, Value>, Vec<UncheckedPattern>) {
    if !has_unchecked(schema, 0) {
        return (Cow::Borrowed(schema), Vec::new());
    }
    let (mut copy, mut removed) = (schema.clone(), Vec::new());
    remove_unchecked(&mut copy, 0, &mut removed);
    (Cow::Owned(copy), removed)
}

fn is_unchecked(pattern: &str) -> bool {
    pattern_is_linear(pattern).is_err()
}

fn has_unchecked(schema: &Value, depth: usize) -> bool {
    match schema {
        _ if depth > MAX_DEPTH => false,
        Value::Object(members) => members.iter().any(|(key, member)| match (key.as_str(), member) {
            ("pattern", Value::String(pattern)) => is_unchecked(pattern),
            (key, _) if DATA.contains(&key) => false,
            (key, Value::Object(named)) if NAME_MAPS.contains(&key) => {
                key == "patternProperties" && named.keys().any(|pattern| is_unchecked(pattern))
                    || named.values().any(|schema| has_unchecked(schema, depth + 1))
            }
            (_, member) => has_unchecked(member, depth + 1),
        }),
        Value::Array(items) => items.iter().any(|item| has_unchecked(item, depth + 1)),
        _ => false,
    }
}

fn remove_unchecked(schema: &mut Value, depth: usize, removed: &mut Vec<UncheckedPattern>) {
    match schema {
        _ if depth > MAX_DEPTH => {}
        Value::Object(members) => {
            if let Some(Value::String(pattern)) = members.get("pattern")
                && is_unchecked(pattern)
            {
                removed.push(UncheckedPattern(pattern.clone()));
                members.remove("pattern");
            }
            remove_name_patterns(members, removed);
            for (key, member) in members {
                match member {
                    _ if DATA.contains(&key.as_str()) => {}
                    Value::Object(named) if NAME_MAPS.contains(&key.as_str()) => {
                        named.values_mut().for_each(|schema| remove_unchecked(schema, depth + 1, removed));
                    }
                    member => remove_unchecked(member, depth + 1, removed),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| remove_unchecked(item, depth + 1, removed)),
        _ => {}
    }
}

/// Removes patterns of names. Without them it is not known which members are additional, so those are not checked either.
fn remove_name_patterns(members: &mut Map<String, Value>, removed: &mut Vec<UncheckedPattern>) {
    let Some(Value::Object(named)) = members.get_mut("patternProperties") else { return };
    let unchecked: Vec<String> = named.keys().filter(|pattern| is_unchecked(pattern)).cloned().collect();
    if unchecked.is_empty() {
        return;
    }
    named.retain(|pattern, _| !unchecked.contains(pattern));
    removed.extend(unchecked.into_iter().map(UncheckedPattern));
    members.remove("additionalProperties");
    members.remove("unevaluatedProperties");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn removes_only_patterns_that_cannot_be_checked() {
        let plain = json!({ "properties": { "pattern": { "pattern": "^[a-z]+$" } }, "default": { "pattern": "(?=a)" } });
        let (schema, removed) = checkable(&plain);
        assert!(matches!(schema, Cow::Borrowed(_)) && removed.is_empty());
        let email = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$";
        let schema = json!({
            "type": "object", "additionalProperties": false,
            "properties": { "to": { "type": "string", "format": "email", "pattern": email }, "n": { "pattern": "^a$" } },
            "patternProperties": { "^(?!x)": { "type": "string" }, "^y": { "type": "integer" } },
        });
        let (schema, removed) = checkable(&schema);
        assert_eq!(removed, [UncheckedPattern("^(?!x)".to_owned()), UncheckedPattern(email.to_owned())]);
        let expected = json!({
            "type": "object",
            "properties": { "to": { "type": "string", "format": "email" }, "n": { "pattern": "^a$" } },
            "patternProperties": { "^y": { "type": "integer" } },
        });
        assert_eq!(*schema, expected);
    }
}
