//! Checks that a map is a valid JSON Schema.
//!
//! Invariant: references are never fetched, and a schema that takes too long to validate with is rejected, by the same
//! rules as those of servers. The depth of a schema is limited by the parsers.

use serde_json::Value as Json;
use toolgate_policy::{SchemaError, SchemaFault, SchemaValidator};

use crate::context::Context;
use crate::keys::{closest_match, join_quoted};
use crate::node::{Node, Value};
use crate::problem::Problem;
use crate::source::Span;

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
    if good {
        check_compiles(node, &json, text.get(), cx);
    }
    let kind = json.get("type");
    if good && arguments && kind.is_some_and(|kind| kind != "object") {
        let span = span_at_pointer(node, "/type");
        let message =
            format!("arguments are an object, not {}{}", kind.unwrap_or(&Json::Null), cx.location_suffix());
        cx.error(span, message, "write `\"type\": \"object\"` and name the arguments in `properties`");
    }
}

/// Reports invalid references and patterns, and schemas that take too long to validate with.
fn check_compiles(node: &Node, json: &Json, text: &str, cx: &mut Context<'_>) {
    // Compiling takes time, so it is skipped if the schema contains neither references nor patterns.
    let compile = [r#""$"#, r#""pattern"#].iter().any(|word| text.contains(word));
    let error = if compile {
        SchemaValidator::new(json).map(drop)
    } else {
        toolgate_policy::schema::check(json).map_err(SchemaError::from)
    };
    let suffix = cx.location_suffix();
    match error {
        Ok(()) => {}
        Err(SchemaError::Unsafe(SchemaFault::Elsewhere(reference) | SchemaFault::Missing(reference))) => {
            let span = find_text(node, &reference).map_or(node.span, |found| found.span);
            let message = format!("`{reference}` cannot be resolved in the JSON Schema{suffix}");
            cx.error(span, message, "define it under `$defs`; schemas are never fetched");
        }
        Err(SchemaError::Unsafe(fault)) => {
            let span = match &fault {
                SchemaFault::Pattern(text)
                | SchemaFault::Embedded(text)
                | SchemaFault::Endless(text)
                | SchemaFault::Ambiguous(text) => find_text(node, text).map_or(node.span, |found| found.span),
                _ => node.span,
            };
            cx.push(Problem::error(span, format!("unsafe JSON Schema{suffix}: {fault}")));
        }
        Err(SchemaError::Invalid(message)) => report_invalid(node.span, &message, cx),
    }
}

fn report_invalid(span: Span, message: &str, cx: &mut Context<'_>) {
    cx.push(Problem::error(span, format!("not a valid JSON Schema{}: {message}", cx.location_suffix())));
}

/// Finds the first string that begins with a text.
fn find_text<'n>(node: &'n Node, text: &str) -> Option<&'n Node> {
    match &node.value {
        Value::Scalar(_) => node.as_text().is_some_and(|found| found.starts_with(text)).then_some(node),
        Value::List(items) => items.iter().find_map(|item| find_text(item, text)),
        Value::Map(entries) => entries.iter().find_map(|entry| {
            // The keys of `patternProperties` are patterns.
            if entry.key == text { Some(&entry.node) } else { find_text(&entry.node, text) }
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
        good(r#"{"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": ["b"]}}"#);
        good(r#"{"properties": {"a": {"pattern": "^(a+)+$"}}}"#);
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
        for pattern in ["(", "^(?=x)(a+)+$", "((a{1000}){1000}){1000}"] {
            let fault = format!(
                "its schema contains the pattern `{pattern}`, which is invalid or cannot be matched in linear time"
            );
            bad(
                &format!(r#"{{"properties": {{"a": {{"pattern": "{pattern}"}}}}}}"#),
                &format!(r#""{pattern}" | unsafe JSON Schema: {fault}"#),
            );
            bad(
                &format!(r#"{{"patternProperties": {{"{pattern}": {{}}}}}}"#),
                &format!(r#"{{}} | unsafe JSON Schema: {fault}"#),
            );
        }
    }

    #[test]
    fn rejects_schemas_that_take_too_long() {
        let levels = |levels: usize| {
            let level = |n: usize| {
                format!(
                    r##""a{n}": {{"allOf": [{{"$ref": "#/$defs/a{0}"}}, {{"$ref": "#/$defs/a{0}"}}]}}"##,
                    n + 1
                )
            };
            let defs: Vec<_> = (0..levels).map(level).collect();
            format!(r##"{{"$ref": "#/$defs/a0", "$defs": {{{}, "a{levels}": {{}}}}}}"##, defs.join(", "))
        };
        good(&levels(8));
        let found = problems(&levels(30));
        assert_eq!(found.len(), 1);
        assert!(found[0].ends_with("grows past 10000 parts when its references are followed"), "{found:?}");
        let mut nested = "{}".to_owned();
        for _ in 0..30 {
            nested = format!(r#"{{"anyOf": [{nested}], "unevaluatedProperties": false}}"#);
        }
        assert!(problems(&nested)[0].contains("grows past 10000 parts"));
    }
}
