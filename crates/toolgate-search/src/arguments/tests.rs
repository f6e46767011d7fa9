//! Tests of argument extraction: sentences and schemas in, arguments out.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn entry(name: &str, properties: Value, required: &[&str]) -> ToolEntry {
    ToolEntry {
        name: name.to_owned(),
        parameters: ToolParameter::from_schema(&json!({"properties": properties, "required": required})),
        ..ToolEntry::default()
    }
}

/// `missing` lists missing and unclear parameters, the latter with a question mark.
#[track_caller]
fn check(sentence: &str, entry: &ToolEntry, values: Value, missing: &[&str]) {
    let today = CalendarDate { year: 2026, month: 1, day: 31 };
    let found = ExtractedArguments::extract(sentence, entry, Some(today));
    let unclear = found.unclear.iter().map(|name| format!("{name}?"));
    let open: Vec<String> = found.missing.iter().cloned().chain(unclear).collect();
    assert_eq!(
        (Value::from(found.values), open),
        (values, missing.iter().map(ToString::to_string).collect()),
        "{sentence}"
    );
}

#[test]
fn free_text_goes_to_a_single_text_parameter() {
    let search = entry("web_search", json!({"query": {"type": "string"}}), &["query"]);
    check("search the web for quantum computers", &search, json!({"query": "quantum computers"}), &[]);
    check("search for 'red shoes'", &search, json!({"query": "red shoes"}), &[]);
    check("please search the web!", &search, json!({}), &["query"]);
    check("search the web for this: Who was it?", &search, json!({"query": "Who was it?"}), &[]);
    check("is the web down today?", &search, json!({"query": "is the web down today"}), &[]);
    let code = entry("code_execution", json!({"code": {"type": "string"}}), &["code"]);
    check("run `print(1)`", &code, json!({"code": "print(1)"}), &[]);
    check("what is 3 times 7?", &code, json!({}), &["code"]);
}

#[test]
fn values_go_to_parameters_of_their_role() {
    let trains = entry(
        "find_trains",
        json!({
            "from": {"type": "string", "description": "City to start in"},
            "to": {"type": "string", "description": "City to go to"},
            "date": {"type": "string", "format": "date"},
            "seats": {"type": "integer"},
        }),
        &["from", "to", "date"],
    );
    check(
        "trains to Oslo from Bergen, NO on May 4th, 2026",
        &trains,
        json!({"to": "Oslo", "from": "Bergen, NO", "date": "2026-05-04"}),
        &[],
    );
    check("a train from Bergen tomorrow", &trains, json!({"from": "Bergen", "date": "2026-02-01"}), &["to"]);
    check("trains from the capital to Oslo", &trains, json!({"to": "Oslo"}), &["date", "from?"]);
    let heat = entry(
        "heat",
        json!({"a": {"type": "number"}, "b": {"type": "number"}, "room": {"type": "string", "description": "The place"}}),
        &["a", "b", "room"],
    );
    check("heat the kitchen with a=2 and b=6", &heat, json!({"a": 2, "b": 6}), &["room"]);
    check("heat with a=2 and b=6 in the kitchen", &heat, json!({"a": 2, "b": 6}), &["room?"]);
    check("I want to go by train", &trains, json!({}), &["from", "to", "date"]);
}

#[test]
fn named_parameter_gets_the_value() {
    let server = entry(
        "add_server",
        json!({
            "host": {"type": "string"}, "port": {"type": "integer"},
            "user_name": {"type": "string"}, "password": {"type": "string"},
        }),
        &["host", "user_name", "password"],
    );
    check(
        "add one with the port 5432, the user name is 'ann' and the password is x9_y",
        &server,
        json!({"port": 5432, "user_name": "ann", "password": "x9_y"}),
        &["host"],
    );
    let pods = entry("pods", json!({"namespace": {"type": "string"}}), &["namespace"]);
    check("list pods in the namespace red-team", &pods, json!({"namespace": "red-team"}), &[]);
    check("list my well-known pods", &pods, json!({}), &["namespace"]);
}

#[test]
fn values_have_the_type_of_the_schema() {
    let order = entry(
        "order",
        json!({
            "count": {"type": "integer"}, "price": {"type": "number"},
            "size": {"enum": ["small", "large", "extra large"]},
            "gift": {"type": "boolean"},
        }),
        &["price", "size", "gift"],
    );
    check("an extra large one for $12.50", &order, json!({"size": "extra large", "price": 12.5}), &["gift?"]);
    check("a small or a large one", &order, json!({}), &["price", "size?", "gift?"]);
    let whole = entry("set_degrees", json!({"degrees": {"type": "integer"}}), &["degrees"]);
    check("by 1.5", &whole, json!({}), &["degrees"]);
    check("by 30", &whole, json!({"degrees": 30}), &[]);
}

