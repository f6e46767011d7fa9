//! Problems: hints for unknown keys, long messages, locations in shared parts of a file.

use super::{errors, loaded, messages};

/// Returns the messages about a server with these keys, in our own file and in another program's.
fn server(keys: &str) -> Vec<String> {
    let mode = if keys.contains("mode:") { "" } else { "mode: strict, " };
    let text = format!("toolbox:\n  mcps:\n    - {{name: a, {mode}{keys}}}");
    let loaded = loaded(&[("toolgate.yaml", &text)], &[]);
    messages(&loaded).lines().map(|line| line.replace("toolgate.yaml:3:", "")).collect()
}

fn bad_server(keys: &str, expected: &str) {
    let messages = server(keys);
    let [only] = &messages[..] else { panic!("{keys}: {messages:#?}") };
    let (_, message) = only.strip_prefix("error ").unwrap().split_once(' ').unwrap();
    assert_eq!(message.split(" (").next().unwrap(), expected, "{keys}");
}

#[test]
fn reports_unknown_keys() {
    bad_server("command: a, comand: b", "unknown key `comand` in MCP server `a`");
    let messages = server("command: a, max_instances: 5");
    assert!(
        messages[0].ends_with("(it is a key of tool settings and of default_tool_config and of tool)"),
        "{messages:?}"
    );
    bad_server(
        "command: a, env_file: [], envFile: []",
        "`env_file` and `envFile` are the same key in MCP server `a`",
    );
    // A very long key is not compared with every known key.
    let messages = server(&format!("command: a, {}: b", "x".repeat(100_000)));
    assert!(!messages[0].contains("did you mean"));
    let theirs = loaded(&[("mcp.json", r#"{"servers": {"a": {"command": "b", "comand": "c"}}}"#)], &[]);
    assert_eq!(
        super::messages(&theirs),
        "note mcp.json:1:36 `comand` in MCP server `a` is not used (did you mean `command`?)"
    );
}

#[test]
fn truncates_long_messages() {
    let long = "x".repeat(10_000);
    for keys in [format!("{long}: 1"), format!("startup: {long}"), format!("description: '${{{long}.}}'")] {
        let messages = server(&format!("command: a, {keys}"));
        assert!(messages.len() == 1 && messages[0].len() < 1000, "{}", messages[0].len());
    }
}

/// A mistake in a shared anchor is reported once per use, at its location.
#[test]
fn mistakes_in_anchors_keep_their_location() {
    let text = "
x-shared: &shared
  mode: strict
  startup: lazzy
toolbox:
  mcps:
    - {<<: *shared, name: a, command: a}
    - {<<: *shared, name: b, command: b}
";
    assert_eq!(
        errors(&loaded(&[("toolgate.yaml", text)], &[])),
        [
            "toolgate.yaml:4:12 `lazzy` is not a startup mode in MCP server `a` (did you mean `lazy`?)",
            "toolgate.yaml:4:12 `lazzy` is not a startup mode in MCP server `b` (did you mean `lazy`?)",
        ]
    );
}
