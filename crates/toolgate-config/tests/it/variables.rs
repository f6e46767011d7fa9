//! Where the values of references come from, and that none of them is shown.

use toolgate_types::Text;
use toolgate_types::server::Transport;

use super::{config, errors, loaded, told};

/// What `SEEN` is in the environment of the only server.
fn seen(loaded: &toolgate_config::Loaded) -> &str {
    let Some(config) = &loaded.config else { panic!("refused:\n{}", told(loaded)) };
    let Transport::Stdio(stdio) = &config.servers[0].transport else { panic!() };
    stdio.env["SEEN"].as_ref().map(Text::expose).unwrap()
}

const PROJECT: &str =
    "toolbox: {mcps: [{name: a, command: a, mode: strict, env_file: a.env, env: {SEEN: '${X}'}}]}";

#[test]
fn the_environment_counts_most_then_the_servers_file_then_the_projects() {
    let files = [("toolgate.yaml", PROJECT), ("a.env", "X=from a.env"), (".env", "X=from .env")];
    let both = loaded(&files, &[("X", "from outside")]);
    assert_eq!(seen(&both), "from outside");
    assert_eq!(config(&both)["variables"]["X"], "environment");
    let files_only = loaded(&files, &[]);
    assert_eq!(seen(&files_only), "from a.env");
    assert_eq!(config(&files_only)["variables"]["X"], "a.env:1:1");
    let project_only =
        loaded(&[("toolgate.yaml", PROJECT), ("a.env", ""), (".env", "# one\nX=from .env")], &[]);
    assert_eq!(seen(&project_only), "from .env");
    assert_eq!(config(&project_only)["variables"]["X"], ".env:2:1");
}

#[test]
fn the_variables_of_one_server_are_not_those_of_the_next() {
    let project = "toolbox:\n  mcps:\n    - {name: a, command: a, mode: strict, env_file: a.env}\n    - {name: b, command: b, mode: strict, env: {SEEN: '${X}'}}";
    let told = errors(&loaded(&[("toolgate.yaml", project), ("a.env", "X=1")], &[]));
    assert_eq!(told.len(), 1);
    assert!(
        told[0].starts_with(
            "toolgate.yaml:4:56 environment variable `X` is not set, and MCP server `b` needs it"
        )
    );
}

#[test]
fn a_project_may_name_its_files() {
    let project = "env_file: [one.env, two.env]\ntoolbox: {mcps: [{name: a, command: a, mode: strict, env: {SEEN: '${X}${Y}'}}]}";
    let files =
        [("toolgate.yaml", project), ("one.env", "X=1\nY=1"), ("two.env", "Y=2"), (".env", "X=unused")];
    assert_eq!(seen(&loaded(&files, &[])), "12");
    assert_eq!(
        errors(&loaded(&files[..2], &[]))[0],
        "toolgate.yaml:1:21 the file `two.env` does not exist (create it, or remove it here; paths start at the project folder)"
    );
}

#[test]
fn every_unset_variable_is_named_once_at_its_place() {
    let project = "toolbox:\n  mcps:\n    - name: a\n      command: ${A}\n      args: [x, \"${B} ${C:-c}\", '${D']\n      mode: strict\n      config: {deep: [{er: '${E}'}]}\n      env_file: ${F}\n";
    insta::assert_snapshot!(told(&loaded(&[("toolgate.yaml", project)], &[])), @"
    error toolgate.yaml:4:16 environment variable `A` is not set, and MCP server `a` needs it (set it in the environment or in `.env`, or write `${A:-default}`)
    error toolgate.yaml:5:18 environment variable `B` is not set, and MCP server `a` needs it (set it in the environment or in `.env`, or write `${B:-default}`)
    error toolgate.yaml:5:34 `${` is not closed in MCP server `a` (close it with `}`, or write `$${` for the text `${`)
    error toolgate.yaml:7:29 environment variable `E` is not set, and MCP server `a` needs it (set it in the environment or in `.env`, or write `${E:-default}`)
    error toolgate.yaml:8:17 environment variable `F` is not set, and MCP server `a` needs it (set it in the environment or in `.env`, or write `${F:-default}`)
    ");
}

#[test]
fn schemas_and_examples_are_left_alone() {
    let tools = r#"{"tools": [{"name": "a", "description": "b", "input_schema": {"default": "${NOPE}"},
        "examples": [{"description": "c", "params": {"x": "${NOPE}"}}]}]}"#;
    let loaded = loaded(&[("tools.json", tools)], &[]);
    assert_eq!(config(&loaded)["tools"][0]["input_schema"]["default"], "${NOPE}");
    assert_eq!(config(&loaded)["tools"][0]["examples"][0]["params"]["x"], "${NOPE}");
}