#[test]
fn extracts_urls_and_files() {
    let mail = entry(
        "mail",
        json!({"to_email": {"type": "string"}, "file_path": {"type": "string"}}),
        &["to_email", "file_path"],
    );
    check(
        "send ./a.txt to ann@example.org",
        &mail,
        json!({"file_path": "./a.txt", "to_email": "ann@example.org"}),
        &[],
    );
    let page = entry("open", json!({"url": {"type": "string"}}), &["url"]);
    check("go to https://example.org/x", &page, json!({"url": "https://example.org/x"}), &[]);
    check("go to the site of Ann", &page, json!({}), &["url?"]);
    check("go there", &page, json!({}), &["url"]);
}

#[test]
fn list_takes_all_values_that_fit() {
    let read =
        entry("read_many", json!({"paths": {"type": "array", "items": {"type": "string"}}}), &["paths"]);
    check("read ./a.txt and b.md", &read, json!({"paths": ["./a.txt", "b.md"]}), &[]);
    check("read some", &read, json!({}), &["paths?"]);
    let sum = entry("sum", json!({"numbers": {"type": "array", "items": {"type": "number"}}}), &["numbers"]);
    check("the sum of 1, 2.5 and three", &sum, json!({"numbers": [1, 2.5, 3]}), &[]);
}

#[test]
fn words_of_the_tool_are_not_values() {
    let pods = ToolEntry {
        description: "Lists the pods of Kubernetes".to_owned(),
        ..entry("pods", json!({"namespace": {"type": "string"}}), &["namespace"])
    };
    check("list my Kubernetes pods", &pods, json!({}), &["namespace"]);
}

#[test]
fn parameters_users_are_not_asked_for_are_unclear() {
    let list = entry(
        "find",
        json!({"q": {"type": "string"}, "max_results": {"type": "integer"}, "tags": {"type": "array"}}),
        &["max_results", "tags"],
    );
    check("cats", &list, json!({}), &["max_results?", "tags?"]);
    check("cats, with max results 5", &list, json!({"max_results": 5}), &["tags?"]);
}

proptest! {
    /// Nothing is invented: every extracted string occurs in the sentence.
    #[test]
    fn texts_come_from_the_sentence(sentence in "([A-Za-z]{1,6}|'[a-z ]{1,8}'|[0-9]{1,4}|[a-z]{2}_[0-9]|/[a-z]{1,4}/[a-z]{1,4})( [A-Za-z]{1,6}| '[a-z ]{1,8}'| [0-9]{1,4}){0,8}") {
        let all = entry(
            "tool",
            json!({
                "id": {"type": "string"}, "name": {"type": "string"}, "city": {"type": "string"},
                "path": {"type": "string"}, "text": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}},
            }),
            &["id", "name", "city", "path", "text", "tags"],
        );
        let found = ExtractedArguments::extract(&sentence, &all, None);
        let many = found.values.values().flat_map(|value| value.as_array().cloned().unwrap_or(vec![value.clone()]));
        for value in many {
            prop_assert!(sentence.contains(value.as_str().unwrap_or("not a text")), "{}: {}", sentence, value);
        }
    }

    /// For any sentence, a value has its type, and a required parameter is either filled, missing or unclear.
    #[test]
    fn required_parameters_are_filled_missing_or_unclear(sentence in "[ -~ä]{0,80}") {
        let all = entry(
            "tool",
            json!({
                "id": {"type": "string"}, "amount": {"type": "number"}, "days": {"type": "integer"},
                "date": {"type": "string"}, "city": {"type": "string"}, "url": {"type": "string"},
                "mode": {"enum": ["a", "b"]}, "text": {"type": "string"}, "is_new": {"type": "boolean"},
            }),
            &["id", "amount", "days", "date", "city", "url", "mode", "text", "is_new"],
        );
        let found = ExtractedArguments::extract(&sentence, &all, None);
        for parameter in &all.parameters {
            let name = &parameter.name;
            let times = [found.values.contains_key(name), found.missing.contains(name), found.unclear.contains(name)];
            prop_assert_eq!(times.iter().filter(|one| **one).count(), 1, "{}", name);
            if let Some(value) = found.values.get(name) {
                let fits = match &parameter.kind {
                    ValueKind::Text => value.is_string(),
                    ValueKind::Integer => value.is_i64(),
                    ValueKind::Number => value.is_number(),
                    ValueKind::OneOf(values) => values.contains(value),
                    _ => false,
                };
                prop_assert!(fits, "{}: {}", name, value);
            }
        }
    }
}
