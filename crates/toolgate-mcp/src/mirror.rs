//! Arguments mirrored in `Mcp-Param-*` headers: `x-mcp-header` in a tool's schema (newest revision).
//!
//! Proxies between client and server may route or filter by these headers, so an ambiguous schema is rejected as
//! a whole. Invariant: each header name is used once, and only strings, integers and booleans at a fixed path are
//! mirrored.

use serde_json::{Number, Value};

const KEYWORD: &str = "x-mcp-header";
/// Largest integer that every JSON parser reads exactly; the protocol mirrors no larger ones.
const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;

/// Argument and the header that mirrors it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderMirror {
    /// Keys from the root of the arguments to this one.
    path: Vec<String>,
    /// Header name without the `Mcp-Param-` prefix.
    header: String,
    is_integer: bool,
}

impl HeaderMirror {
    /// Full header name.
    pub fn header(&self) -> String {
        format!("Mcp-Param-{}", self.header)
    }

    fn value<'a>(&self, arguments: &'a Value) -> Option<&'a Value> {
        self.path.iter().try_fold(arguments, |value, key| value.get(key))
    }

    /// Expected header value; `None` if the argument is null or absent.
    fn text(&self, arguments: &Value) -> Option<String> {
        match self.value(arguments)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => match safe_integer(number).filter(|_| self.is_integer) {
                Some(whole) => Some(whole.to_string()),
                None => Some(number.to_string()),
            },
            Value::Bool(truth) => Some(truth.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// Returns true if the header value matches the argument. Integers are compared as numbers: `42.0` is `42`.
    ///
    /// # Errors
    /// The argument is an integer outside the safe range.
    pub fn matches(&self, header: Option<&str>, arguments: &Value) -> Result<bool, UnsafeInteger> {
        if self.is_integer
            && let Some(Value::Number(number)) = self.value(arguments)
            && is_integral(number)
        {
            let expected = safe_integer(number).ok_or_else(|| UnsafeInteger(self.path.join(".")))?;
            // Some number parsers skip surrounding whitespace, so padded values never match.
            let header = header.filter(|header| header.trim() == *header);
            let number = header.and_then(|header| serde_json::from_str::<Number>(header).ok());
            return Ok(number.is_some_and(|number| safe_integer(&number) == Some(expected)));
        }
        Ok(header == self.text(arguments).as_deref())
    }
}

/// Integer argument outside the range that is safe to mirror.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "argument `{0}` is mirrored in a header and must be an integer from -{MAX_SAFE_INTEGER} to {MAX_SAFE_INTEGER}"
)]
pub struct UnsafeInteger(String);

fn is_integral(number: &Number) -> bool {
    !number.is_f64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
}

/// Returns the integer value if it is in the safe range.
fn safe_integer(number: &Number) -> Option<i64> {
    let whole = number.as_i64().or_else(|| {
        let float =
            number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= MAX_SAFE_INTEGER as f64)?;
        Some(float as i64)
    });
    whole.filter(|whole| whole.abs() <= MAX_SAFE_INTEGER)
}

/// Schema with an `x-mcp-header` that the protocol forbids.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid `{KEYWORD}` in the input schema: {0}")]
pub struct MirrorError(&'static str);

/// Collects the mirrored arguments of a schema.
pub fn find_mirrors(schema: &Value) -> Result<Vec<HeaderMirror>, MirrorError> {
    let mut found = Vec::new();
    properties(schema, &mut Vec::new(), &mut found)?;
    if count_keyword(schema) != found.len() {
        return Err(MirrorError("only properties of the arguments can be mirrored"));
    }
    for (at, mirror) in found.iter().enumerate() {
        if found[..at].iter().any(|other| other.header.eq_ignore_ascii_case(&mirror.header)) {
            return Err(MirrorError("two arguments use the same header"));
        }
    }
    Ok(found)
}

/// Returns the mirror headers of a call. Null and absent arguments have none.
pub fn mirror_headers(mirrors: &[HeaderMirror], arguments: &Value) -> Vec<(String, String)> {
    mirrors.iter().filter_map(|mirror| Some((mirror.header(), mirror.text(arguments)?))).collect()
}

fn properties(
    schema: &Value,
    path: &mut Vec<String>,
    found: &mut Vec<HeaderMirror>,
) -> Result<(), MirrorError> {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        path.push(name.clone());
        if let Some(header) = property.get(KEYWORD) {
            let header = header.as_str().ok_or(MirrorError("its value must be a string"))?;
            let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            if header.is_empty() || !header.bytes().all(token) {
                return Err(MirrorError("its value is not a valid header name"));
            }
            let kind = property["type"].as_str();
            if !matches!(kind, Some("string" | "integer" | "boolean")) {
                return Err(MirrorError("the argument must be a string, an integer or a boolean"));
            }
            let is_integer = kind == Some("integer");
            found.push(HeaderMirror { path: path.clone(), header: header.to_owned(), is_integer });
        }
        properties(property, path, found)?;
        path.pop();
    }
    Ok(())
}

