//! `toolgate tools test`: calls the examples of your own tools and compares the results.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value as Json;
use toolgate_app::App;
use toolgate_redact::printable;
use toolgate_runtime::CallOutcome;
use toolgate_runtime::catalog::Upstream;
use toolgate_types::tool::ToolExample;
use toolgate_types::{Caller, ToolDefinition};

use crate::cli::{AnswerMode, ProjectArgs, TestToolsArgs};
use crate::command::app::{self, AppChoice};
use crate::output::{BOLD, DIM, Output, error_with_hint};
use crate::{DONE, FAILED};

/// Result of one example.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ExampleResult {
    tool: String,
    example: String,
    passed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    got: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    milliseconds: f64,
}

pub(crate) fn run(args: &TestToolsArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    app::with_app(
        project,
        output,
        AppChoice::new(AnswerMode::Ask).with_servers(|_| false).with_log(),
        async |app, _| {
            let caller = app::find_caller(app, &args.caller)?;
            let catalog = app.runtime().catalog();
            let is_wanted = |name: &str| args.name.as_ref().is_none_or(|wanted| wanted == name);
            let own: Vec<&Arc<ToolDefinition>> = catalog
                .tools()
                .filter_map(|tool| match &tool.upstream {
                    Upstream::Script(definition) if is_wanted(&tool.name) => Some(definition),
                    _ => None,
                })
                .collect();
            if let (Some(name), true) = (&args.name, own.is_empty()) {
                let hint = "only your own tools have examples; list all with `toolgate tools list`";
                return Err(error_with_hint(format!("`{name}` is not one of your own tools"), hint));
            }
            let mut outcomes = Vec::new();
            for tool in &own {
                for example in &tool.examples {
                    let outcome = run_example(app, &caller, tool, example).await;
                    if !output.json {
                        output.result(&result_text(&outcome));
                    }
                    outcomes.push(outcome);
                }
            }
            let without: Vec<_> =
                own.iter().filter(|tool| tool.examples.is_empty()).map(|tool| tool.name.as_str()).collect();
            let failed = outcomes.iter().filter(|outcome| !outcome.passed).count();
            if output.json {
                let document = serde_json::json!({ "ok": failed == 0, "passed": outcomes.len() - failed,
                "failed": failed, "examples": outcomes, "without": without });
                output.document(&document)?;
            } else {
                output.result(&format!("{} passed, {failed} failed\n", outcomes.len() - failed));
                if !without.is_empty() {
                    output.message(&format!("no examples: {}\n", without.join(", ")));
                }
            }
            Ok(if failed == 0 { DONE } else { FAILED })
        },
    )
}

async fn run_example(
    app: &App,
    caller: &Caller,
    tool: &ToolDefinition,
    example: &ToolExample,
) -> ExampleResult {
    let called = app.call(caller, tool.name.as_str(), &example.params).await;
    let milliseconds = called.metadata().execution_time;
    let CallOutcome { result, .. } = called;
    let expected: Option<Json> =
        example.expected_result.as_ref().and_then(|text| serde_json::from_str(text.get()).ok());
    let data: Option<Json> = result.data.as_ref().and_then(|data| data.parse().ok());
    let got = data.map(|data| convert_result(data, expected.as_ref()));
    let passed = result.error.is_none()
        && match (&expected, &got) {
            (Some(expected), Some(got)) => is_equal(expected, got),
            (Some(_), None) => false,
            (None, _) => true,
        };
    ExampleResult {
        tool: tool.name.to_string(),
        example: example.description.clone(),
        passed,
        expected: expected.filter(|_| !passed),
        got: got.filter(|_| !passed),
        error: result.error.as_ref().map(|error| format!("{}: {error}", error.code.label())),
        milliseconds,
    }
}

/// Converts the result of a tool to the form of the expected one: text as a string, or as the JSON in it.
fn convert_result(data: Json, expected: Option<&Json>) -> Json {
    let text = match data.as_array().map(Vec::as_slice) {
        Some([block]) if block["type"] == "text" => block["text"].as_str().map(str::to_owned),
        _ => None,
    };
    match (text, expected) {
        (Some(text), Some(Json::String(_))) => Json::String(text),
        (Some(text), Some(_)) => serde_json::from_str(&text).unwrap_or(data),
        _ => data,
    }
}

/// Returns true if two documents are equal, with numbers compared by value.
fn is_equal(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Json::Array(a), Json::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_equal(a, b))
        }
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| is_equal(a, b)))
        }
        _ => a == b,
    }
}

fn result_text(outcome: &ExampleResult) -> String {
    let ExampleResult { tool, example, passed, expected, got, error, milliseconds } = outcome;
    let word = if *passed { "ok    " } else { "FAILED" };
    let took = Duration::from_secs_f64((milliseconds / 1000.0).max(0.0)).as_millis();
    let mut text = format!("{word} {BOLD}{tool}{BOLD:#}: {} {DIM}{took} ms{DIM:#}\n", printable(example));
    text.extend(error.iter().map(|error| format!("    {}\n", printable(error))));
    if let (None, Some(expected)) = (error, expected) {
        let got = got.as_ref().map(ToString::to_string).unwrap_or_default();
        text.push_str(&format!("    expected {expected}\n    got      {got}\n"));
    }
    text
}

#[test]
fn compares_numbers_by_value() {
    use serde_json::json;
    assert!(is_equal(&json!({ "a": [1, 2.0] }), &json!({ "a": [1.0, 2] })));
    assert!(!is_equal(&json!({ "a": 1 }), &json!({ "a": 1, "b": 2 })));
    assert!(!is_equal(&json!([1]), &json!([1, 2])));
    assert!(!is_equal(&json!("1"), &json!(1)));
}

#[test]
fn parses_text_as_the_expected_type() {
    use serde_json::json;
    let text = |text: &str| json!([{ "type": "text", "text": text }]);
    assert_eq!(convert_result(text("3"), Some(&json!(3))), json!(3));
    assert_eq!(convert_result(text("3"), Some(&json!("3"))), json!("3"));
    assert_eq!(convert_result(json!({ "n": 1 }), Some(&json!("x"))), json!({ "n": 1 }));
}
