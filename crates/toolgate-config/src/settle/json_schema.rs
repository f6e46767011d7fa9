//! Whether a map is a JSON Schema that calls can be checked against.
//!
//! Invariant: nothing is fetched, whatever a schema refers to, and no pattern takes long to match.
//! The depth of a schema is that of its file, which the readers limit.

use jsonschema::PatternOptions;
use serde_json::Value as Json;

use crate::context::Context;
use crate::keys::{closest, listed};
use crate::node::{Node, Value};
use crate::problem::Problem;
use crate::source::Span;

/// Steps of one match: patterns with look-around may go back and forth, and some never end.
const MOST_STEPS: usize = 100_000;
/// The size of a compiled pattern: `(a{1000}){1000}` is short to write.
const LARGEST_PATTERN: usize = 1 << 20;

const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "object", "array", "null"];

/// Tells every way in which a map is not a JSON Schema, at its place.
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
            // The most frequent mistake of all.
            Json::String(word) if pointer.ends_with("/type") => {
                let message = format!("`{word}` is not a type of JSON{}", cx.whereabouts());
                let hint = match closest(word, TYPES) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => format!("{} is expected", listed(&TYPES, "or")),
                };
                cx.error(at_pointer(node, pointer), message, hint);
            }
            _ => wrong(at_pointer(node, pointer), &error.to_string(), cx),
        }
    }
    // Whether it can be used shows when it is compiled. That takes time, and without references and
    // patterns there is nothing more to find.
    if good && [r#""$"#, r#""pattern"#].iter().any(|word| text.get().contains(word)) {
        compile(node, &json, cx);
    }
    let kind = json.get("type");
    if good && arguments && kind.is_some_and(|kind| kind != "object") {
        let span = at_pointer(node, "/type");
        let message =
            format!("arguments are an object, not {}{}", kind.unwrap_or(&Json::Null), cx.whereabouts());
        cx.error(span, message, "write `\"type\": \"object\"` and name the arguments in `properties`");
    }
}

fn compile(node: &Node, json: &Json, cx: &mut Context<'_>) {
    let patterns = PatternOptions::fancy_regex().backtrack_limit(MOST_STEPS).size_limit(LARGEST_PATTERN);
    let Err(error) = jsonschema::options().with_pattern_options(patterns).build(json) else { return };
    let message = error.to_string();
    match reference(node, &message) {
        Some(found) => {
            let text = found.as_text().unwrap_or_default();
            let message = format!("`{text}` leads nowhere in the JSON Schema{}", cx.whereabouts());
            cx.error(found.span, message, "put what it refers to under `$defs`; nothing is fetched");
        }
        None => wrong(at_pointer(node, error.instance_path().as_str()), &message, cx),
    }
}

fn wrong(span: Span, message: &str, cx: &mut Context<'_>) {
    cx.push(Problem::error(span, format!("not a valid JSON Schema{}: {message}", cx.whereabouts())));
}

/// The `$ref` that a message speaks of.
fn reference<'n>(node: &'n Node, message: &str) -> Option<&'n Node> {
    match &node.value {
        Value::Scalar(_) => None,
        Value::List(items) => items.iter().find_map(|item| reference(item, message)),
        Value::Map(entries) => entries.iter().find_map(|entry| {
            let text = entry.node.as_text().filter(|_| entry.key == "$ref");
            let spoken_of = |text: &str| message.contains(&format!("'{}'", text.trim_start_matches('#')));
            if text.is_some_and(spoken_of) { Some(&entry.node) } else { reference(&entry.node, message) }
        }),
    }
}

/// The place that a JSON pointer leads to, as far as it leads.
fn at_pointer(node: &Node, pointer: &str) -> Span {
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
    use crate::read::{Format, read};

    /// What is told about a schema, each with the text it points at.
    fn told(schema: &str) -> Vec<String> {
        let environment = Environment::default();
        let mut cx = Context::new("".into(), &environment);
        let id = cx.sources.add("schema", schema, Some("schema".into()));
        let node = read(&cx.sources, id, Format::Json).unwrap();
        check(&node, true, &mut cx);
        let report = Report::new(cx.sources, cx.problems, Vec::new());
        let shown = |problem: &Problem| {
            format!("{} | {}", report.sources().text(problem.span.unwrap()), problem.message)
        };
        report.problems.iter().map(shown).collect()
    }

    fn good(schema: &str) {
        assert_eq!(told(schema), Vec::<String>::new(), "{schema}");
    }

    fn bad(schema: &str, expected: &str) {
        assert_eq!(told(schema), [expected], "{schema}");
    }

    #[test]
    fn schemas_that_can_be_used() {
        good("{}");
        good(r#"{"type": "object", "properties": {"a": {"type": ["string", "null"], "pattern": "^a+$"}}}"#);
        good(r##"{"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}"##);
        good(r##"{"properties": {"a": {"$ref": "#"}}}"##);
        good(r#"{"$ref": "a.json", "$defs": {"a": {"$id": "a.json", "type": "object"}}}"#);
        good(r#"{"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": ["b"]}}"#);
        good(r#"{"properties": {"a": {"pattern": "^(?=x)(a+)+$"}}}"#);
    }

    #[test]
    fn every_mistake_is_told_once_at_its_place() {
        let two = told(r#"{"properties": {"a": 5}, "required": "a"}"#);
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
    fn nothing_is_fetched() {
        for outside in ["http://127.0.0.1:9/x.json", "file:///etc/hostname", "other.json", "#/$defs/none"] {
            bad(
                &format!(r#"{{"properties": {{"a": {{"$ref": "{outside}"}}}}}}"#),
                &format!(r#""{outside}" | `{outside}` leads nowhere in the JSON Schema"#),
            );
        }
    }

    #[test]
    fn patterns_that_cannot_be_used() {
        bad(
            r#"{"properties": {"a": {"pattern": "("}}}"#,
            r#""(" | not a valid JSON Schema: "(" is not a "regex""#,
        );
        let large = told(r#"{"patternProperties": {"((a{1000}){1000}){1000}": {}}}"#);
        assert!(large[0].contains("is not a \"regex\""), "{large:?}");
    }
}
