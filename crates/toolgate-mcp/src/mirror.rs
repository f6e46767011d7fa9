//! Arguments that the newest revision mirrors in headers: `x-mcp-header` in a tool's schema.
//!
//! Whoever stands between client and server may decide by these headers, so a schema that could be
//! read in two ways is refused as a whole. Invariant: a header is named once, and only a text, a
//! whole number or a truth value that every reader finds at the same place is mirrored.

use serde_json::Value;

const KEYWORD: &str = "x-mcp-header";

/// An argument and the header it is mirrored in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// The keys that lead to the argument.
    path: Vec<String>,
    /// What follows `Mcp-Param-`.
    header: String,
}

impl Mirror {
    /// The whole name of the header.
    pub fn header(&self) -> String {
        format!("Mcp-Param-{}", self.header)
    }
}

/// A schema mirrors arguments in a way that the protocol forbids.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("its schema has an `{KEYWORD}` that the protocol forbids: {0}")]
pub struct MirrorError(&'static str);

/// The mirrored arguments of a schema.
pub fn mirrors(schema: &Value) -> Result<Vec<Mirror>, MirrorError> {
    let mut found = Vec::new();
    properties(schema, &mut Vec::new(), &mut found)?;
    if count(schema) != found.len() {
        return Err(MirrorError("it is not on a property of the arguments"));
    }
    for (at, mirror) in found.iter().enumerate() {
        if found[..at].iter().any(|other| other.header.eq_ignore_ascii_case(&mirror.header)) {
            return Err(MirrorError("two arguments share a header"));
        }
    }
    Ok(found)
}

/// The headers of a call: what is null or absent has none.
pub fn headers(mirrors: &[Mirror], arguments: &Value) -> Vec<(String, String)> {
    let header = |mirror: &Mirror| {
        let value = mirror.path.iter().try_fold(arguments, |value, key| value.get(key))?;
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Bool(_) | Value::Number(_) => value.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        };
        Some((mirror.header(), text))
    };
    mirrors.iter().filter_map(header).collect()
}

fn properties(schema: &Value, path: &mut Vec<String>, found: &mut Vec<Mirror>) -> Result<(), MirrorError> {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        path.push(name.clone());
        if let Some(header) = property.get(KEYWORD) {
            let header = header.as_str().ok_or(MirrorError("it is not a text"))?;
            let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            if header.is_empty() || !header.bytes().all(token) {
                return Err(MirrorError("it cannot name a header"));
            }
            if !matches!(property["type"].as_str(), Some("string" | "integer" | "boolean")) {
                return Err(MirrorError("it is on an argument that is no text, whole number or truth value"));
            }
            found.push(Mirror { path: path.clone(), header: header.to_owned() });
        }
        properties(property, path, found)?;
        path.pop();
    }
    Ok(())
}

/// How often the keyword stands anywhere in a schema.
fn count(value: &Value) -> usize {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| usize::from(key == KEYWORD && !value.is_object()) + count(value))
            .sum(),
        Value::Array(items) => items.iter().map(count).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(properties: Value, expected: Result<&[(&str, &str)], &str>) {
        let arguments = json!({ "a": "us west", "b": 42, "c": true, "n": null, "o": { "p": "deep" } });
        let schema = json!({ "type": "object", "properties": properties });
        let shown = mirrors(&schema).map(|mirrors| headers(&mirrors, &arguments)).map_err(|error| error.0);
        let shown = shown
            .as_ref()
            .map(|all| all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect::<Vec<_>>());
        assert_eq!(shown.as_deref().map_err(|error| **error), expected, "{properties}");
    }

    #[test]
    fn what_is_mirrored() {
        check(
            json!({ "a": { "type": "string", KEYWORD: "Region" } }),
            Ok(&[("Mcp-Param-Region", "us west")]),
        );
        check(
            json!({ "b": { "type": "integer", KEYWORD: "N" }, "c": { "type": "boolean", KEYWORD: "T" } }),
            Ok(&[("Mcp-Param-N", "42"), ("Mcp-Param-T", "true")]),
        );
        check(
            json!({ "o": { "type": "object", "properties": { "p": { "type": "string", KEYWORD: "P" } } } }),
            Ok(&[("Mcp-Param-P", "deep")]),
        );
        check(json!({ "n": { "type": "string", KEYWORD: "N" }, "x": { "type": "string" } }), Ok(&[]));
    }

    #[test]
    fn what_is_refused() {
        let on = |kind: &str, header: &str| json!({ "a": { "type": kind, KEYWORD: header } });
        for kind in ["object", "array", "null", "number"] {
            assert!(mirrors(&json!({ "properties": on(kind, "A") })).is_err(), "{kind}");
        }
        for header in ["", "My Region", "Region:Primary", "Région", "Region\t1"] {
            assert!(mirrors(&json!({ "properties": on("string", header) })).is_err(), "{header}");
        }
        let twice =
            json!({ "a": { "type": "string", KEYWORD: "X" }, "b": { "type": "string", KEYWORD: "x" } });
        check(twice, Err("two arguments share a header"));
        check(
            json!({ "a": { "anyOf": [{ "type": "string", KEYWORD: "X" }] } }),
            Err("it is not on a property of the arguments"),
        );
    }
}