/// Counts the keyword anywhere in a schema.
fn count_keyword(value: &Value) -> usize {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| usize::from(key == KEYWORD && !value.is_object()) + count_keyword(value))
            .sum(),
        Value::Array(items) => items.iter().map(count_keyword).sum(),
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
        let shown = find_mirrors(&schema)
            .map(|mirrors| mirror_headers(&mirrors, &arguments))
            .map_err(|error| error.0);
        let shown = shown
            .as_ref()
            .map(|all| all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect::<Vec<_>>());
        assert_eq!(shown.as_deref().map_err(|error| **error), expected, "{properties}");
    }

    #[test]
    fn mirrors_strings_integers_and_booleans() {
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
    fn compares_integers_as_numbers() {
        let schema = json!({ "type": "object", "properties": {
            "n": { "type": "integer", KEYWORD: "N" }, "t": { "type": "string", KEYWORD: "T" } } });
        let all = find_mirrors(&schema).unwrap();
        let check = |arguments: &str, header: Option<&str>, agrees: Option<bool>| {
            let arguments = serde_json::from_str(arguments).unwrap();
            assert_eq!(all[0].matches(header, &arguments).ok(), agrees, "{arguments} {header:?}");
        };
        for (arguments, header) in [
            (r#"{"n":42}"#, "42"),
            (r#"{"n":42}"#, "42.0"),
            (r#"{"n":42.0}"#, "42"),
            (r#"{"n":-0.0}"#, "0"),
            (r#"{"n":9007199254740991}"#, "9007199254740991"),
            // Not integers: schema validation rejects them later; mirroring just compares the text.
            (r#"{"n":1.5}"#, "1.5"),
            (r#"{"n":"x"}"#, "x"),
        ] {
            check(arguments, Some(header), Some(true));
        }
        for header in ["43", "042", " 42", "0x2a", "42.5", "", "4e400", "9007199254740993"] {
            check(r#"{"n":42}"#, Some(header), Some(false));
        }
        check(r#"{"n":42}"#, None, Some(false));
        check(r#"{"n":null}"#, None, Some(true));
        check(r#"{"n":null}"#, Some("42"), Some(false));
        // Beyond the safe range parsers disagree, so no header value can match.
        for large in
            ["9007199254740992", "9007199254740993", "-9007199254740992", "1e16", "12345678901234567890123"]
        {
            check(&format!(r#"{{"n":{large}}}"#), Some(large), None);
        }
        // Strings are compared as strings.
        assert_eq!(all[1].matches(Some("42.0"), &json!({ "t": "42" })), Ok(false));
        assert_eq!(
            mirror_headers(&all, &json!({ "n": 42.0, "t": "42.0" })),
            [("Mcp-Param-N".to_owned(), "42".to_owned()), ("Mcp-Param-T".to_owned(), "42.0".to_owned()),]
        );
    }

    #[test]
    fn rejects_invalid_schemas() {
        let on = |kind: &str, header: &str| json!({ "a": { "type": kind, KEYWORD: header } });
        for kind in ["object", "array", "null", "number"] {
            assert!(find_mirrors(&json!({ "properties": on(kind, "A") })).is_err(), "{kind}");
        }
        for header in ["", "My Region", "Region:Primary", "Région", "Region\t1"] {
            assert!(find_mirrors(&json!({ "properties": on("string", header) })).is_err(), "{header}");
        }
        let twice =
            json!({ "a": { "type": "string", KEYWORD: "X" }, "b": { "type": "string", KEYWORD: "x" } });
        check(twice, Err("two arguments use the same header"));
        check(
            json!({ "a": { "anyOf": [{ "type": "string", KEYWORD: "X" }] } }),
            Err("only properties of the arguments can be mirrored"),
        );
    }
}
