//! Inputs: their answers and their mistakes.

use toolgate_types::ConfigString;
use toolgate_types::server::Transport;

use crate::LoadOutcome;
use crate::test_support::{config, errors, loaded, messages};

/// Returns the value of `SEEN` in the environment of the only server.
fn seen_value(loaded: &LoadOutcome) -> &str {
    let Some(config) = &loaded.config else { panic!("refused:\n{}", messages(loaded)) };
    let Transport::Stdio(stdio) = &config.servers[0].transport else { panic!() };
    stdio.env["SEEN"].as_ref().map(ConfigString::expose).unwrap()
}

fn inputs(inputs: &str, variables: &[(&str, &str)]) -> LoadOutcome {
    let text = format!(
        r#"{{"inputs": [{inputs}], "servers": {{"a": {{"command": "a", "env": {{"SEEN": "${{input:the-key}}"}}}}}}}}"#
    );
    loaded(&[("mcp.json", &text)], variables)
}

#[test]
fn variable_or_default_answers_input() {
    let asked = inputs(r#"{"id": "the-key"}"#, &[]);
    assert_eq!(seen_value(&asked), "");
    assert_eq!(config(&asked)["inputs"][0]["answered"], false);
    let given = inputs(r#"{"id": "the-key", "default": "usual"}"#, &[("TOOLGATE_INPUT_THE_KEY", "given")]);
    assert_eq!(seen_value(&given), "given");
    assert_eq!(config(&given)["inputs"][0]["answered"], true);
    // An input is not a variable, even if one has its name.
    assert_eq!(config(&given)["variables"], serde_json::json!({}));
    let usual = inputs(r#"{"id": "the-key", "default": "usual"}"#, &[("the-key", "not this")]);
    assert_eq!((seen_value(&usual), &config(&usual)["variables"]), ("usual", &serde_json::json!({})));
}

#[test]
fn rejects_invalid_inputs() {
    assert_eq!(
        errors(&inputs(r#"{"id": "the-key", "type": "pickString"}"#, &[])),
        [
            "mcp.json:1:20 input `the-key` has nothing to choose from (add `options`, or make it a `promptString`)"
        ]
    );
    assert_eq!(
        errors(&inputs("", &[])),
        [
            "mcp.json:1:67 input `the-key` is not declared in MCP server `a` (add an entry with `\"id\": \"the-key\"` to `inputs`)"
        ]
    );
    assert_eq!(errors(&inputs("{}", &[]))[0], "mcp.json:1:13 missing key `id` in input (add `id`: a string)");
}

#[test]
fn answer_must_be_one_of_the_options() {
    let pick = |more: &str| {
        format!(
            r#"{{"id": "the-key", "type": "pickString", "options": ["eu", {{"label": "US", "value": "us"}}]{more}}}"#
        )
    };
    let given = inputs(&pick(""), &[("TOOLGATE_INPUT_THE_KEY", "us")]);
    assert_eq!(config(&given)["inputs"][0]["options"], serde_json::json!(["eu", "us"]));
    assert_eq!(messages(&given), "");
    assert_eq!(
        errors(&inputs(&pick(r#", "default": "mars""#), &[])),
        [
            "mcp.json:1:20 the answer to input `the-key` is none of its options (one of `eu` or `us` is expected, by `default` or by `TOOLGATE_INPUT_THE_KEY`)"
        ]
    );
    let twice = errors(&inputs(r#"{"id": "the-key"}, {"id": "the-key"}"#, &[]));
    assert_eq!(twice, ["mcp.json:1:39 input `the-key` is declared twice (keep one of the two)"]);
}

/// The final value is unknown, so it is not checked.
#[test]
fn accepts_url_with_unanswered_input() {
    let text = r#"{"inputs": [{"id": "host"}], "servers": {"a": {"type": "http", "url": "${input:host}"}}}"#;
    assert_eq!(messages(&loaded(&[("mcp.json", text)], &[])), "");
    let wrong = errors(&loaded(&[("mcp.json", text)], &[("TOOLGATE_INPUT_HOST", "nowhere")]));
    assert_eq!(wrong.len(), 1, "{wrong:?}");
}
