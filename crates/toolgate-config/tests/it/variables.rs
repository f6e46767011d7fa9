//! Precedence of variables, and redaction of their values.

use toolgate_types::ConfigString;
use toolgate_types::server::Transport;

use super::{config, errors, loaded, messages};

/// Returns the value of `SEEN` in the environment of the only server.
fn seen_value(loaded: &toolgate_config::LoadOutcome) -> &str {
    let Some(config) = &loaded.config else { panic!("refused:\n{}", messages(loaded)) };
    let Transport::Stdio(stdio) = &config.servers[0].transport else { panic!() };
    stdio.env["SEEN"].as_ref().map(ConfigString::expose).unwrap()
}

const PROJECT: &str =
    "toolbox: {mcps: [{name: a, command: a, mode: strict, env_file: a.env, env: {SEEN: '${X}'}}]}";

#[test]
fn precedence_is_environment_server_file_project_file() {
    let files = [("toolgate.yaml", PROJECT), ("a.env", "X=from a.env"), (".env", "X=from .env")];
    let both = loaded(&files, &[("X", "from outside")]);
    assert_eq!(seen_value(&both), "from outside");
    assert_eq!(config(&both)["variables"]["X"], "environment");
    let files_only = loaded(&files, &[]);
    assert_eq!(seen_value(&files_only), "from a.env");
    assert_eq!(config(&files_only)["variables"]["X"], "a.env:1:1");
    let project_only =
        loaded(&[("toolgate.yaml", PROJECT), ("a.env", ""), (".env", "# one\nX=from .env")], &[]);
    assert_eq!(seen_value(&project_only), "from .env");
    assert_eq!(config(&project_only)["variables"]["X"], ".env:2:1");
}

#[test]
fn servers_do_not_share_env_files() {
    let project = "toolbox:\n  mcps:\n    - {name: a, command: a, mode: strict, env_file: a.env}\n    - {name: b, command: b, mode: strict, env: {SEEN: '${X}'}}";
    let messages = errors(&loaded(&[("toolgate.yaml", project), ("a.env", "X=1")], &[]));
    assert_eq!(messages.len(), 1);
    assert!(
        messages[0].starts_with(
            "toolgate.yaml:4:56 environment variable `X` is not set, and MCP server `b` needs it"
        )
    );
}

#[test]
fn project_may_name_env_files() {
    let project = "env_file: [one.env, two.env]\ntoolbox: {mcps: [{name: a, command: a, mode: strict, env: {SEEN: '${X}${Y}'}}]}";
    let files =
        [("toolgate.yaml", project), ("one.env", "X=1\nY=1"), ("two.env", "Y=2"), (".env", "X=unused")];
    assert_eq!(seen_value(&loaded(&files, &[])), "12");
    assert_eq!(
        errors(&loaded(&files[..2], &[]))[0],
        "toolgate.yaml:1:21 the file `two.env` does not exist (create it, or remove it here; paths start at the project folder)"
    );
}

#[test]
fn reports_each_unset_variable_once() {
    let project = "toolbox:\n  mcps:\n    - name: a\n      command: ${A}\n      args: [x, \"${B} ${C:-c}\", '${D']\n      mode: strict\n      config: {deep: [{er: '${E}'}]}\n      env_file: ${F}\n";
    insta::assert_snapshot!(messages(&loaded(&[("toolgate.yaml", project)], &[])), @"
    error toolgate.yaml:4:16 environment variable `A` is not set, and MCP server `a` needs it (set it in the environment or in `.env`, or write `${A:-default}`)
    error toolgate.yaml:5:18 environment variable `B` is not set, and MCP server `a` needs it (set it in the environment or in `.env`, or write `${B:-default}`)
    error toolgate.yaml:5:34 `${` is not closed in MCP server `a` (close it with `}`, or write `$${` for a literal `${`)
    error toolgate.yaml:7:29 environment variable `E` is not set, and MCP server `a` needs it (set it in the environment or in `.env`, or write `${E:-default}`)
    error toolgate.yaml:8:17 environment variable `F` is not set, and MCP server `a` needs it (set it in the environment or in `.env`, or write `${F:-default}`)
    ");
}

#[test]
fn does_not_expand_schemas_and_examples() {
    let tools = r#"{"tools": [{"name": "a", "description": "b", "input_schema": {"default": "${NOPE}"},
        "examples": [{"description": "c", "params": {"x": "${NOPE}"}}]}]}"#;
    let loaded = loaded(&[("tools.json", tools)], &[]);
    assert_eq!(config(&loaded)["tools"][0]["input_schema"]["default"], "${NOPE}");
    assert_eq!(config(&loaded)["tools"][0]["examples"][0]["params"]["x"], "${NOPE}");
}

