//! Checks that a map is a valid JSON Schema.
//!
//! Invariant: references are never fetched, and matching a pattern takes bounded time. The depth of a schema is
//! limited by the parsers.

use jsonschema::PatternOptions;
use serde_json::Value as Json;

use crate::context::Context;
use crate::keys::{closest_match, join_quoted};
use crate::node::{Node, Value};
use crate::problem::Problem;
use crate::source::Span;

/// Limit of backtracking: patterns with look-around may otherwise take exponential time.
const BACKTRACK_LIMIT: usize = 100_000;
/// Maximum size of a compiled pattern: `(a{1000}){1000}` is short but compiles to a large program.
const MAX_PATTERN_BYTES: usize = 1 << 20;

const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "object", "array", "null"];

/// Reports every violation of the JSON Schema specification at its location.
pub(crate) fn check(node: &Node, arguments: bool, cx: &mut Context<'_>) {
    let text = node.to_json();
    let json: Json = serde_json::from_str(text.get()).expect("a node is valid JSON");
    let meta = match json.get("$schema").and_then(Json::as_str).unwrap_or_default() {
        draft if draft.contains("draft-04") => jsonschema::draft4::meta::validator(),
        draft if draft.contains("draft-06") => jsonschema::draft6::meta::validator(),
        draft if draft.contains("draft-07") => jsonschema::draft7::meta::validator(),
        draft if draft.contains("2019-09") => jsonschema::draft201909::meta::validator(),
        _ => jsonschema::draft202012::meta::validator(),
    };
    let mut good = true;
    for error in meta.iter_errors(&json) {
        good = false;
        let pointer = error.instance_path().as_str();
        match error.instance().as_ref() {
            // The most frequent mistake gets its own hint.
            Json::String(word) if pointer.ends_with("/type") => {
                let message = format!("`{word}` is not a type of JSON{}", cx.location_suffix());
                let hint = match closest_match(word, TYPES) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => format!("{} is expected", join_quoted(&TYPES, "or")),
                };
                cx.error(span_at_pointer(node, pointer), message, hint);
            }
            _ => report_invalid(span_at_pointer(node, pointer), &error.to_string(), cx),
        }
    }
    // Compiling finds invalid references and patterns. It takes time, so it is skipped if the schema contains
    // neither.
    if good && [r#""$"#, r#""pattern"#].iter().any(|word| text.get().contains(word)) {
        check_compiles(node, &json, cx);
    }
    let kind = json.get("type");
    if good && arguments && kind.is_some_and(|kind| kind != "object") {
        let span = span_at_pointer(node, "/type");
        let message =
            format!("arguments are an object, not {}{}", kind.unwrap_or(&Json::Null), cx.location_suffix());
        cx.error(span, message, "write `\"type\": \"object\"` and name the arguments in `properties`");
    }
}

fn check_compiles(node: &Node, json: &Json, cx: &mut Context<'_>) {
    let patterns =
        PatternOptions::fancy_regex().backtrack_limit(BACKTRACK_LIMIT).size_limit(MAX_PATTERN_BYTES);
    let Err(error) = jsonschema::options().with_pattern_options(patterns).build(json) else { return };
    let message = error.to_string();
    match find_reference(node, &message) {
        Some(found) => {
            let text = found.as_text().unwrap_or_default();
            let message = format!("`{text}` cannot be resolved in the JSON Schema{}", cx.location_suffix());
            cx.error(found.span, message, "define it under `$defs`; schemas are never fetched");
        }
        None => report_invalid(span_at_pointer(node, error.instance_path().as_str()), &message, cx),
    }
}

fn report_invalid(span: Span, message: &str, cx: &mut Context<'_>) {
    cx.push(Problem::error(span, format!("not a valid JSON Schema{}: {message}", cx.location_suffix())));
}

