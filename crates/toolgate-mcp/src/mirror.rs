//! Arguments that the newest revision mirrors in headers: `x-mcp-header` in a tool's schema.
//!
//! Whoever stands between client and server may decide by these headers, so a schema that could be
//! read in two ways is refused as a whole. Invariant: a header is named once, and only a text, a
//! whole number or a truth value that every reader finds at the same place is mirrored.

use serde_json::{Number, Value};

const KEYWORD: &str = "x-mcp-header";
/// Whole numbers up to here are the same to every reader, and the protocol mirrors no others.
const MOST_SAFE: i64 = (1 << 53) - 1;

/// An argument and the header it is mirrored in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// The keys that lead to the argument.
    path: Vec<String>,
    /// What follows `Mcp-Param-`.
    header: String,
    /// Whether it is a whole number.
    is_integer: bool,
}

impl Mirror {
    /// The whole name of the header.
    pub fn header(&self) -> String {
        format!("Mcp-Param-{}", self.header)
    }

    fn value<'a>(&self, arguments: &'a Value) -> Option<&'a Value> {
        self.path.iter().try_fold(arguments, |value, key| value.get(key))
    }

    /// What the header has to say; what is null or absent has none.
    fn text(&self, arguments: &Value) -> Option<String> {
        match self.value(arguments)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => match safe(number).filter(|_| self.is_integer) {
                Some(whole) => Some(whole.to_string()),
                None => Some(number.to_string()),
            },
            Value::Bool(truth) => Some(truth.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// Whether a header says what the argument is. Whole numbers are compared as numbers: `42.0` is `42`.
    ///
    /// # Errors
    /// When the argument is a whole number that readers of headers do not agree on.
    pub fn agrees(&self, said: Option<&str>, arguments: &Value) -> Result<bool, Unsafe> {
        if self.is_integer
            && let Some(Value::Number(number)) = self.value(arguments)
            && is_whole(number)
        {
            let due = safe(number).ok_or_else(|| Unsafe(self.path.join(".")))?;
            // Whether a reader of numbers skips space depends on how it was built.
            let said = said.filter(|said| said.trim() == *said);
            let number = said.and_then(|said| serde_json::from_str::<Number>(said).ok());
            return Ok(number.is_some_and(|number| safe(&number) == Some(due)));
        }
        Ok(said == self.text(arguments).as_deref())
    }
}

/// A number is too large to be mirrored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the argument `{0}` is mirrored in a header, and is no whole number from -{MOST_SAFE} to {MOST_SAFE}"
)]
pub struct Unsafe(String);

fn is_whole(number: &Number) -> bool {
    !number.is_f64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
}

/// The whole number that this is, where every reader knows which.
fn safe(number: &Number) -> Option<i64> {
    let whole = number.as_i64().or_else(|| {
        let float =
            number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= MOST_SAFE as f64)?;
        Some(float as i64)
    });
    whole.filter(|whole| whole.abs() <= MOST_SAFE)
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
    mirrors.iter().filter_map(|mirror| Some((mirror.header(), mirror.text(arguments)?))).collect()
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
            let kind = property["type"].as_str();
            if !matches!(kind, Some("string" | "integer" | "boolean")) {
                return Err(MirrorError("it is on an argument that is no text, whole number or truth value"));
            }
            let is_integer = kind == Some("integer");
            found.push(Mirror { path: path.clone(), header: header.to_owned(), is_integer });
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
    fn whole_numbers_are_compared_as_numbers() {
        let schema = json!({ "type": "object", "properties": {
            "n": { "type": "integer", KEYWORD: "N" }, "t": { "type": "string", KEYWORD: "T" } } });
        let all = mirrors(&schema).unwrap();
        let check = |arguments: &str, said: Option<&str>, agrees: Option<bool>| {
            let arguments = serde_json::from_str(arguments).unwrap();
            assert_eq!(all[0].agrees(said, &arguments).ok(), agrees, "{arguments} {said:?}");
        };
        for (arguments, said) in [
            (r#"{"n":42}"#, "42"),
            (r#"{"n":42}"#, "42.0"),
            (r#"{"n":42.0}"#, "42"),
            (r#"{"n":-0.0}"#, "0"),
            (r#"{"n":9007199254740991}"#, "9007199254740991"),
            // What is no whole number is refused by the schema, and may well be said.
            (r#"{"n":1.5}"#, "1.5"),
            (r#"{"n":"x"}"#, "x"),
        ] {
            check(arguments, Some(said), Some(true));
        }
        for said in ["43", "042", " 42", "0x2a", "42.5", "", "4e400", "9007199254740993"] {
            check(r#"{"n":42}"#, Some(said), Some(false));
        }
        check(r#"{"n":42}"#, None, Some(false));
        check(r#"{"n":null}"#, None, Some(true));
        check(r#"{"n":null}"#, Some("42"), Some(false));
        // The next one is another number to some readers, so there is no header that says it.
        for large in
            ["9007199254740992", "9007199254740993", "-9007199254740992", "1e16", "12345678901234567890123"]
        {
            check(&format!(r#"{{"n":{large}}}"#), Some(large), None);
        }
        // A text is a text.
        assert_eq!(all[1].agrees(Some("42.0"), &json!({ "t": "42" })), Ok(false));
        assert_eq!(
            headers(&all, &json!({ "n": 42.0, "t": "42.0" })),
            [("Mcp-Param-N".to_owned(), "42".to_owned()), ("Mcp-Param-T".to_owned(), "42.0".to_owned()),]
        );
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