#[test]
fn does_not_expand_dotenv_values() {
    let files = [("toolgate.yaml", PROJECT), ("a.env", "X=${Y}\nY=1")];
    assert_eq!(seen_value(&loaded(&files, &[])), "${Y}");
}

// Secrets.

/// Returns everything that loading outputs, as a string.
fn all_output(loaded: &toolgate_config::LoadOutcome) -> String {
    let config = loaded.config.as_ref().map(|config| serde_json::to_string(config).unwrap());
    format!("{config:?} {:?} {} {:?}", loaded.config, loaded.report.render(), loaded.report.entries())
}

#[test]
fn never_shows_secrets() {
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
    assert!(good.config.is_some(), "{}", messages(&good));
    assert!(!all_output(&good).contains("literal-"), "{}", all_output(&good));
    assert!(!all_output(&good).contains("outside-value"), "{}", all_output(&good));
    // And if each of these lines has a mistake.
    let broken = project
        .replace("command: a", "command: a\n      bad: outside-value literal-four")
        .replace("args: [", "args: ['${NOPE}', ")
        .replace("env: {", "env: {A=B: literal-ten, ")
        .replace("config: {", "config: {a: '${NOPE}', ")
        .replace("x=${OUTSIDE}", "x=${OUTSIDE}${NOPE}")
        .replace("headers: {", "headers: {'bad name': literal-eleven, ");
    let bad = loaded(&[("toolgate.yaml", &broken), (".env", "OUTSIDE=outside-value")], &[]);
    assert!(errors(&bad).len() >= 5, "{}", messages(&bad));
    assert!(!all_output(&bad).contains("literal-"), "{}", all_output(&bad));
    assert!(!all_output(&bad).contains("outside-value"), "{}", all_output(&bad));
}

#[test]
fn never_shows_invalid_dotenv_lines() {
    let env = "MY-KEY=first-secret\njust-a-secret\nOPEN=\"second-secret\n";
    let loaded = loaded(&[("toolgate.yaml", ""), (".env", env)], &[]);
    assert_eq!(errors(&loaded).len(), 3);
    assert!(!all_output(&loaded).contains("secret"), "{}", all_output(&loaded));
}

#[test]
fn hides_short_passwords() {
    let text =
        r#"{"inputs": [{"id": "pin", "password": true}], "servers": {"a": {"url": "ftp://h/${input:pin}"}}}"#;
    let loaded = loaded(&[("mcp.json", text)], &[("TOOLGATE_INPUT_PIN", "1a2b")]);
    assert_eq!(errors(&loaded).len(), 1);
    assert!(!all_output(&loaded).contains("1a2b"), "{}", all_output(&loaded));
}

/// Names in a file may contain terminal control characters.
#[test]
fn strips_control_characters() {
    let text = "\"\\e[31mred\\a\": 1\n";
    let rendered = loaded(&[("toolgate.yaml", text)], &[]).report.render();
    assert!(!rendered.contains("\u{1b}[31mred") && !rendered.contains('\u{7}'), "{rendered:?}");
}