/// Finds the `$ref` that a message refers to.
fn find_reference<'n>(node: &'n Node, message: &str) -> Option<&'n Node> {
    match &node.value {
        Value::Scalar(_) => None,
        Value::List(items) => items.iter().find_map(|item| find_reference(item, message)),
        Value::Map(entries) => entries.iter().find_map(|entry| {
            let text = entry.node.as_text().filter(|_| entry.key == "$ref");
            let spoken_of = |text: &str| message.contains(&format!("'{}'", text.trim_start_matches('#')));
            if text.is_some_and(spoken_of) { Some(&entry.node) } else { find_reference(&entry.node, message) }
        }),
    }
}

/// Returns the location a JSON pointer leads to, or of the deepest node it reaches.
fn span_at_pointer(node: &Node, pointer: &str) -> Span {
    let mut node = node;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        let next = match &node.value {
            Value::Map(_) => node.get(&step),
            Value::List(items) => step.parse::<usize>().ok().and_then(|index| items.get(index)),
            Value::Scalar(_) => None,
        };
        match next {
            Some(next) => node = next,
            None => break,
        }
    }
    node.span
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Environment;
    use crate::problem::Report;
    use crate::read::{FileFormat, read};

    /// Returns the problems of a schema, each with the text it points at.
    fn problems(schema: &str) -> Vec<String> {
        let environment = Environment::default();
        let mut cx = Context::new("".into(), &environment);
        let id = cx.sources.add("schema", schema, Some("schema".into()));
        let node = read(&cx.sources, id, FileFormat::Json).unwrap();
        check(&node, true, &mut cx);
        let report = Report::new(cx.sources, cx.problems, Vec::new());
        let shown = |problem: &Problem| {
            format!("{} | {}", report.sources().text(problem.span.unwrap()), problem.message)
        };
        report.problems.iter().map(shown).collect()
    }

    fn good(schema: &str) {
        assert_eq!(problems(schema), Vec::<String>::new(), "{schema}");
    }

    fn bad(schema: &str, expected: &str) {
        assert_eq!(problems(schema), [expected], "{schema}");
    }

    #[test]
    fn accepts_valid_schemas() {
        good("{}");
        good(r#"{"type": "object", "properties": {"a": {"type": ["string", "null"], "pattern": "^a+$"}}}"#);
        good(r##"{"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}"##);
        good(r##"{"properties": {"a": {"$ref": "#"}}}"##);
        good(r#"{"$ref": "a.json", "$defs": {"a": {"$id": "a.json", "type": "object"}}}"#);
        good(r#"{"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": ["b"]}}"#);
        good(r#"{"properties": {"a": {"pattern": "^(?=x)(a+)+$"}}}"#);
    }

    #[test]
    fn reports_each_mistake_once() {
        let two = problems(r#"{"properties": {"a": 5}, "required": "a"}"#);
        assert_eq!(
            two,
            [
                r#"5 | not a valid JSON Schema: 5 is not of types "boolean", "object""#,
                r#""a" | not a valid JSON Schema: "a" is not of type "array""#,
            ]
        );
        bad(r#"{"properties": {"a": {"type": "strng"}}}"#, r#""strng" | `strng` is not a type of JSON"#);
        bad(r#"{"type": "array"}"#, r#""array" | arguments are an object, not "array""#);
    }

    #[test]
    fn never_fetches_references() {
        for outside in ["http://127.0.0.1:9/x.json", "file:///etc/hostname", "other.json", "#/$defs/none"] {
            bad(
                &format!(r#"{{"properties": {{"a": {{"$ref": "{outside}"}}}}}}"#),
                &format!(r#""{outside}" | `{outside}` cannot be resolved in the JSON Schema"#),
            );
        }
    }

    #[test]
    fn rejects_invalid_patterns() {
        bad(
            r#"{"properties": {"a": {"pattern": "("}}}"#,
            r#""(" | not a valid JSON Schema: "(" is not a "regex""#,
        );
        let large = problems(r#"{"patternProperties": {"((a{1000}){1000}){1000}": {}}}"#);
        assert!(large[0].contains("is not a \"regex\""), "{large:?}");
    }
}