#[test]
fn a_variable_of_a_dotenv_file_is_not_a_template() {
    let files = [("toolgate.yaml", PROJECT), ("a.env", "X=${Y}\nY=1")];
    assert_eq!(seen(&loaded(&files, &[])), "${Y}");
}

// Inputs.

fn inputs(inputs: &str, variables: &[(&str, &str)]) -> toolgate_config::Loaded {
    let text = format!(
        r#"{{"inputs": [{inputs}], "servers": {{"a": {{"command": "a", "env": {{"SEEN": "${{input:the-key}}"}}}}}}}}"#
    );
    loaded(&[("mcp.json", &text)], variables)
}

#[test]
fn an_input_is_answered_by_its_variable_or_its_default() {
    let asked = inputs(r#"{"id": "the-key"}"#, &[]);
    assert_eq!(seen(&asked), "");
    assert_eq!(config(&asked)["inputs"][0]["answered"], false);
    let given = inputs(r#"{"id": "the-key", "default": "usual"}"#, &[("TOOLGATE_INPUT_THE_KEY", "given")]);
    assert_eq!(seen(&given), "given");
    assert_eq!(config(&given)["inputs"][0]["answered"], true);
    // An input is no variable, even where one has its name.
    assert_eq!(config(&given)["variables"], serde_json::json!({}));
    let usual = inputs(r#"{"id": "the-key", "default": "usual"}"#, &[("the-key", "not this")]);
    assert_eq!((seen(&usual), &config(&usual)["variables"]), ("usual", &serde_json::json!({})));
}

#[test]
fn an_input_that_cannot_be_asked_for() {
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
    assert_eq!(errors(&inputs("{}", &[]))[0], "mcp.json:1:13 missing key `id` in input (add `id`: a text)");
}

#[test]
fn an_answer_is_one_of_the_options() {
    let pick = |more: &str| {
        format!(
            r#"{{"id": "the-key", "type": "pickString", "options": ["eu", {{"label": "US", "value": "us"}}]{more}}}"#
        )
    };
    let given = inputs(&pick(""), &[("TOOLGATE_INPUT_THE_KEY", "us")]);
    assert_eq!(config(&given)["inputs"][0]["options"], serde_json::json!(["eu", "us"]));
    assert_eq!(told(&given), "");
    assert_eq!(
        errors(&inputs(&pick(r#", "default": "mars""#), &[])),
        [
            "mcp.json:1:20 the answer to input `the-key` is none of its options (one of `eu` or `us` is expected, by `default` or by `TOOLGATE_INPUT_THE_KEY`)"
        ]
    );
    let twice = errors(&inputs(r#"{"id": "the-key"}, {"id": "the-key"}"#, &[]));
    assert_eq!(twice, ["mcp.json:1:39 input `the-key` is declared twice (keep one of the two)"]);
}

/// What it will be is not known yet, so nothing is said about it.
#[test]
fn an_address_that_waits_for_an_input() {
    let text = r#"{"inputs": [{"id": "host"}], "servers": {"a": {"type": "http", "url": "${input:host}"}}}"#;
    assert_eq!(told(&loaded(&[("mcp.json", text)], &[])), "");
    let wrong = errors(&loaded(&[("mcp.json", text)], &[("TOOLGATE_INPUT_HOST", "nowhere")]));
    assert_eq!(wrong.len(), 1, "{wrong:?}");
}

// Secrets.

/// Everything that loading gives to others, as text.
fn everything(loaded: &toolgate_config::Loaded) -> String {
    let config = loaded.config.as_ref().map(|config| serde_json::to_string(config).unwrap());
    format!("{config:?} {:?} {} {:?}", loaded.config, loaded.report.render(), loaded.report.entries())
}

#[test]
fn no_secret_reaches_the_configuration_or_a_message() {
    let project = r#"
toolbox:
  mcps:
    - name: a
      command: a
      args: [--token, literal-one, --api-key=literal-two, "--from=${OUTSIDE}", sk-abcdefghijklmnop1234]
      env: {PASSWORD: literal-three, PLAIN: literal-four, FROM: "${OUTSIDE}"}
      config: {password: literal-five, key: "${OUTSIDE}"}
      mode: strict
    - name: b
      url: https://ann:literal-six@localhost/mcp?apiKey=literal-seven&x=${OUTSIDE}
      headers: {Authorization: Bearer literal-eight, X-Key: literal-nine}
      mode: strict
"#;
    let good = loaded(&[("toolgate.yaml", project), (".env", "OUTSIDE=outside-value")], &[]);
    assert!(good.config.is_some(), "{}", told(&good));
    assert!(!everything(&good).contains("literal-"), "{}", everything(&good));
    assert!(!everything(&good).contains("outside-value"), "{}", everything(&good));
    // And when every one of these lines has something wrong with it.
    let broken = project
        .replace("command: a", "command: a\n      bad: outside-value literal-four")
        .replace("args: [", "args: ['${NOPE}', ")
        .replace("env: {", "env: {A=B: literal-ten, ")
        .replace("config: {", "config: {a: '${NOPE}', ")
        .replace("x=${OUTSIDE}", "x=${OUTSIDE}${NOPE}")
        .replace("headers: {", "headers: {'bad name': literal-eleven, ");
    let bad = loaded(&[("toolgate.yaml", &broken), (".env", "OUTSIDE=outside-value")], &[]);
    assert!(errors(&bad).len() >= 5, "{}", told(&bad));
    assert!(!everything(&bad).contains("literal-"), "{}", everything(&bad));
    assert!(!everything(&bad).contains("outside-value"), "{}", everything(&bad));
}

#[test]
fn a_line_of_a_dotenv_file_that_is_wrong_is_not_shown() {
    let env = "MY-KEY=first-secret\njust-a-secret\nOPEN=\"second-secret\n";
    let loaded = loaded(&[("toolgate.yaml", ""), (".env", env)], &[]);
    assert_eq!(errors(&loaded).len(), 3);
    assert!(!everything(&loaded).contains("secret"), "{}", everything(&loaded));
}

#[test]
fn what_is_typed_as_a_password_is_hidden_however_short() {
    let text =
        r#"{"inputs": [{"id": "pin", "password": true}], "servers": {"a": {"url": "ftp://h/${input:pin}"}}}"#;
    let loaded = loaded(&[("mcp.json", text)], &[("TOOLGATE_INPUT_PIN", "1a2b")]);
    assert_eq!(errors(&loaded).len(), 1);
    assert!(!everything(&loaded).contains("1a2b"), "{}", everything(&loaded));
}

/// Names in a file can hold what a terminal would act on.
#[test]
fn no_control_character_reaches_a_message() {
    let text = "\"\\e[31mred\\a\": 1\n";
    let rendered = loaded(&[("toolgate.yaml", text)], &[]).report.render();
    assert!(!rendered.contains("\u{1b}[31mred") && !rendered.contains('\u{7}'), "{rendered:?}");
}
